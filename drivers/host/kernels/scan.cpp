// SPDX-License-Identifier: Apache-2.0
// Kinds scan and arg_reduce.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/rows.h"

namespace npu::host {
namespace {

// ---- scan ----

// In double for floats, as reductions accumulate.
template <class T>
using Running = std::conditional_t<std::is_same_v<T, float>, double, T>;

template <class W>
W log_add(W x, W y) {
  if constexpr (std::is_same_v<W, Complex>) {
    const bool first = x.real() >= y.real();
    const W high = first ? x : y;
    const W low = first ? y : x;
    return std::isinf(high.real()) && high.real() < 0
               ? high
               : high + std::log(1.0 + std::exp(low - high));
  } else {
    const W high = std::isnan(x) || x > y ? x : y;
    return (std::isinf(x) && x == y) || std::isnan(high)
               ? high
               : high + std::log1p(std::exp(-std::abs(x - y)));
  }
}

// step(so far, next) along every row.
template <class T, class Step>
npu_status scan_rows(const npu_scan_args& args, Step step) {
  const std::uint64_t mask = row_mask(args.attrs.dim);
  const RowsIn<T> in(*args.in, mask);
  const RowsOut<T> out(args.out, mask);
  if (npu_status status = in.status()) {
    return status;
  }
  const std::int64_t n = in.length();
  const bool reverse = args.attrs.reverse != 0;
  const npu_status status = parallel(
      in.rows(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const T* from = in.row(r);
          T* to = out.row(r);
          Running<T> value{};
          for (std::int64_t k = 0; k < n; ++k) {
            const std::int64_t i = reverse ? n - 1 - k : k;
            const auto next = static_cast<Running<T>>(from[i]);
            value = k == 0 ? next : step(value, next);
            to[i] = static_cast<T>(value);
          }
        }
      });
  return status ? status : out.store();
}

// The extreme so far and where it was last seen; NaN stays.
template <class T>
npu_status scan_extremes(const npu_scan_args& args, bool greatest) {
  const std::uint64_t mask = row_mask(args.attrs.dim);
  const RowsIn<T> in(*args.in, mask);
  const RowsOut<T> out(args.out, mask);
  const RowsOut<std::int64_t> indices(args.indices, mask);
  if (npu_status status = in.status()) {
    return status;
  }
  const std::int64_t n = in.length();
  const bool reverse = args.attrs.reverse != 0;
  const npu_status status = parallel(
      in.rows(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const T* from = in.row(r);
          std::int64_t at = reverse ? n - 1 : 0;
          for (std::int64_t k = 0; k < n; ++k) {
            const std::int64_t i = reverse ? n - 1 - k : k;
            const T best = from[at];
            const bool better = greatest ? from[i] >= best : from[i] <= best;
            at = is_not_number(from[i]) || (better && !is_not_number(best))
                     ? i
                     : at;
            out.row(r)[i] = from[at];
            if (indices) {
              indices.row(r)[i] = at;
            }
          }
        }
      });
  const npu_status stored = status ? status : out.store();
  return stored ? stored : indices.store();
}

template <class W>
W wrapping(W x, W y, bool multiply) {
  if constexpr (std::is_same_v<W, std::int64_t>) {
    const auto a = static_cast<std::uint64_t>(x);
    const auto b = static_cast<std::uint64_t>(y);
    return static_cast<W>(multiply ? a * b : a + b);
  } else {
    return multiply ? x * y : x + y;
  }
}

npu_status scan(const npu_call& call) {
  const npu_scan_args args = npu_scan_unpack(&call);
  if (!args.out || !args.in) {
    return fail(NPU_E_INVALID, "npu: host driver: scan lacks an operand.");
  }
  const npu_dtype dtype = args.out->dtype;
  switch (call.code) {
    case NPU_SCAN_CUMSUM:
    case NPU_SCAN_CUMPROD:
      return with_number(dtype, [&](auto zero) {
        return scan_rows<decltype(zero)>(args, [&](auto x, auto y) {
          return wrapping(x, y, call.code == NPU_SCAN_CUMPROD);
        });
      });
    case NPU_SCAN_CUMMAX:
    case NPU_SCAN_CUMMIN:
      return with_real(dtype, [&](auto zero) {
        return scan_extremes<decltype(zero)>(
            args, call.code == NPU_SCAN_CUMMAX);
      });
    default:
      if (kComplexDtypes & NPU_DTYPE_BIT(dtype)) {
        return scan_rows<Complex>(args, log_add<Complex>);
      }
      return with_float(dtype, [&](auto zero) {
        using T = decltype(zero);
        return scan_rows<T>(args, log_add<Running<T>>);
      });
  }
}

// ---- arg_reduce ----

template <class T>
std::int64_t find_extreme(const T* row, std::int64_t n, bool greatest) {
  std::int64_t at = 0;
  for (std::int64_t i = 1; i < n && !is_not_number(row[at]); ++i) {
    const bool better = greatest ? row[i] > row[at] : row[i] < row[at];
    at = better || is_not_number(row[i]) ? i : at;
  }
  return at;
}

// Position of the k-th smallest, k from 0.
template <class T>
std::int64_t find_kth(const T* row, std::int64_t n, std::int64_t k) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::nth_element(
      order.begin(),
      order.begin() + k,
      order.end(),
      [&](std::int64_t i, std::int64_t j) {
        return comes_before(row[i], row[j]);
      });
  return order[static_cast<std::size_t>(k)];
}

template <class T>
std::int64_t find_median(const T* row, std::int64_t n, bool skip_nan) {
  const T* end = row + n;
  if (!skip_nan) {
    const T* nan = std::find_if(row, end, is_not_number<T>);
    return nan != end ? nan - row : find_kth(row, n, (n - 1) / 2);
  }
  const std::int64_t numbers = n - std::count_if(row, end, is_not_number<T>);
  return find_kth(row, n, numbers == 0 ? 0 : (numbers - 1) / 2);
}

// The most frequent value, the least of several. Of its places the one that
// the sort happens to put last: as on the CPU, where this is not promised
// either.
template <class T>
std::int64_t find_mode(const T* row, std::int64_t n) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    return comes_before(row[i], row[j]);
  });
  std::int64_t best = order[0];
  std::int64_t most = 0;
  std::int64_t run = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    ++run;
    const bool last =
        i + 1 == order.size() || row[order[i]] != row[order[i + 1]];
    if (last && run > most) {
      most = run;
      best = order[i];
    }
    run = last ? 0 : run;
  }
  return best;
}

template <class T>
std::int64_t find_one(
    std::uint32_t code, const T* row, std::int64_t n, std::int64_t k) {
  switch (code) {
    case NPU_ARG_REDUCE_MAX:
    case NPU_ARG_REDUCE_MIN:
      return find_extreme(row, n, code == NPU_ARG_REDUCE_MAX);
    case NPU_ARG_REDUCE_MEDIAN:
    case NPU_ARG_REDUCE_NANMEDIAN:
      return find_median(row, n, code == NPU_ARG_REDUCE_NANMEDIAN);
    case NPU_ARG_REDUCE_MODE:
      return find_mode(row, n);
    default:
      return find_kth(row, n, k - 1);
  }
}

npu_status arg_reduce(const npu_call& call) {
  const npu_arg_reduce_args args = npu_arg_reduce_unpack(&call);
  if (!args.in) {
    return fail(NPU_E_INVALID, "npu: host driver: arg_reduce lacks its input.");
  }
  return with_real(args.in->dtype, [&](auto zero) -> npu_status {
    using T = decltype(zero);
    const RowsIn<T> in(*args.in, row_mask(args.attrs.dim));
    if (npu_status status = in.status()) {
      return status;
    }
    const Stored<T> values(args.values, Stored<T>::kAsIs);
    using Index = std::int64_t;
    const Stored<Index> indices(args.indices, Stored<Index>::kAsIs);
    const std::int64_t n = in.length();
    if (call.code == NPU_ARG_REDUCE_KTHVALUE &&
        (args.attrs.k < 1 || args.attrs.k > n)) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: kthvalue: k = %lld of %lld.",
          static_cast<long long>(args.attrs.k),
          static_cast<long long>(n));
    }
    const npu_status status = parallel(
        in.rows(), row_grain(n), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) {
            const Index at = find_one(call.code, in.row(r), n, args.attrs.k);
            if (values) {
              values[r] = in.row(r)[at];
            }
            if (indices) {
              indices[r] = at;
            }
          }
        });
    if (status) {
      return status;
    }
    const npu_status stored = values ? values.store() : NPU_OK;
    return stored || !indices ? stored : indices.store();
  });
}

constexpr std::uint64_t kRealDtypes =
    kNumberDtypes & ~kComplexDtypes & ~NPU_DTYPE_BIT(NPU_U64);

npu_status scan_caps(std::uint32_t code, npu_op_caps& out) {
  const bool ordered = code == NPU_SCAN_CUMMAX || code == NPU_SCAN_CUMMIN;
  const std::uint64_t dtypes = ordered ? kRealDtypes : kUsualDtypes;
  plain_caps(out, NPU_DTYPES_CAST, {dtypes, kIndexDtypes, dtypes}, 1);
  out.accumulate =
      NPU_DTYPE_BIT(NPU_F64) | NPU_DTYPE_BIT(NPU_I64) | NPU_DTYPE_BIT(NPU_C128);
  return code < NPU_SCAN_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status arg_reduce_caps(std::uint32_t code, npu_op_caps& out) {
  // Which of several equal elements median, mode and kthvalue return is not
  // specified: only dtypes in which elements are seldom equal.
  constexpr std::uint64_t kSeldomEqual =
      NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
  const bool first = code == NPU_ARG_REDUCE_MAX || code == NPU_ARG_REDUCE_MIN;
  const std::uint64_t values = first ? kRealDtypes : kSeldomEqual;
  plain_caps(out, NPU_DTYPES_FREE, {values, kIndexDtypes, values});
  return code < NPU_ARG_REDUCE_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_ARG_REDUCE, arg_reduce_caps, nullptr, arg_reduce},
    {NPU_KIND_SCAN, scan_caps, nullptr, scan},
};

}  // namespace

const std::span<const KernelRow> kScanKernels = kRows;

}  // namespace npu::host
