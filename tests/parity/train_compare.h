// SPDX-License-Identifier: Apache-2.0
//
// Trains one program on plain libtorch and on meshes, and compares what it leaves behind. A program is
// written for libtorch; the two lines that place it on a mesh are the methods of Place, which do nothing
// on plain libtorch, so that both run the same code.
//
//   Trained classify(const Place& place, std::int64_t batch) {
//     torch::manual_seed(1);
//     Net net;
//     place.module(*net, {{"fc1", P("tp")}});          // mt::shard(*net, mesh, rules)
//     ...
//     auto x = place.put(torch::randn({batch, 4}));    // mt::device_put(..., {mesh, P("dp")})
//     ...
//     trained.loss(loss);
//     trained.keep("net", *net);
//   }
//   TEST(Vision, Classify) { expect_libtorch("classify", classify); }
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>

#include "compare.h"

namespace meshtorch {

class Place {
 public:
  Place() = default;  // plain libtorch
  explicit Place(Mesh mesh) : mesh_(std::move(mesh)) {}

  // Lays the module out: by the rules where the mesh has tp, else whole on every device. What the rules
  // do not name is whole.
  void module(torch::nn::Module& module, std::vector<PathRule> rules = {}) const {
    if (!mesh_) return;
    if (mesh_->find_axis("tp") >= 0) {
      shard(module, *mesh_, PathRules(std::move(rules)).otherwise(Unmatched::replicate));
    } else {
      replicate(module, *mesh_);
    }
  }
  // A batch: its leading dim over dp, if not said otherwise.
  at::Tensor put(const at::Tensor& tensor, const P& spec = P("dp")) const {
    return mesh_ ? device_put(tensor, {*mesh_, spec}) : tensor;
  }

 private:
  std::optional<Mesh> mesh_;
};

// What a program leaves behind, as plain tensors by name.
class Trained {
 public:
  void loss(const at::Tensor& loss) { losses_.push_back(loss.item<double>()); }
  void keep(const std::string& name, const at::Tensor& tensor) {
    tensors_.emplace_back(name, full(tensor.detach()).to(torch::kDouble));
  }
  void keep(const std::string& name, const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters()) keep(name + "." + item.key(), item.value());
    for (const auto& item : module.named_buffers()) keep(name + "." + item.key(), item.value());
  }

  // The largest |this - other| / max(1, largest |other|) over losses and tensors, and where.
  // Different shapes, and NaNs, are infinitely far.
  std::pair<double, std::string> difference(const Trained& other) const {
    constexpr double kFar = std::numeric_limits<double>::infinity();
    std::pair<double, std::string> worst{0, "nowhere"};
    const auto see = [&](const at::Tensor& mine, const at::Tensor& theirs,
                         const std::string& name) {
      double apart = kFar;
      if (mine.sizes() == theirs.sizes()) {
        if (mine.numel() == 0) return;
        apart = (mine - theirs).abs().max().item<double>() /
                std::max(1.0, theirs.abs().max().item<double>());
      }
      if (!(apart <= worst.first)) worst = {std::isnan(apart) ? kFar : apart, name};
    };
    if (losses_.size() != other.losses_.size() || tensors_.size() != other.tensors_.size()) {
      return {kFar, "number of losses or tensors"};
    }
    for (std::size_t i = 0; i < losses_.size(); ++i) {
      see(torch::tensor(losses_[i], torch::kDouble),
          torch::tensor(other.losses_[i], torch::kDouble), "loss " + std::to_string(i));
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      see(tensors_[i].second, other.tensors_[i].second, tensors_[i].first);
    }
    return worst;
  }
  std::size_t steps() const { return losses_.size(); }

 private:
  std::vector<double> losses_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

// Draws its parameters and data from torch::manual_seed, before it places them.
using Program = std::function<Trained(const Place& place, std::int64_t batch)>;

struct Case {
  std::vector<MeshAxis> axes;
  std::int64_t batch;
  // In double, what is left is rounding, and a wrong mean or a lost term is far above it. In float the
  // kernels are others and Adam magnifies their rounding.
  c10::ScalarType dtype = torch::kDouble;
  double tolerance = 1e-9;
};

// Even, uneven, and (batch 5 over dp 4: 2, 2, 1, 0) with a device that holds no row.
inline std::vector<Case> cases() {
  return {{{{"dp", 1}}, 8},
          {{{"dp", 2}}, 8},
          {{{"dp", 4}}, 8},
          {{{"dp", 4}}, 5},
          {{{"dp", 2}, {"tp", 2}}, 8},
          {{{"dp", 2}, {"tp", 2}}, 7},
          {{{"dp", 2}}, 8, torch::kFloat, 1e-4},
          {{{"dp", 2}, {"tp", 2}}, 8, torch::kFloat, 1e-4}};
}

// What a program may do beyond the collectives that its parallel algorithm needs.
struct Allowed {
  std::vector<std::string> without_rule = {};  // ops that run on gathered operands
  // With data parallelism alone, some operand moves because its op cannot use it where it is. Where
  // tensor parallelism joins in, that depends on the table and is only printed.
  bool moves = false;
};

namespace detail {

class DefaultDtype {
 public:
  explicit DefaultDtype(c10::ScalarType type) {
    torch::set_default_dtype(c10::scalarTypeToTypeMeta(type));
  }
  ~DefaultDtype() { torch::set_default_dtype(c10::scalarTypeToTypeMeta(torch::kFloat)); }
};

// Trains on a mesh of these axes. An op without a rule is a failure; so is, on a mesh of data parallelism
// alone, one whose operands move because it cannot use them where they are.
inline Trained train_on(const std::vector<MeshAxis>& axes, std::int64_t batch,
                        const Program& program, const Allowed& allowed) {
  std::int64_t devices = 1;
  for (const auto& axis : axes) devices *= axis.size;
  Runtime runtime({.devices = devices, .seed = 5, .warn_fallback = false});
  Trained trained = program(Place(runtime.make_mesh(axes)), batch);
  for (const auto& report : runtime.fallbacks()) {
    const auto& known = allowed.without_rule;
    if (std::find(known.begin(), known.end(), report.op) != known.end()) continue;
    ADD_FAILURE() << report.op << " has no rule; called with " << report.layouts << ", "
                  << report.count << " times";
  }
  std::map<std::string, int> implied;
  for (const auto& entry : runtime.ledger().entries()) {
    if (entry.origin == Origin::implied) ++implied[entry.op];
  }
  for (const auto& [op, count] : implied) {
    if (axes.size() == 1 && !allowed.moves)
      ADD_FAILURE() << op << " gathered " << count << " times";
    std::printf("  %d implied by %s\n", count, op.c_str());
  }
  return trained;
}

inline void compare(const std::string& name, const Program& program, bool to_libtorch,
                    const Allowed& allowed) {
  for (const auto& one : cases()) {
    if (!to_libtorch && one.axes.front().size == 1) continue;
    const std::string where = name + " on " + name_of(one.axes) + "batch " +
                              std::to_string(one.batch) + " " + c10::toString(one.dtype);
    SCOPED_TRACE(where);
    DefaultDtype dtype(one.dtype);
    const Trained expected = to_libtorch ? program(Place(), one.batch)
                                         : train_on({{"dp", 1}}, one.batch, program, allowed);
    const Trained got = train_on(one.axes, one.batch, program, allowed);
    ASSERT_GE(expected.steps(), 10u);
    const auto [apart, at] = got.difference(expected);
    EXPECT_LE(apart, one.tolerance) << "at " << at;
    std::printf("%s: %.1e at %s\n", where.c_str(), apart, at.c_str());
  }
}

}  // namespace detail

// A program without random numbers on sharded tensors: equal to plain libtorch on every mesh, by no other
// means than those allowed.
inline void expect_libtorch(const std::string& name, const Program& program,
                            const Allowed& allowed = {}) {
  detail::compare(name, program, true, allowed);
}
// A program that draws on sharded tensors (dropout, randn_like, multinomial): libtorch's generator gives
// other numbers, but every mesh gives those of one device.
inline void expect_one_device(const std::string& name, const Program& program,
                              const Allowed& allowed = {}) {
  detail::compare(name, program, false, allowed);
}

}  // namespace meshtorch
