// SPDX-License-Identifier: Apache-2.0
// Group mixed: elementwise calls whose operands have several dtypes, of every
// combination that caps claim. The answers are worked out here, in float64 or
// in integers: inputs are converted to compute_dtype, the result is rounded to
// it and then converted to the output's dtype.
#include <algorithm>
#include <cmath>

#include "kit.h"
#include "reference.h"

namespace npu::kit {
namespace {

constexpr npu_dtype kDtypes[] = {
    NPU_BOOL, NPU_U8, NPU_I32, NPU_I64, NPU_F16, NPU_BF16, NPU_F32, NPU_F64};

bool is_half(npu_dtype dtype) {
  return dtype == NPU_F16 || dtype == NPU_BF16;
}

// What PyTorch computes two dtypes in; kDtypes are in order of rank.
npu_dtype common(npu_dtype a, npu_dtype b) {
  if (a != b && is_half(a) && is_half(b)) {
    return NPU_F32;
  }
  return std::max(a, b);
}

struct Row {
  std::uint32_t slot;
  std::uint32_t code;
  double (*numbers)(double, double);
  std::int64_t (*integers)(std::int64_t, std::int64_t);  // null: float32
};
const Row kRows[] = {
    {NPU_KIND_BINARY,
     NPU_BINARY_ADD,
     [](double x, double y) { return x + y; },
     [](std::int64_t x, std::int64_t y) { return x + y; }},
    {NPU_KIND_BINARY,
     NPU_BINARY_SUB,
     [](double x, double y) { return x - y; },
     [](std::int64_t x, std::int64_t y) { return x - y; }},
    {NPU_KIND_BINARY,
     NPU_BINARY_MUL,
     [](double x, double y) { return x * y; },
     [](std::int64_t x, std::int64_t y) { return x * y; }},
    {NPU_KIND_BINARY,
     NPU_BINARY_DIV,
     [](double x, double y) { return x / y; },
     nullptr},
    {NPU_KIND_BINARY,
     NPU_BINARY_MAXIMUM,
     [](double x, double y) { return std::max(x, y); },
     [](std::int64_t x, std::int64_t y) { return std::max(x, y); }},
    {NPU_KIND_COMPARE,
     NPU_COMPARE_EQ,
     [](double x, double y) { return double(x == y); },
     [](std::int64_t x, std::int64_t y) { return std::int64_t{x == y}; }},
    {NPU_KIND_COMPARE,
     NPU_COMPARE_LT,
     [](double x, double y) { return double(x < y); },
     [](std::int64_t x, std::int64_t y) { return std::int64_t{x < y}; }},
};

// Numbers of a dtype that conversions change: 257 is no bfloat16, 2049 no
// float16, 16777217 no float32.
std::vector<Value> numbers_of(npu_dtype dtype, npu_dtype compute) {
  std::vector<double> numbers = {3, 7, 257, 1000, 2049, 16777217};
  if (dtype == NPU_BOOL) {
    numbers = {0, 1};
  } else if (dtype == NPU_U8) {
    numbers = {0, 3, 200, 255};
  } else if (is_floating(dtype)) {
    numbers = {0.5, -1.25, 3.14159265, 1000.5, -257, 1e-3, -2048, 16777216};
  } else {
    numbers.insert(numbers.end(), {-7, -1000});
  }
  const bool narrow = dtype == NPU_F16 || compute == NPU_F16;
  std::vector<Value> out;
  for (const double each : numbers) {
    if (!narrow || std::abs(each) < 60000) {
      out.push_back(rounded(dtype, number_value(each)));
    }
  }
  return out;
}

// One combination of dtypes, and where the caps stand to it.
struct Mix {
  const Row* row;
  npu_dtype x, y, out, compute;

  std::string text() const {
    return std::string(npu_kind_name(row->slot)) + "." +
           npu_code_name(row->slot, row->code) + " of " + npu_dtype_name(x) +
           " and " + npu_dtype_name(y) + " into " + npu_dtype_name(out) +
           ", computed in " + npu_dtype_name(compute);
  }
  bool fits_row(const npu_dtype_row& dtypes) const {
    const npu_dtype mine[] = {out, x, y};
    for (std::size_t i = 0; i < 3; ++i) {
      if (dtypes.dtypes[i] != NPU_ABSENT && dtypes.dtypes[i] != mine[i]) {
        return false;
      }
    }
    return true;
  }
  bool claimed_by(const npu_op_caps& caps) const {
    const npu_kind_info& kind = *npu_kind_of(row->slot);
    if (!has(taken_dtypes(kind, caps, 0), out) ||
        !has(taken_dtypes(kind, caps, 1), x) ||
        !has(taken_dtypes(kind, caps, 2), y)) {
      return false;
    }
    if (caps.dtype_rule == NPU_DTYPES_ROWS) {
      const npu_dtype_row* const end =
          caps.dtype_rows + (caps.dtype_rows ? caps.n_dtype_rows : 0);
      return std::any_of(caps.dtype_rows, end, [&](const npu_dtype_row& each) {
        return fits_row(each);
      });
    }
    return caps.dtype_rule != NPU_DTYPES_SAME || (x == y && x == out);
  }
  // A limit of NPU_CAP_ONE_INPUT_DTYPE: bools are no matter.
  bool beyond_one_dtype(const npu_op_caps& caps) const {
    return (caps.flags & NPU_CAP_ONE_INPUT_DTYPE) != 0 && x != y &&
           x != NPU_BOOL && y != NPU_BOOL;
  }
  Value answer(const Value& a, const Value& b) const {
    const Value p = rounded(compute, a);
    const Value q = rounded(compute, b);
    Value result;
    if (p.is_integer && q.is_integer && row->integers != nullptr) {
      result.is_integer = true;
      result.integer = row->integers(p.integer, q.integer);
      result.number = static_cast<double>(result.integer);
    } else {
      result = number_value(row->numbers(number_of(p), number_of(q)));
    }
    const bool compares = row->slot == NPU_KIND_COMPARE;
    return rounded(out, compares ? result : rounded(compute, result));
  }
};

bool near(npu_dtype dtype, const Value& got, const Value& expected) {
  if (!is_floating(dtype)) {
    return got.integer == expected.integer;
  }
  const double a = got.number.real();
  const double b = expected.number.real();
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return a == b || (std::isnan(a) && std::isnan(b));
  }
  return ulps(dtype, a, b) <= 2;
}

std::string text_of(npu_dtype dtype, const Value& value) {
  return is_floating(dtype) ? std::to_string(value.number.real())
                            : std::to_string(value.integer);
}

// Runs every number of x with every number of y. What run answered.
npu_status run_and_judge(const Mix& mix, const npu_op_caps& caps) {
  const std::vector<Value> xs = numbers_of(mix.x, mix.compute);
  const std::vector<Value> ys = numbers_of(mix.y, mix.compute);
  // Rows of y apart, where strides may be: they count elements of y's dtype.
  const bool strided = (caps.flags & NPU_CAP_STRIDED_IN) != 0;
  const std::int64_t step = strided ? 2 : 1;
  const auto n = static_cast<std::int64_t>(xs.size() * ys.size());
  const std::uint32_t x_bytes = npu_dtype_bytes(mix.x);
  const std::uint32_t y_bytes = npu_dtype_bytes(mix.y);
  Bytes left(static_cast<std::size_t>(n) * x_bytes);
  Bytes right(static_cast<std::size_t>(n * step) * y_bytes);
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    store(mix.x, xs[i / ys.size()], left.data() + i * x_bytes);
    store(
        mix.y,
        ys[i % ys.size()],
        right.data() + i * static_cast<std::size_t>(step) * y_bytes);
  }
  Buffer x(left);
  Buffer y(right);
  Buffer out(static_cast<std::uint64_t>(n) * npu_dtype_bytes(mix.out));
  Frame frame(mix.row->slot, mix.row->code);
  frame.out(out, flat(mix.out, n)).in(x, flat(mix.x, n));
  frame.in(y, {.dtype = mix.y, .sizes = {n}, .strides = {step}});
  frame.compute(mix.compute);
  if (mix.row->slot == NPU_KIND_BINARY) {
    frame.attrs(npu_binary_attrs{});
  }
  clear_error();
  const npu_status status = frame.run();
  if (status != NPU_OK) {
    return status;
  }
  const Bytes bytes = out.get();
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    const Value& a = xs[i / ys.size()];
    const Value& b = ys[i % ys.size()];
    const Value want = mix.answer(a, b);
    const Value got =
        load(mix.out, bytes.data() + i * npu_dtype_bytes(mix.out));
    if (!near(mix.out, got, want)) {
      ADD_FAILURE() << mix.text() << ": " << text_of(mix.x, a) << " and "
                    << text_of(mix.y, b) << " give " << text_of(mix.out, got)
                    << " instead of " << text_of(mix.out, want);
      break;
    }
  }
  return NPU_OK;
}

// use(mix, caps) for every code and pair of input dtypes that the caps' masks
// have, outputs as PyTorch makes them.
template <class Use>
void each_pair(Use use) {
  for (const Row& row : kRows) {
    npu_op_caps caps;
    if (!declares(row.slot, row.code, &caps)) {
      continue;
    }
    for (const npu_dtype x : kDtypes) {
      for (const npu_dtype y : kDtypes) {
        npu_dtype compute = common(x, y);
        if (!is_floating(compute) && row.integers == nullptr) {
          compute = NPU_F32;
        }
        const bool compares = row.slot == NPU_KIND_COMPARE;
        const Mix mix{
            &row, x, y, compares ? npu_dtype{NPU_BOOL} : compute, compute};
        if (x != y && (compares || compute != NPU_BOOL) &&
            mix.claimed_by(caps)) {
          use(mix, caps);
        }
      }
    }
  }
}

TEST(mixed, InputsOfTwoDtypes) {
  int tested = 0;
  each_pair([&](const Mix& mix, const npu_op_caps& caps) {
    if (mix.beyond_one_dtype(caps)) {
      return;  // never sent
    }
    ++tested;
    const npu_status status = run_and_judge(mix, caps);
    EXPECT_EQ(status, NPU_OK)
        << mix.text() << ": caps claim it, run answers " << explain(status);
  });
  if (tested == 0) {
    NPU_NOT_DECLARED("elementwise kernels of two input dtypes");
  }
}

// With the flag such calls do not come from this host side; one that does not
// know the flag (contract 1.0) sends them. Refused or right, nothing else.
TEST(mixed, OneInputDtypeIsALimit) {
  int tested = 0;
  each_pair([&](const Mix& mix, const npu_op_caps& caps) {
    if (!mix.beyond_one_dtype(caps)) {
      return;
    }
    ++tested;
    const npu_status status = run_and_judge(mix, caps);
    if (status != NPU_OK) {
      EXPECT_TRUE(status == NPU_E_UNSUPPORTED || status == NPU_E_INVALID)
          << mix.text() << ": " << explain(status);
      EXPECT_NE(last_error(), "") << mix.text() << ": refused without a text";
    }
  });
  if (tested == 0) {
    NPU_NOT_DECLARED("NPU_CAP_ONE_INPUT_DTYPE, with several dtypes");
  }
}

// `out=` of a wider dtype: rounded, or wrapped, to compute_dtype first.
TEST(mixed, OutputsOfAnotherDtype) {
  int tested = 0;
  for (const Row& row : kRows) {
    npu_op_caps caps;
    if (row.slot == NPU_KIND_COMPARE || !declares(row.slot, row.code, &caps)) {
      continue;
    }
    for (const npu_dtype in : kDtypes) {
      for (const npu_dtype out : kDtypes) {
        const bool computes = is_floating(in) || row.integers != nullptr;
        const bool may =
            in != out && in != NPU_BOOL && out > in && !is_half(in);
        const Mix mix{&row, in, in, out, in};
        if (!computes || !may || !mix.claimed_by(caps)) {
          continue;
        }
        ++tested;
        const npu_status status = run_and_judge(mix, caps);
        EXPECT_EQ(status, NPU_OK)
            << mix.text() << ": caps claim it, run answers " << explain(status);
      }
    }
  }
  if (tested == 0) {
    NPU_NOT_DECLARED("elementwise kernels with an output of another dtype");
  }
}

// A Python number beside halves is float32, though compute_dtype is the half,
// and is not rounded to it.
TEST(mixed, NumbersBesideHalvesKeepTheirDigits) {
  int tested = 0;
  for (const std::uint32_t code : {NPU_BINARY_MUL, NPU_BINARY_DIV}) {
    npu_op_caps caps;
    if (!declares(NPU_KIND_BINARY, code, &caps) ||
        (caps.flags & NPU_CAP_HOST_SCALAR) == 0 ||
        (caps.dtype_rule != NPU_DTYPES_CAST &&
         caps.dtype_rule != NPU_DTYPES_FREE) ||
        !has(taken_dtypes(*npu_kind_of(NPU_KIND_BINARY), caps, 2), NPU_F32)) {
      continue;
    }
    for (const npu_dtype half : {npu_dtype{NPU_F16}, npu_dtype{NPU_BF16}}) {
      const Row& row = kRows[code == NPU_BINARY_MUL ? 2 : 3];
      const Mix mix{&row, half, half, half, half};
      for (const float number : {65536.0F, 1e-3F, 3.14159F, 1e-6F}) {
        if (!mix.claimed_by(caps)) {
          continue;
        }
        ++tested;
        const double x[] = {1e-3, 0.75, -2};
        Bytes raw(6);
        for (std::size_t i = 0; i < 3; ++i) {
          store(half, number_value(x[i]), raw.data() + 2 * i);
        }
        Buffer in(raw);
        Buffer out(6);
        Frame frame(NPU_KIND_BINARY, code);
        frame.out(out, flat(half, 3)).in(in, flat(half, 3));
        frame.number(NPU_F32, &number).compute(half);
        frame.attrs(npu_binary_attrs{});
        NPU_EXPECT_OK(frame.run());
        const Bytes got = out.get();
        for (std::size_t i = 0; i < 3; ++i) {
          const double a = load(half, raw.data() + 2 * i).number.real();
          const Value want =
              rounded(half, number_value(row.numbers(a, double{number})));
          const Value mine = load(half, got.data() + 2 * i);
          EXPECT_TRUE(near(half, mine, want))
              << npu_code_name(NPU_KIND_BINARY, code) << " of "
              << npu_dtype_name(half) << " " << a << " and the number "
              << number << " gives " << mine.number.real() << " instead of "
              << want.number.real();
        }
      }
    }
  }
  if (tested == 0) {
    NPU_NOT_DECLARED("halves beside numbers in host memory");
  }
}

}  // namespace
}  // namespace npu::kit
