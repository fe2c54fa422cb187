// SPDX-License-Identifier: Apache-2.0
//
// Distributions made of the uniform and normal numbers of random.cpp, and so by global element too.
#include <ATen/ATen.h>

#include <cmath>

#include <meshtorch/base/error.h>
#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/decision.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/meta.h>

namespace meshtorch {
namespace {

// An op that fills its first operand.
void add_in_place(Dispatch& dispatch, const char* op, void (*fill)(at::Tensor&, const Frame&)) {
  dispatch.add_override(op, [fill](Frame& frame, torch::jit::Stack& stack) {
    at::Tensor self = frame.tensors[0];
    fill(self, frame);
    stack.erase(stack.end() - static_cast<std::ptrdiff_t>(frame.info.arguments.size()),
                stack.end());
    stack.emplace_back(std::move(self));
  });
}

void add(Dispatch& dispatch, const char* op, at::Tensor (*make)(const Frame&)) {
  dispatch.add_override(op, [make](Frame& frame, torch::jit::Stack& stack) {
    at::Tensor result = make(frame);
    stack.erase(stack.end() - static_cast<std::ptrdiff_t>(frame.info.arguments.size()),
                stack.end());
    stack.emplace_back(std::move(result));
  });
}

double number(const Frame& frame, std::size_t argument) {
  return frame.arguments[argument].toDouble();
}

// By the inverse of the distribution function, of numbers in (0, 1].
at::Tensor positive_uniform(const at::Tensor& like) {
  return at::empty_like(like, like.options().dtype(at::kDouble)).uniform_().neg_().add_(1);
}

void cauchy(at::Tensor& self, const Frame& frame) {
  const double median = number(frame, 1), sigma = number(frame, 2);
  if (!(sigma > 0)) fail({frame.info.name, "sigma", text("got ", sigma), "give a positive number"});
  self.copy_(positive_uniform(self).sub_(0.5).mul_(M_PI).tan_().mul_(sigma).add_(median));
}

void log_normal(at::Tensor& self, const Frame& frame) {
  const double mean = number(frame, 1), std = number(frame, 2);
  if (!(std > 0)) fail({frame.info.name, "std", text("got ", std), "give a positive number"});
  self.normal_(mean, std).exp_();
}

// The number of trials up to the first success.
void geometric(at::Tensor& self, const Frame& frame) {
  const double p = number(frame, 1);
  if (!(p > 0 && p < 1)) fail({frame.info.name, "p", text("got ", p), "give one in (0, 1)"});
  self.copy_(positive_uniform(self).log_().div_(std::log1p(-p)).ceil_().clamp_min_(1));
}

at::Tensor scaled_normal(const at::Tensor& like, const at::Tensor& std, const at::Tensor& mean) {
  at::Tensor result = at::empty_like(like).normal_();
  if (std.defined()) result = result.mul_(std);
  return mean.defined() ? result.add_(mean) : result;
}

void check_deviation(const Frame& frame, double std) {
  if (std < 0) fail({frame.info.name, "std", text("got ", std), "give no negative number"});
}

// Without replacement the largest of p over exponential numbers win, as in libtorch; with it, the places
// of uniform numbers in the running sum of p.
at::Tensor multinomial(const Frame& frame) {
  const at::Tensor& weights = frame.tensors[0];
  const std::int64_t count = frame.arguments[1].toInt();
  const bool replacement = frame.arguments[2].toBool();
  const std::int64_t categories = weights.dim() > 0 ? weights.size(-1) : 0;
  if (weights.dim() < 1 || weights.dim() > 2)
    fail(
        {frame.info.name, "self", text("got rank ", weights.dim()), "give weights of rank 1 or 2"});
  if (count < 1 || (!replacement && count > categories)) {
    fail({frame.info.name, "num_samples", text("got ", count, " of ", categories, " categories"),
          "draw at least one, and no more than there are without replacement"});
  }
  if (!item_or(weights.isfinite().logical_and_(weights.ge(0)).all(), true).toBool() ||
      item_or(weights.sum(-1).le(0).any(), false).toBool()) {
    fail({frame.info.name, "self", "has weights that are negative, not finite or all zero",
          "give probabilities"});
  }
  if (!replacement) {
    const at::Tensor race = weights.div(at::empty_like(weights).exponential_());
    return count == 1 ? race.argmax(-1, true) : std::get<1>(race.topk(count, -1));
  }
  const at::Tensor sums = weights.to(at::kDouble).cumsum(-1);
  auto shape = weights.sizes().vec();
  shape.back() = count;
  const at::Tensor total = sums.narrow(-1, categories - 1, 1);
  const at::Tensor places =
      total.expand(shape).mul(positive_uniform(total.expand(shape).contiguous()));
  return at::searchsorted(sums, places.contiguous());
}

}  // namespace

void install_distributions(Dispatch& dispatch) {
  add_in_place(dispatch, "aten::cauchy_", cauchy);
  add_in_place(dispatch, "aten::log_normal_", log_normal);
  add_in_place(dispatch, "aten::geometric_", geometric);
  add(dispatch, "aten::normal.Tensor_Tensor", [](const Frame& frame) {
    const at::Tensor shape = frame.tensors[0] + frame.tensors[1];
    return scaled_normal(shape, frame.tensors[1], frame.tensors[0]);
  });
  add(dispatch, "aten::normal.Tensor_float", [](const Frame& frame) {
    check_deviation(frame, number(frame, 1));
    return at::empty_like(frame.tensors[0]).normal_(0, number(frame, 1)).add_(frame.tensors[0]);
  });
  add(dispatch, "aten::normal.float_Tensor", [](const Frame& frame) {
    const at::Tensor& std = frame.tensors[0];
    return at::empty_like(std).normal_().mul_(std).add_(number(frame, 0));
  });
  add(dispatch, "aten::multinomial", multinomial);
}

}  // namespace meshtorch
