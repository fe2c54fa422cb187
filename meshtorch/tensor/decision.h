// SPDX-License-Identifier: Apache-2.0
//
// What to do with one op on operands of these layouts and shapes: worked out once, then kept.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <meshtorch/ops/op_call.h>
#include <meshtorch/tensor/kernel.h>

namespace meshtorch {

class Runtime;

// The operands of one call: all tensors in schema order, lists flattened.
struct Frame {
  const OpInfo& info;
  const c10::IValue* arguments;
  Mesh mesh;
  std::vector<at::Tensor> tensors;
  std::vector<ShardedView*> views;                  // null: plain or undefined
  std::vector<std::vector<int>> argument_operands;  // per argument
  bool meta = false;
  // Autograd adds up the gradients of a tensor with several readers, one of which gave an unreduced one.
  bool sums_gradients = false;

  Frame(const OpInfo& info, const c10::IValue* arguments);

  // Throws Error where sharded operands are on different meshes.
  void find_mesh();
  // Some sharded operand has no values, so nothing of this call has.
  void find_meta();
  void find_sums();
  // Of an unreduced operand that was reduced for an earlier reader the op reads the reduced value, which
  // costs nothing any more; where it is alone, or one of several summands, the op may keep it unreduced.
  bool reads_reduced(std::size_t operand) const;
  Layout layout(std::size_t operand) const;  // of a plain one: replicated
  std::string operand_name(std::size_t operand) const;
  at::Device device() const;    // of the sharded operands' locals
  std::string layouts() const;  // "self P(dp), other P()"
};

// The call as the op's rule sees it.
OpCall op_call(const Frame& frame);

struct Decision {
  enum class Run {
    local,   // the op on each device's locals, in place where the op is
    aside,   // the functional op, then its result is brought to the written operand's layout
    gather,  // no rule: all operands whole on every device
  } run = Run::local;
  OpRule rule;
  Placement placement;
  std::vector<std::shared_ptr<const DimAxes>> output_dims;
  // Per device: arguments that spell a global size, with this device's value.
  std::vector<std::vector<std::pair<int, c10::IValue>>> sizes;
  std::vector<bool> skip;  // devices whose shard is empty: results are zeros
  // All of this process's devices skip: what the results look like comes from a meta run of position 0,
  // which stands behind them in `sizes` and `skip`.
  bool stand_in = false;
  // Where the one operand that is written would lie best, if it were zeros that nobody laid out yet.
  std::optional<Layout> fresh;
  std::string rule_error;  // the rule did not bind: a bad call, or a bad rule
  const Kernel* kernel = nullptr;
};

// The decisions of one op. They are kept under the operands' layouts, shapes and types, and under those
// attributes that the op's rule has ever looked at: offsets, seeds and counts that change from step to
// step and decide nothing make no new entry. A rule that looks at one more makes the cache start anew.
class DecisionCache {
 public:
  // Shared, so that a caller keeps its decision where the cache is cleared meanwhile.
  std::shared_ptr<const Decision> find(Runtime& runtime, const Frame& frame);

 private:
  // Shapes that never repeat must not fill the memory.
  static constexpr std::size_t kMostDecisions = 4096;
  using Key = std::vector<std::uint64_t>;
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };

  void write_key(Key& key, const Frame& frame) const;
  void clear(Runtime& runtime);
  bool widen(const std::vector<AttributeRead>& reads);  // whether that is more than before

  std::uint64_t revision_ = 0;  // of the rules decided by
  std::vector<AttributeRead> reads_;
  std::unordered_map<Key, std::shared_ptr<const Decision>, Hash> decisions_;
};

}  // namespace meshtorch
