// SPDX-License-Identifier: Apache-2.0
// What comes after a product: c, the bias, the epilogue, one rounding.
#include "kernels/gemm_finish.h"

#include "kernels/element.cuh"
#include "shared/formulas.h"
#include "shared/map_activation.h"

namespace npu::cuda {
namespace {

template <class T>
__device__ inline T epilogue(std::uint32_t which, T x) {
  using namespace formula::activation;
  const Scalars<T> none{T(0)};
  switch (which) {
    case NPU_GEMM_EPILOGUE_RELU:
      return formula::Relu::apply(x, none);
    case NPU_GEMM_EPILOGUE_GELU:
      return Gelu::apply(x, none);
    case NPU_GEMM_EPILOGUE_GELU_TANH:
      return GeluTanh::apply(x, none);
    case NPU_GEMM_EPILOGUE_SILU:
      return Silu::apply(x, none);
    default:
      return x;
  }
}

template <class T>
__global__ void finish_kernel(const __grid_constant__ FinishArgs args) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < args.layout.numel;
       i += step) {
    std::int64_t at[4];
    args.layout.offsets(i, at);
    T x = static_cast<T>(args.alpha) * static_cast<const T*>(args.product)[i];
    if (args.c != nullptr) {
      x += static_cast<T>(args.beta) * load<T>(args.c + at[2], args.c_dtype);
    }
    if (args.bias != nullptr) {
      x += load<T>(args.bias + at[3], args.bias_dtype);
    }
    if (args.pre != nullptr) {
      store<T>(args.pre + at[1], args.pre_dtype, x);
    }
    store<T>(args.out + at[0], args.out_dtype, epilogue(args.epilogue, x));
  }
}

}  // namespace

npu_status finish_gemm(Stream& stream, const FinishArgs& args) {
  const std::uint64_t blocks = blocks_for(stream, args.layout.numel);
  return args.wide
             ? launch<&finish_kernel<double>>(stream, blocks, kThreads, args)
             : launch<&finish_kernel<float>>(stream, blocks, kThreads, args);
}

}  // namespace npu::cuda
