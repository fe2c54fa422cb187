// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/precision.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <map>
#include <ostream>

#include <meshtorch/base/error.h>
#include <meshtorch/train/cast.h>

namespace meshtorch {
namespace {

constexpr char kRemedy[] = "write it as \"params=float32,compute=bfloat16,output=float32\"";

struct DtypeNames {
  at::ScalarType dtype;
  std::array<std::string_view, 3> names;  // the first is printed
};
constexpr std::array kDtypes{DtypeNames{at::kFloat, {"float32", "f32", "float"}},
                             DtypeNames{at::kBFloat16, {"bfloat16", "bf16", "bfloat16"}},
                             DtypeNames{at::kHalf, {"float16", "f16", "half"}},
                             DtypeNames{at::kDouble, {"float64", "f64", "double"}}};

struct Key {
  std::string_view name;
  at::ScalarType Precision::*dtype;
};
constexpr std::array kKeys{Key{"params", &Precision::params}, Key{"compute", &Precision::compute},
                           Key{"output", &Precision::output}, Key{"reduce", &Precision::reduce},
                           Key{"accumulate", &Precision::accumulate}};

// Blanks have no meaning around what is between commas and equals signs.
std::string_view trim(std::string_view part) {
  const auto first = part.find_first_not_of(" \t");
  if (first == part.npos) return {};
  return part.substr(first, part.find_last_not_of(" \t") - first + 1);
}

// What a message cannot show, a zero byte above all, stands as ?.
std::string quoted(std::string_view name) {
  std::string shown(name);
  for (char& c : shown) c = c >= ' ' && c <= '~' ? c : '?';
  return text('"', shown, '"');
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t comma; (comma = text.find(',')) != text.npos; text.remove_prefix(comma + 1)) {
    parts.push_back(trim(text.substr(0, comma)));
  }
  parts.push_back(trim(text));
  return parts;
}

[[noreturn]] void fail_in(std::string_view where, std::string what, std::string remedy) {
  fail({.op = "Precision",
        .where = quoted(where),
        .what = std::move(what),
        .remedy = std::move(remedy)});
}

at::ScalarType parse_dtype(std::string_view where, std::string_view key, std::string_view name) {
  for (const DtypeNames& dtype : kDtypes) {
    if (std::ranges::find(dtype.names, name) != dtype.names.end()) return dtype.dtype;
  }
  std::vector<std::string_view> known;
  for (const DtypeNames& dtype : kDtypes) known.push_back(dtype.names.front());
  const std::string got =
      name.empty() ? "has no dtype" : "got " + quoted(name) + ", expected a floating point dtype";
  fail_in(where, key.empty() ? got : text(key, ": ", got), "use one of: " + join(known));
}

const Key& parse_key(std::string_view where, std::string_view name) {
  const auto key = std::ranges::find(kKeys, name, &Key::name);
  if (key != kKeys.end()) return *key;
  std::vector<std::string_view> known;
  for (const Key& one : kKeys) known.push_back(one.name);
  fail_in(where, name.empty() ? "a dtype has no key" : quoted(name) + " is not a key",
          "use some of: " + join(known));
}

using Given = std::map<std::string_view, at::ScalarType>;

Given parse_parts(std::string_view text) {
  Given given;
  for (const std::string_view part : split(text)) {
    const auto equals = part.find('=');
    if (part.empty()) fail_in(text, "a part between commas is empty", kRemedy);
    if (equals == part.npos) fail_in(text, quoted(part) + " has no key", kRemedy);
    const Key& key = parse_key(text, trim(part.substr(0, equals)));
    const auto dtype = parse_dtype(text, key.name, trim(part.substr(equals + 1)));
    if (!given.emplace(key.name, dtype).second) {
      fail_in(text, meshtorch::text(key.name, " is given twice"), "give it once");
    }
  }
  return given;
}

std::string_view name_of(at::ScalarType type) {
  const auto found = std::ranges::find(kDtypes, type, &DtypeNames::dtype);
  return found == kDtypes.end() ? c10::toString(type) : found->names.front();
}

std::vector<at::Tensor> cast(const std::vector<at::Tensor>& xs, at::ScalarType dtype) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& x : xs) result.push_back(cast_floating(x, dtype));
  return result;
}

}  // namespace

Precision Precision::parse(std::string_view text) {
  Given given;
  if (text.find_first_of("=,") == text.npos) {
    given.emplace("params", parse_dtype(text, "", trim(text)));
  } else {
    given = parse_parts(text);
  }
  const auto value = [&](std::string_view key, at::ScalarType otherwise) {
    const auto found = given.find(key);
    return found == given.end() ? otherwise : found->second;
  };
  Precision result;
  result.params = value("params", at::kFloat);
  result.compute = value("compute", result.params);
  result.output = value("output", result.compute);
  const auto wide = result.params == at::kDouble ? at::kDouble : at::kFloat;
  result.reduce = value("reduce", wide);
  result.accumulate = value("accumulate", wide);
  return result;
}

std::string Precision::to_string() const {
  std::vector<std::string> parts;
  for (const Key& key : kKeys) parts.push_back(text(key.name, "=", name_of(this->*key.dtype)));
  return join(parts, ",");
}

at::Tensor Precision::cast_to_params(const at::Tensor& x) const { return cast_floating(x, params); }
at::Tensor Precision::cast_to_compute(const at::Tensor& x) const {
  return cast_floating(x, compute);
}
at::Tensor Precision::cast_to_output(const at::Tensor& x) const { return cast_floating(x, output); }

std::vector<at::Tensor> Precision::cast_to_params(const std::vector<at::Tensor>& xs) const {
  return cast(xs, params);
}
std::vector<at::Tensor> Precision::cast_to_compute(const std::vector<at::Tensor>& xs) const {
  return cast(xs, compute);
}
std::vector<at::Tensor> Precision::cast_to_output(const std::vector<at::Tensor>& xs) const {
  return cast(xs, output);
}

std::ostream& operator<<(std::ostream& out, const Precision& precision) {
  return out << precision.to_string();
}

}  // namespace meshtorch
