// SPDX-License-Identifier: Apache-2.0
// Kinds index_select, gather and take: elements read through indices. An index
// out of range is noted in the stream's mailbox, and reads zero.
#include "kernels/element.cuh"
#include "kernels/layout.h"

namespace npu::cuda {
namespace {

struct alignas(16) Sixteen {
  std::uint64_t words[2];
};

struct IndexArgs {
  Layout<3> layout;  // out, index, in without its indexed dimension
  char* out;
  const char* index;
  const char* in;
  npu_dtype index_dtype;
  std::uint8_t from_end;  // negative indices count from the end
  std::int64_t size;      // of the indexed dimension
  std::int64_t stride;    // bytes from one index to the next
  Note note;
};

template <class T>
__global__ void read_kernel(const __grid_constant__ IndexArgs args) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < args.layout.numel;
       i += step) {
    std::int64_t at[3];
    args.layout.offsets(i, at);
    const std::int64_t given = args.index_dtype == NPU_I32
                                   ? bits_at<std::int32_t>(args.index + at[1])
                                   : bits_at<std::int64_t>(args.index + at[1]);
    const std::int64_t index =
        given < 0 && args.from_end ? given + args.size : given;
    T value{};
    if (index < 0 || index >= args.size) {
      leave_note(args.note, NPU_MAILBOX_INDEX, i, given, args.size);
    } else {
      value = bits_at<T>(args.in + at[2] + index * args.stride);
    }
    put(args.out + at[0], value);
  }
}

npu_status read(Stream& stream, const IndexArgs& args, npu_dtype dtype) {
  const std::uint64_t blocks = blocks_for(stream, args.layout.numel);
  switch (npu_dtype_bytes(dtype)) {
    case 1:
      return launch<&read_kernel<std::uint8_t>>(stream, blocks, kThreads, args);
    case 2:
      return launch<&read_kernel<std::uint16_t>>(
          stream, blocks, kThreads, args);
    case 4:
      return launch<&read_kernel<std::uint32_t>>(
          stream, blocks, kThreads, args);
    case 8:
      return launch<&read_kernel<std::uint64_t>>(
          stream, blocks, kThreads, args);
    default:
      return launch<&read_kernel<Sixteen>>(stream, blocks, kThreads, args);
  }
}

// An operand with the output's sizes and strides of its own.
struct Seen {
  std::int64_t strides[NPU_MAX_DIMS];
  npu_tensor tensor;

  Seen(const npu_tensor& of, const npu_tensor& out) : tensor(of) {
    tensor.ndim = out.ndim;
    tensor.sizes = out.sizes;
    tensor.strides = strides;
    tensor.numel = out.numel;
    for (std::uint32_t d = 0; d < out.ndim; ++d) {
      strides[d] = 0;
    }
  }
};

npu_status run_seen(
    Stream& stream,
    const npu_call& call,
    IndexArgs& args,
    const npu_tensor& out,
    const Seen& index,
    const Seen& in) {
  const npu_tensor* const operands[] = {&out, &index.tensor, &in.tensor};
  if (!make_layout(args.layout, operands)) {
    return refuse(call, "more than 16 dimensions");
  }
  args.out = static_cast<char*>(out.data);
  args.index = static_cast<const char*>(index.tensor.data);
  args.in = static_cast<const char*>(in.tensor.data);
  args.index_dtype = index.tensor.dtype;
  args.note = note_for(stream, call, call.n_out + 1);
  return read(stream, args, out.dtype);
}

void set_dimension(IndexArgs& args, const npu_tensor& in, std::int64_t dim) {
  const bool has = dim < in.ndim;  // a number has no dimension
  args.size = has ? in.sizes[dim] : 1;
  args.stride = has ? in.strides[dim] * element_bytes_of(in.dtype) : 0;
}

npu_status index_select(Stream& stream, const npu_call& call) {
  const npu_index_select_args given = npu_index_select_unpack(&call);
  const npu_tensor& out = *given.out;
  const std::int64_t dim = given.attrs.dim;
  IndexArgs args{};
  set_dimension(args, *given.in, dim);
  Seen index(*given.index, out);
  Seen in(*given.in, out);
  for (std::int64_t d = 0; d < out.ndim; ++d) {
    if (d == dim) {
      index.strides[d] = given.index->ndim > 0 ? given.index->strides[0] : 0;
    } else if (d < given.in->ndim) {
      in.strides[d] = given.in->strides[d];
    }
  }
  return run_seen(stream, call, args, out, index, in);
}

npu_status gather(Stream& stream, const npu_call& call) {
  const npu_gather_args given = npu_gather_unpack(&call);
  const npu_tensor& out = *given.out;
  const std::int64_t dim = given.attrs.dim;
  IndexArgs args{};
  set_dimension(args, *given.in, dim);
  Seen index(*given.index, out);
  Seen in(*given.in, out);
  for (std::int64_t d = 0; d < out.ndim; ++d) {
    index.strides[d] = d < given.index->ndim ? given.index->strides[d] : 0;
    in.strides[d] = d != dim && d < given.in->ndim ? given.in->strides[d] : 0;
  }
  return run_seen(stream, call, args, out, index, in);
}

npu_status take(Stream& stream, const npu_call& call) {
  const npu_take_args given = npu_take_unpack(&call);
  const npu_tensor& out = *given.out;
  IndexArgs args{};
  args.from_end = 1;
  args.size = given.in->numel;
  args.stride = element_bytes_of(given.in->dtype);
  Seen index(*given.index, out);
  const Seen in(*given.in, out);
  for (std::int64_t d = 0; d < out.ndim; ++d) {
    index.strides[d] = d < given.index->ndim ? given.index->strides[d] : 0;
  }
  return run_seen(stream, call, args, out, index, in);
}

// kStrided: take counts elements of a contiguous input.
template <bool kStrided>
npu_status caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_SAME);
  out.flags |= kStrided ? NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT : 0;
  out.max_ndim = kMostDims;
  out.dtypes[0] = kEveryBit;
  out.dtypes[1] = kEveryBit;
  out.dtypes[2] = NPU_DTYPE_BIT(NPU_I32) | NPU_DTYPE_BIT(NPU_I64);
  return NPU_OK;
}

constexpr KernelRow kTable[] = {
    {NPU_KIND_INDEX_SELECT, caps<true>, nullptr, index_select},
    {NPU_KIND_GATHER, caps<true>, nullptr, gather},
    {NPU_KIND_TAKE, caps<false>, nullptr, take},
};

}  // namespace

const Rows kIndexKernels = kTable;

}  // namespace npu::cuda
