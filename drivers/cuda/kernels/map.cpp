// SPDX-License-Identifier: Apache-2.0
// Kinds unary, unary_with, binary, compare and ternary: finds the row of the
// code, and says how its kernel is to read and write the operands.
#include "kernels/map.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "shared/map_rules.h"

namespace npu::cuda {
namespace {

constexpr npu_scalar kNoScalars[4] = {};

// The rows of one kind by code.
class RowsOf {
 public:
  RowsOf(std::initializer_list<MapRows> tables) {
    for (const MapRows& table : tables) {
      for (const MapRow& row : table) {
        rows_[row.code] = row;
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

const MapRow* find_row(std::uint32_t slot, std::uint32_t code) {
  static const RowsOf unary{kUnaryElementary, kUnarySpecial, kUnaryActivations};
  static const RowsOf unary_with{kUnaryWithRows};
  static const RowsOf binary{kBinaryArithmetic, kBinaryGradients};
  static const RowsOf compare{kCompareRows};
  static const RowsOf ternary{kTernaryRows};
  switch (slot) {
    case NPU_KIND_UNARY:
      return unary.find(code);
    case NPU_KIND_UNARY_WITH:
      // Limits of the output's dtype take the place of its scalars.
      return unary_with.find(
          code == NPU_UNARY_WITH_CAST_CLAMP ? NPU_UNARY_WITH_CLAMP : code);
    case NPU_KIND_BINARY:
      return binary.find(code);
    case NPU_KIND_COMPARE:
      return compare.find(code);
    default:
      return ternary.find(code);
  }
}

template <std::uint32_t kKind>
npu_status caps(std::uint32_t code, npu_op_caps& out) {
  const MapRow* const row = find_row(kKind, code);
  if (!row) {
    return NPU_E_UNSUPPORTED;
  }
  usual_caps(out, NPU_DTYPES_CAST);
  out.flags |= NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT | NPU_CAP_ALIAS |
               NPU_CAP_HOST_SCALAR;
  out.max_ndim = kMostDims;
  out.alias_mask = (UINT64_C(1) << row->n_in) - 1;
  constexpr int kOuts =
      kKind == NPU_KIND_UNARY || kKind == NPU_KIND_TERNARY ? 2 : 1;
  const bool makes_bools =
      (row->dtypes & kBoolBit) != 0 ||
      std::ranges::find(row->out, npu_dtype{NPU_BOOL}) != std::end(row->out);
  std::fill_n(out.dtypes, kOuts, makes_bools ? kMapBits : kMapBits & ~kBoolBit);
  std::fill_n(out.dtypes + kOuts, row->n_in, row->in_dtypes);
  return NPU_OK;
}

void set_operand(MapOperand& out, const npu_tensor* t, npu_dtype rounds_to) {
  if (!t) {
    return;
  }
  out.present = 1;
  out.data = static_cast<char*>(t->data);
  out.dtype = t->dtype;
  out.rounds_to = rounds_to;
  out.conjugate = (t->flags & NPU_TENSOR_CONJ) != 0;
  out.negate = (t->flags & NPU_TENSOR_NEG) != 0;
  out.is_number = (t->flags & NPU_TENSOR_HOST_SCALAR) != 0;
  if (out.is_number) {
    std::memcpy(out.number, t->data, element_bytes(t->dtype));
  }
}

int flat_type(npu_dtype dtype) {
  return dtype == NPU_F32    ? kFlatF32
         : dtype == NPU_F16  ? kFlatF16
         : dtype == NPU_BF16 ? kFlatBF16
                             : -1;
}

// The kernel for contiguous operands of one dtype; null: not such a call.
const void* flat_kernel(
    FlatMapArgs& args,
    const npu_call& call,
    const MapRow& row,
    const npu_tensor& out,
    const npu_tensor* const* ins) {
  const npu_dtype dtype = dtype_computed(call, ins[0]);
  const int type = flat_type(dtype);
  if (type < 0 || !row.flat[type]) {
    return nullptr;
  }
  constexpr std::uint32_t kFlags =
      NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_CONJ | NPU_TENSOR_NEG;
  const bool truth = row.out[kInFloat] == NPU_BOOL;
  if (out.dtype != (truth ? npu_dtype{NPU_BOOL} : dtype) ||
      (out.flags & kFlags) != NPU_TENSOR_CONTIGUOUS) {
    return nullptr;
  }
  args.n = out.numel;
  args.out = out.data;
  auto addresses = reinterpret_cast<std::uintptr_t>(out.data);
  for (int i = 0; i < row.n_in; ++i) {
    const npu_tensor& in = *ins[i];
    if ((in.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
      // In the dtype or in float32, and then it is not rounded.
      if (in.dtype != NPU_F32 || (in.flags & (kFlags & ~1u)) != 0) {
        return nullptr;
      }
      std::memcpy(&args.number[i], in.data, sizeof(float));
      continue;
    }
    if (in.dtype != dtype || in.numel != out.numel ||
        (in.flags & kFlags) != NPU_TENSOR_CONTIGUOUS) {
      return nullptr;
    }
    args.in[i] = in.data;
    addresses |= reinterpret_cast<std::uintptr_t>(in.data);
  }
  args.aligned = addresses % 16 == 0;
  return row.flat[type];
}

npu_status run_row(
    Stream& stream,
    const npu_call& call,
    const MapRow* row,
    const npu_tensor* const (&outs)[2],
    const npu_tensor* const* ins,
    const npu_scalar* scalars) {
  if (!row) {
    return refuse(call, "no such code");
  }
  const npu_dtype dtype = dtype_computed(call, ins[0]);
  const int type = compute_type(dtype);
  if (type < 0 || !row->kernel[type]) {
    return refuse(call, npu_dtype_name(dtype));
  }
  for (int i = 0; i < row->n_in; ++i) {
    if (!ins[i]) {
      return refuse(call, "an operand is absent");
    }
  }
  if (FlatMapArgs flat{}; outs[0]) {
    if (const void* const kernel =
            flat_kernel(flat, call, *row, *outs[0], ins)) {
      std::copy_n(scalars, 4, flat.scalars);
      const auto each = static_cast<std::int64_t>(16 / element_bytes(dtype));
      void* pointers[] = {&flat};
      return launch_any(
          stream,
          kernel,
          blocks_for(stream, (flat.n + each - 1) / each),
          kThreads,
          pointers,
          0);
    }
  }
  const int n_out = row->out2[type] == NPU_ABSENT ? 1 : 2;
  MapArgs args{};
  const npu_tensor* operands[kMapOperands] = {};
  for (int i = 0; i < n_out; ++i) {
    operands[i] = outs[i];
    const npu_dtype unit = i == 0 ? row->out[type] : row->out2[type];
    set_operand(
        args.operands[i],
        outs[i],
        outs[i] ? map_rounding(unit, dtype, outs[i]->dtype)
                : npu_dtype{NPU_ABSENT});
  }
  for (int i = 0; i < row->n_in; ++i) {
    operands[2 + i] = ins[i];
    set_operand(args.operands[2 + i], ins[i], input_rounding(dtype, *ins[i]));
  }
  if (!outs[0] && !(n_out == 2 && outs[1])) {
    return refuse(call, "an operand is absent");
  }
  // The layout takes its sizes from its first operand.
  const npu_tensor* order[kMapOperands];
  std::copy_n(operands, kMapOperands, order);
  if (!order[0]) {
    order[0] = outs[1];
  }
  if (!make_layout(args.layout, order)) {
    return refuse(call, "more than 16 dimensions");
  }
  std::copy_n(scalars, 4, args.scalars);
  if (row->divides) {
    args.note = note_for(stream, call, 2, "ZeroDivisionError");
  }
  void* pointers[] = {&args};
  return launch_any(
      stream,
      row->kernel[type],
      blocks_for(stream, args.layout.numel),
      kThreads,
      pointers,
      0);
}

npu_status unary(Stream& stream, const npu_call& call) {
  const npu_unary_args args = npu_unary_unpack(&call);
  return run_row(
      stream,
      call,
      find_row(call.slot, call.code),
      {args.out, args.out2},
      &args.in,
      kNoScalars);
}

npu_status unary_with(Stream& stream, const npu_call& call) {
  const npu_unary_with_args args = npu_unary_with_unpack(&call);
  npu_scalar scalars[] = {
      args.attrs.a, args.attrs.b, args.attrs.c, args.attrs.d};
  const std::uint32_t code = settle_scalars(
      call.code,
      dtype_computed(call, args.in),
      args.out ? args.out->dtype : npu_dtype{NPU_ABSENT},
      scalars);
  return run_row(
      stream,
      call,
      find_row(call.slot, code),
      {args.out, nullptr},
      &args.in,
      scalars);
}

npu_status binary(Stream& stream, const npu_call& call) {
  const npu_binary_args args = npu_binary_unpack(&call);
  const npu_tensor* const ins[] = {args.in, args.other};
  const npu_scalar scalars[] = {
      args.attrs.a, args.attrs.b, args.attrs.c, args.attrs.d};
  return run_row(
      stream,
      call,
      find_row(call.slot, call.code),
      {args.out, nullptr},
      ins,
      scalars);
}

npu_status compare(Stream& stream, const npu_call& call) {
  const npu_compare_args args = npu_compare_unpack(&call);
  const npu_tensor* const ins[] = {args.in, args.other};
  return run_row(
      stream,
      call,
      find_row(call.slot, call.code),
      {args.out, nullptr},
      ins,
      kNoScalars);
}

npu_status ternary(Stream& stream, const npu_call& call) {
  const npu_ternary_args args = npu_ternary_unpack(&call);
  const npu_tensor* ins[] = {args.x, args.y, args.z};
  const npu_scalar scalars[] = {
      args.attrs.a, args.attrs.b, args.attrs.c, npu_scalar{}};
  const MapRow* row = find_row(call.slot, call.code);
  if (call.code == NPU_TERNARY_CLAMP && !(args.y && args.z)) {
    row = find_row(
        NPU_KIND_BINARY, args.y ? NPU_BINARY_MAXIMUM : NPU_BINARY_MINIMUM);
    ins[1] = args.y ? args.y : args.z;
  }
  return run_row(stream, call, row, {args.out, args.out2}, ins, scalars);
}

constexpr KernelRow kTable[] = {
    {NPU_KIND_UNARY, caps<NPU_KIND_UNARY>, nullptr, unary},
    {NPU_KIND_UNARY_WITH, caps<NPU_KIND_UNARY_WITH>, nullptr, unary_with},
    {NPU_KIND_BINARY, caps<NPU_KIND_BINARY>, nullptr, binary},
    {NPU_KIND_COMPARE, caps<NPU_KIND_COMPARE>, nullptr, compare},
    {NPU_KIND_TERNARY, caps<NPU_KIND_TERNARY>, nullptr, ternary},
};

}  // namespace

const Rows kMapKernels = kTable;

}  // namespace npu::cuda
