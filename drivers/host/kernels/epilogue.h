// SPDX-License-Identifier: Apache-2.0
// What a product or convolution does to each result before it is stored.
#pragma once

#include <cmath>
#include <type_traits>

#include "npu/kinds.h"

namespace npu::host {

static_assert(
    NPU_GEMM_EPILOGUE_RELU == NPU_CONV_EPILOGUE_RELU &&
        NPU_GEMM_EPILOGUE_SILU == NPU_CONV_EPILOGUE_SILU,
    "one table serves both kinds");

// `epilogue` is NPU_GEMM_EPILOGUE_* or NPU_CONV_EPILOGUE_*. Integers and
// complex numbers have none.
template <class T>
T finished(std::uint32_t epilogue, T x) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (epilogue) {
      case NPU_GEMM_EPILOGUE_RELU:
        return x > 0 || x != x ? x : T(0);
      case NPU_GEMM_EPILOGUE_GELU:
        return x * T(0.5) * (T(1) + std::erf(x * T(0.70710678118654752440)));
      case NPU_GEMM_EPILOGUE_GELU_TANH: {
        const T inner =
            T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
        return x * T(0.5) * (T(1) + std::tanh(inner));
      }
      case NPU_GEMM_EPILOGUE_SILU:
        return x / (T(1) + std::exp(-x));
      default:
        return x;
    }
  }
  return x;
}

// x times the derivative at `of`, for NPU_GEMM_EPILOGUE_RELU_GRAD and
// NPU_GEMM_EPILOGUE_GELU_TANH_GRAD.
template <class T>
T finished_grad(std::uint32_t epilogue, T x, T of) {
  if constexpr (std::is_floating_point_v<T>) {
    if (epilogue == NPU_GEMM_EPILOGUE_RELU_GRAD) {
      return of <= 0 ? T(0) : x;
    }
    const T slope = T(0.79788456080286535588);
    const T cubic = T(0.044715);
    const T t = std::tanh(slope * (of + cubic * of * of * of));
    const T inner = slope * (T(1) + 3 * cubic * of * of);
    return x * T(0.5) * (T(1) + t + of * (T(1) - t * t) * inner);
  }
  return x;
}

}  // namespace npu::host
