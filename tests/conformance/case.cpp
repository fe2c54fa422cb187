// SPDX-License-Identifier: Apache-2.0
#include "case.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include <meshtorch/base/error.h>

namespace meshtorch::conformance {
namespace {

const std::set<std::string> kKinds{
    "real",     "positive",   "unit",   "distinct", "nonzero",     "float",    "half",
    "bfloat16", "int",        "count",  "index",    "permutation", "bool",     "complex",
    "spd",      "triangular", "pivots", "int32",    "extreme",     "ascending"};

class Parser {
 public:
  Parser(std::string text, std::string where) : rest_(std::move(text)), where_(std::move(where)) {}

  Case run() {
    const std::string whole = rest_;
    const std::string op = trim(until("("));
    const auto handle = find(op);
    Case parsed{.where = where_, .text = whole, .op = op, .handle = handle};
    expect('(');
    while (!take(')')) {
      std::string name = trim(until("=),"));
      if (!take('=')) bad("argument \"" + name + "\" has no value", "write name=value");
      check_name(parsed, name);
      parsed.arguments.emplace_back(std::move(name), value(",)"));
      if (!take(',') && peek() != ')') bad("the list of arguments is not closed", "write )");
    }
    if (take(';')) {
      options(parsed);
    } else if (!trim(rest_).empty()) {
      bad("there is text behind the call: " + rest_, "options follow a ;");
    }
    parsed.letters = letters_;
    for (const auto& [letter, least] : parsed.least) {
      if (std::find(letters_.begin(), letters_.end(), letter) == letters_.end())
        bad(meshtorch::text("min(", letter, ") names a letter that the call has not"), "");
    }
    return parsed;
  }

 private:
  [[noreturn]] void bad(const std::string& what, const std::string& remedy) const {
    fail({"conformance", where_, what, remedy});
  }

  static std::string trim(const std::string& text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
  }

  void skip_blanks() { rest_.erase(0, std::min(rest_.find_first_not_of(" \t"), rest_.size())); }
  char peek() {
    skip_blanks();
    return rest_.empty() ? '\0' : rest_.front();
  }
  bool take(char c) {
    if (peek() != c) return false;
    rest_.erase(0, 1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) bad(text("expected ", c, " before \"", rest_, "\""), "");
  }
  // Up to one of `stops` that no parenthesis holds.
  std::string until(const std::string& stops) {
    int depth = 0;
    std::size_t end = 0;
    for (; end < rest_.size(); ++end) {
      if (depth == 0 && stops.find(rest_[end]) != std::string::npos) break;
      depth += (rest_[end] == '(') - (rest_[end] == ')');
    }
    const std::string taken = rest_.substr(0, end);
    rest_.erase(0, end);
    return taken;
  }

  c10::OperatorHandle find(const std::string& op) const {
    const std::size_t dot = op.find('.');
    const std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
    auto handle = c10::Dispatcher::singleton().findSchema({"aten::" + op.substr(0, dot), overload});
    if (!handle)
      bad("\"" + op + "\" is no op of aten", "give the full overload name without aten::");
    return *handle;
  }

  void check_name(const Case& parsed, const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& argument : parsed.handle.schema().arguments())
      names.push_back(argument.name());
    if (std::find(names.begin(), names.end(), name) == names.end())
      bad(parsed.op + " has no argument \"" + name + "\"", "use one of: " + join(names));
    for (const auto& [given, value] : parsed.arguments) {
      if (given == name) bad("argument \"" + name + "\" is given twice", "");
    }
  }

  Expression expression(const std::string& text) {
    Expression parsed(trim(text), where_);
    for (const char letter : parsed.letters()) {
      if (std::find(letters_.begin(), letters_.end(), letter) == letters_.end())
        letters_.push_back(letter);
    }
    return parsed;
  }

  Value value(const std::string& stops) {
    if (take('<')) return tensor(stops);
    if (take('[')) return list();
    return atom(trim(until(stops)));
  }

  Value list() {
    Value parsed;
    parsed.kind = Value::Kind::list;
    while (!take(']')) {
      parsed.list.push_back(value(",]"));
      if (!take(',') && peek() != ']') bad("a list is not closed", "write ]");
    }
    return parsed;
  }

  Value tensor(const std::string& stops) {
    TensorText parsed;
    while (!take('>')) {
      parsed.dims.push_back(expression(until(",>")));
      if (!take(',') && peek() != '>') bad("a tensor's dims are not closed", "write >");
    }
    if (take(':')) {
      std::string kind = trim(until(stops));
      const std::size_t open = kind.find('(');
      if (open != std::string::npos) {
        if (kind.back() != ')') bad("\"" + kind + "\" is not closed", "write )");
        parsed.parameter = expression(kind.substr(open + 1, kind.size() - open - 2));
        kind = kind.substr(0, open);
      }
      const bool counted = kind == "index" || kind == "permutation" || kind == "int32";
      if (!kKinds.count(kind) || counted != parsed.parameter.has_value())
        bad("a tensor's values cannot be \"" + kind + "\"",
            "use one of: " + join(kKinds) + "; index(e), permutation(e) and int32(e) take a size");
      parsed.kind = kind;
    }
    Value value;
    value.kind = Value::Kind::tensor;
    value.tensor = std::move(parsed);
    return value;
  }

  Value atom(const std::string& text) {
    static const std::regex number(R"(-?(\d+\.\d*|\.\d+|\d+(?=e))(e-?\d+)?|-?inf|nan)");
    static const std::regex word(R"([A-Za-z_]\w+)");
    Value value;
    if (text.empty()) bad("a value is missing", "");
    if (text == "?" || text == "none") return value;
    if (text == "true" || text == "false") {
      value.kind = Value::Kind::boolean;
      value.boolean = text == "true";
    } else if (text.front() == '"') {
      if (text.size() < 2 || text.back() != '"') bad("a quoted word is not closed", "");
      value.kind = Value::Kind::word;
      value.word = text.substr(1, text.size() - 2);
    } else if (std::regex_match(text, number)) {
      value.kind = Value::Kind::number;
      value.number = std::stod(text);
    } else if (std::regex_match(text, word)) {
      value.kind = Value::Kind::word;
      value.word = text;
    } else {
      value.kind = Value::Kind::integer;
      value.integer = expression(text);
    }
    return value;
  }

  void options(Case& parsed) {
    static const std::map<std::string, Compare> ways{{"values", Compare::values},
                                                     {"abs", Compare::absolute},
                                                     {"set", Compare::set},
                                                     {"seeded", Compare::seeded},
                                                     {"shape", Compare::shape}};
    std::istringstream words(rest_);
    for (std::string word; words >> word;) {
      const bool minimum = word.size() > 7 && word.starts_with("min(") && word.substr(5, 2) == ")=";
      if (minimum && std::all_of(word.begin() + 7, word.end(),
                                 [](unsigned char c) { return std::isdigit(c); })) {
        parsed.least[word[4]] = std::stoll(word.substr(7));
      } else if (word == "no-zero") {
        parsed.zero = false;
      } else if (word == "no-grad") {
        parsed.gradients = false;
      } else if (word == "gathers") {
        parsed.gathers = true;
      } else if (word.starts_with("values=") && ways.count(word.substr(7))) {
        parsed.compare = ways.at(word.substr(7));
      } else {
        bad("\"" + word + "\" is no option",
            "use: min(a)=3, no-zero, no-grad, gathers, values=abs|set|seeded|shape");
      }
    }
  }

  std::string rest_;
  std::string where_;
  std::vector<char> letters_;
};

}  // namespace

Case parse_case(const std::string& text, const std::string& where) {
  return Parser(text, where).run();
}

std::vector<Case> read_cases(const std::string& path,
                             const std::function<void(const std::string&)>& problem) {
  const std::string file = std::filesystem::path(path).filename().string();
  std::ifstream in(path);
  if (!in) fail({"conformance", path, "cannot be read", ""});
  std::vector<Case> cases;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (line.empty()) continue;
    try {
      cases.push_back(parse_case(line, text(file, ":", number)));
    } catch (const Error& error) {
      problem(error.what());
    }
  }
  return cases;
}

}  // namespace meshtorch::conformance
