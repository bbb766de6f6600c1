// SPDX-License-Identifier: Apache-2.0
// Kind multi_reduce: a number per tensor. Tensors are cut into pieces of fixed
// length, so that sums do not depend on the number of threads.
#include <cmath>
#include <vector>

#include "kernels/lists.h"

namespace npu::host {
namespace {

constexpr std::int64_t kPiece = 16384;

// How elements become one number.
struct Rule {
  int fold;      // of ListFold, or -1: sum of |x|^p
  double p = 1;  // the root to take in the end; 1 = none
};

Rule rule_of(std::uint32_t code, double p) {
  switch (code) {
    case NPU_MULTI_REDUCE_MAX:
      return {kFoldMax};
    case NPU_MULTI_REDUCE_SUM:
      return {kFoldSum};
    default:
      break;
  }
  const bool root = code == NPU_MULTI_REDUCE_NORM;
  if (std::isinf(p) && root) {
    return {p > 0 ? kFoldAbsMax : kFoldAbsMin};
  }
  if (p == 0) {
    return {kFoldCount};
  }
  if (p == 1) {
    return {kFoldAbs};
  }
  return {p == 2 ? kFoldSquare : -1, root ? p : 1};
}

template <class T>
double sum_powers(const void* data, std::int64_t n, double p) {
  const T* x = static_cast<const T*>(data);
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += std::pow(std::fabs(static_cast<double>(x[i])), p);
  }
  return sum;
}

double fold_piece(
    const Rule& rule, int type, double p, const void* data, std::int64_t n) {
  if (rule.fold >= 0) {
    return list_table().fold[rule.fold][type](data, n);
  }
  switch (type) {
    case kListF16:
      return sum_powers<F16>(data, n, p);
    case kListBF16:
      return sum_powers<BF16>(data, n, p);
    case kListF32:
      return sum_powers<float>(data, n, p);
    default:
      return sum_powers<double>(data, n, p);
  }
}

double join(const Rule& rule, double a, double b) {
  switch (rule.fold) {
    case kFoldMax:
    case kFoldAbsMax:
      return b > a || std::isnan(b) ? b : a;
    case kFoldAbsMin:
      return b < a || std::isnan(b) ? b : a;
    default:
      return a + b;
  }
}

double finish(const Rule& rule, double value) {
  if (rule.p == 1) {
    return value;
  }
  return rule.p == 2 ? std::sqrt(value) : std::pow(value, 1 / rule.p);
}

void write_number(npu_dtype dtype, void* data, double value) {
  switch (dtype) {
    case NPU_F16:
      *static_cast<F16*>(data) = F16(static_cast<float>(value));
      break;
    case NPU_BF16:
      *static_cast<BF16*>(data) = BF16(static_cast<float>(value));
      break;
    case NPU_F32:
      *static_cast<float*>(data) = static_cast<float>(value);
      break;
    default:
      *static_cast<double*>(data) = value;
  }
}

npu_status check(const npu_call& call, const npu_multi_reduce_args& args) {
  if (npu_status status = check_lists(call, {args.x})) {
    return status;
  }
  const npu_list* out = args.out;
  const std::int64_t* numel = args.x->numel;
  if (std::find(numel, numel + args.x->n, 0) != numel + args.x->n) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: multi_reduce: a tensor of the list is empty");
  }
  const bool fits = out == nullptr || (out->n == args.x->n && out->data &&
                                       list_type(out->dtype) >= 0);
  const bool total_fits =
      args.total == nullptr || list_type(args.total->dtype) >= 0;
  return fits && total_fits
             ? NPU_OK
             : fail(
                   NPU_E_INVALID,
                   "npu: host driver: multi_reduce: the outputs do not fit a "
                   "list of %u tensors",
                   args.x->n);
}

}  // namespace

npu_status multi_reduce_caps(std::uint32_t code, npu_op_caps& out) {
  if (code >= NPU_MULTI_REDUCE_CODES) {
    return NPU_E_UNSUPPORTED;
  }
  list_caps(out);
  out.dtypes[0] = out.dtypes[1] = out.dtypes[2] = kListDtypes;
  return NPU_OK;
}

npu_status multi_reduce_run(const npu_call& call) {
  const npu_multi_reduce_args args = npu_multi_reduce_unpack(&call);
  if (npu_status status = check(call, args)) {
    return status;
  }
  const npu_list& x = *args.x;
  const double p = args.attrs.p;
  const Rule rule = rule_of(call.code, p);
  const int type = list_type(x.dtype);
  // first[i]: the first piece of tensor i. Kept from call to call.
  static thread_local std::vector<std::int64_t> first;
  static thread_local std::vector<double> partial;
  first.resize(x.n + 1);
  first[0] = 0;
  for (std::uint32_t i = 0; i < x.n; ++i) {
    first[i + 1] = first[i] + (x.numel[i] + kPiece - 1) / kPiece;
  }
  partial.resize(static_cast<std::size_t>(first[x.n]));
  // Thread-local names mean other vectors on other threads.
  const std::vector<std::int64_t>& begins = first;
  std::vector<double>& parts = partial;
  const npu_status status = parallel(
      begins[x.n], kGrain / kPiece, [&](std::int64_t from, std::int64_t to) {
        auto i = std::upper_bound(begins.begin(), begins.end(), from) -
                 begins.begin() - 1;
        for (std::int64_t piece = from; piece < to; ++piece) {
          for (; begins[i + 1] <= piece; ++i) {
          }
          const std::int64_t at = (piece - begins[i]) * kPiece;
          const std::int64_t n = std::min(kPiece, x.numel[i] - at);
          parts[piece] = fold_piece(rule, type, p, list_data(&x, i, at), n);
        }
      });
  if (status != NPU_OK) {
    return status;
  }
  double all = 0;
  for (std::uint32_t i = 0; i < x.n; ++i) {
    double value = parts[begins[i]];
    for (std::int64_t piece = begins[i] + 1; piece < begins[i + 1]; ++piece) {
      value = join(rule, value, parts[piece]);
    }
    all = i == 0 ? value : join(rule, all, value);
    if (args.out != nullptr) {
      write_number(args.out->dtype, args.out->data[i], finish(rule, value));
    }
  }
  if (args.total != nullptr) {
    write_number(args.total->dtype, args.total->data, finish(rule, all));
  }
  return NPU_OK;
}

}  // namespace npu::host
