// SPDX-License-Identifier: Apache-2.0
// Kinds searchsorted, histogram, bincount and isin.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <cmath>
#include <vector>

#include "kernels/rows.h"

namespace npu::host {
namespace {

using Index = std::int64_t;

npu_status lacks_operand(const char* kind) {
  return fail(NPU_E_INVALID, "npu: host driver: %s lacks an operand.", kind);
}

// ---- searchsorted ----

template <class T>
npu_status search(const npu_searchsorted_args& args) {
  const Loaded<T> sorted(args.sorted);
  const Loaded<T> values(args.values);
  const Loaded<Index> sorter(args.sorter);
  const Stored<Index> out(args.out, Stored<Index>::kAsIs);
  if (npu_status status = loaded(sorted, values, sorter)) {
    return status;
  }
  const npu_tensor& s = *args.sorted;
  const Index n = s.ndim == 0 ? 1 : s.sizes[s.ndim - 1];
  const bool shared = s.ndim <= 1;
  const npu_tensor& v = *args.values;
  const Index per_row = shared || v.ndim == 0 ? v.numel : v.sizes[v.ndim - 1];
  const bool right = args.attrs.right != 0;
  const npu_status status =
      parallel(v.numel, kGrain / 16, [&](Index begin, Index end) {
        for (Index i = begin; i < end; ++i) {
          const Index base = shared ? 0 : i / per_row * n;
          Index low = 0;
          Index high = n;
          while (low < high) {
            const Index middle = low + (high - low) / 2;
            const Index at = sorter ? sorter[base + middle] : middle;
            const T x = sorted[base + (at >= 0 && at < n ? at : 0)];
            const bool after = right ? !comes_before(values[i], x)
                                     : comes_before(x, values[i]);
            (after ? low : high) = after ? middle + 1 : middle;
          }
          out[i] = low;
        }
      });
  return status ? status : out.store();
}

npu_status searchsorted(const npu_call& call) {
  const npu_searchsorted_args args = npu_searchsorted_unpack(&call);
  if (!args.out || !args.sorted || !args.values) {
    return lacks_operand("searchsorted");
  }
  return with_real(args.sorted->dtype, [&](auto zero) {
    return search<decltype(zero)>(args);
  });
}

// ---- histogram ----

// Bins of equal width; what lies outside is not counted.
template <class T>
struct Bins {
  T low;
  T high;
  Index n;

  Index find(T x) const {
    if (!(x >= low && x <= high)) {
      return -1;
    }
    const auto at = static_cast<Index>((x - low) / (high - low) * n);
    return std::min(at, n - 1);
  }
  double edge(Index i) const {
    return low + (static_cast<double>(high) - low) * static_cast<double>(i) /
                     static_cast<double>(n);
  }
};

template <class T>
npu_status set_range(
    const npu_histogram_attrs& attrs, const T* x, Index n, Bins<T>& bins) {
  bins.n = attrs.bins;
  bins.low = static_cast<T>(attrs.low);
  bins.high = static_cast<T>(attrs.high);
  if (bins.low == bins.high && n > 0) {
    bins.low = *std::min_element(x, x + n, comes_before<T>);
    bins.high = *std::max_element(x, x + n, comes_before<T>);
  }
  if (bins.low == bins.high) {
    bins.low -= 1;
    bins.high += 1;
  }
  if (!std::isfinite(static_cast<double>(bins.low)) ||
      !std::isfinite(static_cast<double>(bins.high)) || bins.n < 1 ||
      bins.low > bins.high) {
    return fail(
        NPU_E_ASYNC,
        "npu: host driver: histogram: %lld bins from %g to %g.",
        static_cast<long long>(bins.n),
        static_cast<double>(bins.low),
        static_cast<double>(bins.high));
  }
  return NPU_OK;
}

template <class T>
npu_status histogram_of(const npu_call& call, const npu_histogram_args& args) {
  const Loaded<T> in(args.in);
  const Loaded<T> weights(args.weights);
  const Loaded<T> edges(args.edges);
  const Stored<double> out(args.out, Stored<double>::kZero);
  const Stored<double> edges_out(args.edges_out, Stored<double>::kAsIs);
  if (npu_status status = loaded(in, weights, edges)) {
    return status;
  }
  Bins<T> bins{};
  const bool uniform = call.code == NPU_HISTOGRAM_UNIFORM;
  if (uniform) {
    if (npu_status status =
            set_range(args.attrs, in.data(), args.in->numel, bins)) {
      return status;
    }
  } else if (!edges || args.edges->numel < 2) {
    return lacks_operand("histogram");
  }
  const Index n = uniform ? bins.n : args.edges->numel - 1;
  if (args.out->numel != n || (edges_out && args.edges_out->numel != n + 1)) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: histogram: %lld bins do not fit the output.",
        static_cast<long long>(n));
  }
  const auto edge = [&](Index i) {
    return uniform ? bins.edge(i) : static_cast<double>(edges[i]);
  };
  for (Index i = 0; i < args.in->numel; ++i) {
    const T x = in[i];
    Index at = -1;
    if (uniform) {
      at = bins.find(x);
    } else if (x >= edges[0] && x <= edges[n]) {
      at = std::upper_bound(edges.data(), edges.data() + n + 1, x) -
           edges.data() - 1;
      at = std::min(at, n - 1);
    }
    if (at >= 0) {
      out[at] += weights ? static_cast<double>(weights[i]) : 1.0;
    }
  }
  if (args.attrs.density) {
    double sum = 0;
    for (Index i = 0; i < n; ++i) {
      sum += out[i];
    }
    for (Index i = 0; i < n; ++i) {
      out[i] /= sum * (edge(i + 1) - edge(i));
    }
  }
  for (Index i = 0; edges_out && i <= n; ++i) {
    edges_out[i] = edge(i);
  }
  const npu_status status = out.store();
  return status || !edges_out ? status : edges_out.store();
}

npu_status histogram(const npu_call& call) {
  const npu_histogram_args args = npu_histogram_unpack(&call);
  if (!args.out || !args.in) {
    return lacks_operand("histogram");
  }
  return with_float(args.in->dtype, [&](auto zero) {
    return histogram_of<decltype(zero)>(call, args);
  });
}

// ---- bincount ----

npu_status bincount(const npu_call& call) {
  const npu_bincount_args args = npu_bincount_unpack(&call);
  const bool counting = (call.flags & NPU_CALL_COUNT) != 0;
  if (!args.in || (counting ? !args.total : !args.out)) {
    return lacks_operand("bincount");
  }
  const Loaded<Index> in(args.in);
  const Loaded<double> weights(args.weights);
  if (npu_status status = loaded(in, weights)) {
    return status;
  }
  Index most = -1;
  for (Index i = 0; i < args.in->numel; ++i) {
    if (in[i] < 0) {
      return fail(
          NPU_E_ASYNC,
          "npu: host driver: bincount: value %lld is negative.",
          static_cast<long long>(in[i]));
    }
    most = std::max(most, in[i]);
  }
  if (counting) {
    *static_cast<Index*>(args.total->data) =
        std::max(args.attrs.minlength, most + 1);
    return NPU_OK;
  }
  if (args.out->numel <= most) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: bincount: value %lld does not fit %lld bins.",
        static_cast<long long>(most),
        static_cast<long long>(args.out->numel));
  }
  const Stored<double> out(args.out, Stored<double>::kZero);
  for (Index i = 0; i < args.in->numel; ++i) {
    out[in[i]] += weights ? weights[i] : 1.0;
  }
  return out.store();
}

// ---- isin ----

template <class T>
npu_status isin_of(const npu_isin_args& args) {
  const Loaded<T> elements(args.elements);
  const Loaded<T> test(args.test);
  const Stored<bool> out(args.out, Stored<bool>::kAsIs);
  if (npu_status status = loaded(elements, test)) {
    return status;
  }
  std::vector<T> sorted(test.data(), test.data() + args.test->numel);
  std::sort(sorted.begin(), sorted.end(), comes_before<T>);
  const bool invert = args.attrs.invert != 0;
  for (Index i = 0; i < args.elements->numel; ++i) {
    const T x = elements[i];
    const auto at =
        std::lower_bound(sorted.begin(), sorted.end(), x, comes_before<T>);
    out[i] = (at != sorted.end() && *at == x) != invert;
  }
  return out.store();
}

npu_status isin(const npu_call& call) {
  const npu_isin_args args = npu_isin_unpack(&call);
  if (!args.out || !args.elements || !args.test) {
    return lacks_operand("isin");
  }
  const npu_dtype dtype = call.compute_dtype != NPU_ABSENT
                              ? call.compute_dtype
                              : args.elements->dtype;
  return with_real(
      dtype, [&](auto zero) { return isin_of<decltype(zero)>(args); });
}

// ---- rows ----

constexpr std::uint64_t kReal =
    kNumberDtypes & ~kComplexDtypes & ~NPU_DTYPE_BIT(NPU_U64);
constexpr std::uint64_t kInt64 = NPU_DTYPE_BIT(NPU_I64);

npu_status searchsorted_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_FREE, {kIndexDtypes, kReal, kReal, kInt64});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}
npu_status histogram_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(
      out,
      NPU_DTYPES_FREE,
      {kReal, kFloatDtypes, kFloatDtypes, kFloatDtypes, kFloatDtypes});
  return code < NPU_HISTOGRAM_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}
npu_status bincount_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_FREE, {kInt64, kReal, kIntDtypes, kReal});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}
npu_status isin_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_FREE, {NPU_DTYPE_BIT(NPU_BOOL), kReal, kReal});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_SEARCHSORTED, searchsorted_caps, nullptr, searchsorted},
    {NPU_KIND_HISTOGRAM, histogram_caps, nullptr, histogram},
    {NPU_KIND_BINCOUNT, bincount_caps, nullptr, bincount},
    {NPU_KIND_ISIN, isin_caps, nullptr, isin},
};

}  // namespace

const std::span<const KernelRow> kOrderCountKernels = kRows;

}  // namespace npu::host
