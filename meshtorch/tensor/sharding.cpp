// SPDX-License-Identifier: Apache-2.0
#include <meshtorch/tensor/sharding.h>

#include <torch/torch.h>

#include <meshtorch/base/error.h>
#include <meshtorch/comm/combine.h>
#include <meshtorch/comm/distributed/digest.h>
#include <meshtorch/comm/meta.h>
#include <meshtorch/tensor/meta.h>
#include <meshtorch/tensor/redistribute.h>
#include <meshtorch/tensor/runtime.h>

namespace meshtorch {
namespace {

const ShardedView& require_view(const char* op, const at::Tensor& x) {
  const ShardedView* view = sharded_view(x);
  if (view == nullptr) {
    fail({.op = op,
          .where = "x",
          .what = x.defined() ? "is a plain tensor" : "is undefined, expected a sharded tensor",
          .remedy = "device_put it onto a mesh first"});
  }
  return *view;
}

at::Tensor placed(const Mesh& mesh, const Shape& shape, const Layout& layout, Shards locals) {
  at::Tensor result = wrap(mesh, shape, layout, std::move(locals));
  sharded_view(result)->allocation()->placed = true;
  return result;
}

// The three moves, without autograd.
at::Tensor put(const at::Tensor& plain, const Mesh& mesh, const Layout& layout) {
  at::AutoDispatchBelowADInplaceOrView below;
  const bool meta = Runtime::current().options().meta || plain.is_meta();
  const at::Tensor source = meta ? without_values(plain) : plain.detach();
  Shards locals = place(source, mesh, layout);
  for (at::Tensor& local : locals) {
    const bool temporary = !local.is_alias_of(source);
    if (!temporary) local = local.clone(at::MemoryFormat::Contiguous);
  }
  if (meta) share_equal(locals);
  return placed(mesh, shape_of(plain), layout, std::move(locals));
}

at::Tensor move(const at::Tensor& x, const Layout& layout, const char* op) {
  ShardedView& view = *sharded_view(x);
  return placed(view.mesh(), shape_of(x), layout,
                redistribute(view, shape_of(x), layout,
                             {.op = op, .origin = Origin::asked, .where = ""}, true));
}

at::Tensor gather(const at::Tensor& x) {
  ShardedView& view = *sharded_view(x);
  return redistribute(view, shape_of(x), Layout::replicated(x.dim()),
                      {.op = "full", .origin = Origin::asked, .where = ""}, true)
      .front();
}

// A gradient goes back to its source's dims; what is unreduced stays so where the source has no shard
// over that axis, and is reduced or scattered otherwise.
Layout gradient_layout(const Layout& source, const at::Tensor& gradient) {
  Layout layout = source;
  const ShardedView* view = sharded_view(gradient);
  layout.unreduced = view ? view->unreduced() - source.sharded() : AxisSet{};
  return layout;
}

at::Tensor to_layout(const at::Tensor& gradient, const Mesh& mesh, const Layout& layout) {
  const ShardedView* view = sharded_view(gradient);
  if (view == nullptr) return put(gradient, mesh, layout);
  if (view->layout() == layout) return gradient;
  at::Tensor moved = move(gradient, layout, "reshard.backward");
  sharded_view(moved)->allocation()->placed = false;  // nobody chose it: accumulation may change it
  return moved;
}

struct Put : torch::autograd::Function<Put> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Mesh& mesh, const Layout& layout) {
    context->saved_data["meta"] = x.is_meta();
    return put(x, mesh, layout);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (is_meta(gradients[0]) && !context->saved_data["meta"].toBool()) {
      fail_without_values("device_put.backward", "x",
                          "a plain tensor that has values would get a gradient's");
    }
    return {full(gradients[0]), {}, {}};
  }
};

struct Reshard : torch::autograd::Function<Reshard> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Layout& layout) {
    const ShardedView& view = *sharded_view(x);
    context->saved_data["spec"] = spec_of(view.mesh(), view.layout()).to_string();
    return move(x, layout, "reshard");
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor& gradient = gradients[0];
    const ShardedView* view = sharded_view(gradient);
    if (view == nullptr) return {gradient, {}};
    const Layout source =
        resolve(view->mesh(), PartitionSpec::parse(context->saved_data["spec"].toStringRef()),
                gradient.dim());
    const Layout layout = gradient_layout(source, gradient);
    if (gradient.requires_grad()) return {reshard(gradient, spec_of(view->mesh(), layout)), {}};
    return {to_layout(gradient, view->mesh(), layout), {}};
  }
};

struct Full : torch::autograd::Function<Full> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const ShardedView& view = *sharded_view(x);
    context->saved_data["spec"] = spec_of(view.mesh(), {view.dims(), {}}).to_string();
    mesh_slot(context) = view.mesh();
    return gather(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {device_put(
        gradients[0],
        {mesh_slot(context), PartitionSpec::parse(context->saved_data["spec"].toStringRef())})};
  }
  // A Mesh is no IValue: it travels in a capsule.
  struct Holder : torch::CustomClassHolder {
    Mesh mesh;
  };
  static Mesh& mesh_slot(torch::autograd::AutogradContext* context) {
    auto& slot = context->saved_data["mesh"];
    if (slot.isNone()) slot = c10::IValue::make_capsule(c10::make_intrusive<Holder>());
    return c10::static_intrusive_pointer_cast<Holder>(slot.toCapsule())->mesh;
  }
};

// What device_put may be given, resolved.
Layout checked(const NamedSharding& sharding, std::int64_t rank) {
  if (!sharding.mesh.defined()) {
    fail({.op = "device_put",
          .where = "sharding",
          .what = "has no mesh",
          .remedy = "make one with Runtime::make_mesh"});
  }
  Runtime& runtime = Runtime::current();
  if (sharding.mesh.size() > runtime.communicator().devices()) {
    fail({.op = "device_put",
          .where = "sharding",
          .what = text("mesh ", sharding.mesh, " needs ", sharding.mesh.size(),
                       " devices, this runtime has ", runtime.communicator().devices()),
          .remedy = "make the mesh with Runtime::make_mesh"});
  }
  if (runtime.communicator().addressable(sharding.mesh).empty()) {
    fail({.op = "device_put",
          .where = "sharding",
          .what = text("mesh ", sharding.mesh, " has no device of process ", runtime.process()),
          .remedy = "make the mesh with Runtime::make_mesh, which gives every process a part"});
  }
  return resolve(sharding.mesh, sharding.spec, rank, "device_put", "x");
}

// What this process's devices hold together.
Box box_held(const NamedSharding& sharding, const Layout& layout, const Shape& global_shape) {
  Box box;
  std::vector<Box> held;  // each once
  for (const std::int64_t position : Runtime::current().communicator().addressable(sharding.mesh)) {
    Box piece = shard_box(sharding.mesh, global_shape, layout, position);
    if (volume(piece) == 0 && !box.empty()) continue;
    if (std::find(held.begin(), held.end(), piece) != held.end()) continue;
    if (box.empty() || volume(box) == 0) box = piece;
    for (std::size_t dim = 0; dim < piece.size(); ++dim) {
      box[dim].begin = std::min(box[dim].begin, piece[dim].begin);
      box[dim].end = std::max(box[dim].end, piece[dim].end);
    }
    held.push_back(std::move(piece));
  }
  std::int64_t sum = 0;
  for (const Box& piece : held) sum += volume(piece);
  if (sum != volume(box)) {
    fail({.op = "process_box",
          .where = "sharding",
          .what =
              text("the devices of process ", Runtime::current().process(), " hold ", sum,
                   " elements that do not fill a box, by ", sharding.spec, " on ", sharding.mesh),
          .remedy = "give device_put the whole tensor"});
  }
  return box;
}

// Tells the other processes what this one places.
void record_input(const at::Tensor& plain, const NamedSharding& sharding) {
  Runtime& runtime = Runtime::current();
  if (runtime.processes() == 1 || plain.is_meta()) return;
  const bool check = runtime.options().check_inputs && plain.layout() == at::kStrided;
  const std::uint64_t sum = check ? checksum(plain) : 0;
  runtime.communicator().record(
      text("device_put of ", plain.scalar_type(), plain.sizes(), " to ", sharding.spec, " on ",
           sharding.mesh, check ? text(", checksum ", std::hex, sum) : ""),
      sum);
}

// Where several processes hold the same elements, that they hold the same values: one gather of
// checksums.
void check_replicas(const Mesh& mesh, const Shape& shape, const Layout& layout,
                    const Shards& locals) {
  AxisList copies;
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    if (mesh.axis_size(axis) > 1 && !layout.sharded().contains(axis)) copies.push_back(axis);
  }
  if (copies.empty()) return;
  Shards sums;
  for (const at::Tensor& local : locals)
    sums.push_back(at::full({1}, static_cast<std::int64_t>(checksum(local)), at::kLong));
  Request request = Request::all_gather(mesh, copies, 0);
  request.even = true;
  const std::int64_t bytes = (mesh.shards(copies) - 1) * 8;
  const Shards all = run_collective(std::move(request), sums, {.bytes = bytes},
                                    {.op = "device_put", .origin = Origin::asked, .where = ""});
  for (const at::Tensor& sum : all) {
    if (at::equal(sum, sum.select(0, 0).expand_as(sum))) continue;
    fail({.op = "device_put",
          .where = "part",
          .what = text("processes that hold the same elements of [", join(shape),
                       "] gave different values"),
          .remedy = "read the same rows on each"});
  }
}

bool differentiable(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

}  // namespace

at::Tensor device_put(const at::Tensor& x, const NamedSharding& sharding) {
  if (!x.defined()) {
    fail({.op = "device_put",
          .where = "x",
          .what = "is undefined, expected a tensor",
          .remedy = "give it a value first"});
  }
  const Layout layout = checked(sharding, x.dim());
  if (const ShardedView* view = sharded_view(x)) {
    if (view->mesh() == sharding.mesh) return reshard(x, sharding.spec);
    return device_put(full(x), sharding);
  }
  record_input(x, sharding);
  return differentiable(x) ? Put::apply(x, sharding.mesh, layout) : put(x, sharding.mesh, layout);
}

std::vector<at::Tensor> device_put(const std::vector<at::Tensor>& xs,
                                   const NamedSharding& sharding) {
  std::vector<at::Tensor> results;
  for (const at::Tensor& x : xs) results.push_back(device_put(x, sharding));
  return results;
}

Box process_box(const NamedSharding& sharding, const Shape& global_shape) {
  return box_held(sharding, checked(sharding, static_cast<std::int64_t>(global_shape.size())),
                  global_shape);
}

at::Tensor device_put(const ProcessLocal& part, const NamedSharding& sharding) {
  const Shape& shape = part.global_shape;
  const Layout layout = checked(sharding, static_cast<std::int64_t>(shape.size()));
  const Box box = box_held(sharding, layout, shape);
  if (!layout.unreduced.empty()) {
    fail({.op = "device_put",
          .where = "sharding",
          .what = text(sharding.spec, " is unreduced, a part is a value"),
          .remedy = "leave unreduced out"});
  }
  if (!part.data.defined() || shape_of(part.data) != shape_of(box)) {
    fail({.op = "device_put",
          .where = "part",
          .what = text("has shape [",
                       part.data.defined() ? join(shape_of(part.data)) : std::string("undefined"),
                       "], expected [", join(shape_of(box)), "], which process ",
                       Runtime::current().process(), " holds of [", join(shape), "] by ",
                       sharding.spec),
          .remedy = "give what process_box says"});
  }
  const Mesh& mesh = sharding.mesh;
  at::AutoDispatchBelowADInplaceOrView below;
  Runtime& runtime = Runtime::current();
  const bool meta = runtime.options().meta || part.data.is_meta();
  const at::Tensor source = meta ? without_values(part.data) : part.data.detach();
  Shards locals;
  for (const std::int64_t position : runtime.communicator().addressable(mesh)) {
    const Box piece = shard_box(mesh, shape, layout, position);
    locals.push_back(volume(piece) == 0 ? at::empty(shape_of(piece), source.options())
                                        : fresh(narrow(source, piece, box)));
  }
  if (meta) share_equal(locals);
  if (runtime.processes() > 1 && !meta) {
    runtime.communicator().record(text("device_put of parts of ", part.data.scalar_type(), "[",
                                       join(shape), "] to ", sharding.spec, " on ", mesh),
                                  0);
    if (runtime.options().check_inputs) check_replicas(mesh, shape, layout, locals);
  }
  return placed(mesh, shape, layout, std::move(locals));
}

at::Tensor reshard(const at::Tensor& x, const PartitionSpec& spec) {
  const ShardedView& view = require_view("reshard", x);
  const Layout layout = resolve(view.mesh(), spec, x.dim(), "reshard", "x");
  if (differentiable(x)) return Reshard::apply(x, layout);
  return move(x, layout, "reshard");
}

at::Tensor replicate(const at::Tensor& x, const Mesh& mesh) { return device_put(x, {mesh, P()}); }

at::Tensor full(const at::Tensor& x) {
  if (sharded_view(x) == nullptr) return x;
  return differentiable(x) ? Full::apply(x) : gather(x);
}

std::string to_string(const at::Tensor& x) {
  std::ostringstream out;
  if (is_meta(x)) {
    out << "[ values unknown: " << x.scalar_type() << x.sizes() << " ]";
  } else {
    out << full(x.defined() ? x.detach() : x);
  }
  if (is_sharded(x)) out << "\n[ " << describe(x) << " ]";
  return std::move(out).str();
}

bool is_sharded(const at::Tensor& x) { return sharded_view(x) != nullptr; }

NamedSharding sharding_of(const at::Tensor& x) {
  const ShardedView& view = require_view("sharding_of", x);
  return {view.mesh(), spec_of(view.mesh(), at_rest(view).layout())};
}

std::vector<Shard> addressable_shards(const at::Tensor& x) {
  const ShardedView& view = at_rest(require_view("addressable_shards", x));
  const auto& positions = Runtime::current().communicator().addressable(view.mesh());
  std::vector<Shard> shards;
  for (std::size_t d = 0; d < positions.size(); ++d) {
    shards.push_back({.device = view.mesh().devices()[static_cast<std::size_t>(positions[d])],
                      .coordinates = view.mesh().coordinates(positions[d]),
                      .index = shard_box(view.mesh(), shape_of(x), view.layout(), positions[d]),
                      .data = view.locals()[d]});
  }
  return shards;
}

}  // namespace meshtorch
