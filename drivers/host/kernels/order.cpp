// SPDX-License-Identifier: Apache-2.0
// Kinds sort, topk and unique.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <numeric>
#include <vector>

#include "kernels/rows.h"

namespace npu::host {
namespace {

using Index = std::int64_t;

// The values of a row with their places in it.
template <class T>
using Order = std::vector<std::pair<T, Index>>;

// The first `count` of each row after `arrange(order)`, where they are wanted.
template <class T, class Arrange>
npu_status write_ordered(
    const RowsIn<T>& in,
    const RowsOut<T>& values,
    const RowsOut<Index>& indices,
    Index count,
    Arrange arrange) {
  const Index n = in.length();
  const npu_status status =
      parallel(in.rows(), row_grain(n), [&](Index begin, Index end) {
        Order<T> order(static_cast<std::size_t>(n));
        for (Index r = begin; r < end; ++r) {
          const T* row = in.row(r);
          for (Index i = 0; i < n; ++i) {
            order[static_cast<std::size_t>(i)] = {row[i], i};
          }
          arrange(order);
          for (Index i = 0; i < count; ++i) {
            const auto& [value, index] = order[static_cast<std::size_t>(i)];
            if (values) {
              values.row(r)[i] = value;
            }
            if (indices) {
              indices.row(r)[i] = index;
            }
          }
        }
      });
  const npu_status stored = status ? status : values.store();
  return stored ? stored : indices.store();
}

// ---- sort ----

template <class T>
npu_status sort_rows(const npu_sort_args& args) {
  const std::uint64_t mask = row_mask(args.attrs.dim);
  const RowsIn<T> in(*args.in, mask);
  const RowsOut<T> values(args.values, mask);
  const RowsOut<Index> indices(args.indices, mask);
  if (npu_status status = in.status()) {
    return status;
  }
  const Index n = in.length();
  const bool descending = args.attrs.descending != 0;
  return write_ordered(in, values, indices, n, [&](Order<T>& order) {
    std::stable_sort(
        order.begin(), order.end(), [&](const auto& x, const auto& y) {
          return descending ? comes_before(y.first, x.first)
                            : comes_before(x.first, y.first);
        });
  });
}

npu_status sort(const npu_call& call) {
  const npu_sort_args args = npu_sort_unpack(&call);
  if (!args.in) {
    return fail(NPU_E_INVALID, "npu: host driver: sort lacks its input.");
  }
  return with_real(args.in->dtype, [&](auto zero) {
    return sort_rows<decltype(zero)>(args);
  });
}

// ---- topk ----

// Few of many: a heap of k. Else a selection, sorted afterwards.
template <class T>
void select_top(
    std::vector<std::pair<T, Index>>& order,
    Index k,
    bool largest,
    bool sorted) {
  const auto better = [&](const auto& x, const auto& y) {
    return largest ? comes_before(y.first, x.first)
                   : comes_before(x.first, y.first);
  };
  if (k * 64 <= static_cast<Index>(order.size())) {
    std::partial_sort(order.begin(), order.begin() + k, order.end(), better);
    return;
  }
  if (k > 0) {
    std::nth_element(order.begin(), order.begin() + k - 1, order.end(), better);
  }
  if (sorted && k > 1) {
    std::sort(order.begin(), order.begin() + k - 1, better);
  }
}

template <class T>
npu_status topk_rows(const npu_topk_args& args) {
  const std::uint64_t mask = row_mask(args.attrs.dim);
  const RowsIn<T> in(*args.in, mask);
  const RowsOut<T> values(args.values, mask);
  const RowsOut<Index> indices(args.indices, mask);
  if (npu_status status = in.status()) {
    return status;
  }
  const Index n = in.length();
  const Index k = args.attrs.k;
  if (k < 1 || k > n || values.length() != k) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: topk: k = %lld of %lld.",
        static_cast<long long>(k),
        static_cast<long long>(n));
  }
  return write_ordered(in, values, indices, k, [&](Order<T>& order) {
    select_top(order, k, args.attrs.largest != 0, args.attrs.sorted != 0);
  });
}

npu_status topk(const npu_call& call) {
  const npu_topk_args args = npu_topk_unpack(&call);
  if (!args.in || !args.values) {
    return fail(NPU_E_INVALID, "npu: host driver: topk lacks an operand.");
  }
  return with_real(args.in->dtype, [&](auto zero) {
    return topk_rows<decltype(zero)>(args);
  });
}

// ---- unique ----

// Slices (single elements without a dim) of `width` numbers each, their order,
// and the place in it where each group of equal ones begins.
template <class T>
struct Groups {
  Groups(const npu_unique_args& args)
      : in(*args.in, args.attrs.dim < 0 ? 0 : ~(UINT64_C(1) << args.attrs.dim)),
        count(in.rows()),
        width(in.length()) {
    if (in.status()) {
      return;
    }
    order.resize(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), Index{0});
    if (!args.attrs.consecutive) {
      std::stable_sort(order.begin(), order.end(), [&](Index i, Index j) {
        return std::lexicographical_compare(
            in.row(i),
            in.row(i) + width,
            in.row(j),
            in.row(j) + width,
            comes_before<T>);
      });
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || !std::equal(
                        in.row(order[i]),
                        in.row(order[i]) + width,
                        in.row(order[i - 1]))) {
        starts.push_back(static_cast<Index>(i));
      }
    }
  }

  RowsIn<T> in;
  Index count;
  Index width;
  std::vector<Index> order;
  std::vector<Index> starts;
};

template <class T>
npu_status unique_of(const npu_call& call, const npu_unique_args& args) {
  const Groups<T> groups(args);
  if (npu_status status = groups.in.status()) {
    return status;
  }
  const auto total = static_cast<Index>(groups.starts.size());
  if (call.flags & NPU_CALL_COUNT) {
    *static_cast<Index*>(args.total->data) = total;
    return NPU_OK;
  }
  const std::uint64_t others =
      args.attrs.dim < 0 ? 0 : ~(UINT64_C(1) << args.attrs.dim);
  const RowsOut<T> values(args.values, others);
  const Stored<Index> inverse(args.inverse, Stored<Index>::kAsIs);
  const Stored<Index> counts(args.counts, Stored<Index>::kAsIs);
  if (args.values->numel != total * groups.width) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: unique: room for %lld values, there are %lld.",
        static_cast<long long>(args.values->numel),
        static_cast<long long>(total * groups.width));
  }
  for (Index g = 0; g < total; ++g) {
    const auto at = static_cast<std::size_t>(g);
    const Index begin = groups.starts[at];
    const Index end = g + 1 < total ? groups.starts[at + 1] : groups.count;
    const Index first = groups.order[static_cast<std::size_t>(begin)];
    std::copy_n(groups.in.row(first), groups.width, values.row(g));
    for (Index i = begin; inverse && i < end; ++i) {
      inverse[groups.order[static_cast<std::size_t>(i)]] = g;
    }
    if (counts) {
      counts[g] = end - begin;
    }
  }
  npu_status status = values.store();
  status = status || !inverse ? status : inverse.store();
  return status || !counts ? status : counts.store();
}

npu_status unique(const npu_call& call) {
  const npu_unique_args args = npu_unique_unpack(&call);
  const bool counting = (call.flags & NPU_CALL_COUNT) != 0;
  if (!args.in || (counting ? !args.total : !args.values)) {
    return fail(NPU_E_INVALID, "npu: host driver: unique lacks an operand.");
  }
  return with_real(args.in->dtype, [&](auto zero) {
    return unique_of<decltype(zero)>(call, args);
  });
}

// ---- rows ----

constexpr std::uint64_t kSortable =
    kNumberDtypes & ~kComplexDtypes & ~NPU_DTYPE_BIT(NPU_U64);
constexpr std::uint64_t kInt64 = NPU_DTYPE_BIT(NPU_I64);

npu_status sort_plan(const npu_call& call, npu_verdict& verdict) {
  const npu_sort_args args = npu_sort_unpack(&call);
  return args.attrs.stable || !args.indices || !args.in
             ? NPU_OK
             : decline_ties(args.in->dtype, verdict);
}

npu_status sort_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_FREE, {kSortable, kIndexDtypes, kSortable});
  out.plan_use = NPU_PLAN_BY_SHAPE;
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status topk_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_FREE, {kSortable, kIndexDtypes, kSortable});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status unique_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(
      out, NPU_DTYPES_FREE, {kInt64, kSortable, kInt64, kInt64, kSortable});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_SORT, sort_caps, sort_plan, sort},
    {NPU_KIND_TOPK, topk_caps, nullptr, topk},
    {NPU_KIND_UNIQUE, unique_caps, nullptr, unique},
};

}  // namespace

const std::span<const KernelRow> kOrderKernels = kRows;

}  // namespace npu::host
