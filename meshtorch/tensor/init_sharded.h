// SPDX-License-Identifier: Apache-2.0
//
// A tree that is born sharded: no device and no host ever holds a whole parameter, and the numbers are to
// the bit those of making it plainly after the same torch::manual_seed.
//
//   torch::manual_seed(7);
//   auto model = mt::init_sharded([&] { return mt::Gpt(options); }, mesh, mt::gpt_sharding());
//
// `make` is code that knows no mesh: it makes modules, or any tree (tree.h), with libtorch's factories
// and initialisers. It runs twice, first on meta tensors for the shapes that the rules are matched against,
// then for the values; so it must do the same both times, and not read values of what it makes.
//
//   made sharded   empty, zeros, ones, full, rand and randn without a device of their own, then: fills,
//                  uniform_, normal_, arithmetic with a number, copies, a row that is filled
//   made whole     on the host, then placed: what any other op takes part in (orthogonal_, dirac_,
//                  randn() * 0.02, complex normals), and what names its device. The report notes those that
//                  are not replicated anyway: "made whole: aten::mul.Tensor".
//
// What the maker makes beside the tree, in the size of a leaf, is sharded like it: layers that are cloned.
//
// Numbers are drawn from libtorch's generator, which is left as the dense run leaves it, in pieces of at
// most InitOptions::chunk bytes. Every process draws all of them.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include <meshtorch/mesh/mesh.h>
#include <meshtorch/tensor/tree.h>
#include <meshtorch/tree/rules.h>

namespace meshtorch {

struct InitOptions {
  // Gets what shard() would return, and which leaves were made whole.
  MatchReport* report = nullptr;
  // Bytes of the buffer that random numbers are drawn into.
  std::int64_t chunk = 1 << 20;
};

// The two runs of one init_sharded. Internal.
class InitPlan {
 public:
  InitPlan(const Mesh& mesh, const Rules& rules, const InitOptions& options);
  // Where it was not completed: puts back the states of the random generators.
  ~InitPlan();

  // A dry run (RuntimeOptions::meta): there is no second run.
  bool dry() const;
  template <class Make>
  auto first(Make& make) {
    const auto scope = open_first();
    return std::invoke(make);
  }
  template <class Make>
  auto second(Make& make) {
    const auto scope = open_second();
    return std::invoke(make);
  }
  // Of the first run's tree.
  void match(const TreeSlots& tree);
  // Of the last run's tree: what is not where it should be goes there.
  void place(const TreeSlots& tree);

 private:
  struct Parts;
  struct Scope;
  struct Close {
    void operator()(Scope* scope) const;
  };
  std::unique_ptr<Scope, Close> open_first(), open_second();

  std::unique_ptr<Parts> parts_;
};

// The tree, its tensors laid out by the rules as shard() would. Throws Error, and leaves no trace of it:
// what the rules and shard() throw; a maker that reads values in its first run, or makes other calls in
// its second; one that calls init_sharded. What the maker throws passes through, also without a trace.
template <std::invocable Make>
auto init_sharded(Make&& make, const Mesh& mesh, const Rules& rules, InitOptions options = {}) {
  InitPlan plan(mesh, rules, options);
  {
    auto tree = plan.first(make);
    plan.match(tree_detail::slots_of(tree));
    if (plan.dry()) {
      plan.place(tree_detail::slots_of(tree));
      return tree;
    }
  }
  auto tree = plan.second(make);
  plan.place(tree_detail::slots_of(tree));
  return tree;
}

}  // namespace meshtorch
