// SPDX-License-Identifier: Apache-2.0
// Kinds range and eye: tensors made from attributes alone.
#include "kernels/element.cuh"
#include "kernels/layout.h"

namespace npu::cuda {
namespace {

// ---- range ----

// The first half counts up from start, the second down from end: both ends are
// exact.
template <class T>
struct RangeArgs {
  std::int64_t n;
  std::int64_t stride;  // bytes
  char* out;
  npu_dtype dtype;
  std::uint8_t arange;
  std::uint8_t powers;
  T start;
  T end;
  T step;
  T base;
};

template <class T>
__global__ void range_kernel(const __grid_constant__ RangeArgs<T> args) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < args.n;
       i += step) {
    T value;
    if constexpr (std::is_same_v<T, std::int64_t>) {
      value = static_cast<T>(
          static_cast<std::uint64_t>(args.start) +
          static_cast<std::uint64_t>(args.step) *
              static_cast<std::uint64_t>(i));
    } else {
      value = args.arange || i < args.n / 2 || args.n == 1
                  ? args.start + args.step * static_cast<T>(i)
                  : args.end - args.step * static_cast<T>(args.n - 1 - i);
      if (args.powers) {
        value = pow(args.base, value);
      }
    }
    store<T>(args.out + i * args.stride, args.dtype, value);
  }
}

template <class T>
T number(const npu_scalar& scalar) {
  const bool exact =
      scalar.kind != NPU_SCALAR_FLOAT && scalar.kind != NPU_SCALAR_COMPLEX;
  return std::is_integral_v<T> && exact ? static_cast<T>(scalar.i)
                                        : static_cast<T>(scalar.re);
}

template <class T>
npu_status make_range(
    Stream& stream, const npu_call& call, const npu_range_args& given) {
  RangeArgs<T> args{};
  args.n = given.out->numel;
  args.stride = given.out->ndim > 0
                    ? given.out->strides[0] * element_bytes_of(given.out->dtype)
                    : 0;
  args.out = static_cast<char*>(given.out->data);
  args.dtype = given.out->dtype;
  args.arange = call.code == NPU_RANGE_ARANGE;
  args.powers = call.code == NPU_RANGE_LOGSPACE;
  args.start = number<T>(given.attrs.start);
  args.end = number<T>(given.attrs.end);
  args.base = static_cast<T>(given.attrs.base);
  args.step =
      args.arange ? number<T>(given.attrs.step)
      : args.n > 1
          ? static_cast<T>((args.end - args.start) / static_cast<T>(args.n - 1))
          : T(0);
  return launch<&range_kernel<T>>(
      stream, blocks_for(stream, args.n), kThreads, args);
}

npu_status range(Stream& stream, const npu_call& call) {
  const npu_range_args given = npu_range_unpack(&call);
  if (!given.out) {
    return refuse(call, "the output is absent");
  }
  const std::uint64_t bit = NPU_DTYPE_BIT(given.out->dtype);
  const bool whole = (bit & kAnyIntBits) != 0;
  if (call.code == NPU_RANGE_ARANGE) {
    return whole ? make_range<std::int64_t>(stream, call, given)
                 : make_range<double>(stream, call, given);
  }
  // Integers are spaced as doubles and cut off.
  return whole || given.out->dtype == NPU_F64
             ? make_range<double>(stream, call, given)
             : make_range<float>(stream, call, given);
}

npu_status range_caps(std::uint32_t code, npu_op_caps& out) {
  if (code >= NPU_RANGE_CODES) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_SAME);
  out.flags |= NPU_CAP_STRIDED_OUT;
  out.dtypes[0] = kAnyIntBits | kFloatBits;
  return NPU_OK;
}

// ---- eye ----

struct EyeArgs {
  std::int64_t n;
  std::int64_t rows;
  std::int64_t columns;
  char* out;
  npu_dtype dtype;
};

__global__ void eye_kernel(const __grid_constant__ EyeArgs args) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < args.n;
       i += step) {
    const bool one = i % args.columns == i / args.columns % args.rows;
    store<std::int64_t>(
        args.out + i * static_cast<std::int64_t>(element_bytes(args.dtype)),
        args.dtype,
        one ? 1 : 0);
  }
}

npu_status eye(Stream& stream, const npu_call& call) {
  const npu_eye_args given = npu_eye_unpack(&call);
  if (!given.out || given.out->ndim < 2) {
    return refuse(call, "the output is no matrix");
  }
  const npu_tensor& out = *given.out;
  const EyeArgs args{
      out.numel,
      out.sizes[out.ndim - 2],
      out.sizes[out.ndim - 1],
      static_cast<char*>(out.data),
      out.dtype};
  return launch<&eye_kernel>(
      stream, blocks_for(stream, args.n), kThreads, args);
}

npu_status eye_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_SAME);
  out.dtypes[0] = kMapBits;
  return NPU_OK;
}

// ---- stacks ----

// What is written depends on `n`, so that the array stays.
template <int kBytes>
__global__ void stack_kernel(int n) {
  volatile int stack[kBytes / sizeof(int)];
  for (int i = 0; i < n; ++i) {
    stack[i * 7 % (kBytes / sizeof(int))] = i;
  }
  if (n > 0 && stack[n - 1] == -1) {
    __trap();
  }
}

constexpr KernelRow kTable[] = {
    {NPU_KIND_RANGE, range_caps, nullptr, range},
    {NPU_KIND_EYE, eye_caps, nullptr, eye},
};

}  // namespace

npu_status reserve_local_memory(std::size_t bytes) noexcept {
  const auto start = [](auto* kernel) {
    int n = 0;
    void* arguments[] = {&n};
    NPU_CUDA(
        cudaLaunchKernel(
            reinterpret_cast<const void*>(kernel),
            dim3(1),
            dim3(1),
            arguments,
            0,
            nullptr),
        "reserving stacks");
    return cuda_status(cudaStreamSynchronize(nullptr), "reserving stacks");
  };
  return bytes <= 64    ? start(&stack_kernel<64>)
         : bytes <= 128 ? start(&stack_kernel<128>)
         : bytes <= 256 ? start(&stack_kernel<256>)
         : bytes <= 512 ? start(&stack_kernel<512>)
                        : start(&stack_kernel<1024>);
}

const Rows kMakeKernels = kTable;

}  // namespace npu::cuda
