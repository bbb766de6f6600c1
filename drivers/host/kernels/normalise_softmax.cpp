// SPDX-License-Identifier: Apache-2.0
// Kinds softmax and softmax_grad.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <cmath>
#include <limits>

#include "kernels/normalise.h"

namespace npu::host {
namespace {

// The elements of one row are `inner` apart.
struct Rows {
  Rows(const npu_tensor& tensor, std::int64_t dim) {
    for (std::int64_t d = 0; d < tensor.ndim; ++d) {
      (d == dim ? length : d > dim ? inner : outer) *= tensor.sizes[d];
    }
  }
  std::int64_t count() const {
    return outer * inner;
  }
  // Index of element 0 of row i.
  std::int64_t start(std::int64_t i) const {
    return i / inner * length * inner + i % inner;
  }
  std::int64_t outer = 1;
  std::int64_t length = 1;
  std::int64_t inner = 1;
};

}  // namespace

npu_status softmax_caps(std::uint32_t code, npu_op_caps& out) {
  if (code > NPU_SOFTMAX_MASKED) {
    return NPU_E_UNSUPPORTED;
  }
  float_caps(out, 4);
  out.flags |= NPU_CAP_ALIAS;
  out.alias_mask = 3;
  // The mask follows the other inputs: place 2 of softmax, 3 of softmax_grad.
  out.dtypes[2] |= NPU_DTYPE_BIT(NPU_BOOL);
  out.dtypes[3] = NPU_DTYPE_BIT(NPU_BOOL);
  return NPU_OK;
}

npu_status softmax_run(const npu_call& call) {
  const npu_softmax_args args = npu_softmax_unpack(&call);
  const bool log = call.code == NPU_SOFTMAX_LOG;
  return with_float(args.out->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Loaded<bool> mask(args.mask);
    const Stored<T> out(args.out);
    const Rows rows(*args.in, args.attrs.dim);
    constexpr T kLowest = -std::numeric_limits<T>::infinity();
    const auto row = [&](std::int64_t i) {
      const std::int64_t first = rows.start(i);
      const auto place = [&](std::int64_t k) { return first + k * rows.inner; };
      const auto value = [&](std::int64_t k) {
        return mask.at(place(k), 0) ? kLowest : in[place(k)];
      };
      T most = kLowest;
      for (std::int64_t k = 0; k < rows.length; ++k) {
        const T x = value(k);
        most = x > most || x != x ? x : most;  // NaN stays
      }
      double sum = 0;
      for (std::int64_t k = 0; k < rows.length; ++k) {
        sum += std::exp(value(k) - most);
      }
      const double log_sum = std::log(sum);
      for (std::int64_t k = 0; k < rows.length; ++k) {
        const double x = static_cast<double>(value(k)) - most;
        out.set(
            place(k), log ? x - log_sum : std::exp(static_cast<T>(x)) / sum);
      }
    };
    const npu_status status = for_each_item(rows.count(), rows.length * 8, row);
    return finish(status, in, mask, out);
  });
}

// plain: (g - sum(g * y)) * y, log: g - exp(y) * sum(g); masked ones get 0.
npu_status softmax_grad_run(const npu_call& call) {
  const npu_softmax_grad_args args = npu_softmax_grad_unpack(&call);
  const bool log = call.code == NPU_SOFTMAX_GRAD_LOG;
  return with_float(args.grad_in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> y(args.output);
    const Loaded<bool> mask(args.mask);
    const Stored<T> out(args.grad_in);
    const Rows rows(*args.grad_in, args.attrs.dim);
    const auto row = [&](std::int64_t i) {
      const std::int64_t first = rows.start(i);
      double sum = 0;
      for (std::int64_t k = 0; k < rows.length; ++k) {
        const std::int64_t at = first + k * rows.inner;
        const double g = mask.at(at, 0) ? 0 : grad[at];
        sum += log ? g : g * y[at];
      }
      for (std::int64_t k = 0; k < rows.length; ++k) {
        const std::int64_t at = first + k * rows.inner;
        const double g = grad[at];
        out.set(
            at,
            mask.at(at, 0) ? 0
            : log          ? g - std::exp(y[at]) * sum
                           : (g - sum) * y[at]);
      }
    };
    const npu_status status = for_each_item(rows.count(), rows.length * 4, row);
    return finish(status, grad, y, mask, out);
  });
}

}  // namespace npu::host
