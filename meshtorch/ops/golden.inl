// SPDX-License-Identifier: Apache-2.0
//
// One line or more for every op that has a rule: an example call and the rule bound to it. The form of
// calls is call_text.h's.
inline constexpr const char* kGolden = R"(
aten::neg(<2,3>) => ab->ab; each
aten::positive(<2,3>) => ab->ab; each
aten::mul.Scalar(<2,3>) => ab->ab; each
aten::div.Scalar(<2,3>) => ab->ab; each
aten::_conj(<2,3>) => ab->ab; each
aten::conj_physical(<2,3>) => ab->ab; each
aten::resolve_conj(<2,3>) => ab->ab; each
aten::resolve_neg(<2,3>) => ab->ab; each
aten::_neg_view(<2,3>) => ab->ab; each
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
aten::nan_to_num(<2,3>) => ab->ab
aten::rad2deg(<2,3>) => ab->ab
aten::reciprocal(<2,3>) => ab->ab
aten::relu(<2,3>) => ab->ab
aten::relu6(<2,3>) => ab->ab
aten::round(<2,3>) => ab->ab
aten::round.decimals(<2,3>) => ab->ab
aten::rsqrt(<2,3>) => ab->ab
aten::selu(<2,3>) => ab->ab
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
aten::square(<2,3>) => ab->ab
aten::tan(<2,3>) => ab->ab
aten::tanh(<2,3>) => ab->ab
aten::threshold(<2,3>) => ab->ab
aten::trunc(<2,3>) => ab->ab
aten::bitwise_not(<2,3>) => ab->ab
aten::frexp.Tensor(<2,3>) => ab->ab,ab
aten::log_sigmoid_forward(<2,3>) => ab->ab,ab
aten::add.Tensor(<2,3>, <2,3>) => ab,ab->ab; joint
aten::sub.Tensor(<2,3>, <2,3>) => ab,ab->ab; joint
aten::rsub.Tensor(<2,3>, <2,3>) => ab,ab->ab; joint
aten::mul.Tensor(<2,3>, <2,3>) => ab,ab->ab; each
aten::div.Tensor(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::atan2(<2,3>, <2,3>) => ab,ab->ab
aten::copysign.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::div.Tensor_mode(<2,3>, <2,3>) => ab,ab->ab
aten::floor_divide(<2,3>, <2,3>) => ab,ab->ab
aten::fmax(<2,3>, <2,3>) => ab,ab->ab
aten::fmin(<2,3>, <2,3>) => ab,ab->ab
aten::fmod.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::heaviside(<2,3>, <2,3>) => ab,ab->ab
aten::hypot(<2,3>, <2,3>) => ab,ab->ab
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
aten::_prelu_kernel(<2,3>, <2,3>) => ab,ab->ab
aten::bernoulli.Tensor(<2,3>, <2,3>) => ab,ab->ab
aten::masked_fill.Scalar(<2,3>, <2,3>) => ab,ab->ab
aten::add.Scalar(<2,3>) => ab->ab
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
aten::eq.Scalar(<2,3>) => ab->ab
aten::ne.Scalar(<2,3>) => ab->ab
aten::lt.Scalar(<2,3>) => ab->ab
aten::le.Scalar(<2,3>) => ab->ab
aten::gt.Scalar(<2,3>) => ab->ab
aten::ge.Scalar(<2,3>) => ab->ab
aten::bitwise_and.Scalar(<2,3>) => ab->ab
aten::bitwise_or.Scalar(<2,3>) => ab->ab
aten::bitwise_xor.Scalar(<2,3>) => ab->ab
aten::where.self(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; joint(1,2)
aten::addcmul(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; joint(0) each(1,2)
aten::addcdiv(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; joint(0) each(1)
aten::lerp.Scalar(<2,3>, <2,3>) => ab,ab->ab
aten::lerp.Tensor(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab
aten::clamp.Tensor(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab
aten::masked_fill.Tensor(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab
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
aten::log_sigmoid_backward(<2,3>, <2,3>, <2,3>) => ab,ab,ab->ab; each(0)
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
aten::trace(<5,5>) => **->; each
aten::amax(self=<8,4,6>) => ***->
aten::amax(self=<8,4,6>, dim=[0,2], keepdim=true) => *a*->1a1
aten::amin(self=<8,4,6>) => ***->
aten::max(self=<8,4,6>) => ***->
aten::min(self=<8,4,6>) => ***->
aten::argmax(self=<8,4,6>) => ***->
aten::argmin(self=<8,4,6>) => ***->
aten::any(self=<8,4,6>) => ***->
aten::any.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::any.dims(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::all(self=<8,4,6>) => ***->
aten::all.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::all.dims(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::prod(self=<8,4,6>) => ***->
aten::prod.dim_int(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::var(self=<8,4,6>) => ***->
aten::var.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::var.correction(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::std(self=<8,4,6>) => ***->
aten::std.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::std.correction(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::logsumexp(self=<8,4,6>) => ***->
aten::linalg_vector_norm(self=<8,4,6>) => ***->
aten::linalg_vector_norm(self=<8,4,6>, dim=[0,2], keepdim=true) => *a*->1a1
aten::norm.Scalar(self=<8,4,6>) => ***->
aten::norm.ScalarOpt_dtype(self=<8,4,6>) => ***->
aten::norm.ScalarOpt_dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::norm.ScalarOpt_dim_dtype(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab
aten::median(self=<8,4,6>) => ***->
aten::nanmedian(self=<8,4,6>) => ***->
aten::max.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::min.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::aminmax(self=<8,4,6>) => ***->,
aten::median.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::nanmedian.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::mode(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::kthvalue(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::var_mean(self=<8,4,6>) => ***->,
aten::var_mean.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::var_mean.correction(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::std_mean(self=<8,4,6>) => ***->,
aten::std_mean.dim(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::std_mean.correction(self=<8,4,6>, dim=1, keepdim=false) => a*b->ab,ab
aten::cumsum(self=<8,4,6>, dim=1) => a*b->a*b; each
aten::cumprod(self=<8,4,6>, dim=1) => a*b->a*b
aten::logcumsumexp(self=<8,4,6>, dim=1) => a*b->a*b
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
aten::ger(<12>, <13>) => a,b->ab; each
aten::addmm(self=<6>, mat1=<8,4>, mat2=<4,6>) => a,bc,ca->ba; joint(0) each(1,2)
aten::addmm(self=<8,1>, mat1=<8,4>, mat2=<4,6>) => a1,ab,bc->ac; joint(0) each(1,2)
aten::addmm(self=<>, mat1=<8,4>, mat2=<4,6>) => ,ab,bc->ac; joint(0) each(1,2)
aten::baddbmm(self=<8,1,5>, batch1=<8,4,6>, batch2=<8,6,5>) => a1b,acd,adb->acb; joint(0) each(1,2)
aten::addbmm(self=<4,5>, batch1=<8,4,6>, batch2=<8,6,5>) => ab,cad,cdb->ab; joint(0) each(1,2)
aten::addmv(self=<8>, mat=<8,4>, vec=<4>) => a,ab,b->a; joint(0) each(1,2)
aten::addr(self=<8,4>, vec1=<8>, vec2=<4>) => ab,a,b->ab; joint(0) each(1,2)
aten::linear(<2,3,14>, <18,14>, <18>) => abc,dc,d->abd; joint(2) each(0,1)
aten::linear_backward(<2,3,14>, <2,3,18>, <18,14>) => abc,abd,dc->abc,dc,d; each(1)
aten::alias(<2,3>) => ab->ab; each
aten::detach(<2,3>) => ab->ab; each
aten::lift(<2,3>) => ab->ab; each
aten::lift_fresh(<2,3>) => ab->ab; each
aten::view_as_real(<2,3>) => ab->ab*; each
aten::view_as_complex(<2,3,5>) => ab*->ab; each
aten::view(self=<8,4,6>, size=[-1,6]) => abc->(ab)c; each
aten::view(self=<6,4>, size=[3,8]) => (ab)c->a(bc); each
aten::view(self=<4,6>, size=[6,4]) => (a*)*->(a*)*; each
aten::view(self=<2,1,3>, size=[2,3]) => a1b->ab; each
aten::_unsafe_view(self=<8,4,6>, size=[-1,6]) => abc->(ab)c; each
aten::_reshape_alias(self=<8,4>, size=[32], stride=[1]) => ab->(ab); each
aten::_reshape_copy(self=<8,4,6>, size=[-1,6]) => abc->(ab)c; each
aten::expand(self=<4,1>, size=[8,4,6]) => a1->bac; each
aten::expand(self=<4,6>, size=[8,-1,-1]) => ab->cab; each
aten::permute(self=<8,4,6>, dims=[2,0,-2]) => abc->cab; each
aten::transpose.int(self=<8,4,6>, dim0=-1, dim1=0) => abc->cba; each
aten::t(self=<8,4>) => ab->ba; each
aten::t(self=<8>) => a->a; each
aten::squeeze(self=<8,1,6>) => a1b->ab; each
aten::squeeze.dim(self=<8,1,6>, dim=1) => a1b->ab; each
aten::squeeze.dim(self=<8,1,6>, dim=0) => abc->abc; each
aten::squeeze.dims(self=<1,1,6>, dim=[0,2]) => 1ab->ab; each
aten::unsqueeze(self=<8,4>, dim=1) => ab->a1b; each
aten::unsqueeze(self=<8,4>, dim=-1) => ab->ab1; each
aten::select.int(self=<8,4,6>, dim=1, index=2) => a*b->ab; each
aten::select_backward(grad_output=<8,6>, input_sizes=[8,4,6], dim=1, index=2) => ab->a*b; each
aten::slice.Tensor(self=<8,4>, dim=0, start=2, end=6, step=1) => *a->*a; each
aten::slice.Tensor(self=<8,4>, dim=1, start=none, end=none, step=1) => ab->ab; each
aten::slice_backward(grad_output=<4,4>, input_sizes=[8,4], dim=0, start=2, end=6, step=1) => *a->*a; each
aten::split.Tensor(self=<8,4>, split_size=3, dim=0) => *a->*a,*a,*a; each
aten::unsafe_split.Tensor(self=<8,4>, split_size=3, dim=0) => *a->*a,*a,*a; each
aten::split_with_sizes(self=<8,4>, split_sizes=[5,3], dim=0) => *a->*a,*a; each
aten::unsafe_split_with_sizes(self=<8,4>, split_sizes=[5,3], dim=0) => *a->*a,*a; each
aten::unbind.int(self=<3,4>, dim=0) => *a->a,a,a; each
aten::diagonal(self=<8,4,6>, offset=0, dim1=0, dim2=2) => *a*->a*; each
aten::diagonal_backward(grad_output=<4,6>, input_sizes=[8,4,6], offset=0, dim1=0, dim2=2) => a*->*a*; each
aten::unfold(self=<8,4>, dimension=0, size=3, step=1) => *a->*a*; each
aten::unfold_backward(grad_in=<6,4,3>, input_sizes=[8,4], dim=0, size=3, step=1) => *a*->*a; each
aten::cat(tensors=<8,4><8,6>, dim=1) => a*,a*->a*; joint
aten::cat(tensors=<0><8,6>, dim=0) => *,*a->*a; joint
aten::stack(tensors=<8,4><8,4>, dim=1) => ab,ab->a*b; joint
aten::repeat(self=<8,4>, repeats=[3,1,2]) => a*->*a*; each
aten::constant_pad_nd(self=<8,4,6>, pad=[1,1,0,0]) => ab*->ab*
aten::flip(self=<8,4>, dims=[1]) => a*->a*; each
aten::roll(self=<8,4>, shifts=[1], dims=[]) => **->**; each
aten::tril(<2,3,5,5>) => ab**->ab**; each
aten::triu(<2,3,5,5>) => ab**->ab**; each
aten::glu(self=<8,4>, dim=-1) => a*->a*
aten::glu_backward(grad_output=<8,2>, self=<8,4>, dim=-1) => a*,a*->a*; each(0)
aten::_pack_padded_sequence(input=<8,4,6>, lengths=<4>, batch_first=false) => ***,*->**,*
aten::_pad_packed_sequence(data=<20,6>, batch_sizes=<8>, batch_first=false) => **,*->***,*
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
aten::index_put(self=<8,4,6>, indices=?<3>, values=<8,3,6>, accumulate=true) => a*b,?,*,a*b->a*b; joint(0,3)
aten::index_put(self=<8,4,6>, indices=<3>, values=<6>, accumulate=false) => *ab,*,b->*ab
aten::_index_put_impl(self=<8,4,6>, indices=?<3>, values=<8,3,6>, accumulate=true) => a*b,?,*,a*b->a*b; joint(0,3)
aten::_index_put_impl(self=<8,4,6>, indices=<3>, values=<6>, accumulate=false) => *ab,*,b->*ab
aten::bucketize.Tensor(<2,3>, <5>) => ab,*->ab
aten::native_layer_norm(input=<8,4,6>, normalized_shape=[6], weight=<6>, bias=<6>) => ab*,*,*->ab*,ab1,ab1
aten::native_layer_norm(input=<8,4,6>, normalized_shape=[4,6], weight=?, bias=?) => a**,?,?->a**,a11,a11
aten::native_layer_norm_backward(grad_out=<8,4,6>, input=<8,4,6>, normalized_shape=[6], mean=<8,4,1>, rstd=<8,4,1>, weight=<6>, bias=<6>, output_mask=[1,1,1]) => ab*,ab*,ab1,ab1,*,*->ab*,*,*; each(0)
aten::_fused_rms_norm(input=<8,4,6>, normalized_shape=[6], weight=<6>) => ab*,*->ab*,ab1
aten::_fused_rms_norm_backward(grad_out=<8,4,6>, input=<8,4,6>, normalized_shape=[6], rstd=<8,4,1>, weight=<6>, output_mask=[1,1]) => ab*,ab*,ab1,*->ab*,*; each(0)
aten::native_batch_norm(input=<8,3,6,6>, weight=<3>, bias=<3>, running_mean=<3>, running_var=<3>, training=true) => ab**,b,b,b,b->ab**,b,b; reduced(1,2)
aten::native_batch_norm(input=<8,3>, weight=?, bias=?, running_mean=<3>, running_var=<3>, training=false) => ab,?,?,b,b->ab,*,*; reduced(1,2)
aten::_native_batch_norm_legit(input=<8,3,6,6>, weight=<3>, bias=<3>, running_mean=<3>, running_var=<3>, training=true) => ab**,b,b,b,b->ab**,b,b; reduced(1,2)
aten::native_batch_norm_backward(grad_out=<8,3,6,6>, input=<8,3,6,6>, weight=<3>, running_mean=<3>, running_var=<3>, save_mean=<3>, save_invstd=<3>, train=true) => ab**,ab**,b,b,b,b,b->ab**,b,b; each(0)
aten::native_batch_norm_backward(grad_out=<8,3>, input=<8,3>, weight=<3>, running_mean=<3>, running_var=<3>, save_mean=<0>, save_invstd=<0>, train=false) => ab,ab,b,b,b,*,*->ab,b,b; each(0)
aten::native_group_norm(input=<8,4,6,6>, weight=<4>, bias=<4>, N=8, C=4, HxW=36, group=2) => a***,*,*->a***,a*,a*
aten::native_group_norm_backward(grad_out=<8,4,6,6>, input=<8,4,6,6>, mean=<8,2>, rstd=<8,2>, weight=<4>, N=8, C=4, HxW=36, group=2) => a***,a***,a*,a*,*->a***,*,*; each(0)
aten::_softmax(self=<8,4,6>, dim=-1) => ab*->ab*
aten::_safe_softmax(self=<8,4,6>, dim=-1) => ab*->ab*
aten::_softmax_backward_data(grad_output=<8,4,6>, output=<8,4,6>, dim=1) => a*b,a*b->a*b; each(0)
aten::_log_softmax(<2,3>) => ab->ab
aten::_log_softmax_backward_data(<2,3>, <2,3>) => ab,ab->ab; each(0)
aten::convolution(input=<8,3,6,6>, weight=<5,3,3,3>, bias=<5>, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1) => ab**,cb**,c->ac**; joint(2) each(0,1)
aten::convolution(input=<8,4,6,6>, weight=<4,1,3,3>, bias=?, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=4) => a***,****,?->a***; joint(2) each(0,1)
aten::convolution(input=<8,3,6,6>, weight=<3,5,3,3>, bias=<5>, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=true, output_padding=[0,0], groups=1) => ab**,bc**,c->ac**; joint(2) each(0,1)
aten::convolution_backward(grad_output=<8,5,6,6>, input=<8,3,6,6>, weight=<5,3,3,3>, bias_sizes=[5], stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1) => ab**,ac**,bc**->ac**,bc**,b; each(0)
aten::convolution_backward(grad_output=<8,5,6,6>, input=<8,3,6,6>, weight=<5,3,3,3>, bias_sizes=none, stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1) => ab**,ac**,bc**->ac**,bc**,b; each(0)
aten::max_pool2d_with_indices(<2,3,5,5>) => ab**->ab**,ab**
aten::adaptive_max_pool2d(<2,3,5,5>) => ab**->ab**,ab**
aten::max_pool2d_with_indices_backward(<2,3,5,5>, <2,3,5,5>, <2,3,5,5>) => ab**,ab**,ab**->ab**; each(0)
aten::adaptive_max_pool2d_backward(<2,3,5,5>, <2,3,5,5>, <2,3,5,5>) => ab**,ab**,ab**->ab**; each(0)
aten::avg_pool2d(<2,3,5,5>) => ab**->ab**; each
aten::_adaptive_avg_pool2d(<2,3,5,5>) => ab**->ab**; each
aten::reflection_pad2d(<2,3,5,5>) => ab**->ab**; each
aten::replication_pad2d(<2,3,5,5>) => ab**->ab**; each
aten::upsample_nearest2d(<2,3,5,5>) => ab**->ab**; each
aten::upsample_bilinear2d(<2,3,5,5>) => ab**->ab**; each
aten::avg_pool2d_backward(<2,3,5,5>, <2,3,5,5>) => ab**,ab**->ab**; each(0)
aten::_adaptive_avg_pool2d_backward(<2,3,5,5>, <2,3,5,5>) => ab**,ab**->ab**; each(0)
aten::reflection_pad2d_backward(<2,3,5,5>, <2,3,5,5>) => ab**,ab**->ab**; each(0)
aten::replication_pad2d_backward(<2,3,5,5>, <2,3,5,5>) => ab**,ab**->ab**; each(0)
aten::max_pool3d_with_indices(<2,3,5,5,5>) => ab***->ab***,ab***
aten::max_pool3d_with_indices_backward(<2,3,5,5,5>, <2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***,ab***->ab***; each(0)
aten::avg_pool3d(<2,3,5,5,5>) => ab***->ab***; each
aten::_adaptive_avg_pool3d(<2,3,5,5,5>) => ab***->ab***; each
aten::avg_pool3d_backward(<2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***->ab***; each(0)
aten::_adaptive_avg_pool3d_backward(<2,3,5,5,5>, <2,3,5,5,5>) => ab***,ab***->ab***; each(0)
aten::reflection_pad1d(<2,3,5>) => ab*->ab*; each
aten::replication_pad1d(<2,3,5>) => ab*->ab*; each
aten::upsample_nearest2d_backward(grad_output=<8,3,6,6>, output_size=[6,6], input_size=[8,3,3,3]) => ab**->ab**; each
aten::upsample_bilinear2d_backward(grad_output=<8,3,6,6>, output_size=[6,6], input_size=[8,3,3,3]) => ab**->ab**; each
aten::_scaled_dot_product_flash_attention_for_cpu(query=<8,4,16,6>, key=<8,4,16,6>, value=<8,4,16,6>, attn_mask=?) => ab**,ab**,ab**,?->ab**,ab*
aten::_scaled_dot_product_flash_attention_for_cpu(query=<8,4,16,6>, key=<8,2,16,6>, value=<8,2,16,6>, attn_mask=<16,16>) => a***,a***,a***,**->a***,a**
aten::_scaled_dot_product_flash_attention_for_cpu(query=<8,4,16,6>, key=<8,4,16,6>, value=<8,4,16,6>, attn_mask=<8,1,16,16>) => ab**,ab**,ab**,a1**->ab**,ab*
aten::_scaled_dot_product_flash_attention_for_cpu_backward(grad_out=<8,4,16,6>, query=<8,4,16,6>, key=<8,4,16,6>, value=<8,4,16,6>, out=<8,4,16,6>, logsumexp=<8,4,16>, attn_mask=?) => ab**,ab**,ab**,ab**,ab**,ab*,?->ab**,ab**,ab**; each(0)
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
aten::zeros_like(<2,3>) => ab->ab; each reduced
aten::empty_like(<2,3>) => ab->ab; each reduced
aten::ones_like(<2,3>) => ab->ab; each reduced
aten::full_like(<2,3>) => ab->ab; each reduced
aten::rand_like(<2,3>) => ab->ab; each reduced
aten::randn_like(<2,3>) => ab->ab; each reduced
aten::randint_like(<2,3>) => ab->ab; each reduced
aten::randint_like.low_dtype(<2,3>) => ab->ab; each reduced
aten::fill.Scalar(<2,3>) => ab->ab; each reduced
aten::new_zeros(self=<8,4>, size=[8,4]) => ab->ab; each reduced
aten::new_zeros(self=<8,4>, size=[6]) => ab->*; each reduced
aten::new_empty(self=<8,4>, size=[8,4]) => ab->ab; each reduced
aten::new_empty(self=<8,4>, size=[6]) => ab->*; each reduced
aten::new_empty_strided(self=<8,4>, size=[8,4], stride=[4,1]) => ab->ab; each reduced
aten::new_full(self=<8,4>, size=[8,4]) => ab->ab; each reduced
aten::new_full(self=<8,4>, size=[6]) => ab->*; each reduced
aten::new_ones(self=<8,4>, size=[8,4]) => ab->ab; each reduced
aten::new_ones(self=<8,4>, size=[6]) => ab->*; each reduced
aten::clone(<2,3>) => ab->ab; each
aten::zero(<2,3>) => ab->ab; each
aten::lift_fresh_copy(<2,3>) => ab->ab; each
aten::_to_copy(self=<8,4>, dtype=15) => ab->ab; each
aten::_to_copy(self=<8,4>, dtype=4) => ab->ab
aten::_to_copy(self=<8,4>, dtype=none) => ab->ab; each
aten::fill.Tensor(<2,3>, <>) => ab,->ab; joint
aten::copy(<2,3>, <2,3>) => ab,ab->ab; joint
)";
