// SPDX-License-Identifier: Apache-2.0
// Rms norm of float32 rows, with and without a sum before it, and backward.
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/fused.h"

namespace npu::host {

const FusedTable& fused_table() noexcept {
  return NPU_TABLE_IN_USE(kFused);
}

npu_status rms_rows(const RmsRows& args) {
  const FusedTable& table = fused_table();
  const Loaded<float> in(args.in);
  const Loaded<float> residual(args.residual);
  const Loaded<float> weight(args.weight);
  const Stored<float> out(args.out);
  const Stored<float> rstd(args.rstd);
  const Stored<float> sum(args.sum);
  const std::int64_t n = args.length;
  const std::int64_t count = args.in->numel / n;
  npu_status status = loaded(in, residual, weight);
  const bool added = args.sum != nullptr && is_plain(*args.sum, NPU_F32);
  const float* rows = args.sum != nullptr ? sum.data() : in.data();
  std::optional<Loaded<float>> rounded;
  // A sum in a half type is rounded before it is normalised.
  if (status == NPU_OK && args.sum != nullptr && !added) {
    status = for_each_item(count, n, [&](std::int64_t i) {
      table.add_squares(
          sum.data() + i * n, in.data() + i * n, residual.data() + i * n, n);
    });
    status = status ? status : sum.store();
    rounded.emplace(args.sum);
    status = status ? status : rounded->status();
    rows = rounded->data();
  }
  const auto row = [&](std::int64_t i) {
    const double squares = added ? table.add_squares(
                                       sum.data() + i * n,
                                       in.data() + i * n,
                                       residual.data() + i * n,
                                       n)
                                 : table.squares(rows + i * n, n);
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(n) + args.eps);
    table.scale(
        out.data() + i * n,
        rows + i * n,
        weight.data(),
        static_cast<float>(scale),
        n);
    rstd.set(i, scale);
  };
  status = status ? status : for_each_item(count, n * 2, row);
  return finish(status, out, rstd);
}

namespace {

// Partial sums of grad * x^ over the rows of a piece, so that the order of
// additions is the same whatever the number of threads.
npu_status sum_weights(
    const RmsGradRows& args,
    const Loaded<float>& grad,
    const Loaded<float>& in,
    const Loaded<float>& rstd) {
  const FusedTable& table = fused_table();
  const std::int64_t n = args.length;
  const std::int64_t rows = args.in->numel / n;
  const std::int64_t piece = std::max<std::int64_t>(64, (rows + 31) / 32);
  const std::int64_t pieces = (rows + piece - 1) / piece;
  std::vector<float> parts(static_cast<std::size_t>(pieces * n));
  npu_status status = for_each_item(pieces, piece * n, [&](std::int64_t p) {
    const std::int64_t end = std::min(rows, (p + 1) * piece);
    for (std::int64_t i = p * piece; i < end; ++i) {
      table.add_product(
          parts.data() + p * n,
          grad.data() + i * n,
          in.data() + i * n,
          rstd[i],
          n);
    }
  });
  const Stored<float> out(args.grad_weight, Stored<float>::kZero);
  for (std::int64_t k = 0; k < n && status == NPU_OK; ++k) {
    double sum = 0;
    for (std::int64_t p = 0; p < pieces; ++p) {
      sum += parts[static_cast<std::size_t>(p * n + k)];
    }
    out.set(k, sum);
  }
  return finish(status, out);
}

}  // namespace

// With g = grad * weight: grad_in = rstd * g - x * rstd^3 * average(g * x).
npu_status rms_grad_rows(const RmsGradRows& args) {
  const FusedTable& table = fused_table();
  const Loaded<float> grad(args.grad_out);
  const Loaded<float> extra(args.grad_sum);
  const Loaded<float> in(args.in);
  const Loaded<float> rstd(args.rstd);
  const Loaded<float> weight(args.weight);
  const std::int64_t n = args.length;
  npu_status status = loaded(grad, extra, in, rstd, weight);
  if (status == NPU_OK && args.grad_in != nullptr) {
    const Stored<float> out(args.grad_in);
    status = for_each_item(args.in->numel / n, n * 3, [&](std::int64_t i) {
      const float* const g = grad.data() + i * n;
      const float* const x = in.data() + i * n;
      const double r = rstd[i];
      const double along = r * r * r * table.dot(g, weight.data(), x, n) /
                           static_cast<double>(n);
      float* const to = out.data() + i * n;
      table.rms_grad(
          to,
          g,
          weight.data(),
          x,
          static_cast<float>(r),
          static_cast<float>(along),
          n);
      for (std::int64_t k = 0; extra && k < n; ++k) {
        to[k] += extra[i * n + k];
      }
    });
    status = finish(status, out);
  }
  if (status == NPU_OK && args.grad_weight != nullptr) {
    status = sum_weights(args, grad, in, rstd);
  }
  return status;
}

}  // namespace npu::host
