// SPDX-License-Identifier: Apache-2.0
// Kinds that sort first: randperm and embedding_grad, whose sums are taken in
// the order of the indices, so that they repeat.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/element.cuh"
#include "kernels/rows.cuh"
#include "shared/philox.h"

namespace npu::cuda {
namespace {

constexpr std::uint64_t kAlign = 256;

std::uint64_t rounded_up(std::uint64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// Keys and numbers, unsorted and sorted, and CUB's scratch, in one workspace.
template <class Key>
struct Sorting {
  Key* keys = nullptr;
  Key* sorted_keys = nullptr;
  std::int32_t* numbers = nullptr;
  std::int32_t* sorted = nullptr;
  void* scratch = nullptr;
  std::size_t scratch_bytes = 0;
  std::int32_t n = 0;
  int bits = 8 * sizeof(Key);

  // Of the whole workspace, and where its parts lie from `base`.
  std::uint64_t lay_out(char* base) {
    std::uint64_t used = 0;
    const auto take = [&](auto*& part, std::uint64_t bytes) {
      part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(
          base ? base + used : nullptr);
      used += rounded_up(bytes);
    };
    const auto count = static_cast<std::uint64_t>(n);
    take(keys, count * sizeof(Key));
    take(sorted_keys, count * sizeof(Key));
    take(numbers, count * 4);
    take(sorted, count * 4);
    char* rest = nullptr;
    take(rest, scratch_bytes);
    scratch = rest;
    return used;
  }
  cudaError_t measure() {
    scratch_bytes = 0;
    return cub::DeviceRadixSort::SortPairs(
        nullptr, scratch_bytes, keys, sorted_keys, numbers, sorted, n, 0, bits);
  }
  cudaError_t sort(cudaStream_t stream) {
    return cub::DeviceRadixSort::SortPairs(
        scratch,
        scratch_bytes,
        keys,
        sorted_keys,
        numbers,
        sorted,
        n,
        0,
        bits,
        stream);
  }
};

template <class Key>
npu_status plan_sorting(
    npu_device device,
    const npu_call& call,
    Sorting<Key>& sorting,
    npu_verdict& verdict) {
  const OnDevice on(device);
  NPU_CUDA(sorting.measure(), "planning to sort");
  const std::uint64_t bytes = sorting.lay_out(nullptr);
  if (bytes > npu_call_workspace_limit(&call)) {
    verdict.answer = NPU_VERDICT_NO;
    verdict.reason = NPU_REASON_WORKSPACE;
    return NPU_OK;
  }
  verdict.workspace_bytes = bytes;
  return NPU_OK;
}

// NPU_OK with the parts in the call's workspace.
template <class Key>
npu_status place_sorting(const npu_call& call, Sorting<Key>& sorting) {
  NPU_CUDA(sorting.measure(), "preparing to sort");
  return sorting.lay_out(static_cast<char*>(call.workspace)) <=
                 call.workspace_bytes
             ? NPU_OK
             : refuse(call, "its workspace is too small");
}

npu_status too_many(npu_verdict& verdict) {
  verdict.answer = NPU_VERDICT_NO;
  verdict.reason = NPU_REASON_SIZE;
  return NPU_OK;
}

// ---- randperm ----

struct KeyArgs {
  npu_rng rng;
  std::int64_t n;
  std::uint64_t* keys;
  std::int32_t* numbers;
};

__global__ void key_kernel(const __grid_constant__ KeyArgs args) {
  const std::uint64_t offset =
      args.rng.offset +
      (args.rng.offset_ptr != nullptr ? *args.rng.offset_ptr : 0);
  const std::uint64_t seed =
      args.rng.seed_ptr != nullptr ? *args.rng.seed_ptr : args.rng.seed;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       2 * i < args.n;
       i += step) {
    const PhiloxBlock block =
        philox(seed, offset / 4 + static_cast<std::uint64_t>(i), 0);
    for (int k = 0; k < 2 && 2 * i + k < args.n; ++k) {
      args.keys[2 * i + k] =
          block.w[2 * k] | (std::uint64_t{block.w[2 * k + 1]} << 32);
      args.numbers[2 * i + k] = static_cast<std::int32_t>(2 * i + k);
    }
  }
}

struct OrderArgs {
  std::int64_t n;
  const std::int32_t* sorted;
  char* out;
  npu_dtype dtype;
};

__global__ void order_kernel(const __grid_constant__ OrderArgs args) {
  const auto bytes = static_cast<std::int64_t>(element_bytes(args.dtype));
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < args.n;
       i += step) {
    store<std::int64_t>(args.out + i * bytes, args.dtype, args.sorted[i]);
  }
}

npu_status randperm_plan(
    npu_device device, const npu_call& call, npu_verdict& verdict) {
  const npu_randperm_args given = npu_randperm_unpack(&call);
  if (!given.out || given.out->numel > INT32_MAX) {
    return too_many(verdict);
  }
  Sorting<std::uint64_t> sorting;
  sorting.n = static_cast<std::int32_t>(given.out->numel);
  return plan_sorting(device, call, sorting, verdict);
}

npu_status randperm(Stream& stream, const npu_call& call) {
  const npu_randperm_args given = npu_randperm_unpack(&call);
  if (!given.out || given.attrs.n != given.out->numel ||
      given.out->numel > INT32_MAX || call.rng.offset % 4 != 0) {
    return fail(
        NPU_E_INVALID,
        "npu: cuda driver: randperm: n does not fit the output, or the random "
        "offset is not a multiple of 4.");
  }
  Sorting<std::uint64_t> sorting;
  sorting.n = static_cast<std::int32_t>(given.out->numel);
  npu_status status = place_sorting(call, sorting);
  if (status) {
    return status;
  }
  const std::int64_t n = given.out->numel;
  const KeyArgs keys{call.rng, n, sorting.keys, sorting.numbers};
  status = launch<&key_kernel>(
      stream, blocks_for(stream, (n + 1) / 2), kThreads, keys);
  if (status) {
    return status;
  }
  NPU_CUDA(sorting.sort(stream.handle), "sorting");
  const OrderArgs order{
      n, sorting.sorted, static_cast<char*>(given.out->data), given.out->dtype};
  return launch<&order_kernel>(stream, blocks_for(stream, n), kThreads, order);
}

npu_status randperm_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_FREE);
  out.plan_use = NPU_PLAN_BY_SHAPE;
  out.dtypes[0] = kAnyIntBits | kFloatBits;
  return NPU_OK;
}

// ---- embedding_grad ----

struct EmbedArgs {
  std::int64_t n;      // indices
  std::int64_t rows;   // of the table
  std::int64_t width;  // of a row
  std::int64_t padding;
  const char* indices;
  npu_dtype index_dtype;
  npu_dtype grad_dtype;
  npu_dtype out_dtype;
  std::uint8_t by_frequency;
  const char* grad;
  char* out;
  std::uint32_t* keys;
  std::int32_t* numbers;
  const std::uint32_t* sorted_keys;
  const std::int32_t* sorted;
  Note note;
};

// Rows that get nothing have the key of no row.
__global__ void row_keys(const __grid_constant__ EmbedArgs args) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       i < args.n;
       i += step) {
    const std::int64_t row = args.index_dtype == NPU_I32
                                 ? bits_at<std::int32_t>(args.indices + 4 * i)
                                 : bits_at<std::int64_t>(args.indices + 8 * i);
    const bool inside = row >= 0 && row < args.rows;
    if (!inside) {
      leave_note(args.note, NPU_MAILBOX_INDEX, i, row, args.rows);
    }
    args.keys[i] = static_cast<std::uint32_t>(
        inside && row != args.padding ? row : args.rows);
    args.numbers[i] = static_cast<std::int32_t>(i);
  }
}

// One block for the run of equal keys that begins at its place.
template <class T>
__global__ void row_sums(const __grid_constant__ EmbedArgs args) {
  const auto grad_bytes =
      static_cast<std::int64_t>(element_bytes(args.grad_dtype));
  const auto out_bytes =
      static_cast<std::int64_t>(element_bytes(args.out_dtype));
  for (std::int64_t at = blockIdx.x; at < args.n; at += gridDim.x) {
    const std::uint32_t row = args.sorted_keys[at];
    if (row >= args.rows || (at > 0 && args.sorted_keys[at - 1] == row)) {
      continue;
    }
    std::int64_t end = at + 1;
    while (end < args.n && args.sorted_keys[end] == row) {
      ++end;
    }
    const T scale = args.by_frequency ? T(1) / static_cast<T>(end - at) : T(1);
    for (std::int64_t k = threadIdx.x; k < args.width; k += blockDim.x) {
      T sum = T(0);
      for (std::int64_t j = at; j < end; ++j) {
        const std::int64_t from = args.sorted[j] * args.width + k;
        sum += load<T>(args.grad + from * grad_bytes, args.grad_dtype) * scale;
      }
      store<T>(
          args.out + (row * args.width + k) * out_bytes, args.out_dtype, sum);
    }
  }
}

// False: more than the keys can count.
bool set_sorting(
    Sorting<std::uint32_t>& sorting, const npu_embedding_grad_args& given) {
  const std::int64_t rows = given.grad_weight->sizes[0];
  if (given.indices->numel > INT32_MAX || rows >= INT32_MAX) {
    return false;
  }
  sorting.n = static_cast<std::int32_t>(given.indices->numel);
  sorting.bits = 1;
  while ((std::int64_t{1} << sorting.bits) <= rows) {
    ++sorting.bits;
  }
  return true;
}

npu_status embedding_grad_plan(
    npu_device device, const npu_call& call, npu_verdict& verdict) {
  const npu_embedding_grad_args given = npu_embedding_grad_unpack(&call);
  Sorting<std::uint32_t> sorting;
  return set_sorting(sorting, given)
             ? plan_sorting(device, call, sorting, verdict)
             : too_many(verdict);
}

npu_status embedding_grad(Stream& stream, const npu_call& call) {
  const npu_embedding_grad_args given = npu_embedding_grad_unpack(&call);
  Sorting<std::uint32_t> sorting;
  if (!set_sorting(sorting, given)) {
    return refuse(call, "too many rows");
  }
  npu_status status = place_sorting(call, sorting);
  if (status) {
    return status;
  }
  const npu_tensor& out = *given.grad_weight;
  EmbedArgs args{};
  args.n = given.indices->numel;
  args.rows = out.sizes[0];
  args.width = out.numel / args.rows;
  args.padding = given.attrs.padding_index;
  args.indices = static_cast<const char*>(given.indices->data);
  args.index_dtype = given.indices->dtype;
  args.grad_dtype = given.grad_out->dtype;
  args.out_dtype = out.dtype;
  args.by_frequency = given.attrs.scale_by_frequency != 0;
  args.grad = static_cast<const char*>(given.grad_out->data);
  args.out = static_cast<char*>(out.data);
  args.keys = sorting.keys;
  args.numbers = sorting.numbers;
  args.sorted_keys = sorting.sorted_keys;
  args.sorted = sorting.sorted;
  args.note = note_for(stream, call, 2);
  status =
      launch<&row_keys>(stream, blocks_for(stream, args.n), kThreads, args);
  if (status) {
    return status;
  }
  NPU_CUDA(
      cudaMemsetAsync(
          args.out,
          0,
          static_cast<std::size_t>(out.numel * element_bytes_of(out.dtype)),
          stream.handle),
      "clearing a gradient");
  NPU_CUDA(sorting.sort(stream.handle), "sorting");
  const auto blocks = static_cast<std::uint64_t>(args.n);
  return args.out_dtype == NPU_F64 || args.grad_dtype == NPU_F64
             ? launch<&row_sums<double>>(stream, blocks, 128, args)
             : launch<&row_sums<float>>(stream, blocks, 128, args);
}

npu_status embedding_grad_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_SAME);
  out.plan_use = NPU_PLAN_BY_SHAPE;
  out.accumulate = NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
  out.dtypes[0] = kFloatBits;
  out.dtypes[1] = kFloatBits;
  out.dtypes[2] = NPU_DTYPE_BIT(NPU_I32) | NPU_DTYPE_BIT(NPU_I64);
  return NPU_OK;
}

constexpr KernelRow kTable[] = {
    {NPU_KIND_RANDPERM, randperm_caps, randperm_plan, randperm},
    {NPU_KIND_EMBEDDING_GRAD,
     embedding_grad_caps,
     embedding_grad_plan,
     embedding_grad},
};

}  // namespace

const Rows kSortedKernels = kTable;

}  // namespace npu::cuda
