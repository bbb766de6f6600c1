// SPDX-License-Identifier: Apache-2.0
// Kinds unary, unary_with, binary, compare and ternary: finds the row of the
// code, converts operands to the compute type, stores results.
#include "kernels/map.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <initializer_list>

#include "kernels/dtype.h"
#include "kernels/map_call.h"
#include "shared/map_rules.h"

namespace npu::host {
namespace {

constexpr npu_scalar kNoScalars[4] = {};

// Every operand is contiguous and has the dtype the line computes with.
bool is_direct(const MapCall& map) {
  const std::int64_t numel = map.operands[0]->numel;
  for (int i = 0; i < map.count(); ++i) {
    if (!map.operands[i]) {
      return false;
    }
    const npu_tensor& t = *map.operands[i];
    if (t.dtype != map.units[i] || t.numel != numel ||
        (t.flags & (NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_CONJ | NPU_TENSOR_NEG |
                    NPU_TENSOR_HOST_SCALAR)) != NPU_TENSOR_CONTIGUOUS) {
      return false;
    }
  }
  return true;
}

npu_status run_direct(const MapCall& map) {
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    MapLine line{};
    line.scalars = map.scalars;
    for (int i = 0; i < map.count(); ++i) {
      char* data =
          static_cast<char*>(map.operands[i]->data) +
          begin * static_cast<std::int64_t>(element_bytes(map.units[i]));
      (i < map.n_out ? line.out[i]
                     : const_cast<void*&>(line.in[i - map.n_out])) = data;
    }
    return map.fn(line, end - begin);
  };
  return parallel(map.operands[0]->numel, kGrain, body);
}

// ---- rows by code ----

const MapLoops& map_loops() {
  return NPU_TABLE_IN_USE(kMapLoops);
}

// The rows of one kind by code, with the loops of this machine's instruction
// set put in.
class RowsOf {
 public:
  RowsOf(
      std::uint32_t slot,
      std::initializer_list<std::span<const MapRow>> tables) {
    for (const auto& table : tables) {
      for (const MapRow& row : table) {
        rows_[row.code] = row;
      }
    }
    const MapLoops& loops = map_loops();
    for (int i = 0; i < loops.count; ++i) {
      const MapLoop& loop = loops.rows[i];
      if (loop.slot == slot) {
        rows_[loop.code].line[kInFloat] = loop.line[0];
        rows_[loop.code].line[kInDouble] = loop.line[1];
      }
    }
  }
  const MapRow* find(std::uint32_t code) const {
    return code < kMostCodes && rows_[code].n_in > 0 ? &rows_[code] : nullptr;
  }

 private:
  static constexpr std::uint32_t kMostCodes = 96;
  static_assert(
      NPU_UNARY_CODES <= kMostCodes && NPU_BINARY_CODES <= kMostCodes);
  std::array<MapRow, kMostCodes> rows_{};
};

template <std::uint32_t Kind>
const MapRow* find_row(std::uint32_t code) {
  if constexpr (Kind == NPU_KIND_UNARY) {
    static const RowsOf rows(
        Kind, {kUnaryElementary, kUnarySpecial, kUnaryActivations});
    return rows.find(code);
  } else if constexpr (Kind == NPU_KIND_UNARY_WITH) {
    static const RowsOf rows(Kind, {kUnaryWithRows});
    return rows.find(code);
  } else if constexpr (Kind == NPU_KIND_BINARY) {
    static const RowsOf rows(
        Kind, {kBinaryArithmetic, kBinarySpecial, kBinaryGradients});
    return rows.find(code);
  } else if constexpr (Kind == NPU_KIND_COMPARE) {
    static const RowsOf rows(Kind, {kCompareRows});
    return rows.find(code);
  } else {
    static const RowsOf rows(Kind, {kTernaryRows});
    return rows.find(code);
  }
}

// ---- entry points ----

template <std::uint32_t Kind>
npu_status caps(std::uint32_t code, npu_op_caps& out) {
  const MapRow* row = find_row<Kind>(code);
  if (!row) {
    return NPU_E_UNSUPPORTED;
  }
  out.flags = NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT | NPU_CAP_ALIAS |
              NPU_CAP_INDEX64 | NPU_CAP_DETERMINISTIC | NPU_CAP_HOST_SCALAR;
  out.dtype_rule = NPU_DTYPES_CAST;
  out.plan_use = NPU_PLAN_NONE;
  out.alias_mask = (UINT64_C(1) << row->n_in) - 1;
  constexpr int kOuts =
      Kind == NPU_KIND_UNARY || Kind == NPU_KIND_TERNARY ? 2 : 1;
  // Nothing but truth values is stored as those: a kernel that only promotes
  // them computes in none.
  const bool makes_bools =
      (row->dtypes & kBoolBit) != 0 ||
      std::ranges::find(row->out, npu_dtype{NPU_BOOL}) != std::end(row->out);
  std::fill_n(out.dtypes, kOuts, makes_bools ? kMapBits : kMapBits & ~kBoolBit);
  std::fill_n(out.dtypes + kOuts, row->n_in, row->in_dtypes);
  return NPU_OK;
}

npu_status refuse(const npu_call& call, const char* what) {
  return fail(
      NPU_E_UNSUPPORTED,
      "npu: host driver: %s.%s: %s.",
      npu_kind_name(call.slot),
      npu_code_name(call.slot, call.code),
      what);
}

// Fast path: all operands are contiguous and have the dtypes of the line, with
// few enough elements for one thread. False: not such a call.
bool run_plain(
    const npu_call& call,
    const MapRow& row,
    const npu_scalar* scalars,
    npu_status& status) {
  const int type = compute_type(call.compute_dtype);
  if (type < 0 || call.compute_dtype != kComputeDtype[type] ||
      !row.line[type] || row.out2[type] != NPU_ABSENT ||
      call.n_in != static_cast<std::uint32_t>(row.n_in)) {
    return false;
  }
  constexpr std::uint32_t kFlags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_CONJ |
                                   NPU_TENSOR_NEG | NPU_TENSOR_HOST_SCALAR;
  const npu_tensor& out = call.tensors[0];
  MapLine line;
  line.scalars = scalars;
  line.out[0] = out.data;
  bool plain = out.dtype == row.out[type] && out.numel <= kGrain &&
               (out.flags & kFlags) == NPU_TENSOR_CONTIGUOUS;
  for (std::uint32_t i = 0; i < call.n_in; ++i) {
    const npu_tensor& in = call.tensors[call.n_out + i];
    plain = plain && in.dtype == kComputeDtype[type] && in.numel == out.numel &&
            (in.flags & kFlags) == NPU_TENSOR_CONTIGUOUS;
    line.in[i] = in.data;
  }
  if (plain) {
    status = row.line[type](line, out.numel);
  }
  return plain;
}

npu_status run_any(
    const npu_call& call,
    const MapRow* row,
    const npu_tensor* const* outs,
    const npu_tensor* const* ins,
    const npu_scalar* scalars) {
  if (!row) {
    return refuse(call, "no such code");
  }
  const npu_dtype dtype = dtype_computed(call, ins[0]);
  const int type = compute_type(dtype);
  if (type < 0 || !row->line[type]) {
    return refuse(call, dtype_name(dtype));
  }
  MapCall map{};
  map.fn = row->line[type];
  map.scalars = scalars;
  map.n_out = row->out2[type] == NPU_ABSENT ? 1 : 2;
  map.n_in = row->n_in;
  const npu_dtype results[2] = {row->out[type], row->out2[type]};
  for (int i = 0; i < map.count(); ++i) {
    const bool is_out = i < map.n_out;
    map.operands[i] = is_out ? outs[i] : ins[i - map.n_out];
    map.units[i] = is_out ? results[i] : kComputeDtype[type];
    if (!map.operands[i] && i != 1) {
      return refuse(call, "an operand is absent");
    }
    if (map.operands[i]) {
      map.rounds_to[i] =
          is_out ? map_rounding(results[i], dtype, map.operands[i]->dtype)
                 : input_rounding(dtype, *map.operands[i]);
    }
  }
  if (!map.operands[1] && map.n_out != 2) {
    return refuse(call, "an operand is absent");
  }
  return !map.rounds() && is_direct(map) ? run_direct(map) : run_strided(map);
}

npu_status run_row(
    const npu_call& call,
    const MapRow* row,
    const npu_tensor* const* outs,
    const npu_tensor* const* ins,
    const npu_scalar* scalars) {
  npu_status status = NPU_OK;
  return row && run_plain(call, *row, scalars, status)
             ? status
             : run_any(call, row, outs, ins, scalars);
}

// Kinds whose scalars are used as they come try the fast path before they
// unpack the call, which copies attributes.

npu_status unary(const npu_call& call) {
  const MapRow* const row = find_row<NPU_KIND_UNARY>(call.code);
  npu_status status = NPU_OK;
  if (row && run_plain(call, *row, kNoScalars, status)) {
    return status;
  }
  const npu_unary_args args = npu_unary_unpack(&call);
  const npu_tensor* const outs[] = {args.out, args.out2};
  return run_any(call, row, outs, &args.in, kNoScalars);
}

npu_status unary_with(const npu_call& call) {
  const npu_unary_with_args args = npu_unary_with_unpack(&call);
  npu_scalar scalars[] = {
      args.attrs.a, args.attrs.b, args.attrs.c, args.attrs.d};
  const std::uint32_t code = settle_scalars(
      call.code,
      dtype_computed(call, args.in),
      args.out ? args.out->dtype : npu_dtype{NPU_ABSENT},
      scalars);
  return run_row(
      call, find_row<NPU_KIND_UNARY_WITH>(code), &args.out, &args.in, scalars);
}

// The attributes where the caller has them; null when they are fewer, of a
// caller that is older, or not aligned.
template <class Attrs>
const Attrs* attrs_in_place(const npu_call& call) {
  const bool usable =
      call.attr_bytes >= sizeof(Attrs) &&
      reinterpret_cast<std::uintptr_t>(call.attrs) % alignof(Attrs) == 0;
  return usable ? static_cast<const Attrs*>(call.attrs) : nullptr;
}

npu_status binary(const npu_call& call) {
  // The four scalars lie side by side: no copy of them is needed.
  static_assert(
      offsetof(npu_binary_attrs, d) ==
      offsetof(npu_binary_attrs, a) + 3 * sizeof(npu_scalar));
  const MapRow* const row = find_row<NPU_KIND_BINARY>(call.code);
  const auto* const attrs = attrs_in_place<npu_binary_attrs>(call);
  npu_status status = NPU_OK;
  if (row && attrs && run_plain(call, *row, &attrs->a, status)) {
    return status;
  }
  const npu_binary_args args = npu_binary_unpack(&call);
  const npu_tensor* const ins[] = {args.in, args.other};
  return run_any(call, row, &args.out, ins, &args.attrs.a);
}

npu_status compare(const npu_call& call) {
  const MapRow* const row = find_row<NPU_KIND_COMPARE>(call.code);
  npu_status status = NPU_OK;
  if (row && run_plain(call, *row, kNoScalars, status)) {
    return status;
  }
  const npu_compare_args args = npu_compare_unpack(&call);
  const npu_tensor* const ins[] = {args.in, args.other};
  return run_any(call, row, &args.out, ins, kNoScalars);
}

npu_status ternary(const npu_call& call) {
  const npu_ternary_args args = npu_ternary_unpack(&call);
  const npu_tensor* const outs[] = {args.out, args.out2};
  const npu_tensor* ins[] = {args.x, args.y, args.z};
  const npu_scalar scalars[] = {
      args.attrs.a, args.attrs.b, args.attrs.c, npu_scalar{}};
  const MapRow* row = find_row<NPU_KIND_TERNARY>(call.code);
  if (call.code == NPU_TERNARY_CLAMP && !(args.y && args.z)) {
    row = find_row<NPU_KIND_BINARY>(
        args.y ? NPU_BINARY_MAXIMUM : NPU_BINARY_MINIMUM);
    ins[1] = args.y ? args.y : args.z;
  }
  return run_row(call, row, outs, ins, scalars);
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_UNARY, caps<NPU_KIND_UNARY>, nullptr, unary},
    {NPU_KIND_UNARY_WITH, caps<NPU_KIND_UNARY_WITH>, nullptr, unary_with},
    {NPU_KIND_BINARY, caps<NPU_KIND_BINARY>, nullptr, binary},
    {NPU_KIND_COMPARE, caps<NPU_KIND_COMPARE>, nullptr, compare},
    {NPU_KIND_TERNARY, caps<NPU_KIND_TERNARY>, nullptr, ternary},
};

}  // namespace

const MapRow* find_map_row(std::uint32_t slot, std::uint32_t code) {
  switch (slot) {
    case NPU_KIND_UNARY:
      return find_row<NPU_KIND_UNARY>(code);
    case NPU_KIND_UNARY_WITH:
      return find_row<NPU_KIND_UNARY_WITH>(code);
    case NPU_KIND_BINARY:
      return find_row<NPU_KIND_BINARY>(code);
    case NPU_KIND_COMPARE:
      return find_row<NPU_KIND_COMPARE>(code);
    case NPU_KIND_TERNARY:
      return find_row<NPU_KIND_TERNARY>(code);
    default:
      return nullptr;
  }
}

npu_status zero_division() noexcept {
  return fail(NPU_E_ASYNC, "ZeroDivisionError");
}

const std::span<const KernelRow> kMapKernels = kRows;

}  // namespace npu::host
