// SPDX-License-Identifier: Apache-2.0
//
// Views alias, writes are seen by every view, and in-place ops on views differentiate as in plain
// libtorch; where a view had to communicate, writing is an error. Random programs beside one device.
#include <cstdlib>

#include <meshtorch/tensor/sharded.h>
#include "mutation_calls.h"
#include "mutation_program.h"

namespace meshtorch {
namespace {

const void* storage(const at::Tensor& x) { return x.storage().unsafeGetStorageImpl(); }

std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

// A view that had to communicate.
bool copied(const at::Tensor& x) { return !sharded_view(x)->allocation()->copied_by.empty(); }

bool aliases(const at::Tensor& x, const at::Tensor& base) {
  const auto mine = addressable_shards(x), others = addressable_shards(base);
  for (std::size_t d = 0; d < mine.size(); ++d) {
    if (mine[d].data.numel() > 0 && !mine[d].data.is_alias_of(others[d].data)) return false;
  }
  return true;
}

bool on_every_device(const at::Tensor& x) {
  const PartitionSpec spec = sharding_of(x).spec;
  return spec.dims().empty() && spec.unreduced_axes().empty();
}

}  // namespace

Program::Program(Mesh mesh, unsigned seed, bool differentiable)
    : mesh_(std::move(mesh)), random_(seed), differentiable_(differentiable) {
  torch::manual_seed(seed);
  look_at_graph_ = pick(2) == 0;
  start();
}

bool Program::say(const std::string& difference) {
  trace_ += "// " + difference + "\n";
  return false;
}

P Program::any_spec(std::int64_t rank, bool may_be_unreduced) {
  std::vector<DimSpec> dims(static_cast<std::size_t>(rank));
  std::vector<std::string> axes, unreduced;
  for (const MeshAxis& axis : mesh_.axes()) axes.push_back(axis.name);
  if (axes.size() > 1 && pick(2)) std::swap(axes[0], axes[1]);
  for (const std::string& axis : axes) {
    const std::size_t where = pick(dims.size() + 2);
    if (where < dims.size()) dims[where].push_back(axis);
    if (where == dims.size() && may_be_unreduced) unreduced.push_back(axis);
  }
  return P::from(dims, unreduced);
}

Pair Program::place(const at::Tensor& dense) {
  const P spec = any_spec(dense.dim(), dense.scalar_type() != torch::kBool);
  return {dense, device_put(dense, {mesh_, spec})};
}

void Program::start() {
  const std::vector<torch::ScalarType> types{torch::kDouble,        torch::kDouble, torch::kDouble,
                                             torch::kComplexDouble, torch::kLong,   torch::kBool};
  for (int i = 0; i < 2; ++i) {
    std::vector<std::int64_t> shape(pick(4));
    for (auto& size : shape) size = pick(12) == 0 ? 0 : static_cast<std::int64_t>(1 + pick(5));
    const auto type = types[pick(differentiable_ ? 4 : types.size())];
    auto value = (torch::randn(shape, torch::kDouble) * 3).to(type);
    if (value.is_complex()) value = torch::randn(shape, type);
    Pair base = place(value);
    Value made{{base.dense.clone(), base.sharded}, text("t", names_++)};
    trace_ += text("auto ", made.name, " = ", base.dense.sizes(), " ", type, " ",
                   sharding_of(base.sharded).spec);
    if (differentiable_) {
      made.dense.requires_grad_();
      made.sharded.requires_grad_();
      leaves_.push_back(made);
      if (pick(6) != 0) {
        made.dense = made.dense * 1;
        made.sharded = made.sharded * 1;
        trace_ += " * 1";
      }
    }
    trace_ += ";\n";
    values_.push_back(made);
  }
}

bool Program::compare(const Value& value, bool look_at_graph) {
  const at::Tensor dense = value.dense.detach();
  if (!is_sharded(value.sharded)) return say(value.name + " is not sharded");
  const auto spec = sharding_of(value.sharded).spec;
  const auto close = [](const at::Tensor& a, const at::Tensor& b) {
    if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
    if (!a.is_floating_point() && !a.is_complex()) return a.equal(b);
    return torch::allclose(a, b, 1e-8, 1e-8, true);
  };
  const at::Tensor got = full(value.sharded.detach());
  if (!close(got, dense))
    return say(text(value.name, " ", spec, " differs:\n", got, "\n", dense, "\n"));
  if (spec.unreduced_axes().empty()) {
    for (const Shard& shard : addressable_shards(value.sharded)) {
      auto slice = dense;
      for (std::size_t d = 0; d < shard.index.size(); ++d)
        slice = slice.slice(static_cast<std::int64_t>(d), shard.index[d].begin, shard.index[d].end);
      if (!close(shard.data.detach(), slice))
        return say(text(value.name, " ", spec, " differs on device ", shard.device, ":\n",
                        shard.data, "\n", slice));
    }
  }
  const auto state = [&](const at::Tensor& x) {
    std::string state = text("version ", x._version(), " requires_grad ", x.requires_grad(),
                             " view ", x.is_view(), " leaf ", x.is_leaf());
    // Reading it replays views of what was written since, and may be libtorch's error.
    bool has = false;
    if (look_at_graph) {
      const std::string error = message_of([&] { has = x.grad_fn() != nullptr; });
      state += !error.empty() ? " grad_fn throws" : has ? " grad_fn" : "";
    }
    return state;
  };
  if (state(value.sharded) != state(value.dense))
    return say(value.name + " sharded: " + state(value.sharded) + ", plain: " + state(value.dense));
  return true;
}

// A view shares memory with its base, or is marked as one that moved; nothing moves where every device
// has all of the base.
bool Program::check_view(const Call& call, const Pair& result) {
  if (!result.dense.is_alias_of(call.target.dense)) return true;
  if (!is_sharded(result.sharded)) return true;
  if (!copied(result.sharded) && aliases(result.sharded, call.target.sharded)) return true;
  if (!copied(result.sharded)) return call.may_copy || say("a view is a copy that nothing marks");
  if (on_every_device(call.target.sharded) && !copied(call.target.sharded))
    return say("a view of a replicated tensor is a copy");
  moved_.insert(storage(result.dense));
  return true;
}

bool Program::check_refusal(const Call& call, const std::string& message) {
  trace_ += "// refused: " + message + "\n";
  ++count_.refused;
  if (message.find("change its size in place") != std::string::npos ||
      message.find("changes the shape in place") != std::string::npos)
    return true;
  if (call.makes_views || moved_.count(storage(call.target.dense))) return true;
  return say("refused, though no view of it moved");
}

void Program::keep(const Call& call, const std::vector<at::Tensor>& dense,
                   const std::vector<at::Tensor>& sharded) {
  for (std::size_t i = 0; i < dense.size(); ++i) {
    const std::string name = text("t", names_++);
    if (call.kind == Call::Kind::view && call.may_copy) {
      const bool one = dense[i].is_alias_of(call.target.dense);
      const bool other = copied(sharded[i]) || aliases(sharded[i], call.target.sharded);
      if (one != other) continue;  // no program may rely on it
    }
    values_.push_back({{dense[i], sharded[i]}, name});
  }
  while (values_.size() > 7) {
    const std::size_t out = pick(values_.size());
    trace_ += values_[out].name + ".reset();\n";
    values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(out));
  }
}

bool Program::step() {
  const Call call = Draw(*this).call();
  std::string names;
  std::vector<at::Tensor> dense, sharded;
  trace_ += call.line;
  if (call.kind == Call::Kind::write) ++count_.writes;
  std::string sharded_error, dense_error;
  try {
    sharded = call.run(true);
  } catch (const Error& error) {
    const std::string message = error.what();
    if (message.find("had to communicate") != std::string::npos ||
        message.find("needs communication for it") != std::string::npos ||
        message.find("cannot change its size in place") != std::string::npos ||
        message.find("reads the memory beside a view") != std::string::npos) {
      trace_ += ";\n";
      return check_refusal(call, message);
    }
    sharded_error = message;
  } catch (const std::exception& error) {
    sharded_error = first_line(error.what());
  }
  dense_error = first_line(message_of([&] { dense = call.run(false); }));
  if (dense_error.empty() != sharded_error.empty()) {
    return say("\nonly the " + (dense_error.empty() ? "sharded one throws: " + sharded_error
                                                    : "plain one throws: " + dense_error));
  }
  if (!dense_error.empty()) {
    trace_ += ";  // throws\n";
    ++count_.both_throw;
    return true;
  }
  trace_ += ";";
  for (std::size_t i = 0; i < dense.size(); ++i)
    trace_ += text("  // t", names_ + static_cast<int>(i), " ", dense[i].sizes(), " ",
                   is_sharded(sharded[i]) ? sharding_of(sharded[i]).spec.to_string() : "plain");
  trace_ += "\n";
  if (dense.size() != sharded.size()) return say("the sharded one has other results");
  for (std::size_t i = 0; call.kind == Call::Kind::view && i < dense.size(); ++i) {
    if (!check_view(call, {dense[i], sharded[i]})) return false;
  }
  keep(call, dense, sharded);
  return true;
}

bool Program::run(int steps) {
  for (int s = 0; s < steps; ++s) {
    if (!step()) return false;
    for (const Value& value : values_) {
      if (!compare(value, look_at_graph_)) return false;
    }
  }
  return true;
}

bool Program::backward() {
  const auto loss = [&](bool side, const std::vector<Pair>& weights) {
    at::Tensor sum;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      at::Tensor x = values_[i].on(side);
      if (!x.requires_grad()) continue;
      if (x.is_complex()) x = torch::view_as_real(x.resolve_conj());
      const at::Tensor part = (x * weights[i].on(side)).sum();
      sum = sum.defined() ? sum + part : part;
    }
    if (sum.defined()) sum.backward();
  };
  std::vector<Pair> weights;
  for (const Value& value : values_) {
    auto shape = value.dense.sizes().vec();
    if (value.dense.is_complex()) shape.push_back(2);
    weights.push_back(place(torch::randn(shape, torch::kDouble)));
    trace_ += text("weight of ", value.name, " ", sharding_of(weights.back().sharded).spec, "\n");
  }
  const std::string sharded_error = first_line(message_of([&] { loss(true, weights); }));
  const std::string dense_error = first_line(message_of([&] { loss(false, weights); }));
  if (sharded_error.empty() != dense_error.empty())
    return say("backward, sharded: '" + sharded_error + "', plain: '" + dense_error + "'");
  if (!dense_error.empty()) return true;
  for (const Pair& leaf : leaves_) {
    if (leaf.dense.grad().defined() != leaf.sharded.grad().defined())
      return say("one has no gradient");
    if (!leaf.dense.grad().defined()) continue;
    const auto got = full(leaf.sharded.grad());
    if (got.sizes() != leaf.dense.sizes() ||
        !torch::allclose(got, leaf.dense.grad(), 1e-8, 1e-8, true))
      return say(text("gradient differs:\n", got, "\n", leaf.dense.grad()));
  }
  return true;
}

namespace {

// MESHTORCH_SEED=n runs one program and prints it.
void run(const std::vector<MeshAxis>& axes, bool differentiable, int programs) {
  Runtime runtime({.devices = 4, .warn_fallback = false});
  const Mesh mesh = runtime.make_mesh(axes);
  at::AutoGradMode mode(differentiable);
  Program::Count total;
  const char* only = std::getenv("MESHTORCH_SEED");
  int failures = 0;
  for (int seed = only ? std::atoi(only) : 0; seed < programs; ++seed) {
    Program program(mesh, static_cast<unsigned>(seed), differentiable);
    bool right = false;
    std::string error;
    try {
      right = program.run(20) && (!differentiable || program.backward());
    } catch (const std::exception& exception) {
      error = exception.what();
    }
    EXPECT_TRUE(right) << "program " << seed << " on " << mesh << "\n" << program.trace() << error;
    total.writes += program.count().writes;
    total.refused += program.count().refused;
    total.both_throw += program.count().both_throw;
    failures += !right;
    if (only || failures > 3) break;
  }
  testing::Test::RecordProperty("writes", total.writes);
  testing::Test::RecordProperty("refused", total.refused);
  testing::Test::RecordProperty("both_throw", total.both_throw);
  std::cout << total.writes << " writes, " << total.refused << " refused, " << total.both_throw
            << " calls that throw on both sides\n";
  EXPECT_LT(2 * total.refused, total.writes);
}

class Mutation : public testing::TestWithParam<std::vector<MeshAxis>> {};

TEST_P(Mutation, Values) { run(GetParam(), false, 200); }
TEST_P(Mutation, Gradients) { run(GetParam(), true, 120); }

INSTANTIATE_TEST_SUITE_P(Meshes, Mutation,
                         testing::Values(std::vector<MeshAxis>{{"dp", 1}},
                                         std::vector<MeshAxis>{{"dp", 2}},
                                         std::vector<MeshAxis>{{"dp", 3}},
                                         std::vector<MeshAxis>{{"dp", 2}, {"tp", 2}}),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace meshtorch
