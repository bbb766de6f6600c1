// SPDX-License-Identifier: Apache-2.0
// copy and fill: any dtype to any dtype, any strides to any strides.
#include <algorithm>
#include <cstring>

#include "kernels/convert.h"
#include "kernels/dense.h"
#include "kernels/kernel.h"
#include "kernels/layout.h"
#include "npu/validate.h"

namespace npu::host {
namespace {

constexpr std::int64_t kTile = 32;  // elements each way

// ---- one pass: real to real, or raw bytes ----

// What moves, and how far apart.
struct Pass {
  const Conversion& conversion;
  char* dst;
  const char* src;
  std::int64_t dst_bytes;
  std::int64_t src_bytes;
};

// The dim along which the source is contiguous, when the destination is
// contiguous along another one; -1: lines do as well as tiles.
int transposed_dim(const Layout& layout, const Pass& pass) {
  const int inner = layout.ndim - 1;
  if (layout.ndim < 2 || layout.dst[inner] != pass.dst_bytes ||
      layout.src[inner] <= pass.src_bytes || layout.sizes[inner] < 8) {
    return -1;
  }
  for (int d = 0; d < inner; ++d) {
    if (layout.src[d] == pass.src_bytes && layout.sizes[d] >= 8) {
      return d;
    }
  }
  return -1;
}

void run_tile(
    const Pass& pass,
    const Layout& plane,
    char* dst,
    const char* src,
    std::int64_t rows,
    std::int64_t columns) {
  // plane: dim 0 is contiguous in the source, dim 1 in the destination.
  const std::int64_t bytes = pass.src_bytes;
  alignas(64) char tile[kTile * kTile * 16];
  const auto copy_rows = [&](char* to, std::int64_t to_row) {
    for (std::int64_t r = 0; r < rows; ++r) {
      copy_line(
          static_cast<std::uint32_t>(bytes),
          to + r * to_row,
          bytes,
          src + r * plane.src[0],
          plane.src[1],
          columns);
    }
  };
  if (pass.conversion.is_copy()) {
    copy_rows(dst, plane.dst[0]);
    return;
  }
  copy_rows(tile, columns * bytes);
  for (std::int64_t r = 0; r < rows; ++r) {
    pass.conversion.line(
        dst + r * plane.dst[0],
        pass.dst_bytes,
        tile + r * columns * bytes,
        bytes,
        columns);
  }
}

npu_status run_tiles(const Pass& pass, const Layout& layout, int dim) {
  Layout plane;  // dims `dim` and innermost
  Layout outer;  // the rest
  const int inner = layout.ndim - 1;
  plane.append(layout.sizes[dim], layout.dst[dim], layout.src[dim]);
  plane.append(layout.sizes[inner], layout.dst[inner], layout.src[inner]);
  outer.append(1, 0, 0);
  std::int64_t planes = 1;
  for (int d = 0; d < inner; ++d) {
    if (d != dim) {
      outer.append(layout.sizes[d], layout.dst[d], layout.src[d]);
      planes *= layout.sizes[d];
    }
  }
  const std::int64_t across = (plane.sizes[1] + kTile - 1) / kTile;
  const std::int64_t down = (plane.sizes[0] + kTile - 1) / kTile;
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Walker at(outer, outer.ndim, i / (across * down));
      const std::int64_t row = i / across % down * kTile;
      const std::int64_t column = i % across * kTile;
      run_tile(
          pass,
          plane,
          pass.dst + at.dst() + row * plane.dst[0] + column * plane.dst[1],
          pass.src + at.src() + row * plane.src[0] + column * plane.src[1],
          std::min(kTile, plane.sizes[0] - row),
          std::min(kTile, plane.sizes[1] - column));
    }
  };
  return parallel(planes * down * across, kGrain / (kTile * kTile), body);
}

npu_status run_pass(const Pass& pass, const Layout& layout) {
  const int dim = transposed_dim(layout, pass);
  if (dim >= 0) {
    return run_tiles(pass, layout, dim);
  }
  const int inner = layout.ndim - 1;
  const std::int64_t numel = layout.numel;
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    Walker at(layout, layout.ndim, begin);
    for (std::int64_t i = begin; i < end;) {
      const std::int64_t n = std::min(at.left(), end - i);
      pass.conversion.line(
          pass.dst + at.dst(),
          layout.dst[inner],
          pass.src + at.src(),
          layout.src[inner],
          n);
      at.advance(n);
      i += n;
    }
  };
  return parallel(numel, kGrain, body);
}

// ---- copy ----

npu_status refuse(const npu_copy_args& args) {
  return fail(
      NPU_E_UNSUPPORTED,
      "npu: host driver: copy from %s to %s.",
      dtype_name(args.in->dtype),
      dtype_name(args.out->dtype));
}

// One pass over parts of the elements: `dst` and `src` are the dtypes of the
// parts, offsets select real (0) or imaginary.
npu_status copy_part(
    const npu_copy_args& args,
    const Layout& layout,
    npu_dtype to,
    npu_dtype from,
    std::int64_t dst_offset,
    std::int64_t src_offset,
    bool negate) {
  Conversion conversion;
  if (!conversion.set(to, from, negate)) {
    return refuse(args);
  }
  const Pass pass{
      conversion,
      static_cast<char*>(args.out->data) + dst_offset,
      static_cast<const char*>(args.in->data) + src_offset,
      static_cast<std::int64_t>(element_bytes(to)),
      static_cast<std::int64_t>(element_bytes(from))};
  return run_pass(pass, layout);
}

// Imaginary parts of a real source.
npu_status zero_imaginary(const npu_copy_args& args, npu_dtype part) {
  static const std::uint64_t zero = 0;
  const auto bytes = static_cast<std::int64_t>(element_bytes(part));
  Layout layout;
  layout.set(*args.out, 2 * bytes, nullptr, 0);
  Conversion conversion;
  conversion.set(part, part, false);
  const Pass pass{
      conversion,
      static_cast<char*>(args.out->data) + bytes,
      reinterpret_cast<const char*>(&zero),
      bytes,
      bytes};
  return run_pass(pass, layout);
}

// True where either part is not zero.
npu_status complex_to_bool(
    const npu_copy_args& args, const Layout& layout, npu_dtype part) {
  Conversion conversion;
  conversion.set(NPU_BOOL, part, false);
  const auto bytes = static_cast<std::int64_t>(element_bytes(part));
  const int inner = layout.ndim - 1;
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    Walker at(layout, layout.ndim, begin);
    for (std::int64_t i = begin; i < end;) {
      char parts[2][256];
      const std::int64_t n = std::min<std::int64_t>({at.left(), end - i, 256});
      const char* src = static_cast<const char*>(args.in->data) + at.src();
      char* dst = static_cast<char*>(args.out->data) + at.dst();
      conversion.line(parts[0], 1, src, layout.src[inner], n);
      conversion.line(parts[1], 1, src + bytes, layout.src[inner], n);
      for (std::int64_t k = 0; k < n; ++k) {
        dst[k * layout.dst[inner]] =
            static_cast<char>(parts[0][k] | parts[1][k]);
      }
      at.advance(n);
      i += n;
    }
  };
  return parallel(layout.numel, kGrain, body);
}

npu_status copy_complex(
    const npu_copy_args& args, Layout& layout, bool conj, bool negate) {
  const npu_dtype to = part_dtype(args.out->dtype);
  const npu_dtype from = part_dtype(args.in->dtype);
  const auto to_bytes = static_cast<std::int64_t>(element_bytes(to));
  const auto from_bytes = static_cast<std::int64_t>(element_bytes(from));
  if (to == NPU_ABSENT) {
    return args.out->dtype == NPU_BOOL
               ? complex_to_bool(args, layout, from)
               : copy_part(args, layout, args.out->dtype, from, 0, 0, negate);
  }
  if (from == NPU_ABSENT) {
    const npu_status status =
        copy_part(args, layout, to, args.in->dtype, 0, 0, negate);
    return status ? status : zero_imaginary(args, to);
  }
  if (!conj) {  // both parts are treated alike: one dim more
    layout.append(2, to_bytes, from_bytes);
    layout.numel *= 2;
    layout.merge();
    return copy_part(args, layout, to, from, 0, 0, negate);
  }
  const npu_status status = copy_part(args, layout, to, from, 0, 0, negate);
  return status
             ? status
             : copy_part(args, layout, to, from, to_bytes, from_bytes, !negate);
}

npu_status copy(const npu_copy_args& args) {
  if (!args.out || !args.in || args.out->numel != args.in->numel) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: copy needs one input and one output of one size.");
  }
  const std::uint32_t differ = args.out->flags ^ args.in->flags;
  const bool negate = (differ & NPU_TENSOR_NEG) != 0;
  const bool is_complex = part_dtype(args.out->dtype) != NPU_ABSENT ||
                          part_dtype(args.in->dtype) != NPU_ABSENT;
  const bool conj = is_complex && (differ & NPU_TENSOR_CONJ) != 0;
  const bool same = args.out->dtype == args.in->dtype && !negate && !conj;
  if (same && npu_same_place(args.out, args.in)) {
    return NPU_OK;
  }
  Layout layout;
  layout.set(
      *args.out,
      static_cast<std::int64_t>(element_bytes(args.out->dtype)),
      args.in,
      static_cast<std::int64_t>(element_bytes(args.in->dtype)));
  return is_complex && !same
             ? copy_complex(args, layout, conj, negate)
             : copy_part(
                   args, layout, args.out->dtype, args.in->dtype, 0, 0, negate);
}

npu_status run_copy(const npu_call& call) {
  return copy(npu_copy_unpack(&call));
}

// ---- fill ----

npu_status fill(const npu_call& call) {
  const npu_fill_args args = npu_fill_unpack(&call);
  alignas(16) char element[16] = {};
  if (!args.out) {
    return fail(NPU_E_INVALID, "npu: host driver: fill needs an output.");
  }
  const npu_dtype dtype = args.out->dtype;
  if (!convert_scalar(dtype, args.attrs.value, element)) {
    return fail(
        NPU_E_UNSUPPORTED, "npu: host driver: fill of %s.", dtype_name(dtype));
  }
  const auto bytes = static_cast<std::int64_t>(element_bytes(dtype));
  Layout layout;
  layout.set(*args.out, bytes, nullptr, 0);
  char* dst = static_cast<char*>(args.out->data);
  const bool dense = layout.ndim == 1 && layout.dst[0] == bytes;
  const bool one_byte = std::all_of(
      element, element + bytes, [&](char c) { return c == element[0]; });
  if (dense && one_byte) {
    const auto body = [&](std::int64_t begin, std::int64_t end) {
      std::memset(
          dst + begin * bytes,
          element[0],
          static_cast<std::size_t>((end - begin) * bytes));
    };
    return parallel(layout.numel, kGrain, body);
  }
  Conversion conversion;
  conversion.set(dtype, dtype, false);
  return run_pass(Pass{conversion, dst, element, bytes, bytes}, layout);
}

// ---- rows ----

npu_status copy_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  out.flags = NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT | NPU_CAP_ALIAS |
              NPU_CAP_INDEX64 | NPU_CAP_DETERMINISTIC | NPU_CAP_HOST_SCALAR;
  out.dtype_rule = NPU_DTYPES_CAST;
  out.plan_use = NPU_PLAN_NONE;
  out.alias_mask = 1;
  // Packed below a byte, it can only be moved as it is: the host side does.
  out.dtypes[0] = out.dtypes[1] = kAnyDtype & ~NPU_DTYPE_BIT(NPU_F4_E2M1FN_X2);
  return NPU_OK;
}

npu_status fill_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  out.flags = NPU_CAP_STRIDED_OUT | NPU_CAP_INDEX64 | NPU_CAP_DETERMINISTIC;
  out.dtype_rule = NPU_DTYPES_SAME;
  out.plan_use = NPU_PLAN_NONE;
  out.dtypes[0] = kAnyDtype & ~NPU_DTYPE_BIT(NPU_F4_E2M1FN_X2);
  return NPU_OK;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_COPY, copy_caps, nullptr, run_copy},
    {NPU_KIND_FILL, fill_caps, nullptr, fill},
};

}  // namespace

npu_status copy_tensor(const npu_tensor& out, const npu_tensor& in) {
  return copy(npu_copy_args{&out, &in});
}

const std::span<const KernelRow> kMoveKernels = kRows;

}  // namespace npu::host
