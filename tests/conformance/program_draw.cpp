// SPDX-License-Identifier: Apache-2.0
// Random programs, and the kit's own evaluation of them.
#include "program_draw.h"

#include <array>
#include <cmath>
#include <random>

namespace npu::kit {
namespace {

using Random = std::mt19937_64;

Value of_whole(std::uint64_t bits) {
  Value made;
  made.is_integer = true;
  made.integer = static_cast<std::int64_t>(bits);
  return made;
}

double computed(std::uint32_t slot, std::uint32_t code, double x, double y) {
  if (slot == NPU_KIND_UNARY) {
    return code == NPU_UNARY_NEG   ? -x
           : code == NPU_UNARY_ABS ? std::abs(x)
                                   : x * x;
  }
  if (slot == NPU_KIND_COMPARE) {
    return code == NPU_COMPARE_LT ? x < y : x == y;
  }
  if (std::isnan(x) || std::isnan(y)) {
    return x + y;
  }
  return code == NPU_BINARY_ADD       ? x + y
         : code == NPU_BINARY_SUB     ? x - y
         : code == NPU_BINARY_MUL     ? x * y
         : code == NPU_BINARY_MAXIMUM ? std::max(x, y)
                                      : std::min(x, y);
}

// Integers wrap around.
std::uint64_t whole(std::uint32_t slot, std::uint32_t code, Value a, Value b) {
  const auto x = static_cast<std::uint64_t>(a.integer);
  const auto y = static_cast<std::uint64_t>(b.integer);
  if (slot == NPU_KIND_UNARY) {
    return code == NPU_UNARY_NEG   ? 0 - x
           : code == NPU_UNARY_ABS ? (a.integer < 0 ? 0 - x : x)
                                   : x * x;
  }
  if (slot == NPU_KIND_COMPARE) {
    return code == NPU_COMPARE_LT ? a.integer < b.integer : x == y;
  }
  return code == NPU_BINARY_ADD       ? x + y
         : code == NPU_BINARY_SUB     ? x - y
         : code == NPU_BINARY_MUL     ? x * y
         : code == NPU_BINARY_MAXIMUM ? (a.integer < b.integer ? y : x)
                                      : (b.integer < a.integer ? y : x);
}

Value evaluate_op(
    const npu_program_attrs& attrs,
    const npu_program_op& op,
    const std::vector<Value>& registers) {
  if (op.slot == NPU_KIND_FILL) {
    return rounded(op.dtype, number_value(attrs.scalars[op.scalar].re));
  }
  std::array<Value, 3> in;
  for (std::size_t k = 0; k < 3 && op.in[k] != NPU_PROGRAM_NONE; ++k) {
    in[k] = registers[op.in[k]];
    if (op.compute_dtype != NPU_ABSENT &&
        !(op.slot == NPU_KIND_TERNARY && k == 0)) {
      in[k] = rounded(op.compute_dtype, in[k]);
    }
  }
  if (op.slot == NPU_KIND_COPY) {
    return rounded(op.dtype, in[0]);
  }
  if (op.slot == NPU_KIND_TERNARY) {
    return rounded(op.dtype, number_of(in[0]) != 0 ? in[1] : in[2]);
  }
  const Value made =
      in[0].is_integer
          ? of_whole(whole(op.slot, op.code, in[0], in[1]))
          : number_value(
                computed(op.slot, op.code, number_of(in[0]), number_of(in[1])));
  return rounded(
      op.dtype,
      op.slot == NPU_KIND_COMPARE ? made : rounded(op.compute_dtype, made));
}

// A register of the main dtype, or a bool; the latest ones most of the time.
std::uint8_t pick(const Program& program, bool mask, Random& random) {
  std::vector<std::uint8_t> found;
  const auto look = [&](std::uint32_t reg) {
    if ((program.dtype(reg) == NPU_BOOL) == mask) {
      found.push_back(static_cast<std::uint8_t>(reg));
    }
  };
  for (std::uint32_t i = 0; i < program.ins.size(); ++i) {
    look(i);
  }
  for (std::uint32_t i = 0; i < program.attrs.n_ops; ++i) {
    look(NPU_PROGRAM_INPUTS + i);
  }
  if (found.empty()) {
    return NPU_PROGRAM_NONE;
  }
  return random() % 2 == 0 ? found.back() : found[random() % found.size()];
}

void add_operation(Program& program, Random& random) {
  struct Choice {
    std::uint32_t slot, code;
  };
  constexpr Choice kChoices[] = {
      {NPU_KIND_UNARY, NPU_UNARY_NEG},
      {NPU_KIND_UNARY, NPU_UNARY_ABS},
      {NPU_KIND_UNARY, NPU_UNARY_SQUARE},
      {NPU_KIND_BINARY, NPU_BINARY_ADD},
      {NPU_KIND_BINARY, NPU_BINARY_SUB},
      {NPU_KIND_BINARY, NPU_BINARY_MUL},
      {NPU_KIND_BINARY, NPU_BINARY_MAXIMUM},
      {NPU_KIND_BINARY, NPU_BINARY_MINIMUM},
      {NPU_KIND_COMPARE, NPU_COMPARE_LT},
      {NPU_KIND_COMPARE, NPU_COMPARE_EQ},
      {NPU_KIND_TERNARY, NPU_TERNARY_WHERE},
      {NPU_KIND_FILL, 0},
      {NPU_KIND_COPY, 0},
  };
  const Choice& choice = kChoices[random() % std::size(kChoices)];
  const auto none = static_cast<std::uint8_t>(NPU_PROGRAM_NONE);
  const auto main = static_cast<std::uint8_t>(program.main);
  npu_program_op op{
      static_cast<std::uint8_t>(choice.slot),
      static_cast<std::uint8_t>(choice.code),
      main,
      main,
      {none, none, none},
      none};
  const std::uint32_t arity = npu_program_arity(op.slot);
  for (std::uint32_t k = 0; k < arity; ++k) {
    op.in[k] = pick(program, op.slot == NPU_KIND_TERNARY && k == 0, random);
    if (op.in[k] == NPU_PROGRAM_NONE) {
      return;
    }
  }
  if (op.slot == NPU_KIND_COMPARE) {
    op.dtype = NPU_BOOL;
  } else if (op.slot == NPU_KIND_FILL) {
    op.compute_dtype = NPU_ABSENT;
    op.scalar = static_cast<std::uint8_t>(random() % 4);
  } else if (op.slot == NPU_KIND_COPY) {
    op.compute_dtype = NPU_ABSENT;
    // A bool becomes a number; the rest keeps its dtype.
    op.in[0] = pick(program, random() % 2 == 0, random);
    if (op.in[0] == NPU_PROGRAM_NONE) {
      return;
    }
  }
  program.add(op);
}

}  // namespace

npu_dtype Program::dtype(std::uint32_t reg) const {
  return reg < NPU_PROGRAM_INPUTS
             ? ins[reg]
             : npu_dtype{
                   npu_program_at(attrs.ops, reg - NPU_PROGRAM_INPUTS).dtype};
}

std::uint32_t Program::outs() const {
  std::uint32_t n = 0;
  while (n < NPU_PROGRAM_OUTPUTS && attrs.outs[n] != NPU_PROGRAM_NONE) {
    ++n;
  }
  return n;
}

std::vector<Value> Program::registers(const std::vector<Value>& inputs) const {
  std::vector<Value> made(NPU_PROGRAM_INPUTS);
  std::copy(inputs.begin(), inputs.end(), made.begin());
  for (std::uint32_t i = 0; i < attrs.n_ops; ++i) {
    const npu_program_op op = npu_program_at(attrs.ops, i);
    made.push_back(
        op.slot == NPU_KIND_REDUCE ? Value() : evaluate_op(attrs, op, made));
  }
  return made;
}

std::vector<Value> Program::evaluate(const std::vector<Value>& inputs) const {
  const std::vector<Value> made = registers(inputs);
  std::vector<Value> results;
  for (std::uint32_t o = 0; o < outs(); ++o) {
    results.push_back(made[attrs.outs[o]]);
  }
  return results;
}

std::string Program::text() const {
  std::string text = std::string(npu_dtype_name(main)) + ": ";
  for (std::uint32_t i = 0; i < attrs.n_ops; ++i) {
    const npu_program_op op = npu_program_at(attrs.ops, i);
    text += std::string(npu_code_name(op.slot, op.code)) + "(" +
            std::to_string(op.in[0]) + ", " + std::to_string(op.in[1]) + ", " +
            std::to_string(op.in[2]) + ") ";
  }
  return text;
}

Program draw_program(npu_dtype main, std::uint64_t seed) {
  Random random(seed * 64 + main);
  Program made{main, {main, main}, {}};
  for (std::uint64_t i = random() % 3; i > 0; --i) {
    made.ins.push_back(random() % 3 == 0 ? npu_dtype{NPU_BOOL} : main);
  }
  for (int i = 0; i < 4; ++i) {
    const double value = static_cast<double>(random() % 9) - 4;
    made.attrs.scalars[i] = {
        NPU_SCALAR_FLOAT, 0, static_cast<std::int64_t>(value), value, 0};
  }
  const std::uint64_t wanted = 1 + random() % 10;
  while (made.attrs.n_ops < wanted) {
    add_operation(made, random);
  }
  for (std::uint32_t o = 0; o < NPU_PROGRAM_OUTPUTS; ++o) {
    const std::uint64_t op =
        o == 0 ? made.attrs.n_ops - 1 : random() % made.attrs.n_ops;
    const bool there = o == 0 || (made.outs() == o && random() % 2 == 0);
    made.attrs.outs[o] =
        there ? static_cast<std::uint32_t>(NPU_PROGRAM_INPUTS + op)
              : NPU_PROGRAM_NONE;
  }
  return made;
}

Program draw_rows(npu_dtype main, std::uint64_t seed) {
  Random random(seed * 64 + main + 7);
  Program made = draw_program(main, seed + 500);
  const bool whole = main == NPU_I32 || main == NPU_I64;
  const std::uint32_t codes[] = {
      NPU_REDUCE_SUM,
      NPU_REDUCE_MIN,
      NPU_REDUCE_MAX,
      NPU_REDUCE_MEAN,
      NPU_REDUCE_SUM_OF_SQUARES};
  const std::uint64_t wanted = 1 + random() % 3;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const std::uint32_t code = codes[random() % (whole ? 3 : 5)];
    const auto none = static_cast<std::uint8_t>(NPU_PROGRAM_NONE);
    std::uint32_t reg = 1;  // an input of the main dtype
    if (i == 0 || random() % 2 == 0) {
      for (std::uint32_t r = 0; r < made.attrs.n_ops; ++r) {
        const npu_program_op op = npu_program_at(made.attrs.ops, r);
        const bool fits = op.slot != NPU_KIND_REDUCE && op.dtype == main;
        reg = fits ? NPU_PROGRAM_INPUTS + r : reg;
      }
    }
    // Sums of integers are int64, as PyTorch's; the others keep the dtype.
    const bool widens = whole && code == NPU_REDUCE_SUM;
    made.add(
        {NPU_KIND_REDUCE,
         static_cast<std::uint8_t>(code),
         NPU_ABSENT,
         static_cast<std::uint8_t>(widens ? npu_dtype{NPU_I64} : main),
         {static_cast<std::uint8_t>(reg), none, none},
         none});
    // Over the outputs from the last one on; the first stays as it is at times.
    made.attrs.outs
        [i == 0 && made.outs() < 4 && random() % 2 == 0
             ? made.outs()
             : std::min<std::uint32_t>(
                   static_cast<std::uint32_t>(i), made.outs())] =
        NPU_PROGRAM_INPUTS + made.attrs.n_ops - 1;
  }
  return made;
}

}  // namespace npu::kit
