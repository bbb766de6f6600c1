// SPDX-License-Identifier: Apache-2.0
// Kinds program (code map) and multi_program: random programs against the kit's
// own evaluation, bit for bit; programs that are none.
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "program_held.h"

namespace npu::kit {
namespace {

constexpr npu_dtype kDtypes[] = {
    NPU_F16, NPU_BF16, NPU_F32, NPU_F64, NPU_I32, NPU_I64};

// Strides and in-place only where the driver says so.
struct Abilities {
  bool strided;
  bool alias;
  std::uint64_t dtypes;
};
Abilities abilities(std::uint32_t slot) {
  npu_op_caps caps;
  declares(slot, 0, &caps);
  const std::uint32_t both = NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT;
  return {
      (caps.flags & both) == both,
      (caps.flags & NPU_CAP_ALIAS) != 0 && (caps.alias_mask & 1) != 0,
      caps.dtypes[0] != 0 ? caps.dtypes[0] : ~std::uint64_t{0}};
}

// Runs one program; false: the driver declines it.
bool run_and_judge(
    const Program& program, std::uint64_t seed, bool plain, bool alias) {
  Random random(seed);
  const std::vector<std::int64_t> shapes[] = {
      {1}, {7}, {513}, {3000}, {3, 5}, {4, 1, 37}, {}};
  const auto& sizes = shapes[random() % std::size(shapes)];
  std::vector<Held> outs;
  std::vector<Held> ins;
  for (const npu_dtype dtype : program.ins) {
    ins.emplace_back(dtype, sizes, plain, false, random);
  }
  for (std::uint32_t o = 0; o < program.outs(); ++o) {
    outs.emplace_back(
        program.dtype(program.attrs.outs[o]), sizes, plain, true, random);
  }
  const bool inside = alias && random() % 2 == 0 && ins[0].view.contiguous() &&
                      ins[0].view.dtype == outs[0].view.dtype;
  if (inside) {
    outs[0].view = ins[0].view;
    outs[0].bytes = ins[0].bytes;
  }
  std::vector<std::unique_ptr<Buffer>> memory;
  Frame frame(NPU_KIND_PROGRAM);
  for (const Held& out : outs) {
    memory.push_back(std::make_unique<Buffer>(out.bytes));
    frame.out(*memory.back(), out.view);
  }
  for (std::size_t o = outs.size(); o < NPU_PROGRAM_OUTPUTS; ++o) {
    frame.absent_out();
  }
  for (std::size_t i = 0; i < ins.size(); ++i) {
    if (inside && i == 0) {
      View view = ins[i].view;
      view.flags |= NPU_TENSOR_ALIAS;
      frame.in(*memory[0], view);
      continue;
    }
    memory.push_back(std::make_unique<Buffer>(ins[i].bytes));
    frame.in(*memory.back(), ins[i].view);
  }
  frame.attrs(program.attrs);
  const npu_status status = frame.run();
  if (status == NPU_E_UNSUPPORTED) {
    return false;
  }
  NPU_EXPECT_OK(status);
  for (std::size_t o = 0; o < outs.size(); ++o) {
    const Bytes got = memory[o]->get();
    for (std::int64_t e = 0; e < outs[o].view.numel(); ++e) {
      std::vector<Value> inputs;
      for (const Held& in : ins) {
        inputs.push_back(in.values[static_cast<std::size_t>(e)]);
      }
      const Value want = program.evaluate(inputs)[o];
      const Value have = outs[o].read(got, e);
      if (!equal(outs[o].view.dtype, have, want)) {
        ADD_FAILURE() << "program of " << program.text() << "seed " << seed
                      << (inside ? ", in place" : "") << ": output " << o
                      << " element " << e << " is " << number_of(have)
                      << " instead of " << number_of(want);
        return true;
      }
    }
  }
  return true;
}

TEST(program, RandomProgramsAreRight) {
  NPU_NEEDS_KIND(NPU_KIND_PROGRAM, 0);
  const Abilities can = abilities(NPU_KIND_PROGRAM);
  int ran = 0;
  for (const npu_dtype dtype : kDtypes) {
    for (std::uint64_t seed = 0; has(can.dtypes, dtype) && seed < 60; ++seed) {
      set_threads(seed % 3 == 0 ? 2 : 1);
      ran += run_and_judge(
          draw_program(dtype, seed), seed, !can.strided, can.alias);
      if (HasFailure()) {
        return;
      }
    }
  }
  EXPECT_GT(ran, 0) << "declared, and every program is declined";
}

// What is wider than the register's dtype between two operations must not show.
TEST(program, RegistersAreRoundedToTheirDtype) {
  NPU_NEEDS_KIND(NPU_KIND_PROGRAM, 0);
  const auto none = static_cast<std::uint8_t>(NPU_PROGRAM_NONE);
  for (const auto& [dtype, big] :
       {std::pair<int, double>{NPU_F16, 2048}, {NPU_BF16, 256}}) {
    const auto d = static_cast<std::uint8_t>(dtype);
    Program program{npu_dtype{d}, {npu_dtype{d}}, {}};
    program.attrs.scalars[0] = {NPU_SCALAR_FLOAT, 0, 0, big, 0};
    program.add({NPU_KIND_FILL, 0, 0, d, {none, none, none}, 0});
    program.add({NPU_KIND_BINARY, NPU_BINARY_ADD, d, d, {0, 12, none}, none});
    program.add({NPU_KIND_BINARY, NPU_BINARY_SUB, d, d, {13, 12, none}, none});
    std::fill_n(program.attrs.outs, NPU_PROGRAM_OUTPUTS, NPU_PROGRAM_NONE);
    program.attrs.outs[0] = 14;
    const Value one = number_value(1);
    ASSERT_EQ(number_of(program.evaluate({one})[0]), 0);
    Bytes bytes(2);
    store(npu_dtype{d}, one, bytes.data());
    const Buffer in(bytes);
    const Buffer out(2);
    Frame frame(NPU_KIND_PROGRAM);
    frame.out(out, flat(d, 1)).absent_out().absent_out().absent_out();
    frame.in(in, flat(d, 1)).attrs(program.attrs);
    if (frame.run() == NPU_OK) {
      EXPECT_EQ(number_of(load(d, out.get().data())), 0)
          << npu_dtype_name(d) << " " << big << " + 1 - " << big;
    }
  }
}

TEST(program, BadProgramsAreRefused) {
  NPU_NEEDS_KIND(NPU_KIND_PROGRAM, 0);
  using Change = void (*)(npu_program_attrs&);
  const auto change_op = [](npu_program_attrs& attrs, auto change) {
    npu_program_op op = npu_program_at(attrs.ops, 0);
    change(op);
    attrs.ops[0] = npu_program_word(op);
  };
  static const auto edit = change_op;
  const std::pair<const char*, Change> changes[] = {
      {"no operation", [](npu_program_attrs& a) { a.n_ops = 0; }},
      {"too many", [](npu_program_attrs& a) { a.n_ops = 65; }},
      {"a huge number", [](npu_program_attrs& a) { a.n_ops = ~0u; }},
      {"no such kind",
       [](npu_program_attrs& a) {
         edit(a, [](npu_program_op& op) { op.slot = NPU_KIND_GEMM; });
       }},
      {"no such code",
       [](npu_program_attrs& a) {
         edit(a, [](npu_program_op& op) { op.code = 250; });
       }},
      {"two results",
       [](npu_program_attrs& a) {
         edit(a, [](npu_program_op& op) {
           op.slot = NPU_KIND_UNARY;
           op.code = NPU_UNARY_FREXP;
           op.in[1] = 255;
         });
       }},
      {"a later register",
       [](npu_program_attrs& a) {
         edit(a, [](npu_program_op& op) { op.in[0] = 12; });
       }},
      {"an absent input",
       [](npu_program_attrs& a) {
         edit(a, [](npu_program_op& op) { op.in[0] = 5; });
       }},
      {"a missing operand",
       [](npu_program_attrs& a) {
         edit(a, [](npu_program_op& op) { op.in[1] = 255; });
       }},
      {"no such dtype",
       [](npu_program_attrs& a) {
         edit(a, [](npu_program_op& op) { op.dtype = 99; });
       }},
      {"another dtype than the output",
       [](npu_program_attrs& a) {
         edit(a, [](npu_program_op& op) { op.dtype = NPU_F64; });
       }},
      {"scalars beyond the last",
       [](npu_program_attrs& a) {
         edit(a, [](npu_program_op& op) { op.scalar = 30; });
       }},
      {"an output that nothing makes",
       [](npu_program_attrs& a) { a.outs[0] = 13; }},
      {"an output that is an input",
       [](npu_program_attrs& a) { a.outs[0] = 0; }},
      {"a register for an absent output",
       [](npu_program_attrs& a) { a.outs[1] = 12; }},
  };
  const auto none = static_cast<std::uint8_t>(NPU_PROGRAM_NONE);
  Program program{NPU_F32, {NPU_F32}, {}};
  program.add(
      {NPU_KIND_BINARY, NPU_BINARY_ADD, NPU_F32, NPU_F32, {0, 0, none}, none});
  std::fill_n(program.attrs.outs, NPU_PROGRAM_OUTPUTS, NPU_PROGRAM_NONE);
  program.attrs.outs[0] = 12;
  const StockStream stream;
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    npu_program_attrs attrs = program.attrs;
    change(attrs);
    const Buffer in(std::vector<float>{1, 2, 3});
    const Buffer out(12);
    Frame frame(NPU_KIND_PROGRAM);
    frame.out(out, flat(NPU_F32, 3)).absent_out().absent_out().absent_out();
    frame.in(in, flat(NPU_F32, 3)).attrs(attrs);
    char text[200];
    EXPECT_EQ(
        npu_call_validate(&frame.call(), text, sizeof(text)), NPU_E_INVALID);
    EXPECT_NE(frame.run_unchecked(stream.get()), NPU_OK);
  }
  EXPECT_TRUE(run_and_judge(program, 1, true, false));
}

// ---- lists ----

struct Lists {
  std::vector<std::unique_ptr<Buffer>> memory;
  std::vector<std::vector<void*>> data;
  std::vector<std::vector<std::int64_t>> numel;
  std::vector<npu_list> lists{16};

  Lists() : data(16), numel(16) {}
  void add(std::size_t list, npu_dtype dtype, void* at, std::int64_t n) {
    data[list].push_back(at);
    numel[list].push_back(n);
    npu_list& row = lists[list];
    row.size = sizeof(row);
    row.n = static_cast<std::uint32_t>(data[list].size());
    row.dtype = dtype;
    row.data = data[list].data();
    row.numel = numel[list].data();
  }
};

// Entries of several sizes; some inputs have one element for all; the first
// output may lie in the first input.
bool run_lists(const Program& program, std::uint64_t seed, bool alias) {
  Random random(seed);
  const std::int64_t sizes[] = {5, 1, 700, 64};
  const bool inside = alias && random() % 2 == 0 &&
                      program.dtype(program.attrs.outs[0]) == program.ins[0];
  Lists held;
  std::vector<std::vector<Held>> ins(program.ins.size());
  std::vector<std::vector<std::size_t>> outs(program.outs());
  for (std::size_t e = 0; e < std::size(sizes); ++e) {
    std::vector<Buffer*> first;
    for (std::size_t i = 0; i < ins.size(); ++i) {
      const bool one = i == 1 && random() % 2 == 0;
      ins[i].emplace_back(
          program.ins[i],
          std::vector<std::int64_t>{one ? 1 : sizes[e]},
          true,
          false,
          random);
      held.memory.push_back(std::make_unique<Buffer>(ins[i].back().bytes));
      first.push_back(held.memory.back().get());
      held.add(
          NPU_PROGRAM_OUTPUTS + i,
          program.ins[i],
          first.back()->data(),
          one ? 1 : sizes[e]);
    }
    for (std::size_t o = 0; o < outs.size(); ++o) {
      const npu_dtype dtype = program.dtype(program.attrs.outs[o]);
      if (inside && o == 0) {
        outs[o].push_back(held.memory.size() - ins.size());
        held.add(o, dtype, first[0]->data(), sizes[e]);
        continue;
      }
      outs[o].push_back(held.memory.size());
      held.memory.push_back(std::make_unique<Buffer>(
          static_cast<std::uint64_t>(sizes[e]) * npu_dtype_bytes(dtype)));
      held.add(o, dtype, held.memory.back()->data(), sizes[e]);
    }
  }
  Frame frame(NPU_KIND_MULTI_PROGRAM);
  frame.attrs(program.attrs);
  frame.call().lists = held.lists.data();
  frame.call().n_lists = 16;
  const npu_status status = frame.run();
  if (status == NPU_E_UNSUPPORTED) {
    return false;
  }
  NPU_EXPECT_OK(status);
  for (std::size_t e = 0; e < std::size(sizes); ++e) {
    for (std::int64_t at = 0; at < sizes[e]; ++at) {
      std::vector<Value> inputs;
      for (const auto& list : ins) {
        const auto& values = list[e].values;
        inputs.push_back(values[values.size() == 1 ? 0 : std::size_t(at)]);
      }
      const std::vector<Value> want = program.evaluate(inputs);
      for (std::size_t o = 0; o < outs.size(); ++o) {
        const npu_dtype dtype = program.dtype(program.attrs.outs[o]);
        const Bytes got = held.memory[outs[o][e]]->get();
        const Value have =
            load(dtype, got.data() + std::size_t(at) * npu_dtype_bytes(dtype));
        if (!equal(dtype, have, want[o])) {
          ADD_FAILURE() << "program of " << program.text() << "seed " << seed
                        << (inside ? ", in place" : "") << ": list " << o
                        << " entry " << e << " element " << at << " is "
                        << number_of(have) << " instead of "
                        << number_of(want[o]);
          return true;
        }
      }
    }
  }
  return true;
}

TEST(program, RandomProgramsOfListsAreRight) {
  NPU_NEEDS_KIND(NPU_KIND_MULTI_PROGRAM, 0);
  const Abilities can = abilities(NPU_KIND_MULTI_PROGRAM);
  int ran = 0;
  for (const npu_dtype dtype : kDtypes) {
    for (std::uint64_t seed = 0; has(can.dtypes, dtype) && seed < 6; ++seed) {
      set_threads(seed % 2 == 0 ? 2 : 1);
      ran += run_lists(draw_program(dtype, seed + 1000), seed, can.alias);
      if (HasFailure()) {
        return;
      }
    }
  }
  EXPECT_GT(ran, 0) << "declared, and every program is declined";
}

}  // namespace
}  // namespace npu::kit
