// SPDX-License-Identifier: Apache-2.0
// Kind reduce. Floating point is accumulated in double.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/row_sum.h"
#include "kernels/rows.h"

namespace npu::host {
namespace {

template <class T>
struct Wider {
  using type = double;
};
template <>
struct Wider<std::int64_t> {
  using type = std::int64_t;
};
template <>
struct Wider<Complex> {
  using type = Complex;
};
template <class T>
using Wide = typename Wider<T>::type;

template <class T>
constexpr bool kIsComplexRow = std::is_same_v<T, Complex>;

double squared(double x) {
  return x * x;
}
double squared(const Complex& x) {
  return std::norm(x);
}

// Sum of f(x) over a row.
template <class T, class Function>
auto sum_of(const T* row, std::int64_t n, Function f) {
  RowSum<decltype(f(row[0]))> sum;
  sum.add(row, 0, n, n, f);
  return sum.total();
}

template <class T>
Wide<T> sum(const T* row, std::int64_t n) {
  return sum_of(row, n, [](T x) { return static_cast<Wide<T>>(x); });
}

template <class T>
Wide<T> product(const T* row, std::int64_t n) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    std::uint64_t result = 1;  // wraps
    for (std::int64_t i = 0; i < n; ++i) {
      result *= static_cast<std::uint64_t>(row[i]);
    }
    return static_cast<std::int64_t>(result);
  } else {
    Wide<T> result(1);
    for (std::int64_t i = 0; i < n; ++i) {
      result *= static_cast<Wide<T>>(row[i]);
    }
    return result;
  }
}

// The row's extreme; NaN wins.
template <bool Greatest, class T>
T extreme(const T* row, std::int64_t n) {
  T best = row[0];
  for (std::int64_t i = 1; i < n && !is_not_number(best); ++i) {
    best = extreme_of<Greatest>(best, row[i]);
  }
  return best;
}

template <class T>
double magnitude_norm(const T* row, std::int64_t n, double p) {
  const auto size = [](T x) { return static_cast<double>(std::abs(x)); };
  if (p == 0) {
    return sum_of(row, n, [](T x) { return x != T(0) ? 1.0 : 0.0; });
  }
  if (p == 1) {
    return sum_of(row, n, size);
  }
  if (p == 2) {
    return std::sqrt(
        sum_of(row, n, [](T x) { return squared(static_cast<Wide<T>>(x)); }));
  }
  if (std::isinf(p)) {
    double best = size(row[0]);
    for (std::int64_t i = 1; i < n; ++i) {
      const double x = size(row[i]);
      const bool better = p > 0 ? x > best : x < best;
      best = better || std::isnan(x) ? x : best;
    }
    return best;
  }
  return std::pow(
      sum_of(row, n, [&](T x) { return std::pow(size(x), p); }), 1 / p);
}

// Welford's way: one pass, and no large numbers that cancel.
struct Moments {
  double mean = 0;
  double squares = 0;

  template <class Part>
  Moments(std::int64_t n, Part part) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = part(i);
      const double delta = x - mean;
      mean += delta / static_cast<double>(i + 1);
      squares += delta * (x - mean);
    }
  }
};

template <class T>
std::pair<double, Wide<T>> variance_and_mean(
    const T* row, std::int64_t n, double correction) {
  const double divisor = std::max(0.0, static_cast<double>(n) - correction);
  if constexpr (kIsComplexRow<T>) {
    const Moments re(n, [&](std::int64_t i) { return row[i].real(); });
    const Moments im(n, [&](std::int64_t i) { return row[i].imag(); });
    return {
        re.squares / divisor + im.squares / divisor, Complex(re.mean, im.mean)};
  } else {
    const Moments all(n, [&](std::int64_t i) -> double { return row[i]; });
    return {all.squares / divisor, all.mean};
  }
}

template <class T>
Wide<T> log_sum_exp(const T* row, std::int64_t n) {
  if constexpr (kIsComplexRow<T>) {
    double most = -std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < n; ++i) {
      most = std::max(most, row[i].real());
    }
    most = std::isinf(most) ? 0 : most;
    return std::log(sum_of(row, n, [&](T x) { return std::exp(x - most); })) +
           most;
  } else {
    const double most = static_cast<double>(extreme<true>(row, n));
    const double shift = std::isinf(most) ? 0 : most;
    return std::log(sum_of(
               row,
               n,
               [&](T x) { return std::exp(static_cast<double>(x) - shift); })) +
           shift;
  }
}

// ---- one code over all rows ----

struct ReduceCall {
  npu_reduce_args args;
  std::uint32_t code;
};

// first(row, n) gives the element of out, second(row, n, first) that of out2.
template <class T, class R, class First, class Second>
npu_status reduce_rows(
    const npu_reduce_args& args, First first, Second second) {
  const RowsIn<T> in(*args.in, args.attrs.dims);
  if (npu_status status = in.status()) {
    return status;
  }
  Stored<R> out(args.out, Stored<R>::kAsIs);
  // The mean of complex numbers is complex, their variance is not.
  using R2 = decltype(second(in.row(0), 1));
  Stored<R2> out2(args.out2, Stored<R2>::kAsIs);
  const std::int64_t n = in.length();
  const npu_status status = parallel(
      in.rows(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          out[i] = static_cast<R>(first(in.row(i), n));
          if (out2) {
            out2[i] = second(in.row(i), n);
          }
        }
      });
  if (status) {
    return status;
  }
  const npu_status stored = out.store();
  return stored || !out2 ? stored : out2.store();
}

template <class T, class R, class First>
npu_status reduce_rows(const npu_reduce_args& args, First first) {
  return reduce_rows<T, R>(
      args, first, [](const T*, std::int64_t) { return R(); });
}

template <class T>
using RealOf = std::conditional_t<kIsComplexRow<T>, double, T>;

template <class T>
npu_status reduce_variance(const ReduceCall& call) {
  const bool root =
      call.code == NPU_REDUCE_STD || call.code == NPU_REDUCE_STD_MEAN;
  const double correction = call.args.attrs.correction;
  return reduce_rows<T, RealOf<T>>(
      call.args,
      [&](const T* row, std::int64_t n) {
        const double v = variance_and_mean(row, n, correction).first;
        return root ? std::sqrt(v) : v;
      },
      [&](const T* row, std::int64_t n) {
        return static_cast<T>(variance_and_mean(row, n, correction).second);
      });
}

// Codes that need a field: floating point or complex.
template <class T>
npu_status reduce_field(const ReduceCall& call) {
  using Row = const T*;
  const auto number = [](T x) { return x == x; };
  const auto value = [&](T x) {
    return number(x) ? static_cast<Wide<T>>(x) : Wide<T>(0);
  };
  switch (call.code) {
    case NPU_REDUCE_MEAN:
      return reduce_rows<T, T>(call.args, [](Row row, std::int64_t n) {
        return sum(row, n) / static_cast<double>(n);
      });
    case NPU_REDUCE_NORM:
      return reduce_rows<T, RealOf<T>>(call.args, [&](Row row, std::int64_t n) {
        return magnitude_norm(row, n, call.args.attrs.p);
      });
    case NPU_REDUCE_NANMEAN:
      return reduce_rows<T, T>(call.args, [&](Row row, std::int64_t n) {
        const double count = static_cast<double>(
            sum_of(row, n, [&](T x) { return number(x) ? 1.0 : 0.0; }));
        return sum_of(row, n, value) / count;
      });
    case NPU_REDUCE_LOGSUMEXP:
      return reduce_rows<T, T>(call.args, log_sum_exp<T>);
    case NPU_REDUCE_SUM_OF_SQUARES:
      return reduce_rows<T, RealOf<T>>(call.args, [](Row row, std::int64_t n) {
        return sum_of(
            row, n, [](T x) { return squared(static_cast<Wide<T>>(x)); });
      });
    default:
      return reduce_variance<T>(call);
  }
}

template <class T>
npu_status reduce_ordered(const ReduceCall& call) {
  switch (call.code) {
    case NPU_REDUCE_MIN:
      return reduce_rows<T, T>(call.args, extreme<false, T>);
    case NPU_REDUCE_MAX:
      return reduce_rows<T, T>(call.args, extreme<true, T>);
    default:
      return reduce_rows<T, T>(call.args, extreme<false, T>, extreme<true, T>);
  }
}

template <class T>
npu_status reduce_any(const ReduceCall& call) {
  using Row = const T*;
  const auto is_set = [](T x) { return x != T(0); };
  switch (call.code) {
    case NPU_REDUCE_SUM:
      return reduce_rows<T, T>(call.args, sum<T>);
    case NPU_REDUCE_NANSUM:
      return reduce_rows<T, T>(call.args, [](Row row, std::int64_t n) {
        return sum_of(row, n, [](T x) {
          return x == x ? static_cast<Wide<T>>(x) : Wide<T>(0);
        });
      });
    case NPU_REDUCE_PROD:
      return reduce_rows<T, T>(call.args, product<T>);
    case NPU_REDUCE_ANY:
      return reduce_rows<T, bool>(call.args, [&](Row row, std::int64_t n) {
        return std::any_of(row, row + n, is_set);
      });
    case NPU_REDUCE_ALL:
      return reduce_rows<T, bool>(call.args, [&](Row row, std::int64_t n) {
        return std::all_of(row, row + n, is_set);
      });
    default:
      return reduce_rows<T, std::int64_t>(
          call.args, [&](Row row, std::int64_t n) {
            return static_cast<std::int64_t>(
                std::count_if(row, row + n, is_set));
          });
  }
}

// ---- entry points ----

enum Group { kOrdered, kField, kAny };

Group group_of(std::uint32_t code) {
  switch (code) {
    case NPU_REDUCE_MIN:
    case NPU_REDUCE_MAX:
    case NPU_REDUCE_AMINMAX:
      return kOrdered;
    case NPU_REDUCE_SUM:
    case NPU_REDUCE_NANSUM:
    case NPU_REDUCE_PROD:
    case NPU_REDUCE_ANY:
    case NPU_REDUCE_ALL:
    case NPU_REDUCE_COUNT_NONZERO:
      return kAny;
    default:
      return kField;
  }
}

// Sums are taken in the output's dtype: of bool in int64, of float16 with
// dtype=float32 in float32.
bool computes_in_output(std::uint32_t code) {
  return code == NPU_REDUCE_SUM || code == NPU_REDUCE_PROD ||
         code == NPU_REDUCE_NANSUM || code == NPU_REDUCE_MEAN ||
         code == NPU_REDUCE_NANMEAN || code == NPU_REDUCE_LOGSUMEXP;
}

npu_status run(const npu_call& frame) {
  const ReduceCall call{npu_reduce_unpack(&frame), frame.code};
  if (!call.args.out || !call.args.in) {
    return fail(NPU_E_INVALID, "npu: host driver: reduce lacks an operand.");
  }
  const npu_dtype dtype =
      frame.compute_dtype != NPU_ABSENT ? frame.compute_dtype
      : computes_in_output(frame.code)  ? call.args.out->dtype
                                        : call.args.in->dtype;
  switch (group_of(frame.code)) {
    case kOrdered:
      return with_real(dtype, [&](auto zero) {
        return reduce_ordered<decltype(zero)>(call);
      });
    case kField:
      if (kComplexDtypes & NPU_DTYPE_BIT(dtype)) {
        return reduce_field<Complex>(call);
      }
      return with_float(
          dtype, [&](auto zero) { return reduce_field<decltype(zero)>(call); });
    default:
      return with_number(
          dtype, [&](auto zero) { return reduce_any<decltype(zero)>(call); });
  }
}

npu_status caps(std::uint32_t code, npu_op_caps& out) {
  const std::uint64_t real = kNumberDtypes & ~kComplexDtypes;
  const std::uint64_t in = group_of(code) == kOrdered
                               ? real & ~NPU_DTYPE_BIT(NPU_U64)
                               : kNumberDtypes;
  // PyTorch's CPU counts and measures complex halves, but sums none.
  plain_caps(out, NPU_DTYPES_CAST, {kUsualDtypes, kUsualDtypes, in});
  out.accumulate =
      NPU_DTYPE_BIT(NPU_F64) | NPU_DTYPE_BIT(NPU_I64) | NPU_DTYPE_BIT(NPU_C128);
  return code < NPU_REDUCE_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {{NPU_KIND_REDUCE, caps, nullptr, run}};

}  // namespace

const std::span<const KernelRow> kReduceKernels = kRows;

}  // namespace npu::host
