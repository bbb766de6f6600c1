// SPDX-License-Identifier: Apache-2.0
#include "gemm_problem.h"

namespace npu::cuda {
namespace {

// Dimensions before the last two as one, with one distance between matrices.
bool merge_batches(const npu_tensor& t, std::int64_t& offset) {
  offset = 0;
  std::int64_t expected = -1;  // of the next outer dimension
  for (std::int64_t d = static_cast<std::int64_t>(t.ndim) - 3; d >= 0; --d) {
    if (t.sizes[d] == 1) {
      continue;
    }
    if (expected < 0) {
      offset = t.strides[d];
    } else if (t.strides[d] != expected) {
      return false;
    }
    expected = t.strides[d] * t.sizes[d];
  }
  return true;
}

// Rows (or columns) have to be contiguous and not to overlap.
bool set_matrix(const npu_tensor& t, GemmMatrix& out) {
  const std::int64_t rows = t.sizes[t.ndim - 2];
  const std::int64_t columns = t.sizes[t.ndim - 1];
  const std::int64_t down = t.strides[t.ndim - 2];
  const std::int64_t along = t.strides[t.ndim - 1];
  if (!merge_batches(t, out.batch_offset)) {
    return false;
  }
  if ((along == 1 || columns == 1) && (down >= columns || rows == 1)) {
    out.transposed = false;
    out.ld = rows == 1 && down < columns ? columns : down;
    return true;
  }
  if ((down == 1 || rows == 1) && (along >= rows || columns == 1)) {
    out.transposed = true;
    out.ld = columns == 1 && along < rows ? rows : along;
    return true;
  }
  return false;
}

bool is_absent(const npu_tensor* t) {
  return t == nullptr || t->dtype == NPU_ABSENT;
}

// 1 for each column of a contiguous vector.
bool is_plain_vector(const npu_tensor& t) {
  return t.numel == 1 || t.strides[t.ndim - 1] == 1;
}

}  // namespace

std::uint64_t gemm_problem(const npu_call& call, GemmProblem& p) {
  const npu_gemm_args args = npu_gemm_unpack(&call);
  const npu_tensor& out = *args.out;
  const npu_tensor& a = *args.a;
  const npu_tensor& b = *args.b;
  p = GemmProblem{};
  p.m = out.sizes[out.ndim - 2];
  p.n = out.sizes[out.ndim - 1];
  p.k = a.sizes[a.ndim - 1];
  p.dtype = a.dtype;
  for (std::uint32_t d = 0; d + 2 < out.ndim; ++d) {
    p.batches *= out.sizes[d];
  }
  if (p.k == 0 || p.m > INT32_MAX || p.n > INT32_MAX || p.k > INT32_MAX ||
      p.batches > INT32_MAX) {
    return UINT64_MAX;
  }
  std::uint64_t wrong = 0;
  const std::uint32_t first = call.n_out;
  wrong |= set_matrix(a, p.a) ? 0 : UINT64_C(1) << first;
  wrong |= set_matrix(b, p.b) ? 0 : UINT64_C(1) << (first + 1);
  if (!set_matrix(out, p.out) || p.out.transposed) {
    wrong |= 1;
  }
  p.has_c = !is_absent(args.c) && args.attrs.beta.re != 0;
  p.has_bias = !is_absent(args.bias);
  // Whether c is used is not in a plan's key, so it counts as used.
  const bool plain_c =
      is_absent(args.c) || (args.c->dtype == out.dtype &&
                            set_matrix(*args.c, p.c) && !p.c.transposed);
  const bool plain_bias =
      !p.has_bias || (args.bias->dtype == out.dtype && out.dtype != NPU_F64 &&
                      is_plain_vector(*args.bias));
  p.staged = args.attrs.epilogue != NPU_GEMM_EPILOGUE_NONE ||
             !is_absent(args.pre) || !plain_c || !plain_bias;
  return wrong;
}

}  // namespace npu::cuda
