// SPDX-License-Identifier: Apache-2.0
// Programs against their operations called one by one: the same bits.
#include "npu/program.h"

#include <algorithm>
#include <array>
#include <string>

#include "compose/decompose_test.h"

namespace npu::compose {
namespace {

using Random = std::mt19937_64;

// Memory with a view of it; the bytes are any.
struct Area {
  npu_dtype dtype;
  Sizes sizes;
  Sizes strides;
  std::vector<char> bytes;

  npu_tensor operand() {
    npu_tensor t{};
    t.data = t.storage = bytes.data();
    t.storage_bytes = bytes.size();
    t.numel = 1;
    for (const std::int64_t size : sizes) {
      t.numel *= size;
    }
    t.sizes = sizes.data();
    t.strides = strides.data();
    t.dtype = dtype;
    t.ndim = static_cast<std::uint16_t>(sizes.size());
    return t;
  }
};

// Numbers of every size, with zeros, infinities and NaN; any integers.
template <class T>
void fill_floats(std::vector<char>& bytes, Random& random) {
  const double odd[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 65504};
  for (std::size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    const double draw = std::normal_distribution<>(0, 3)(random);
    const T value =
        static_cast<T>(random() % 9 == 0 ? odd[random() % 8] : draw);
    std::memcpy(bytes.data() + i, &value, sizeof(T));
  }
}
void fill(Area& area, Random& random) {
  switch (area.dtype) {
    case NPU_F32:
    case NPU_C64:
      return fill_floats<float>(area.bytes, random);
    case NPU_F64:
    case NPU_C128:
      return fill_floats<double>(area.bytes, random);
    case NPU_BOOL:
      for (char& byte : area.bytes) {
        byte = random() % 2;
      }
      return;
    default:
      for (char& byte : area.bytes) {
        byte = static_cast<char>(random());
      }
  }
}

// Contiguous, one element for all, or with holes.
Area draw_area(npu_dtype dtype, const Sizes& sizes, Random& random, bool out) {
  Area made{dtype, sizes, Sizes(sizes.size()), {}};
  const std::uint64_t kind = random() % 4;
  std::int64_t step = kind == 3 ? 2 : 1;
  std::int64_t reach = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    const bool expanded = !out && kind == 2 && random() % 2 == 0;
    made.strides[d] = expanded ? 0 : step;
    reach += (sizes[d] - 1) * made.strides[d];
    step *= sizes[d];
  }
  reach += 64;  // must not be written
  made.bytes.resize(static_cast<std::size_t>(reach) * npu_dtype_bytes(dtype));
  fill(made, random);
  return made;
}

struct Drawn {
  npu_program_attrs attrs{};
  std::uint32_t code = NPU_PROGRAM_MAP;
  std::vector<Area> outs;
  std::vector<Area> ins;
  int inside = -1;  // the input that output 0 lies in

  void fill_call(
      Call& call, std::vector<Area>& results, std::vector<Area>& from) {
    for (std::size_t o = 0; o < NPU_PROGRAM_OUTPUTS; ++o) {
      call.add_output(
          o >= results.size()     ? npu_tensor{}
          : o == 0 && inside >= 0 ? from[std::size_t(inside)].operand()
                                  : results[o].operand());
    }
    for (Area& in : from) {
      call.add_input(in.operand());
    }
    attrs.size = sizeof(attrs);
    call.set_attrs(attrs);
  }
};

std::uint32_t any_code(std::uint32_t slot, Random& random) {
  return static_cast<std::uint32_t>(random() % npu_kind_of(slot)->n_codes);
}

npu_scalar any_scalar(Random& random) {
  const auto whole = static_cast<std::int64_t>(random() % 7) - 3;
  return random() % 4 == 0
             ? npu_scalar{}
             : npu_scalar{
                   NPU_SCALAR_INT, 0, whole, static_cast<double>(whole), 0};
}

// One more operation on registers that are there; division by integers would
// fail on zeros.
bool draw_operation(
    Drawn& drawn, npu_dtype main, Random& random, npu_program_op& op) {
  constexpr std::uint32_t kSlots[] = {
      NPU_KIND_COPY,
      NPU_KIND_FILL,
      NPU_KIND_UNARY,
      NPU_KIND_UNARY,
      NPU_KIND_UNARY_WITH,
      NPU_KIND_BINARY,
      NPU_KIND_BINARY,
      NPU_KIND_COMPARE,
      NPU_KIND_TERNARY};
  npu_program_attrs& attrs = drawn.attrs;
  op = {};
  op.slot = static_cast<std::uint8_t>(kSlots[random() % std::size(kSlots)]);
  op.code = static_cast<std::uint8_t>(any_code(op.slot, random));
  op.compute_dtype = static_cast<std::uint8_t>(
      op.slot == NPU_KIND_COPY ? npu_dtype{NPU_ABSENT} : main);
  op.dtype = static_cast<std::uint8_t>(
      op.slot == NPU_KIND_COMPARE ? npu_dtype{NPU_BOOL}
      : random() % 8 == 0         ? npu_dtype(1 + random() % NPU_C128)
                                  : main);
  op.scalar = NPU_PROGRAM_NONE;
  const std::uint32_t scalars = npu_program_scalars(op.slot);
  if (scalars != 0) {
    op.scalar =
        static_cast<std::uint8_t>(random() % (NPU_PROGRAM_SCALARS - scalars));
  }
  const std::uint64_t last = NPU_PROGRAM_INPUTS + attrs.n_ops;
  for (std::uint32_t k = 0; k < 3; ++k) {
    op.in[k] = NPU_PROGRAM_NONE;
    if (k < npu_program_arity(op.slot) &&
        !(npu_program_optional(op.slot, op.code, k) && random() % 2 == 0)) {
      const bool input = attrs.n_ops == 0 || random() % 2 == 0;
      op.in[k] = static_cast<std::uint8_t>(
          input ? random() % drawn.ins.size()
                : NPU_PROGRAM_INPUTS + random() % (last - NPU_PROGRAM_INPUTS));
    }
  }
  const bool divides = op.slot == NPU_KIND_BINARY &&
                       op.code >= NPU_BINARY_DIV_TRUNC &&
                       op.code <= NPU_BINARY_REMAINDER && main < NPU_F16;
  return npu_program_has_code(op.slot, op.code) && !divides;
}

// A copy moves bits; a register of a half type is a float, which has no
// signalling NaN of it. Recordings do not make programs of such copies.
bool moves_halves(npu_dtype to, npu_dtype from) {
  const auto part = [](npu_dtype d) {
    return d == NPU_C32 ? npu_dtype{NPU_F16} : d;
  };
  return part(to) == part(from) && npu_dtype_bytes(part(to)) == 2;
}

// Would separate calls take it, and the program? Both, or it is drawn again.
bool is_taken(Drawn& drawn, const npu_program_op& op) {
  npu_op_caps caps{};
  caps.size = sizeof(caps);
  if (host().op().caps(op.slot, op.code, &caps) != NPU_OK) {
    return false;
  }
  const std::size_t outs = npu_kind_of(op.slot)->n_out;
  for (std::size_t k = 0; k < npu_program_arity(op.slot); ++k) {
    const std::uint8_t r = op.in[k];
    if (r == NPU_PROGRAM_NONE) {
      continue;
    }
    const npu_dtype dtype =
        r < NPU_PROGRAM_INPUTS
            ? drawn.ins[r].dtype
            : npu_dtype{npu_program_at(drawn.attrs.ops, r - NPU_PROGRAM_INPUTS)
                            .dtype};
    if ((caps.dtypes[outs + k] & NPU_DTYPE_BIT(dtype)) == 0 ||
        (op.slot == NPU_KIND_COPY && moves_halves(op.dtype, dtype))) {
      return false;
    }
  }
  return (caps.dtypes[0] & NPU_DTYPE_BIT(op.dtype)) != 0;
}

Drawn draw_program(npu_dtype main, std::uint64_t seed) {
  Random random(seed);
  Drawn drawn;
  const Sizes shapes[] = {{1}, {7}, {64}, {2500}, {3, 5}, {4, 1, 700}, {}};
  const Sizes sizes = shapes[random() % std::size(shapes)];
  for (std::uint64_t i = 1 + random() % 5; i > 0; --i) {
    const npu_dtype dtype = random() % 6 == 0 ? npu_dtype{NPU_BOOL} : main;
    drawn.ins.push_back(draw_area(dtype, sizes, random, false));
  }
  for (npu_scalar& scalar : drawn.attrs.scalars) {
    scalar = any_scalar(random);
  }
  std::fill_n(drawn.attrs.outs, NPU_PROGRAM_OUTPUTS, NPU_PROGRAM_NONE);
  const std::uint64_t wanted = 1 + random() % 12;
  for (int tries = 0; tries < 400 && drawn.attrs.n_ops < wanted; ++tries) {
    npu_program_op op;
    if (!draw_operation(drawn, main, random, op) || !is_taken(drawn, op)) {
      continue;
    }
    const std::uint32_t n = drawn.attrs.n_ops++;
    drawn.attrs.ops[n] = npu_program_word(op);
    drawn.attrs.outs[0] = NPU_PROGRAM_INPUTS + n;
    // Is there a kernel? Asked with this register as the only output.
    drawn.attrs.outs[0] = NPU_PROGRAM_INPUTS + n;
    std::vector<Area> probe{draw_area(op.dtype, sizes, random, true)};
    Call call(NPU_KIND_PROGRAM, 0, "test");
    drawn.fill_call(call, probe, drawn.ins);
    if (call.plan(host(), 0).answer != NPU_VERDICT_YES) {
      drawn.attrs.n_ops = n;
    }
  }
  const std::uint32_t n = drawn.attrs.n_ops;
  for (std::uint32_t o = 0; n > 0 && o < 1 + random() % 4; ++o) {
    const auto reg = static_cast<std::uint32_t>(o == 0 ? n - 1 : random() % n);
    drawn.attrs.outs[o] = NPU_PROGRAM_INPUTS + reg;
    const npu_dtype dtype = npu_program_at(drawn.attrs.ops, reg).dtype;
    drawn.outs.push_back(draw_area(dtype, sizes, random, true));
  }
  for (std::size_t i = 0; n > 0 && random() % 3 == 0 && i < drawn.ins.size();
       ++i) {
    const bool expanded = std::ranges::find(drawn.ins[i].strides, 0) !=
                          drawn.ins[i].strides.end();
    if (drawn.ins[i].dtype == drawn.outs[0].dtype && !expanded) {
      drawn.inside = static_cast<int>(i);
    }
  }
  return drawn;
}

// Reductions of some registers in the place of some outputs, where the host
// driver takes them; false: it takes none.
bool add_rows(Drawn& drawn, std::uint64_t seed) {
  Random random(seed);
  const Sizes sizes = drawn.ins[0].sizes;
  const std::uint64_t reduced = sizes.empty() ? 0 : 1 + random() % sizes.size();
  constexpr std::uint32_t kCodes[] = {
      NPU_REDUCE_SUM,
      NPU_REDUCE_MEAN,
      NPU_REDUCE_MIN,
      NPU_REDUCE_MAX,
      NPU_REDUCE_SUM_OF_SQUARES};
  const auto none = static_cast<std::uint8_t>(NPU_PROGRAM_NONE);
  const Drawn before = drawn;
  drawn.code = NPU_PROGRAM_ROWS;
  drawn.inside = -1;
  for (std::size_t o = random() % drawn.outs.size(); o < drawn.outs.size();
       ++o) {
    const std::uint64_t made = random() % before.attrs.n_ops;
    const std::uint64_t reg = random() % 4 == 0 ? 0 : NPU_PROGRAM_INPUTS + made;
    const npu_dtype dtype =
        reg == 0 ? drawn.ins[0].dtype
                 : npu_dtype{npu_program_at(before.attrs.ops, made).dtype};
    const std::uint32_t n = drawn.attrs.n_ops++;
    drawn.attrs.ops[n] = npu_program_word(
        {NPU_KIND_REDUCE,
         static_cast<std::uint8_t>(kCodes[random() % 5]),
         NPU_ABSENT,
         static_cast<std::uint8_t>(dtype),
         {static_cast<std::uint8_t>(reg), none, none},
         none});
    drawn.attrs.outs[o] = NPU_PROGRAM_INPUTS + n;
    Sizes rows = sizes;
    std::fill(rows.end() - std::ptrdiff_t(reduced), rows.end(), 1);
    drawn.outs[o] = draw_area(dtype, rows, random, true);
  }
  Call call(NPU_KIND_PROGRAM, drawn.code, "test");
  std::vector<Area> outs = drawn.outs;
  std::vector<Area> ins = drawn.ins;
  drawn.fill_call(call, outs, ins);
  return call.plan(host(), 0).answer == NPU_VERDICT_YES;
}

std::string text_of(const npu_program_attrs& attrs) {
  std::string text;
  for (std::uint32_t i = 0; i < attrs.n_ops; ++i) {
    const npu_program_op op = npu_program_at(attrs.ops, i);
    text += std::string(npu_kind_name(op.slot)) + "." +
            npu_code_name(op.slot, op.code) + " " + npu_dtype_name(op.dtype) +
            " (" + std::to_string(op.in[0]) + ", " + std::to_string(op.in[1]) +
            ", " + std::to_string(op.in[2]) + "); ";
  }
  return text;
}

void expect_same_bits(Drawn& drawn, const std::string& where) {
  std::vector<Area> outs[2] = {drawn.outs, drawn.outs};
  std::vector<Area> ins[2] = {drawn.ins, drawn.ins};
  HostRunner runner(NPU_KIND_PROGRAM);
  for (int side = 0; side < 2; ++side) {
    Call call(NPU_KIND_PROGRAM, drawn.code, "test");
    drawn.fill_call(call, outs[side], ins[side]);
    char text[200];
    ASSERT_EQ(npu_call_validate(&call.frame(), text, sizeof(text)), NPU_OK)
        << text << where;
    ASSERT_TRUE(side == 0 ? run_on_host(call) : run(runner, call.frame()))
        << where;
  }
  for (std::size_t o = 0; o < drawn.outs.size(); ++o) {
    EXPECT_EQ(outs[0][o].bytes, outs[1][o].bytes) << "output " << o << where;
  }
  for (std::size_t i = 0; i < drawn.ins.size(); ++i) {
    EXPECT_EQ(ins[0][i].bytes, ins[1][i].bytes) << "input " << i << where;
  }
}

// The same program on entries of several sizes, of which some inputs have one
// element.
void expect_same_bits_of_lists(const npu_program_attrs& drawn, npu_dtype main) {
  constexpr std::size_t kEntries = 3;
  constexpr std::size_t kLists = NPU_PROGRAM_OUTPUTS + NPU_PROGRAM_INPUTS;
  const std::int64_t sizes[kEntries] = {5, 1, 1500};
  npu_program_attrs attrs = drawn;
  attrs.size = sizeof(attrs);
  std::vector<char> results[2];
  for (int side = 0; side < 2; ++side) {
    Random random(main);
    std::vector<Area> areas;
    std::array<std::vector<void*>, kLists> data;
    std::array<std::vector<std::int64_t>, kLists> numel;
    std::array<npu_list, kLists> lists{};
    areas.reserve(kLists * kEntries);
    for (std::size_t k = 0; k < kLists; ++k) {
      const bool out = k < NPU_PROGRAM_OUTPUTS;
      if (out && attrs.outs[k] == NPU_PROGRAM_NONE) {
        continue;
      }
      const npu_dtype dtype =
          out ? npu_dtype{npu_program_at(
                              attrs.ops, attrs.outs[k] - NPU_PROGRAM_INPUTS)
                              .dtype}
              : main;
      for (const std::int64_t size : sizes) {
        const std::int64_t n = k == NPU_PROGRAM_OUTPUTS + 1 ? 1 : size;
        Area& area = areas.emplace_back(Area{dtype, {n}, {1}, {}});
        area.bytes.resize(static_cast<std::size_t>(n) * npu_dtype_bytes(dtype));
        fill(area, random);
        area.bytes.resize(area.bytes.size() + 64, 'x');  // stay as they are
        data[k].push_back(area.bytes.data());
        numel[k].push_back(n);
      }
      lists[k] = {
          sizeof(npu_list),
          kEntries,
          dtype,
          0,
          0,
          data[k].data(),
          numel[k].data(),
          nullptr};
    }
    Call call(NPU_KIND_MULTI_PROGRAM, 0, "test");
    for (const npu_list& list : lists) {
      call.add_list(list);
    }
    call.set_attrs(attrs);
    char text[200];
    ASSERT_EQ(npu_call_validate(&call.frame(), text, sizeof(text)), NPU_OK)
        << text;
    HostRunner runner(NPU_KIND_MULTI_PROGRAM);
    ASSERT_TRUE(side == 0 ? run_on_host(call) : run(runner, call.frame()));
    for (const Area& area : areas) {
      results[side].insert(
          results[side].end(), area.bytes.begin(), area.bytes.end());
    }
  }
  EXPECT_EQ(results[0], results[1]) << text_of(attrs);
}

TEST(Program, OfListsHasTheBitsOfItsOperations) {
  for (const npu_dtype main :
       {NPU_F16, NPU_BF16, NPU_F32, NPU_F64, NPU_I32, NPU_C64}) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      Drawn drawn = draw_program(npu_dtype(main), seed * 7 + 5000);
      const bool of_one = std::ranges::all_of(
          drawn.ins, [&](const Area& in) { return in.dtype == main; });
      if (drawn.attrs.n_ops != 0 && of_one) {
        expect_same_bits_of_lists(drawn.attrs, npu_dtype(main));
      }
    }
  }
}

TEST(Program, HasTheBitsOfItsOperations) {
  int drawn_ones = 0;
  for (npu_dtype main = NPU_BOOL; main <= NPU_C128; ++main) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      Drawn drawn = draw_program(main, seed * 100 + main);
      if (drawn.attrs.n_ops == 0) {
        continue;
      }
      ++drawn_ones;
      expect_same_bits(
          drawn,
          std::string(" of ") + npu_dtype_name(main) + ", seed " +
              std::to_string(seed) + ": " + text_of(drawn.attrs));
      if (HasFailure()) {
        return;
      }
    }
  }
  EXPECT_GT(drawn_ones, 600);
}

// Rows that pass by in blocks have the bits of rows that are there as a whole.
TEST(Program, WithRowsHasTheBitsOfItsOperations) {
  int drawn_ones = 0;
  for (const int main :
       {NPU_F16, NPU_BF16, NPU_F32, NPU_F64, NPU_I8, NPU_I32, NPU_I64}) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      Drawn drawn = draw_program(npu_dtype(main), seed * 100 + 13);
      if (drawn.attrs.n_ops == 0 || !add_rows(drawn, seed)) {
        continue;
      }
      ++drawn_ones;
      expect_same_bits(
          drawn,
          std::string(" of rows of ") + npu_dtype_name(npu_dtype(main)) +
              ", seed " + std::to_string(seed) + ": " + text_of(drawn.attrs));
      if (HasFailure()) {
        return;
      }
    }
  }
  EXPECT_GT(drawn_ones, 100);
}

}  // namespace
}  // namespace npu::compose
