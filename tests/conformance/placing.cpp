// SPDX-License-Identifier: Apache-2.0
#include "placing.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <random>
#include <set>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/kernel.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch::conformance {
namespace {

bool sums(const at::Tensor& x) { return x.defined() && (x.is_floating_point() || x.is_complex()); }

Placing all_replicated(const Tensors& operands) {
  Placing placing;
  for (const at::Tensor& x : operands)
    placing.push_back({!x.defined(), Layout::replicated(x.defined() ? x.dim() : 0)});
  return placing;
}

bool any_sharded(const Placing& placing) {
  return std::any_of(placing.begin(), placing.end(),
                     [](const Place& place) { return !place.plain; });
}

std::vector<std::uint64_t> key(const Placing& placing) {
  std::vector<std::uint64_t> words;
  for (const Place& place : placing) {
    words.push_back(place.plain ? 1 : 2u + 4u * place.layout.unreduced.bits());
    for (const AxisList& axes : place.layout.dims) words.push_back(axes.packed());
  }
  return words;
}

// Random summands, of few bits so that doubles add up exactly.
at::Tensor summand(const at::Tensor& like, at::Generator& random) {
  auto draw = [&] {
    return at::round(at::randn(like.sizes(), random, at::TensorOptions(at::kDouble)).mul(4)).div(4);
  };
  if (like.is_complex()) return at::complex(draw(), draw()).to(like.scalar_type());
  return draw().to(like.scalar_type());
}

}  // namespace

std::vector<Layout> legal_layouts(const Mesh& mesh, std::int64_t rank, bool unreduced) {
  std::vector<Layout> layouts{Layout::replicated(rank)};
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    std::vector<Layout> more;
    for (const Layout& layout : layouts) {
      more.push_back(layout);
      for (std::size_t d = 0; d < layout.dims.size(); ++d) {
        Layout sharded = layout;
        sharded.dims[d].push_back(axis);
        more.push_back(sharded);
        if (layout.dims[d].empty()) continue;
        AxisList swapped = AxisList::of(axis);
        for (int a = 0; a < layout.dims[d].size(); ++a) swapped.push_back(layout.dims[d][a]);
        sharded.dims[d] = swapped;
        more.push_back(sharded);
      }
      if (!unreduced) continue;
      Layout summed = layout;
      summed.unreduced.insert(axis);
      more.push_back(summed);
    }
    layouts = std::move(more);
  }
  return layouts;
}

std::vector<Placing> placings(const Tensors& operands, const Mesh& mesh,
                              const std::vector<Placing>& always, std::size_t limit,
                              std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<Place>> states;
  double combinations = 1;
  for (const at::Tensor& x : operands) {
    states.push_back({{.plain = true, .layout = Layout::replicated(x.defined() ? x.dim() : 0)}});
    if (x.defined()) {
      for (Layout& layout : legal_layouts(mesh, x.dim(), sums(x)))
        states.back().push_back({false, std::move(layout)});
    }
    combinations *= static_cast<double>(states.back().size());
  }
  std::vector<Placing> chosen;
  std::set<std::vector<std::uint64_t>> seen;
  auto choose = [&](const Placing& placing) {
    if (any_sharded(placing) && seen.insert(key(placing)).second) chosen.push_back(placing);
  };
  const Placing replicated = all_replicated(operands);
  choose(replicated);
  for (const Placing& placing : always) choose(placing);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].defined()) continue;
    for (const Place& place : states[i]) {
      const bool one_dim =
          std::any_of(place.layout.dims.begin(), place.layout.dims.end(),
                      [&](const AxisList& axes) { return axes.size() == mesh.rank(); });
      if (mesh.rank() > 1 && !one_dim) continue;
      Placing alone = replicated;
      alone[i] = place;
      choose(alone);
    }
    Placing among_plain = replicated;
    for (Place& place : among_plain) place.plain = true;
    among_plain[i] = states[i][1 + random() % (states[i].size() - 1)];
    choose(among_plain);
  }
  if (combinations <= static_cast<double>(limit)) {
    std::vector<std::size_t> digits(operands.size(), 0);
    for (bool more = true; more;) {
      Placing placing;
      for (std::size_t i = 0; i < digits.size(); ++i) placing.push_back(states[i][digits[i]]);
      choose(placing);
      more = false;
      for (std::size_t i = 0; i < digits.size() && !more; ++i) {
        more = ++digits[i] < states[i].size();
        if (!more) digits[i] = 0;
      }
    }
    return chosen;
  }
  for (std::size_t tries = 0; chosen.size() < limit && tries < 4 * limit; ++tries) {
    Placing placing;
    for (const auto& mine : states) placing.push_back(mine[random() % mine.size()]);
    choose(placing);
  }
  return chosen;
}

at::Tensor put(const at::Tensor& dense, const Mesh& mesh, const Layout& layout,
               std::uint64_t seed) {
  const at::Tensor value = dense.detach();
  const Shape shape = value.sizes().vec();
  const AxisList axes = ordered(layout.unreduced);
  Tensors summands{value};
  if (!axes.empty()) {
    at::Generator random = at::detail::createCPUGenerator(seed);
    for (std::int64_t r = 1; r < mesh.shards(axes); ++r) {
      summands.push_back(summand(value, random));
      summands[0] = summands[0] - summands.back();
    }
  }
  Shards locals;
  for (const std::int64_t position : Runtime::current().communicator().addressable(mesh)) {
    at::Tensor local =
        axes.empty() ? value : summands[static_cast<std::size_t>(mesh.group_rank(position, axes))];
    const Box box = shard_box(mesh, shape, layout, position);
    for (std::size_t d = 0; d < box.size(); ++d)
      local = local.narrow(static_cast<std::int64_t>(d), box[d].begin, box[d].size());
    locals.push_back(local.clone(at::MemoryFormat::Contiguous));
  }
  return wrap(mesh, shape, layout, std::move(locals));
}

std::string describe(const Instance& instance, const Mesh& mesh, const Placing& placing) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < placing.size(); ++i) {
    if (instance.operand(i) == nullptr) continue;
    parts.push_back(instance.name(i) + " " +
                    (placing[i].plain ? "plain" : to_string(mesh, placing[i].layout)));
  }
  return join(parts);
}

}  // namespace meshtorch::conformance
