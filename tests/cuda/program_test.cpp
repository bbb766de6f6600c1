// SPDX-License-Identifier: Apache-2.0
// The sources of programs: NVRTC compiles them, and a compiler of the host
// does. What the host then runs has the bits of the host driver's interpreter.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "compose/driver_test.h"
#include "driver/driver.h"
#include "jit/problem.h"
#include "lib/nvrtc.h"
#include "program_draw.h"
#include "shared/dtype.h"

namespace npu::cuda {
namespace {

using compose::host;

npu_stream stream() {
  static npu_stream made = [] {
    npu_stream s = nullptr;
    host().stream().create(0, 0, &s);
    return s;
  }();
  return made;
}

// ---- programs ----

struct Code {
  std::uint32_t slot;
  std::uint32_t code;
};
// Rounded once by rule on every machine, whatever its library of functions.
constexpr Code kExact[] = {
    {NPU_KIND_UNARY, NPU_UNARY_NEG},
    {NPU_KIND_UNARY, NPU_UNARY_ABS},
    {NPU_KIND_UNARY, NPU_UNARY_SIGN},
    {NPU_KIND_UNARY, NPU_UNARY_SQUARE},
    {NPU_KIND_UNARY, NPU_UNARY_SQRT},
    {NPU_KIND_UNARY, NPU_UNARY_RSQRT},
    {NPU_KIND_UNARY, NPU_UNARY_RECIPROCAL},
    {NPU_KIND_UNARY, NPU_UNARY_FLOOR},
    {NPU_KIND_UNARY, NPU_UNARY_ROUND},
    {NPU_KIND_UNARY, NPU_UNARY_RELU},
    {NPU_KIND_UNARY, NPU_UNARY_ISNAN},
    {NPU_KIND_UNARY, NPU_UNARY_LOGICAL_NOT},
    {NPU_KIND_UNARY, NPU_UNARY_BITWISE_NOT},
    {NPU_KIND_UNARY, NPU_UNARY_HARDSWISH},
    {NPU_KIND_UNARY_WITH, NPU_UNARY_WITH_CLAMP},
    {NPU_KIND_UNARY_WITH, NPU_UNARY_WITH_THRESHOLD},
    {NPU_KIND_UNARY_WITH, NPU_UNARY_WITH_LEAKY_RELU},
    {NPU_KIND_UNARY_WITH, NPU_UNARY_WITH_AFFINE},
    {NPU_KIND_UNARY_WITH, NPU_UNARY_WITH_NAN_TO_NUM},
    {NPU_KIND_UNARY_WITH, NPU_UNARY_WITH_CAST_CLAMP},
    {NPU_KIND_BINARY, NPU_BINARY_ADD},
    {NPU_KIND_BINARY, NPU_BINARY_ADD},
    {NPU_KIND_BINARY, NPU_BINARY_SUB},
    {NPU_KIND_BINARY, NPU_BINARY_MUL},
    {NPU_KIND_BINARY, NPU_BINARY_MUL},
    {NPU_KIND_BINARY, NPU_BINARY_DIV},
    {NPU_KIND_BINARY, NPU_BINARY_MAXIMUM},
    {NPU_KIND_BINARY, NPU_BINARY_MINIMUM},
    {NPU_KIND_BINARY, NPU_BINARY_BITWISE_XOR},
    {NPU_KIND_BINARY, NPU_BINARY_LOGICAL_AND},
    {NPU_KIND_BINARY, NPU_BINARY_LERP},
    {NPU_KIND_BINARY, NPU_BINARY_THRESHOLD_GRAD},
    {NPU_KIND_COMPARE, NPU_COMPARE_LT},
    {NPU_KIND_COMPARE, NPU_COMPARE_EQ},
    {NPU_KIND_TERNARY, NPU_TERNARY_WHERE},
    {NPU_KIND_TERNARY, NPU_TERNARY_ADDCMUL},
    {NPU_KIND_TERNARY, NPU_TERNARY_ADDCDIV},
    {NPU_KIND_TERNARY, NPU_TERNARY_CLAMP},
    {NPU_KIND_TERNARY, NPU_TERNARY_MUL_ADD},
    {NPU_KIND_COPY, 0},
    {NPU_KIND_FILL, 0},
};
constexpr auto kNone = static_cast<std::uint8_t>(NPU_PROGRAM_NONE);

npu_dtype dtype_of(const Drawn& drawn, std::uint32_t reg) {
  return reg < NPU_PROGRAM_INPUTS
             ? drawn.ins[reg].dtype
             : npu_dtype{
                   npu_program_at(drawn.attrs.ops, reg - NPU_PROGRAM_INPUTS)
                       .dtype};
}

// Would separate calls take these dtypes?
bool is_taken(const Drawn& drawn, const npu_program_op& op) {
  npu_op_caps caps{};
  caps.size = sizeof(caps);
  if (host().op().caps(op.slot, op.code, &caps) != NPU_OK) {
    return false;
  }
  const std::size_t outs = npu_kind_of(op.slot)->n_out;
  for (std::size_t k = 0; k < npu_program_arity(op.slot); ++k) {
    if (op.in[k] != kNone && (caps.dtypes[outs + k] &
                              NPU_DTYPE_BIT(dtype_of(drawn, op.in[k]))) == 0) {
      return false;
    }
  }
  return (caps.dtypes[0] & NPU_DTYPE_BIT(op.dtype)) != 0;
}

jit::Problem problem_of(Drawn& drawn, std::vector<Area>& outs) {
  npu::Call call(NPU_KIND_PROGRAM, drawn.code, "test");
  drawn.fill_call(call, outs);
  char text[200];
  EXPECT_EQ(npu_call_validate(&call.frame(), text, sizeof(text)), NPU_OK)
      << text << ": " << text_of(drawn.attrs);
  jit::Problem problem;
  std::string why;
  EXPECT_TRUE(problem.set(call.frame(), why)) << why;
  return problem;
}

Drawn draw_program(npu_dtype main, std::uint64_t seed) {
  Random random(seed * 64 + main);
  Drawn drawn;
  const Sizes shapes[] = {
      {1}, {1003}, {4096}, {3, 5}, {4, 1, 70}, {2, 3, 4, 5}, {}, {64, 33}};
  const Sizes sizes = shapes[seed % std::size(shapes)];
  for (std::uint64_t i = 1 + random() % 4; i > 0; --i) {
    const npu_dtype dtype =
        random() % 6 == 0 && i > 1 ? npu_dtype{NPU_BOOL} : main;
    drawn.ins.push_back(draw_area(dtype, sizes, random, false));
  }
  if (random() % 3 == 0) {
    Area number{NPU_F32, {}, {}, std::vector<char>(16), true};
    number.dtype = main;
    fill(number, random);
    drawn.ins.push_back(number);
  }
  for (npu_scalar& scalar : drawn.attrs.scalars) {
    const auto whole = static_cast<std::int64_t>(random() % 7) - 3;
    scalar = random() % 4 == 0
                 ? npu_scalar{}
                 : npu_scalar{
                       NPU_SCALAR_INT, 0, whole, static_cast<double>(whole), 0};
  }
  const std::uint64_t wanted = 1 + random() % 9;
  for (int tries = 0; tries < 500 && drawn.attrs.n_ops < wanted; ++tries) {
    const Code& code = kExact[random() % std::size(kExact)];
    npu_program_op op{
        static_cast<std::uint8_t>(code.slot),
        static_cast<std::uint8_t>(code.code),
        static_cast<std::uint8_t>(
            code.slot == NPU_KIND_COPY || code.slot == NPU_KIND_FILL
                ? npu_dtype{NPU_ABSENT}
                : main),
        static_cast<std::uint8_t>(
            code.slot == NPU_KIND_COMPARE ? npu_dtype{NPU_BOOL} : main),
        {kNone, kNone, kNone},
        kNone};
    if (code.slot == NPU_KIND_COPY && random() % 2 == 0) {
      constexpr npu_dtype kOthers[] = {NPU_F32, NPU_F64, NPU_I32, NPU_BOOL};
      op.dtype = static_cast<std::uint8_t>(kOthers[random() % 4]);
    }
    if (npu_program_scalars(op.slot) != 0) {
      op.scalar = static_cast<std::uint8_t>(random() % 28);
    }
    for (std::uint32_t k = 0; k < npu_program_arity(op.slot); ++k) {
      if (npu_program_optional(op.slot, op.code, k) && random() % 2 == 0) {
        continue;
      }
      const bool input = drawn.attrs.n_ops == 0 || random() % 2 == 0;
      op.in[k] = static_cast<std::uint8_t>(
          input ? random() % drawn.ins.size()
                : NPU_PROGRAM_INPUTS + random() % drawn.attrs.n_ops);
    }
    if (!is_taken(drawn, op)) {
      continue;
    }
    const std::uint32_t n = drawn.attrs.n_ops++;
    drawn.attrs.ops[n] = npu_program_word(op);
    std::fill_n(drawn.attrs.outs, NPU_PROGRAM_OUTPUTS, NPU_PROGRAM_NONE);
    drawn.attrs.outs[0] = NPU_PROGRAM_INPUTS + n;
    std::vector<Area> probe{draw_area(op.dtype, sizes, random, true)};
    npu::Call call(NPU_KIND_PROGRAM, 0, "test");
    drawn.fill_call(call, probe);
    const bool right = npu_call_validate(&call.frame(), nullptr, 0) == NPU_OK &&
                       call.plan(host(), 0).answer == NPU_VERDICT_YES;
    jit::Problem problem;
    std::string why;
    if (!right || !problem.set(call.frame(), why) ||
        jit::make_source(problem.spec).text.empty()) {
      drawn.attrs.n_ops = n;
    }
  }
  std::fill_n(drawn.attrs.outs, NPU_PROGRAM_OUTPUTS, NPU_PROGRAM_NONE);
  const std::uint32_t n = drawn.attrs.n_ops;
  for (std::uint32_t o = 0; n > 0 && o < 1 + seed % 4; ++o) {
    const auto reg = static_cast<std::uint32_t>(o == 0 ? n - 1 : random() % n);
    drawn.attrs.outs[o] = NPU_PROGRAM_INPUTS + reg;
    drawn.outs.push_back(draw_area(
        npu_program_at(drawn.attrs.ops, reg).dtype, sizes, random, true));
  }
  return drawn;
}

// Reductions in the place of the outputs; the first may stay.
void add_rows(Drawn& drawn, std::uint64_t seed) {
  Random random(seed);
  const Sizes sizes = drawn.ins[0].sizes;
  constexpr std::uint32_t kCodes[] = {
      NPU_REDUCE_MIN,
      NPU_REDUCE_MAX,
      NPU_REDUCE_SUM,
      NPU_REDUCE_MEAN,
      NPU_REDUCE_SUM_OF_SQUARES};
  drawn.code = NPU_PROGRAM_ROWS;
  for (std::size_t o = seed % 2 == 0 && drawn.outs.size() > 1 ? 1 : 0;
       o < drawn.outs.size();
       ++o) {
    const std::uint32_t reg = drawn.attrs.outs[o];
    const npu_dtype dtype = dtype_of(drawn, reg);
    const bool whole = dtype < NPU_F16;
    if (dtype == NPU_BOOL) {
      continue;
    }
    const std::uint32_t n = drawn.attrs.n_ops++;
    drawn.attrs.ops[n] = npu_program_word(
        {NPU_KIND_REDUCE,
         static_cast<std::uint8_t>(kCodes[random() % (whole ? 3 : 5)]),
         NPU_ABSENT,
         static_cast<std::uint8_t>(dtype),
         {static_cast<std::uint8_t>(reg), kNone, kNone},
         kNone});
    drawn.attrs.outs[o] = NPU_PROGRAM_INPUTS + n;
    Sizes rows = sizes;
    if (!rows.empty()) {
      rows.back() = 1;
    }
    drawn.outs[o] = draw_area(dtype, rows, random, true);
  }
}

bool has_rows(const Drawn& drawn) {
  for (const std::uint32_t reg : drawn.attrs.outs) {
    if (npu_program_reduces(drawn.attrs.ops, reg)) {
      return true;
    }
  }
  return false;
}

// ---- sources of many programs in one ----

std::string replaced(
    std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}
std::string numbered(const std::string& source, std::size_t i) {
  const std::string n = std::to_string(i);
  return replaced(
      replaced(
          replaced(source, "NpuOp", "NpuOp" + n + "_"),
          "element(",
          "element" + n + "("),
      "npu_program(",
      "npu_program" + n + "(");
}

struct Case {
  Drawn drawn;
  jit::Problem problem;
  jit::Source source;
  std::string what;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> made;
    for (const int main :
         {NPU_F32, NPU_F16, NPU_BF16, NPU_F64, NPU_I32, NPU_I64, NPU_U8}) {
      for (std::uint64_t seed = 0; seed < 16; ++seed) {
        Case one;
        one.drawn = draw_program(npu_dtype(main), seed);
        if (one.drawn.attrs.n_ops == 0) {
          continue;
        }
        if (seed % 2 == 1) {
          add_rows(one.drawn, seed);
          if (!has_rows(one.drawn)) {
            continue;
          }
        }
        one.problem = problem_of(one.drawn, one.drawn.outs);
        one.source = jit::make_source(one.problem.spec);
        one.what = std::string(npu_dtype_name(npu_dtype(main))) + " seed " +
                   std::to_string(seed) + ": " + text_of(one.drawn.attrs);
        EXPECT_FALSE(one.source.text.empty())
            << one.source.why << ": " << one.what;
        made.push_back(std::move(one));
      }
    }
    return made;
  }();
  return all;
}

std::string all_sources(std::size_t every = 1) {
  std::string made;
  for (std::size_t i = 0; i < cases().size(); i += every) {
    made += numbered(cases()[i].source.text, i);
  }
  return made;
}

// ---- on the host ----

class HostLibrary {
 public:
  explicit HostLibrary(const std::string& source) {
    const auto folder = std::filesystem::temp_directory_path() /
                        ("npu_programs_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const std::string file = (folder / "programs.cpp").string();
    // A name of its own: dlopen knows what it has opened by name.
    static int libraries = 0;
    const std::string made =
        (folder / ("programs" + std::to_string(++libraries) + ".so")).string();
    std::ofstream(file)
        << "#include \"jit/host_shim.h\"\n"
        << source
        << "extern \"C\" void npu_place(unsigned block, unsigned blocks) {\n"
           "  blockIdx.x = block;\n  gridDim.x = blocks;\n}\n";
    const std::string command =
        std::string(NPU_CXX) + " -std=c++20 -O1 -ffp-contract=off -w -shared " +
        "-fPIC " + NPU_JIT_INCLUDES + " " + file + " -o " + made + " 2>" +
        (folder / "log").string();
    if (std::system(command.c_str()) != 0) {
      std::ifstream log(folder / "log");
      ADD_FAILURE() << std::string(std::istreambuf_iterator<char>(log), {})
                           .substr(0, 4000);
    } else {
      library_ = dlopen(made.c_str(), RTLD_NOW | RTLD_LOCAL);
      EXPECT_NE(library_, nullptr) << dlerror();
    }
    std::filesystem::remove_all(folder);
  }
  template <class Function>
  Function find(const std::string& name) const {
    return reinterpret_cast<Function>(
        library_ ? dlsym(library_, name.c_str()) : nullptr);
  }

 private:
  void* library_ = nullptr;
};

double number_at(npu_dtype dtype, const char* at) {
  const auto take = [&]<class T>(T value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (dtype) {
    case NPU_F16:
      return static_cast<double>(
          decode_float<kF16Format>(take(std::uint16_t{})));
    case NPU_BF16:
      return static_cast<double>(
          as_float(std::uint32_t{take(std::uint16_t{})} << 16));
    case NPU_F32:
      return static_cast<double>(take(float{}));
    default:
      return take(double{});
  }
}
bool is_float(npu_dtype dtype) {
  return dtype >= NPU_F16 && dtype <= NPU_F64;
}

// Equal bits; NaN for NaN. `loose`: sums in another order, by an own bound.
void expect_equal(
    const Area& want, const Area& have, bool loose, const std::string& what) {
  const std::size_t each = npu_dtype_bytes(want.dtype);
  ASSERT_EQ(want.bytes.size(), have.bytes.size());
  for (std::size_t i = 0; i + each <= want.bytes.size(); i += each) {
    const char* const x = want.bytes.data() + i;
    const char* const y = have.bytes.data() + i;
    if (std::memcmp(x, y, each) == 0) {
      continue;
    }
    const double a = is_float(want.dtype) ? number_at(want.dtype, x) : 0;
    const double b = is_float(want.dtype) ? number_at(want.dtype, y) : 1;
    const bool nan = std::isnan(a) && std::isnan(b);
    ASSERT_TRUE(nan || (loose && std::abs(a - b) <= 0.02 * std::abs(a) + 0.1))
        << what << "byte " << i << ": " << a << " instead of " << b;
  }
}

TEST(Programs, HaveTheBitsOfTheHostDriversInterpreter) {
  const HostLibrary library(all_sources());
  const auto place = library.find<void (*)(unsigned, unsigned)>("npu_place");
  ASSERT_NE(place, nullptr);
  ASSERT_GT(cases().size(), 80u);
  for (std::size_t i = 0; i < cases().size(); ++i) {
    Case one = cases()[i];
    std::vector<Area> outs[2] = {one.drawn.outs, one.drawn.outs};
    npu::Call call(NPU_KIND_PROGRAM, one.drawn.code, "test");
    one.drawn.fill_call(call, outs[0]);
    ASSERT_EQ(call.plan(host(), 0).answer, NPU_VERDICT_YES) << one.what;
    ASSERT_EQ(call.run(host(), stream()), NPU_OK) << one.what;

    jit::Problem problem = problem_of(one.drawn, outs[1]);
    const jit::Source source = jit::make_source(problem.spec);
    ASSERT_EQ(source.text, one.source.text) << "alignment differs";
    ASSERT_TRUE(jit::fill_numbers(
        problem.args.scalars,
        source.numbers,
        problem.spec,
        one.drawn.attrs.scalars,
        problem.host_values.data()));
    const auto kernel =
        library.find<void (*)(jit::Args)>("npu_program" + std::to_string(i));
    ASSERT_NE(kernel, nullptr);
    for (unsigned block = 0; block < 3; ++block) {
      place(block, 3);
      kernel(problem.args);
    }
    for (std::size_t o = 0; o < outs[0].size(); ++o) {
      const std::uint32_t reg = one.drawn.attrs.outs[o];
      const npu_program_op op =
          npu_program_at(one.drawn.attrs.ops, reg - NPU_PROGRAM_INPUTS);
      const bool sums = op.slot == NPU_KIND_REDUCE &&
                        op.code != NPU_REDUCE_MIN && op.code != NPU_REDUCE_MAX;
      expect_equal(
          outs[0][o],
          outs[1][o],
          sums,
          one.what + " output " + std::to_string(o) + ": ");
      if (HasFailure()) {
        return;
      }
    }
  }
}

// Lists: entries of several sizes, some of one element, more than one launch.
TEST(Programs, OfListsHaveTheBitsOfTheHostDriversInterpreter) {
  constexpr std::size_t kCount = jit::kEntries + 9;
  constexpr std::size_t kLists = NPU_PROGRAM_OUTPUTS + NPU_PROGRAM_INPUTS;
  std::string sources;
  std::vector<Drawn> drawn;
  for (const Case& each : cases()) {
    const npu_dtype main = each.drawn.ins[0].dtype;
    const bool fits =
        each.drawn.code == NPU_PROGRAM_MAP &&
        std::all_of(
            each.drawn.ins.begin(), each.drawn.ins.end(), [&](const Area& in) {
              return in.dtype == main && !in.number;
            });
    if (fits && drawn.size() < 12) {
      drawn.push_back(each.drawn);
    }
  }
  ASSERT_GT(drawn.size(), 5u);
  struct Held {
    std::array<std::vector<Area>, kLists> areas;
    std::array<std::vector<void*>, kLists> data;
    std::array<std::vector<std::int64_t>, kLists> numel;
    npu::Call call{NPU_KIND_MULTI_PROGRAM, 0, "test"};

    explicit Held(Drawn& of) {
      Random random(5);
      for (std::size_t k = 0; k < kLists; ++k) {
        const bool out = k < NPU_PROGRAM_OUTPUTS;
        const bool there =
            out ? k < of.outs.size() : k - NPU_PROGRAM_OUTPUTS < of.ins.size();
        if (!there) {
          call.add_list(npu_list{});
          continue;
        }
        const npu_dtype dtype =
            out ? of.outs[k].dtype : of.ins[k - NPU_PROGRAM_OUTPUTS].dtype;
        for (std::size_t e = 0; e < kCount; ++e) {
          const auto size = static_cast<std::int64_t>(1 + e * 37 % 700);
          const bool one = k == NPU_PROGRAM_OUTPUTS + 1 && e % 2 == 0;
          const Sizes sizes{one ? 1 : size};
          Area area{dtype, sizes, {1}, {}};
          area.bytes.resize(
              static_cast<std::size_t>(sizes[0]) * npu_dtype_bytes(dtype));
          fill(area, random);
          areas[k].push_back(std::move(area));
          numel[k].push_back(sizes[0]);
        }
        for (Area& area : areas[k]) {
          data[k].push_back(area.bytes.data());
        }
        call.add_list(
            {sizeof(npu_list),
             static_cast<std::uint32_t>(kCount),
             dtype,
             0,
             0,
             data[k].data(),
             numel[k].data(),
             nullptr});
      }
      of.attrs.size = sizeof(of.attrs);
      call.set_attrs(of.attrs);
    }
  };
  std::vector<jit::Source> made;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    Held held(drawn[i]);
    jit::Problem problem;
    std::string why;
    ASSERT_TRUE(problem.set(held.call.frame(), why)) << why;
    made.push_back(jit::make_source(problem.spec));
    sources += numbered(made.back().text, i);
  }
  const HostLibrary library(sources);
  const auto place = library.find<void (*)(unsigned, unsigned)>("npu_place");
  ASSERT_NE(place, nullptr);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    Held want(drawn[i]);
    Held have(drawn[i]);
    ASSERT_EQ(want.call.plan(host(), 0).answer, NPU_VERDICT_YES);
    ASSERT_EQ(want.call.run(host(), stream()), NPU_OK);
    jit::Problem problem;
    std::string why;
    ASSERT_TRUE(problem.set(have.call.frame(), why)) << why;
    jit::ListArgs args{};
    ASSERT_TRUE(jit::fill_numbers(
        args.scalars,
        made[i].numbers,
        problem.spec,
        drawn[i].attrs.scalars,
        problem.host_values.data()));
    const auto kernel = library.find<void (*)(jit::ListArgs)>(
        "npu_program" + std::to_string(i));
    int launches = 0;
    jit::for_launches(
        have.call.frame(),
        args,
        [&](jit::ListArgs& each, unsigned long long blocks) {
          ++launches;
          for (unsigned block = 0; block < blocks; ++block) {
            place(block, static_cast<unsigned>(blocks));
            kernel(each);
          }
          return npu_status{NPU_OK};
        });
    EXPECT_EQ(launches, 2);
    for (std::size_t k = 0; k < drawn[i].outs.size(); ++k) {
      for (std::size_t e = 0; e < kCount; ++e) {
        expect_equal(
            want.areas[k][e],
            have.areas[k][e],
            false,
            text_of(drawn[i].attrs) + " list " + std::to_string(k) + " entry " +
                std::to_string(e) + ": ");
        if (HasFailure()) {
          return;
        }
      }
    }
  }
}

TEST(Programs, CompileWithNvrtc) {
  if (!nvrtc::why().empty()) {
    GTEST_SKIP() << "NVRTC is not there: " << nvrtc::why();
  }
  std::vector<nvrtc::Include> headers;
  for (const jit::Header& each : jit::kHeaders) {
    headers.push_back({each.name, each.text});
  }
  const nvrtc::Compiled made = nvrtc::compile(all_sources(4), headers, 90);
  ASSERT_FALSE(made.cubin.empty()) << made.why.substr(0, 6000);
  const std::string head(made.cubin.data(), 4);
  EXPECT_EQ(head, "\177ELF") << "machine code, not PTX";
  // A source that is none: its log, and no crash.
  const nvrtc::Compiled bad = nvrtc::compile("int x = ;", {}, 90);
  EXPECT_TRUE(bad.cubin.empty());
  EXPECT_NE(bad.why.find("error"), std::string::npos) << bad.why;
}

}  // namespace
}  // namespace npu::cuda
