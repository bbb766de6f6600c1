// SPDX-License-Identifier: Apache-2.0
// Numbers in a wider dtype.
#include "core/widen.h"

#include <type_traits>

#include "core/host_memory.h"

namespace optools {
namespace {

template <class From, class To>
inline __attribute__((always_inline)) void widen_loop(
    const From* __restrict from, To* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<To>(from[i]);
  }
}

template <class From, class To>
void widen_tensor(const at::Tensor& from, const at::Tensor& to) {
  const From* in = from.const_data_ptr<From>();
  To* out = to.mutable_data_ptr<To>();
  if constexpr (std::is_same_v<From, float>) {
    widen(in, out, from.numel());
  } else {
    widen_loop(in, out, from.numel());
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void widen_avx2(
    const float* from, double* to, int64_t count) {
  widen_loop(from, to, count);
}
#endif

// False for a pair it does not know.
bool widen_any(const at::Tensor& from, const at::Tensor& to) {
  using c10::ScalarType;
  const auto in = from.scalar_type();
  const auto out = to.scalar_type();
  if (in == ScalarType::Float && out == ScalarType::Double) {
    widen_tensor<float, double>(from, to);
  } else if (in == ScalarType::BFloat16 && out == ScalarType::Double) {
    widen_tensor<c10::BFloat16, double>(from, to);
  } else if (in == ScalarType::BFloat16 && out == ScalarType::Float) {
    widen_tensor<c10::BFloat16, float>(from, to);
  } else {
    return false;
  }
  return true;
}

}  // namespace

void widen(const float* from, double* to, int64_t count) {
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx2") != 0;
  if (wide) {
    widen_avx2(from, to, count);
    return;
  }
#endif
  widen_loop(from, to, count);
}

at::Tensor widened_copy(const at::Tensor& t, c10::ScalarType dtype) {
  at::Tensor copy = pooled_tensor(t.sizes(), t.strides(), dtype);
  if (t.is_neg() || !widen_any(t, copy)) {
    copy.copy_(t);
  }
  return copy;
}

}  // namespace optools
