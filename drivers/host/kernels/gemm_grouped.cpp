// SPDX-License-Identifier: Apache-2.0
// Kind gemm_grouped: rows of a matrix in groups, each times its own matrix, or
// columns in groups, each times its own rows.
//
// A reference kernel: right in every case, not fast.
#include "kernels/gemm_grouped.h"

#include <algorithm>
#include <vector>

#include "kernels/dense.h"

namespace npu::host {
namespace {

// out[row] = sum over k of a[row, k] * b[k], of `n` columns.
struct Product {
  const float* a;
  const float* b;
  float* out;
  std::int64_t a_width;  // of a whole row of a
  std::int64_t depth;
  std::int64_t columns;

  void row(std::int64_t i) const {
    std::vector<double> sums(static_cast<std::size_t>(columns));
    for (std::int64_t k = 0; k < depth; ++k) {
      const double factor = a[i * a_width + k];
      for (std::int64_t j = 0; j < columns; ++j) {
        sums[static_cast<std::size_t>(j)] += factor * b[k * columns + j];
      }
    }
    std::transform(sums.begin(), sums.end(), out + i * columns, [](double x) {
      return static_cast<float>(x);
    });
  }
};

}  // namespace

// Rows behind the last group are 0; groups that end before they begin, or
// behind the last row, have no rows there.
npu_status gemm_grouped_run(const npu_call& call) {
  const npu_gemm_grouped_args args = npu_gemm_grouped_unpack(&call);
  if (args.ends == nullptr || args.a->ndim != 2) {
    return NPU_E_UNSUPPORTED;
  }
  const Loaded<float> a(args.a);
  const Loaded<float> b(args.b);
  const Loaded<std::int64_t> ends(args.ends);
  const Stored<float> out(args.out, Stored<float>::kZero);
  npu_status status = loaded(a, b, ends);
  if (status != NPU_OK) {
    return status;
  }
  const std::int64_t rows = args.a->sizes[0];
  const std::int64_t width = args.a->sizes[1];
  const std::int64_t columns = args.b->sizes[args.b->ndim - 1];
  const bool by_rows = args.b->ndim == 3;
  const std::int64_t limit = by_rows ? rows : width;
  std::int64_t first = 0;
  for (std::int64_t g = 0; g < args.ends->numel && status == NPU_OK; ++g) {
    const std::int64_t last = std::clamp(ends[g], first, limit);
    if (by_rows) {
      const Product p{
          a.data(),
          b.data() + g * width * columns,
          out.data(),
          width,
          width,
          columns};
      status =
          for_each_item(last - first, width * columns, [&](std::int64_t i) {
            p.row(first + i);
          });
    } else {
      const Product p{
          a.data() + first,
          b.data() + first * columns,
          out.data() + g * rows * columns,
          width,
          last - first,
          columns};
      status = for_each_item(
          rows, (last - first) * columns, [&](std::int64_t i) { p.row(i); });
    }
    first = last;
  }
  return finish(status, out);
}

npu_status gemm_grouped_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 7);
  for (int i : {0, 1, 2}) {
    out.dtypes[i] &= ~NPU_DTYPE_BIT(NPU_F64);
  }
  out.dtypes[3] = kIndexDtypes;
  // A bias and scaled operands are left to others.
  std::fill(out.dtypes + 4, out.dtypes + 7, 0);
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

}  // namespace npu::host
