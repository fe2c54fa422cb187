// SPDX-License-Identifier: Apache-2.0
//
// Corners of libtorch that programs use: double backward, hooks, inference mode, custom autograd
// functions, indexing, einsum, fft, linalg - on sharded tensors as on dense ones.
#include "compare.h"

namespace mt = meshtorch;
using mt::P;
using mt::whole;
namespace idx = torch::indexing;

namespace {

class Libtorch : public testing::TestWithParam<P> {
 protected:
  at::Tensor put(const at::Tensor& x) {
    P spec = GetParam();
    return mt::device_put(x, {mesh, x.dim() < 2 && spec.dims().size() > 1 ? P("dp") : spec});
  }

  // The program on dense and on sharded inputs: values, and gradients of the inputs.
  void check(const std::string& what, std::vector<at::Tensor> values,
             const std::function<at::Tensor(const std::vector<at::Tensor>&)>& program,
             double atol = 1e-5) {
    SCOPED_TRACE(what);
    std::vector<at::Tensor> dense, sharded;
    for (const auto& value : values) {
      const bool differentiable = value.is_floating_point() || value.is_complex();
      dense.push_back(value.clone().requires_grad_(differentiable));
      sharded.push_back(put(value).requires_grad_(differentiable));
    }
    const auto expected = program(dense);
    const auto got = program(sharded);
    mt::expect_close(got, expected, "value", 1e-4, atol);
    if (!expected.requires_grad()) return;
    torch::manual_seed(1);
    const auto weights = torch::randn_like(expected.detach());
    torch::real(expected * weights).sum().backward();
    torch::real(got * weights).sum().backward();
    for (std::size_t i = 0; i < values.size(); ++i)
      mt::expect_close(sharded[i].grad(), dense[i].grad(), "gradient", 1e-4, atol);
  }

  mt::Runtime runtime{{.devices = 8, .warn_fallback = false}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
};

using Tensors = std::vector<at::Tensor>;

TEST_P(Libtorch, DoubleBackward) {
  const auto gradient_penalty = [](const Tensors& x) {
    auto y = (x[0].matmul(x[1]).tanh() * x[0].exp().sum(1, true)).sum();
    auto gradients = torch::autograd::grad({y}, {x[0], x[1]}, {}, true, true);
    return gradients[0].square().sum() + gradients[1].norm();
  };
  check("matmul", {torch::randn({5, 3}), torch::randn({3, 4})}, gradient_penalty, 1e-3);
  check(
      "linear layer norm", {torch::randn({5, 4}), torch::randn({3, 4})},
      [](const Tensors& x) {
        auto y = torch::layer_norm(torch::gelu(torch::linear(x[0], x[1])), {3}).pow(3).sum();
        return torch::autograd::grad({y}, {x[0]}, {}, true, true)[0].square().sum();
      },
      1e-3);
  check("cross entropy", {torch::randn({4, 6})}, [](const Tensors& x) {
    auto y = torch::nn::functional::cross_entropy(x[0], torch::tensor({1, 0, 5, 2}));
    return torch::autograd::grad({y}, {x[0]}, {}, true, true)[0].square().sum();
  });
  check(
      "through full and reshard", {torch::randn({4, 6})},
      [](const Tensors& x) {
        const bool sharded = mt::is_sharded(x[0]);
        auto moved =
            sharded ? mt::device_put(mt::full(mt::reshard(x[0], P("tp"))), mt::sharding_of(x[0]))
                    : x[0] * 1;
        auto y = moved.pow(3).sum();
        return torch::autograd::grad({y}, {x[0]}, {}, true, true)[0].square().sum();
      },
      1e-3);
}

TEST_P(Libtorch, Hooks) {
  auto x = put(torch::ones({4, 4})).requires_grad_();
  int calls = 0;
  x.register_hook([&](at::Tensor gradient) {
    ++calls;
    return gradient * 2;
  });
  auto y = x * 3;
  y.retain_grad();
  y.sum().backward();
  EXPECT_EQ(calls, 1);
  mt::expect_close(x.grad(), torch::full({4, 4}, 6.0), "gradient");
  mt::expect_close(y.grad(), torch::ones({4, 4}), "retained");
}

TEST_P(Libtorch, InferenceMode) {
  const auto value = torch::randn({4, 4});
  const auto outside = put(value);
  torch::InferenceMode guard;
  const auto inside = put(value);
  mt::expect_close(inside.mm(outside).relu(), value.mm(value).relu(), "value");
  auto y = inside * 2;
  y.add_(1).t_();
  y.clamp_(0, 1);
  const auto expected = (value * 2 + 1).t().clamp(0, 1);
  mt::expect_close(y, expected, "in place");
  EXPECT_TRUE(mt::full(y).is_inference());
}

struct Cube : torch::autograd::Function<Cube> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto x = context->get_saved_variables()[0];
    return {3 * x * x * gradients[0]};
  }
};

TEST_P(Libtorch, CustomFunction) {
  check(
      "cube", {torch::randn({4, 5})}, [](const Tensors& x) { return Cube::apply(x[0]).sum(0); },
      1e-4);
}

TEST_P(Libtorch, VersionCounter) {
  auto x = put(torch::ones({4, 4})).requires_grad_();
  auto y = x * 2;
  auto z = y * y;
  y.add_(1);
  EXPECT_THROW(z.sum().backward(), c10::Error);
}

TEST_P(Libtorch, Indexing) {
  const auto value = torch::randn({6, 5});
  const auto mask = value > 0;
  const auto rows = torch::tensor({3, 0, 3, 5});
  check("mask", {value}, [&](const Tensors& x) { return x[0].index({mask}) * 2; });
  check("computed mask", {value}, [](const Tensors& x) { return x[0].index({x[0] > 0.1}); });
  check("rows", {value}, [&](const Tensors& x) { return x[0].index({rows}); });
  check("rows and columns", {value}, [&](const Tensors& x) {
    return x[0].index({rows, torch::tensor({0, 1, 1, 4})});
  });
  check("columns", {value}, [&](const Tensors& x) {
    return x[0].index({idx::Slice(), torch::tensor({4, 0})});
  });
  check("slices", {value}, [](const Tensors& x) {
    return x[0].index({idx::Slice(1, -1, 2), idx::Slice(2)});
  });
  check("ellipsis and none", {value}, [](const Tensors& x) {
    return x[0].index({idx::Ellipsis, idx::None, 2});
  });
  check("nonzero", {value}, [](const Tensors& x) { return torch::nonzero(x[0] > 0); });
  check("masked_select", {value}, [&](const Tensors& x) { return x[0].masked_select(mask); });
  check("take", {value}, [](const Tensors& x) { return x[0].take(torch::tensor({0, 29, 7})); });
  check("gather", {value},
        [](const Tensors& x) { return x[0].gather(1, x[0].argsort(std::int64_t{1})); });
  check("scatter_add", {value}, [](const Tensors& x) {
    return x[0].scatter_add(0, torch::zeros({6, 5}, torch::kLong), x[0] * 2);
  });
  check("index_select", {value}, [&](const Tensors& x) { return x[0].index_select(0, rows); });
  check("index_add", {value},
        [&](const Tensors& x) { return x[0].index_add(0, rows, x[0].slice(0, 0, 4)); });
  check("where", {value}, [&](const Tensors& x) { return torch::where(mask, x[0], x[0] * 2); });
  check("assign", {value}, [&](const Tensors& x) {
    auto y = x[0] * 1;
    y.index_put_({rows.slice(0, 0, 2)}, 7.0);
    return y;
  });
  check("unbind and stack", {value}, [](const Tensors& x) { return torch::stack(x[0].unbind(1)); });
  check("chunk and cat", {value},
        [](const Tensors& x) { return torch::cat(x[0].chunk(4, 0), 1 - 1); });
  check("unfold", {value}, [](const Tensors& x) { return x[0].unfold(0, 3, 2); });
  check("diagonal", {value}, [](const Tensors& x) { return x[0].diagonal(1); });
  check("as_strided", {value}, [](const Tensors& x) {
    return x[0].t().as_strided({3, 2}, {1, 5}, 2);
  });
  check("overlapping windows", {value},
        [](const Tensors& x) { return (x[0] * 1).unfold(1, 2, 1).contiguous().view({-1}); });
  check("roll flip rot90", {value}, [](const Tensors& x) {
    return x[0].roll(2, 0).flip({0, 1}).rot90();
  });
  check("tril pad", {value}, [](const Tensors& x) {
    return torch::constant_pad_nd(x[0].tril(), {1, 2, 0, 3}, 0.5);
  });
  check("expand repeat", {value}, [](const Tensors& x) {
    return x[0].unsqueeze(0).expand({2, 6, 5}).repeat({1, 2, 1});
  });
  check("movedim", {value},
        [](const Tensors& x) { return x[0].movedim(0, 1).contiguous().view({-1}); });
}

TEST_P(Libtorch, EinsumAndLinalg) {
  const auto a = torch::randn({4, 6}), b = torch::randn({6, 3}),
             square = torch::randn({4, 4}) + 4 * torch::eye(4);
  check("matrix product", {a, b}, [](const Tensors& x) { return torch::einsum("ij,jk->ki", x); });
  check("batched", {torch::randn({4, 5, 6}), torch::randn({4, 6, 3})},
        [](const Tensors& x) { return torch::einsum("bij,bjk->bik", x); });
  check("outer", {torch::randn({4}), torch::randn({6})},
        [](const Tensors& x) { return torch::einsum("i,j->ij", x); });
  check("trace", {square}, [](const Tensors& x) { return torch::einsum("ii->", x); });
  check("bmm", {torch::randn({4, 5, 6}), torch::randn({4, 6, 3})},
        [](const Tensors& x) { return x[0].bmm(x[1]); });
  check("tensordot", {a, b},
        [](const Tensors& x) { return torch::tensordot(x[0], x[1], {1}, {0}); });
  check("inverse", {square}, [](const Tensors& x) { return torch::linalg_inv(x[0]); });
  check(
      "solve", {square, torch::randn({4, 2})},
      [](const Tensors& x) { return torch::linalg_solve(x[0], x[1]); }, 1e-4);
  check(
      "cholesky", {square},
      [](const Tensors& x) { return torch::linalg_cholesky(x[0].mm(x[0].t()) + torch::eye(4)); },
      1e-3);
  check(
      "determinant", {square}, [](const Tensors& x) { return std::get<1>(torch::slogdet(x[0])); },
      1e-4);
  check("norms", {a}, [](const Tensors& x) {
    return x[0].norm() + x[0].norm(1, 0).sum() + torch::linalg_norm(x[0]);
  });
  check(
      "cdist", {a, torch::randn({4, 6})}, [](const Tensors& x) { return torch::cdist(x[0], x[1]); },
      1e-4);
  check("addmv and dot", {a, torch::randn({6})},
        [](const Tensors& x) { return x[0].mv(x[1]).sum() + x[1].dot(x[1]); });
  check("kron", {a, b}, [](const Tensors& x) { return torch::kron(x[0], x[1]); });
  check("attention", {torch::randn({2, 4, 6, 8}), torch::randn({2, 4, 6, 8})},
        [](const Tensors& x) {
          return torch::scaled_dot_product_attention(x[0], x[1], x[1] * 2, {}, 0.0, true);
        });
}

TEST_P(Libtorch, FftAndComplex) {
  const auto value = torch::randn({4, 8});
  check(
      "rfft", {value}, [](const Tensors& x) { return torch::fft::rfft(x[0]).abs(); }, 1e-4);
  check("fft and back", {value}, [](const Tensors& x) {
    return torch::real(torch::fft::ifft(torch::fft::fft(x[0], {}, 0), {}, 0));
  });
  check(
      "complex", {torch::randn({4, 4}, torch::kComplexFloat)},
      [](const Tensors& x) { return (x[0].conj() * x[0]).mm(x[0].conj()); }, 1e-4);
  check(
      "real and imaginary", {value},
      [](const Tensors& x) {
        auto c = torch::fft::fft(x[0]);
        return torch::real(c) + torch::imag(c);
      },
      1e-4);
}

TEST_P(Libtorch, DtypesAndDevices) {
  const auto value = torch::randn({4, 4});
  check("half", {value},
        [](const Tensors& x) { return (x[0].to(torch::kBFloat16) * 2).to(torch::kFloat); });
  check("integer division", {torch::arange(16).view({4, 4})},
        [](const Tensors& x) { return x[0].floor_divide(3) + x[0] % 5; });
  check("comparisons", {value},
        [](const Tensors& x) { return (x[0] > 0) & (x[0] < 1) | x[0].eq(0); });
  const auto x = put(value);
  EXPECT_TRUE(torch::equal(mt::full(x), value));
  EXPECT_TRUE(x.equal(x.clone()));
  EXPECT_TRUE(torch::allclose(x, x.clone()));
  EXPECT_EQ(x[2][1].item<float>(), value[2][1].item<float>());
  EXPECT_EQ(x.to(torch::kCPU).sizes(), value.sizes());
  EXPECT_TRUE((x > -100).all().item<bool>());
  EXPECT_EQ(x.numel(), 16);
}

TEST_P(Libtorch, ModulesCopyAndConvert) {
  torch::nn::Linear linear(4, 4);
  const auto value = torch::randn({4, 4});
  const auto expected = linear(value);
  mt::replicate(*linear, mesh);
  auto copy = std::dynamic_pointer_cast<torch::nn::LinearImpl>(linear->clone());
  mt::expect_close(copy->forward(put(value)), expected, "clone");
  {
    torch::NoGradGuard guard;
    copy->weight.zero_();
  }
  mt::expect_close(linear(put(value)), expected, "the original");
  linear->to(torch::kDouble);
  mt::expect_close(linear(put(value.to(torch::kDouble))), expected.to(torch::kDouble), "double",
                   1e-4, 1e-5);
  mt::device_get(*linear);
  EXPECT_FALSE(mt::is_sharded(linear->weight));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Libtorch,
                         testing::Values(P(), P("dp"), P(whole, "tp"), P("tp", "dp"),
                                         P(mt::axes("dp", "tp")), P().unreduced("dp"),
                                         P("dp").unreduced("tp")),
                         [](const auto& info) { return "Layout" + std::to_string(info.index); });

}  // namespace
