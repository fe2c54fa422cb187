// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/mesh/mesh.h>

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include <meshtorch/base/error.h>
#include <meshtorch/base/testing.h>

namespace meshtorch {
namespace {

using Positions = std::vector<std::int64_t>;

AxisList list(std::initializer_list<int> axes) {
  AxisList all;
  for (const int axis : axes) all.push_back(axis);
  return all;
}

TEST(Mesh, IsRowMajor) {
  const Mesh mesh{{"dp", 4}, {"tp", 2}};
  EXPECT_EQ(mesh.rank(), 2);
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(mesh.axis_size("dp"), 4);
  EXPECT_EQ(mesh.axis("tp"), 1);
  EXPECT_EQ(mesh.find_axis("pp"), -1);
  EXPECT_EQ(mesh.stride(0), 2);
  EXPECT_EQ(mesh.stride(1), 1);
  EXPECT_EQ(mesh.coordinates(5), (Positions{2, 1}));
  for (std::int64_t p = 0; p < mesh.size(); ++p) EXPECT_EQ(mesh.position(mesh.coordinates(p)), p);
  EXPECT_EQ(mesh.devices(), (Positions{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Mesh, CountsShards) {
  const Mesh mesh{{"a", 2}, {"b", 3}, {"c", 5}};
  EXPECT_EQ(mesh.shards(list({2, 0})), 10);
  EXPECT_EQ(mesh.shards(AxisSet::of(1)), 3);
  EXPECT_EQ(mesh.shards(AxisSet()), 1);
}

TEST(Mesh, GroupsRankInTheOrderOfTheirAxes) {
  const Mesh mesh{{"a", 2}, {"b", 3}};
  EXPECT_EQ(mesh.group(4, list({0})), (Positions{1, 4}));
  EXPECT_EQ(mesh.group(4, list({1})), (Positions{3, 4, 5}));
  EXPECT_EQ(mesh.group(4, list({1, 0})), (Positions{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(mesh.group(4, {}), (Positions{4}));
  EXPECT_EQ(mesh.group_rank(4, list({1, 0})), 3);
  EXPECT_EQ(mesh.group_rank(4, list({0, 1})), 4);
}

TEST(Mesh, GroupsPartitionThePositions) {
  const Mesh mesh{{"a", 2}, {"b", 3}, {"c", 2}};
  for (const AxisList axes : {list({}), list({1}), list({2, 0}), list({0, 1, 2})}) {
    Positions seen, first;
    for (const Positions& group : mesh.groups(axes)) {
      EXPECT_EQ(static_cast<std::int64_t>(group.size()), mesh.shards(axes));
      first.push_back(group.front());
      for (std::size_t rank = 0; rank < group.size(); ++rank) {
        EXPECT_EQ(mesh.group_rank(group[rank], axes), static_cast<std::int64_t>(rank));
        EXPECT_EQ(mesh.group(group[rank], axes), group);
        seen.push_back(group[rank]);
      }
    }
    std::ranges::sort(seen);
    EXPECT_EQ(seen, mesh.devices());
    EXPECT_TRUE(std::ranges::is_sorted(first));
  }
}

TEST(Mesh, GroupsAreComputedOnce) {
  const Mesh mesh{{"a", 2}, {"b", 3}};
  const Mesh handle = mesh;
  const auto* groups = &mesh.groups(list({0}));
  mesh.groups(list({1}));
  mesh.groups(list({1, 0}));
  EXPECT_EQ(&handle.groups(list({0})), groups);
}

TEST(Mesh, EqualityIsOfAxesAndDevices) {
  const Mesh a{{"dp", 2}}, b{{"dp", 2}};
  EXPECT_EQ(a, b);
  EXPECT_FALSE(a.same(b));
  EXPECT_TRUE(a.same(Mesh(a)));
  EXPECT_NE(a, Mesh({{"dp", 2}}, {1, 0}));
  EXPECT_NE(a, (Mesh{{"tp", 2}}));
  EXPECT_NE(a, Mesh());
  EXPECT_EQ(Mesh(), Mesh());
}

TEST(Mesh, EqualMeshesShareANumber) {
  const Mesh mesh({{"dp", 4}, {"tp", 2}});
  EXPECT_EQ(mesh.id(), Mesh({{"dp", 4}, {"tp", 2}}).id());
  EXPECT_EQ(mesh.sub_mesh({"tp"}, {{"dp", 1}}).id(), Mesh({{"tp", 2}}, {2, 3}).id());
  const std::set<std::uint64_t> ids{mesh.id(), Mesh({{"dp", 2}, {"tp", 4}}).id(),
                                    Mesh({{"tp", 4}, {"dp", 2}}).id(), Mesh({{"tp", 2}}).id(),
                                    Mesh({{"tp", 2}}, {2, 3}).id()};
  EXPECT_EQ(ids.size(), 5u);
}

TEST(Mesh, SubMeshKeepsTheNamedAxes) {
  const Mesh mesh({{"a", 2}, {"b", 2}, {"c", 2}}, {10, 11, 12, 13, 14, 15, 16, 17});
  EXPECT_EQ(mesh.sub_mesh({"b"}, {{"a", 1}, {"c", 1}}).devices(), (Positions{15, 17}));
  EXPECT_EQ(mesh.sub_mesh({"c", "a"}).to_string(), "(c=2, a=2)");
  EXPECT_EQ(mesh.sub_mesh({"c", "a"}).devices(), (Positions{10, 14, 11, 15}));
}

TEST(Mesh, PrintsAndParses) {
  const Mesh mesh{{"dp", 4}, {"_t2", 1}};
  EXPECT_EQ(mesh.to_string(), "(dp=4, _t2=1)");
  EXPECT_EQ(text(mesh), "(dp=4, _t2=1)");
  EXPECT_EQ(Mesh().to_string(), "(no mesh)");
  for (const char* form : {"dp=4,_t2=1", "(dp=4, _t2=1)", "  ( dp = 4 ,_t2=1 ) "}) {
    EXPECT_EQ(Mesh::parse(form), mesh) << form;
  }
}

TEST(MeshErrors, Axes) {
  EXPECT_EQ(message([] { Mesh(std::vector<MeshAxis>{}); }),
            "[Mesh] no axes; give at least one, as in {{\"dp\", 1}}");
  EXPECT_EQ(message([] { Mesh(std::vector<MeshAxis>(9, {"a", 1})); }),
            "[Mesh] got 9 axes, at most 8; merge some into one");
  for (const std::string name : {"", "a-b", "2d", "a b", "a,b"}) {
    EXPECT_EQ(message([&] { Mesh({{name, 2}}); }),
              "[Mesh] axis \"" + name + "\": ill-formed name; names are [A-Za-z_][A-Za-z0-9_]*");
  }
  EXPECT_EQ(message([] { Mesh({{"dp", 2}, {"dp", 2}}); }),
            "[Mesh] axis \"dp\": named twice; give each axis its own name");
  EXPECT_EQ(message([] { Mesh({{"dp", 0}}); }),
            "[Mesh] axis \"dp\": size 0, must be at least 1; an axis of size 1 is a no-op");
  EXPECT_EQ(message([] { Mesh({{"dp", -3}}); }),
            "[Mesh] axis \"dp\": size -3, must be at least 1; an axis of size 1 is a no-op");
}

TEST(MeshErrors, Devices) {
  EXPECT_EQ(message([] { Mesh({{"dp", 2}, {"tp", 2}}, {0, 1, 2}); }),
            "[Mesh] devices: got 3, expected 4 for (dp=2, tp=2); list one device per position");
  EXPECT_EQ(message([] { Mesh({{"dp", 2}}, {1, 1}); }),
            "[Mesh] devices: device 1 is listed twice; a device has one position");
  EXPECT_EQ(message([] { Mesh({{"dp", 2}}, {0, -1}); }),
            "[Mesh] devices: got device -1; devices are numbered from 0");
}

TEST(MeshErrors, UnknownAxisListsTheNames) {
  const Mesh mesh{{"dp", 4}, {"tp", 2}};
  const std::string expected =
      "[Mesh] \"tpp\" is not an axis of mesh (dp=4, tp=2); use one of: dp, tp";
  EXPECT_EQ(message([&] { mesh.axis("tpp"); }), expected);
  EXPECT_EQ(message([&] { mesh.axis_size("tpp"); }), expected);
  EXPECT_EQ(message([&] { mesh.sub_mesh({"tpp"}); }), expected);
  EXPECT_EQ(message([&] { mesh.sub_mesh({"tp"}, {{"tpp", 0}}); }), expected);
}

TEST(MeshErrors, SubMesh) {
  const Mesh mesh{{"dp", 4}, {"tp", 2}};
  EXPECT_EQ(message([&] { mesh.sub_mesh({"tp", "tp"}); }),
            "[Mesh] axis \"tp\": named twice; give each axis its own name");
  EXPECT_EQ(message([&] { mesh.sub_mesh({"tp"}, {{"tp", 0}}); }),
            "[sub_mesh] axis \"tp\": both kept and fixed; drop it from one of the two lists");
  EXPECT_EQ(message([&] { mesh.sub_mesh({"tp"}, {{"dp", 0}, {"dp", 1}}); }),
            "[sub_mesh] axis \"dp\": fixed twice; give it one coordinate");
  EXPECT_EQ(message([&] { mesh.sub_mesh({"tp"}, {{"dp", 4}}); }),
            "[sub_mesh] axis \"dp\": coordinate 4, expected 0 to 3; choose one that the mesh has");
  EXPECT_EQ(message([&] { mesh.sub_mesh({}); }),
            "[Mesh] no axes; give at least one, as in {{\"dp\", 1}}");
}

TEST(MeshErrors, Parse) {
  const auto parse = [](const char* form) { return message([&] { Mesh::parse(form); }); };
  const std::string remedy = "; write it as \"dp=4,tp=2\"";
  EXPECT_EQ(parse(""),
            "[Mesh::parse] \"\": expected an axis name at column 1, got the end" + remedy);
  EXPECT_EQ(parse("dp=4,"),
            "[Mesh::parse] \"dp=4,\": expected an axis name at column 6, got the end" + remedy);
  EXPECT_EQ(parse("dp:4"),
            "[Mesh::parse] \"dp:4\": expected \"=\" at column 3, got \":\"" + remedy);
  EXPECT_EQ(parse("dp=x"),
            "[Mesh::parse] \"dp=x\": expected a size at column 4, got \"x\"" + remedy);
  EXPECT_EQ(parse("dp=99999999999999999999"),
            "[Mesh::parse] \"dp=99999999999999999999\": expected a size at column 4, got \"9\"" +
                remedy);
  EXPECT_EQ(parse("(dp=4"),
            "[Mesh::parse] \"(dp=4\": expected \")\" at column 6, got the end" + remedy);
  EXPECT_EQ(parse("dp=4 tp=2"),
            "[Mesh::parse] \"dp=4 tp=2\": expected the end at column 6, got \"t\"" + remedy);
  EXPECT_EQ(parse("dp=0"),
            "[Mesh] axis \"dp\": size 0, must be at least 1; an axis of size 1 is a no-op");
}

}  // namespace
}  // namespace meshtorch
