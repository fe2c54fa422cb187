// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/train/microbatch.h>

#include <ATen/ATen.h>

#include <meshtorch/base/error.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/scope.h>
#include <meshtorch/tensor/sharded.h>
#include <meshtorch/tensor/sharding.h>

namespace meshtorch {
namespace {

[[noreturn]] void refuse(std::string where, std::string what, std::string remedy) {
  fail({.op = "microbatches",
        .where = std::move(where),
        .what = std::move(what),
        .remedy = std::move(remedy)});
}

void check_batch(const std::string& where, const Batch& batch) {
  if (!batch.inputs.defined() || !batch.targets.defined() || batch.inputs.dim() == 0 ||
      batch.targets.dim() == 0) {
    refuse(where, "expected inputs and targets with a batch dim", "give both");
  }
  if (batch.inputs.size(0) != batch.targets.size(0)) {
    refuse(where,
           text("inputs have ", batch.inputs.size(0), " rows, targets ", batch.targets.size(0)),
           "give as many of both");
  }
}

// The rows of each microbatch that has any.
std::vector<Interval> pieces(std::int64_t rows, std::int64_t count) {
  if (count < 1 || count > rows) {
    refuse("count", text("got ", count, ", expected 1 to the batch size ", rows),
           "use fewer microbatches or a larger batch");
  }
  std::vector<Interval> pieces;
  for (std::int64_t i = 0; i < count; ++i) {
    const Interval piece = chunk({0, rows}, i, count);
    if (piece.size() > 0) pieces.push_back(piece);
  }
  return pieces;
}

bool counts_targets(const at::Tensor& targets) {
  return at::isIntegralType(targets.scalar_type(), false);
}

std::int64_t valid(const at::Tensor& targets, std::int64_t ignore_index) {
  if (!counts_targets(targets)) return targets.numel();
  return item_or(targets.ne(ignore_index).sum(), targets.numel()).to<std::int64_t>();
}

// Microbatches of as many valid targets each; `place(i)` gives the i-th, placed.
template <class Place>
std::vector<Microbatch> weighted(const std::vector<std::int64_t>& valid, std::int64_t ignore_index,
                                 Place place) {
  std::int64_t total = 0;
  for (const std::int64_t mine : valid) total += mine;
  if (total == 0) {
    refuse("targets", text("every one is ignored (", ignore_index, ")"),
           "give a batch with valid targets");
  }
  std::vector<Microbatch> results;
  for (std::size_t i = 0; i < valid.size(); ++i) {
    if (valid[i] == 0) continue;  // its mean is 0 / 0, and nothing of it counts
    Batch placed = place(i);
    if (counts_targets(placed.targets)) {
      Allocation& allocation = *sharded_view(placed.targets)->allocation();
      allocation.count = std::make_shared<const Allocation::Count>(
          Allocation::Count{allocation.version, placed.targets.numel(), ignore_index, valid[i]});
    }
    results.emplace_back(std::move(placed.inputs), std::move(placed.targets), valid[i], total);
  }
  results.back().set_last();
  return results;
}

Batch read(const RowSource& source, const Interval& rows) {
  Batch batch = source.read(rows.begin, rows.end);
  const std::string where = text("rows [", rows.begin, ", ", rows.end, ")");
  check_batch(where, batch);
  if (batch.inputs.size(0) != rows.size()) {
    refuse(where, text("read gave ", batch.inputs.size(0), " rows"), "give those of the range");
  }
  return batch;
}

// A tensor of `count` rows, from `mine` of them. What a device holds of the other dims is taken from
// them here.
at::Tensor place_rows(at::Tensor mine, const Interval& rows, std::int64_t count,
                      const NamedSharding& sharding) {
  Shape shape = shape_of(mine);
  shape[0] = count;
  const Box box = process_box(sharding, shape);
  for (std::size_t dim = 0; dim < box.size(); ++dim) {
    const std::int64_t origin = dim == 0 ? rows.begin : 0;
    const std::int64_t begin = box[dim].size() == 0 ? 0 : box[dim].begin - origin;
    mine = mine.narrow(static_cast<std::int64_t>(dim), begin, box[dim].size());
  }
  return device_put(ProcessLocal{std::move(mine), std::move(shape)}, sharding);
}

Batch place_piece(const RowSource& source, const Interval& piece, const NamedSharding& sharding) {
  const auto& dims = sharding.spec.dims();
  const PartitionSpec of_rows = dims.empty() ? P() : PartitionSpec::from({dims[0]});
  const Interval mine = process_box({sharding.mesh, of_rows}, {piece.size()})[0];
  const Batch batch = read(source, {piece.begin + mine.begin, piece.begin + mine.end});
  at::Tensor targets = place_rows(batch.targets, mine, piece.size(), sharding);
  return {place_rows(batch.inputs, mine, piece.size(), sharding), std::move(targets)};
}

// Of placed targets, over all processes.
std::vector<std::int64_t> valid_of_each(const std::vector<Batch>& placed,
                                        std::int64_t ignore_index) {
  std::vector<std::int64_t> counts;
  for (const Batch& batch : placed) counts.push_back(batch.targets.numel());
  if (!counts_targets(placed.front().targets)) return counts;
  at::NoGradGuard no_grad;
  named_scope scope("microbatches");
  std::vector<at::Tensor> sums;
  for (const Batch& batch : placed) sums.push_back(batch.targets.ne(ignore_index).sum());
  const at::Tensor all = full(at::stack(sums));
  if (is_meta(all)) return counts;
  return {all.data_ptr<std::int64_t>(), all.data_ptr<std::int64_t>() + all.numel()};
}

}  // namespace

std::vector<Microbatch> microbatches(const Batch& batch, std::int64_t count,
                                     const NamedSharding& sharding, MicrobatchOptions options) {
  check_batch("batch", batch);
  const std::vector<Interval> rows = pieces(batch.inputs.size(0), count);
  const auto part = [&](const at::Tensor& whole, std::size_t i) {
    return whole.narrow(0, rows[i].begin, rows[i].size());
  };
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < rows.size(); ++i)
    counts.push_back(valid(part(batch.targets, i), options.ignore_index));
  return weighted(counts, options.ignore_index, [&](std::size_t i) {
    at::Tensor targets = device_put(part(batch.targets, i), sharding);
    return Batch{device_put(part(batch.inputs, i), sharding), std::move(targets)};
  });
}

std::vector<Microbatch> microbatches(const RowSource& source, std::int64_t count,
                                     const NamedSharding& sharding, MicrobatchOptions options) {
  if (!source.read) refuse("source", "has no read", "give a function of the rows");
  std::vector<Batch> placed;
  for (const Interval& piece : pieces(source.rows, count))
    placed.push_back(place_piece(source, piece, sharding));
  return weighted(valid_of_each(placed, options.ignore_index), options.ignore_index,
                  [&](std::size_t i) { return std::move(placed[i]); });
}

}  // namespace meshtorch
