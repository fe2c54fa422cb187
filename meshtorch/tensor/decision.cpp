// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/decision.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <functional>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {
namespace {

Attribute attribute_of(const c10::IValue& value) {
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isIntList()) return value.toIntVector();
  if (value.isString()) return value.toStringRef();
  if (value.isBoolList()) {
    std::vector<std::int64_t> bits;
    for (const bool bit : value.toBoolList()) bits.push_back(bit);
    return bits;
  }
  return std::monostate{};
}

std::vector<std::optional<Operand>> operands_of(const Frame& frame) {
  std::vector<std::optional<Operand>> operands;
  for (std::size_t i = 0; i < frame.tensors.size(); ++i) {
    const at::Tensor& tensor = frame.tensors[i];
    if (!tensor.defined()) {
      operands.push_back(std::nullopt);
      continue;
    }
    Layout layout = frame.layout(i);
    if (frame.info.kind == OpKind::factory) layout.unreduced = {};
    operands.push_back(Operand{.shape = tensor.sizes().vec(),
                               .layout = std::move(layout),
                               .item_size = static_cast<std::int64_t>(tensor.dtype().itemsize())});
  }
  return operands;
}

// The operands that an op writes.
std::vector<int> written_operands(const Frame& frame) {
  std::vector<int> found;
  for (std::size_t i = 0; i < frame.info.arguments.size(); ++i) {
    if (!frame.info.arguments[i].written) continue;
    found.insert(found.end(), frame.argument_operands[i].begin(), frame.argument_operands[i].end());
  }
  return found;
}

// libtorch refuses to broadcast what is written in place, but a shard of it may happen to fit.
void check_fits(const OpRule& rule, const Frame& frame, const at::Tensor& destination) {
  if (!frame.info.functional || frame.info.kind == OpKind::out || rule.outputs.empty()) return;
  const Shape result = output_extents(rule, 0);
  bool fits = result.size() == static_cast<std::size_t>(destination.dim());
  for (std::size_t d = 0; fits && d < result.size(); ++d)
    fits = result[d] < 0 || result[d] == destination.size(static_cast<std::int64_t>(d));
  if (fits) return;
  fail({.op = frame.info.name,
        .where = "self",
        .what = text("has shape (", join(destination.sizes().vec()), "), the result (",
                     join(result), ")"),
        .remedy = "use the form that returns a new tensor"});
}

void decide_by_rule(Decision& decision, const Frame& frame) {
  const auto operands = operands_of(frame);
  const std::vector<int> written = written_operands(frame);
  // Of several none is pinned: those that had to move are brought back.
  if (written.size() != 1) {
    decision.placement = *propagate(decision.rule, frame.mesh, operands,
                                    {.pinned = {}, .accumulates = frame.sums_gradients});
    return;
  }
  const auto self = static_cast<std::size_t>(written[0]);
  check_fits(decision.rule, frame, frame.tensors[self]);
  const auto free = propagate(decision.rule, frame.mesh, operands);
  if (!free->outputs.empty() && free->outputs[0] == free->operands[self])
    decision.fresh = free->outputs[0];
  auto placement = propagate(decision.rule, frame.mesh, operands, {.pinned = written[0]});
  decision.run = placement ? Decision::Run::local
                           : (frame.info.functional ? Decision::Run::aside : Decision::Run::gather);
  if (placement) decision.placement = *std::move(placement);
}

// How many shards one factor of a dim is cut into: the major ones are cut first.
std::int64_t factor_shards(const OpRule& rule, const DimFactors& dim, int factor,
                           std::int64_t shards) {
  for (const int f : dim) {
    const std::int64_t mine =
        std::min(shards, std::max<std::int64_t>(rule.factors[static_cast<std::size_t>(f)].size, 1));
    if (f == factor) return mine;
    shards /= mine;
  }
  return 1;
}

// The size of a factor on each device: it is a member of a group, which divides evenly.
std::int64_t local_factor(const Decision& decision, const Mesh& mesh, int factor) {
  for (std::size_t i = 0; i < decision.rule.operands.size(); ++i) {
    if (!decision.rule.operands[i]) continue;
    const OperandFactors& dims = *decision.rule.operands[i];
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (std::find(dims[d].begin(), dims[d].end(), factor) == dims[d].end()) continue;
      const std::int64_t shards = mesh.shards(decision.placement.operands[i].dims[d].set());
      return decision.rule.factors[static_cast<std::size_t>(factor)].size /
             factor_shards(decision.rule, dims[d], factor, shards);
    }
  }
  return decision.rule.factors[static_cast<std::size_t>(factor)].size;
}

c10::IValue local_size(const Decision& decision, const Frame& frame, const SizeArgument& size,
                       std::int64_t position) {
  if (size.factor >= 0) return local_factor(decision, frame.mesh, size.factor);
  const bool output = size.output >= 0;
  const Shape global = output ? output_extents(decision.rule, static_cast<std::size_t>(size.output))
                              : frame.tensors[static_cast<std::size_t>(size.operand)].sizes().vec();
  const Layout& layout = output
                             ? decision.placement.outputs[static_cast<std::size_t>(size.output)]
                             : decision.placement.operands[static_cast<std::size_t>(size.operand)];
  const Shape local = shard_shape(frame.mesh, global, layout, position);
  if (size.dim < 0) return local;
  return local[static_cast<std::size_t>(size.dim)];
}

void adapt_sizes(Decision& decision, const Frame& frame,
                 const std::vector<std::int64_t>& positions) {
  decision.sizes.resize(positions.size());
  for (const SizeArgument& size : decision.rule.sizes) {
    for (std::size_t d = 0; d < positions.size(); ++d) {
      c10::IValue value = local_size(decision, frame, size, positions[d]);
      if (size.element >= 0) {
        auto list = frame.arguments[size.argument].toIntVector();
        list.at(static_cast<std::size_t>(size.element)) = value.toInt();
        value = std::move(list);
      }
      decision.sizes[d].emplace_back(size.argument, std::move(value));
    }
  }
}

// A device whose shard of some operand is empty may run nothing, unless a joint operand (a bias, a
// destination) still has a part there: then the op itself runs, on a contraction over nothing.
void find_empty(Decision& decision, const Frame& frame,
                const std::vector<std::int64_t>& positions) {
  decision.skip.assign(positions.size(), false);
  if (frame.info.kind == OpKind::factory) return;
  for (std::size_t i = 0; i < frame.tensors.size(); ++i) {
    if (!frame.tensors[i].defined() || frame.tensors[i].numel() == 0) continue;
    const Shape shape = frame.tensors[i].sizes().vec();
    for (std::size_t d = 0; d < positions.size(); ++d) {
      const Shape local =
          shard_shape(frame.mesh, shape, decision.placement.operands[i], positions[d]);
      if (numel(local) == 0) decision.skip[d] = true;
    }
  }
  for (std::size_t i = 0; i < decision.rule.joint.size() && i < frame.tensors.size(); ++i) {
    if (!decision.rule.joint[i] || !frame.tensors[i].defined()) continue;
    const Shape shape = frame.tensors[i].sizes().vec();
    for (std::size_t d = 0; d < positions.size(); ++d) {
      const Shape local =
          shard_shape(frame.mesh, shape, decision.placement.operands[i], positions[d]);
      if (numel(local) > 0) decision.skip[d] = false;
    }
  }
}

bool all_skip(const Decision& decision) {
  return std::all_of(decision.skip.begin(), decision.skip.end(), [](bool skips) { return skips; });
}

void decide_gather(Decision& decision, const Frame& frame) {
  decision.run = Decision::Run::gather;
  decision.placement = {};
  for (const auto& tensor : frame.tensors) {
    decision.placement.operands.push_back(Layout::replicated(tensor.defined() ? tensor.dim() : 0));
  }
}

// A boolean index selects as many elements as it has ones: no rule can know how many.
bool has_boolean_index(const Frame& frame) {
  const int indices = frame.info.argument("indices");
  if (indices < 0 ||
      frame.info.arguments[static_cast<std::size_t>(indices)].kind != ArgumentKind::tensor_list)
    return false;
  for (const int operand : frame.argument_operands[static_cast<std::size_t>(indices)]) {
    const at::Tensor& index = frame.tensors[static_cast<std::size_t>(operand)];
    if (index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte))
      return true;
  }
  return false;
}

// A random op run on each device by itself would give replicas different numbers: what has no override
// draws once. (Attention is tagged random for a dropout that its CPU form does not have.)
bool draws(const OpInfo& info) {
  return info.random && info.name.rfind("aten::_scaled_dot_product", 0) != 0 &&
         info.name != "aten::_fused_sdp_choice";
}

// `reads`: what the rule looked at.
std::shared_ptr<Decision> decide(Runtime& runtime, const Frame& frame,
                                 std::vector<AttributeRead>& reads) {
  auto decision = std::make_shared<Decision>();
  std::vector<std::int64_t> positions = runtime.communicator().addressable(frame.mesh);
  decision->sizes.resize(positions.size());
  decision->skip.assign(positions.size(), false);
  const OpEntry* entry = runtime.rules().find(frame.info.base);
  if (entry == nullptr || has_boolean_index(frame) || draws(frame.info)) {
    decide_gather(*decision, frame);
    return decision;
  }
  const OpCall call = op_call(frame);
  try {
    decision->rule = entry->rule(call);
    reads = call.reads();
    decide_by_rule(*decision, frame);
  } catch (const Error& error) {
    reads = call.reads();
    // libtorch's own message for a bad call is the better one: the op runs gathered, and only where it
    // succeeds is this error the one to show.
    decision->rule_error = error.what();
    decide_gather(*decision, frame);
    return decision;
  }
  if (decision->run == Decision::Run::gather) decide_gather(*decision, frame);
  if (decision->run != Decision::Run::local) return decision;
  decision->kernel = runtime.dispatch().find_kernel(frame.info.base);
  for (const Layout& layout : decision->placement.outputs) {
    decision->output_dims.push_back(std::make_shared<const DimAxes>(layout.dims));
  }
  find_empty(*decision, frame, positions);
  if (decision->kernel == nullptr && !frame.info.gives_views() && all_skip(*decision)) {
    decision->stand_in = true;
    decision->skip.push_back(false);
    positions.push_back(0);
  }
  adapt_sizes(*decision, frame, positions);
  return decision;
}

void append_tensor(std::vector<std::uint64_t>& key, const Frame& frame, std::size_t i) {
  const at::Tensor& tensor = frame.tensors[i];
  if (!tensor.defined()) {
    key.push_back(~std::uint64_t{0});
    return;
  }
  const ShardedView* view = frame.views[i];
  const bool reduced = frame.info.kind == OpKind::factory || frame.reads_reduced(i);
  const std::uint64_t unreduced = view == nullptr || reduced ? 0 : view->unreduced().bits();
  key.push_back(static_cast<std::uint64_t>(tensor.scalar_type()) << 32 |
                static_cast<std::uint64_t>(tensor.dim()) << 16 | unreduced << 1 |
                (view != nullptr));
  for (const std::int64_t size : tensor.sizes()) key.push_back(static_cast<std::uint64_t>(size));
  if (view == nullptr) return;
  for (const AxisList& axes : view->dims()) key.push_back(axes.packed());
}

void append_attribute(std::vector<std::uint64_t>& key, const c10::IValue& value) {
  if (value.isBool()) {
    key.push_back(value.toBool() ? 3 : 2);
  } else if (value.isInt()) {
    key.push_back(static_cast<std::uint64_t>(value.toInt()));
  } else if (value.isIntList()) {
    const auto list = value.toIntList();
    key.push_back(list.size());
    for (std::size_t i = 0; i < list.size(); ++i)
      key.push_back(static_cast<std::uint64_t>(list.get(i)));
  } else if (value.isBoolList()) {
    std::uint64_t bits = 1;
    for (const bool bit : value.toBoolList()) bits = bits << 1 | bit;
    key.push_back(bits);
  } else if (value.isString()) {
    key.push_back(std::hash<std::string>{}(value.toStringRef()));
  } else {
    key.push_back(0x9e3779b97f4a7c15u);
  }
}

std::optional<std::int64_t> optional_int(const c10::IValue& value) {
  return value.isInt() ? std::optional(value.toInt()) : std::nullopt;
}

// As OpCall::range.
void append_range(std::vector<std::uint64_t>& key, const Frame& frame, const AttributeRead& read) {
  const c10::IValue* arguments = frame.arguments;
  const c10::IValue& shape = arguments[read.argument];
  const Shape sizes = shape.isTensor() ? shape.toTensor().sizes().vec() : shape.toIntVector();
  const auto rank = static_cast<std::int64_t>(sizes.size());
  const std::int64_t dim = optional_int(arguments[read.dim]).value_or(0);
  if (dim < -rank || dim >= rank) return;  // the dim itself is in the key, and refused by the rule
  const Range range =
      Range::of(optional_int(arguments[read.start]), optional_int(arguments[read.end]),
                optional_int(arguments[read.step]).value_or(1),
                sizes[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)]);
  key.push_back(static_cast<std::uint64_t>(range.length) << 1 | range.full);
}

}  // namespace

OpCall op_call(const Frame& frame) {
  OpCall call;
  call.name = frame.info.base;
  for (const auto& tensor : frame.tensors) {
    call.operands.push_back(tensor.defined() ? std::optional<Shape>(tensor.sizes().vec())
                                             : std::nullopt);
  }
  for (std::size_t i = 0; i < frame.info.arguments.size(); ++i) {
    const ArgumentInfo& info = frame.info.arguments[i];
    Argument argument;
    argument.name = info.name;
    argument.operands = frame.argument_operands[i];
    argument.is_tensor = info.kind != ArgumentKind::attribute;
    if (!argument.is_tensor && !info.ignored) argument.set(attribute_of(frame.arguments[i]));
    call.arguments.push_back(std::move(argument));
  }
  return call;
}

Frame::Frame(const OpInfo& op_info, const c10::IValue* op_arguments)
    : info(op_info), arguments(op_arguments), argument_operands(op_info.arguments.size()) {
  auto add = [&](std::size_t argument, const at::Tensor& tensor) {
    argument_operands[argument].push_back(static_cast<int>(tensors.size()));
    views.push_back(sharded_view(tensor));
    tensors.push_back(tensor);
  };
  for (std::size_t i = 0; i < info.arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (info.arguments[i].kind == ArgumentKind::tensor) {
      add(i, value.isNone() ? at::Tensor() : value.toTensor());
    } else if (info.arguments[i].kind == ArgumentKind::tensor_list && !value.isNone()) {
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) add(i, tensor);
      } else {
        for (const auto& tensor : value.toOptionalTensorVector())
          add(i, tensor.value_or(at::Tensor()));
      }
    }
  }
}

void Frame::find_mesh() {
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (views[i] == nullptr) continue;
    if (!mesh.defined()) mesh = views[i]->mesh();
    if (mesh.same(views[i]->mesh()) || mesh == views[i]->mesh()) continue;
    fail({.op = info.name,
          .where = operand_name(i),
          .what = text("is on mesh ", views[i]->mesh(), ", another operand is on mesh ", mesh),
          .remedy = "device_put it onto the same mesh first"});
  }
}

Layout Frame::layout(std::size_t operand) const {
  if (views[operand] == nullptr) return Layout::replicated(tensors[operand].dim());
  return reads_reduced(operand) ? views[operand]->reduced->layout : views[operand]->layout();
}

namespace {

// The whole sum is there, beside the summands.
bool is_reduced(const ShardedView* view) {
  return view != nullptr && view->reduced != nullptr &&
         view->reduced->version == view->allocation()->version &&
         view->reduced->layout == Layout{view->dims(), {}};
}

// Whether the op is linear in some operand alone, so that its result may be unreduced as that is. What is not reads
// sums anyway, and is decided in backward as it was in forward, by the same layouts.
bool passes_on(const OpInfo& info) {
  const OpEntry* entry = Runtime::current().rules().find(info.base);
  return entry != nullptr && entry->text.find("each") != std::string::npos;
}

}  // namespace

bool Frame::reads_reduced(std::size_t operand) const {
  const ShardedView* view = views[operand];
  if (!is_reduced(view) || view->unreduced().empty()) return false;
  if (info.writes || info.kind != OpKind::generic || info.gives_views()) return false;
  if (!passes_on(info)) return false;
  bool beside = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i == operand || !tensors[i].defined()) continue;
    beside = true;
    // Partial sums are added as they are.
    if (info.joint && views[i] != nullptr && !views[i]->unreduced().empty()) return false;
  }
  return beside;
}

void Frame::find_sums() {
  if (info.base != "aten::add.Tensor" || info.writes || at::GradMode::is_enabled()) return;
  if (!views[0] || !views[1] || tensors[0].sizes() != tensors[1].sizes()) return;
  const bool first = views[0]->unreduced().empty(), second = views[1]->unreduced().empty();
  if (first == second || is_reduced(views[first ? 1 : 0])) return;
  sums_gradients = torch::autograd::get_current_node() != nullptr;
}

std::string Frame::operand_name(std::size_t operand) const {
  for (std::size_t i = 0; i < argument_operands.size(); ++i) {
    const auto& mine = argument_operands[i];
    for (std::size_t k = 0; k < mine.size(); ++k) {
      if (static_cast<std::size_t>(mine[k]) != operand) continue;
      return info.arguments[i].kind == ArgumentKind::tensor_list
                 ? text(info.arguments[i].name, "[", k, "]")
                 : info.arguments[i].name;
    }
  }
  return "?";
}

at::Device Frame::device() const {
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (views[i] != nullptr) return views[i]->meta() ? at::Device(at::kMeta) : tensors[i].device();
  }
  return at::kCPU;
}

std::string Frame::layouts() const {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined()) continue;
    parts.push_back(operand_name(i) + " " +
                    (views[i] ? to_string(mesh, views[i]->layout()) : std::string("plain")));
  }
  return join(parts);
}

std::size_t DecisionCache::Hash::operator()(const Key& key) const {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint64_t word : key) hash = (hash ^ word) * 0x100000001b3u ^ hash >> 29;
  return hash;
}

void DecisionCache::write_key(Key& key, const Frame& frame) const {
  key.clear();
  key.push_back(frame.mesh.id() << 1 | frame.sums_gradients);
  for (std::size_t i = 0; i < frame.info.arguments.size(); ++i) {
    if (frame.info.arguments[i].kind == ArgumentKind::attribute) continue;
    key.push_back(frame.argument_operands[i].size());
    for (const int operand : frame.argument_operands[i])
      append_tensor(key, frame, static_cast<std::size_t>(operand));
  }
  for (const AttributeRead& read : reads_) {
    if (read.dim < 0) {
      append_attribute(key, frame.arguments[read.argument]);
    } else {
      append_range(key, frame, read);
    }
  }
}

void DecisionCache::clear(Runtime& runtime) {
  runtime.dispatch().count_decisions(-static_cast<std::ptrdiff_t>(decisions_.size()));
  decisions_.clear();
}

bool DecisionCache::widen(const std::vector<AttributeRead>& reads) {
  const std::size_t before = reads_.size();
  for (const AttributeRead& read : reads) {
    if (std::find(reads_.begin(), reads_.end(), read) == reads_.end()) reads_.push_back(read);
  }
  return reads_.size() > before;
}

std::shared_ptr<const Decision> DecisionCache::find(Runtime& runtime, const Frame& frame) {
  if (revision_ != runtime.rules().revision()) {
    clear(runtime);
    reads_.clear();
    revision_ = runtime.rules().revision();
  }
  static thread_local Key key;
  write_key(key, frame);
  if (const auto found = decisions_.find(key); found != decisions_.end()) return found->second;
  std::vector<AttributeRead> reads;
  std::shared_ptr<const Decision> decision = decide(runtime, frame, reads);
  if (widen(reads) || decisions_.size() >= kMostDecisions) clear(runtime);
  write_key(key, frame);
  decisions_[key] = decision;
  runtime.dispatch().count_decisions(1);
  return decision;
}

}  // namespace meshtorch
