// SPDX-License-Identifier: Apache-2.0
//
// Policies as JSON. Each part has its reader and under it its writer; keys and types are in
// docs/policy.md.
#include <cmath>
#include <limits>

#include <meshtorch/base/error.h>
#include <meshtorch/train/policy.h>
#include <meshtorch/train/policy_place.h>

namespace meshtorch {
namespace {

PartitionSpec read_spec(const JsonPlace& place) {
  const std::string text = place.string();
  return place.made([&] { return PartitionSpec::parse(text); });
}

Heads read_heads(const JsonPlace& in) {
  const auto place = in.find("heads");
  if (!place) return {};
  if (!place->is_object()) return place->integer();
  place->only({"count", "dim"});
  return {place->get("count").integer(), place->get("dim").small()};
}
void write_heads(PolicyJson& json, const Heads& heads) {
  if (heads == Heads{}) return;
  if (heads.dim == 0) {
    json["heads"] = heads.count;
  } else {
    json["heads"] = {{"count", heads.count}, {"dim", heads.dim}};
  }
}

Unmatched read_unmatched(const JsonPlace& place) {
  const std::string text = place.string();
  if (text == "error") return Unmatched::error;
  if (text == "replicate") return Unmatched::replicate;
  place.expected("\"error\" or \"replicate\"");
}

Rule read_paths(const JsonPlace& item) {
  item.only({"paths", "otherwise"});
  const JsonPlace place = item.get("paths");
  std::vector<PathRule> rules;
  for (const JsonPlace& rule : place.list()) {
    rule.only({"pattern", "spec", "heads"});
    rules.push_back({.pattern = rule.get("pattern").pattern(),
                     .spec = read_spec(rule.get("spec")),
                     .heads = read_heads(rule)});
  }
  const PathRules made = place.made([&] { return PathRules(rules); });
  const auto unmatched = item.find("otherwise");
  return unmatched ? made.otherwise(read_unmatched(*unmatched)) : made;
}
PolicyJson write(const PathRules& rules) {
  PolicyJson list = PolicyJson::array();
  for (const PathRule& rule : rules.rules()) {
    PolicyJson one{{"pattern", rule.pattern}, {"spec", rule.spec.to_string()}};
    write_heads(one, rule.heads);
    list.push_back(std::move(one));
  }
  PolicyJson json;
  json["paths"] = std::move(list);
  if (rules.unmatched() == Unmatched::replicate) json["otherwise"] = "replicate";
  return json;
}

// ["embed", "fsdp"], ["batch", ["dp", "fsdp"]], ["length", null]
LogicalRule read_logical_rule(const JsonPlace& place) {
  const std::vector<JsonPlace> pair = place.list();
  if (pair.size() != 2) place.expected("a name and its axes");
  const std::string name = pair[0].string();
  if (pair[1].is_null()) return {name, whole};
  if (pair[1].is_string()) return {name, pair[1].string()};
  return {name, pair[1].strings()};
}

Rule read_logical(const JsonPlace& item) {
  item.only({"logical"});
  const JsonPlace place = item.get("logical");
  place.only({"axes", "names"});
  std::vector<LogicalRule> rules;
  for (const JsonPlace& rule : place.get("axes").list()) rules.push_back(read_logical_rule(rule));
  LogicalNames names;
  if (const auto given = place.find("names")) {
    for (const JsonPlace& name : given->list()) {
      name.only({"pattern", "names"});
      names.push_back({name.get("pattern").pattern(), name.get("names").strings()});
    }
  }
  return place.made([&] { return LogicalAxes(rules).with_names(names); });
}
PolicyJson write(const LogicalAxes& logical) {
  PolicyJson axes = PolicyJson::array();
  for (const LogicalRule& rule : logical.rules()) {
    const PolicyJson on = rule.axes.empty()       ? PolicyJson()
                          : rule.axes.size() == 1 ? PolicyJson(rule.axes[0])
                                                  : PolicyJson(rule.axes);
    axes.push_back(PolicyJson::array({rule.name, on}));
  }
  PolicyJson names = PolicyJson::array();
  for (const LogicalName& name : logical.names()) {
    names.push_back({{"pattern", name.pattern}, {"names", name.names}});
  }
  PolicyJson json;
  json["logical"]["axes"] = std::move(axes);
  if (!names.empty()) json["logical"]["names"] = std::move(names);
  return json;
}

SpecTable::Entry read_entry(const JsonPlace& place) {
  if (place.is_string()) return {.spec = read_spec(place)};
  place.only({"spec", "note", "heads"});
  const auto note = place.find("note");
  return {.spec = read_spec(place.get("spec")),
          .note = note ? note->string() : "",
          .heads = read_heads(place)};
}

Rule read_table(const JsonPlace& item) {
  item.only({"table"});
  const JsonPlace place = item.get("table");
  place.only({"name", "specs"});
  const auto name = place.find("name");
  std::map<std::string, SpecTable::Entry> entries;
  for (const auto& [path, entry] : place.get("specs").members()) entries[path] = read_entry(entry);
  return SpecTable(name ? name->string() : "", std::move(entries));
}
PolicyJson write(const SpecTable& table) {
  PolicyJson specs = PolicyJson::object();
  for (const auto& [path, entry] : table.entries()) {
    PolicyJson one{{"spec", entry.spec.to_string()}};
    if (!entry.note.empty()) one["note"] = entry.note;
    write_heads(one, entry.heads);
    specs[path] = one.size() == 1 ? one["spec"] : one;
  }
  PolicyJson json;
  if (!table.label().empty()) json["table"]["name"] = table.label();
  json["table"]["specs"] = std::move(specs);
  return json;
}

Rule read_fsdp(const JsonPlace& item) {
  item.only({"fsdp"});
  const JsonPlace place = item.get("fsdp");
  place.only({"axis", "min_size"});
  FsdpOptions options;
  if (const auto size = place.find("min_size")) options.min_size = size->integer();
  const std::string axis = place.get("axis").string();
  return place.made([&] { return FsdpRule(axis, options); });
}
PolicyJson write(const FsdpRule& rule) {
  return {{"fsdp", {{"axis", rule.axis()}, {"min_size", rule.options().min_size}}}};
}

AutoMegatron read_megatron(const JsonPlace& item) {
  item.only({"megatron"});
  const JsonPlace place = item.get("megatron");
  place.only({"axis"});
  return {place.get("axis").string()};
}
PolicyJson write(const AutoMegatron& megatron) { return {{"megatron", {{"axis", megatron.axis}}}}; }

PolicyJson write(const PolicyRule&) {
  fail({kPolicyOp, "", "is a PolicyRule, which is a function and has no text",
        "add it to the rules in the program"});
}

PolicyItem read_item(const JsonPlace& item) {
  if (!item.is_object()) item.expected("an object");
  if (item.find("paths")) return read_paths(item);
  if (item.find("logical")) return read_logical(item);
  if (item.find("table")) return read_table(item);
  if (item.find("fsdp")) return read_fsdp(item);
  if (item.find("megatron")) return read_megatron(item);
  item.expected("one of the kinds paths, logical, table, fsdp, megatron");
}
PolicyJson write(const Rule& rule) {
  return std::visit([](const auto& kind) { return write(kind); }, rule);
}

ActivationRule read_activation(const JsonPlace& place) {
  place.only({"pattern", "input", "output", "op"});
  ActivationRule rule{.pattern = place.get("pattern").pattern()};
  if (const auto input = place.find("input")) rule.input = read_spec(*input);
  if (const auto output = place.find("output")) rule.output = read_spec(*output);
  if (const auto op = place.find("op")) rule.op = op->string();
  return rule;
}
PolicyJson write(const ActivationRule& rule) {
  PolicyJson json{{"pattern", rule.pattern}};
  if (rule.input) json["input"] = rule.input->to_string();
  if (rule.output) json["output"] = rule.output->to_string();
  if (!rule.op.empty()) json["op"] = rule.op;
  return json;
}

// JSON has no infinity.
double read_norm(const JsonPlace& place) {
  if (place.is_string() && place.string() == "infinity")
    return std::numeric_limits<double>::infinity();
  return place.number();
}

Reduce read_reduce(const JsonPlace& place) {
  const std::string text = place.string();
  if (text == "once") return Reduce::once;
  if (text == "each") return Reduce::each;
  place.expected("\"once\" or \"each\"");
}

ZeroPolicy read_zero(const JsonPlace& place) {
  place.only({"axis", "stage", "clip_norm", "reduce", "keep_gathered", "bucket_bytes", "overlap",
              "skip_nonfinite"});
  ZeroPolicy zero;
  if (const auto axis = place.find("axis")) zero.axis = axis->string();
  if (const auto stage = place.find("stage")) zero.stage = stage->small();
  if (const auto norm = place.find("clip_norm")) zero.clip_norm = read_norm(*norm);
  if (const auto reduce = place.find("reduce")) zero.reduce = read_reduce(*reduce);
  if (const auto keep = place.find("keep_gathered")) zero.keep_gathered = keep->boolean();
  if (const auto bytes = place.find("bucket_bytes")) zero.bucket_bytes = bytes->integer();
  if (const auto overlap = place.find("overlap")) zero.overlap = overlap->boolean();
  if (const auto skip = place.find("skip_nonfinite")) zero.skip_nonfinite = skip->boolean();
  return zero;
}
PolicyJson write_norm(double norm) {
  if (std::isfinite(norm)) return norm;
  if (norm > 0) return "infinity";
  fail({.op = kPolicyOp,
        .where = "zero.clip_norm",
        .what = text("is ", norm, ", which has no text"),
        .remedy = "give a number, or infinity"});
}

PolicyJson write(const ZeroPolicy& zero) {
  const ZeroPolicy usual;
  PolicyJson json{{"axis", zero.axis}, {"stage", zero.stage}};
  if (zero.clip_norm) json["clip_norm"] = write_norm(*zero.clip_norm);
  if (zero.reduce) json["reduce"] = *zero.reduce == Reduce::once ? "once" : "each";
  if (zero.keep_gathered != usual.keep_gathered) json["keep_gathered"] = zero.keep_gathered;
  if (zero.bucket_bytes != usual.bucket_bytes) json["bucket_bytes"] = zero.bucket_bytes;
  if (zero.overlap != usual.overlap) json["overlap"] = zero.overlap;
  if (zero.skip_nonfinite != usual.skip_nonfinite) json["skip_nonfinite"] = zero.skip_nonfinite;
  return json;
}

}  // namespace

Policy Policy::parse(std::string_view text) {
  const PolicyJson json = parse_policy_json(text);
  const JsonPlace all(json, "");
  all.only({"rules", "otherwise", "even", "precision", "activations", "remat", "zero"});
  Policy policy;
  if (const auto rules = all.find("rules")) {
    for (const JsonPlace& item : rules->list()) policy.rules.push_back(read_item(item));
  }
  if (const auto unmatched = all.find("otherwise")) policy.otherwise = read_unmatched(*unmatched);
  if (const auto even = all.find("even")) policy.even = even->boolean();
  if (const auto place = all.find("precision")) {
    const std::string said = place->string();
    policy.precision = place->made([&] { return Precision::parse(said); });
  }
  if (const auto activations = all.find("activations")) {
    for (const JsonPlace& rule : activations->list()) {
      policy.activations.push_back(read_activation(rule));
    }
  }
  if (const auto patterns = all.find("remat")) {
    for (const JsonPlace& place : patterns->list()) policy.remat.push_back(place.pattern());
  }
  if (const auto zero = all.find("zero")) policy.zero = read_zero(*zero);
  return policy;
}

std::string Policy::to_string() const {
  PolicyJson json = PolicyJson::object();
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const PolicyJson none;
    json["rules"].push_back(JsonPlace(none, text("rules[", i, "]")).made([&] {
      return std::visit([](const auto& item) { return write(item); }, rules[i]);
    }));
  }
  if (otherwise == Unmatched::replicate) json["otherwise"] = "replicate";
  if (even) json["even"] = true;
  if (precision) json["precision"] = precision->to_string();
  for (const ActivationRule& rule : activations) json["activations"].push_back(write(rule));
  for (const std::string& pattern : remat) json["remat"].push_back(pattern);
  if (zero) json["zero"] = write(*zero);
  try {
    return json.dump(2) + "\n";
  } catch (const PolicyJson::exception&) {
    fail({kPolicyOp, "", "a pattern, a path or a name is no UTF-8", "write it in UTF-8"});
  }
}

}  // namespace meshtorch
