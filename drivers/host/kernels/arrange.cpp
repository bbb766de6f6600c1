// SPDX-License-Identifier: Apache-2.0
// cat, pad, flip, roll, triangle, repeat_interleave: elements in another order.
//
// Reference kernels but for flip: right in every case, not fast. The host
// device runs PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/convert.h"
#include "kernels/dense.h"
#include "kernels/kernel.h"
#include "kernels/remap.h"

namespace npu::host {
namespace {

// ---- cat ----

npu_status cat(const npu_call& call) {
  const npu_cat_args args = npu_cat_unpack(&call);
  const std::int64_t dim = args.attrs.dim;
  const auto bytes = static_cast<std::int64_t>(element_bytes(args.out->dtype));
  npu_tensor part = *args.out;
  std::vector<std::int64_t> sizes(part.sizes, part.sizes + part.ndim);
  part.sizes = sizes.data();
  part.flags &= ~(NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE);
  for (std::uint32_t i = 0; i < args.in->n; ++i) {
    const npu_tensor& piece = args.in->tensors[i];
    sizes[static_cast<std::size_t>(dim)] = piece.sizes[dim];
    part.numel = piece.numel;
    if (const npu_status status = copy_tensor(part, piece)) {
      return status;
    }
    part.data = static_cast<char*>(part.data) +
                piece.sizes[dim] * part.strides[dim] * bytes;
  }
  return NPU_OK;
}

// ---- pad ----

// Source index of padded position i in a dim of `size`; -1: the constant.
std::int64_t padded_from(
    std::uint32_t code, std::int64_t i, std::int64_t size) {
  if (i >= 0 && i < size) {
    return i;
  }
  switch (code) {
    case NPU_PAD_REFLECT:
      return i < 0 ? -i : 2 * (size - 1) - i;
    case NPU_PAD_REPLICATE:
      return i < 0 ? 0 : size - 1;
    case NPU_PAD_CIRCULAR:
      return (i % size + size) % size;
    default:
      return -1;
  }
}

std::vector<std::int64_t> pad_table(
    std::uint32_t code,
    std::int64_t before,
    std::int64_t size_out,
    std::int64_t size_in) {
  std::vector<std::int64_t> table(static_cast<std::size_t>(size_out));
  for (std::int64_t i = 0; i < size_out; ++i) {
    table[static_cast<std::size_t>(i)] = padded_from(code, i - before, size_in);
  }
  return table;
}

npu_status pad(const npu_call& call) {
  const npu_pad_args args = npu_pad_unpack(&call);
  alignas(16) char value[16] = {};
  convert_scalar(args.out->dtype, args.attrs.value, value);
  Remap remap(*args.out, *args.in, value);
  for (std::int64_t k = 0; k < args.attrs.n; ++k) {
    const std::int64_t d = args.out->ndim - args.attrs.n + k;
    remap[d] = pad_table(
        call.code, args.attrs.before[k], args.out->sizes[d], args.in->sizes[d]);
  }
  return remap.run();
}

// Place in the padded dims of grad_in, for each place in those of grad_out.
std::vector<std::int64_t> pad_places(
    const npu_pad_grad_args& args, std::uint32_t code) {
  std::vector<std::int64_t> places{0};
  for (std::int64_t k = 0; k < args.attrs.n; ++k) {
    const std::int64_t d = args.grad_out->ndim - args.attrs.n + k;
    const std::int64_t size = args.grad_in->sizes[d];
    const auto table =
        pad_table(code, args.attrs.before[k], args.grad_out->sizes[d], size);
    std::vector<std::int64_t> next;
    next.reserve(places.size() * table.size());
    for (const std::int64_t place : places) {
      for (const std::int64_t i : table) {
        next.push_back(place < 0 || i < 0 ? -1 : place * size + i);
      }
    }
    places = std::move(next);
  }
  return places;
}

npu_status pad_grad(const npu_call& call) {
  const npu_pad_grad_args args = npu_pad_grad_unpack(&call);
  const std::vector<std::int64_t> places = pad_places(args, call.code);
  const auto n_out = static_cast<std::int64_t>(places.size());
  const std::int64_t planes = args.grad_out->numel / n_out;
  const std::int64_t n_in = args.grad_in->numel / planes;
  return with_number(args.grad_in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> from(args.grad_out);
    const Stored<T> to(args.grad_in, Stored<T>::kZero);
    if (const npu_status status = loaded(from, to)) {
      return status;
    }
    parallel(planes, kGrain / n_out + 1, [&](std::int64_t p, std::int64_t end) {
      for (; p < end; ++p) {
        for (std::int64_t i = 0; i < n_out; ++i) {
          const std::int64_t place = places[static_cast<std::size_t>(i)];
          if (place >= 0) {
            to[p * n_in + place] += from[p * n_out + i];
          }
        }
      }
    });
    return to.store();
  });
}

// ---- flip, roll ----

npu_status flip(const npu_call& call) {
  const npu_flip_args args = npu_flip_unpack(&call);
  Remap remap(*args.out, *args.in);
  for (std::int64_t d = 0; d < args.out->ndim; ++d) {
    if ((args.attrs.dims >> d) & 1) {
      for (std::int64_t i = args.out->sizes[d]; i-- > 0;) {
        remap[d].push_back(i);
      }
    }
  }
  return remap.run();
}

npu_status roll(const npu_call& call) {
  const npu_roll_args args = npu_roll_unpack(&call);
  Remap remap(*args.out, *args.in);
  for (std::int64_t k = 0; k < args.attrs.n; ++k) {
    const std::int64_t d = args.attrs.axes[k];
    const std::int64_t size = args.out->sizes[d];
    // The element at i comes from i - shift; an axis may be named twice.
    const std::int64_t from =
        size - (args.attrs.shifts[k] % size + size) % size;
    auto& table = remap[d];
    const std::int64_t first = table.empty() ? 0 : table[0];
    table.resize(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) {
      table[static_cast<std::size_t>(i)] = (i + from + first) % size;
    }
  }
  return remap.run();
}

// ---- triangle ----

std::int64_t row_offset(const npu_tensor& tensor, std::int64_t row) {
  std::int64_t offset = 0;
  for (int d = tensor.ndim - 2; d >= 0; --d) {
    offset += row % tensor.sizes[d] * tensor.strides[d];
    row /= tensor.sizes[d];
  }
  return offset * static_cast<std::int64_t>(element_bytes(tensor.dtype));
}

npu_status triangle(const npu_call& call) {
  const npu_triangle_args args = npu_triangle_unpack(&call);
  const npu_tensor& out = *args.out;
  const npu_tensor& in = *args.in;
  const auto bytes = static_cast<std::int64_t>(element_bytes(out.dtype));
  const std::int64_t cols = out.sizes[out.ndim - 1];
  const std::int64_t rows = out.sizes[out.ndim - 2];
  const std::int64_t to_step = out.strides[out.ndim - 1] * bytes;
  const std::int64_t from_step = in.strides[in.ndim - 1] * bytes;
  constexpr char kZero[16] = {};
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      char* const to = static_cast<char*>(out.data) + row_offset(out, r);
      const char* const from =
          static_cast<const char*>(in.data) + row_offset(in, r);
      const auto move = [&](const char* src,
                            std::int64_t step,
                            std::int64_t first,
                            std::int64_t last) {
        copy_line(
            static_cast<std::uint32_t>(bytes),
            to + first * to_step,
            to_step,
            src + first * step,
            step,
            last - first);
      };
      // tril keeps up to and with the diagonal, triu from it on.
      const std::int64_t diagonal = r % rows + args.attrs.diagonal;
      if (call.code == NPU_TRIANGLE_TRIL) {
        const std::int64_t kept =
            std::clamp<std::int64_t>(diagonal + 1, 0, cols);
        move(from, from_step, 0, kept);
        move(kZero, 0, kept, cols);
      } else {
        const std::int64_t kept = std::clamp<std::int64_t>(diagonal, 0, cols);
        move(kZero, 0, 0, kept);
        move(from, from_step, kept, cols);
      }
    }
  };
  return parallel(out.numel / cols, kGrain / cols + 1, body);
}

// ---- repeat_interleave ----

npu_status repeat_interleave(const npu_call& call) {
  const npu_repeat_interleave_args args = npu_repeat_interleave_unpack(&call);
  const Loaded<std::int64_t> repeats(args.repeats);
  const std::int64_t n = args.repeats->numel;
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (repeats[i] < 0) {
      return fail(
          NPU_E_INVALID,
          "repeats can not be negative: repeats[%lld] is %lld",
          static_cast<long long>(i),
          static_cast<long long>(repeats[i]));
    }
    total += repeats[i];
  }
  if (call.flags & NPU_CALL_COUNT) {
    *static_cast<std::int64_t*>(args.total->data) = total;
    return NPU_OK;
  }
  if (total != args.out->numel) {
    return fail(
        NPU_E_INVALID,
        "repeats add up to %lld, the output has %lld elements",
        static_cast<long long>(total),
        static_cast<long long>(args.out->numel));
  }
  const Stored<std::int64_t> out(args.out, Stored<std::int64_t>::kAsIs);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = 0; k < repeats[i]; ++k) {
      out[at++] = i;
    }
  }
  return out.store();
}

// ---- rows ----

npu_status move_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {kAnyDtype, kAnyDtype});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status pad_caps(std::uint32_t code, npu_op_caps& out) {
  const bool moves = code == NPU_PAD_CONSTANT || code == NPU_PAD_CIRCULAR;
  const std::uint64_t dtypes =
      moves ? kAnyDtype : kUsualDtypes & ~NPU_DTYPE_BIT(NPU_BOOL);
  plain_caps(out, NPU_DTYPES_SAME, {dtypes, dtypes});
  return code < NPU_PAD_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status flip_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {kUsualDtypes, kUsualDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status pad_grad_caps(std::uint32_t code, npu_op_caps& out) {
  const std::uint64_t dtypes =
      kFloatDtypes | NPU_DTYPE_BIT(NPU_C64) | NPU_DTYPE_BIT(NPU_C128);
  plain_caps(out, NPU_DTYPES_SAME, {dtypes, dtypes});
  return code <= NPU_PAD_GRAD_CIRCULAR ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status triangle_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {kNumberDtypes, kNumberDtypes}, 1);
  return code <= NPU_TRIANGLE_TRIU ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status repeat_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(
      out,
      NPU_DTYPES_FREE,
      {NPU_DTYPE_BIT(NPU_I64), kIndexDtypes, kIndexDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_CAT, move_caps, nullptr, cat},
    {NPU_KIND_PAD, pad_caps, nullptr, pad},
    {NPU_KIND_PAD_GRAD, pad_grad_caps, nullptr, pad_grad},
    {NPU_KIND_FLIP, flip_caps, nullptr, flip},
    {NPU_KIND_ROLL, move_caps, nullptr, roll},
    {NPU_KIND_TRIANGLE, triangle_caps, nullptr, triangle},
    {NPU_KIND_REPEAT_INTERLEAVE, repeat_caps, nullptr, repeat_interleave},
};

}  // namespace

const std::span<const KernelRow> kArrangeKernels = kRows;

}  // namespace npu::host
