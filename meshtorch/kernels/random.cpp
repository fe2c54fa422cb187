// SPDX-License-Identifier: Apache-2.0
//
// Random ops on sharded tensors: philox.h by global element, one draw of the runtime's counter an op.
#include <ATen/ATen.h>

#include <limits>

#include <meshtorch/kernels/random.h>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/kernels/philox.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/init_sharded_stream.h>
#include <meshtorch/tensor/runtime.h>
#include <meshtorch/tensor/write.h>

namespace meshtorch {
namespace {

using Fill =
    std::function<void(const at::Tensor& local, const Shape& shape, const Box& box, RandomKey key)>;

RandomKey next_key(Runtime& runtime) {
  auto& state = runtime.random();
  if (runtime.processes() > 1) runtime.communicator().record("a random draw", state.draws);
  return {.seed = state.seed, .op = state.draws++};
}

void finish(Frame& frame, torch::jit::Stack& stack, at::Tensor result) {
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(frame.info.arguments.size()), stack.end());
  stack.emplace_back(std::move(result));
}

// Overwrites self, in its layout. Over unreduced axes the numbers go to coordinate 0.
void fill_in_place(Frame& frame, torch::jit::Stack& stack, const Fill& fill) {
  const at::Tensor self = frame.tensors[0];
  ShardedView& view = *frame.views[0];
  check_writable(frame.info, "self", self);
  Runtime& runtime = Runtime::current();
  const RandomKey key = next_key(runtime);  // also where there is nothing to fill
  const Shape shape = self.sizes().vec();
  const AxisList unreduced = ordered(view.unreduced());
  const auto& positions = runtime.communicator().addressable(frame.mesh);
  for (std::size_t d = 0; d < positions.size() && !view.meta(); ++d) {
    if (!unreduced.empty() && frame.mesh.group_rank(positions[d], unreduced) != 0) {
      view.locals()[d].zero_();
    } else {
      fill(view.locals()[d], shape, shard_box(frame.mesh, shape, view.layout(), positions[d]), key);
    }
  }
  written(view);
  finish(frame, stack, self);
}

// While init_sharded makes a tree: libtorch's numbers for the whole tensor, from libtorch's generator.
template <class Draw>
bool drawn_as_dense(Frame& frame, torch::jit::Stack& stack, Draw draw) {
  if (init_stream_scope::chunk() == 0) return false;
  const at::Tensor self = frame.tensors[0];
  check_writable(frame.info, "self", self);
  Runtime& runtime = Runtime::current();
  if (runtime.processes() > 1)
    runtime.communicator().record("an initial draw", static_cast<std::uint64_t>(self.numel()));
  const c10::IValue& given = frame.arguments[3];
  draw(self, frame.arguments[1].toDouble(), frame.arguments[2].toDouble(),
       given.isNone() ? std::nullopt : std::optional(given.toGenerator()));
  written(*frame.views[0]);
  finish(frame, stack, self);
  return true;
}

double number(const Frame& frame, std::size_t argument) {
  return frame.arguments[argument].toDouble();
}

// random_: all values of the dtype that it can count to exactly, as libtorch documents it.
std::int64_t default_limit(c10::ScalarType type) {
  switch (type) {
    case at::kBool:
      return 2;
    case at::kByte:
      return 256;
    case at::kChar:
      return 128;
    case at::kShort:
      return 1 << 15;
    case at::kInt:
      return std::int64_t{1} << 31;
    case at::kLong:
      return std::numeric_limits<std::int64_t>::max();
    case at::kHalf:
      return (1 << 11) + 1;
    case at::kBFloat16:
      return (1 << 8) + 1;
    case at::kFloat:
      return (1 << 24) + 1;
    default:
      return (std::int64_t{1} << 53) + 1;
  }
}

at::Tensor like(const Frame& frame) { return at::empty_like(frame.tensors[0]); }

// The functional form of an op that draws in place, with the same arguments.
Dispatch::Override draw_into_fresh(const std::string& in_place, const std::string& overload) {
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(in_place.c_str(), overload.c_str());
  return [op](Frame& frame, torch::jit::Stack& stack) {
    stack[stack.size() - frame.info.arguments.size()] = like(frame);
    op.callBoxed(stack);
  };
}

void install_in_place(Dispatch& dispatch) {
  dispatch.add_override("aten::uniform_", [](Frame& frame, torch::jit::Stack& stack) {
    if (drawn_as_dense(frame, stack, draw_uniform)) return;
    const double from = number(frame, 1), to = number(frame, 2);
    fill_in_place(frame, stack,
                  [&](const auto& local, const auto& shape, const auto& box, RandomKey key) {
                    fill_uniform(local, shape, box, key, from, to);
                  });
  });
  dispatch.add_override("aten::normal_", [](Frame& frame, torch::jit::Stack& stack) {
    if (drawn_as_dense(frame, stack, draw_normal)) return;
    const double mean = number(frame, 1), std = number(frame, 2);
    fill_in_place(frame, stack,
                  [&](const auto& local, const auto& shape, const auto& box, RandomKey key) {
                    fill_normal(local, shape, box, key, mean, std);
                  });
  });
  dispatch.add_override("aten::bernoulli_.float", [](Frame& frame, torch::jit::Stack& stack) {
    const double p = number(frame, 1);
    fill_in_place(frame, stack,
                  [&](const auto& local, const auto& shape, const auto& box, RandomKey key) {
                    fill_bernoulli(local, shape, box, key, p);
                  });
  });
  for (const char* name : {"aten::random_", "aten::random_.to", "aten::random_.from"}) {
    dispatch.add_override(name, [](Frame& frame, torch::jit::Stack& stack) {
      const int from = frame.info.argument("from"), to = frame.info.argument("to");
      const std::int64_t low = from < 0 ? 0 : frame.arguments[from].toInt();
      const std::int64_t high = to < 0 || frame.arguments[to].isNone()
                                    ? default_limit(frame.tensors[0].scalar_type())
                                    : frame.arguments[to].toInt();
      fill_in_place(frame, stack,
                    [&](const auto& local, const auto& shape, const auto& box, RandomKey key) {
                      fill_integers(local, shape, box, key, low, high);
                    });
    });
  }
}

// The others are compositions of those.
void install_functional(Dispatch& dispatch) {
  dispatch.add_override("aten::bernoulli_.Tensor", [](Frame& frame, torch::jit::Stack& stack) {
    const at::Tensor self = frame.tensors[0];
    const at::Tensor p = frame.tensors[1];
    self.copy_(at::empty_like(self, self.options().dtype(at::kFloat)).uniform_().lt(p));
    finish(frame, stack, self);
  });
  dispatch.add_override("aten::bernoulli", [](Frame& frame, torch::jit::Stack& stack) {
    finish(frame, stack,
           like(frame).uniform_().lt(frame.tensors[0]).to(frame.tensors[0].scalar_type()));
  });
  dispatch.add_override("aten::bernoulli.p", [](Frame& frame, torch::jit::Stack& stack) {
    finish(frame, stack, like(frame).bernoulli_(number(frame, 1)));
  });
  for (const auto& [name, overload] : {std::pair{"uniform", ""},
                                       {"exponential", ""},
                                       {"random", ""},
                                       {"random", "from"},
                                       {"random", "to"},
                                       {"bernoulli", "Tensor"}}) {
    dispatch.add_override(c10::toString(c10::OperatorName(std::string("aten::") + name, overload)),
                          draw_into_fresh(std::string("aten::") + name + "_", overload));
  }
  dispatch.add_override("aten::normal_functional", draw_into_fresh("aten::normal_", ""));
  auto typed_like = [](const Frame& frame) {
    const c10::IValue& dtype = frame.arguments[frame.info.argument("dtype")];
    at::TensorOptions options = frame.tensors[0].options();
    if (!dtype.isNone()) options = options.dtype(dtype.toScalarType());
    return at::empty_like(frame.tensors[0], options);
  };
  dispatch.add_override("aten::rand_like", [typed_like](Frame& frame, torch::jit::Stack& stack) {
    finish(frame, stack, typed_like(frame).uniform_());
  });
  dispatch.add_override("aten::randn_like", [typed_like](Frame& frame, torch::jit::Stack& stack) {
    finish(frame, stack, typed_like(frame).normal_());
  });
  for (const char* name : {"aten::randint_like", "aten::randint_like.low_dtype"}) {
    dispatch.add_override(name, [typed_like](Frame& frame, torch::jit::Stack& stack) {
      const int low = frame.info.argument("low"), high = frame.info.argument("high");
      finish(frame, stack,
             typed_like(frame).random_(low < 0 ? 0 : frame.arguments[low].toInt(),
                                       frame.arguments[high].toInt()));
    });
  }
  dispatch.add_override("aten::exponential_", [](Frame& frame, torch::jit::Stack& stack) {
    const at::Tensor self = frame.tensors[0];
    self.uniform_().neg_().log1p_().mul_(-1 / number(frame, 1));
    finish(frame, stack, self);
  });
  dispatch.add_override("aten::native_dropout", [](Frame& frame, torch::jit::Stack& stack) {
    const at::Tensor input = frame.tensors[0];
    const double p = number(frame, 1);
    const bool train = frame.arguments[2].isNone() || frame.arguments[2].toBool();
    at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
    at::Tensor result;
    if (train) {
      mask.bernoulli_(1 - p);
      result = input.mul(mask).mul_(p < 1 ? 1 / (1 - p) : 0);
    } else {
      mask.fill_(true);
      result = input.clone();
    }
    stack.erase(stack.end() - static_cast<std::ptrdiff_t>(frame.info.arguments.size()),
                stack.end());
    stack.emplace_back(std::move(result));
    stack.emplace_back(std::move(mask));
  });
}

}  // namespace

at::Tensor randperm(std::int64_t n) { return randperm(n, next_key(Runtime::current())); }

void install_random(Dispatch& dispatch) {
  install_in_place(dispatch);
  install_functional(dispatch);
}

}  // namespace meshtorch
