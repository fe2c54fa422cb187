// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/state.h>

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/base/table.h>
#include <meshtorch/tensor/sharding.h>
#include <meshtorch/tree/path.h>
#include <meshtorch/tree/pattern.h>

namespace meshtorch {
namespace {

// Whether the buffers of this module, itself, are statistics of batches.
bool keeps_statistics(const torch::nn::Module& module) {
  const auto buffers = module.named_buffers(/*recurse=*/false);
  return buffers.contains("running_mean") && buffers.contains("running_var");
}

Kind kind_of_buffer(const torch::nn::Module& owner, const std::string& name) {
  const bool statistic =
      name == "running_mean" || name == "running_var" || name == "num_batches_tracked";
  return statistic && keeps_statistics(owner) ? Kind::batch_statistic : Kind::buffer;
}

// Parameters first, then buffers, each in the module's own order; a tied tensor under all its
// paths.
std::vector<StateEntry> leaves_of(const torch::nn::Module& module) {
  std::vector<StateEntry> leaves;
  for (const auto& item : module.named_parameters())
    leaves.push_back({.path = item.key(), .kind = Kind::parameter, .tensor = item.value()});
  const auto add = [&](const std::string& prefix, const torch::nn::Module& owner) {
    for (const auto& item : owner.named_buffers(/*recurse=*/false)) {
      leaves.push_back({.path = join_path(prefix, item.key()),
                        .kind = kind_of_buffer(owner, item.key()),
                        .tensor = item.value()});
    }
  };
  add("", module);
  for (const auto& child : module.named_modules("", /*include_self=*/false))
    add(child.key(), *child.value());
  std::erase_if(leaves, [](const StateEntry& leaf) { return !leaf.tensor.defined(); });
  return leaves;
}

[[noreturn]] void refuse(const char* op, const std::string& path, const std::string& what,
                         const std::string& remedy) {
  fail({.op = op, .where = path, .what = what, .remedy = remedy});
}

std::string kind_text(const at::Tensor& tensor) {
  return text(tensor.scalar_type(), " ", tensor.sizes());
}

void check_fits(const StateEntry& entry, const at::Tensor& leaf) {
  if (!entry.tensor.defined())
    refuse("update", entry.path, "is undefined", "leave the entry out of the state");
  if (entry.tensor.sizes() != leaf.sizes() || entry.tensor.scalar_type() != leaf.scalar_type()) {
    refuse("update", entry.path,
           text("is ", kind_text(entry.tensor), ", the module has ", kind_text(leaf)),
           "give the state of a module of the same options and dtype");
  }
}

// `value` where `leaf` is: copying between meshes is no op's.
at::Tensor beside(const at::Tensor& value, const at::Tensor& leaf) {
  if (!is_sharded(leaf)) return full(value);
  return is_sharded(value) ? device_put(value, sharding_of(leaf)) : value;
}

std::string layout_of(const at::Tensor& tensor) {
  return is_sharded(tensor) ? sharding_of(tensor).to_string() : "plain";
}

template <class Map>
State mapped(const State& state, Map map) {
  torch::NoGradGuard no_grad;
  std::vector<StateEntry> entries = state.entries();
  for (StateEntry& entry : entries) entry.tensor = map(entry);
  return State(std::move(entries));
}

}  // namespace

std::string_view name(Kind kind) {
  constexpr std::array<std::string_view, 4> names{"parameter", "buffer", "batch statistic",
                                                  "random state"};
  return names[static_cast<std::size_t>(kind)];
}

Kind kind_of(const torch::nn::Module& module, const std::string& path) {
  for (const StateEntry& leaf : leaves_of(module)) {
    if (leaf.path == path) return leaf.kind;
  }
  refuse("kind_of", path, "is no parameter or buffer of the module",
         "use a path of named_parameters() or named_buffers()");
}

StateFilter::StateFilter(Kind kind)
    : takes_([kind](const StateEntry& entry) { return entry.kind == kind; }),
      text_(meshtorch::name(kind)) {}

StateFilter::StateFilter(const std::string& pattern)
    : takes_(
          [pattern, regex = compile_pattern(pattern, "State", "filter")](const StateEntry& entry) {
            return search_pattern(regex, entry.path, "State", pattern);
          }),
      text_('"' + pattern + '"') {}

State::State(const torch::nn::Module& module) {
  std::set<const void*> seen;
  for (StateEntry& leaf : leaves_of(module)) {
    if (seen.insert(leaf.tensor.unsafeGetTensorImpl()).second) entries_.push_back(std::move(leaf));
  }
  const State random = random_state();
  entries_.insert(entries_.end(), random.begin(), random.end());
}

State::State(std::vector<StateEntry> entries) : entries_(std::move(entries)) {
  std::set<std::string> seen;
  for (const StateEntry& entry : entries_) {
    if (!seen.insert(entry.path).second)
      refuse("State", entry.path, "is there twice", "take one of the two out by filter()");
  }
}

const StateEntry* State::find(const std::string& path) const {
  const auto found = std::ranges::find(entries_, path, &StateEntry::path);
  return found == entries_.end() ? nullptr : &*found;
}

const at::Tensor& State::at(const std::string& path) const {
  const StateEntry* entry = find(path);
  if (entry == nullptr)
    refuse("State", path, text("is not among the ", size(), " entries"), "look at to_string()");
  return entry->tensor;
}

std::map<std::string, at::Tensor> State::tensors() const {
  std::map<std::string, at::Tensor> tensors;
  for (const StateEntry& entry : entries_) tensors.emplace(entry.path, entry.tensor);
  return tensors;
}

State State::with(const std::map<std::string, at::Tensor>& tensors) const {
  State made = *this;
  for (const auto& [path, tensor] : tensors) at(path);
  for (StateEntry& entry : made.entries_) {
    const auto found = tensors.find(entry.path);
    if (found == tensors.end())
      refuse("State", entry.path, "has no tensor among those given", "give one for each entry");
    entry.tensor = found->second;
  }
  return made;
}

State State::filter(const StateFilter& filter) const {
  State taken;
  std::ranges::copy_if(entries_, std::back_inserter(taken.entries_), filter);
  return taken;
}

State State::clone() const {
  return mapped(*this, [](const StateEntry& entry) { return entry.tensor.detach().clone(); });
}

std::string State::to_string() const {
  Table table({{"path"}, {"kind"}, {"shape"}, {"dtype"}, {"layout"}});
  for (const StateEntry& entry : entries_) {
    table.add({entry.path, std::string(name(entry.kind)),
               text("[", join(entry.tensor.sizes()), "]"),
               c10::toString(entry.tensor.scalar_type()), layout_of(entry.tensor)});
  }
  return table.to_string();
}

std::vector<State> split_by(const State& state, const std::vector<StateFilter>& filters,
                            std::size_t rest_at) {
  if (rest_at + 1 < filters.size()) {
    refuse("split", text("filter ", rest_at), "is rest, and others follow that would get nothing",
           "put it last");
  }
  std::vector<std::vector<StateEntry>> parts(filters.size());
  for (const StateEntry& entry : state) {
    const auto taker =
        std::ranges::find_if(filters, [&](const StateFilter& filter) { return filter(entry); });
    if (taker == filters.end()) {
      std::vector<std::string> names;
      for (const StateFilter& filter : filters) names.push_back(filter.to_string());
      refuse("split", entry.path,
             text("(", name(entry.kind), ") is taken by none of: ", join(names)),
             "add mt::rest as the last");
    }
    parts[static_cast<std::size_t>(taker - filters.begin())].push_back(entry);
  }
  std::vector<State> states;
  for (auto& part : parts) states.emplace_back(std::move(part));
  return states;
}

State merge(const std::vector<State>& states) {
  std::vector<StateEntry> entries;
  for (const State& state : states) entries.insert(entries.end(), state.begin(), state.end());
  return State(std::move(entries));
}

void update(torch::nn::Module& module, const State& state) {
  torch::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> leaves;
  for (StateEntry& leaf : leaves_of(module)) leaves.emplace(leaf.path, leaf.tensor);
  for (const StateEntry& entry : state) {
    if (entry.kind == Kind::random_state) continue;
    const auto leaf = leaves.find(entry.path);
    if (leaf == leaves.end()) {
      refuse("update", entry.path, "is no parameter or buffer of the module",
             "take it out by filter(), or give the module that it is of");
    }
    check_fits(entry, leaf->second);
  }
  set_random_state(state.filter(Kind::random_state));
  for (const StateEntry& entry : state) {
    if (entry.kind == Kind::random_state) continue;
    const at::Tensor leaf = leaves.at(entry.path).detach();
    leaf.copy_(beside(entry.tensor.detach(), leaf));
  }
}

torch::OrderedDict<std::string, PartitionSpec> partition_specs(const torch::nn::Module& module) {
  torch::OrderedDict<std::string, PartitionSpec> specs("path");
  for (const StateEntry& leaf : leaves_of(module))
    specs.insert(leaf.path, is_sharded(leaf.tensor) ? sharding_of(leaf.tensor).spec : P());
  return specs;
}

State replicate(const State& state, const Mesh& mesh) {
  return mapped(state, [&](const StateEntry& entry) {
    const bool random = entry.kind == Kind::random_state;
    return random ? entry.tensor : replicate(entry.tensor.detach(), mesh);
  });
}

State dereplicate(const State& state) {
  return mapped(state, [](const StateEntry& entry) { return full(entry.tensor.detach()); });
}

}  // namespace meshtorch
