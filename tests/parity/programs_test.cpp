// SPDX-License-Identifier: Apache-2.0
//
// Random programs of views, in-place ops, arithmetic, reductions and reshards compute on a mesh what
// they compute on one device: after every op every tensor of the program is compared, so that an alias
// that missed a write, or a write that reached too far, shows at once; in the end the gradients.
#include <random>

#include "compare.h"

namespace mt = meshtorch;
using mt::P;

namespace {

struct Pair {
  at::Tensor dense, sharded;
};

class Program {
 public:
  Program(mt::Mesh mesh, unsigned seed, bool differentiable)
      : mesh_(std::move(mesh)), random_(seed), differentiable_(differentiable) {
    torch::manual_seed(seed);
    const std::vector<std::vector<std::int64_t>> shapes{{4, 6}, {5, 3}, {3, 4, 2}, {7}};
    for (int i = 0; i < 3; ++i) {
      const auto value = torch::randn(shapes[pick(shapes.size())]);
      Pair leaf{value.clone(), mt::device_put(value, {mesh_, any_spec(value.dim())})};
      if (differentiable) {
        leaf.dense.requires_grad_();
        leaf.sharded.requires_grad_();
        leaves_.push_back(leaf);
        leaf = {leaf.dense * 1, leaf.sharded * 1};
      }
      values_.push_back(leaf);
    }
  }

  // The text of the program so far is in trace().
  bool run(int steps) {
    for (int s = 0; s < steps; ++s) {
      step();
      for (std::size_t i = 0; i < values_.size(); ++i) {
        if (!same(values_[i], i)) return false;
      }
    }
    if (!differentiable_) return true;
    at::Tensor dense, sharded;
    for (const Pair& value : values_) {
      const auto d = value.dense.square().sum();
      const auto x = value.sharded.square().sum();
      dense = dense.defined() ? dense + d : d;
      sharded = sharded.defined() ? sharded + x : x;
    }
    // A write to a tensor that backward needs is an error on both.
    const std::string dense_error = mt::message_of([&] { dense.backward(); });
    const std::string sharded_error = mt::message_of([&] { sharded.backward(); });
    if (dense_error.empty() != sharded_error.empty())
      trace_ += "only one throws: " + dense_error + sharded_error + "\n";
    if (!dense_error.empty() || !sharded_error.empty())
      return dense_error.empty() == sharded_error.empty();
    for (const Pair& leaf : leaves_) {
      if (!leaf.dense.grad().defined()) continue;
      const auto got = mt::full(leaf.sharded.grad());
      if (!torch::allclose(got, leaf.dense.grad(), 1e-3, 1e-3)) {
        trace_ += mt::text("gradient differs:\n", got, "\n", leaf.dense.grad());
        return false;
      }
    }
    return true;
  }

  const std::string& trace() const { return trace_; }
  int refused() const { return refused_; }

 private:
  std::size_t pick(std::size_t n) { return random_() % n; }

  P any_spec(std::int64_t rank) {
    std::vector<mt::DimSpec> dims(static_cast<std::size_t>(rank));
    std::vector<std::string> unreduced;
    std::vector<std::string> axes{"dp", "tp"};
    if (pick(2)) std::swap(axes[0], axes[1]);
    for (const std::string& axis : axes) {
      const std::size_t where = pick(static_cast<std::size_t>(rank) + 2);
      if (where < dims.size()) dims[where].push_back(axis);
      if (where == dims.size()) unreduced.push_back(axis);
    }
    return P::from(dims, unreduced);
  }

  // Every replica holds the same, and all of it is the dense value.
  bool same(const Pair& pair, std::size_t i) {
    const auto dense = pair.dense.detach();
    const auto whole = mt::full(pair.sharded.detach());
    bool equal = whole.sizes() == dense.sizes() && torch::allclose(whole, dense, 1e-4, 1e-4, true);
    if (equal && mt::sharding_of(pair.sharded).spec.unreduced_axes().empty()) {
      for (const auto& shard : mt::addressable_shards(pair.sharded)) {
        auto slice = dense;
        for (std::size_t d = 0; d < shard.index.size(); ++d) {
          slice =
              slice.slice(static_cast<std::int64_t>(d), shard.index[d].begin, shard.index[d].end);
        }
        equal &= torch::allclose(shard.data.detach(), slice, 1e-4, 1e-4, true);
      }
    }
    if (!equal)
      trace_ += mt::text("value ", i, " ", mt::sharding_of(pair.sharded).spec, " differs:\n", whole,
                         "\n", dense, "\n");
    return equal;
  }

  // The same function on both; a view that had to communicate refuses writes, and then nothing changed.
  template <class F>
  void apply(const std::string& name, std::size_t i, F f, bool keeps = true) {
    const std::string spec = mt::sharding_of(values_[i].sharded).spec.to_string();
    trace_ += mt::text(name, " of value ", i, " ", values_[i].dense.sizes(), " ", spec);
    at::Tensor result;
    try {
      result = f(values_[i].sharded);
    } catch (const mt::Error& error) {
      if (std::string(error.what()).find("had to communicate") == std::string::npos) throw;
      trace_ += " refused\n";
      ++refused_;
      return;
    }
    Pair next{f(values_[i].dense), result};
    trace_ += mt::text(" -> ", values_.size(), " ", mt::sharding_of(result).spec, "\n");
    if (!keeps) return;
    values_.push_back(next);
    if (values_.size() > 7) {
      const std::size_t out = pick(values_.size());
      trace_ += mt::text("drop ", out, "\n");
      values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(out));
    }
  }

  void step() {
    const std::size_t i = pick(values_.size());
    const at::Tensor dense = values_[i].dense;
    const std::int64_t rank = dense.dim();
    const auto any_dim = [&] {
      return rank == 0 ? 0 : static_cast<std::int64_t>(pick(static_cast<std::size_t>(rank)));
    };
    const std::int64_t a = any_dim(), b = any_dim();
    const double number = static_cast<double>(pick(7)) / 4 - 0.75;
    // Another value, as an operand of the same shape where there is one.
    std::size_t j = pick(values_.size());
    for (std::size_t tries = 0; tries < 20 && values_[j].dense.sizes() != dense.sizes(); ++tries)
      j = pick(values_.size());
    const Pair other = values_[j].dense.sizes() == dense.sizes()
                           ? values_[j]
                           : Pair{at::full({}, number), at::full({}, number)};
    const auto operand = [&other](const at::Tensor& x) {
      return mt::is_sharded(x) ? other.sharded : other.dense;
    };
    switch (pick(24)) {
      case 0:
        return apply(mt::text("transpose ", a, b), i,
                     [&](const at::Tensor& x) { return rank ? x.transpose(a, b) : x.alias(); });
      case 1:
        return apply("unsqueeze", i,
                     [&](const at::Tensor& x) { return rank < 4 ? x.unsqueeze(a) : x.alias(); });
      case 2:
        return apply("squeeze", i, [](const at::Tensor& x) { return x.squeeze(); });
      case 3:
        return apply("flatten", i, [](const at::Tensor& x) { return x.reshape({-1}); });
      case 4:
        return apply(mt::text("select ", a), i, [&](const at::Tensor& x) {
          return rank ? x.select(a, x.size(a) / 2) : x.alias();
        });
      case 5:
        return apply(mt::text("slice ", a), i, [&](const at::Tensor& x) {
          return rank ? x.slice(a, 0, (x.size(a) + 1) / 2) : x.alias();
        });
      case 6:
        return apply("detach", i, [&](const at::Tensor& x) {
          return differentiable_ ? x.view(x.sizes()) : x.detach();
        });
      case 7:
        return apply("tanh", i, [](const at::Tensor& x) { return x.tanh(); });
      case 8:
        return apply(mt::text("add value ", j), i,
                     [&](const at::Tensor& x) { return x + operand(x); });
      case 9:
        return apply(mt::text("mul value ", j), i,
                     [&](const at::Tensor& x) { return (x * operand(x)).clamp(-3, 3); });
      case 10:
        return apply(mt::text("sum ", a), i,
                     [&](const at::Tensor& x) { return (rank ? x.sum(a) : x.sum()).div(4); });
      case 11:
        return apply(mt::text("mean ", a), i,
                     [&](const at::Tensor& x) { return rank ? x.mean(a, true) : x.mean(); });
      case 12:
        return apply(
            "mul_", i, [&](const at::Tensor& x) { return x.mul_(number); }, false);
      case 13:
        return apply(
            "add_ scalar", i, [&](const at::Tensor& x) { return x.add_(number); }, false);
      case 14:
        return apply(
            mt::text("add_ value ", j), i,
            [&](const at::Tensor& x) { return x.add_(operand(x).detach().clone()); }, false);
      case 15:
        return apply(
            mt::text("copy_ value ", j), i,
            [&](const at::Tensor& x) { return x.copy_(operand(x).detach().clone()); }, false);
      case 16:
        return apply(
            "clamp_", i, [](const at::Tensor& x) { return x.clamp_(-0.5, 0.75); }, false);
      case 17:
        return apply(
            "fill_", i, [&](const at::Tensor& x) { return x.fill_(number); }, false);
      case 18:
        return apply("softmax", i,
                     [&](const at::Tensor& x) { return rank ? x.softmax(a) : x.sigmoid(); });
      case 19:
        return apply("matmul", i, [&](const at::Tensor& x) {
          return rank == 2 ? x.t().matmul(x).tanh() : x.clone();
        });
      case 20:
        return apply("zeros_like add_", i,
                     [&](const at::Tensor& x) { return torch::zeros_like(x).add_(x); });
      case 21:
        return apply("chunk add_", i, [&](const at::Tensor& x) {
          if (rank == 0) return x.clone();
          auto pieces = x.clone().unsafe_chunk(2, a);
          pieces.front().add_(pieces.back().sum().detach());
          return torch::cat(pieces, a);
        });
      case 22:
        return apply("repeat", i, [&](const at::Tensor& x) {
          return rank && x.numel() < 100 ? torch::cat({x, x.flip(a)}, a) : x.exp().clamp_max(2);
        });
      default: {
        const P spec = any_spec(rank);
        return apply(mt::text("reshard ", spec), i, [&](const at::Tensor& x) {
          return mt::is_sharded(x) ? mt::reshard(x, spec) : x.clone();
        });
      }
    }
  }

  mt::Mesh mesh_;
  std::mt19937 random_;
  bool differentiable_;
  std::vector<Pair> values_, leaves_;
  std::string trace_;
  int refused_ = 0;
};

void run(bool differentiable, int programs) {
  mt::Runtime runtime({.devices = 8, .warn_fallback = false});
  const std::int64_t odd = std::max(3, runtime.processes());
  int refused = 0;
  for (int seed = 0; seed < programs; ++seed) {
    auto mesh = seed % 3 == 0 ? runtime.make_mesh({{"dp", 2}, {"tp", 2}})
                              : (seed % 3 == 1 ? runtime.make_mesh({{"dp", 4}, {"tp", 2}})
                                               : runtime.make_mesh({{"dp", 1}, {"tp", odd}}));
    Program program(mesh, static_cast<unsigned>(seed), differentiable);
    std::string error;
    bool right = false;
    try {
      right = program.run(25);
    } catch (const std::exception& exception) {
      error = exception.what();
    }
    ASSERT_TRUE(right) << "program " << seed << " on " << mesh << "\n" << program.trace() << error;
    refused += program.refused();
  }
  testing::Test::RecordProperty("refused_writes", refused);
}

TEST(Programs, Values) { run(false, 150); }
TEST(Programs, Gradients) { run(true, 150); }

}  // namespace
