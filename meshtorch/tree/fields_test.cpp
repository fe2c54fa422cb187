// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tree/fields.h>

#include <gtest/gtest.h>

#include <any>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace meshtorch {
namespace {

struct Empty {};
struct NoDefault {
  explicit NoDefault(int);
};
struct Everything {
  const int constant;
  std::string text;
  std::optional<std::string> maybe;
  std::optional<std::optional<int>> twice;
  std::variant<int, std::string> either;
  std::any any;
  std::function<void()> call;
  std::unique_ptr<int> owned;
  std::map<std::string, std::vector<Everything>> children;
  std::unordered_map<int, int> table;
  std::array<int, 3> three;
  std::pair<int, Empty> pair;
  NoDefault no_default;
  Empty _last_1;
};
struct Options {
  int size[2];
};
union Either {
  int a;
  float b;
};
class Opaque {
  [[maybe_unused]] int a_ = 0;
};
enum class Number { one };

TEST(Fields, NamesAreThoseOfTheDeclaration) {
  const std::vector<std::string_view> names(kFieldNames<Everything>.begin(),
                                            kFieldNames<Everything>.end());
  EXPECT_EQ(names, (std::vector<std::string_view>{"constant", "text", "maybe", "twice", "either",
                                                  "any", "call", "owned", "children", "table",
                                                  "three", "pair", "no_default", "_last_1"}));
  EXPECT_EQ(kFieldNames<Empty>.size(), 0u);
  struct Local {
    int x, longer_name;
  };
  EXPECT_EQ(kFieldNames<Local>[1], "longer_name");
}

TEST(Fields, AreReferencesToTheObject) {
  struct Point {
    int x;
    std::string name;
  };
  Point point{3, "p"};
  std::string seen;
  for_each_field(point, [&]<class T>(std::string_view name, T& field) {
    seen += std::string(name) + (std::is_const_v<T> ? " const," : ",");
    if constexpr (std::is_same_v<T, int>) field = 4;
  });
  EXPECT_EQ(point.x, 4);
  for_each_field(std::as_const(point), [&]<class T>(std::string_view name, T&) {
    seen += std::string(name) + (std::is_const_v<T> ? " const," : ",");
  });
  EXPECT_EQ(seen, "x,name,x const,name const,");
}

TEST(Fields, OnlyClassesThatComeApart) {
  EXPECT_TRUE(HasFields<Everything> && HasFields<Empty>);
  EXPECT_FALSE(HasFields<int> || HasFields<Number> || HasFields<Either> || HasFields<Opaque> ||
               HasFields<std::string> || (HasFields<std::array<int, 3>>) || HasFields<int[3]>);
}

TEST(Fields, AsManyAsAStructCanHave) {
  struct Forty {
    int a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9;
    int c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9;
  };
  EXPECT_EQ(kFieldNames<Forty>.size(), kMaxFields);
  EXPECT_EQ(kFieldNames<Forty>.back(), "d9");
  Forty forty{};
  int sum = 0;
  for_each_field(forty, [&](std::string_view, int& field) { sum += ++field; });
  EXPECT_EQ(sum, 40);
}

// What the static_asserts of field_count() ask.
TEST(Fields, ArraysAndBasesAreSeen) {
  struct Derived : Empty {
    int a;
  };
  struct Late {
    std::string text;
    int size[3];
    std::string more;
  };
  EXPECT_TRUE(fields_detail::has_base<Derived>());
  EXPECT_FALSE(fields_detail::has_base<Everything>());
  EXPECT_TRUE((fields_detail::has_array<Options, fields_detail::initializers<Options>()>()));
  EXPECT_TRUE((fields_detail::has_array<Late, fields_detail::initializers<Late>()>()));
  EXPECT_FALSE((fields_detail::has_array<Everything, 14>()));
}

#if __has_include(<boost/describe.hpp>)
class Base {
 protected:
  int base_ = 1;
  BOOST_DESCRIBE_CLASS(Base, (), (), (base_), ())
};
class Described : public Base {
 public:
  int open = 2;

 private:
  std::string hidden_ = "h";
  [[maybe_unused]] int not_said_ = 0;
  BOOST_DESCRIBE_CLASS(Described, (Base), (open), (), (hidden_))
};

TEST(Fields, OfADescribedClassBasesFirst) {
  Described object;
  std::string names;
  for_each_field(object, [&](std::string_view name, auto&) { names += std::string(name) + ","; });
  EXPECT_EQ(names, "base_,open,hidden_,");
}
#endif

}  // namespace
}  // namespace meshtorch
