// SPDX-License-Identifier: Apache-2.0
//
// The body of fields_detail::tie (fields.h), one case a count: a structured binding takes no pack in C++20.

if constexpr (kCount == 1) {
  auto& [f0] = object;
  return std::tie(f0);
} else if constexpr (kCount == 2) {
  auto& [f0, f1] = object;
  return std::tie(f0, f1);
} else if constexpr (kCount == 3) {
  auto& [f0, f1, f2] = object;
  return std::tie(f0, f1, f2);
} else if constexpr (kCount == 4) {
  auto& [f0, f1, f2, f3] = object;
  return std::tie(f0, f1, f2, f3);
} else if constexpr (kCount == 5) {
  auto& [f0, f1, f2, f3, f4] = object;
  return std::tie(f0, f1, f2, f3, f4);
} else if constexpr (kCount == 6) {
  auto& [f0, f1, f2, f3, f4, f5] = object;
  return std::tie(f0, f1, f2, f3, f4, f5);
} else if constexpr (kCount == 7) {
  auto& [f0, f1, f2, f3, f4, f5, f6] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6);
} else if constexpr (kCount == 8) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7);
} else if constexpr (kCount == 9) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8);
} else if constexpr (kCount == 10) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9);
} else if constexpr (kCount == 11) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10);
} else if constexpr (kCount == 12) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11);
} else if constexpr (kCount == 13) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12);
} else if constexpr (kCount == 14) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13);
} else if constexpr (kCount == 15) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14);
} else if constexpr (kCount == 16) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15);
} else if constexpr (kCount == 17) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16);
} else if constexpr (kCount == 18) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17);
} else if constexpr (kCount == 19) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18] =
      object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18);
} else if constexpr (kCount == 20) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19] =
      object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19);
} else if constexpr (kCount == 21) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20);
} else if constexpr (kCount == 22) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21);
} else if constexpr (kCount == 23) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22);
} else if constexpr (kCount == 24) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23);
} else if constexpr (kCount == 25) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24);
} else if constexpr (kCount == 26) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25);
} else if constexpr (kCount == 27) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26);
} else if constexpr (kCount == 28) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27);
} else if constexpr (kCount == 29) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28);
} else if constexpr (kCount == 30) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29);
} else if constexpr (kCount == 31) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30);
} else if constexpr (kCount == 32) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31);
} else if constexpr (kCount == 33) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32);
} else if constexpr (kCount == 34) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33);
} else if constexpr (kCount == 35) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33,
                  f34);
} else if constexpr (kCount == 36) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34, f35] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33,
                  f34, f35);
} else if constexpr (kCount == 37) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34, f35, f36] =
      object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33,
                  f34, f35, f36);
} else if constexpr (kCount == 38) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34, f35, f36, f37] =
      object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33,
                  f34, f35, f36, f37);
} else if constexpr (kCount == 39) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34, f35, f36, f37,
         f38] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33,
                  f34, f35, f36, f37, f38);
} else if constexpr (kCount == 40) {
  auto& [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17, f18, f19,
         f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33, f34, f35, f36, f37,
         f38, f39] = object;
  return std::tie(f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, f16, f17,
                  f18, f19, f20, f21, f22, f23, f24, f25, f26, f27, f28, f29, f30, f31, f32, f33,
                  f34, f35, f36, f37, f38, f39);
}
