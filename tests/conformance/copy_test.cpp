// SPDX-License-Identifier: Apache-2.0
// Groups copy and fill: every pair of dtypes and many layouts against the
// kit's own conversions.
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "kit.h"
#include "reference.h"

namespace npu::kit {
namespace {

std::string name_of(npu_dtype dtype) {
  return npu_dtype_name(dtype);
}

// Numbers that every conversion to `to` gives a defined result for.
Bytes content(npu_dtype from, npu_dtype to, std::int64_t n) {
  const std::uint64_t bytes = npu_dtype_bytes(from);
  Bytes out(static_cast<std::uint64_t>(n) * bytes);
  std::uint32_t state = 17u * from + 31u * to + 1u;
  const auto next = [&state] {
    state = state * 1664525u + 1013904223u;
    return state >> 8;
  };
  const bool to_int = !is_floating(to) && !is_complex(to);
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint8_t* at = out.data() + static_cast<std::uint64_t>(i) * bytes;
    Value value;
    if (from == NPU_BOOL) {
      *at = to == NPU_F8_E8M0FNU ? 1 : next() & 1;
      continue;
    }
    // Powers of two only.
    if (from == NPU_F8_E8M0FNU || to == NPU_F8_E8M0FNU) {
      value.number = std::ldexp(1.0, static_cast<int>(next() % 7));
    } else if (is_floating(from) || is_complex(from)) {
      const double scale = next() % 3 == 0 ? 0.01 : 1;
      value.number = {
          (static_cast<double>(next() % 20001) / 100 - (to_int ? 0 : 100)) *
              0.6 * scale,
          static_cast<double>(next() % 2001) / 100 - 10};
    } else {
      // Any bits for integers, few for targets that could overflow.
      const bool small = to >= NPU_F8_E4M3FN || to == NPU_F16 || to == NPU_C32;
      for (std::uint64_t b = 0; b < bytes; ++b) {
        at[b] = static_cast<std::uint8_t>(small && b > 0 ? 0 : next());
      }
      if (small) {
        at[0] &= 0x3f;
      }
      continue;
    }
    store(from, value, at);
  }
  return out;
}

// Elements of `out` after the copy, element by element.
Bytes expected_copy(
    const Bytes& before, const View& out, const Bytes& source, const View& in) {
  Bytes result = before;
  const std::uint64_t out_bytes = npu_dtype_bytes(out.dtype);
  const std::uint64_t in_bytes = npu_dtype_bytes(in.dtype);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const std::uint8_t* from =
        source.data() +
        static_cast<std::uint64_t>(element_offset(in, i)) * in_bytes;
    std::uint8_t* to =
        result.data() +
        static_cast<std::uint64_t>(element_offset(out, i)) * out_bytes;
    if (out.dtype == in.dtype && in.flags == 0) {
      std::memcpy(to, from, out_bytes);
      continue;
    }
    Value value = load(in.dtype, from);
    if ((in.flags & NPU_TENSOR_CONJ) != 0) {
      value.number = std::conj(value.number);
    }
    if ((in.flags & NPU_TENSOR_NEG) != 0) {
      value.number = -value.number;
    }
    store(out.dtype, value, to);
  }
  return result;
}

bool copies(npu_dtype out, npu_dtype in) {
  npu_op_caps caps;
  const npu_kind_info& kind = *npu_kind_of(NPU_KIND_COPY);
  return declares(NPU_KIND_COPY, 0, &caps) &&
         has(taken_dtypes(kind, caps, 0), out) &&
         has(taken_dtypes(kind, caps, 1), in) &&
         (out == in || caps.dtype_rule != NPU_DTYPES_SAME);
}

// True when the host side may hand the view to a kernel with such caps.
bool takes(const npu_op_caps& caps, const View& view) {
  const std::uint64_t at =
      static_cast<std::uint64_t>(view.offset) * npu_dtype_bytes(view.dtype);
  return (caps.max_ndim == 0 || view.sizes.size() <= caps.max_ndim) &&
         (caps.min_alignment == 0 || at % caps.min_alignment == 0);
}

// Runs one copy and compares every byte of the target, gaps included.
void check_copy(const View& out, const View& in) {
  npu_op_caps caps;
  declares(NPU_KIND_COPY, 0, &caps);
  if (!takes(caps, out) || !takes(caps, in)) {
    return;
  }
  const Bytes source = content(in.dtype, out.dtype, in.extent());
  Buffer from(source);
  Buffer to(
      static_cast<std::uint64_t>(out.extent()) * npu_dtype_bytes(out.dtype));
  const Bytes before = to.get();
  Frame frame(NPU_KIND_COPY);
  frame.out(to, out).in(from, in);
  const npu_status status = frame.run();
  ASSERT_EQ(status, NPU_OK) << name_of(in.dtype) << " to " << name_of(out.dtype)
                            << ": " << explain(status);
  const Bytes expected = expected_copy(before, out, source, in);
  const Bytes got = to.get();
  if (got != expected) {
    std::size_t at = 0;
    while (got[at] == expected[at]) {
      ++at;
    }
    ADD_FAILURE() << name_of(in.dtype) << " to " << name_of(out.dtype)
                  << ": byte " << at << " of " << got.size() << " is "
                  << int(got[at]) << ", expected " << int(expected[at]);
  }
}

bool pair_is_defined(npu_dtype out, npu_dtype in) {
  // A packed pair of 4-bit numbers is copied, not converted.
  return out == in || (out != NPU_F4_E2M1FN_X2 && in != NPU_F4_E2M1FN_X2);
}

TEST(copy, EveryPairOfDtypes) {
  NPU_NEEDS_KIND(NPU_KIND_COPY, 0);
  int pairs = 0;
  for (npu_dtype in = NPU_BOOL; in < NPU_DTYPE_COUNT; ++in) {
    for (npu_dtype out = NPU_BOOL; out < NPU_DTYPE_COUNT; ++out) {
      if (copies(out, in) && pair_is_defined(out, in)) {
        check_copy(flat(out, 131), flat(in, 131));
        ++pairs;
      }
    }
  }
  EXPECT_GT(pairs, 0);
  RecordProperty("pairs", pairs);
}

struct Layout {
  const char* name;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> out;
  std::vector<std::int64_t> in;
  std::int64_t offset;
};

// Output strides descend, as the host side promises.
const Layout kLayouts[] = {
    {"zero dimensions", {}, {}, {}, 3},
    {"one element", {1}, {1}, {1}, 0},
    {"odd offset", {77}, {1}, {1}, 5},
    {"every other in", {100}, {1}, {2}, 1},
    {"every third out", {100}, {3}, {1}, 2},
    {"transposed", {37, 53}, {53, 1}, {1, 37}, 0},
    {"transposed, square", {64, 64}, {64, 1}, {1, 64}, 7},
    {"expanded rows", {20, 30}, {30, 1}, {0, 1}, 0},
    {"expanded columns", {20, 30}, {30, 1}, {1, 0}, 0},
    {"all one number", {50, 20}, {20, 1}, {0, 0}, 4},
    {"rows apart", {16, 24}, {40, 1}, {31, 1}, 3},
    {"channels last", {2, 8, 9, 3}, {216, 27, 3, 1}, {216, 1, 24, 8}, 0},
    {"five dimensions",
     {2, 3, 4, 5, 6},
     {1000, 330, 80, 12, 2},
     {3, 120, 1, 24, 4},
     1},
    {"thin and tall", {5000, 3}, {3, 1}, {1, 5000}, 0},
};

TEST(copy, EveryLayout) {
  NPU_NEEDS_KIND(NPU_KIND_COPY, 0);
  npu_op_caps caps;
  declares(NPU_KIND_COPY, 0, &caps);
  if ((caps.flags & NPU_CAP_STRIDED_IN) == 0 ||
      (caps.flags & NPU_CAP_STRIDED_OUT) == 0) {
    NPU_NOT_DECLARED("strided copy");
  }
  constexpr npu_dtype kPairs[][2] = {
      {NPU_U8, NPU_U8},
      {NPU_I16, NPU_I16},
      {NPU_F32, NPU_F32},
      {NPU_I64, NPU_I64},
      {NPU_C128, NPU_C128},
      {NPU_BF16, NPU_F32},
      {NPU_F32, NPU_F16},
      {NPU_F32, NPU_I64},
      {NPU_BOOL, NPU_F64},
      {NPU_C64, NPU_F32},
      {NPU_F64, NPU_BF16},
      {NPU_I8, NPU_I32}};
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    for (const auto& pair : kPairs) {
      if (copies(pair[0], pair[1])) {
        check_copy(
            {pair[0], layout.sizes, layout.out, layout.offset, 0},
            {pair[1], layout.sizes, layout.in, layout.offset, 0});
      }
    }
  }
}

TEST(copy, Large) {
  NPU_NEEDS_KIND(NPU_KIND_COPY, 0);
  for (const int threads : {1, 4}) {
    set_threads(threads);
    check_copy(flat(NPU_F32, 300001), flat(NPU_F32, 300001));
    if (copies(NPU_BF16, NPU_F32)) {
      check_copy(flat(NPU_BF16, 300001), flat(NPU_F32, 300001));
    }
    npu_op_caps caps;
    declares(NPU_KIND_COPY, 0, &caps);
    if ((caps.flags & NPU_CAP_STRIDED_IN) != 0) {
      check_copy(
          {NPU_F32, {401, 603}, {603, 1}, 0, 0},
          {NPU_F32, {401, 603}, {1, 401}, 0, 0});
    }
  }
}

TEST(copy, ConjugateAndNegative) {
  NPU_NEEDS_KIND(NPU_KIND_COPY, 0);
  const std::uint32_t known = driver().tensor_flags_known;
  if ((known & (NPU_TENSOR_CONJ | NPU_TENSOR_NEG)) == 0) {
    NPU_NOT_DECLARED("conj and neg flags");
  }
  for (const npu_dtype dtype : {NPU_C64, NPU_C128}) {
    for (const std::uint32_t flags :
         {NPU_TENSOR_CONJ, NPU_TENSOR_NEG, NPU_TENSOR_CONJ | NPU_TENSOR_NEG}) {
      if ((known & flags) == flags && copies(dtype, dtype)) {
        check_copy(flat(dtype, 200), {dtype, {200}, {1}, 0, flags});
      }
    }
  }
  if ((known & NPU_TENSOR_NEG) != 0 && copies(NPU_F32, NPU_F32)) {
    check_copy(flat(NPU_F32, 200), {NPU_F32, {200}, {1}, 0, NPU_TENSOR_NEG});
  }
}

TEST(copy, SpecialNumbersSurvive) {
  NPU_NEEDS_KIND(NPU_KIND_COPY, 0);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  const double numbers[] = {
      0.0,
      -0.0,
      kInf,
      -kInf,
      kNan,
      65504,
      65519,
      65520,
      -65536,
      1e-8,
      5.96e-8,
      6.1e-5,
      3.38e38,
      3.4e38,
      1e-40,
      1.0009765625,
      1.00048828125};
  constexpr npu_dtype kFloats[] = {NPU_F16, NPU_BF16, NPU_F32, NPU_F64};
  for (const npu_dtype in : kFloats) {
    for (const npu_dtype out : kFloats) {
      if (!copies(out, in)) {
        continue;
      }
      const std::uint64_t bytes = npu_dtype_bytes(in);
      const auto n = static_cast<std::int64_t>(std::size(numbers));
      Bytes source(std::size(numbers) * bytes);
      for (std::size_t i = 0; i < std::size(numbers); ++i) {
        store(in, {.number = numbers[i]}, source.data() + i * bytes);
      }
      Buffer from(source);
      Buffer to(std::size(numbers) * npu_dtype_bytes(out));
      Frame frame(NPU_KIND_COPY);
      frame.out(to, flat(out, n)).in(from, flat(in, n));
      NPU_ASSERT_OK(frame.run());
      const Bytes got = to.get();
      for (std::size_t i = 0; i < std::size(numbers); ++i) {
        Bytes expected(npu_dtype_bytes(out));
        store(out, load(in, source.data() + i * bytes), expected.data());
        const double a = load(out, expected.data()).number.real();
        const double b =
            load(out, got.data() + i * npu_dtype_bytes(out)).number.real();
        EXPECT_TRUE(
            (std::isnan(a) && std::isnan(b)) ||
            (a == b && std::signbit(a) == std::signbit(b)))
            << name_of(in) << " to " << name_of(out) << ": " << numbers[i]
            << " became " << b << ", expected " << a;
      }
    }
  }
}

TEST(copy, ManyThreadsAtOnce) {
  NPU_NEEDS_KIND(NPU_KIND_COPY, 0);
  set_threads(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int round = 0; round < 10; ++round) {
        check_copy(
            flat(NPU_F32, 1000 * t + 100 + round),
            flat(NPU_F32, 1000 * t + 100 + round));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// ---- fill ----

npu_scalar scalar(npu_dtype dtype, double value) {
  npu_scalar out{};
  const bool integer = !is_floating(dtype) && !is_complex(dtype);
  out.kind = is_complex(dtype) ? NPU_SCALAR_COMPLEX
             : integer         ? NPU_SCALAR_INT
                               : NPU_SCALAR_FLOAT;
  out.i = static_cast<std::int64_t>(value);
  out.re = value;
  out.im = is_complex(dtype) ? -2 : 0;
  return out;
}

void check_fill(const View& view, const npu_scalar& value) {
  npu_op_caps caps;
  declares(NPU_KIND_FILL, 0, &caps);
  if (!has(caps.dtypes[0], view.dtype) || !takes(caps, view)) {
    return;  // not declared is not tested
  }
  const std::uint64_t bytes = npu_dtype_bytes(view.dtype);
  Buffer to(static_cast<std::uint64_t>(view.extent()) * bytes);
  Bytes expected = to.get();
  Value element;
  element.is_integer =
      value.kind == NPU_SCALAR_INT || value.kind == NPU_SCALAR_BOOL;
  element.integer = value.i;
  element.number = {value.re, value.im};
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    store(
        view.dtype,
        element,
        expected.data() +
            static_cast<std::uint64_t>(element_offset(view, i)) * bytes);
  }
  Frame frame(NPU_KIND_FILL);
  npu_fill_attrs attrs{};
  attrs.value = value;
  frame.out(to, view).attrs(attrs);
  const npu_status status = frame.run();
  ASSERT_EQ(status, NPU_OK) << name_of(view.dtype) << ": " << explain(status);
  EXPECT_EQ(to.get(), expected) << name_of(view.dtype);
}

TEST(fill, EveryDtype) {
  NPU_NEEDS_KIND(NPU_KIND_FILL, 0);
  for (npu_dtype dtype = NPU_BOOL; dtype < NPU_F4_E2M1FN_X2; ++dtype) {
    for (const double value : {0.0, 1.0, 4.0}) {
      if (dtype != NPU_F8_E8M0FNU || value > 0) {
        check_fill(flat(dtype, 133), scalar(dtype, value));
      }
    }
  }
  check_fill(flat(NPU_F32, 100), scalar(NPU_F32, 0.1));
  check_fill(flat(NPU_F32, 100), scalar(NPU_I64, -7));
  check_fill(flat(NPU_I64, 100), scalar(NPU_I64, -3));
}

TEST(fill, IntegersAreExact) {
  NPU_NEEDS_KIND(NPU_KIND_FILL, 0);
  npu_scalar value{};
  value.kind = NPU_SCALAR_INT;
  value.i = INT64_MAX - 2;
  value.re = static_cast<double>(value.i);
  check_fill(flat(NPU_I64, 70), value);
}

TEST(fill, EveryLayout) {
  NPU_NEEDS_KIND(NPU_KIND_FILL, 0);
  npu_op_caps caps;
  declares(NPU_KIND_FILL, 0, &caps);
  if ((caps.flags & NPU_CAP_STRIDED_OUT) == 0) {
    NPU_NOT_DECLARED("strided fill");
  }
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    for (const npu_dtype dtype : {NPU_U8, NPU_BF16, NPU_F32, NPU_C128}) {
      check_fill(
          {dtype, layout.sizes, layout.out, layout.offset, 0},
          scalar(dtype, 2));
    }
  }
  set_threads(4);
  check_fill(flat(NPU_F32, 300001), scalar(NPU_F32, -1.5));
}

}  // namespace
}  // namespace npu::kit
