// SPDX-License-Identifier: Apache-2.0
//
// A program's own ops on sharded tensors: without a rule they run gathered and say so, with one line of
// notation they run on the shards. Ops in place, without results, with optional, list and keyword-only
// tensors, and inside torch::autograd::Function; the CPU kernel is the dense one, unmodified.
#include <gmock/gmock.h>
#include <torch/library.h>

#include <meshtorch/ops/notation.h>

#include "compare.h"

namespace mt = meshtorch;
using mt::P;
using testing::AllOf;
using testing::HasSubstr;

namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

std::tuple<at::Tensor, at::Tensor> swiglu_backward(const at::Tensor& grad, const at::Tensor& gate,
                                                   const at::Tensor& up) {
  return {at::silu_backward(grad * up, gate), grad * at::silu(gate)};
}

// Without a result; `factor` is optional, `bias` keyword-only.
void scale_(at::Tensor& x, const std::optional<at::Tensor>& factor,
            const std::optional<at::Tensor>& bias) {
  if (factor) x.mul_(*factor);
  if (bias) x.add_(*bias);
}

at::Tensor weighted_sum(const Tensors& xs, const c10::List<std::optional<at::Tensor>>& weights,
                        double power) {
  at::Tensor sum = at::zeros_like(xs[0]);
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const std::optional<at::Tensor> weight = weights.get(i);
    sum += weight ? xs[i] * weight->pow(power) : xs[i];
  }
  return sum;
}

at::Tensor twice(const at::Tensor& x) { return x * 2; }
at::Tensor& twice_(at::Tensor& x) { return x.mul_(2); }
at::Tensor& twice_out(const at::Tensor& x, at::Tensor& out) {
  return at::mul_out(out, x, at::scalar_tensor(2));
}

// Each row's largest element and what is left of the row: two results, the row whole.
std::tuple<at::Tensor, at::Tensor> peak(const at::Tensor& x, std::int64_t dim) {
  const at::Tensor top = x.amax(dim, true);
  return {top.squeeze(dim), x - top};
}

at::Tensor made_of(const at::Tensor& x) { return x.sin() + x.sum(0); }

TORCH_LIBRARY(mylib, m) {
  m.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  m.def("swiglu_backward(Tensor grad, Tensor gate, Tensor up) -> (Tensor, Tensor)");
  m.def("scale_(Tensor(a!) x, Tensor? factor, *, Tensor? bias=None) -> ()");
  m.def("weighted_sum(Tensor[] xs, Tensor?[] weights, float power=1.0) -> Tensor");
  m.def("twice(Tensor x) -> Tensor");
  m.def("twice_(Tensor(a!) x) -> Tensor(a!)");
  m.def("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)");
  m.def("peak(Tensor x, int dim) -> (Tensor, Tensor)");
  m.def("made_of(Tensor x) -> Tensor", made_of);
}

TORCH_LIBRARY_IMPL(mylib, CPU, m) {
  m.impl("swiglu", swiglu);
  m.impl("swiglu_backward", swiglu_backward);
  m.impl("scale_", scale_);
  m.impl("weighted_sum", weighted_sum);
  m.impl("twice", twice);
  m.impl("twice_", twice_);
  m.impl("twice.out", twice_out);
  m.impl("peak", peak);
}

template <class F>
auto op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<F>();
}

at::Tensor call_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return op<at::Tensor(const at::Tensor&, const at::Tensor&)>("mylib::swiglu").call(gate, up);
}

// The op with a gradient, as a program writes it.
struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return call_swiglu(gate, up);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    using Signature =
        std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&);
    const auto saved = context->get_saved_variables();
    auto [gate, up] = op<Signature>("mylib::swiglu_backward").call(grads[0], saved[0], saved[1]);
    return {gate, up};
  }
};

class CustomOps : public testing::Test {
 protected:
  at::Tensor put(const at::Tensor& x, const P& spec) { return mt::device_put(x, {mesh, spec}); }
  std::int64_t moves() {
    return runtime.ledger().count([](const auto& e) { return e.origin == mt::Origin::implied; });
  }

  mt::Runtime runtime{{.devices = 4, .warn_fallback = false}};
  mt::Mesh mesh = runtime.make_mesh({{"dp", 2}, {"tp", 2}});
};

TEST_F(CustomOps, WithoutARuleTheyRunGatheredAndSaySo) {
  const auto gate = torch::randn({6, 5}), up = torch::randn({6, 5});
  const auto sharded = put(gate, P("dp"));
  mt::expect_close(call_swiglu(sharded, put(up, P("dp"))), swiglu(gate, up), "gathered");
  ASSERT_EQ(runtime.fallbacks().size(), 1u);
  EXPECT_EQ(runtime.fallbacks()[0].op, "mylib::swiglu");
  EXPECT_THAT(runtime.fallbacks()[0].layouts,
              AllOf(HasSubstr("gate P(dp)"), HasSubstr("up P(dp)")));
  // Both operands, over dp: the ledger has them under the op's name. 6*5 floats, half of them sent.
  EXPECT_EQ(runtime.ledger().bytes([](const auto& e) { return e.op == "mylib::swiglu"; }),
            2 * 6 * 5 * 4 / 2);
  mt::mode_scope strict(mt::Mode::strict);
  EXPECT_THAT(mt::message_of([&] { call_swiglu(sharded, sharded); }),
              AllOf(HasSubstr("[mylib::swiglu]"), HasSubstr("the op has no rule"),
                    HasSubstr("gate P(dp)"), HasSubstr("Runtime::register_rule")));
}

TEST(CustomOpWarnings, OneLineAnOp) {
  mt::Runtime runtime({.devices = 2});
  const auto mesh = runtime.make_mesh({{"dp", 2}});
  const auto x = mt::device_put(torch::randn({4, 4}), {mesh, P("dp")});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) call_swiglu(x, x);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  EXPECT_THAT(said, AllOf(HasSubstr("[mylib::swiglu] gate P(dp), up P(dp): "), HasSubstr("reshard"),
                          HasSubstr("Runtime::register_rule"), HasSubstr("Mode::strict")));
}

TEST_F(CustomOps, ARuleKeepsThemOnTheirShards) {
  runtime.register_rule("mylib::swiglu", "...,...->...; each(1)");
  runtime.register_rule("mylib::swiglu_backward", "...,...,...->...,...; each(0)");
  const auto gate = torch::randn({6, 5}), up = torch::randn({6, 5});
  for (const P& spec : {P("dp"), P("dp", "tp"), P(mt::axes("tp", "dp")), P()}) {
    auto dense_gate = gate.clone().requires_grad_(), dense_up = up.clone().requires_grad_();
    Swiglu::apply(dense_gate, dense_up).square().sum().backward();
    auto g = put(gate, spec).requires_grad_(), u = put(up, spec).requires_grad_();
    const auto out = Swiglu::apply(g, u);
    EXPECT_EQ(mt::sharding_of(out).spec, spec);
    out.square().sum().backward();
    mt::expect_close(out, swiglu(gate, up), "value");
    mt::expect_close(g.grad(), dense_gate.grad(), "gate");
    mt::expect_close(u.grad(), dense_up.grad(), "up");
  }
  // Linear in `up`: a sum that is pending goes through.
  const auto pending = call_swiglu(put(gate, P()), put(up, P().unreduced("dp")));
  EXPECT_EQ(mt::sharding_of(pending).spec, P().unreduced("dp"));
  mt::expect_close(pending, swiglu(gate, up), "unreduced");
  EXPECT_EQ(moves(), 0) << runtime.ledger().to_string();
  EXPECT_TRUE(runtime.fallbacks().empty());
}

TEST_F(CustomOps, InPlaceWithoutResultsAndWithOptionalTensors) {
  // Right of the arrow: what is written.
  runtime.register_rule("mylib::scale_", "...,...,...->...");
  using Signature =
      void(at::Tensor&, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&);
  const auto call = op<Signature>("mylib::scale_");
  const auto value = torch::randn({6, 5}), factor = torch::randn({5}), bias = torch::randn({6, 5});
  const std::vector<std::pair<std::optional<at::Tensor>, std::optional<at::Tensor>>> ways{
      {factor, bias}, {factor, {}}, {{}, bias}, {{}, {}}};
  for (const P& spec : {P("dp"), P("dp", "tp"), P()}) {
    for (const auto& [f, b] : ways) {
      auto dense = value.clone();
      scale_(dense, f, b);
      auto x = put(value, spec);
      auto rows = x.slice(0, 0, 6);  // an alias
      const auto on = [&](const std::optional<at::Tensor>& t) {
        return t ? std::optional(put(*t, P())) : t;
      };
      call.call(x, on(f), on(b));
      EXPECT_EQ(mt::sharding_of(x).spec, spec);
      mt::expect_close(x, dense, "written");
      mt::expect_close(rows, dense, "alias");
    }
  }
  EXPECT_EQ(moves(), 0) << runtime.ledger().to_string();
}

TEST_F(CustomOps, ListsOfTensorsAndOptionalOnes) {
  // As many operands as there are: a function of the call.
  runtime.register_rule("mylib::weighted_sum", [](const mt::OpCall& call) {
    return mt::rule_for(call, mt::repeated("...", call.operands.size()) + "->...");
  });
  const auto call =
      op<at::Tensor(const Tensors&, const c10::List<std::optional<at::Tensor>>&, double)>(
          "mylib::weighted_sum");
  for (const std::size_t n : {1u, 3u}) {
    Tensors xs, sharded;
    c10::List<std::optional<at::Tensor>> weights, sharded_weights;
    for (std::size_t i = 0; i < n; ++i) {
      xs.push_back(torch::randn({7, 3}));
      sharded.push_back(put(xs.back(), P("dp")));
      const auto weight = i == 1 ? std::nullopt : std::optional(torch::rand({7, 3}));
      weights.push_back(weight);
      sharded_weights.push_back(weight ? std::optional(put(*weight, P("dp"))) : std::nullopt);
    }
    const auto out = call.call(sharded, sharded_weights, 2.0);
    mt::expect_close(out, weighted_sum(xs, weights, 2.0), "sum");
    EXPECT_EQ(mt::sharding_of(out).spec, P("dp"));
  }
  EXPECT_EQ(moves(), 0) << runtime.ledger().to_string();
}

TEST_F(CustomOps, InPlaceAndOutFormsUseTheFunctionalRule) {
  runtime.register_rule("mylib::twice", "...->...; each");
  const auto value = torch::randn({6, 5});
  auto x = put(value, P("dp"));
  op<at::Tensor&(at::Tensor&)>("mylib::twice_").call(x);
  mt::expect_close(x, value * 2, "in place");
  auto out = put(torch::empty({6, 5}), P("dp"));
  op<at::Tensor&(const at::Tensor&, at::Tensor&)>("mylib::twice", "out").call(x, out);
  mt::expect_close(out, value * 4, "out");
  EXPECT_EQ(moves(), 0) << runtime.ledger().to_string();
  EXPECT_THAT(mt::message_of([&] { runtime.register_rule("mylib::twice_", "...->..."); }),
              HasSubstr("[register_rule] mylib::twice_: runs by the rule of its functional form "
                        "mylib::twice; register the rule for mylib::twice"));
}

TEST_F(CustomOps, SeveralResultsAndAttributes) {
  runtime.register_rule("mylib::peak", [](const mt::OpCall& call) {
    const std::size_t rank = mt::shape_of(call, "x").size();
    std::string in = mt::letters(rank);
    const std::size_t dim = mt::wrap_dim(call, call.integer("dim"), rank);
    in[dim] = '*';
    std::string top = in;
    top.erase(dim, 1);
    return mt::rule_for(call, in + "->" + top + "," + in);
  });
  const auto call =
      op<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, std::int64_t)>("mylib::peak");
  const auto value = torch::randn({6, 5});
  for (const std::int64_t dim : {0, 1}) {
    const auto [dense_top, dense_rest] = peak(value, dim);
    const auto [top, rest] = call.call(put(value, dim == 0 ? P(mt::whole, "tp") : P("tp")), dim);
    mt::expect_close(top, dense_top, "top");
    mt::expect_close(rest, dense_rest, "rest");
    EXPECT_EQ(mt::sharding_of(top).spec, P("tp"));
  }
  EXPECT_EQ(moves(), 0) << runtime.ledger().to_string();
}

TEST_F(CustomOps, RulesThatAreWrongAreErrors) {
  const auto why = [&](const char* op, const char* text) {
    return mt::message_of([&] { runtime.register_rule(op, mt::RuleText::runtime(text)); });
  };
  EXPECT_THAT(why("mylib::swigloo", "...->..."), HasSubstr("mylib::swigloo: is not an op"));
  EXPECT_THAT(why("mylib::made_of", "...->..."), HasSubstr("is made of other ops"));
  EXPECT_THAT(why("aten::mm", "ik,kj->ij"), HasSubstr("has a rule already, in family matmul"));
  EXPECT_THAT(why("mylib::swiglu", "ab,ab->a b"),
              AllOf(HasSubstr("mylib::swiglu"), HasSubstr("a dim is none of")));
  EXPECT_THAT(why("mylib::swiglu", "...,...,..."), HasSubstr("-> is missing"));
  // A rule that cannot be bound to the call: named, with the op.
  ASSERT_EQ(why("mylib::swiglu_backward", "ab->ab"), "");
  const auto x = put(torch::randn({4, 4}), P("dp"));
  const auto call = op<std::tuple<at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const at::Tensor&)>("mylib::swiglu_backward");
  EXPECT_THAT(mt::message_of([&] { call.call(x, x, x); }), HasSubstr("[mylib::swiglu_backward]"));
  // One whose result has another rank than the op's.
  ASSERT_EQ(why("mylib::swiglu", "ab,ab->a"), "");
  EXPECT_THAT(mt::message_of([&] { call_swiglu(x, x); }),
              AllOf(HasSubstr("[mylib::swiglu] output 0"), HasSubstr("correct the rule")));
}

}  // namespace
