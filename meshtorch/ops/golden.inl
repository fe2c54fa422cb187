// SPDX-License-Identifier: Apache-2.0
//
// One line or more for every op that has a rule: an example call and the rule bound to it. The form of
// calls is call_text.h's.
inline constexpr const char* kGolden = R"(
aten::neg(<2,3>) => ab->ab; each
aten::mul.Scalar(<2,3>) => ab->ab; each
aten::div.Scalar(<2,3>) => ab->ab; each
aten::_conj(<2,3>) => ab->ab; each
aten::_conj_copy(<2,3>) => ab->ab; each
aten::conj_physical(<2,3>) => ab->ab; each
aten::_conj_physical(<2,3>) => ab->ab; each
aten::_neg_view(<2,3>) => ab->ab; each
aten::_neg_view_copy(<2,3>) => ab->ab; each
aten::abs(<2,3>) => ab->ab
aten::acos(<2,3>) => ab->ab
aten::acosh(<2,3>) => ab->ab
aten::angle(<2,3>) => ab->ab
aten::asin(<2,3>) => ab->ab
aten::asinh(<2,3>) => ab->ab
aten::atan(<2,3>) => ab->ab
aten::atanh(<2,3>) => ab->ab
aten::ceil(<2,3>) => ab->ab
aten::celu(<2,3>) => ab->ab
aten::clamp(<2,3>) => ab->ab
aten::clamp_max(<2,3>) => ab->ab
aten::clamp_min(<2,3>) => ab->ab
aten::cos(<2,3>) => ab->ab
aten::cosh(<2,3>) => ab->ab
aten::deg2rad(<2,3>) => ab->ab
aten::digamma(<2,3>) => ab->ab
aten::elu(<2,3>) => ab->ab
aten::erf(<2,3>) => ab->ab
aten::erfc(<2,3>) => ab->ab
aten::erfinv(<2,3>) => ab->ab
aten::exp(<2,3>) => ab->ab
aten::exp2(<2,3>) => ab->ab
aten::expm1(<2,3>) => ab->ab
aten::floor(<2,3>) => ab->ab
aten::frac(<2,3>) => ab->ab
aten::gelu(<2,3>) => ab->ab
aten::hardshrink(<2,3>) => ab->ab
aten::hardsigmoid(<2,3>) => ab->ab
aten::hardswish(<2,3>) => ab->ab
aten::hardtanh(<2,3>) => ab->ab
aten::i0(<2,3>) => ab->ab
aten::isinf(<2,3>) => ab->ab
aten::isnan(<2,3>) => ab->ab
aten::isneginf(<2,3>) => ab->ab
aten::isposinf(<2,3>) => ab->ab
aten::leaky_relu(<2,3>) => ab->ab
aten::lgamma(<2,3>) => ab->ab
aten::log(<2,3>) => ab->ab
aten::log10(<2,3>) => ab->ab
aten::log1p(<2,3>) => ab->ab
aten::log2(<2,3>) => ab->ab
aten::logical_not(<2,3>) => ab->ab
aten::logit(<2,3>) => ab->ab
aten::mish(<2,3>) => ab->ab
aten::mvlgamma(<2,3>) => ab->ab
aten::nan_to_num(<2,3>) => ab->ab
aten::polygamma(<2,3>) => ab->ab
aten::rad2deg(<2,3>) => ab->ab
aten::reciprocal(<2,3>) => ab->ab
aten::relu(<2,3>) => ab->ab
aten::round(<2,3>) => ab->ab
aten::round.decimals(<2,3>) => ab->ab
aten::rsqrt(<2,3>) => ab->ab
aten::sgn(<2,3>) => ab->ab
aten::sigmoid(<2,3>) => ab->ab
aten::sign(<2,3>) => ab->ab
aten::signbit(<2,3>) => ab->ab
aten::silu(<2,3>) => ab->ab
aten::sin(<2,3>) => ab->ab
aten::sinc(<2,3>) => ab->ab
aten::sinh(<2,3>) => ab->ab
aten::softplus(<2,3>) => ab->ab
aten::softshrink(<2,3>) => ab->ab
aten::sqrt(<2,3>) => ab->ab
aten::tan(<2,3>) => ab->ab
aten::tanh(<2,3>) => ab->ab
aten::threshold(<2,3>) => ab->ab
aten::trunc(<2,3>) => ab->ab
aten::bitwise_not(<2,3>) => ab->ab
aten::frexp.Tensor(<2,3>) => ab->ab,ab
aten::log_sigmoid_forward(<2,3>) => ab->ab,ab
aten::special_airy_ai(<2,3>) => ab->ab
aten::special_bessel_j0(<2,3>) => ab->ab
aten::special_bessel_j1(<2,3>) => ab->ab
aten::special_bessel_y0(<2,3>) => ab->ab
aten::special_bessel_y1(<2,3>) => ab->ab
aten::special_entr(<2,3>) => ab->ab
aten::special_erfcx(<2,3>) => ab->ab
aten::special_i0e(<2,3>) => ab->ab
aten::special_i1(<2,3>) => ab->ab
aten::special_i1e(<2,3>) => ab->ab
aten::special_log_ndtr(<2,3>) => ab->ab
aten::special_modified_bessel_i0(<2,3>) => ab->ab
aten::special_modified_bessel_i1(<2,3>) => ab->ab
aten::special_modified_bessel_k0(<2,3>) => ab->ab
aten::special_modified_bessel_k1(<2,3>) => ab->ab
aten::special_ndtri(<2,3>) => ab->ab
aten::special_scaled_modified_bessel_k0(<2,3>) => ab->ab
aten::special_scaled_modified_bessel_k1(<2,3>) => ab->ab
aten::special_spherical_bessel_j0(<2,3>) => ab->ab
aten::special_chebyshev_polynomial_t(<2,3>, <2,3>) => ab,ab->ab
aten::special_chebyshev_polynomial_u(<2,3>, <2,3>) => ab,ab->ab
aten::special_chebyshev_polynomial_v(<2,3>, <2,3>) => ab,ab->ab
aten::special_chebyshev_polynomial_w(<2,3>, <2,3>) => ab,ab->ab
aten::special_hermite_polynomial_h(<2,3>, <2,3>) => ab,ab->ab
aten::special_hermite_polynomial_he(<2,3>, <2,3>) => ab,ab->ab
aten::special_laguerre_polynomial_l(<2,3>, <2,3>) => ab,ab->ab
aten::special_legendre_polynomial_p(<2,3>, <2,3>) => ab,ab->ab
aten::special_shifted_chebyshev_polynomial_t(<2,3>, <2,3>) => ab,ab->ab
aten::special_shifted_chebyshev_polynomial_u(<2,3>, <2,3>) => ab,ab->ab
aten::special_shifted_chebyshev_polynomial_v(<2,3>, <2,3>) => ab,ab->ab
aten::special_shifted_chebyshev_polynomial_w(<2,3>, <2,3>) => ab,ab->ab
aten::special_xlog1py(<2,3>, <2,3>) => ab,ab->ab
aten::special_zeta(<2,3>, <2,3>) => ab,ab->ab
aten::special_chebyshev_polynomial_t.n_scalar(<2,3>) => ab->ab
aten::special_chebyshev_polynomial_t.x_scalar(<2,3>) => ab->ab
aten::special_chebyshev_polynomial_u.n_scalar(<2,3>) => ab->ab
aten::special_chebyshev_polynomial_u.x_scalar(<2,3>) => ab->ab
aten::special_chebyshev_polynomial_v.n_scalar(<2,3>) => ab->ab
aten::special_chebyshev_polynomial_v.x_scalar(<2,3>) => ab->ab
aten::special_chebyshev_polynomial_w.n_scalar(<2,3>) => ab->ab
aten::special_chebyshev_polynomial_w.x_scalar(<2,3>) => ab->ab
aten::special_hermite_polynomial_h.n_scalar(<2,3>) => ab->ab
aten::special_hermite_polynomial_h.x_scalar(<2,3>) => ab->ab
aten::special_hermite_polynomial_he.n_scalar(<2,3>) => ab->ab
aten::special_hermite_polynomial_he.x_scalar(<2,3>) => ab->ab
aten::special_laguerre_polynomial_l.n_scalar(<2,3>) => ab->ab
aten::special_laguerre_polynomial_l.x_scalar(<2,3>) => ab->ab
aten::special_legendre_polynomial_p.n_scalar(<2,3>) => ab->ab
aten::special_legendre_polynomial_p.x_scalar(<2,3>) => ab->ab
aten::special_shifted_chebyshev_polynomial_t.n_scalar(<2,3>) => ab->ab
aten::special_shifted_chebyshev_polynomial_t.x_scalar(<2,3>) => ab->ab
aten::special_shifted_chebyshev_polynomial_u.n_scalar(<2,3>) => ab->ab
aten::special_shifted_chebyshev_polynomial_u.x_scalar(<2,3>) => ab->ab
aten::special_shifted_chebyshev_polynomial_v.n_scalar(<2,3>) => ab->ab
aten::special_shifted_chebyshev_polynomial_v.x_scalar(<2,3>) => ab->ab
aten::special_shifted_chebyshev_polynomial_w.n_scalar(<2,3>) => ab->ab
aten::special_shifted_chebyshev_polynomial_w.x_scalar(<2,3>) => ab->ab
aten::special_xlog1py.other_scalar(<2,3>) => ab->ab
aten::special_xlog1py.self_scalar(<2,3>) => ab->ab
aten::special_zeta.other_scalar(<2,3>) => ab->ab
aten::special_zeta.self_scalar(<2,3>) => ab->ab
aten::add.Tensor(<2,3>, <2,3>) => ab,ab->ab; joint
aten::sub.Tensor(<2,3>, <2,3>) => ab,ab->ab; joint
aten::rsub.Tensor(<2,3>, <2,3>) => ab,ab->ab; joint
aten::complex(<2,3>, <2,3>) => ab,ab->ab; joint
aten::mul.Tensor(<2,3>, <2,3>) => ab,ab->ab; each
aten::div.Tensor(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::polar(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::ldexp.Tensor(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::atan2(<2,3>, <2,3>) => ab,ab->ab
aten::copysign.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::div.Tensor_mode(<2,3>, <2,3>) => ab,ab->ab
aten::floor_divide(<2,3>, <2,3>) => ab,ab->ab
aten::fmax(<2,3>, <2,3>) => ab,ab->ab
aten::fmin(<2,3>, <2,3>) => ab,ab->ab
aten::fmod.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::gcd(<2,3>, <2,3>) => ab,ab->ab
aten::heaviside(<2,3>, <2,3>) => ab,ab->ab
aten::hypot(<2,3>, <2,3>) => ab,ab->ab
aten::igamma(<2,3>, <2,3>) => ab,ab->ab
aten::igammac(<2,3>, <2,3>) => ab,ab->ab
aten::lcm(<2,3>, <2,3>) => ab,ab->ab
aten::logaddexp(<2,3>, <2,3>) => ab,ab->ab
aten::logaddexp2(<2,3>, <2,3>) => ab,ab->ab
aten::maximum(<2,3>, <2,3>) => ab,ab->ab
aten::minimum(<2,3>, <2,3>) => ab,ab->ab
aten::nextafter(<2,3>, <2,3>) => ab,ab->ab
aten::pow.Tensor_Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::remainder.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::xlogy.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::clamp_max.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::clamp_min.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::eq.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::ne.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::lt.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::le.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::gt.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::ge.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::logical_and(<2,3>, <2,3>) => ab,ab->ab
aten::logical_or(<2,3>, <2,3>) => ab,ab->ab
aten::logical_xor(<2,3>, <2,3>) => ab,ab->ab
aten::bitwise_and.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::bitwise_or.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::bitwise_xor.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::bitwise_left_shift.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::bitwise_right_shift.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::__lshift__.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::__rshift__.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::_add_relu.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::_prelu_kernel(<2,3>, <2,3>) => ab,ab->ab
aten::bernoulli.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::masked_fill.Scalar(<2,3>, <2,3>) => ab,ab->ab
aten::add.Scalar(<2,3>) => ab->ab
aten::_add_relu.Scalar(<2,3>) => ab->ab
aten::floor_divide.Scalar(<2,3>) => ab->ab
aten::remainder.Scalar_Tensor(<2,3>) => ab->ab
aten::sub.Scalar(<2,3>) => ab->ab
aten::rsub.Scalar(<2,3>) => ab->ab
aten::div.Scalar_mode(<2,3>) => ab->ab
aten::fmod.Scalar(<2,3>) => ab->ab
aten::remainder.Scalar(<2,3>) => ab->ab
aten::pow.Tensor_Scalar(<2,3>) => ab->ab
aten::pow.Scalar(<2,3>) => ab->ab
aten::xlogy.Scalar_Other(<2,3>) => ab->ab
aten::xlogy.Scalar_Self(<2,3>) => ab->ab
aten::copysign.Scalar(<2,3>) => ab->ab
aten::eq.Scalar(<2,3>) => ab->ab
aten::ne.Scalar(<2,3>) => ab->ab
aten::lt.Scalar(<2,3>) => ab->ab
aten::le.Scalar(<2,3>) => ab->ab
aten::gt.Scalar(<2,3>) => ab->ab
aten::ge.Scalar(<2,3>) => ab->ab
aten::bitwise_and.Scalar(<2,3>) => ab->ab
aten::bitwise_or.Scalar(<2,3>) => ab->ab
aten::bitwise_xor.Scalar(<2,3>) => ab->ab
aten::bitwise_and.Scalar_Tensor(<2,3>) => ab->ab
aten::bitwise_or.Scalar_Tensor(<2,3>) => ab->ab
aten::bitwise_xor.Scalar_Tensor(<2,3>) => ab->ab
aten::bitwise_left_shift.Tensor_Scalar(<2,3>) => ab->ab
aten::bitwise_left_shift.Scalar_Tensor(<2,3>) => ab->ab
aten::bitwise_right_shift.Tensor_Scalar(<2,3>) => ab->ab
aten::bitwise_right_shift.Scalar_Tensor(<2,3>) => ab->ab
aten::__lshift__.Scalar(<2,3>) => ab->ab
aten::__rshift__.Scalar(<2,3>) => ab->ab
aten::where.self(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; joint(1,2)
aten::addcmul(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; joint(0) each(1,2)
aten::addcdiv(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; joint(0) each(1)
aten::lerp.Scalar(<2,3>, <2,3>) => ab,ab->ab; joint
aten::lerp.Tensor(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; joint(0,1)
aten::clamp.Tensor(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab
aten::masked_fill.Tensor(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; joint(0,2)
aten::_dirichlet_grad(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab
aten::elu_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::gelu_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::hardshrink_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::hardsigmoid_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::hardswish_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::hardtanh_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::leaky_relu_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::logit_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::mish_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::native_dropout_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::sigmoid_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::silu_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::softplus_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::softshrink_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::tanh_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::threshold_backward(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::_standard_gamma_grad(<2,3>, <2,3>) => ab,ab->ab
aten::log_sigmoid_backward(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; each(0)
aten::rrelu_with_noise_backward(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; each(0)
aten::_prelu_kernel_backward(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab,ab; each(0)
aten::native_dropout(<2,3>) => ab->ab,ab
aten::bernoulli(<2,3>) => ab->ab
aten::bernoulli.p(<2,3>) => ab->ab; each reduced
aten::uniform(<2,3>) => ab->ab; each reduced
aten::random(<2,3>) => ab->ab; each reduced
aten::random.from(<2,3>) => ab->ab; each reduced
aten::random.to(<2,3>) => ab->ab; each reduced
aten::exponential(<2,3>) => ab->ab; each reduced
aten::normal_functional(<2,3>) => ab->ab; each reduced
aten::sum(self=<8,4,6>) => abc->; each
aten::sum.dim_IntList(self=<8,4,6>, dim=[-1], keepdim=false) => abc->ab; each
aten::sum.dim_IntList(self=<8,4,6>, dim=[0,-2], keepdim=true) => abc->11c; each
aten::sum.dim_IntList(self=<8,4,6>, dim=none, keepdim=false) => abc->; each
aten::mean(self=<8,4,6>) => abc->; each
aten::mean.dim(self=<8,4,6>, dim=[-1], keepdim=false) => abc->ab; each
aten::mean.dim(self=<8,4,6>, dim=[0,-2], keepdim=true) => abc->11c; each
aten::mean.dim(self=<8,4,6>, dim=none, keepdim=false) => abc->; each
aten::nansum(self=<8,4,6>) => abc->
aten::count_nonzero(self=<8,4,6>) => abc->
aten::count_nonzero.dim_IntList(self=<8,4,6>, dim=[1]) => abc->ac
aten::linalg__powsum(self=<8,4,6>, ord=none, dim=[1], keepdim=true) => abc->a1c
aten::trace(<5,5>) => **->; each
aten::amax(self=<8,4,6>) => abc->; reduced
aten::amax(self=<8,4,6>, dim=[0,2], keepdim=true) => abc->1b1; reduced
aten::amin(self=<8,4,6>) => abc->; reduced
aten::max(self=<8,4,6>) => abc->; reduced
aten::min(self=<8,4,6>) => abc->; reduced
aten::argmax(self=<8,4,6>) => abc->; reduced
aten::argmin(self=<8,4,6>) => abc->; reduced
aten::any(self=<8,4,6>) => abc->; reduced
aten::any.dim(self=<8,4,6>, dim=1, keepdim=false) => abc->ac; reduced
aten::any.dims(self=<8,4,6>, dim=1, keepdim=false) => abc->ac; reduced
aten::all(self=<8,4,6>) => abc->; reduced
aten::all.dim(self=<8,4,6>, dim=1, keepdim=false) => abc->ac; reduced
aten::all.dims(self=<8,4,6>, dim=1, keepdim=false) => abc->ac; reduced
aten::all.dims(self=<8,4,6>, dim=[], keepdim=false) => abc->abc; reduced
aten::all.dims(self=<8,4,6>, dim=none, keepdim=false) => abc->; reduced
aten::prod(self=<8,4,6>) => abc->; reduced
aten::prod.dim_int(self=<8,4,6>, dim=1, keepdim=false) => abc->ac; reduced
aten::var.correction(self=<8,4,6>, dim=1, keepdim=false) => abc->ac; reduced
aten::std.correction(self=<8,4,6>, dim=1, keepdim=false) => abc->ac; reduced
aten::logsumexp(self=<8,4,6>) => abc->; reduced
aten::linalg_vector_norm(self=<8,4,6>) => abc->; reduced
aten::linalg_vector_norm(self=<8,4,6>, dim=[0,2], keepdim=true) => abc->1b1; reduced
aten::norm.Scalar(self=<8,4,6>) => abc->; reduced
aten::norm.ScalarOpt_dtype(self=<8,4,6>) => abc->; reduced
aten::norm.ScalarOpt_dim(self=<8,4,6>, dim=1, keepdim=false) => abc->ac; reduced
aten::norm.ScalarOpt_dim_dtype(self=<8,4,6>, dim=1, keepdim=false) => abc->ac; reduced
aten::median(self=<8,4,6>) => ***->
aten::nanmedian(self=<8,4,6>) => ***->
aten::hash_tensor(self=<8,4,6>, dim=[1], keepdim=false, mode=0) => a*b->ab
aten::max.dim(self=<8,4,6>, dim=1, keepdim=false) => abc->ac,ac; reduced
aten::min.dim(self=<8,4,6>, dim=1, keepdim=false) => abc->ac,ac; reduced
aten::aminmax(self=<8,4,6>) => abc->,; reduced
aten::median.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::nanmedian.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::mode(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::kthvalue(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::_aminmax(self=<8,4>) => **->,
aten::_aminmax.dim(self=<8,4,6>, dim=1, keepdim=true) => a*b->a1b,a1b
aten::var_mean.correction(self=<8,4,6>, dim=1, keepdim=false) => abc->ac,ac; reduced
aten::std_mean.correction(self=<8,4,6>, dim=1, keepdim=false) => abc->ac,ac; reduced
aten::cumsum(self=<8,4,6>, dim=1) => a*b->a*b; each
aten::cumprod(self=<8,4,6>, dim=1) => a*b->a*b
aten::logcumsumexp(self=<8,4,6>, dim=1) => a*b->a*b
aten::_logcumsumexp(self=<8,4>, dim=1) => a*->a*
aten::cummax(self=<8,4,6>, dim=1) => a*b->a*b,a*b
aten::cummin(self=<8,4,6>, dim=1) => a*b->a*b,a*b
aten::sort(self=<8,4,6>, dim=1) => a*b->a*b,a*b
aten::sort.stable(self=<8,4,6>, dim=1) => a*b->a*b,a*b
aten::topk(self=<8,4,6>, dim=1) => a*b->a*b,a*b
aten::mm(<12,14>, <14,13>) => ab,bc->ac; each
aten::bmm(<5,12,14>, <5,14,13>) => abc,acd->abd; each
aten::mv(<12,14>, <14>) => ab,b->a; each
aten::dot(<14>, <14>) => a,a->; each
aten::vdot(<14>, <14>) => a,a->; each
aten::addmm(self=<6>, mat1=<8,4>, mat2=<4,6>) => a,bc,ca->ba; joint(0) each(1,2)
aten::addmm(self=<8,1>, mat1=<8,4>, mat2=<4,6>) => a1,ab,bc->ac; joint(0) each(1,2)
aten::addmm(self=<>, mat1=<8,4>, mat2=<4,6>) => ,ab,bc->ac; joint(0) each(1,2)
aten::baddbmm(self=<8,1,5>, batch1=<8,4,6>, batch2=<8,6,5>) => a1b,acd,adb->acb; joint(0) each(1,2)
aten::addbmm(self=<4,5>, batch1=<8,4,6>, batch2=<8,6,5>) => ab,cad,cdb->ab; joint(0) each(1,2)
aten::addmv(self=<8>, mat=<8,4>, vec=<4>) => a,ab,b->a; joint(0) each(1,2)
aten::addmv(self=<>, mat=<8,4>, vec=<4>) => ,**,*->*; joint(0) each(1,2)
aten::addr(self=<8,4>, vec1=<8>, vec2=<4>) => ab,a,b->ab; joint(0) each(1,2)
aten::_addmm_activation(self=<6>, mat1=<8,4>, mat2=<4,6>) => a,b*,*a->ba
aten::matmul(self=<8,4,6>, other=<6,5>) => abc,cd->abd; each
aten::matmul(self=<8,1,4,6>, other=<3,6,5>) => a1bc,dce->adbe; each
aten::matmul(self=<6>, other=<3,6,5>) => a,bac->bc; each
aten::matmul(self=<4,6>, other=<6>) => ab,b->a; each
aten::matmul(self=<6>, other=<6>) => a,a->; each
aten::linear_backward(self=<8,4,6>, grad_output=<8,4,5>, weight=?, output_mask=[0,1,0]) => abc,abd,?->,dc,; each(0,1) reduced(0,2)
aten::_trilinear(i1=<8,4>, i2=<3,4,5>, i3=<8,5>, expand1=[1,3], expand2=[0], expand3=[1,2], sumdim=[2,3]) => ab,cbd,ad->ac; each
aten::linalg_cross(self=<8,3,6>, other=<8,3,1>, dim=1) => a*b,a*1->a*b; each
aten::_compute_linear_combination(<5,2,3>, <7,5>) => abc,da->dbc; each
aten::_cdist_forward(<2,5,4>, <2,6,4>) => ab*,ac*->abc
aten::_euclidean_dist(<2,5,4>, <2,6,4>) => ab*,ac*->abc
aten::_cdist_backward(<2,5,6>, <2,5,4>, <2,6,4>, <2,5,6>) => abc,abd,acd,abc->abd; each(0)
aten::_pdist_forward(<5,4>) => **->*
aten::_pdist_backward(<10>, <5,4>, <10>) => *,*a,*->*a; each(0)
aten::alias(<2,3>) => ab->ab; each
aten::alias_copy(<2,3>) => ab->ab; each
aten::detach(<2,3>) => ab->ab; each
aten::detach_copy(<2,3>) => ab->ab; each
aten::lift(<2,3>) => ab->ab; each
aten::lift_fresh(<2,3>) => ab->ab; each
aten::view_as_real(<2,3>) => ab->ab*; each
aten::view_as_real_copy(<2,3>) => ab->ab*; each
aten::view_as_complex(<2,3,5>) => ab*->ab; each
aten::view_as_complex_copy(<2,3,2>) => ab*->ab; each
aten::view.dtype(self=<8,4>, dtype=3) => a*->a*
aten::view.dtype(self=<>, dtype=3) => ->
aten::view_copy.dtype(self=<8,4>, dtype=3) => a*->a*
aten::view(self=<8,4,6>, size=[-1,6]) => abc->(ab)c; each
aten::view(self=<6,4>, size=[3,8]) => (ab)c->a(bc); each
aten::view(self=<4,6>, size=[6,4]) => (a*)*->(a*)*; each
aten::view(self=<2,1,3>, size=[2,3]) => a1b->ab; each
aten::view_copy(self=<8,4,6>, size=[-1,6]) => abc->(ab)c; each
aten::_unsafe_view(self=<8,4,6>, size=[-1,6]) => abc->(ab)c; each
aten::_reshape_alias(self=<8,4>, size=[32], stride=[1]) => ab->(ab); each
aten::_reshape_alias_copy(self=<8,4>, size=[32], stride=[1]) => ab->(ab); each
aten::_reshape_copy(self=<8,4,6>, size=[-1,6]) => abc->(ab)c; each
aten::expand(self=<4,1>, size=[8,4,6]) => a1->bac; each
aten::expand(self=<4,6>, size=[8,-1,-1]) => ab->cab; each
aten::expand_copy(self=<4,1>, size=[8,4,6]) => a1->bac; each
aten::permute(self=<8,4,6>, dims=[2,0,-2]) => abc->cab; each
aten::permute_copy(self=<8,4,6>, dims=[2,0,-2]) => abc->cab; each
aten::transpose.int(self=<8,4,6>, dim0=-1, dim1=0) => abc->cba; each
aten::transpose_copy.int(self=<8,4,6>, dim0=-1, dim1=0) => abc->cba; each
aten::t(self=<8,4>) => ab->ba; each
aten::t(self=<8>) => a->a; each
aten::t_copy(self=<8,4>) => ab->ba; each
aten::squeeze(self=<8,1,6>) => a1b->ab; each
aten::squeeze.dim(self=<8,1,6>, dim=1) => a1b->ab; each
aten::squeeze.dim(self=<8,1,6>, dim=0) => abc->abc; each
aten::squeeze.dims(self=<1,1,6>, dim=[0,2]) => 1ab->ab; each
aten::squeeze_copy(self=<8,1,6>) => a1b->ab; each
aten::squeeze_copy.dim(self=<8,1,6>, dim=1) => a1b->ab; each
aten::squeeze_copy.dims(self=<1,1,6>, dim=[0,2]) => 1ab->ab; each
aten::unsqueeze(self=<8,4>, dim=1) => ab->a1b; each
aten::unsqueeze(self=<8,4>, dim=-1) => ab->ab1; each
aten::unsqueeze_copy(self=<8,4>, dim=1) => ab->a1b; each
aten::select.int(self=<8,4,6>, dim=1, index=2) => a*b->ab; each
aten::select_copy.int(self=<8,4,6>, dim=1, index=2) => a*b->ab; each
aten::select_backward(grad_output=<8,6>, input_sizes=[8,4,6], dim=1, index=2) => ab->a*b; each
aten::select_scatter(self=<8,4,6>, src=<8,6>, dim=1, index=2) => a*b,ab->a*b; joint
aten::slice.Tensor(self=<8,4>, dim=0, start=2, end=6, step=1) => *a->*a; each
aten::slice.Tensor(self=<8,4>, dim=1, start=none, end=none, step=1) => ab->ab; each
aten::slice_copy.Tensor(self=<8,4>, dim=0, start=2, end=6, step=1) => *a->*a; each
aten::narrow_copy(self=<8,4>, dim=0, start=2, length=4) => *a->*a; each
aten::slice_backward(grad_output=<4,4>, input_sizes=[8,4], dim=0, start=2, end=6, step=1) => *a->*a; each
aten::slice_scatter(self=<8,4>, src=<4,4>, dim=0, start=2, end=6, step=1) => *a,*a->*a; joint
aten::slice_scatter(self=<8,4>, src=<8,4>, dim=0, start=none, end=none, step=1) => ab,ab->ab; joint
aten::split.Tensor(self=<8,4>, split_size=3, dim=0) => *a->*a,*a,*a; each
aten::split.Tensor(self=<8,4>, split_size=9, dim=0) => ab->ab; each
aten::split_copy.Tensor(self=<8,4>, split_size=3, dim=0) => *a->*a,*a,*a; each
aten::unsafe_split.Tensor(self=<8,4>, split_size=3, dim=0) => *a->*a,*a,*a; each
aten::split_with_sizes(self=<8,4>, split_sizes=[5,3], dim=0) => *a->*a,*a; each
aten::split_with_sizes_copy(self=<8,4>, split_sizes=[5,3], dim=0) => *a->*a,*a; each
aten::unsafe_split_with_sizes(self=<8,4>, split_sizes=[5,3], dim=0) => *a->*a,*a; each
aten::unbind.int(self=<3,4>, dim=0) => *a->a,a,a; each
aten::unbind_copy.int(self=<3,4>, dim=0) => *a->a,a,a; each
aten::diagonal(self=<8,4,6>, offset=0, dim1=0, dim2=2) => *a*->a*; each
aten::diagonal_copy(self=<8,4,6>, offset=0, dim1=0, dim2=2) => *a*->a*; each
aten::diagonal_backward(grad_output=<4,6>, input_sizes=[8,4,6], offset=0, dim1=0, dim2=2) => a*->*a*; each
aten::diagonal_scatter(self=<8,4,6>, src=<4,6>, offset=0, dim1=0, dim2=2) => *a*,a*->*a*; joint
aten::diag_embed(self=<8,4>, offset=1, dim1=0, dim2=-1) => a*->*a*; each
aten::unfold(self=<8,4>, dimension=0, size=3, step=1) => *a->*a*; each
aten::unfold_copy(self=<8,4>, dimension=0, size=3, step=1) => *a->*a*; each
aten::unfold_backward(grad_in=<6,4,3>, input_sizes=[8,4], dim=0, size=3, step=1) => *a*->*a; each
aten::cat(tensors=<8,4><8,6>, dim=1) => a*,a*->a*; joint
aten::cat(tensors=<0><8,6>, dim=0) => *,*a->*a; joint
aten::stack(tensors=<8,4><8,4>, dim=1) => ab,ab->a*b; joint
aten::_stack(tensors=<8,4><8,4>, dim=1) => ab,ab->a*b; joint
aten::block_diag(tensors=<8,4><6><>) => **,*,->**; joint
aten::repeat(self=<8,4>, repeats=[3,1,2]) => a*->*a*; each
aten::constant_pad_nd(self=<8,4,6>, pad=[1,1,0,0]) => ab*->ab*
aten::reflection_pad3d(<2,3,5,5,5>) => ab***->ab***; each
aten::replication_pad3d(<2,3,5,5,5>) => ab***->ab***; each
aten::reflection_pad1d_backward(<2,3,5>, <2,3,5>) => ab*,ab*->ab*; each(0)
aten::replication_pad1d_backward(<2,3,5>, <2,3,5>) => ab*,ab*->ab*; each(0)
aten::reflection_pad3d_backward(<2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***->ab***; each(0)
aten::replication_pad3d_backward(<2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***->ab***; each(0)
aten::flip(self=<8,4>, dims=[1]) => a*->a*; each
aten::flip(self=<8,4>, dims=[]) => ab->ab; each
aten::roll(self=<8,4>, shifts=[1], dims=[]) => **->**; each
aten::rot90(self=<8,4,6>, k=1, dims=[0,2]) => ab*->*ba; each
aten::rot90(self=<8,4,6>, k=-1, dims=[0,2]) => *ab->ba*; each
aten::rot90(self=<8,4,6>, k=2, dims=[0,2]) => *a*->*a*; each
aten::rot90(self=<8,4,6>, k=4, dims=[0,2]) => abc->abc; each
aten::pixel_shuffle(self=<8,18,4,6>, upscale_factor=3) => a(b**)cd->ab(c*)(d*); each
aten::pixel_unshuffle(self=<8,2,12,18>, downscale_factor=3) => ab(c*)(d*)->a(b**)cd; each
aten::channel_shuffle(<2,6,4,4>) => a*bc->a*bc; each
aten::tril(<2,3,5,5>) => ab**->ab**; each
aten::triu(<2,3,5,5>) => ab**->ab**; each
aten::glu(self=<8,4>, dim=-1) => a*->a*
aten::glu_backward(grad_output=<8,2>, self=<8,4>, dim=-1) => a*,a*->a*; each(0)
aten::_pack_padded_sequence(input=<8,4,6>, lengths=<4>, batch_first=false) => ***,*->**,*
aten::nonzero(self=<8,4>) => **->**
aten::nonzero_static(self=<8,4>, size=5) => **->**
aten::masked_select(self=<8,4>, mask=<4>) => **,*->*
aten::masked_scatter(self=<8,4>, mask=<4>, source=<50>) => **,*,*->**; joint(0,2)
aten::masked_scatter_backward(grad_output=<8,4>, mask=<8,4>, sizes=[6]) => **,**->*; each(0)
aten::_unique(self=<8,4>, sorted=true, return_inverse=true) => **->*,**
aten::_unique2(self=<8,4>, sorted=true, return_inverse=false, return_counts=true) => **->*,*,*
aten::unique_consecutive(self=<8,4>, return_inverse=true, return_counts=true, dim=none) => **->*,**,*
aten::unique_consecutive(self=<8,4>, return_inverse=true, return_counts=true, dim=0) => **->**,*,*
aten::unique_dim(self=<8,4>, dim=0, return_inverse=true, return_counts=true) => **->**,*,*
aten::unique_dim_consecutive(self=<8,4>, dim=0, return_inverse=true, return_counts=true) => **->**,*,*
aten::searchsorted.Tensor(sorted_sequence=<9>, self=<8,4>, sorter=?) => *,ab,?->ab
aten::searchsorted.Tensor(sorted_sequence=<8,9>, self=<8,4>, sorter=<8,9>) => a*,ab,a*->ab
aten::searchsorted.Scalar(sorted_sequence=<9>, self=none, sorter=?) => *,?->
aten::bucketize.Scalar(self=none, boundaries=<9>) => *->
aten::isin.Tensor_Tensor(elements=<8,4>, test_elements=<3,2>) => ab,**->ab
aten::isin.Tensor_Scalar(<8,4>) => ab->ab
aten::bincount(self=<8>, weights=?, minlength=4) => *,?->*
aten::bincount(self=<8>, weights=<8>, minlength=4) => *,*->*
aten::histc(self=<8,4>) => **->*
aten::histogram.bin_ct(self=<8,4>, bins=10, weight=?) => **,?->*,*
aten::histogram.bins_tensor(self=<8,4>, bins=<11>, weight=<8,4>) => **,*,**->*,*
aten::_histogramdd_bin_edges(self=<8,2>, bins=[3,4], weight=?) => **,?->*,*
aten::_histogramdd_from_bin_cts(self=<8,2>, bins=[3,4], weight=<8>) => **,*->**
aten::_histogramdd_from_bin_tensors(self=<8,2>, bins=<4><5>, weight=?) => **,*,*,?->**
aten::repeat_interleave.Tensor(repeats=<8>) => *->*
aten::renorm(self=<8,4,6>, dim=1) => *a*->*a*
aten::embedding(<25,14>, <2,3>) => ab,cd->cdb; each(0)
aten::embedding_dense_backward(grad_output=<8,4,6>, indices=<8,4>, num_weights=50, padding_idx=-1, scale_grad_by_freq=false) => abc,ab->dc; each(0)
aten::embedding_dense_backward(grad_output=<8,4,6>, indices=<8,4>, num_weights=50, padding_idx=-1, scale_grad_by_freq=true) => **a,**->ba; each(0)
aten::index_select(self=<8,4,6>, dim=1, index=<3>) => a*b,c->acb; each(0)
aten::index_add(self=<8,4,6>, dim=1, index=<3>, source=<8,3,6>) => a*b,c,acb->a*b; joint(0,2)
aten::index_copy(self=<8,4,6>, dim=1, index=<3>, source=<8,3,6>) => a*b,*,a*b->a*b
aten::index_fill.int_Scalar(self=<8,4>, dim=1, index=<3>) => a*,*->a*
aten::index_fill.int_Tensor(self=<8,4>, dim=1, index=<3>, value=<>) => a*,*,->a*
aten::gather(self=<8,4,6>, dim=1, index=<8,3,6>) => a*b,acb->acb; each(0)
aten::gather(self=<8,4,6>, dim=1, index=<8,3,5>) => a**,ab*->ab*; each(0)
aten::scatter.src(self=<8,4,6>, dim=1, index=<8,3,6>, src=<8,3,6>) => a*b,a*b,a*b->a*b
aten::scatter.reduce(self=<8,4,6>, dim=1, index=<8,3,6>, src=<8,3,6>) => a*b,a*b,a*b->a*b
aten::scatter_reduce.two(self=<8,4,6>, dim=1, index=<8,3,6>, src=<8,3,6>) => a*b,a*b,a*b->a*b
aten::scatter.value(self=<8,4,6>, dim=1, index=<8,3,6>, value=none) => a*b,a*b->a*b
aten::scatter.value_reduce(self=<8,4,6>, dim=1, index=<8,3,6>, value=none) => a*b,a*b->a*b
aten::scatter_add(self=<8,4,6>, dim=1, index=<8,3,6>, src=<8,3,6>) => a*b,acb,acb->a*b; joint(0,2)
aten::scatter_add(self=<8,4>, dim=1, index=<8,3>, src=<8,9>) => **,**,**->**; joint(0,2)
aten::index.Tensor(self=<8,4,6>, indices=?<3>) => a*b,?,c->acb; each(0)
aten::index.Tensor(self=<8,4,6>, indices=<3>?<3>) => *a*,b,?,b->ba; each(0)
aten::index.Tensor(self=<8,4,6>, indices=<2,1><3>) => **a,b1,c->bca; each(0)
aten::_unsafe_index.Tensor(self=<8,4,6>, indices=?<3>) => a*b,?,c->acb; each(0)
aten::index_put(self=<8,4,6>, indices=?<3>, values=<8,3,6>, accumulate=true) => a*b,?,*,a*b->a*b; joint(0,3)
aten::index_put(self=<8,4,6>, indices=<3>, values=<6>, accumulate=false) => *ab,*,b->*ab
aten::_index_put_impl(self=<8,4,6>, indices=?<3>, values=<8,3,6>, accumulate=true) => a*b,?,*,a*b->a*b; joint(0,3)
aten::_index_put_impl(self=<8,4,6>, indices=<3>, values=<6>, accumulate=false) => *ab,*,b->*ab
aten::_unsafe_index_put(self=<8,4,6>, indices=?<3>, values=<8,3,6>, accumulate=true) => a*b,?,*,a*b->a*b; joint(0,3)
aten::index_reduce(self=<8,4,6>, dim=1, index=<3>, source=<8,3,6>, reduce=prod, include_self=true) => a*b,*,a*b->a*b
aten::take(self=<8,4>, index=<2,3>) => **,ab->ab; each(0)
aten::put(self=<8,4>, index=<3>, source=<3>, accumulate=false) => **,*,*->**
aten::put(self=<8,4>, index=<3>, source=<3>, accumulate=true) => **,*,*->**; joint(0,2)
aten::embedding_renorm(self=<50,6>, indices=<8,4>, max_norm=none, norm_type=none) => **,**->**
aten::_embedding_bag(weight=<50,6>, indices=<20>, offsets=<8>, scale_grad_by_freq=false, mode=0, sparse=false, per_sample_weights=?) => *a,*,*,?->*a,*/a,*/a,*/a; each(0,3) reduced(1,2,3)
aten::_embedding_bag(weight=<50,6>, indices=<20>, offsets=<8>, scale_grad_by_freq=false, mode=0, sparse=false, per_sample_weights=<20>) => *a,*,*,*->*a,*/a,*/a,*/a; each(0,3) reduced(1,2,3)
aten::_embedding_bag(weight=<50,6>, indices=<20>, offsets=<8>, scale_grad_by_freq=false, mode=2, sparse=false, per_sample_weights=?) => *a,*,*,?->*a,*/a,*/a,*a; reduced(1,2)
aten::_embedding_bag_forward_only(weight=<50,6>, indices=<20>, offsets=<8>, scale_grad_by_freq=false, mode=1, sparse=false, per_sample_weights=?) => *a,*,*,?->*a,*/a,*/a,*/a; each(0,3) reduced(1,2,3)
aten::_embedding_bag_backward(grad=<8,6>, indices=<20>, offsets=<8>, offset2bag=<20>, bag_size=<8>, maximum_indices=<8>, num_weights=50, scale_grad_by_freq=false, mode=0, sparse=false, per_sample_weights=?) => *a,*,*,*,*,*,?->*a; each(0)
aten::_embedding_bag_dense_backward(grad=<8,6>, indices=<20>, offset2bag=<20>, bag_size=<8>, maximum_indices=<8,6>, num_weights=50, scale_grad_by_freq=false, mode=2, per_sample_weights=?) => *a,*,*,*,*a,?->*a; each(0)
aten::_embedding_bag_per_sample_weights_backward(grad=<8,6>, weight=<50,6>, indices=<20>, offsets=<8>, offset2bag=<20>, mode=0) => *a,*a,*,*,*->*; each(0,1)
aten::segment_reduce(data=<8,20,6>, reduce=sum, lengths=<8,3>, indices=?, offsets=?, axis=1) => a*b,a*,?,?->a*b
aten::_segment_reduce_backward(grad=<8,3,6>, output=<8,3,6>, data=<8,20,6>, reduce=sum, lengths=<8,3>, offsets=?, axis=1) => a*b,a*b,a*b,a*,?->a*b; each(0)
aten::bucketize.Tensor(<2,3>, <5>) => ab,*->ab
aten::native_layer_norm(input=<8,4,6>, normalized_shape=[6], weight=<6>, bias=<6>) => ab*,*,*->ab*,ab1,ab1
aten::native_layer_norm(input=<8,4,6>, normalized_shape=[4,6], weight=?, bias=?) => a**,?,?->a**,a11,a11
aten::native_layer_norm_backward(grad_out=<8,4,6>, input=<8,4,6>, normalized_shape=[6], mean=<8,4,1>, rstd=<8,4,1>, weight=<6>, bias=<6>, output_mask=[1,1,1]) => ab*,ab*,ab1,ab1,*,*->ab*,*,*; each(0)
aten::native_batch_norm(input=<8,3,6,6>, weight=<3>, bias=<3>, running_mean=<3>, running_var=<3>, training=true) => ab**,b,b,b,b->ab**,b,b; reduced(1,2)
aten::native_batch_norm(input=<8,3>, weight=?, bias=?, running_mean=<3>, running_var=<3>, training=false) => ab,?,?,b,b->ab,*,*; reduced(1,2)
aten::_native_batch_norm_legit(input=<8,3,6,6>, weight=<3>, bias=<3>, running_mean=<3>, running_var=<3>, training=true) => ab**,b,b,b,b->ab**,b,b; reduced(1,2)
aten::_native_batch_norm_legit.no_stats(input=<8,3,6,6>, weight=<3>, bias=<3>, training=true) => ab**,b,b->ab**,b,b; reduced(1,2)
aten::native_batch_norm_backward(grad_out=<8,3,6,6>, input=<8,3,6,6>, weight=<3>, running_mean=<3>, running_var=<3>, save_mean=<3>, save_invstd=<3>, train=true) => ab**,ab**,b,b,b,b,b->ab**,b,b; each(0)
aten::native_batch_norm_backward(grad_out=<8,3>, input=<8,3>, weight=<3>, running_mean=<3>, running_var=<3>, save_mean=<0>, save_invstd=<0>, train=false) => ab,ab,b,b,b,*,*->ab,b,b; each(0)
aten::_native_batch_norm_legit_functional(input=<8,3,6,6>, weight=<3>, bias=<3>, running_mean=<3>, running_var=<3>, training=true) => *a**,a,a,a,a->*a**,a,a,a,a
aten::_batch_norm_with_update(input=<8,3,6,6>, weight=<3>, bias=<3>, running_mean=<3>, running_var=<3>) => ****,*,*,*,*->****,*,*,*
aten::_batch_norm_with_update_functional(input=<8,3,6,6>, weight=<3>, bias=<3>, running_mean=<3>, running_var=<3>) => *a**,a,a,a,a->*a**,a,a,*,a,a
aten::_native_batch_norm_legit_no_training(input=<8,3,6,6>, weight=<3>, bias=<3>, running_mean=<3>, running_var=<3>) => ab**,b,b,b,b->ab**,*,*
aten::_batch_norm_no_update(input=<8,3,6,6>, weight=<3>, bias=<3>, running_mean=<3>, running_var=<3>) => ab**,b,b,b,b->ab**,*,*,*
aten::batch_norm_backward(grad_out=<8,3,6,6>, input=<8,3,6,6>, weight=<3>, running_mean=<3>, running_var=<3>, save_mean=<3>, save_var=<3>, update=true, reserve=<0>) => *a**,*a**,a,a,a,a,a,*->*a**,a,a; each(0)
aten::native_group_norm(input=<8,4,6,6>, weight=<4>, bias=<4>, N=8, C=4, HxW=36, group=2) => a(b*)**,(b*),(b*)->a(b*)**,ab,ab
aten::native_group_norm_backward(grad_out=<8,4,6,6>, input=<8,4,6,6>, mean=<8,2>, rstd=<8,2>, weight=<4>, N=8, C=4, HxW=36, group=2) => a(b*)**,a(b*)**,ab,ab,(b*)->a(b*)**,(b*),(b*); each(0)
aten::_weight_norm_interface(v=<8,4,6>, g=<8,1,1>, dim=0) => a**,a11->a**,a11
aten::_weight_norm_interface(v=<8,4,6>, g=<1,1,6>, dim=2) => **a,11a->**a,11a
aten::_weight_norm_interface_backward(grad_w=<8,4,6>, saved_v=<8,4,6>, saved_g=<8,1,1>, saved_norms=<8,1,1>, dim=0) => a**,a**,a11,a11->a**,a11; each(0)
aten::_masked_softmax(self=<8,4,6,6>, mask=<8,6>, dim=3, mask_type=1) => ab**,a*->ab**
aten::_masked_softmax(self=<8,4,6,6>, mask=<6,6>, dim=3, mask_type=0) => ab**,**->ab**
aten::_masked_softmax(self=<8,4,6,6>, mask=<8,4,6,6>, dim=3, mask_type=2) => abc*,abc*->abc*
aten::_masked_softmax_backward(grad_output=<8,4,6,6>, output=<8,4,6,6>, mask=<8,4,6,6>, dim=3) => abc*,abc*,abc*->abc*; each(0)
aten::_softmax(self=<8,4,6>, dim=-1) => ab*->ab*
aten::_safe_softmax(self=<8,4,6>, dim=-1) => ab*->ab*
aten::_softmax_backward_data(grad_output=<8,4,6>, output=<8,4,6>, dim=1) => a*b,a*b->a*b; each(0)
aten::_log_softmax(<2,3>) => ab->ab
aten::_log_softmax_backward_data(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::convolution(input=<8,3,6,6>, weight=<5,3,3,3>, bias=<5>, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1) => ab**,cb**,c->ac**; joint(2) each(0,1)
aten::convolution(input=<8,4,6,6>, weight=<4,1,3,3>, bias=?, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=4) => a(bc)**,(bd)c**,?->a(bd)**; joint(2) each(0,1)
aten::convolution(input=<8,3,6,6>, weight=<3,5,3,3>, bias=<5>, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=true, output_padding=[0,0], groups=1) => ab**,bc**,c->ac**; joint(2) each(0,1)
aten::convolution(input=<8,4,6,6>, weight=<6,2,3,3>, bias=<6>, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=2) => a(bc)**,(bd)c**,(bd)->a(bd)**; joint(2) each(0,1)
aten::convolution(input=<8,4,6,6>, weight=<4,3,3,3>, bias=<6>, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=true, output_padding=[0,0], groups=2) => a(bc)**,(bc)d**,(bd)->a(bd)**; joint(2) each(0,1)
aten::_convolution(input=<8,3,6,6>, weight=<5,3,3,3>, bias=<5>, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1) => ab**,cb**,c->ac**; joint(2) each(0,1)
aten::convolution_backward(grad_output=<8,5,6,6>, input=<8,3,6,6>, weight=<5,3,3,3>, bias_sizes=[5], stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1) => ab**,ac**,bc**->ac**,bc**,b/c; each(0)
aten::convolution_backward(grad_output=<8,5,6,6>, input=<8,3,6,6>, weight=<5,3,3,3>, bias_sizes=none, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1) => ab**,ac**,bc**->ac**,bc**,b/c; each(0)
aten::convolution_backward(grad_output=<8,6,6,6>, input=<8,4,6,6>, weight=<6,2,3,3>, bias_sizes=[6], stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=2) => a(bc)**,a(bd)**,(bc)d**->a(bd)**,(bc)d**,(bc)/d; each(0)
aten::_slow_conv2d_forward(self=<8,3,6,6>, weight=<5,3,3,3>, kernel_size=[3,3], bias=<5>, stride=[1,1], padding=[1,1]) => a***,b***,b->ab**
aten::slow_conv3d_forward(self=<8,3,6,6,6>, weight=<5,3,3,3,3>, kernel_size=[3,3,3], bias=?, stride=[1,1,1], padding=[1,1,1]) => a****,b****,?->ab***
aten::slow_conv_dilated2d(self=<3,6,6>, weight=<5,3,3,3>, kernel_size=[3,3], bias=<5>, stride=[1,1], padding=[1,1], dilation=[2,2]) => ***,a***,a->a**
aten::slow_conv_dilated3d(self=<8,3,6,6,6>, weight=<5,3,3,3,3>, kernel_size=[3,3,3], bias=<5>, stride=[1,1,1], padding=[1,1,1], dilation=[2,2,2]) => a****,b****,b->ab***
aten::slow_conv_transpose2d(self=<8,3,6,6>, weight=<3,5,3,3>, kernel_size=[3,3], bias=<5>, stride=[1,1], padding=[1,1], output_padding=[0,0], dilation=[1,1]) => a***,*b**,b->ab**
aten::slow_conv_transpose3d(self=<8,3,6,6,6>, weight=<3,5,3,3,3>, kernel_size=[3,3,3], bias=<5>, stride=[1,1,1], padding=[1,1,1], output_padding=[0,0,0], dilation=[1,1,1]) => a****,*b***,b->ab***
aten::_slow_conv2d_backward.output_mask(grad_output=<8,5,6,6>, self=<8,3,6,6>, weight=<5,3,3,3>, kernel_size=[3,3], stride=[1,1], padding=[1,1], output_mask=[1,1,1]) => ab**,ac**,bc**->ac**,bc**,b/c; each(0)
aten::mkldnn_convolution(self=<8,4,6,6>, weight=<6,2,3,3>, bias=<6>, padding=[1,1], stride=[1,1], dilation=[1,1], groups=2) => a(bc)**,(bd)c**,(bd)->a(bd)**; joint(2) each(0,1)
aten::conv_tbc(<9,2,3>, <3,3,5>, <5>) => *ab,*bc,c->*ac; joint(2) each(0,1)
aten::im2col(self=<8,3,6,6>, kernel_size=[3,2], dilation=[1,1], padding=[0,0], stride=[1,1]) => ab**->a(b*)*; each
aten::im2col(self=<3,6,6>, kernel_size=[3,2], dilation=[1,1], padding=[0,0], stride=[1,1]) => a**->(a*)*; each
aten::col2im(self=<8,18,20>, output_size=[6,6], kernel_size=[3,2], dilation=[1,1], padding=[0,0], stride=[1,1]) => a(b*)*->ab**; each
aten::max_pool2d_with_indices(<2,3,5,5>) => ab**->ab**,ab**
aten::adaptive_max_pool2d(<2,3,5,5>) => ab**->ab**,ab**
aten::max_pool3d_with_indices(<2,3,5,5,5>) => ab***->ab***,ab***
aten::adaptive_max_pool3d(<2,3,5,5,5>) => ab***->ab***,ab***
aten::max_pool2d_with_indices_backward(<2,3,5,5>, <2,3,5,5>, <2,3,5,5>) => ab**,ab**,ab**->ab**; each(0)
aten::adaptive_max_pool2d_backward(<2,3,5,5>, <2,3,5,5>, <2,3,5,5>) => ab**,ab**,ab**->ab**; each(0)
aten::fractional_max_pool2d_backward(<2,3,5,5>, <2,3,5,5>, <2,3,5,5>) => ab**,ab**,ab**->ab**; each(0)
aten::max_pool3d_with_indices_backward(<2,3,5,5,5>, <2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***,ab***->ab***; each(0)
aten::adaptive_max_pool3d_backward(<2,3,5,5,5>, <2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***,ab***->ab***; each(0)
aten::fractional_max_pool3d_backward(<2,3,5,5,5>, <2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***,ab***->ab***; each(0)
aten::fractional_max_pool2d(self=<8,3,6,6>, kernel_size=[2,2], output_size=[3,3], random_samples=<8,3,2>) => ab**,ab*->ab**,ab**
aten::fractional_max_pool2d(self=<3,6,6>, kernel_size=[2,2], output_size=[3,3], random_samples=<1,3,2>) => a**,1a*->a**,a**
aten::fractional_max_pool3d(self=<8,3,6,6,6>, kernel_size=[2,2,2], output_size=[3,3,3], random_samples=<8,3,3>) => ab***,ab*->ab***,ab***
aten::max_unpool2d(<2,3,5,5>, <2,3,5,5>) => ab**,ab**->ab**; each(0)
aten::max_unpool3d(<2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***->ab***; each(0)
aten::avg_pool2d(<2,3,5,5>) => ab**->ab**; each
aten::_adaptive_avg_pool2d(<2,3,5,5>) => ab**->ab**; each
aten::avg_pool3d(<2,3,5,5,5>) => ab***->ab***; each
aten::_adaptive_avg_pool3d(<2,3,5,5,5>) => ab***->ab***; each
aten::avg_pool2d_backward(<2,3,5,5>, <2,3,5,5>) => ab**,ab**->ab**; each(0)
aten::_adaptive_avg_pool2d_backward(<2,3,5,5>, <2,3,5,5>) => ab**,ab**->ab**; each(0)
aten::avg_pool3d_backward(<2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***->ab***; each(0)
aten::_adaptive_avg_pool3d_backward(<2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***->ab***; each(0)
aten::reflection_pad1d(<2,3,5>) => ab*->ab*; each
aten::replication_pad1d(<2,3,5>) => ab*->ab*; each
aten::reflection_pad2d(<2,3,5,5>) => ab**->ab**; each
aten::replication_pad2d(<2,3,5,5>) => ab**->ab**; each
aten::reflection_pad2d_backward(<2,3,5,5>, <2,3,5,5>) => ab**,ab**->ab**; each(0)
aten::replication_pad2d_backward(<2,3,5,5>, <2,3,5,5>) => ab**,ab**->ab**; each(0)
aten::upsample_nearest1d(<2,3,5>) => ab*->ab*; each
aten::_upsample_nearest_exact1d(<2,3,5>) => ab*->ab*; each
aten::upsample_linear1d(<2,3,5>) => ab*->ab*; each
aten::upsample_nearest2d(<2,3,5,5>) => ab**->ab**; each
aten::_upsample_nearest_exact2d(<2,3,5,5>) => ab**->ab**; each
aten::upsample_bilinear2d(<2,3,5,5>) => ab**->ab**; each
aten::upsample_bicubic2d(<2,3,5,5>) => ab**->ab**; each
aten::_upsample_bilinear2d_aa(<2,3,5,5>) => ab**->ab**; each
aten::_upsample_bicubic2d_aa(<2,3,5,5>) => ab**->ab**; each
aten::_upsample_lanczos2d_aa(<2,3,5,5>) => ab**->ab**; each
aten::upsample_nearest3d(<2,3,5,5,5>) => ab***->ab***; each
aten::_upsample_nearest_exact3d(<2,3,5,5,5>) => ab***->ab***; each
aten::upsample_trilinear3d(<2,3,5,5,5>) => ab***->ab***; each
aten::upsample_nearest1d_backward(grad_output=<8,3,6>, output_size=[6], input_size=[8,3,3]) => ab*->ab*; each
aten::_upsample_nearest_exact1d_backward(grad_output=<8,3,6>, output_size=[6], input_size=[8,3,3]) => ab*->ab*; each
aten::upsample_linear1d_backward(grad_output=<8,3,6>, output_size=[6], input_size=[8,3,3]) => ab*->ab*; each
aten::upsample_nearest2d_backward(grad_output=<8,3,6,6>, output_size=[6,6], input_size=[8,3,3,3]) => ab**->ab**; each
aten::_upsample_nearest_exact2d_backward(grad_output=<8,3,6,6>, output_size=[6,6], input_size=[8,3,3,3]) => ab**->ab**; each
aten::upsample_bilinear2d_backward(grad_output=<8,3,6,6>, output_size=[6,6], input_size=[8,3,3,3]) => ab**->ab**; each
aten::upsample_bicubic2d_backward(grad_output=<8,3,6,6>, output_size=[6,6], input_size=[8,3,3,3]) => ab**->ab**; each
aten::_upsample_bilinear2d_aa_backward(grad_output=<8,3,6,6>, output_size=[6,6], input_size=[8,3,3,3]) => ab**->ab**; each
aten::_upsample_bicubic2d_aa_backward(grad_output=<8,3,6,6>, output_size=[6,6], input_size=[8,3,3,3]) => ab**->ab**; each
aten::_upsample_lanczos2d_aa_backward(grad_output=<8,3,6,6>, output_size=[6,6], input_size=[8,3,3,3]) => ab**->ab**; each
aten::upsample_nearest3d_backward(grad_output=<8,3,6,6,6>, output_size=[6,6,6], input_size=[8,3,3,3,3]) => ab***->ab***; each
aten::_upsample_nearest_exact3d_backward(grad_output=<8,3,6,6,6>, output_size=[6,6,6], input_size=[8,3,3,3,3]) => ab***->ab***; each
aten::upsample_trilinear3d_backward(grad_output=<8,3,6,6,6>, output_size=[6,6,6], input_size=[8,3,3,3,3]) => ab***->ab***; each
aten::grid_sampler_2d(input=<8,3,6,6>, grid=<8,4,5,2>) => ab**,acd*->abcd; each(0)
aten::grid_sampler_3d(input=<8,3,6,6,6>, grid=<8,4,5,7,3>) => ab***,acde*->abcde; each(0)
aten::grid_sampler_2d_backward(grad_output=<8,3,4,5>, input=<8,3,6,6>, grid=<8,4,5,2>) => abcd,ab**,acd*->ab**,acd*; each(0)
aten::grid_sampler_3d_backward(grad_output=<8,3,4,5,7>, input=<8,3,6,6,6>, grid=<8,4,5,7,3>) => abcde,ab***,acde*->ab***,acde*; each(0)
aten::affine_grid_generator(theta=<8,2,3>, size=[8,3,6,5], align_corners=false) => a**->a***; each
aten::_scaled_dot_product_flash_attention_for_cpu(query=<8,4,16,6>, key=<8,4,16,6>, value=<8,4,16,6>, is_causal=false, attn_mask=?) => abc*,ab**,ab**,?->abc*,abc
aten::_scaled_dot_product_flash_attention_for_cpu(query=<8,4,16,6>, key=<8,2,16,6>, value=<8,2,16,6>, is_causal=false, attn_mask=<16,16>) => a(bc)d*,ab**,ab**,d*->a(bc)d*,a(bc)d
aten::_scaled_dot_product_flash_attention_for_cpu(query=<8,4,16,6>, key=<8,4,16,6>, value=<8,4,16,6>, is_causal=false, attn_mask=<8,1,16,16>) => abc*,ab**,ab**,a1c*->abc*,abc
aten::_scaled_dot_product_flash_attention_for_cpu(query=<8,4,16,6>, key=<8,4,16,6>, value=<8,4,16,6>, is_causal=true, attn_mask=?) => ab**,ab**,ab**,?->ab**,ab*
aten::_scaled_dot_product_flash_attention_for_cpu_backward(grad_out=<8,4,16,6>, query=<8,4,16,6>, key=<8,4,16,6>, value=<8,4,16,6>, out=<8,4,16,6>, logsumexp=<8,4,16>, is_causal=false, attn_mask=?) => abc*,abc*,ab**,ab**,abc*,abc,?->abc*,ab**,ab**; each(0)
aten::_scaled_dot_product_flash_attention_for_cpu_backward(grad_out=<8,4,16,6>, query=<8,4,16,6>, key=<8,2,16,6>, value=<8,2,16,6>, out=<8,4,16,6>, logsumexp=<8,4,16>, is_causal=true, attn_mask=?) => a(bc)**,a(bc)**,ab**,ab**,a(bc)**,a(bc)*,?->a(bc)**,ab**,ab**; each(0)
aten::_fused_sdp_choice(query=<8,4,16,6>, key=<8,4,16,6>, value=<8,4,16,6>, attn_mask=?, is_causal=true) => ab**,ab**,ab**,?->; each reduced
aten::_transform_bias_rescale_qkv(qkv=<8,16,24>, qkv_bias=<24>, num_heads=2) => ab*,*->a*b*,a*b*,a*b*
aten::_native_multi_head_attention(query=<8,16,6>, key=<8,16,6>, value=<8,16,6>, embed_dim=6, num_head=2, qkv_weight=<18,6>, qkv_bias=<18>, proj_weight=<6,6>, proj_bias=<6>, mask=?, need_weights=true, average_attn_weights=true, mask_type=none) => a**,a**,a**,**,*,**,*,?->a**,a**
aten::_native_multi_head_attention(query=<8,16,6>, key=<8,16,6>, value=<8,16,6>, embed_dim=6, num_head=2, qkv_weight=<18,6>, qkv_bias=<18>, proj_weight=<6,6>, proj_bias=<6>, mask=<8,16>, need_weights=false, average_attn_weights=true, mask_type=1) => a**,a**,a**,**,*,**,*,a*->a**,*
aten::_transformer_encoder_layer_fwd(src=<8,16,6>, embed_dim=6, num_heads=2, qkv_weight=<18,6>, qkv_bias=<18>, proj_weight=<6,6>, proj_bias=<6>, use_gelu=false, norm_first=false, norm_weight_1=<6>, norm_bias_1=<6>, norm_weight_2=<6>, norm_bias_2=<6>, ffn_weight_1=<12,6>, ffn_bias_1=<12>, ffn_weight_2=<6,12>, ffn_bias_2=<6>, mask=<16,16>, mask_type=0) => a**,**,*,**,*,*,*,*,*,**,*,**,*,**->a**
aten::mkldnn_rnn_layer(input=<16,8,3>, weight0=<20,3>, weight1=<20,5>, weight2=<20>, weight3=<20>, hx_=<8,5>, cx_=<8,5>) => *a*,**,**,*,*,a*,a*->*a*,a*,a*,*; reduced(3)
aten::mkldnn_rnn_layer_backward(input=<16,8,3>, weight1=<20,3>, weight2=<20,5>, weight3=<20>, weight4=<20>, hx_=<1,8,5>, cx_tmp=<1,8,5>, output=<16,8,5>, hy_=<1,8,5>, cy_=<1,8,5>, grad_output=<16,8,5>, grad_hy=<1,8,5>, grad_cy=<1,8,5>, workspace=<99>) => *a*,**,**,*,*,*a*,*a*,*a*,*a*,*a*,*a*,*a*,*a*,*->*a*,**,**,*,*,*a*,*a*; joint(10,11,12)
aten::nll_loss_forward(self=<8,5>, target=<8>, weight=?, reduction=1) => ab,a,?->,; reduced(1)
aten::nll_loss_forward(self=<8,5>, target=<8>, weight=<5>, reduction=0) => ab,a,b->a,; reduced(1)
aten::nll_loss_forward(self=<5>, target=<>, weight=?, reduction=2) => a,,?->,; reduced(1)
aten::nll_loss2d_forward(self=<8,5,6,6>, target=<8,6,6>, weight=?, reduction=1) => ab**,a**,?->,; reduced(1)
aten::nll_loss_backward(grad_output=<>, self=<8,5>, target=<8>, weight=?, reduction=1, total_weight=<>) => ,ab,a,?,->ab; each(0)
aten::nll_loss_backward(grad_output=<8>, self=<8,5>, target=<8>, weight=?, reduction=0, total_weight=<>) => a,ab,a,?,->ab; each(0)
aten::nll_loss2d_backward(grad_output=<>, self=<8,5,6,6>, target=<8,6,6>, weight=?, reduction=1, total_weight=<>) => ,ab**,a**,?,->ab**; each(0)
aten::mse_loss(self=<8,4>, target=<8,4>, reduction=1) => ab,ab->
aten::mse_loss(self=<8,4>, target=<8,4>, reduction=0) => ab,ab->ab
aten::smooth_l1_loss(self=<8,4>, target=<8,4>, reduction=1) => ab,ab->
aten::huber_loss(self=<8,4>, target=<8,4>, reduction=1) => ab,ab->
aten::soft_margin_loss(self=<8,4>, target=<8,4>, reduction=1) => ab,ab->
aten::binary_cross_entropy(self=<8,4>, target=<8,4>, weight=?, reduction=2) => ab,ab,?->
aten::binary_cross_entropy_with_logits(self=<8,4>, target=<8,4>, weight=?, pos_weight=<4>, reduction=1) => ab,ab,?,b->
aten::mse_loss_backward(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; each(0)
aten::smooth_l1_loss_backward(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; each(0)
aten::huber_loss_backward(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; each(0)
aten::soft_margin_loss_backward(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; each(0)
aten::binary_cross_entropy_backward(<2,3>, <2,3>, <2,3>, <2,3>) => ab,ab,ab,ab->ab; each(0)
aten::multi_margin_loss(self=<8,5>, target=<8>, weight=<5>, reduction=1) => a*,a,*->
aten::multi_margin_loss(self=<5>, target=<1>, weight=?, reduction=0) => *,*,?->
aten::multi_margin_loss_backward(grad_output=<8>, self=<8,5>, target=<8>, weight=?, reduction=0) => a,a*,a,?->a*; each(0)
aten::multilabel_margin_loss_forward(self=<8,5>, target=<8,5>, reduction=2) => a*,a*->,a*
aten::multilabel_margin_loss_backward(grad_output=<>, self=<8,5>, target=<8,5>, reduction=1, is_target=<8,5>) => ,a*,a*,a*->a*; each(0)
aten::_ctc_loss(log_probs=<9,8,5>, targets=<8,3>, input_lengths=[9,9,9,9,9,9,9,9], target_lengths=[3,3,3,3,3,3,3,3]) => ***,**->*,***
aten::_ctc_loss.Tensor(log_probs=<9,8,5>, targets=<8,3>, input_lengths=<8>, target_lengths=<8>) => *a*,a*,a,a->a,a**
aten::_ctc_loss.Tensor(log_probs=<9,8,5>, targets=<20>, input_lengths=<8>, target_lengths=<8>) => ***,*,*,*->*,***
aten::_ctc_loss_backward(grad=<8>, log_probs=<9,8,5>, targets=<8,3>, input_lengths=[9,9,9,9,9,9,9,9], target_lengths=[3,3,3,3,3,3,3,3], neg_log_likelihood=<8>, log_alpha=<8,9,7>) => *,***,**,*,***->***; each(0)
aten::_ctc_loss_backward.Tensor(grad=<8>, log_probs=<9,8,5>, targets=<8,3>, input_lengths=<8>, target_lengths=<8>, neg_log_likelihood=<8>, log_alpha=<8,9,7>) => a,*a*,a*,a,a,a,a**->*a*; each(0)
aten::cholesky_inverse(<2,5,5>) => a**->a**
aten::linalg_matrix_exp(<2,5,5>) => a**->a**
aten::linalg_matrix_sqrth(<2,5,5>) => a**->a**
aten::linalg_cholesky_ex(<2,5,5>) => a**->a**,a
aten::linalg_inv_ex(<2,5,5>) => a**->a**,a
aten::_linalg_det(<2,5,5>) => a**->a,a**,a*
aten::_linalg_slogdet(<2,5,5>) => a**->a,a,a**,a*
aten::linalg_qr(A=<2,5,3>, mode=reduced) => a**->a**,a**
aten::linalg_qr(A=<2,5,3>, mode=r) => a**->*,a**
aten::_linalg_svd(A=<2,5,3>, full_matrices=false, compute_uv=true, driver=none) => a**->a**,a*,a**
aten::_linalg_svd(A=<2,5,3>, full_matrices=false, compute_uv=false, driver=none) => a**->*,a*,*
aten::_linalg_eigh(A=<2,5,5>, UPLO=L, compute_v=true) => a**->a*,a**
aten::_linalg_eigh(A=<2,5,5>, UPLO=L, compute_v=false) => a**->a*,*
aten::linalg_eig(<2,5,5>) => a**->a*,a**
aten::_linalg_eigvals(<2,5,5>) => a**->a*
aten::geqrf(<2,5,3>) => a**->a**,a*
aten::linalg_polar(<2,5,5>) => a**->a**,a**
aten::linalg_lu_factor_ex(<2,5,5>) => a**->a**,a*,a
aten::linalg_ldl_factor_ex(<2,5,5>) => a**->a**,a*,a
aten::linalg_lu(A=<2,5,3>, pivot=true) => a**->a**,a**,a**
aten::linalg_lu(A=<2,5,3>, pivot=false) => a**->*,a**,a**
aten::lu_unpack(LU_data=<2,5,5>, LU_pivots=<2,5>, unpack_data=true, unpack_pivots=false) => a**,a*->*,a**,a**
aten::linalg_householder_product(<2,5,3>, <2,3>) => a**,a*->a**
aten::_linalg_solve_ex(A=<2,5,5>, B=<2,5,3>, left=true) => a**,a*b->a*b,a**/b,a*/b,a/b; each(1) reduced(1,2,3)
aten::_linalg_solve_ex(A=<5,5>, B=<2,4,5>, left=false) => **,ab*->ab*,**/ba,*/ba,/ba; each(1) reduced(1,2,3)
aten::_linalg_solve_ex(A=<2,5,5>, B=<2,5>, left=true) => a**,a*->a*,a**,a*,a; each(1) reduced(1,2,3)
aten::linalg_solve_triangular(self=<2,5,5>, B=<2,5,3>, upper=false, left=true) => a**,a*b->a*b; each(1)
aten::triangular_solve(<2,5,3>, <2,5,5>) => a*b,a**->a*b,a**/b; each(0) reduced(1)
aten::cholesky_solve(<2,5,3>, <2,5,5>) => a*b,a**->a*b; each(0)
aten::_cholesky_solve_helper(<2,5,3>, <2,5,5>) => a*b,a**->a*b; each(0)
aten::linalg_lu_solve(LU=<2,5,5>, pivots=<2,5>, B=<2,5,3>, left=true) => a**,a*,a*b->a*b; each(2)
aten::linalg_ldl_solve(<2,5,5>, <2,5>, <2,5,3>) => a**,a*,a*b->a*b; each(2)
aten::ormqr(self=<2,5,3>, input2=<2,3>, input3=<2,4,5>, left=false) => a**,a*,ab*->ab*; each(2)
aten::linalg_lstsq(self=<2,5,3>, b=<2,5,4>, driver=none) => a**,a**->a**,*,a,*
aten::linalg_lstsq(self=<2,5,3>, b=<2,5>, driver=gelsd) => a**,a*->a*,a,a,a*
aten::linalg_pinv.atol_rtol_tensor(self=<2,5,3>, atol=<2>, rtol=?) => a**,a,?->a**
aten::_linalg_check_errors(info=<2,3>, api_name=inv) => **->
aten::_fft_r2c(self=<8,4,6>, dim=[1,2], normalization=0, onesided=true) => a**->a**; each
aten::_fft_c2r(self=<8,4,6>, dim=[2], normalization=0, last_dim_size=10) => ab*->ab*; each
aten::_fft_c2c(self=<8,4,6>, dim=[0], normalization=0, forward=true) => *ab->*ab; each
aten::_fused_sgd(self=<8,4>, grads=<8,4>, momentum_buffer_list=<8,4>) => ab,ab,ab->ab,ab,ab
aten::_fused_sgd(self=<8,4><6>, grads=<8,4><6>, momentum_buffer_list=<8,4><6>) => **,*,**,*,**,*->**,*,**,*,**,*
aten::_fused_sgd.tensor_lr(self=<8,4>, grads=<8,4>, momentum_buffer_list=<8,4>, lr=<>) => ab,ab,ab,->ab,ab,ab,/ab
aten::_fused_adagrad(self=<8,4>, grads=<8,4>, state_sums=<8,4>, state_steps=<>) => ab,ab,ab,->ab,ab,ab,/ab
aten::_fused_adagrad.tensor_lr(self=<8,4>, grads=<8,4>, state_sums=<8,4>, state_steps=<>, lr=<>) => ab,ab,ab,,->ab,ab,ab,/ab,/ab
aten::_fused_adam(self=<8,4>, grads=<8,4>, exp_avgs=<8,4>, exp_avg_sqs=<8,4>, state_steps=<>) => ab,ab,ab,ab,->ab,ab,ab,ab,/ab
aten::_fused_adam.tensor_lr(self=<8,4>, grads=<8,4>, exp_avgs=<8,4>, exp_avg_sqs=<8,4>, state_steps=<>, lr=<>) => ab,ab,ab,ab,,->ab,ab,ab,ab,/ab,/ab
aten::_fused_adamw(self=<8,4>, grads=<8,4>, exp_avgs=<8,4>, exp_avg_sqs=<8,4>, state_steps=<>, grad_scale=?, found_inf=<>) => ab,ab,ab,ab,,?,->ab,ab,ab,ab,/ab,/ab
aten::_fused_adamw.tensor_lr(self=<8,4>, grads=<8,4>, exp_avgs=<8,4>, exp_avg_sqs=<8,4>, state_steps=<>, lr=<>) => ab,ab,ab,ab,,->ab,ab,ab,ab,/ab,/ab
aten::_amp_foreach_non_finite_check_and_unscale(self=<8,4>, found_inf=<>, inv_scale=<>) => **,,->**,
aten::_amp_update_scale(<>, <>, <>) => ,,->,
aten::zeros_like(<2,3>) => ab->ab; each reduced
aten::empty_like(<2,3>) => ab->ab; each reduced
aten::ones_like(<2,3>) => ab->ab; each reduced
aten::full_like(<2,3>) => ab->ab; each reduced
aten::rand_like(<2,3>) => ab->ab; each reduced
aten::randn_like(<2,3>) => ab->ab; each reduced
aten::randint_like(<2,3>) => ab->ab; each reduced
aten::randint_like.low_dtype(<2,3>) => ab->ab; each reduced
aten::fill.Scalar(<2,3>) => ab->ab; each reduced
aten::cauchy(<2,3>) => ab->ab; each reduced
aten::log_normal(<2,3>) => ab->ab; each reduced
aten::geometric(<2,3>) => ab->ab; each reduced
aten::normal.Tensor_Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::normal.Tensor_float(<2,3>) => ab->ab
aten::normal.float_Tensor(<2,3>) => ab->ab
aten::rand_like.generator(<2,3>) => ab->ab
aten::randn_like.generator(<2,3>) => ab->ab
aten::randint_like.generator(<2,3>) => ab->ab
aten::randint_like.low_generator_dtype(<2,3>) => ab->ab
aten::poisson(<2,3>) => ab->ab
aten::_standard_gamma(<2,3>) => ab->ab
aten::randint_like.Tensor(<2,3>, <>) => ab,->ab
aten::randint_like.Tensor_generator(<2,3>, <>) => ab,->ab
aten::binomial(<2,3>, <2,3>) => ab,ab->ab
aten::_sample_dirichlet(<2,3>) => a*->a*
aten::multinomial(<2,3>) => a*->a*
aten::new_zeros(self=<8,4>, size=[8,4]) => ab->ab; each reduced
aten::new_zeros(self=<8,4>, size=[6]) => ab->*; each reduced
aten::new_empty(self=<8,4>, size=[8,4]) => ab->ab; each reduced
aten::new_empty(self=<8,4>, size=[6]) => ab->*; each reduced
aten::new_empty_strided(self=<8,4>, size=[8,4], stride=[4,1]) => ab->ab; each reduced
aten::new_full(self=<8,4>, size=[8,4]) => ab->ab; each reduced
aten::new_full(self=<8,4>, size=[6]) => ab->*; each reduced
aten::new_ones(self=<8,4>, size=[8,4]) => ab->ab; each reduced
aten::new_ones(self=<8,4>, size=[6]) => ab->*; each reduced
aten::linspace.Scalar_Tensor(<>) => ->*
aten::linspace.Tensor_Scalar(<>) => ->*
aten::logspace.Scalar_Tensor(<>) => ->*
aten::logspace.Tensor_Scalar(<>) => ->*
aten::linspace.Tensor_Tensor(<>, <>) => ,->*
aten::logspace.Tensor_Tensor(<>, <>) => ,->*
aten::clone(<2,3>) => ab->ab; each
aten::zero(<2,3>) => ab->ab; each
aten::lift_fresh_copy(<2,3>) => ab->ab; each
aten::_lazy_clone(<2,3>) => ab->ab; each
aten::_to_copy(self=<8,4>, dtype=15) => ab->ab; each
aten::_to_copy(self=<8,4>, dtype=4) => ab->ab
aten::_to_copy(self=<8,4>, dtype=none) => ab->ab; each
aten::fill.Tensor(<2,3>, <>) => ab,->ab; joint
aten::copy(<2,3>, <2,3>) => ab,ab->ab; joint
)";
