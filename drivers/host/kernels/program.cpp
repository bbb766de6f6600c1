// SPDX-License-Identifier: Apache-2.0
// A program made ready, and its blocks.
#include "kernels/program.h"

#include <algorithm>
#include <cstring>

#include "shared/map_rules.h"

namespace npu::host {
namespace {

constexpr int kEnd = NPU_PROGRAM_OPS;
constexpr int kFirst = NPU_PROGRAM_INPUTS;  // register of the first operation
constexpr int kFirstInput = NPU_PROGRAM_OUTPUTS;  // operand of register 0

// The type a register of `dtype` is kept in; NPU_ABSENT: none. uint64 keeps
// its name, since its bits read as int64 are other numbers.
npu_dtype unit_of(npu_dtype dtype) {
  const int type = compute_type(dtype);
  return dtype == NPU_U64 ? dtype
         : type < 0       ? npu_dtype{NPU_ABSENT}
                          : kComputeDtype[type];
}

bool same_bits(npu_dtype a, npu_dtype b) {
  const auto is_long = [](npu_dtype d) { return d == NPU_I64 || d == NPU_U64; };
  return a == b || (is_long(a) && is_long(b));
}

std::int16_t bytes_of(npu_dtype dtype) {
  return static_cast<std::int16_t>(element_bytes(dtype));
}

bool is_wide_unsigned(npu_dtype dtype) {
  return (kWideUnsignedBits & NPU_DTYPE_BIT(dtype)) != 0;
}

npu_status no_kernel(int index, const npu_program_op& op) {
  return fail(
      NPU_E_UNSUPPORTED,
      "npu: host driver: program: operation %d: no kernel for %s.%s in %s.",
      index,
      npu_kind_name(op.slot),
      npu_code_name(op.slot, op.code),
      dtype_name(op.compute_dtype));
}

}  // namespace

npu_status Program::check(
    const npu_program_attrs& attrs, const ProgramOperands& operands) const {
  npu_dtype outputs[NPU_PROGRAM_OUTPUTS];
  npu_dtype inputs[NPU_PROGRAM_INPUTS];
  for (int i = 0; i < kProgramOperands; ++i) {
    (i < kFirstInput ? outputs[i] : inputs[i - kFirstInput]) =
        operands[static_cast<std::size_t>(i)].dtype;
  }
  std::uint32_t where = 0;
  const char* const wrong = npu_program_wrong(
      attrs.n_ops, attrs.outs, attrs.ops, outputs, inputs, &where);
  return wrong == nullptr
             ? NPU_OK
             : fail(
                   NPU_E_INVALID,
                   "npu: host driver: program: operation %u of %u: %s.",
                   where,
                   attrs.n_ops,
                   wrong);
}

int Program::add_cast(npu_dtype to, npu_dtype from) {
  ChainCast made;
  made.from_bytes = bytes_of(from);
  made.to_bytes = bytes_of(to);
  if (!made.cast.set(to, from)) {
    return -1;
  }
  casts_.push_back(made);
  return static_cast<int>(casts_.size()) - 1;
}

// From what the line made to what the register holds, as a separate call would
// round and store it, and the next one load it.
bool Program::add_result_casts(
    Step& step, npu_dtype made, npu_dtype computed, npu_dtype dtype) {
  const npu_dtype narrow = map_rounding(made, computed, dtype);
  const npu_dtype unit = unit_of(dtype);
  step.first_cast = static_cast<std::int16_t>(casts_.size());
  bool all = unit != NPU_ABSENT;
  const auto add = [&](npu_dtype to, npu_dtype from) {
    if (all && !same_bits(to, from)) {
      all = add_cast(to, from) >= 0;
    }
  };
  if (narrow != NPU_ABSENT) {
    add(narrow, made);
    add(made, narrow);
  }
  add(dtype, made);
  add(unit, dtype);
  step.n_casts =
      static_cast<std::int16_t>(casts_.size() - std::size_t(step.first_cast));
  return all;
}

// The map kind's own line, with its scalars.
bool Program::choose_line(
    const npu_program_attrs& attrs, npu_program_op op, Step& step) {
  const npu_dtype first = registers_[op.in[0]].dtype;
  const npu_dtype computed =
      op.compute_dtype != NPU_ABSENT ? npu_dtype{op.compute_dtype} : first;
  std::array<npu_scalar, 4> scalars{};
  if (op.scalar != NPU_PROGRAM_NONE) {
    std::copy_n(
        attrs.scalars + op.scalar,
        npu_program_scalars(op.slot),
        scalars.begin());
  }
  const MapRow* row = nullptr;
  if (op.slot == NPU_KIND_UNARY_WITH) {
    row = find_map_row(
        op.slot, settle_scalars(op.code, computed, op.dtype, scalars.data()));
  } else if (
      op.slot == NPU_KIND_TERNARY && op.code == NPU_TERNARY_CLAMP &&
      (op.in[1] == NPU_PROGRAM_NONE || op.in[2] == NPU_PROGRAM_NONE)) {
    const bool low = op.in[1] != NPU_PROGRAM_NONE;
    row = find_map_row(
        NPU_KIND_BINARY, low ? NPU_BINARY_MAXIMUM : NPU_BINARY_MINIMUM);
    op.in[1] = low ? op.in[1] : op.in[2];
  } else {
    row = find_map_row(op.slot, op.code);
  }
  const int type = compute_type(computed);
  if (!row || type < 0 || !row->line[type] || row->out2[type] != NPU_ABSENT ||
      !(row->dtypes & NPU_DTYPE_BIT(computed))) {
    return false;
  }
  step.scalars = scalars_.push_back(scalars).data();
  step.fn = row->line[type];
  step.n_in = static_cast<std::int16_t>(row->n_in);
  step.unit_bytes = bytes_of(kComputeDtype[type]);
  for (int k = 0; k < row->n_in; ++k) {
    if (op.in[k] == NPU_PROGRAM_NONE) {
      return false;
    }
    const npu_dtype unit = registers_[op.in[k]].unit;
    const bool same = same_bits(unit, kComputeDtype[type]);
    step.in[k] = op.in[k];
    step.in_bytes[k] = bytes_of(unit);
    step.in_cast[k] = static_cast<std::int16_t>(
        same ? -1 : add_cast(kComputeDtype[type], unit));
    if (!same && step.in_cast[k] < 0) {
      return false;
    }
  }
  return add_result_casts(step, row->out[type], computed, op.dtype);
}

npu_status Program::add_fill(
    const npu_scalar& value, int index, npu_dtype dtype) {
  Constant made{};
  alignas(16) char element[16] = {};
  made.reg = static_cast<std::int16_t>(kFirst + index);
  Cast cast;
  if (!convert_scalar(dtype, value, element) ||
      !cast.set(unit_of(dtype), dtype)) {
    return fail(
        NPU_E_UNSUPPORTED,
        "npu: host driver: program: operation %d fills %s.",
        index,
        dtype_name(dtype));
  }
  cast.line(made.element, 0, element, 0, 1);
  constants_.push_back(made);
  return NPU_OK;
}

// As kind reduce chooses it: sums and means in the output's dtype, the others
// in the input's. Complex numbers, bools and uint64 are left to separate calls.
npu_status Program::add_reduction(int index, const npu_program_op& op) {
  const npu_dtype in = registers_[op.in[0]].dtype;
  const bool sums = op.code == NPU_REDUCE_SUM || op.code == NPU_REDUCE_MEAN;
  const npu_dtype computed = op.compute_dtype != NPU_ABSENT
                                 ? npu_dtype{op.compute_dtype}
                             : sums ? npu_dtype{op.dtype}
                                    : in;
  const npu_dtype unit = registers_[op.in[0]].unit;
  const int type = compute_type(computed);
  const bool whole = type == kInInt64;
  const bool float_only =
      op.code == NPU_REDUCE_MEAN || op.code == NPU_REDUCE_SUM_OF_SQUARES;
  if (!(type == kInFloat || type == kInDouble || (whole && !float_only)) ||
      is_wide_unsigned(in) || is_wide_unsigned(op.dtype) || unit == NPU_C64 ||
      unit == NPU_C128 || op.dtype == NPU_BOOL) {
    return no_kernel(index, op);
  }
  Reduction made{};
  made.code = op.code;
  made.reg = op.in[0];
  made.made = static_cast<std::int16_t>(kFirst + index);
  made.type = static_cast<std::int16_t>(type);
  made.output = -1;
  const bool same = same_bits(unit, kComputeDtype[type]);
  made.cast = static_cast<std::int16_t>(
      same ? -1 : add_cast(kComputeDtype[type], unit));
  if ((!same && made.cast < 0) ||
      !made.store.set(op.dtype, kComputeDtype[type])) {
    return no_kernel(index, op);
  }
  reductions_.push_back(made);
  return NPU_OK;
}

// Two outputs may hold one reduction: a row of its own for the second.
void Program::place_reductions(const ProgramOperands& operands) {
  const std::vector<Reduction> all = std::move(reductions_);
  reductions_.clear();
  for (std::size_t o = 0; o < kFirstInput; ++o) {
    for (const Reduction& each : all) {
      if (operands[o].dtype != NPU_ABSENT && outs_[o] == each.made) {
        reductions_.push_back(each);
        reductions_.back().output = static_cast<std::int16_t>(o);
        outs_[o] = -1;
        Register& read = registers_[static_cast<std::size_t>(each.reg)];
        read.last_use = kEnd;
        break;
      }
    }
  }
}

npu_status Program::add_step(
    const npu_program_attrs& attrs, int index, const npu_program_op& op) {
  Register& made = registers_[static_cast<std::size_t>(kFirst + index)];
  made = {op.dtype, unit_of(op.dtype), kNoBuffer, -1, -1};
  if (made.unit == NPU_ABSENT) {
    return no_kernel(index, op);
  }
  if (op.slot == NPU_KIND_FILL) {
    return add_fill(attrs.scalars[op.scalar], index, op.dtype);
  }
  if (op.slot == NPU_KIND_REDUCE) {
    return add_reduction(index, op);
  }
  Step& step = steps_[static_cast<std::size_t>(n_steps_++)];
  step = {};
  step.result = static_cast<std::int16_t>(kFirst + index);
  bool known = false;
  if (op.slot == NPU_KIND_COPY) {
    const npu_dtype unit = registers_[op.in[0]].unit;
    step.n_in = 1;
    step.in[0] = op.in[0];
    step.in_cast[0] = -1;
    step.in_bytes[0] = step.unit_bytes = bytes_of(unit);
    known = add_result_casts(step, unit, NPU_ABSENT, op.dtype);
  } else {
    known = choose_line(attrs, op, step);
  }
  return known ? NPU_OK : no_kernel(index, op);
}

bool Program::set_ports(const ProgramOperands& operands) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const ProgramOperand& operand = operands[i];
    if (operand.dtype == NPU_ABSENT) {
      continue;
    }
    const npu_dtype unit = unit_of(operand.dtype);
    const bool is_input = i >= kFirstInput;
    if (unit == NPU_ABSENT ||
        !(is_input
              ? ports_[i].set(unit, operand.dtype, operand.negate, operand.conj)
              : ports_[i].set(operand.dtype, unit))) {
      return false;
    }
    if (is_input) {
      registers_[i - kFirstInput] = {
          operand.dtype, unit, kNoBuffer, static_cast<std::int16_t>(i), -1};
    }
  }
  return true;
}

void Program::find_last_uses() {
  for (int s = 0; s < n_steps_; ++s) {
    const Step& step = steps_[static_cast<std::size_t>(s)];
    for (int k = 0; k < step.n_in; ++k) {
      registers_[static_cast<std::size_t>(step.in[k])].last_use =
          static_cast<std::int16_t>(s);
    }
  }
}

void Program::find_loads(const ProgramOperands& operands) {
  for (std::size_t i = kFirstInput; i < operands.size(); ++i) {
    const bool is_read = operands[i].dtype != NPU_ABSENT &&
                         registers_[i - kFirstInput].last_use >= 0;
    if (is_read && operands[i].constant) {
      once_.push_back(static_cast<std::int16_t>(i));
    } else if (is_read && !(operands[i].contiguous && ports_[i].is_copy())) {
      loads_.push_back(static_cast<std::int16_t>(i));
    }
  }
}

// A result goes where its output lies, unless it needs a conversion or an input
// that lies there is read later.
void Program::place_outputs(const ProgramOperands& operands) {
  for (int o = 0; o < kFirstInput; ++o) {
    const int reg = outs_[static_cast<std::size_t>(o)];
    if (reg < 0) {
      continue;
    }
    Register& held = registers_[static_cast<std::size_t>(reg)];
    const auto made = std::find_if(
        steps_.begin(), steps_.begin() + n_steps_, [&](const Step& step) {
          return step.result == reg;
        });
    const auto place = static_cast<std::size_t>(o);
    // More than one conversion would go through the place in wider elements.
    bool direct = made != steps_.begin() + n_steps_ && made->n_casts <= 1 &&
                  held.operand < 0 && operands[place].contiguous &&
                  ports_[place].is_copy();
    for (int i = kFirstInput; i < kProgramOperands && direct; ++i) {
      const std::uint32_t in = operands[static_cast<std::size_t>(i)].lies_in;
      direct = (in & (1u << o)) == 0 ||
               registers_[static_cast<std::size_t>(i - kFirstInput)].last_use <=
                   made - steps_.begin();
    }
    if (direct) {
      held.operand = static_cast<std::int16_t>(o);
    } else {
      stores_.push_back(static_cast<std::int16_t>(o));
    }
    held.last_use = kEnd;
  }
}

// Buffers for what does not lie in an operand; one is used again when what it
// holds has been read for the last time.
void Program::place_registers() {
  ShortList<std::int16_t, kRegisters> free;
  const auto take = [&] {
    if (free.empty()) {
      return static_cast<std::int16_t>(n_buffers_++);
    }
    return free.pop_back();
  };
  // For all of a run.
  for (const Constant& constant : constants_) {
    Register& held = registers_[static_cast<std::size_t>(constant.reg)];
    held.buffer = take();
    held.last_use = kEnd;
  }
  for (const std::int16_t i : once_) {
    registers_[static_cast<std::size_t>(i - kFirstInput)].buffer = take();
  }
  for (const std::int16_t i : loads_) {
    registers_[static_cast<std::size_t>(i - kFirstInput)].buffer = take();
  }
  for (int s = 0; s < n_steps_; ++s) {
    const Step& step = steps_[static_cast<std::size_t>(s)];
    Register& made = registers_[static_cast<std::size_t>(step.result)];
    if (made.operand < 0) {
      made.buffer = take();
    }
    for (int k = 0; k < step.n_in; ++k) {
      Register& read = registers_[static_cast<std::size_t>(step.in[k])];
      if (step.in[k] >= kFirst && read.last_use == s && read.buffer >= 0) {
        free.push_back(read.buffer);
        read.last_use = kEnd;  // it may be read twice here
      }
    }
  }
}

npu_status Program::set(
    const npu_program_attrs& attrs, const ProgramOperands& operands) {
  if (npu_status status = check(attrs, operands)) {
    return status;
  }
  registers_.fill({NPU_ABSENT, NPU_ABSENT, kNoBuffer, -1, -1});
  if (!set_ports(operands)) {
    return fail(
        NPU_E_UNSUPPORTED,
        "npu: host driver: program: an operand has a dtype without kernels.");
  }
  for (std::uint32_t i = 0; i < attrs.n_ops; ++i) {
    if (npu_status status = add_step(
            attrs, static_cast<int>(i), npu_program_at(attrs.ops, i))) {
      return status;
    }
  }
  for (std::size_t i = 0; i < kFirstInput; ++i) {
    outs_[i] = operands[i].dtype == NPU_ABSENT
                   ? std::int16_t{-1}
                   : static_cast<std::int16_t>(attrs.outs[i]);
  }
  find_last_uses();
  place_reductions(operands);
  find_loads(operands);
  place_outputs(operands);
  place_registers();
  for (const Register& held : registers_) {
    widest_ = std::max<std::int64_t>(widest_, bytes_of(held.unit));
  }
  return NPU_OK;
}

// ---- blocks ----

// Small enough that what a block touches stays in the L1 cache.
Program::Scratch::Scratch(const Program& program) : program_(program) {
  constexpr std::int64_t kCache = 24 * 1024;
  const std::int64_t buffers = program.n_buffers_ + kTemporaries;
  const std::int64_t fits = kCache / (buffers * program.widest_);
  block_ = std::clamp<std::int64_t>(fits / 64 * 64, 64, 1024);
  static_assert(
      (kProgramOperands + NPU_PROGRAM_OPS + kTemporaries) * 64 * 16 <= kBytes);
}

void Program::Scratch::load(
    int operand,
    char* const* data,
    const std::int64_t* strides,
    std::int64_t n) {
  const auto reg = static_cast<std::size_t>(operand - kFirstInput);
  const Register& held = program_.registers_[reg];
  at_[reg] = buffer(held.buffer);
  program_.ports_[static_cast<std::size_t>(operand)].line(
      at_[reg], bytes_of(held.unit), data[operand], strides[operand], n);
}

void Program::Scratch::load_constants(
    char* const* data, const std::int64_t* strides) {
  for (const Constant& constant : program_.constants_) {
    const auto reg = static_cast<std::size_t>(constant.reg);
    const Register& held = program_.registers_[reg];
    const std::int64_t bytes = bytes_of(held.unit);
    at_[reg] = buffer(held.buffer);
    copy_line(
        static_cast<std::uint32_t>(bytes),
        at_[reg],
        bytes,
        constant.element,
        0,
        block_);
  }
  for (const std::int16_t i : program_.once_) {
    load(i, data, strides, block_);
  }
}

npu_status Program::Scratch::run_step(const Step& step, std::int64_t n) {
  const char* in[3] = {};
  for (int k = 0; k < step.n_in; ++k) {
    in[k] = at_[static_cast<std::size_t>(step.in[k])];
    if (step.in_cast[k] >= 0) {
      const ChainCast& chain =
          program_.casts_[static_cast<std::size_t>(step.in_cast[k])];
      chain.cast.line(temporary(k), chain.to_bytes, in[k], chain.from_bytes, n);
      in[k] = temporary(k);
    }
  }
  // Conversions go to and fro between the result's place and a temporary, and
  // end in the place.
  char* const place = at_[static_cast<std::size_t>(step.result)];
  char* const other = temporary(3);
  int left = step.n_casts;
  const auto target = [&] { return left % 2 == 0 ? place : other; };
  const char* from = in[0];
  if (step.fn) {
    MapLine line;
    line.out[0] = target();
    line.out[1] = nullptr;
    std::copy_n(in, 3, line.in);
    line.scalars = step.scalars;
    if (npu_status status = step.fn(line, n)) {
      return status;
    }
    from = target();
  } else if (left == 0) {
    std::memmove(place, from, static_cast<std::size_t>(n * step.unit_bytes));
  }
  for (int c = 0; c < step.n_casts; ++c) {
    const ChainCast& chain =
        program_.casts_[static_cast<std::size_t>(step.first_cast + c)];
    --left;
    chain.cast.line(target(), chain.to_bytes, from, chain.from_bytes, n);
    from = target();
  }
  return NPU_OK;
}

npu_status Program::Scratch::run(
    char* const* data, const std::int64_t* strides, std::int64_t n) {
  for (const std::int16_t i : program_.loads_) {
    load(i, data, strides, n);
  }
  for (std::size_t r = 0; r < NPU_PROGRAM_INPUTS; ++r) {
    const Register& held = program_.registers_[r];
    if (held.last_use >= 0 && held.buffer == kNoBuffer) {
      at_[r] = data[held.operand];
    }
  }
  for (int s = 0; s < program_.n_steps_; ++s) {
    const Step& step = program_.steps_[static_cast<std::size_t>(s)];
    const auto reg = static_cast<std::size_t>(step.result);
    const Register& held = program_.registers_[reg];
    at_[reg] =
        held.buffer == kNoBuffer ? data[held.operand] : buffer(held.buffer);
    if (npu_status status = run_step(step, n)) {
      return status;
    }
  }
  reduce(n);
  for (const std::int16_t o : program_.stores_) {
    const auto reg =
        static_cast<std::size_t>(program_.outs_[static_cast<std::size_t>(o)]);
    program_.ports_[static_cast<std::size_t>(o)].line(
        data[o],
        strides[o],
        at_[reg],
        bytes_of(program_.registers_[reg].unit),
        n);
  }
  return NPU_OK;
}

// ---- rows ----

void Program::Scratch::begin_row(std::int64_t elements) {
  rows_.assign(program_.reductions_.size(), RowState{});
  row_elements_ = elements;
  row_done_ = 0;
}

template <class T>
void Program::Scratch::reduce_as(
    std::uint32_t code, RowState& state, const T* x, std::int64_t n) const {
  const auto add = [&](auto& sum, auto f) {
    sum.add(x, row_done_, n, row_elements_, f);
  };
  const auto best_of = [&]<bool kGreatest>(auto& best) {
    auto least = row_done_ == 0 ? x[0] : static_cast<T>(best);
    for (std::int64_t i = row_done_ == 0 ? 1 : 0; i < n; ++i) {
      least = extreme_of<kGreatest>(least, x[i]);
    }
    best = least;
  };
  const auto best = [&](auto& to) {
    if (code == NPU_REDUCE_MAX) {
      best_of.template operator()<true>(to);
    } else {
      best_of.template operator()<false>(to);
    }
  };
  if constexpr (std::is_same_v<T, std::int64_t>) {
    if (code == NPU_REDUCE_SUM) {
      return add(state.whole, [](T v) { return std::uint64_t(v); });
    }
    best(state.whole_best);
  } else {
    if (code == NPU_REDUCE_SUM_OF_SQUARES) {
      return add(state.sum, [](T v) { return double{v} * double{v}; });
    }
    if (code == NPU_REDUCE_SUM || code == NPU_REDUCE_MEAN) {
      return add(state.sum, [](T v) { return double{v}; });
    }
    best(state.best);
  }
}

void Program::Scratch::reduce(std::int64_t n) {
  for (std::size_t i = 0; i < program_.reductions_.size(); ++i) {
    const Reduction& reduction = program_.reductions_[i];
    const char* x = at_[static_cast<std::size_t>(reduction.reg)];
    if (reduction.cast >= 0) {
      const ChainCast& chain =
          program_.casts_[static_cast<std::size_t>(reduction.cast)];
      chain.cast.line(temporary(0), chain.to_bytes, x, chain.from_bytes, n);
      x = temporary(0);
    }
    const auto as = [&]<class T>(T) {
      reduce_as(reduction.code, rows_[i], reinterpret_cast<const T*>(x), n);
    };
    switch (reduction.type) {
      case kInFloat:
        as(float{});
        break;
      case kInDouble:
        as(double{});
        break;
      default:
        as(std::int64_t{});
    }
  }
  row_done_ += n;
}

void Program::Scratch::end_row(char* const* data) {
  for (std::size_t i = 0; i < program_.reductions_.size(); ++i) {
    const Reduction& reduction = program_.reductions_[i];
    const RowState& row = rows_[i];
    const bool extreme =
        reduction.code == NPU_REDUCE_MIN || reduction.code == NPU_REDUCE_MAX;
    const double mean = reduction.code == NPU_REDUCE_MEAN
                            ? static_cast<double>(row_elements_)
                            : 1.0;
    const double real = extreme ? row.best : row.sum.total() / mean;
    const auto narrow = static_cast<float>(real);
    const auto whole =
        extreme ? row.whole_best : static_cast<std::int64_t>(row.whole.total());
    const void* const from = reduction.type == kInFloat ? &narrow
                             : reduction.type == kInDouble
                                 ? static_cast<const void*>(&real)
                                 : &whole;
    reduction.store.line(
        data[reduction.output], 0, static_cast<const char*>(from), 0, 1);
  }
}

}  // namespace npu::host
