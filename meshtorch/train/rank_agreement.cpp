// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/rank_agreement.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include <meshtorch/base/error.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {
namespace {

using Numbers = std::vector<std::int64_t>;

bool alone(const RankGrid& grid) {
  return Runtime::current().processes() == 1 ||
         grid.ranks.size() == static_cast<std::size_t>(grid.count());
}

// A part in numbers, and back.
void write(Numbers& row, const RankPart& part) {
  row.push_back(static_cast<std::int64_t>(part.locals.size()));
  row.push_back(static_cast<std::int64_t>(part.type));
  row.push_back(static_cast<std::int64_t>(part.shape.size()));
  row.insert(row.end(), part.shape.begin(), part.shape.end());
  for (std::size_t dim = 0; dim < part.shape.size(); ++dim) {
    const AxisList axes = part.layout.dims[dim];
    row.push_back(axes.size());
    for (int i = 0; i < axes.size(); ++i) row.push_back(axes[i]);
  }
  const std::size_t at = row.size();
  row.push_back(0);
  for (const int axis : part.layout.unreduced) {
    row.push_back(axis);
    ++row[at];
  }
}

struct Told {
  bool there = false;
  std::int64_t type = 0;
  Shape shape;
  Layout layout;
};

Told read(Numbers::const_iterator& at) {
  Told told{.there = *at++ > 0, .type = *at++, .shape = {}, .layout = {}};
  const std::int64_t dims = *at++;
  told.shape.assign(at, at + dims);
  at += dims;
  told.layout = Layout::replicated(dims);
  for (AxisList& axes : told.layout.dims) {
    for (std::int64_t left = *at++; left > 0; --left) axes.push_back(static_cast<int>(*at++));
  }
  for (std::int64_t left = *at++; left > 0; --left)
    told.layout.unreduced.insert(static_cast<int>(*at++));
  return told;
}

// The rows of all ranks, one after the other.
Numbers gather(const RankGrid& grid, const std::vector<Numbers>& mine) {
  Numbers rows;
  if (alone(grid)) {
    for (const Numbers& row : mine) rows.insert(rows.end(), row.begin(), row.end());
    return rows;
  }
  Shards given(grid.devices());
  for (std::size_t rank = 0; rank < mine.size(); ++rank) {
    for (const std::size_t d : grid.ranks[rank].devices)
      given[d] = at::tensor(mine[rank], at::kLong);
  }
  Request request = Request::all_gather(grid.mesh, grid.manual_order, 0);
  request.op = "local_map";
  const at::Tensor all =
      Runtime::current().communicator().run(std::move(request), given).wait().front();
  const auto* data = all.const_data_ptr<std::int64_t>();
  return {data, data + all.numel()};
}

// By rank, of all processes.
std::vector<std::vector<Told>> tell(const RankGrid& grid,
                                    const std::vector<std::vector<RankPart>>& parts) {
  std::vector<Numbers> mine;
  for (const auto& of_rank : parts) {
    Numbers& row = mine.emplace_back(Numbers{static_cast<std::int64_t>(of_rank.size())});
    for (const RankPart& part : of_rank) write(row, part);
  }
  const Numbers rows = gather(grid, mine);
  std::vector<std::vector<Told>> told;
  for (auto at = rows.begin(); at != rows.end();) {
    told.emplace_back();
    for (std::int64_t left = *at++; left > 0; --left) told.back().push_back(read(at));
  }
  return told;
}

bool alike(const std::vector<Told>& a, const std::vector<Told>& b) {
  return std::ranges::equal(a, b, [](const Told& x, const Told& y) {
    return x.type == y.type && x.shape.size() == y.shape.size();
  });
}

}  // namespace

std::vector<bool> on_any_rank(const RankGrid& grid, const std::vector<bool>& mine) {
  if (mine.empty() || alone(grid)) return mine;
  const Numbers row(mine.begin(), mine.end());
  const Shards given(grid.devices(), at::tensor(row, at::kLong));
  Request request = Request::all_reduce(grid.mesh, grid.manual_order, Reduction::max);
  request.op = "local_map";
  const at::Tensor any =
      Runtime::current().communicator().run(std::move(request), given).wait().front();
  const auto* data = any.const_data_ptr<std::int64_t>();
  return std::vector<bool>(data, data + any.numel());
}

RankReport report_everywhere(const RankGrid& grid,
                             const std::vector<std::vector<RankPart>>& parts) {
  const auto told = tell(grid, parts);
  RankReport report;
  for (const Told& first : told.front()) report.layouts.push_back(first.layout);
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    auto& shapes = report.shapes.emplace_back();
    for (const Told& part : told[rank]) shapes.push_back(part.shape);
    if (alike(told[rank], told.front())) continue;
    fail({.op = "local_map",
          .where = "results",
          .what = text("rank (", grid.name_of(static_cast<std::int64_t>(rank)), ") returned ",
                       told[rank].size(), " tensors, rank (", grid.name_of(0), ") ",
                       told.front().size(), ", or of other dtypes or numbers of dims"),
          .remedy = "return the same structure on every rank"});
  }
  return report;
}

std::vector<std::optional<Layout>> layouts_everywhere(
    const RankGrid& grid, const std::vector<std::vector<RankPart>>& parts) {
  std::vector<std::optional<Layout>> layouts(parts.front().size());
  for (const auto& of_rank : tell(grid, parts)) {
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (!layouts[i] && of_rank[i].there) layouts[i] = of_rank[i].layout;
    }
  }
  return layouts;
}

}  // namespace meshtorch
