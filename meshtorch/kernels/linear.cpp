// SPDX-License-Identifier: Apache-2.0
//
// Products with leading dims. libtorch folds the leading dims of a matmul into one before it multiplies,
// forward and backward, which a batch or a sequence that is sharded unevenly, or on two of those dims,
// does not survive: it would be gathered. Here a product keeps its dims, and so do its gradients, which
// are products again (so that they have gradients too) and one sum of outer products over all leading
// dims for a matrix that has none.
#include <torch/torch.h>

#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/matmul_native.h>

#include <meshtorch/kernels/kernels.h>
#include <meshtorch/tensor/constrain.h>
#include <meshtorch/tensor/dispatch.h>
#include <meshtorch/tensor/sharded.h>

namespace meshtorch {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor outer_sum(const at::Tensor& a, const at::Tensor& g);

// While it lives, products on this thread are those of a gradient: what a rule asks of the ops that consume
// a parameter (constrain.h) is not asked of them.
class gradient_scope {
 public:
  gradient_scope() { ++depth_; }
  ~gradient_scope() { --depth_; }
  gradient_scope(const gradient_scope&) = delete;
  gradient_scope& operator=(const gradient_scope&) = delete;
  static bool open() { return depth_ > 0; }

 private:
  inline static thread_local int depth_ = 0;
};

// All leading dims as one. Their product is told, not inferred: a device without columns has rows.
at::Tensor rows(const at::Tensor& x) {
  return x.reshape({c10::multiply_integers(x.sizes().slice(0, x.dim() - 1)), x.size(-1)});
}

KernelResult weight_gradient(KernelCall& call) {
  KernelResult results(3, Shards(call.devices()));
  for (std::size_t d = 0; d < call.devices(); ++d)
    results[1][d] = at::mm(rows(call.locals[1][d]).t(), rows(call.locals[0][d]));
  return results;
}

// On a mesh of one device an op runs as libtorch's own, which linear_backward has none of on a CPU; and
// there folding is free.
bool on_one_device(const at::Tensor& x) {
  const ShardedView* view = sharded_view(x);
  return view == nullptr || view->mesh().size() == 1;
}

// a (..., k) and g (..., o) to (o, k).
struct OuterSum : torch::autograd::Function<OuterSum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& a, const at::Tensor& g) {
    context->save_for_backward({a, g});
    return value(a, g);
  }

  static at::Tensor value(const at::Tensor& a, const at::Tensor& g) {
    at::AutoDispatchBelowADInplaceOrView below;
    if (on_one_device(a) && on_one_device(g)) return at::mm(rows(g).t(), rows(a));
    return std::get<1>(at::linear_backward(a, g, /*weight=*/{}, {false, true, false}));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const gradient_scope scope;
    const auto saved = context->get_saved_variables();
    const at::Tensor &a = saved[0], &g = saved[1], &out = gradients[0];
    return {context->needs_input_grad(0) ? at::matmul(g.conj(), out) : at::Tensor(),
            context->needs_input_grad(1) ? at::matmul(a.conj(), out.t()) : at::Tensor()};
  }
};

// Of two matrices with leading dims, or one of them without.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self,
                            const at::Tensor& other) {
    context->save_for_backward({self, other});
    const at::AutoGradMode training(true);  // what stores parameters asks, and libtorch turned it off
    return value(self, other);
  }

  static at::Tensor value(const at::Tensor& self, const at::Tensor& other) {
    at::AutoDispatchBelowADInplaceOrView below;
    return at::matmul(self, other);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const gradient_scope scope;
    const auto saved = context->get_saved_variables();
    const at::Tensor &self = saved[0], &other = saved[1], &out = gradients[0];
    variable_list results(2);
    if (context->needs_input_grad(0)) {
      results[0] = self.dim() == 2 ? outer_sum(at::adjoint(other), out.mT())
                                   : at::sum_to(at::matmul(out, at::adjoint(other)), self.sizes());
    }
    if (context->needs_input_grad(1)) {
      results[1] = other.dim() == 2 ? outer_sum(self.conj(), out).t()
                                    : at::sum_to(at::matmul(at::adjoint(self), out), other.sizes());
    }
    return results;
  }
};

bool differentiates(const at::Tensor& a, const at::Tensor& b) {
  return at::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad());
}

at::Tensor outer_sum(const at::Tensor& a, const at::Tensor& g) {
  return differentiates(a, g) ? OuterSum::apply(a, g) : OuterSum::value(a, g);
}

at::Tensor product(const at::Tensor& self, const at::Tensor& other) {
  // Without leading dims there is nothing to fold; what libtorch refuses, it refuses in its own words.
  const bool leading = (self.dim() > 2 && other.dim() > 0) || (other.dim() > 2 && self.dim() > 0);
  if (!leading) return at::native::matmul(self, other);
  if (self.dim() == 1) return product(self.unsqueeze(0), other).squeeze(-2);
  if (other.dim() == 1) return product(self, other.unsqueeze(1)).squeeze(-1);
  return differentiates(self, other) ? Product::apply(self, other) : Product::value(self, other);
}

bool constrained(const at::Tensor& self, const at::Tensor& other) {
  return (is_constrained(other) || is_constrained(self)) && !gradient_scope::open();
}

at::Tensor matmul(const at::Tensor& self, const at::Tensor& other) {
  if (!constrained(self, other)) return product(self, other);
  const bool right = is_constrained(other);
  const at::Tensor& parameter = right ? other : self;
  const at::Tensor x = constrained_input("linear", parameter, right ? self : other);
  return constrained_output("linear", parameter, right ? product(x, other) : product(self, x));
}

// What libtorch registers for all backends, which a kernel for one hides.
at::Tensor own_addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                     const at::Scalar& beta, const at::Scalar& alpha) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::addmm", "");
  torch::jit::Stack stack{self, a, b, beta, alpha};
  op.callBoxedForDispatchKey(c10::DispatchKey::Autograd, stack);
  return stack.front().toTensor();
}

// A linear layer on a matrix.
at::Tensor addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                 const at::Scalar& beta, const at::Scalar& alpha) {
  if (!constrained(a, b)) return own_addmm(self, a, b, beta, alpha);
  const at::Tensor sum = at::matmul(a, b);
  return at::add(alpha.equal(1) ? sum : sum.mul(alpha), self, beta);
}

// The bias is added afterwards, so that it is added once to a sum that is still to come.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  const bool biased = bias && bias->defined();
  if (input.dim() == 2 && biased) return at::addmm(*bias, input, weight.t());
  const at::Tensor product = at::matmul(input, weight.t());
  return biased ? product.add(*bias) : product;
}

}  // namespace

void install_linear(Dispatch& dispatch) {
  dispatch.add_kernel("aten::linear_backward", weight_gradient);
  dispatch.autograd_library().impl("matmul", TORCH_FN(matmul));
  dispatch.autograd_library().impl("addmm", TORCH_FN(addmm));
  dispatch.autograd_library().impl("linear", TORCH_FN(linear));
  dispatch.library().impl("linear", TORCH_FN(linear));
}

}  // namespace meshtorch
