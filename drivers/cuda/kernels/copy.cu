// SPDX-License-Identifier: Apache-2.0
// Kinds copy and fill.
#include <cstring>

#include "kernels/element.cuh"
#include "kernels/layout.h"
#include "shared/arithmetic.h"

namespace npu::cuda {
namespace {

struct alignas(16) Sixteen {
  std::uint64_t words[2];
};

// ---- copy ----

struct CopyArgs {
  Layout<2> layout;
  char* out;
  const char* in;
  npu_dtype out_dtype;
  npu_dtype in_dtype;
  std::uint8_t negate;
  std::uint8_t conjugate;
};

__device__ inline std::int64_t first_element() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t stride_of_grid() {
  return std::int64_t{gridDim.x} * blockDim.x;
}

// Nothing changes but the place.
template <class T>
__global__ void move_kernel(const __grid_constant__ CopyArgs args) {
  for (std::int64_t i = first_element(); i < args.layout.numel;
       i += stride_of_grid()) {
    std::int64_t at[2];
    args.layout.offsets(i, at);
    put(args.out + at[0], bits_at<T>(args.in + at[1]));
  }
}

// T: what an element of the source is read as.
template <class T>
__global__ void cast_kernel(const __grid_constant__ CopyArgs args) {
  for (std::int64_t i = first_element(); i < args.layout.numel;
       i += stride_of_grid()) {
    std::int64_t at[2];
    args.layout.offsets(i, at);
    T value = load<T>(args.in + at[1], args.in_dtype);
    if (args.negate) {
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(0 - static_cast<std::uint64_t>(value));
      } else {
        value = -value;
      }
    }
    if constexpr (kIsComplexType<T>) {
      if (args.conjugate) {
        value = T(value.re, -value.im);
      }
    }
    store<T>(args.out + at[0], args.out_dtype, value);
  }
}

// A matrix to be turned: reads and writes both go along rows, through a tile.
constexpr int kTile = 32;
constexpr int kTileRows = 8;

struct TurnArgs {
  char* out;
  const char* in;
  std::int64_t rows;        // of the output
  std::int64_t columns;     // contiguous in the output
  std::int64_t out_stride;  // bytes from row to row
  std::int64_t in_stride;   // bytes from column to column; rows are contiguous
  std::int64_t tiles_across;
};

template <class T>
__global__ void turn_kernel(const TurnArgs args) {
  __shared__ T tile[kTile][kTile + 1];
  const std::int64_t row0 = blockIdx.x / args.tiles_across * kTile;
  const std::int64_t column0 = blockIdx.x % args.tiles_across * kTile;
  const int x = static_cast<int>(threadIdx.x) % kTile;
  const int y = static_cast<int>(threadIdx.x) / kTile;
  for (int j = y; j < kTile; j += kTileRows) {
    if (row0 + x < args.rows && column0 + j < args.columns) {
      tile[j][x] = bits_at<T>(
          args.in + (column0 + j) * args.in_stride +
          (row0 + x) * static_cast<std::int64_t>(sizeof(T)));
    }
  }
  __syncthreads();
  for (int j = y; j < kTile; j += kTileRows) {
    if (row0 + j < args.rows && column0 + x < args.columns) {
      put(args.out + (row0 + j) * args.out_stride +
              (column0 + x) * static_cast<std::int64_t>(sizeof(T)),
          tile[x][j]);
    }
  }
}

template <class T>
npu_status move(Stream& stream, const CopyArgs& args) {
  const Layout<2>& layout = args.layout;
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  const auto aligned = [](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % sizeof(T) == 0;
  };
  if (!aligned(args.out) || !aligned(args.in)) {
    return fail(
        NPU_E_INVALID,
        "npu: cuda driver: copy: an operand is not aligned to its elements.");
  }
  if (layout.ndim == 1 && layout.strides[0][0] == kBytes &&
      layout.strides[1][0] == kBytes) {
    return cuda_status(
        cudaMemcpyAsync(
            args.out,
            args.in,
            static_cast<std::size_t>(layout.numel * kBytes),
            cudaMemcpyDeviceToDevice,
            stream.handle),
        "copying on the GPU");
  }
  const bool turns = layout.ndim == 2 && layout.strides[0][1] == kBytes &&
                     layout.strides[1][0] == kBytes &&
                     layout.sizes[0] >= kTile / 2 &&
                     layout.sizes[1] >= kTile / 2;
  if (turns) {
    TurnArgs turn{
        args.out,
        args.in,
        layout.sizes[0],
        layout.sizes[1],
        layout.strides[0][0],
        layout.strides[1][1],
        (layout.sizes[1] + kTile - 1) / kTile};
    const auto tiles = static_cast<std::uint64_t>(
        turn.tiles_across * ((turn.rows + kTile - 1) / kTile));
    if (tiles <= 0x7fffffff) {
      return launch<&turn_kernel<T>>(stream, tiles, kTile * kTileRows, turn);
    }
  }
  return launch<&move_kernel<T>>(
      stream, blocks_for(stream, layout.numel), kThreads, args);
}

npu_status copy(Stream& stream, const npu_call& call) {
  const npu_copy_args given = npu_copy_unpack(&call);
  if (!given.out || !given.in) {
    return refuse(call, "an operand is absent");
  }
  CopyArgs args{};
  const npu_tensor* const operands[] = {given.out, given.in};
  if (!make_layout(args.layout, operands)) {
    return refuse(call, "more than 16 dimensions");
  }
  args.out = static_cast<char*>(given.out->data);
  args.in = static_cast<const char*>(given.in->data);
  args.out_dtype = given.out->dtype;
  args.in_dtype = given.in->dtype;
  const bool complex =
      ((kComplexBits | kC32Bit) & NPU_DTYPE_BIT(args.in_dtype)) != 0;
  args.negate = (given.in->flags & NPU_TENSOR_NEG) != 0;
  args.conjugate = complex && (given.in->flags & NPU_TENSOR_CONJ) != 0;
  if (args.in_dtype == args.out_dtype && !args.negate && !args.conjugate) {
    switch (npu_dtype_bytes(args.in_dtype)) {
      case 1:
        return move<std::uint8_t>(stream, args);
      case 2:
        return move<std::uint16_t>(stream, args);
      case 4:
        return move<std::uint32_t>(stream, args);
      case 8:
        return move<std::uint64_t>(stream, args);
      default:
        return move<Sixteen>(stream, args);
    }
  }
  if (args.in_dtype == NPU_F4_E2M1FN_X2 || args.out_dtype == NPU_F4_E2M1FN_X2) {
    return refuse(call, "pairs of 4-bit numbers are moved, not converted");
  }
  const std::uint64_t blocks = blocks_for(stream, args.layout.numel);
  switch (args.in_dtype) {
    case NPU_C128:
      return launch<&cast_kernel<Complex128>>(stream, blocks, kThreads, args);
    case NPU_C64:
    case NPU_C32:
      return launch<&cast_kernel<Complex64>>(stream, blocks, kThreads, args);
    case NPU_F64:
      return launch<&cast_kernel<double>>(stream, blocks, kThreads, args);
    case NPU_U64:
      return launch<&cast_kernel<std::uint64_t>>(
          stream, blocks, kThreads, args);
    default:
      return ((kBoolBit | kAnyIntBits) & NPU_DTYPE_BIT(args.in_dtype)) != 0
                 ? launch<&cast_kernel<std::int64_t>>(
                       stream, blocks, kThreads, args)
                 : launch<&cast_kernel<float>>(stream, blocks, kThreads, args);
  }
}

npu_status copy_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_CAST);
  out.flags |= NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT;
  out.max_ndim = kMostDims;
  out.dtypes[0] = kEveryBit;
  out.dtypes[1] = kEveryBit;
  return NPU_OK;
}

// ---- fill ----

struct FillArgs {
  Layout<1> layout;
  char* out;
  Sixteen element;
};

template <class T>
__global__ void fill_kernel(const __grid_constant__ FillArgs args) {
  const T value = bits_at<T>(&args.element);
  for (std::int64_t i = first_element(); i < args.layout.numel;
       i += stride_of_grid()) {
    std::int64_t at[1];
    args.layout.offsets(i, at);
    put(args.out + at[0], value);
  }
}

npu_status fill(Stream& stream, const npu_call& call) {
  const npu_fill_args given = npu_fill_unpack(&call);
  if (!given.out) {
    return refuse(call, "the output is absent");
  }
  FillArgs args{};
  const npu_tensor* const operands[] = {given.out};
  if (!make_layout(args.layout, operands)) {
    return refuse(call, "more than 16 dimensions");
  }
  args.out = static_cast<char*>(given.out->data);
  if (!convert_scalar(given.out->dtype, given.attrs.value, &args.element)) {
    return refuse(call, npu_dtype_name(given.out->dtype));
  }
  const std::uint64_t blocks = blocks_for(stream, args.layout.numel);
  switch (npu_dtype_bytes(given.out->dtype)) {
    case 1:
      return launch<&fill_kernel<std::uint8_t>>(stream, blocks, kThreads, args);
    case 2:
      return launch<&fill_kernel<std::uint16_t>>(
          stream, blocks, kThreads, args);
    case 4:
      return launch<&fill_kernel<std::uint32_t>>(
          stream, blocks, kThreads, args);
    case 8:
      return launch<&fill_kernel<std::uint64_t>>(
          stream, blocks, kThreads, args);
    default:
      return launch<&fill_kernel<Sixteen>>(stream, blocks, kThreads, args);
  }
}

npu_status fill_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_SAME);
  out.flags |= NPU_CAP_STRIDED_OUT;
  out.max_ndim = kMostDims;
  out.dtypes[0] = kEveryBit & ~NPU_DTYPE_BIT(NPU_F4_E2M1FN_X2);
  return NPU_OK;
}

constexpr KernelRow kTable[] = {
    {NPU_KIND_COPY, copy_caps, nullptr, copy},
    {NPU_KIND_FILL, fill_caps, nullptr, fill},
};

}  // namespace

const Rows kCopyKernels = kTable;

}  // namespace npu::cuda
