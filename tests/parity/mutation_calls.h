// SPDX-License-Identifier: Apache-2.0
//
// The calls that a random program of mutation_program.h is made of.
#pragma once

#include <algorithm>
#include <memory>

#include "mutation_program.h"

namespace meshtorch {

namespace F = torch::indexing;

// The addresses of all elements, in the order of the indices.
inline std::vector<std::int64_t> addresses(const at::Tensor& x) {
  std::vector<std::int64_t> all{reinterpret_cast<std::int64_t>(x.storage().unsafeGetStorageImpl()) +
                                x.storage_offset()};
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t at : all) {
      for (std::int64_t i = 0; i < x.size(d); ++i) next.push_back(at + i * x.stride(d));
    }
    all = std::move(next);
  }
  return all;
}

inline std::string join_numbers(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> parts;
  for (const std::int64_t number : numbers) parts.push_back(std::to_string(number));
  return join(parts);
}

inline bool repeats(const at::Tensor& x) {
  auto all = addresses(x);
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
}

// Element for element the same memory, or none in common.
inline bool aligned(const at::Tensor& x, const at::Tensor& y) {
  if (!x.is_alias_of(y)) return true;
  auto mine = addresses(x), others = addresses(y);
  if (mine == others && x.scalar_type() == y.scalar_type()) return true;
  if (x.scalar_type() != y.scalar_type()) return false;
  std::sort(mine.begin(), mine.end());
  std::sort(others.begin(), others.end());
  std::vector<std::int64_t> shared;
  std::set_intersection(mine.begin(), mine.end(), others.begin(), others.end(),
                        std::back_inserter(shared));
  return shared.empty();
}

template <class Run>
Call view_call(const Value& x, const std::string& line, Run run, bool may_copy = false) {
  return {.kind = Call::Kind::view,
          .line = "auto .. = " + x.name + line,
          .run = [x, run](bool side) { return std::vector<at::Tensor>{run(x.on(side))}; },
          .target = x,
          .may_copy = may_copy};
}

template <class Run>
Call write_call(const Value& x, const std::string& line, Run run, bool makes_views = false) {
  return {.kind = Call::Kind::write,
          .line = x.name + line,
          .run =
              [x, run](bool side) {
                run(x.on(side), side);
                return std::vector<at::Tensor>{};
              },
          .target = x,
          .makes_views = makes_views};
}

template <class Run>
Call fresh_call(const Value& x, const std::string& line, Run run) {
  return {.line = "auto .. = " + line,
          .run = [x, run](bool side) { return std::vector<at::Tensor>{run(x.on(side), side)}; }};
}

inline Pair Draw::constant(const at::Tensor& dense) {
  if (pick(3) == 0) return {dense, dense};
  return program_.place(dense);
}

inline Pair Draw::operand(const Value& x, std::string& line) {
  for (int tries = 0; tries < 6; ++tries) {
    const Value& y = any();
    if (y.dense.sizes() != x.dense.sizes() || y.dense.scalar_type() != x.dense.scalar_type())
      continue;
    line = y.name;
    if (aligned(x.dense, y.dense)) return y;
    line += ".clone()";
    return {y.dense.clone(), y.sharded.clone()};
  }
  auto shape = x.dense.sizes().vec();
  if (!shape.empty() && pick(4) == 0) shape.erase(shape.begin());
  const auto value = (torch::randn(shape, torch::kDouble) * 2).to(x.dense.scalar_type());
  const Pair made = constant(value);
  line = text("new ", value.sizes(), " ",
              is_sharded(made.sharded) ? sharding_of(made.sharded).spec.to_string() : "plain");
  return made;
}

inline Call Draw::call() {
  const Value x = any();
  switch (pick(16)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
      return view(x);
    case 6:
      return fresh(x);
    case 7:
      return metadata(x);
    case 8:
      return out(x);
    default:
      return write(x);
  }
}

// Views

inline Call Draw::view(const Value& x) {
  switch (pick(4)) {
    case 0:
      return reshaping(x);
    case 1:
    case 2:
      return indexing(x);
    default:
      return pieces(x);
  }
}

inline Call Draw::reshaping(const Value& x) {
  const std::int64_t rank = x.dense.dim();
  const auto dim = [&] {
    return rank == 0 ? 0 : static_cast<std::int64_t>(pick(static_cast<std::size_t>(rank)));
  };
  const std::int64_t a = dim(), b = dim();
  switch (pick(14)) {
    case 0:
      return view_call(x, ".alias()", [](const at::Tensor& t) { return t.alias(); });
    case 1:
      return view_call(x, ".detach()", [](const at::Tensor& t) { return t.detach(); });
    case 2:
      return view_call(x, text(".transpose(", a, ", ", b, ")"),
                       [=](const at::Tensor& t) { return t.transpose(a, b); });
    case 3:
      if (rank > 2) break;
      return view_call(x, ".t()", [](const at::Tensor& t) { return t.t(); });
    case 4: {
      std::vector<std::int64_t> order(static_cast<std::size_t>(rank));
      for (std::size_t d = 0; d < order.size(); ++d) order[d] = static_cast<std::int64_t>(d);
      std::shuffle(order.begin(), order.end(), program_.random_);
      return view_call(x, text(".permute({", join_numbers(order), "})"),
                       [=](const at::Tensor& t) { return t.permute(order); });
    }
    case 5:
      return view_call(x, ".squeeze()", [](const at::Tensor& t) { return t.squeeze(); });
    case 6:
      return view_call(x, text(".squeeze(", a, ")"),
                       [=](const at::Tensor& t) { return t.squeeze(a); });
    case 7:
      if (rank > 3) break;
      return view_call(x, text(".unsqueeze(", a, ")"),
                       [=](const at::Tensor& t) { return t.unsqueeze(a); });
    case 8: {
      auto shape = x.dense.sizes().vec();
      for (auto& size : shape) {
        if (size == 1) size = 2 + static_cast<std::int64_t>(pick(2));
      }
      if (rank < 3 && coin()) shape.insert(shape.begin(), 2);
      return view_call(x, text(".expand({", join_numbers(shape), "})"),
                       [=](const at::Tensor& t) { return t.expand(shape); });
    }
    case 9:
    case 10:
    case 11: {
      auto shape = x.dense.sizes().vec();
      const auto d = static_cast<std::size_t>(a);
      if (coin() && rank > 1 && a + 1 < rank) {
        shape[d] *= shape[d + 1];
        shape.erase(shape.begin() + a + 1);
      } else if (rank > 0 && rank < 4 && shape[d] > 0) {
        const std::int64_t part = shape[d] % 2 == 0 ? 2 : shape[d];
        shape[d] /= part;
        shape.insert(shape.begin() + a + (coin() ? 1 : 0), part);
        if (shape[d] * shape[d + 1] == 0) break;
      }
      if (message_of([&] { x.dense.view(shape); }).empty() && coin()) {
        return view_call(x, text(".view({", join_numbers(shape), "})"),
                         [=](const at::Tensor& t) { return t.view(shape); });
      }
      return view_call(
          x, text(".reshape({", join_numbers(shape), "})"),
          [=](const at::Tensor& t) { return t.reshape(shape); }, true);
    }
    case 12:
      return coin() ? view_call(
                          x, ".reshape({-1})", [](const at::Tensor& t) { return t.reshape({-1}); },
                          true)
                    : view_call(
                          x, ".contiguous()", [](const at::Tensor& t) { return t.contiguous(); },
                          true);
    default:
      if (x.dense.is_complex()) {
        switch (pick(4)) {
          case 0:
            return view_call(x, ".conj()", [](const at::Tensor& t) { return t.conj(); });
          case 1:
            return view_call(x, " real", [](const at::Tensor& t) { return at::real(t); });
          case 2:
            return view_call(x, " imag", [](const at::Tensor& t) { return at::imag(t); });
          default:
            if (x.dense.is_conj()) break;
            return view_call(x, " as real",
                             [](const at::Tensor& t) { return torch::view_as_real(t); });
        }
      }
      if (x.dense.scalar_type() == torch::kDouble && rank > 0 && x.dense.size(-1) == 2 &&
          message_of([&] { torch::view_as_complex(x.dense); }).empty()) {
        return view_call(x, " as complex",
                         [](const at::Tensor& t) { return torch::view_as_complex(t); });
      }
  }
  return view_call(x, ".view_as(itself)", [](const at::Tensor& t) { return t.view_as(t); });
}

inline Call Draw::indexing(const Value& x) {
  const std::int64_t rank = x.dense.dim();
  if (rank == 0) return view_call(x, ".alias()", [](const at::Tensor& t) { return t.alias(); });
  const auto a = static_cast<std::int64_t>(pick(static_cast<std::size_t>(rank)));
  const std::int64_t size = x.dense.size(a);
  const auto start = static_cast<std::int64_t>(pick(static_cast<std::size_t>(size) + 1));
  const auto end = start + static_cast<std::int64_t>(pick(static_cast<std::size_t>(size) + 1));
  const auto step = static_cast<std::int64_t>(1 + pick(3));
  switch (pick(8)) {
    case 0: {
      const std::int64_t at = start - (coin() ? size : 0);
      return view_call(x, text(".select(", a, ", ", at, ")"),
                       [=](const at::Tensor& t) { return t.select(a, at); });
    }
    case 1:
    case 2:
      return view_call(x, text(".slice(", a, ", ", start, ", ", end, ", ", step, ")"),
                       [=](const at::Tensor& t) { return t.slice(a, start, end, step); });
    case 3: {
      const std::int64_t length = std::min(end, size) - start;
      return view_call(x, text(".narrow(", a, ", ", start, ", ", length, ")"),
                       [=](const at::Tensor& t) { return t.narrow(a, start, length); });
    }
    case 4: {
      const auto b = static_cast<std::int64_t>(pick(static_cast<std::size_t>(rank)));
      const auto offset = static_cast<std::int64_t>(pick(3)) - 1;
      return view_call(x, text(".diagonal(", offset, ", ", a, ", ", b, ")"),
                       [=](const at::Tensor& t) { return t.diagonal(offset, a, b); });
    }
    case 5:
      if (rank > 3) break;
      return view_call(
          x, text(".unfold(", a, ", ", std::min<std::int64_t>(2, size), ", ", step, ")"),
          [=](const at::Tensor& t) { return t.unfold(a, std::min<std::int64_t>(2, size), step); });
    case 6:
      return view_call(x, text("[{Slice(", start, ", ", end, ", ", step, "), None, Ellipsis}]"),
                       [=](const at::Tensor& t) {
                         return t.index({F::Slice(start, end, step), F::None, F::Ellipsis});
                       });
    default:
      if (!x.dense.is_contiguous() || x.dense.numel() == 0 || !x.sharded.is_contiguous()) break;
      return view_call(x, text(".as_strided({", x.dense.numel(), "}, {1})"),
                       [=](const at::Tensor& t) { return t.as_strided({t.numel()}, {1}); });
  }
  return view_call(x, text(".slice(", a, ")"), [=](const at::Tensor& t) { return t.slice(a); });
}

inline Call Draw::pieces(const Value& x) {
  const std::int64_t rank = x.dense.dim();
  const auto a = rank == 0 ? 0 : static_cast<std::int64_t>(pick(static_cast<std::size_t>(rank)));
  const std::int64_t size = rank == 0 ? 0 : x.dense.size(a);
  const auto n = static_cast<std::int64_t>(1 + pick(3));
  std::function<std::vector<at::Tensor>(const at::Tensor&)> run;
  std::string line;
  switch (pick(5)) {
    case 0:
      line = text(".split(", n, ", ", a, ")");
      run = [=](const at::Tensor& t) { return t.split(n, a); };
      break;
    case 1:
      line = text(".chunk(", n, ", ", a, ")");
      run = [=](const at::Tensor& t) { return t.chunk(n, a); };
      break;
    case 2:
      line = text(".unbind(", a, ")");
      run = [=](const at::Tensor& t) { return t.unbind(a); };
      break;
    case 3:
      line = text(".tensor_split(", n, ", ", a, ")");
      run = [=](const at::Tensor& t) { return t.tensor_split(n, a); };
      break;
    default: {
      const std::int64_t first = std::min(n, size);
      line = text(".split_with_sizes({", first, ", ", size - first, "}, ", a, ")");
      run = [=](const at::Tensor& t) { return t.split_with_sizes({first, size - first}, a); };
    }
  }
  return {.kind = Call::Kind::view,
          .line = "auto [..] = " + x.name + line,
          .run =
              [x, run](bool side) {
                auto all = run(x.on(side));
                if (all.size() > 3) all.resize(3);
                return all;
              },
          .target = x};
}

// Writes

inline Call Draw::write(const Value& x) {
  // A plain kernel that writes the same memory twice gives what its loop happens to give; only those that
  // check for it are called then.
  if (repeats(x.dense)) {
    const auto strides = x.dense.strides();
    const bool stretched = [&] {
      for (std::int64_t d = 0; d < x.dense.dim(); ++d) {
        if (x.dense.size(d) > 1 && strides[static_cast<std::size_t>(d)] == 0) return true;
      }
      return false;
    }();
    if (stretched) return write_call(x, ".add_(1)", [](const at::Tensor& t, bool) { t.add_(1); });
    return indexing(x);
  }
  switch (pick(5)) {
    case 0:
    case 1:
      return pointwise(x);
    case 2:
    case 3:
      return indexed(x);
    default:
      return other_write(x);
  }
}

inline Call Draw::pointwise(const Value& x) {
  const double c = number();
  std::string name;
  const Pair y = operand(x, name);
  switch (pick(16)) {
    case 0:
      return write_call(x, text(".add_(", c, ")"), [=](const at::Tensor& t, bool) { t.add_(c); });
    case 1:
      return write_call(x, text(".mul_(", c, ")"), [=](const at::Tensor& t, bool) { t.mul_(c); });
    case 2:
    case 3:
      return write_call(x, " += " + name, [=](at::Tensor t, bool side) { t += y.on(side); });
    case 4:
      return write_call(x, " *= " + name, [=](at::Tensor t, bool side) { t *= y.on(side); });
    case 5:
      return write_call(x, ".sub_(" + name + ", 2)",
                        [=](const at::Tensor& t, bool side) { t.sub_(y.on(side), 2); });
    case 6:
    case 7:
      return write_call(x, ".copy_(" + name + ")",
                        [=](const at::Tensor& t, bool side) { t.copy_(y.on(side)); });
    case 8:
      return write_call(x, text(".fill_(", c, ")"), [=](const at::Tensor& t, bool) { t.fill_(c); });
    case 9: {
      const Pair value = constant(torch::tensor(2).to(x.dense.scalar_type()));
      return write_call(x, ".fill_(tensor 2)",
                        [=](const at::Tensor& t, bool side) { t.fill_(value.on(side)); });
    }
    case 10:
      return write_call(x, ".zero_()", [](const at::Tensor& t, bool) { t.zero_(); });
    case 11:
      return write_call(x, ".relu_()", [](const at::Tensor& t, bool) { t.relu_(); });
    case 12:
      return write_call(x, ".tanh_()", [](const at::Tensor& t, bool) { t.tanh_(); });
    case 13:
      return write_call(x, ".clamp_(-1, 1)", [](const at::Tensor& t, bool) { t.clamp_(-1, 1); });
    case 14:
      return write_call(x, ".addcmul_(" + name + ", " + name + ")",
                        [=](const at::Tensor& t, bool side) {
                          t.addcmul_(y.on(side), y.on(side).detach().clone());
                        });
    default:
      return write_call(x, ".lerp_(" + name + ", 0.25)",
                        [=](const at::Tensor& t, bool side) { t.lerp_(y.on(side), 0.25); });
  }
}

inline Call Draw::indexed(const Value& x) {
  const std::int64_t rank = x.dense.dim();
  const double c = number();
  const auto mask = constant(torch::rand(x.dense.sizes()) > 0.5);
  if (rank == 0) {
    return write_call(x, text(".masked_fill_(mask, ", c, ")"),
                      [=](const at::Tensor& t, bool side) { t.masked_fill_(mask.on(side), c); });
  }
  const auto a = static_cast<std::int64_t>(pick(static_cast<std::size_t>(rank)));
  const std::int64_t size = x.dense.size(a);
  const std::int64_t count = std::min<std::int64_t>(2, size);
  const Pair rows = constant(torch::randperm(size).slice(0, 0, count).contiguous());
  auto shape = x.dense.sizes().vec();
  shape[static_cast<std::size_t>(a)] = count;
  const auto made = torch::randn(shape, torch::kDouble).to(x.dense.scalar_type());
  const Pair source = constant(made);
  const Pair index = constant(size == 0 ? torch::zeros(shape, torch::kLong)
                                        : torch::randint(size, shape, torch::kLong));
  const Pair unique =
      constant(size == 0 ? torch::zeros(shape, torch::kLong)
                         : torch::rand(x.dense.sizes()).argsort(a).slice(a, 0, count).contiguous());
  switch (pick(14)) {
    case 0:
      return write_call(x, text(".masked_fill_(mask, ", c, ")"),
                        [=](const at::Tensor& t, bool side) { t.masked_fill_(mask.on(side), c); });
    case 1: {
      const Pair all =
          constant(torch::randn(x.dense.sizes(), torch::kDouble).to(x.dense.scalar_type()));
      return write_call(x, ".masked_scatter_(mask, new)", [=](const at::Tensor& t, bool side) {
        t.masked_scatter_(mask.on(side), all.on(side));
      });
    }
    case 2:
      return write_call(x, text(".scatter_add_(", a, ", index, new)"),
                        [=](const at::Tensor& t, bool side) {
                          t.scatter_add_(a, index.on(side), source.on(side));
                        });
    case 3:
      return write_call(
          x, text(".scatter_(", a, ", index, new)"),
          [=](const at::Tensor& t, bool side) { t.scatter_(a, unique.on(side), source.on(side)); });
    case 4:
      return write_call(
          x, text(".index_add_(", a, ", rows, new)"),
          [=](const at::Tensor& t, bool side) { t.index_add_(a, rows.on(side), source.on(side)); });
    case 5:
      return write_call(x, text(".index_copy_(", a, ", rows, new)"),
                        [=](const at::Tensor& t, bool side) {
                          t.index_copy_(a, rows.on(side), source.on(side));
                        });
    case 6:
      return write_call(
          x, text(".index_fill_(", a, ", rows, ", c, ")"),
          [=](const at::Tensor& t, bool side) { t.index_fill_(a, rows.on(side), c); });
    case 7: {
      const bool accumulate = coin();
      if (a != 0) break;
      return write_call(x, text(".index_put_({rows}, new, ", accumulate, ")"),
                        [=](const at::Tensor& t, bool side) {
                          t.index_put_({rows.on(side)}, source.on(side), accumulate);
                        });
    }
    case 8:
      return write_call(x, ".index_put_({mask}, number)", [=](const at::Tensor& t, bool side) {
        t.index_put_({mask.on(side)}, torch::full({}, c, t.options().device(torch::kCPU)));
      });
    case 9:
    case 10: {
      const auto first = static_cast<std::int64_t>(pick(3));
      return write_call(
          x, text(".index_put_({Slice(", first, ", None, 2)}, ", c, ")"),
          [=](at::Tensor t, bool) { t.index_put_({F::Slice(first, F::None, 2)}, c); }, true);
    }
    case 11:
      if (size == 0) break;
      return write_call(
          x, text(".index_put_({Ellipsis, 0}, ", c, ")"),
          [=](at::Tensor t, bool) {
            t.index_put_({F::Ellipsis, 0}, c);
          },
          true);
    case 12:
      return write_call(
          x, text(".narrow(", a, ", 0, ", count, ").copy_(new)"),
          [=](const at::Tensor& t, bool side) { t.narrow(a, 0, count).copy_(source.on(side)); },
          true);
    default:
      if (x.dense.numel() == 0) break;
      return write_call(x, ".put_({0}, new)", [=](const at::Tensor& t, bool) {
        t.put_(torch::zeros({1}, torch::kLong), torch::full({1}, 3, made.options()));
      });
  }
  return write_call(x, ".neg_()", [](const at::Tensor& t, bool) { t.neg_(); });
}

inline Call Draw::other_write(const Value& x) {
  const std::int64_t rank = x.dense.dim();
  const auto type = x.dense.scalar_type();
  const auto a = rank == 0 ? 0 : static_cast<std::int64_t>(pick(static_cast<std::size_t>(rank)));
  switch (pick(9)) {
    case 0:
    case 1: {
      if (rank != 2) break;
      const Pair left = constant(torch::randn({x.dense.size(0), 2}, torch::kDouble).to(type));
      const Pair right = constant(torch::randn({2, x.dense.size(1)}, torch::kDouble).to(type));
      return write_call(x, ".addmm_(new, new)", [=](const at::Tensor& t, bool side) {
        t.addmm_(left.on(side), right.on(side));
      });
    }
    case 2:
      return write_call(x, text(".cumsum_(", a, ")"),
                        [=](const at::Tensor& t, bool) { t.cumsum_(a); });
    case 3:
      if (rank < 2) break;
      return write_call(x, ".tril_()", [](const at::Tensor& t, bool) { t.tril_(); });
    case 4: {
      if (rank < 2) break;
      return write_call(x, ".fill_diagonal_(2)",
                        [](const at::Tensor& t, bool) { t.fill_diagonal_(2); });
    }
    case 5: {
      // A result type that does not fit the written tensor's.
      const Pair other = constant(torch::randn(x.dense.sizes(), torch::kComplexDouble));
      const bool real = coin();
      return write_call(x, real ? ".mul_(new double)" : ".add_(new complex)",
                        [=](const at::Tensor& t, bool side) {
                          real ? t.mul_(at::real(other.on(side))) : t.add_(other.on(side));
                        });
    }
    case 6: {
      const Pair other = constant(torch::randn(x.dense.sizes(), torch::kFloat));
      return write_call(x, ".copy_(new float)",
                        [=](const at::Tensor& t, bool side) { t.copy_(other.on(side)); });
    }
    case 7: {
      const Pair other = constant(torch::randn(x.dense.sizes(), torch::kDouble));
      return write_call(x, ".copysign_ or clamp_min_(new)",
                        [=](const at::Tensor& t, bool side) { t.clamp_min_(other.on(side)); });
    }
    default:
      return write_call(x, ".detach().mul_(2)",
                        [](const at::Tensor& t, bool) { t.detach().mul_(2); });
  }
  return write_call(x, ".pow_(2)", [](const at::Tensor& t, bool) { t.pow_(2); });
}

inline Call Draw::metadata(const Value& x) {
  const std::int64_t rank = x.dense.dim();
  const auto dim = [&] {
    return rank == 0 ? 0 : static_cast<std::int64_t>(pick(static_cast<std::size_t>(rank)));
  };
  const std::int64_t a = dim(), b = dim();
  switch (pick(10)) {
    case 0:
      return write_call(x, ".t_()", [](const at::Tensor& t, bool) { t.t_(); });
    case 1:
      return write_call(x, text(".transpose_(", a, ", ", b, ")"),
                        [=](const at::Tensor& t, bool) { t.transpose_(a, b); });
    case 2:
      return write_call(x, text(".swapaxes_(", a, ", ", b, ")"),
                        [=](const at::Tensor& t, bool) { t.swapaxes_(a, b); });
    case 3:
      return write_call(x, ".squeeze_()", [](const at::Tensor& t, bool) { t.squeeze_(); });
    case 4:
      return write_call(x, text(".squeeze_(", a, ")"),
                        [=](const at::Tensor& t, bool) { t.squeeze_(a); });
    case 5:
      if (rank > 3) break;
      return write_call(x, text(".unsqueeze_(", a, ")"),
                        [=](const at::Tensor& t, bool) { t.unsqueeze_(a); });
    case 6:
      if (!x.dense.is_contiguous()) break;
      return write_call(x, ".resize_(its sizes)",
                        [](const at::Tensor& t, bool) { t.resize_(t.sizes().vec()); });
    case 7:
      return write_call(x, ".detach_()", [](const at::Tensor& t, bool) { t.detach_(); });
    default: {
      const Value y = any();
      if (program_.differentiable_ || y.dense.scalar_type() != x.dense.scalar_type() ||
          y.dense.is_conj() != x.dense.is_conj())
        break;
      return coin() ? write_call(x, ".set_data(" + y.name + ")",
                                 [=](const at::Tensor& t, bool side) { t.set_data(y.on(side)); })
                    : write_call(x, ".set_(" + y.name + ")",
                                 [=](at::Tensor t, bool side) { t.set_(y.on(side)); });
    }
  }
  return write_call(x, ".swapdims_(0, -1)", [](const at::Tensor& t, bool) { t.swapdims_(0, -1); });
}

// out=

inline Call Draw::out(const Value& x) {
  const auto type = x.dense.scalar_type();
  const auto sizes = x.dense.sizes().vec();
  const Pair a = constant((torch::randn(sizes, torch::kDouble) * 2).to(type));
  const Pair b = constant((torch::randn(sizes, torch::kDouble) * 2).to(type));
  const std::int64_t rank = x.dense.dim();
  const std::size_t which = pick(4), kind = pick(6);
  // Where the result goes: `x` itself, a new tensor that fits or does not, one of another dtype.
  Pair to = x;
  std::string name = x.name;
  if (which > 0 || repeats(x.dense)) {
    auto shape = sizes;
    if (which == 2) shape = {0};
    if (which == 3 && rank > 0) shape[0] += 1;
    to = program_.place(torch::zeros(shape, kind < 2 && coin() ? torch::kDouble : type));
    to.dense = to.dense.clone();
    name = text("new ", to.dense.sizes(), " ", to.dense.scalar_type());
  }
  const bool returns = to.dense.unsafeGetTensorImpl() != x.dense.unsafeGetTensorImpl();
  std::function<void(at::Tensor, bool)> run;
  std::string op;
  switch (kind) {
    case 0:
      op = "add_out(.., a, b)";
      run = [=](at::Tensor t, bool side) { at::add_out(t, a.on(side), b.on(side)); };
      break;
    case 1:
      op = "mul_out(.., x, b)";
      run = [=](at::Tensor t, bool side) {
        at::mul_out(t, returns ? x.on(side) : a.on(side), b.on(side));
      };
      break;
    case 2:
      if (rank == 2) {
        op = "mm_out(.., a, b.t())";
        run = [=](at::Tensor t, bool side) { at::mm_out(t, a.on(side), b.on(side).t()); };
        break;
      }
      [[fallthrough]];
    case 3:
      op = "sum_out(.., a, 0)";
      run = [=](at::Tensor t, bool side) { at::sum_out(t, a.on(side), {0}); };
      break;
    case 4:
      op = "cat_out(.., {x, b})";
      run = [=](at::Tensor t, bool side) {
        at::cat_out(t, std::vector<at::Tensor>{returns ? x.on(side) : a.on(side), b.on(side)});
      };
      break;
    default:
      op = "exp_out(.., a)";
      run = [=](at::Tensor t, bool side) { at::exp_out(t, a.on(side)); };
  }
  Call call{.kind = Call::Kind::write,
            .line = text(op, " into ", name),
            .run =
                [=](bool side) {
                  run(to.on(side), side);
                  return returns ? std::vector<at::Tensor>{to.on(side)} : std::vector<at::Tensor>{};
                },
            .target = to};
  return call;
}

// New tensors

inline Call Draw::fresh(const Value& x) {
  std::string name;
  const Pair y = operand(x, name);
  const P spec = program_.any_spec(x.dense.dim(), x.dense.scalar_type() != torch::kBool);
  switch (pick(8)) {
    case 0:
      return fresh_call(x, x.name + " + " + name,
                        [=](const at::Tensor& t, bool side) { return t + y.on(side); });
    case 1:
      return fresh_call(x, x.name + ".clone()",
                        [](const at::Tensor& t, bool) { return t.clone(); });
    case 2:
      return fresh_call(x, "sin(" + x.name + ")",
                        [](const at::Tensor& t, bool) { return t.sin(); });
    case 3:
      return fresh_call(x, "zeros_like(" + x.name + ")",
                        [](const at::Tensor& t, bool) { return torch::zeros_like(t); });
    case 4:
      return fresh_call(x, "empty_like().copy_(" + x.name + ")",
                        [](const at::Tensor& t, bool) { return torch::empty_like(t).copy_(t); });
    case 5:
      return fresh_call(x, "where(.., " + x.name + ", " + name + ")",
                        [=](const at::Tensor& t, bool side) {
                          return torch::where(t.detach().abs() > 1, t, y.on(side));
                        });
    default:
      return fresh_call(
          x, text("reshard(", x.name, ", ", spec, ")"),
          [=](const at::Tensor& t, bool side) { return side ? reshard(t, spec) : t.clone(); });
  }
}

}  // namespace meshtorch
