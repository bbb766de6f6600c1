// SPDX-License-Identifier: Apache-2.0
// Kind program, code rows: random programs that end in reductions, against the
// kit's own evaluation in float64 or wrapping integers; programs that are none.
#include <cmath>
#include <memory>

#include "program_held.h"

namespace npu::kit {
namespace {

constexpr npu_dtype kDtypes[] = {
    NPU_F16, NPU_BF16, NPU_F32, NPU_F64, NPU_I32, NPU_I64};

struct Shape {
  std::vector<std::int64_t> sizes;
  std::uint32_t reduced;  // of the last dimensions
};

// One reduction of a row: what it is, and how far from it the result may be
// before it is rounded to its dtype. Sums may be taken in any order.
struct Reduced {
  bool exact;
  Value value;
  double off = 0;
};

bool is_nan(const Value& v) {
  return !v.is_integer && std::isnan(number_of(v));
}

Reduced reduce(
    std::uint32_t code, npu_dtype out, const std::vector<Value>& row) {
  if (code == NPU_REDUCE_MIN || code == NPU_REDUCE_MAX) {
    Value best = row[0];
    for (const Value& v : row) {
      const bool wins =
          v.is_integer ? (code == NPU_REDUCE_MAX ? v.integer > best.integer
                                                 : v.integer < best.integer)
          : code == NPU_REDUCE_MAX ? number_of(v) > number_of(best)
                                   : number_of(v) < number_of(best);
      best = !is_nan(best) && (is_nan(v) || wins) ? v : best;
    }
    return {true, best};
  }
  if (row[0].is_integer) {
    std::uint64_t sum = 0;
    for (const Value& v : row) {
      sum += static_cast<std::uint64_t>(v.integer);
    }
    Value made = row[0];
    made.integer = static_cast<std::int64_t>(sum);
    return {true, made};
  }
  // Long double: what the sum of float64 is judged by.
  long double sum = 0;
  long double size = 0;
  for (const Value& v : row) {
    const long double x = number_of(v);
    const long double term = code == NPU_REDUCE_SUM_OF_SQUARES ? x * x : x;
    sum += term;
    size += std::abs(term);
  }
  const auto n = static_cast<long double>(row.size());
  const long double mean = code == NPU_REDUCE_MEAN ? n : 1;
  // Each addition rounds once, and so do the square and the division: the bound
  // of any order of n terms.
  const long double unit = out == NPU_F64 ? 0x1p-53L : 0x1p-24L;
  return {
      false,
      number_value(static_cast<double>(sum / mean)),
      static_cast<double>((n + 2) * unit * size / mean)};
}

bool close(npu_dtype dtype, const Value& have, const Reduced& want) {
  if (want.exact) {
    return equal(dtype, have, want.value);
  }
  const double x = number_of(have);
  const double y = number_of(want.value);
  if (!std::isfinite(y) || !std::isfinite(want.off)) {
    // Infinities and NaN come out of any order; a sum that may overflow in
    // between is not judged.
    return std::isfinite(y) || std::isnan(x) == std::isnan(y) ||
           std::isinf(want.off);
  }
  const double low = number_of(rounded(dtype, number_value(y - want.off)));
  const double high = number_of(rounded(dtype, number_value(y + want.off)));
  return low <= x && x <= high;
}

struct Call {
  const Program& program;
  Shape shape;
  std::vector<Held> ins;
  std::vector<Held> outs;
  std::vector<std::unique_ptr<Buffer>> memory;
  Frame frame;

  // odd: with infinities and NaN, which leave nothing of most sums to judge.
  Call(
      const Program& of,
      const Shape& with,
      bool plain,
      Random& random,
      bool odd)
      : program(of), shape(with), frame(NPU_KIND_PROGRAM, NPU_PROGRAM_ROWS) {
    for (const npu_dtype dtype : program.ins) {
      ins.emplace_back(dtype, shape.sizes, plain, false, random, odd);
    }
    for (std::uint32_t o = 0; o < program.outs(); ++o) {
      std::vector<std::int64_t> sizes = shape.sizes;
      if (is_reduced(o)) {
        std::fill(sizes.end() - shape.reduced, sizes.end(), 1);
      }
      outs.emplace_back(
          program.dtype(program.attrs.outs[o]), sizes, plain, true, random);
    }
    for (const Held& out : outs) {
      memory.push_back(std::make_unique<Buffer>(out.bytes));
      frame.out(*memory.back(), out.view);
    }
    for (std::size_t o = outs.size(); o < NPU_PROGRAM_OUTPUTS; ++o) {
      frame.absent_out();
    }
    for (const Held& in : ins) {
      memory.push_back(std::make_unique<Buffer>(in.bytes));
      frame.in(*memory.back(), in.view);
    }
    frame.attrs(program.attrs);
  }
  npu_program_op made_by(std::uint32_t o) const {
    return npu_program_at(
        program.attrs.ops, program.attrs.outs[o] - NPU_PROGRAM_INPUTS);
  }
  bool is_reduced(std::uint32_t o) const {
    return made_by(o).slot == NPU_KIND_REDUCE;
  }
};

// False: the driver declines it.
bool run_and_judge(
    const Program& program,
    const Shape& shape,
    std::uint64_t seed,
    bool plain) {
  Random random(seed);
  Call call(program, shape, plain, random, seed % 4 == 0);
  const npu_status status = call.frame.run();
  if (status == NPU_E_UNSUPPORTED) {
    return false;
  }
  NPU_EXPECT_OK(status);
  const std::int64_t numel = call.ins[0].view.numel();
  std::int64_t length = 1;
  for (std::uint32_t d = 0; d < shape.reduced; ++d) {
    length *= shape.sizes[shape.sizes.size() - 1 - d];
  }
  std::vector<std::vector<Value>> registers;
  for (std::int64_t e = 0; e < numel; ++e) {
    std::vector<Value> inputs;
    for (const Held& in : call.ins) {
      inputs.push_back(in.values[static_cast<std::size_t>(e)]);
    }
    registers.push_back(program.registers(inputs));
  }
  for (std::uint32_t o = 0; o < call.outs.size(); ++o) {
    const Held& out = call.outs[o];
    const npu_program_op op = call.made_by(o);
    const bool reduced = call.is_reduced(o);
    const Bytes got = call.memory[o]->get();
    for (std::int64_t at = 0; at < numel; at += reduced ? length : 1) {
      const std::int64_t place = reduced ? at / length : at;
      std::vector<Value> row;
      for (std::int64_t i = 0; reduced && i < length; ++i) {
        row.push_back(registers[static_cast<std::size_t>(at + i)][op.in[0]]);
      }
      const Value have = out.read(got, place);
      const Reduced want = reduced ? reduce(op.code, out.view.dtype, row)
                                   : Reduced{
                                         true,
                                         registers[static_cast<std::size_t>(at)]
                                                  [program.attrs.outs[o]]};
      if (!close(out.view.dtype, have, want)) {
        ADD_FAILURE() << "rows of " << program.text() << "seed " << seed << ": "
                      << (reduced ? npu_code_name(op.slot, op.code) : "output")
                      << " " << o << " element " << place << " is "
                      << number_of(have) << " instead of "
                      << number_of(want.value) << " +- " << want.off;
        return true;
      }
    }
  }
  return true;
}

std::uint64_t dtypes_of(std::uint32_t code, bool& strided) {
  npu_op_caps caps;
  declares(NPU_KIND_PROGRAM, code, &caps);
  const std::uint32_t both = NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT;
  strided = (caps.flags & both) == both;
  return caps.dtypes[0] != 0 ? caps.dtypes[0] : ~std::uint64_t{0};
}

TEST(program, RandomProgramsWithRowsAreRight) {
  NPU_NEEDS_KIND(NPU_KIND_PROGRAM, NPU_PROGRAM_ROWS);
  bool strided = false;
  const std::uint64_t dtypes = dtypes_of(NPU_PROGRAM_ROWS, strided);
  const Shape shapes[] = {
      {{1}, 1},
      {{7}, 1},
      {{5, 37}, 1},
      {{3, 1500}, 1},
      {{3, 4, 65}, 2},
      {{4, 1, 37}, 1},
      {{2, 5, 3, 7}, 2},
      {{2, 2049}, 1},
      {{600, 3}, 1}};
  int ran = 0;
  for (const npu_dtype dtype : kDtypes) {
    for (std::uint64_t seed = 0; has(dtypes, dtype) && seed < 45; ++seed) {
      set_threads(seed % 3 == 0 ? 2 : 1);
      const Program program = draw_rows(dtype, seed);
      ran += run_and_judge(
          program, shapes[seed % std::size(shapes)], seed, !strided);
      if (HasFailure()) {
        return;
      }
    }
  }
  EXPECT_GT(ran, 0) << "declared, and every program is declined";
}

// One operation and one reduction of the row, f32.
Program one_row(std::uint32_t code) {
  const auto none = static_cast<std::uint8_t>(NPU_PROGRAM_NONE);
  Program program{NPU_F32, {NPU_F32}, {}};
  program.add(
      {NPU_KIND_BINARY, NPU_BINARY_ADD, NPU_F32, NPU_F32, {0, 0, none}, none});
  program.add(
      {NPU_KIND_REDUCE,
       static_cast<std::uint8_t>(code),
       NPU_ABSENT,
       NPU_F32,
       {12, none, none},
       none});
  std::fill_n(program.attrs.outs, NPU_PROGRAM_OUTPUTS, NPU_PROGRAM_NONE);
  program.attrs.outs[0] = 13;
  return program;
}

TEST(program, RowsAreReducedAsTheirCodeSays) {
  NPU_NEEDS_KIND(NPU_KIND_PROGRAM, NPU_PROGRAM_ROWS);
  for (const std::uint32_t code :
       {NPU_REDUCE_SUM,
        NPU_REDUCE_MEAN,
        NPU_REDUCE_MIN,
        NPU_REDUCE_MAX,
        NPU_REDUCE_SUM_OF_SQUARES}) {
    run_and_judge(one_row(code), {{4, 300}, 1}, 4 * code + 1, true);
  }
}

// Equal calls have equal bits, whatever the threads.
TEST(program, RowsRepeatTheirBits) {
  NPU_NEEDS_KIND(NPU_KIND_PROGRAM, NPU_PROGRAM_ROWS);
  const Program program = one_row(NPU_REDUCE_SUM);
  std::vector<Bytes> results;
  for (int i = 0; i < 3; ++i) {
    set_threads(1 + i);
    Random random(11);
    Call call(program, {{37, 5000}, 1}, true, random, false);
    const npu_status status = call.frame.run();
    if (status == NPU_E_UNSUPPORTED) {
      return;
    }
    NPU_EXPECT_OK(status);
    results.push_back(call.memory[0]->get());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(program, WrongRowsAreRefused) {
  NPU_NEEDS_KIND(NPU_KIND_PROGRAM, NPU_PROGRAM_ROWS);
  struct Change {
    const char* what;
    std::uint32_t code;
    void (*change)(npu_program_attrs&);
    std::int64_t columns;  // of the output
  };
  const auto none = [](npu_program_attrs&) {};
  const Change changes[] = {
      {"a reduction with code map", NPU_PROGRAM_MAP, none, 1},
      {"an output of the wrong size", NPU_PROGRAM_ROWS, none, 2},
      {"no output is reduced",
       NPU_PROGRAM_ROWS,
       [](npu_program_attrs& a) { a.outs[0] = 12; },
       8},
      {"an operation reads what a reduction made",
       NPU_PROGRAM_ROWS,
       [](npu_program_attrs& a) {
         npu_program_op op = npu_program_at(a.ops, 0);
         op.in[0] = 13;
         a.ops[a.n_ops++] = npu_program_word(op);
       },
       1},
      {"a code that programs do not have",
       NPU_PROGRAM_ROWS,
       [](npu_program_attrs& a) {
         npu_program_op op = npu_program_at(a.ops, 1);
         op.code = NPU_REDUCE_VAR_MEAN;
         a.ops[1] = npu_program_word(op);
       },
       1},
  };
  const StockStream stream;
  for (const Change& each : changes) {
    SCOPED_TRACE(each.what);
    npu_program_attrs attrs = one_row(NPU_REDUCE_SUM).attrs;
    each.change(attrs);
    const Buffer in(std::vector<float>(16, 1.0F));
    const Buffer out(64);
    Frame frame(NPU_KIND_PROGRAM, each.code);
    frame.out(out, View{NPU_F32, {2, each.columns}, {}})
        .absent_out()
        .absent_out()
        .absent_out();
    frame.in(in, View{NPU_F32, {2, 8}, {}}).attrs(attrs);
    char text[200];
    EXPECT_EQ(
        npu_call_validate(&frame.call(), text, sizeof(text)), NPU_E_INVALID);
    EXPECT_NE(frame.run_unchecked(stream.get()), NPU_OK);
  }
}

}  // namespace
}  // namespace npu::kit
