// SPDX-License-Identifier: Apache-2.0
// Kinds unary, unary_with, binary, compare and ternary: finds the row of the
// code, brings operands into the compute type, stores results.
#include "kernels/map.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>

#include "kernels/convert.h"
#include "kernels/dtype.h"

namespace npu::host {
namespace {

constexpr std::int64_t kChunk = 512;  // elements; buffers stay in the L1 cache
constexpr int kMaxOperands = 5;       // two outputs, three inputs
constexpr npu_scalar kNoScalars[4] = {};

// ---- conversion of one operand ----

// Between an operand and `unit`, the dtype the line computes with.
class Port {
 public:
  // False when there is no such conversion.
  bool set(const npu_tensor& tensor, npu_dtype unit, bool is_input) {
    const npu_dtype dtype = tensor.dtype;
    const bool scalar = (tensor.flags & NPU_TENSOR_HOST_SCALAR) != 0;
    const bool negate = (tensor.flags & NPU_TENSOR_NEG) != 0;
    const bool conj = (tensor.flags & NPU_TENSOR_CONJ) != 0 &&
                      part_dtype(dtype) != NPU_ABSENT;
    data_ = static_cast<char*>(tensor.data);
    bytes_ = static_cast<std::int64_t>(element_bytes(dtype));
    unit_bytes_ = static_cast<std::int64_t>(element_bytes(unit));
    strides_ = scalar ? nullptr : tensor.strides;
    ndim_ = scalar ? 0 : tensor.ndim;
    plain_ = dtype == unit && !negate && !conj;
    const npu_dtype part = part_dtype(dtype);
    const npu_dtype unit_part = part_dtype(unit);
    const npu_dtype mine = part == NPU_ABSENT ? dtype : part;
    const npu_dtype theirs = unit_part == NPU_ABSENT ? unit : unit_part;
    has_part_ = part != NPU_ABSENT;
    unit_has_part_ = unit_part != NPU_ABSENT;
    part_bytes_ = static_cast<std::int64_t>(element_bytes(mine));
    unit_part_bytes_ = static_cast<std::int64_t>(element_bytes(theirs));
    return is_input ? real_.set(theirs, mine, negate) &&
                          imaginary_.set(theirs, mine, negate != conj)
                    : real_.set(mine, theirs, false) &&
                          imaginary_.set(mine, theirs, false);
  }

  bool is_constant() const {
    return std::all_of(
        strides_, strides_ + ndim_, [](std::int64_t s) { return s == 0; });
  }
  std::int64_t stride(int d) const {  // in bytes
    return d < ndim_ ? strides_[d] * bytes_ : 0;
  }
  // The elements themselves, when they lie there as the line needs them.
  char* direct(std::int64_t offset, std::int64_t stride) const {
    return plain_ && stride == bytes_ ? data_ + offset : nullptr;
  }

  void load(char* to, std::int64_t offset, std::int64_t stride, std::int64_t n)
      const {
    const char* from = data_ + offset;
    if (plain_) {
      copy_line(
          static_cast<std::uint32_t>(bytes_), to, bytes_, from, stride, n);
      return;
    }
    real_.line(to, unit_bytes_, from, stride, n);
    if (!unit_has_part_) {
      return;
    }
    if (has_part_) {
      imaginary_.line(
          to + unit_part_bytes_, unit_bytes_, from + part_bytes_, stride, n);
    } else {
      clear_part(to + unit_part_bytes_, unit_bytes_, unit_part_bytes_, n);
    }
  }

  void store(
      const char* from,
      std::int64_t offset,
      std::int64_t stride,
      std::int64_t n) const {
    char* to = data_ + offset;
    if (plain_) {
      copy_line(
          static_cast<std::uint32_t>(bytes_), to, stride, from, bytes_, n);
      return;
    }
    real_.line(to, stride, from, unit_bytes_, n);
    if (!has_part_) {
      return;
    }
    if (unit_has_part_) {
      imaginary_.line(
          to + part_bytes_, stride, from + unit_part_bytes_, unit_bytes_, n);
    } else {
      clear_part(to + part_bytes_, stride, part_bytes_, n);
    }
  }

 private:
  // Imaginary parts of real numbers.
  static void clear_part(
      char* to, std::int64_t stride, std::int64_t bytes, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      std::memset(to + i * stride, 0, static_cast<std::size_t>(bytes));
    }
  }

  char* data_ = nullptr;
  const std::int64_t* strides_ = nullptr;
  int ndim_ = 0;
  bool plain_ = false;
  bool has_part_ = false;
  bool unit_has_part_ = false;
  std::int64_t bytes_ = 0;
  std::int64_t unit_bytes_ = 0;
  std::int64_t part_bytes_ = 0;
  std::int64_t unit_part_bytes_ = 0;
  Conversion real_;
  Conversion imaginary_;
};

// ---- the call ----

struct MapCall {
  MapLineFn fn;
  int n_out;
  int n_in;
  const npu_tensor* operands[kMaxOperands];  // outputs first
  npu_dtype units[kMaxOperands];
  const npu_scalar* scalars;

  int count() const {
    return n_out + n_in;
  }
};

// Every operand is there in the type of the line, one element after another.
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

// A place in n dimensions, with the byte offset of every operand.
struct Place {
  std::int64_t at[NPU_MAX_DIMS + 1];
  std::int64_t offset[kMaxOperands];
};

class StridedMap {
 public:
  explicit StridedMap(const MapCall& map) : map_(map) {}

  npu_status run() {
    const npu_tensor& out = *map_.operands[0];
    for (int i = 0; i < map_.count(); ++i) {
      if (!map_.operands[i]) {
        continue;  // a second output that is not wanted
      }
      const npu_tensor& t = *map_.operands[i];
      const bool scalar = (t.flags & NPU_TENSOR_HOST_SCALAR) != 0;
      if ((!scalar && t.ndim != out.ndim) ||
          !ports_[i].set(t, map_.units[i], i >= map_.n_out)) {
        return fail(
            NPU_E_UNSUPPORTED,
            "npu: host driver: operand %d is %s with %d dimensions, the "
            "output has %d.",
            i,
            dtype_name(t.dtype),
            t.ndim,
            out.ndim);
      }
    }
    ndim_ = out.ndim;
    sizes_ = out.sizes;
    const std::int64_t one = 1;
    if (ndim_ == 0) {
      sizes_ = &one;
      ndim_ = 1;
    }
    return parallel(
        out.numel, kGrain, [&](std::int64_t begin, std::int64_t end) {
          return run_range(begin, end);
        });
  }

 private:
  npu_status run_range(std::int64_t begin, std::int64_t end) const {
    alignas(64) char buffers[kMaxOperands][kChunk * 16];
    bool constant[kMaxOperands];
    for (int i = 0; i < map_.count(); ++i) {
      constant[i] = i >= map_.n_out && ports_[i].is_constant();
      if (constant[i]) {
        ports_[i].load(buffers[i], 0, 0, std::min(kChunk, end - begin));
      }
    }
    Place place = find(begin);
    const int inner = ndim_ - 1;
    while (begin < end) {
      const std::int64_t n =
          std::min({sizes_[inner] - place.at[inner], end - begin, kChunk});
      if (npu_status status = run_chunk(place, n, buffers, constant)) {
        return status;
      }
      advance(place, n);
      begin += n;
    }
    return NPU_OK;
  }

  npu_status run_chunk(
      const Place& place,
      std::int64_t n,
      char (*buffers)[kChunk * 16],
      const bool* constant) const {
    const int inner = ndim_ - 1;
    MapLine line{};
    line.scalars = map_.scalars;
    char* out[2] = {};
    for (int i = 0; i < map_.n_out; ++i) {
      out[i] = ports_[i].direct(place.offset[i], ports_[i].stride(inner));
      line.out[i] = out[i] ? out[i] : buffers[i];
    }
    for (int i = map_.n_out; i < map_.count(); ++i) {
      const std::int64_t stride = ports_[i].stride(inner);
      char* in =
          constant[i] ? buffers[i] : ports_[i].direct(place.offset[i], stride);
      if (!in) {
        in = buffers[i];
        ports_[i].load(in, place.offset[i], stride, n);
      }
      line.in[i - map_.n_out] = in;
    }
    if (npu_status status = map_.fn(line, n)) {
      return status;
    }
    for (int i = 0; i < map_.n_out; ++i) {
      if (!out[i] && map_.operands[i]) {
        ports_[i].store(
            buffers[i], place.offset[i], ports_[i].stride(inner), n);
      }
    }
    return NPU_OK;
  }

  Place find(std::int64_t index) const {
    Place place{};
    for (int d = ndim_ - 1; d >= 0; --d) {
      const std::int64_t at = index % sizes_[d];
      index /= sizes_[d];
      move(place, d, at);
    }
    return place;
  }

  void advance(Place& place, std::int64_t n) const {
    int d = ndim_ - 1;
    move(place, d, n);
    while (d > 0 && place.at[d] == sizes_[d]) {
      move(place, d, -sizes_[d]);
      move(place, --d, 1);
    }
  }

  void move(Place& place, int d, std::int64_t n) const {
    place.at[d] += n;
    for (int i = 0; i < map_.count(); ++i) {
      place.offset[i] += n * ports_[i].stride(d);
    }
  }

  const MapCall& map_;
  Port ports_[kMaxOperands]{};
  int ndim_ = 0;
  const std::int64_t* sizes_ = nullptr;
};

// ---- rows by code ----

const MapLoops& map_loops() {
#if defined(__x86_64__)
  switch (isa()) {
    case Isa::kAvx512:
      return isa_avx512::kMapLoops;
    case Isa::kAvx2:
      return isa_avx2::kMapLoops;
    case Isa::kBaseline:
      break;
  }
#endif
  return isa_baseline::kMapLoops;
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
  std::fill_n(out.dtypes, kOuts, kMapBits);
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

npu_dtype dtype_computed(const npu_call& call, const npu_tensor* in) {
  return call.compute_dtype != NPU_ABSENT ? call.compute_dtype
         : in                             ? in->dtype
                                          : npu_dtype{NPU_ABSENT};
}

npu_status run_row(
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
  }
  if (!map.operands[1] && map.n_out != 2) {
    return refuse(call, "an operand is absent");
  }
  return is_direct(map) ? run_direct(map) : StridedMap(map).run();
}

npu_status unary(const npu_call& call) {
  const npu_unary_args args = npu_unary_unpack(&call);
  const npu_tensor* const outs[] = {args.out, args.out2};
  return run_row(
      call, find_row<NPU_KIND_UNARY>(call.code), outs, &args.in, kNoScalars);
}

// The least and the greatest number of a dtype, as scalars.
void set_limits(npu_dtype dtype, npu_scalar& low, npu_scalar& high) {
  const auto set = [&](double least, double most) {
    low = {NPU_SCALAR_FLOAT, 0, 0, least, 0};
    high = {NPU_SCALAR_FLOAT, 0, 0, most, 0};
  };
  const bool is_signed = dtype >= NPU_I8 && dtype <= NPU_I64;
  switch (dtype) {
    case NPU_F16:
    case NPU_C32:
      return set(-65504.0, 65504.0);
    case NPU_BF16:
      return set(-0x1.fep127, 0x1.fep127);
    case NPU_F32:
    case NPU_C64:
      return set(-0x1.fffffep127, 0x1.fffffep127);
    case NPU_F64:
    case NPU_C128:
      return set(-0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023);
    default: {
      const int bits = static_cast<int>(8 * element_bytes(dtype));
      const std::int64_t most =
          static_cast<std::int64_t>(~UINT64_C(0) >> (64 - bits)) >>
          (is_signed && bits < 64 ? 1 : 0);
      const std::int64_t top = bits < 64 ? most : INT64_MAX;
      const std::int64_t bottom = is_signed ? -top - 1 : 0;
      low = {NPU_SCALAR_INT, 0, bottom, static_cast<double>(bottom), 0};
      high = {NPU_SCALAR_INT, 0, top, static_cast<double>(top), 0};
    }
  }
}

npu_status unary_with(const npu_call& call) {
  const npu_unary_with_args args = npu_unary_with_unpack(&call);
  npu_scalar scalars[] = {
      args.attrs.a, args.attrs.b, args.attrs.c, args.attrs.d};
  std::uint32_t code = call.code;
  if (code == NPU_UNARY_WITH_CAST_CLAMP && args.out) {
    code = NPU_UNARY_WITH_CLAMP;
    set_limits(args.out->dtype, scalars[0], scalars[1]);
  }
  if (code == NPU_UNARY_WITH_NAN_TO_NUM) {
    npu_scalar low, high;
    set_limits(dtype_computed(call, args.in), low, high);
    scalars[1] = scalars[1].kind == NPU_SCALAR_NONE ? high : scalars[1];
    scalars[2] = scalars[2].kind == NPU_SCALAR_NONE ? low : scalars[2];
  }
  return run_row(
      call, find_row<NPU_KIND_UNARY_WITH>(code), &args.out, &args.in, scalars);
}

npu_status binary(const npu_call& call) {
  const npu_binary_args args = npu_binary_unpack(&call);
  const npu_tensor* const ins[] = {args.in, args.other};
  const npu_scalar scalars[] = {
      args.attrs.a, args.attrs.b, args.attrs.c, args.attrs.d};
  return run_row(
      call, find_row<NPU_KIND_BINARY>(call.code), &args.out, ins, scalars);
}

npu_status compare(const npu_call& call) {
  const npu_compare_args args = npu_compare_unpack(&call);
  const npu_tensor* const ins[] = {args.in, args.other};
  return run_row(
      call, find_row<NPU_KIND_COMPARE>(call.code), &args.out, ins, kNoScalars);
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

npu_status zero_division() noexcept {
  return fail(NPU_E_ASYNC, "ZeroDivisionError");
}

const std::span<const KernelRow> kMapKernels = kRows;

}  // namespace npu::host
