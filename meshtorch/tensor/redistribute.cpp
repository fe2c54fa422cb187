// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/redistribute.h>

#include <ATen/ATen.h>

#include <chrono>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/layout/shard.h>
#include <meshtorch/tensor/memory.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/trace.h>

namespace meshtorch {
namespace {

Collective collective_of(StepKind kind) {
  switch (kind) {
    case StepKind::all_gather:
      return Collective::all_gather;
    case StepKind::all_reduce:
      return Collective::all_reduce;
    case StepKind::reduce_scatter:
      return Collective::reduce_scatter;
    case StepKind::all_to_all:
      return Collective::all_to_all;
    default:
      return Collective::permute;
  }
}

// A gather that nobody asked for is what strict mode forbids; a reduction is always some op's own sum.
bool is_surprise(Collective kind, Origin origin) {
  return origin == Origin::implied && kind != Collective::all_reduce &&
         kind != Collective::reduce_scatter;
}

void check_mode(const Mesh& mesh, const Layout& from, const Layout& to, const Plan& plan,
                const Cause& cause) {
  if (Runtime::current().mode() != Mode::strict) return;
  for (const Step& step : plan.steps) {
    if (!is_collective(step.kind) || !is_surprise(collective_of(step.kind), cause.origin)) continue;
    fail({.op = cause.op,
          .where = cause.where,
          .what = text("strict mode: needs an implied ", name(step.kind), " over ",
                       axis_names(mesh, step.axes), " from ", to_string(mesh, from), " to ",
                       to_string(mesh, to)),
          .remedy = "reshard the operand explicitly, or run in mode automatic"});
  }
}

// What the devices before did, so that equal meta shards become equal ones (comm/meta.h).
class Repeats {
 public:
  // The result of an earlier device with this local and these sizes of its result; undefined if none.
  at::Tensor find(const at::Tensor& local, const Shape& sizes) const {
    for (const auto& [source, result] : done_) {
      if (local.is_meta() && source.is_same(local) && result.sizes() == sizes) return result;
    }
    return {};
  }
  void add(const at::Tensor& local, const at::Tensor& result) {
    if (local.is_meta()) done_.emplace_back(local, result);
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> done_;
};

// Free steps happen on each device alone.
Shards run_free(const Mesh& mesh, const Shape& shape, const Step& step, const Shards& locals) {
  const auto& positions = Runtime::current().communicator().addressable(mesh);
  Shards results;
  results.reserve(locals.size());
  Repeats repeats;
  for (std::size_t i = 0; i < locals.size(); ++i) {
    const std::int64_t position = positions[i];
    if (step.kind == StepKind::mask) {
      // A mask changes no shape: meta shards stay what they are.
      if (locals[i].is_meta()) return locals;
      const bool keeps = mesh.group_rank(position, step.axes) == 0;
      results.push_back(keeps ? locals[i] : at::zeros_like(locals[i]));
      continue;
    }
    const Box before = shard_box(mesh, shape, step.before, position);
    const Box after = shard_box(mesh, shape, step.after, position);
    if (const at::Tensor known = repeats.find(locals[i], shape_of(after)); known.defined()) {
      results.push_back(known);
      continue;
    }
    if (step.kind == StepKind::pad) {
      at::Tensor padded = at::zeros(shape_of(after), locals[i].options());
      const auto dim = static_cast<std::size_t>(step.from_dim);
      padded.narrow(step.from_dim, before[dim].begin - after[dim].begin, before[dim].size())
          .copy_(locals[i]);
      repeats.add(locals[i], padded);
      results.push_back(padded);
      continue;
    }
    at::Tensor piece = locals[i];
    for (std::size_t dim = 0; dim < after.size(); ++dim) {
      if (after[dim] == before[dim]) continue;
      piece = piece.narrow(static_cast<std::int64_t>(dim), after[dim].begin - before[dim].begin,
                           after[dim].size());
    }
    repeats.add(locals[i], piece);
    results.push_back(piece);
  }
  return results;
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) { return a.is_alias_of(b); }

}  // namespace

const Plan& cached_plan(const Mesh& mesh, const Shape& shape, std::int64_t item_size,
                        const Layout& from, const Layout& to) {
  static thread_local std::vector<std::uint64_t> key;
  key.assign({static_cast<std::uint64_t>(item_size), shape.size(), from.unreduced.bits(),
              to.unreduced.bits()});
  for (const MeshAxis& axis : mesh.axes()) key.push_back(static_cast<std::uint64_t>(axis.size));
  for (const std::int64_t size : shape) key.push_back(static_cast<std::uint64_t>(size));
  for (const AxisList& axes : from.dims) key.push_back(axes.packed());
  for (const AxisList& axes : to.dims) key.push_back(axes.packed());
  auto& plans = Runtime::current().plans();
  auto found = plans.find(key);
  if (found == plans.end()) {
    found = plans.emplace(key, plan_redistribution(mesh, shape, item_size, from, to)).first;
  }
  return found->second;
}

namespace {

// Whether every device's part along the dim that is gathered has one size.
bool is_even(const Mesh& mesh, const Shape& shape, const Step& step) {
  const auto dim = static_cast<std::size_t>(step.from_dim);
  return shape[dim] % mesh.shards(step.before.dims[dim]) == 0;
}

}  // namespace

Request request_of(const Mesh& mesh, const Shape& shape, const Step& step) {
  Request request{.kind = collective_of(step.kind), .mesh = mesh, .axes = step.axes};
  switch (request.kind) {
    case Collective::all_gather:
      request.dim = step.from_dim;
      request.even = is_even(mesh, shape, step);
      break;
    case Collective::all_to_all:
      request.dim = step.to_dim;
      request.concat_dim = step.from_dim;
      request.even = is_even(mesh, shape, step);
      break;
    case Collective::permute:
      request.shape = shape;
      request.from = step.before;
      request.to = step.after;
      break;
    default:
      request.dim = step.to_dim;
  }
  return request;
}

std::int64_t record_collective(const Request& request, const Weight& weight, const Cause& cause) {
  Origin origin = cause.origin;
  if (origin == Origin::implied && !is_surprise(request.kind, origin)) origin = Origin::algorithm;
  return Runtime::current().ledger().record({.kind = request.kind,
                                             .axes = axis_names(request.mesh, request.axes),
                                             .bytes = weight.bytes,
                                             .tensors = weight.tensors,
                                             .op = cause.op,
                                             .scope = named_scope::path(),
                                             .origin = origin});
}

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Request asked_by(Request request, const Cause& cause) {
  request.op = cause.op;
  request.scope = named_scope::path();
  return request;
}

// A communicator knows no account: what it made is the devices'.
void adopt(const Mesh& mesh, const Shards& results) {
  MemoryAccount* account = MemoryAccount::active();
  if (account == nullptr) return;
  for (std::size_t d = 0; d < results.size(); ++d)
    account->adopt(results[d], device_number(mesh, d));
}

// 0 where nothing is traced.
std::int64_t trace_begin(const Request& request, const Weight& weight, const Cause& cause) {
  Trace* trace = Trace::active();
  if (trace == nullptr) return 0;
  return trace->collective_begin(text(name(request.kind), " ", cause.op),
                                 axis_names(request.mesh, request.axes), weight.bytes,
                                 weight.tensors, named_scope::path());
}

void trace_end(std::int64_t id, Clock::time_point waited_from) {
  Trace* trace = Trace::active();
  if (trace == nullptr) return;
  const auto now = Clock::now();
  trace->waited(id, waited_from, now);
  trace->collective_end(id, now);
}

}  // namespace

Shards run_collective(Request request, const Shards& shards, const Weight& weight,
                      const Cause& cause) {
  Runtime& runtime = Runtime::current();
  const std::int64_t entry = record_collective(request, weight, cause);
  const std::int64_t traced = trace_begin(request, weight, cause);
  const auto begin = Clock::now();
  Pending pending = runtime.communicator().run(asked_by(request, cause), shards);
  Shards results = pending.wait();
  adopt(request.mesh, results);
  runtime.ledger().finish(entry, pending.wire_bytes(), seconds_since(begin));
  trace_end(traced, begin);
  return results;
}

Started::Started(Request request, const Shards& shards, const Weight& weight, const Cause& cause)
    : mesh_(request.mesh),
      entry_(record_collective(request, weight, cause)),
      traced_(trace_begin(request, weight, cause)),
      pending_(Runtime::current().communicator().start(asked_by(request, cause), shards)) {
  if (pending_.done()) adopt(mesh_, pending_.wait());
}

const Shards& Started::wait() {
  const auto begin = Clock::now();
  const Shards& results = pending_.wait();
  adopt(mesh_, results);
  Runtime::current().ledger().finish(entry_, pending_.wire_bytes(), seconds_since(begin));
  trace_end(traced_, begin);
  return results;
}

Shards redistribute(const Mesh& mesh, const Shape& shape, const Layout& from, const Layout& to,
                    const Shards& locals, const Cause& cause, bool own) {
  Shards results = locals;
  if (from != to) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto item_size = static_cast<std::int64_t>(locals.front().element_size());
    const Plan& plan = cached_plan(mesh, shape, item_size, from, to);
    check_mode(mesh, from, to, plan, cause);
    for (const Step& step : plan.steps) {
      results = is_collective(step.kind) ? run_collective(request_of(mesh, shape, step), results,
                                                          {.bytes = step.bytes}, cause)
                                         : run_free(mesh, shape, step, results);
    }
  }
  if (own) {
    at::AutoDispatchBelowADInplaceOrView below;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (shares_memory(results[i], locals[i])) {
        results[i] = results[i].clone(from == to ? at::MemoryFormat::Preserve
                                                 : at::MemoryFormat::Contiguous);
      }
    }
    if (is_meta(results)) share_equal(results);
  }
  return results;
}

Shards redistribute(ShardedView& view, const Shape& shape, const Layout& to, const Cause& cause,
                    bool own) {
  const Layout from = view.layout();
  if (from.unreduced.empty() || to.unreduced == from.unreduced) {
    return redistribute(view.mesh(), shape, from, to, view.locals(), cause, own);
  }
  const std::uint64_t version = view.allocation()->version;
  if (view.reduced && view.reduced->version == version &&
      view.reduced->layout.unreduced == to.unreduced) {
    return redistribute(view.mesh(), shape, view.reduced->layout, to, view.reduced->locals, cause,
                        own);
  }
  if (to.dims == from.dims) {
    auto reduced = std::make_shared<ShardedView::Reduced>();
    reduced->version = version;
    reduced->layout = to;
    reduced->locals = redistribute(view.mesh(), shape, from, to, view.locals(), cause);
    view.reduced = reduced;
    return redistribute(view.mesh(), shape, to, to, reduced->locals, cause, own);
  }
  return redistribute(view.mesh(), shape, from, to, view.locals(), cause, own);
}

Shards place(const at::Tensor& plain, const Mesh& mesh, const Layout& to, bool meta) {
  const Shape shape = plain.sizes().vec();
  const Shards locals(Runtime::current().communicator().addressable(mesh).size(),
                      meta ? without_values(plain) : plain);
  return redistribute(mesh, shape, Layout::replicated(plain.dim()), to, locals, {});
}

}  // namespace meshtorch
