// SPDX-License-Identifier: Apache-2.0
// The source of a program's kernel: one function for an element, and a loop
// around it.
#include "jit/source.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "npu/validate.h"
#include "shared/dtype_sets.h"
#include "shared/map_activation.h"
#include "shared/map_binary.h"
#include "shared/map_rules.h"
#include "shared/map_scalar.h"
#include "shared/map_ternary.h"
#include "shared/map_unary.h"

namespace npu::cuda {
bool convert_scalar(
    npu_dtype dtype, const npu_scalar& scalar, void* out) noexcept;
}  // namespace npu::cuda

namespace npu::cuda::jit {
namespace {

// ---- formulas by code ----

struct Formula {
  std::uint32_t code;
  const char* name;
  std::uint64_t dtypes;
};
// The tables of shared/map_*.h, each with the namespace that it stands in.
#define NPU_JIT_ROW(code, op, dtypes) {code, #op, dtypes},
#define NPU_JIT_TABLE(name, space, rows)                      \
  const char* const name##Space = "npu::formula::" #space;    \
  const std::vector<Formula>& name() {                        \
    using namespace npu::formula::space;                      \
    static const std::vector<Formula> all{rows(NPU_JIT_ROW)}; \
    return all;                                               \
  }
NPU_JIT_TABLE(elementary, unary, NPU_UNARY_ELEMENTARY)
NPU_JIT_TABLE(activations, activation, NPU_UNARY_ACTIVATIONS)
NPU_JIT_TABLE(with_scalars, scalar, NPU_UNARY_WITH_ROWS)
NPU_JIT_TABLE(arithmetic, binary, NPU_BINARY_ARITHMETIC)
NPU_JIT_TABLE(gradients, activation, NPU_BINARY_GRADIENTS)
NPU_JIT_TABLE(comparisons, binary, NPU_COMPARE_ROWS)
NPU_JIT_TABLE(ternaries, ternary, NPU_TERNARY_ROWS)
#undef NPU_JIT_TABLE
#undef NPU_JIT_ROW

struct Found {
  const Formula* formula = nullptr;
  const char* space = nullptr;
};
Found find_in(
    const std::vector<Formula>& table, const char* space, std::uint32_t code) {
  for (const Formula& each : table) {
    if (each.code == code) {
      return {&each, space};
    }
  }
  return {};
}
Found find_formula(std::uint32_t slot, std::uint32_t code) {
  Found found;
  switch (slot) {
    case NPU_KIND_UNARY:
      found = find_in(elementary(), elementarySpace, code);
      return found.formula ? found
                           : find_in(activations(), activationsSpace, code);
    case NPU_KIND_UNARY_WITH:
      return find_in(with_scalars(), with_scalarsSpace, code);
    case NPU_KIND_BINARY:
      found = find_in(arithmetic(), arithmeticSpace, code);
      return found.formula ? found : find_in(gradients(), gradientsSpace, code);
    case NPU_KIND_COMPARE:
      return find_in(comparisons(), comparisonsSpace, code);
    case NPU_KIND_TERNARY:
      return find_in(ternaries(), ternariesSpace, code);
    default:
      return {};
  }
}

// ---- text ----

__attribute__((format(printf, 1, 2))) std::string text(
    const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  return line;
}

constexpr const char* kTypes[kComputeTypes] = {
    "float", "double", nullptr, nullptr, "npu::jit::Whole", "bool"};

// Registers of complex numbers, 8-bit floats and uint64 are left to separate
// calls.
bool has_unit(npu_dtype dtype) {
  const int type = compute_type(dtype);
  return type >= 0 && kTypes[type] != nullptr && dtype != NPU_U64;
}

class Writer {
 public:
  explicit Writer(const Spec& spec) : spec_(spec) {}

  Source run() {
    made_.numbers.of_op.fill(-1);
    made_.numbers.of_operand.fill(-1);
    for (int k = 0; k < kOperands; ++k) {
      const npu_dtype dtype = spec_.dtypes[k];
      if (dtype != NPU_ABSENT && !has_unit(dtype)) {
        return refuse(std::string("an operand of ") + npu_dtype_name(dtype));
      }
      if (spec_.access[k] == Access::kNumber) {
        made_.numbers.of_operand[k] = take_numbers(1);
      }
    }
    for (std::uint32_t i = 0; i < spec_.attrs.n_ops; ++i) {
      if (!write_operation(i, npu_program_at(spec_.attrs.ops, i))) {
        return std::move(made_);
      }
    }
    if (made_.numbers.n > kNumbers) {
      return refuse("more numbers than a kernel takes");
    }
    made_.text = "#include \"jit/program.cuh\"\n" + names_ + "namespace {\n" +
                 element() + "}  // namespace\n" + kernel();
    return std::move(made_);
  }

 private:
  Source refuse(const std::string& why) {
    made_.text.clear();
    made_.why = why;
    return std::move(made_);
  }
  int take_numbers(int n) {
    made_.numbers.n += n;
    return made_.numbers.n - n;
  }

  npu_dtype dtype_of(std::uint32_t reg) const {
    return reg < NPU_PROGRAM_INPUTS
               ? spec_.dtypes[NPU_PROGRAM_OUTPUTS + reg]
               : npu_dtype{
                     npu_program_at(spec_.attrs.ops, reg - NPU_PROGRAM_INPUTS)
                         .dtype};
  }
  bool is_number(std::uint32_t reg) const {
    return reg < NPU_PROGRAM_INPUTS &&
           spec_.access[NPU_PROGRAM_OUTPUTS + reg] == Access::kNumber;
  }

  bool no_formula(const npu_program_op& op, npu_dtype computed) {
    made_.why = text(
        "%s.%s in %s",
        npu_kind_name(op.slot),
        npu_code_name(op.slot, op.code),
        npu_dtype_name(computed));
    return false;
  }

  // Register 12 + i.
  bool write_operation(std::uint32_t i, npu_program_op op) {
    const std::uint32_t reg = NPU_PROGRAM_INPUTS + i;
    if (!has_unit(op.dtype)) {
      return no_formula(op, op.dtype);
    }
    if (op.slot == NPU_KIND_REDUCE) {
      return write_reduction(reg, op);
    }
    if (op.slot == NPU_KIND_FILL) {
      const int at = take_numbers(1);
      made_.numbers.of_op[i] = at;
      body_ += text(
          "  const auto r%u = npu::jit::number<npu::jit::Unit<%u>>(s[%d]);\n",
          reg,
          unsigned{op.dtype},
          at);
      return true;
    }
    if (op.slot == NPU_KIND_COPY) {
      body_ += text(
          "  const auto r%u = npu::jit::through<%u>(r%u);\n",
          reg,
          unsigned{op.dtype},
          unsigned{op.in[0]});
      return true;
    }
    return write_formula(i, op);
  }

  bool write_formula(std::uint32_t i, npu_program_op op) {
    const std::uint32_t reg = NPU_PROGRAM_INPUTS + i;
    const npu_dtype computed = op.compute_dtype != NPU_ABSENT
                                   ? npu_dtype{op.compute_dtype}
                                   : dtype_of(op.in[0]);
    std::uint32_t n_in = npu_program_arity(op.slot);
    std::uint32_t slot = op.slot;
    std::uint32_t code = op.code;
    if (slot == NPU_KIND_TERNARY && code == NPU_TERNARY_CLAMP &&
        (op.in[1] == NPU_PROGRAM_NONE || op.in[2] == NPU_PROGRAM_NONE)) {
      const bool low = op.in[1] != NPU_PROGRAM_NONE;
      slot = NPU_KIND_BINARY;
      code = low ? NPU_BINARY_MAXIMUM : NPU_BINARY_MINIMUM;
      op.in[1] = low ? op.in[1] : op.in[2];
      n_in = 2;
    } else if (slot == NPU_KIND_TERNARY && code == NPU_TERNARY_ISCLOSE) {
      n_in = 2;
    } else if (
        slot == NPU_KIND_UNARY_WITH && code == NPU_UNARY_WITH_CAST_CLAMP) {
      code = NPU_UNARY_WITH_CLAMP;
    }
    const Found found = find_formula(slot, code);
    const int type = compute_type(computed);
    const bool divides = slot == NPU_KIND_BINARY && type == kInInt64 &&
                         code >= NPU_BINARY_DIV_TRUNC &&
                         code <= NPU_BINARY_REMAINDER;
    if (!found.formula || type < 0 || kTypes[type] == nullptr ||
        computed == NPU_U64 || divides ||
        (found.formula->dtypes & NPU_DTYPE_BIT(computed)) == 0) {
      return no_formula(op, computed);
    }
    names_ += text(
        "namespace %s {\nusing NpuOp%u = %s;\n}\n",
        found.space,
        i,
        found.formula->name);
    const bool scaled = npu_program_scalars(op.slot) != 0;
    const int at = scaled ? take_numbers(4) : 0;
    made_.numbers.of_op[i] = scaled ? at : -1;
    std::string call = text(
        "  const auto r%u = npu::jit::settled<%u, "
        "%u>(npu::jit::apply<%s::NpuOp%u, %s>(",
        reg,
        unsigned{computed},
        unsigned{op.dtype},
        found.space,
        i,
        kTypes[type]);
    for (std::uint32_t k = 0; k < n_in; ++k) {
      const npu_dtype in = dtype_of(op.in[k]);
      const bool half = computed == NPU_F16 || computed == NPU_BF16;
      // A condition is not converted.
      const bool condition =
          (slot == NPU_KIND_TERNARY && code == NPU_TERNARY_WHERE && k == 0) ||
          (slot == NPU_KIND_BINARY && code == NPU_BINARY_MASKED_SCALE &&
           k == 1);
      const bool rounds = half && in != computed && in != NPU_BOOL &&
                          !condition && !is_number(op.in[k]);
      call += text(
          "npu::jit::taken<%s, %u>(r%u), ",
          kTypes[type],
          unsigned{rounds ? computed : npu_dtype{NPU_ABSENT}},
          unsigned{op.in[k]});
    }
    body_ += call + (scaled ? text("s + %d));\n", at) : "npu::jit::kNone));\n");
    return true;
  }

  // As kind reduce: sums and means in the output's dtype, the rest in the
  // input's.
  bool write_reduction(std::uint32_t reg, const npu_program_op& op) {
    const bool sums = op.code == NPU_REDUCE_SUM || op.code == NPU_REDUCE_MEAN;
    const npu_dtype computed = op.compute_dtype != NPU_ABSENT
                                   ? npu_dtype{op.compute_dtype}
                               : sums ? npu_dtype{op.dtype}
                                      : dtype_of(op.in[0]);
    const int type = compute_type(computed);
    const bool whole = type == kInInt64;
    const bool is_float = type == kInFloat || type == kInDouble;
    const char* state = nullptr;
    switch (op.code) {
      case NPU_REDUCE_SUM:
        state = "Sum<%s>";
        break;
      case NPU_REDUCE_MEAN:
        state = is_float ? "Sum<%s>" : nullptr;
        break;
      case NPU_REDUCE_SUM_OF_SQUARES:
        state = is_float ? "SumOfSquares<%s>" : nullptr;
        break;
      case NPU_REDUCE_MIN:
        state = "Extreme<%s, false>";
        break;
      default:
        state = "Extreme<%s, true>";
    }
    if (state == nullptr || !(is_float || whole) || op.dtype == NPU_BOOL ||
        (kWideUnsignedBits &
         (NPU_DTYPE_BIT(computed) | NPU_DTYPE_BIT(op.dtype) |
          NPU_DTYPE_BIT(dtype_of(op.in[0])))) != 0) {
      return no_formula(op, computed);
    }
    char name[64];
    std::snprintf(name, sizeof(name), state, kTypes[type]);
    states_.push_back({reg, name, op.code});
    body_ += text(
        "  t%u.add(npu::jit::convert<%s>(r%u));\n",
        reg,
        kTypes[type],
        unsigned{op.in[0]});
    return true;
  }

  struct State {
    std::uint32_t reg;
    std::string name;
    std::uint32_t code;
  };
  const State* state_of(std::uint32_t reg) const {
    for (const State& each : states_) {
      if (each.reg == reg) {
        return &each;
      }
    }
    return nullptr;
  }

  bool is_there(int k) const {
    return spec_.access[k] != Access::kAbsent;
  }
  bool is_read(int k) const {
    return k >= static_cast<int>(NPU_PROGRAM_OUTPUTS) && is_there(k) &&
           spec_.access[k] != Access::kNumber;
  }
  // An output that every element writes.
  bool is_written(int k) const {
    return k < static_cast<int>(NPU_PROGRAM_OUTPUTS) && is_there(k) &&
           !npu_program_reduces(spec_.attrs.ops, spec_.attrs.outs[k]);
  }

  // One element: what is read, what is written, what is reduced.
  std::string element() const {
    std::string made =
        "NPU_SHARED inline void element(\n    const npu_scalar* s";
    std::string first;
    std::string last;
    for (int k = 0; k < kOperands; ++k) {
      const int reg = k - static_cast<int>(NPU_PROGRAM_OUTPUTS);
      const auto dtype = unsigned{spec_.dtypes[k]};
      if (is_read(k)) {
        made += text(",\n    npu::jit::Stored<%u> x%d", dtype, k);
        first += text(
            "  const auto r%d = npu::jit::opened<%u>(x%d);\n", reg, dtype, k);
      } else if (reg >= 0 && is_there(k)) {
        first += text(
            "  const auto r%d = npu::jit::number<npu::jit::Unit<%u>>(s[%d]);\n",
            reg,
            dtype,
            made_.numbers.of_operand[k]);
      } else if (is_written(k)) {
        made += text(",\n    npu::jit::Stored<%u>& x%d", dtype, k);
        last += text(
            "  x%d = npu::jit::closed<%u>(r%u);\n",
            k,
            dtype,
            spec_.attrs.outs[k]);
      }
    }
    for (const State& each : states_) {
      made += text(",\n    npu::jit::%s& t%u", each.name.c_str(), each.reg);
    }
    return made + ") {\n  static_cast<void>(s);\n" + first + body_ + last +
           "}\n";
  }

  // The call of element() for operands named by `of(k)`.
  template <class Of>
  std::string call(const char* indent, Of of) const {
    std::string made = std::string(indent) + "element(a.scalars";
    for (int k = 0; k < kOperands; ++k) {
      made += is_read(k) || is_written(k) ? ", " + of(k) : "";
    }
    for (const State& each : states_) {
      made += text(", t%u", each.reg);
    }
    return made + ");\n";
  }

  const char* stored(int k) const {
    return stored_[k].empty()
               ? (stored_[k] =
                      text("npu::jit::Stored<%u>", unsigned{spec_.dtypes[k]}))
                     .c_str()
               : stored_[k].c_str();
  }
  // Element `i` of operand k, whose first one lies at the pointer p<k>.
  std::string place(int k, const char* i) const {
    switch (spec_.access[k]) {
      case Access::kSame:
        return text("*reinterpret_cast<%s*>(p%d)", stored(k), k);
      case Access::kFlat:
        return text("reinterpret_cast<%s*>(p%d)[%s]", stored(k), k, i);
      default:
        return text(
            "*reinterpret_cast<%s*>(p%d + %s)",
            stored(k),
            k,
            spec_.rows ? text("%s * step%d", i, k).c_str()
                       : text("at.of[%d]", k).c_str());
    }
  }

  std::string kernel() const {
    const char* const index = spec_.wide ? "long long" : "int";
    std::string made = text(
        "extern \"C\" __global__ void npu_program(const __grid_constant__ "
        "npu::jit::%s a) {\n  using Index = %s;\n",
        spec_.lists ? "ListArgs" : "Args",
        index);
    return made +
           (spec_.lists  ? lists()
            : spec_.rows ? rows()
                         : elements()) +
           "}\n";
  }

  std::string pointers(const char* indent, const char* offset) const {
    std::string made;
    for (int k = 0; k < kOperands; ++k) {
      if (is_there(k) && spec_.access[k] != Access::kNumber) {
        made += text("%schar* const p%d = a.data[%d]", indent, k, k);
        made += offset[0] != '\0' ? text(" + %s[%d];\n", offset, k) : ";\n";
      }
    }
    return made;
  }

  // Whole packs from `first` on by `step`, then what is left of n.
  std::string packs(
      const std::string& indent, const char* first, const char* step) const {
    std::string made;
    const std::string in = indent + "  ";
    if (spec_.each > 1) {
      made += indent + text("const Index whole = n / %d;\n", spec_.each) +
              indent +
              text("for (Index p = %s; p < whole; p += %s) {\n", first, step);
      for (int k = 0; k < kOperands; ++k) {
        if (!is_read(k) && !is_written(k)) {
          continue;
        }
        const std::string pack =
            text("npu::jit::Pack<%s, %d>", stored(k), spec_.each);
        if (is_written(k)) {
          made += in + pack + text(" x%d;\n", k);
        } else if (spec_.access[k] == Access::kFlat) {
          made += in + text("const auto x%d = reinterpret_cast<const ", k);
          made += pack + text("*>(p%d)[p];\n", k);
        } else {
          made += in + text("const auto x%d = ", k) + place(k, "0") + ";\n";
        }
      }
      made += in + "#pragma unroll\n" + in +
              text("for (int j = 0; j < %d; ++j) {\n", spec_.each);
      made += call((in + "  ").c_str(), [&](int k) {
        return is_written(k) || spec_.access[k] == Access::kFlat
                   ? text("x%d.at[j]", k)
                   : text("x%d", k);
      });
      made += in + "}\n";
      for (int k = 0; k < kOperands; ++k) {
        if (is_written(k)) {
          made += in + "reinterpret_cast<" +
                  text("npu::jit::Pack<%s, %d>", stored(k), spec_.each) +
                  text("*>(p%d)[p] = x%d;\n", k, k);
        }
      }
      made += indent + "}\n";
    }
    made += indent +
            text(
                "for (Index i = %s%s; i < n; i += %s) {\n",
                spec_.each > 1 ? text("whole * %d + ", spec_.each).c_str() : "",
                first,
                step);
    const bool walks = !spec_.rows && has(Access::kStrided);
    made +=
        walks ? in + "const auto at = npu::jit::offsets<Index>(a, i);\n" : "";
    made += call(in.c_str(), [&](int k) { return place(k, "i"); });
    return made + indent + "}\n";
  }
  bool has(Access access) const {
    for (const Access each : spec_.access) {
      if (each == access) {
        return true;
      }
    }
    return false;
  }

  std::string elements() const {
    return "  const Index n = static_cast<Index>(a.numel);\n"
           "  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;\n"
           "  const Index first = static_cast<Index>(blockIdx.x) * blockDim.x "
           "+ "
           "threadIdx.x;\n" +
           pointers("  ", "") + packs("  ", "first", "step");
  }

  std::string rows() const {
    std::string made =
        "  __shared__ double shared[32];\n"
        "  static_cast<void>(shared);\n"
        "  const Index rows = static_cast<Index>(a.numel);\n"
        "  const Index n = static_cast<Index>(a.row);\n"
        "  const Index first = threadIdx.x;\n"
        "  const Index step = blockDim.x;\n"
        "  for (Index row = static_cast<Index>(blockIdx.x) * blockDim.y + "
        "threadIdx.y; row < rows; row += static_cast<Index>(gridDim.x) * "
        "blockDim.y) {\n"
        "    const auto at = npu::jit::offsets<Index>(a, row);\n";
    made += pointers("    ", "at.of");
    for (int k = 0; k < kOperands; ++k) {
      if (spec_.access[k] == Access::kStrided &&
          (is_read(k) || is_written(k))) {
        made += text(
            "    const Index step%d = static_cast<Index>(a.inner[%d]);\n",
            k,
            k);
      }
    }
    for (const State& each : states_) {
      made += text("    npu::jit::%s t%u;\n", each.name.c_str(), each.reg);
    }
    made += packs("    ", "first", "step");
    for (const State& each : states_) {
      made += text("    npu::jit::join_threads(t%u, shared);\n", each.reg);
    }
    made += "    if (threadIdx.x == 0) {\n";
    for (int k = 0; k < static_cast<int>(NPU_PROGRAM_OUTPUTS); ++k) {
      if (!is_there(k) || is_written(k)) {
        continue;
      }
      const State& each = *state_of(spec_.attrs.outs[k]);
      const bool mean = each.code == NPU_REDUCE_MEAN;
      made += text(
          "      *reinterpret_cast<%s*>(p%d) = "
          "npu::jit::closed<%u>(t%u.value%s);\n",
          stored(k),
          k,
          unsigned{spec_.dtypes[k]},
          each.reg,
          mean
              ? text(" / static_cast<decltype(t%u.value)>(n)", each.reg).c_str()
              : "");
    }
    return made + "    }\n  }\n";
  }

  std::string lists() const {
    std::string made =
        "  const int e = npu::jit::entry_of(a, blockIdx.x);\n"
        "  const Index n = static_cast<Index>(a.numel[e]);\n"
        "  const Index step = static_cast<Index>(a.first[e + 1] - a.first[e]) "
        "* "
        "blockDim.x;\n"
        "  const Index first = static_cast<Index>(blockIdx.x - a.first[e]) * "
        "blockDim.x + threadIdx.x;\n";
    for (int k = 0; k < kOperands; ++k) {
      if (is_read(k) || is_written(k)) {
        made += text("  char* const p%d = a.data[%d][e];\n", k, k);
      }
      if (is_read(k)) {
        made += text(
            "  const Index each%d = (a.one[e] >> %d & 1) != 0 ? 0 : 1;\n",
            k,
            k - static_cast<int>(NPU_PROGRAM_OUTPUTS));
      }
    }
    made += "  for (Index i = first; i < n; i += step) {\n";
    made += call("    ", [&](int k) {
      return is_read(k) ? text(
                              "reinterpret_cast<%s*>(p%d)[i * each%d]",
                              stored(k),
                              k,
                              k)
                        : text("reinterpret_cast<%s*>(p%d)[i]", stored(k), k);
    });
    return made + "  }\n";
  }

  const Spec& spec_;
  Source made_;
  std::string names_;
  std::string body_;
  std::vector<State> states_;
  mutable std::array<std::string, kOperands> stored_;
};

// A number as the register of a dtype holds it.
bool settle(npu_dtype dtype, const void* element, npu_scalar& out) {
  out = {NPU_SCALAR_FLOAT, 0, 0, 0, 0};
  const auto take = [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof(value));
    return value;
  };
  switch (dtype) {
    case NPU_F16:
      out.re =
          static_cast<double>(decode_float<kF16Format>(take(std::uint16_t{})));
      return true;
    case NPU_BF16:
      out.re = static_cast<double>(
          as_float(std::uint32_t{take(std::uint16_t{})} << 16));
      return true;
    case NPU_F32:
      out.re = static_cast<double>(take(float{}));
      return true;
    case NPU_F64:
      out.re = take(double{});
      return true;
    case NPU_BOOL:
      out.i = take(std::uint8_t{}) != 0 ? 1 : 0;
      return true;
    case NPU_U8:
      out.i = take(std::uint8_t{});
      return true;
    case NPU_I8:
      out.i = std::int64_t{take(std::int8_t{})};
      return true;
    case NPU_I16:
      out.i = take(std::int16_t{});
      return true;
    case NPU_U16:
      out.i = take(std::uint16_t{});
      return true;
    case NPU_I32:
      out.i = take(std::int32_t{});
      return true;
    case NPU_U32:
      out.i = take(std::uint32_t{});
      return true;
    case NPU_I64:
      out.i = take(std::int64_t{});
      return true;
    default:
      return false;
  }
}

}  // namespace

Source make_source(const Spec& spec) {
  return Writer(spec).run();
}

bool fill_numbers(
    npu_scalar* out,
    const Numbers& numbers,
    const Spec& spec,
    const npu_scalar* scalars,
    const void* const* host_values) {
  for (int k = 0; k < kOperands; ++k) {
    if (numbers.of_operand[k] >= 0 &&
        !settle(spec.dtypes[k], host_values[k], out[numbers.of_operand[k]])) {
      return false;
    }
  }
  for (std::uint32_t i = 0; i < spec.attrs.n_ops; ++i) {
    const npu_program_op op = npu_program_at(spec.attrs.ops, i);
    const int at = numbers.of_op[i];
    if (at < 0) {
      continue;
    }
    if (op.slot == NPU_KIND_FILL) {
      alignas(16) char element[16] = {};
      if (!convert_scalar(op.dtype, scalars[op.scalar], element) ||
          !settle(op.dtype, element, out[at])) {
        return false;
      }
      continue;
    }
    std::fill_n(out + at, 4, npu_scalar{});
    if (op.scalar != NPU_PROGRAM_NONE) {
      std::copy_n(scalars + op.scalar, npu_program_scalars(op.slot), out + at);
    }
    if (op.slot == NPU_KIND_UNARY_WITH) {
      const npu_dtype in =
          op.in[0] < NPU_PROGRAM_INPUTS
              ? spec.dtypes[NPU_PROGRAM_OUTPUTS + op.in[0]]
              : npu_dtype{npu_program_at(
                              spec.attrs.ops, op.in[0] - NPU_PROGRAM_INPUTS)
                              .dtype};
      settle_scalars(
          op.code,
          op.compute_dtype != NPU_ABSENT ? npu_dtype{op.compute_dtype} : in,
          op.dtype,
          out + at);
    }
  }
  return true;
}

}  // namespace npu::cuda::jit
