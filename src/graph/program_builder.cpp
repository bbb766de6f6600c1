// SPDX-License-Identifier: Apache-2.0
// Frames of elementwise kinds as one program.
#include "graph/program_builder.h"

#include <algorithm>
#include <cstring>

#include "npu/validate.h"

namespace npu::graph {
namespace {

constexpr std::uint8_t kNone = NPU_PROGRAM_NONE;
constexpr std::size_t kMostLabel = 160;

bool is_half(npu_dtype dtype) {
  return dtype == NPU_F16 || dtype == NPU_BF16;
}

// A copy moves bits; through a register of a half type a signalling NaN would
// come out as a quiet one.
bool moves_bits(const npu_call& call) {
  const auto part = [&](std::uint32_t i) {
    const npu_dtype dtype = call.tensors[i].dtype;
    return dtype == NPU_C32 ? npu_dtype{NPU_F16} : dtype;
  };
  return call.slot == NPU_KIND_COPY && part(0) == part(1) && is_half(part(0));
}

// Kinds and codes of one output that programs have.
bool is_map(const npu_call& call) {
  return !moves_bits(call) && call.slot != NPU_KIND_FILL &&
         call.slot != NPU_KIND_REDUCE &&
         npu_program_has_code(call.slot, call.code) && call.n_lists == 0 &&
         call.workspace == nullptr && call.n_out > 0 &&
         call.tensors[0].dtype != NPU_ABSENT &&
         (call.n_out == 1 || call.tensors[1].dtype == NPU_ABSENT);
}

// A call that computes in a half type rounds tensors of other dtypes to it
// first. Programs say so, since numbers of the host become registers too and
// are not rounded.
std::uint8_t rounds_to(const npu_call& call, npu_dtype dtype) {
  const npu_dtype computed = call.compute_dtype != NPU_ABSENT
                                 ? call.compute_dtype
                                 : call.tensors[call.n_out].dtype;
  return call.slot != NPU_KIND_COPY && is_half(computed) && dtype != computed &&
                 dtype != NPU_BOOL
             ? static_cast<std::uint8_t>(computed)
             : std::uint8_t{NPU_ABSENT};
}

std::uint32_t map_slot(std::uint32_t code) {
  switch (code) {
    case NPU_MULTI_MAP_UNARY:
      return NPU_KIND_UNARY;
    case NPU_MULTI_MAP_UNARY_WITH:
      return NPU_KIND_UNARY_WITH;
    case NPU_MULTI_MAP_BINARY:
      return NPU_KIND_BINARY;
    case NPU_MULTI_MAP_TERNARY:
      return NPU_KIND_TERNARY;
    default:
      return 0;
  }
}

// How many of the last dimensions a reduction is over; 0: not those alone.
std::size_t last_dims(const npu_call& call, const npu_tensor& in) {
  const std::uint64_t dims = npu_reduce_unpack(&call).attrs.dims;
  std::size_t n = 0;
  while (n < in.ndim && (dims >> (in.ndim - 1 - n) & 1) != 0) {
    ++n;
  }
  const std::uint64_t these = ((UINT64_C(1) << n) - 1) << (in.ndim - n);
  return n < 64 && dims == these ? n : 0;
}

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  std::int64_t n = 1;
  for (const std::int64_t size : sizes) {
    n *= size;
  }
  return n;
}

// Of a contiguous operand.
void reshape(ProgramOperand& operand, const std::vector<std::int64_t>& sizes) {
  operand.sizes = sizes;
  operand.strides.assign(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) {
    operand.strides[d - 1] = operand.strides[d] * sizes[d];
  }
}

}  // namespace

std::optional<FillOfBuffer> fill_of(const FrameCopy& frame) {
  const npu_call& call = frame.frame();
  if (call.slot != NPU_KIND_FILL || call.n_out != 1 ||
      (call.tensors[0].flags & NPU_TENSOR_CONTIGUOUS) == 0) {
    return std::nullopt;
  }
  const npu_tensor& out = call.tensors[0];
  const std::optional<Ref> at = frame.place_of(&out.data);
  npu_fill_attrs attrs;
  npu_call_attrs(&call, &attrs, sizeof(attrs));
  if (!at || at->offset != 0) {
    return std::nullopt;
  }
  return FillOfBuffer{
      at->buffer,
      static_cast<std::uint64_t>(out.numel) * npu_dtype_bytes(out.dtype),
      {attrs.value, out.dtype}};
}

bool ProgramBuilder::touches(const std::function<bool(BufferId)>& is) const {
  const auto any = [&](const ProgramOperand& operand) {
    return std::ranges::any_of(
        operand.data, [&](const Ref& ref) { return is(ref.buffer); });
  };
  return std::ranges::any_of(inputs_, any) ||
         std::ranges::any_of(results_, any, &Result::place);
}

// ---- registers ----

std::optional<std::uint8_t> ProgramBuilder::add(npu_program_op op) {
  if (attrs_.n_ops == NPU_PROGRAM_OPS) {
    return std::nullopt;
  }
  attrs_.ops[attrs_.n_ops] = npu_program_word(op);
  return static_cast<std::uint8_t>(NPU_PROGRAM_INPUTS + attrs_.n_ops++);
}

// Operations with equal words make equal registers.
std::optional<std::uint8_t> ProgramBuilder::find_or_add(npu_program_op op) {
  for (std::uint32_t i = 0; i < attrs_.n_ops; ++i) {
    if (attrs_.ops[i] == npu_program_word(op)) {
      return static_cast<std::uint8_t>(NPU_PROGRAM_INPUTS + i);
    }
  }
  return add(op);
}

// Scalars that are not set are left out; equal ones are shared.
bool ProgramBuilder::add_scalars(
    const npu_scalar* scalars, std::uint32_t n, npu_program_op& op) {
  op.scalar = kNone;
  const auto is_none = [](const npu_scalar& s) {
    return s.kind == NPU_SCALAR_NONE;
  };
  if (std::all_of(scalars, scalars + n, is_none)) {
    return true;
  }
  for (std::uint32_t at = 0; at + n <= n_scalars_; ++at) {
    if (std::memcmp(attrs_.scalars + at, scalars, n * sizeof(npu_scalar)) ==
        0) {
      op.scalar = static_cast<std::uint8_t>(at);
      return true;
    }
  }
  if (n_scalars_ + n > NPU_PROGRAM_SCALARS) {
    return false;
  }
  std::copy_n(scalars, n, attrs_.scalars + n_scalars_);
  op.scalar = static_cast<std::uint8_t>(n_scalars_);
  n_scalars_ += n;
  return true;
}

std::optional<std::uint8_t> ProgramBuilder::constant(
    const npu_scalar& value, npu_dtype dtype) {
  npu_program_op op{
      NPU_KIND_FILL,
      0,
      NPU_ABSENT,
      static_cast<std::uint8_t>(dtype),
      {kNone, kNone, kNone},
      kNone};
  npu_scalar given = value;
  if (given.kind == NPU_SCALAR_NONE) {
    given = {NPU_SCALAR_FLOAT, 0, 0, 0, 0};
  }
  if (!add_scalars(&given, 1, op)) {
    return std::nullopt;
  }
  return find_or_add(op);
}

// The register of a place: what the chain wrote there, a number that is known
// to be there, or an input.
std::optional<std::uint8_t> ProgramBuilder::read(
    const ProgramOperand& operand, const FilledBuffers& filled) {
  for (const Result& result : results_) {
    if (result.place.same_place(operand)) {
      return static_cast<std::uint8_t>(result.reg);
    }
    for (const Ref& ref : operand.data) {
      if (std::ranges::any_of(result.place.data, [&](const Ref& written) {
            return written.buffer == ref.buffer;
          })) {
        return std::nullopt;
      }
    }
  }
  const auto number_of = [&](const Ref& ref) -> const Filled* {
    const auto found = filled.find(ref.buffer);
    return found == filled.end() ? nullptr : &found->second;
  };
  const Filled* const first = number_of(operand.data[0]);
  const bool all =
      first != nullptr && first->dtype == operand.dtype &&
      std::ranges::all_of(operand.data, [&](const Ref& ref) {
        const Filled* const each = number_of(ref);
        return each != nullptr && each->dtype == first->dtype &&
               // The bits decide: a NaN equals itself.
               // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
               std::memcmp(&each->value, &first->value, sizeof(each->value)) ==
                   0;
      });
  if (all) {
    for (const Ref& ref : operand.data) {
      constants_.push_back(ref.buffer);
    }
    return constant(first->value, first->dtype);
  }
  const auto known = std::ranges::find_if(
      inputs_,
      [&](const ProgramOperand& in) { return in.same_place(operand); });
  const auto index = static_cast<std::uint8_t>(known - inputs_.begin());
  if (known == inputs_.end()) {
    if (inputs_.size() == NPU_PROGRAM_INPUTS) {
      return std::nullopt;
    }
    inputs_.push_back(operand);
  }
  return index;
}

bool ProgramBuilder::write(const ProgramOperand& operand, std::uint8_t reg) {
  const auto bad = [&](const ProgramOperand& other) {
    return crosses(other, operand);
  };
  if (std::ranges::any_of(inputs_, bad)) {
    return false;
  }
  for (Result& result : results_) {
    if (result.place.same_place(operand)) {
      result.reg = reg;
      return true;
    }
    for (const Ref& ref : operand.data) {
      if (std::ranges::any_of(result.place.data, [&](const Ref& written) {
            return written.buffer == ref.buffer;
          })) {
        return false;
      }
    }
  }
  results_.push_back({operand, reg});
  return true;
}

// ---- frames ----

bool ProgramBuilder::same_call(const npu_call& call) {
  if (empty_) {
    math_mode_ = call.math_mode;
  }
  flags_ &= call.flags;
  deterministic_ |= call.deterministic;
  const std::string name = call.label == nullptr ? "?" : call.label;
  if (label_.size() + name.size() < kMostLabel) {
    label_ += (label_.empty() ? "" : " + ") + name;
  }
  return math_mode_ == call.math_mode;
}

// One sizes for all. Operands that are all contiguous have any sizes of as many
// elements.
bool ProgramBuilder::unify_sizes(std::vector<ProgramOperand>& operands) {
  const std::vector<std::int64_t> theirs = operands[0].sizes;
  const bool flat = std::ranges::all_of(operands, &ProgramOperand::contiguous);
  if (empty_) {
    sizes_ = theirs;
  }
  if (sizes_ == theirs) {
    return true;
  }
  if (product(sizes_) != product(theirs)) {
    return false;
  }
  if (flat) {
    for (ProgramOperand& operand : operands) {
      reshape(operand, sizes_);
    }
    return true;
  }
  return take_sizes(theirs);
}

// As many elements as there are: what has been joined gets these sizes.
bool ProgramBuilder::take_sizes(const std::vector<std::int64_t>& sizes) {
  if (sizes_ == sizes) {
    return true;
  }
  if (reduced_ != 0 || product(sizes_) != product(sizes) ||
      !std::ranges::all_of(inputs_, &ProgramOperand::contiguous) ||
      !std::ranges::all_of(results_, [](const Result& result) {
        return result.place.contiguous;
      })) {
    return false;
  }
  sizes_ = sizes;
  for (ProgramOperand& operand : inputs_) {
    reshape(operand, sizes_);
  }
  for (Result& result : results_) {
    reshape(result.place, sizes_);
  }
  return true;
}

bool ProgramBuilder::join_tensors(
    const FrameCopy& frame, const FilledBuffers& filled) {
  const npu_call& call = frame.frame();
  npu_program_op op{
      static_cast<std::uint8_t>(call.slot),
      static_cast<std::uint8_t>(call.code),
      static_cast<std::uint8_t>(call.compute_dtype),
      static_cast<std::uint8_t>(call.tensors[0].dtype),
      {kNone, kNone, kNone},
      kNone};
  std::vector<ProgramOperand> operands;  // the output, then inputs
  std::vector<std::uint32_t> places;     // of the inputs among op.in
  const npu_tensor* const ins = call.tensors + call.n_out;
  for (std::uint32_t i = 0; i <= call.n_in; ++i) {
    const npu_tensor& tensor = i == 0 ? call.tensors[0] : ins[i - 1];
    if (i > 0 && (tensor.dtype == NPU_ABSENT ||
                  (tensor.flags & NPU_TENSOR_HOST_SCALAR) != 0)) {
      continue;
    }
    std::optional<ProgramOperand> operand = operand_of(frame, tensor);
    if (!operand || operand->tensor.device != call.tensors[0].device) {
      return false;
    }
    operands.push_back(std::move(*operand));
    if (i > 0) {
      places.push_back(i - 1);
    }
  }
  if (!unify_sizes(operands)) {
    return false;
  }
  for (std::uint32_t i = 0; i < call.n_in; ++i) {
    if ((ins[i].flags & NPU_TENSOR_HOST_SCALAR) != 0 &&
        ins[i].dtype != NPU_ABSENT) {
      const auto number = number_at(ins[i].dtype, ins[i].data);
      const auto reg = number ? constant(*number, ins[i].dtype) : std::nullopt;
      if (!reg) {
        return false;
      }
      op.in[i] = *reg;
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    auto reg = read(operands[i + 1], filled);
    if (const std::uint8_t half = rounds_to(call, operands[i + 1].dtype);
        reg && half != NPU_ABSENT) {
      reg = find_or_add(
          {NPU_KIND_COPY, 0, NPU_ABSENT, half, {*reg, kNone, kNone}, kNone});
    }
    if (!reg) {
      return false;
    }
    op.in[places[i]] = *reg;
  }
  // The scalars of a kind's attributes begin behind size and padding.
  npu_binary_attrs attrs;
  npu_call_attrs(&call, &attrs, sizeof(attrs));
  const std::uint32_t n = npu_program_scalars(call.slot);
  if (n != 0 && !add_scalars(&attrs.a, n, op)) {
    return false;
  }
  const auto made = add(op);
  return made && write(operands[0], *made);
}

bool ProgramBuilder::join_lists(
    const FrameCopy& frame, const FilledBuffers& filled) {
  const npu_call& call = frame.frame();
  const npu_multi_map_args args = npu_multi_map_unpack(&call);
  const npu_dtype dtype = args.out->dtype;
  const std::uint32_t slot = map_slot(call.code);
  if (!npu_program_has_code(slot, args.attrs.op) || args.x == nullptr) {
    return false;
  }
  // Lists of half types are computed in float32.
  const auto computed =
      static_cast<std::uint8_t>(is_half(dtype) ? npu_dtype{NPU_F32} : dtype);
  npu_program_op op{
      static_cast<std::uint8_t>(slot),
      static_cast<std::uint8_t>(args.attrs.op),
      computed,
      static_cast<std::uint8_t>(dtype),
      {kNone, kNone, kNone},
      kNone};
  const auto out = operand_of(frame, *args.out);
  if (!out || (!empty_ && out->sizes != sizes_)) {
    return false;
  }
  sizes_ = out->sizes;
  const npu_list* const ins[] = {args.x, args.y, args.z};
  const bool number_for_y = slot == NPU_KIND_BINARY && args.y == nullptr;
  for (std::size_t k = 0; k < npu_program_arity(slot); ++k) {
    const npu_list* const list = number_for_y && k == 1 ? args.scalars : ins[k];
    std::optional<std::uint8_t> reg;
    if (list != nullptr) {
      const auto operand = operand_of(frame, *list);
      reg = operand ? read(*operand, filled) : std::nullopt;
    } else if (number_for_y) {
      npu_scalar number{NPU_SCALAR_FLOAT, 0, 0, 1, 0};
      number.re = args.attrs.a.kind == NPU_SCALAR_NONE ? 1 : args.attrs.a.re;
      reg = constant(number, computed);
    }
    if (!reg) {
      return false;
    }
    op.in[k] = *reg;
  }
  if (!number_for_y) {
    const std::uint32_t n = npu_program_scalars(slot);
    if (args.scalars != nullptr ||
        (n != 0 && !add_scalars(&args.attrs.a, n, op))) {
      return false;
    }
  }
  const auto made = add(op);
  return made && write(*out, *made);
}

bool ProgramBuilder::join(const FrameCopy& frame, const FilledBuffers& filled) {
  const npu_call& call = frame.frame();
  const bool lists = call.slot == NPU_KIND_MULTI_MAP;
  if ((!lists && !is_map(call)) || (!empty_ && lists != lists_) ||
      !same_call(call)) {
    return false;
  }
  lists_ = lists;
  const bool joined =
      lists ? join_lists(frame, filled) : join_tensors(frame, filled);
  empty_ = false;
  return joined;
}

bool ProgramBuilder::join_reduction(const FrameCopy& frame) {
  const npu_call& call = frame.frame();
  if (call.slot != NPU_KIND_REDUCE || empty_ || lists_ || call.n_in != 1 ||
      !npu_program_has_code(call.slot, call.code) || call.n_lists != 0 ||
      (call.n_out > 1 && call.tensors[1].dtype != NPU_ABSENT) ||
      !same_call(call)) {
    return false;
  }
  const npu_tensor& in = call.tensors[call.n_out];
  const std::size_t dims = last_dims(call, in);
  const std::optional<ProgramOperand> from = operand_of(frame, in);
  std::optional<ProgramOperand> place = operand_of(frame, call.tensors[0]);
  if (dims == 0 || !from || !place || !from->contiguous || !place->contiguous ||
      place->tensor.device != in.device) {
    return false;
  }
  const auto made = std::ranges::find_if(results_, [&](const Result& result) {
    return !result.reduced && result.place.contiguous &&
           result.place.dtype == from->dtype &&
           result.place.data == from->data &&
           product(result.place.sizes) == in.numel;
  });
  if (made == results_.end()) {
    return false;
  }
  const std::int64_t length =
      product({from->sizes.end() - std::ptrdiff_t(dims), from->sizes.end()});
  if (!split_rows(length)) {
    return false;
  }
  // Rows lie one after the other, in the program's outer dimensions.
  std::vector<std::int64_t> sizes = sizes_;
  std::fill(sizes.end() - std::ptrdiff_t(reduced_), sizes.end(), 1);
  reshape(*place, sizes);
  const auto reg = add(
      {static_cast<std::uint8_t>(call.slot),
       static_cast<std::uint8_t>(call.code),
       static_cast<std::uint8_t>(call.compute_dtype),
       static_cast<std::uint8_t>(call.tensors[0].dtype),
       {static_cast<std::uint8_t>(made->reg), kNone, kNone},
       kNone});
  // It must not be read or written in this program.
  const auto bad = [&](const ProgramOperand& other) {
    return crosses(other, *place);
  };
  if (!reg || std::ranges::any_of(inputs_, bad) ||
      std::ranges::any_of(results_, bad, &Result::place)) {
    return false;
  }
  results_.push_back({std::move(*place), *reg, true});
  return true;
}

// The last dimensions are rows of so many elements; sets how many they are.
bool ProgramBuilder::split_rows(std::int64_t length) {
  const auto dims_of = [&] {
    std::int64_t n = 1;
    std::size_t dims = 0;
    while (n != length && dims < sizes_.size()) {
      n *= sizes_[sizes_.size() - ++dims];
    }
    // A row of one element is the last dimension, where that has one.
    const bool one = dims == 0 && !sizes_.empty() && sizes_.back() == 1;
    return one ? std::size_t{1} : n == length ? dims : std::size_t{0};
  };
  if (reduced_ != 0) {
    return product({sizes_.end() - std::ptrdiff_t(reduced_), sizes_.end()}) ==
           length;
  }
  if (dims_of() == 0 && !take_sizes({product(sizes_) / length, length})) {
    return false;
  }
  reduced_ = dims_of();
  return reduced_ != 0;
}

}  // namespace npu::graph
