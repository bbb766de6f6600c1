// SPDX-License-Identifier: Apache-2.0
// arange, linspace, logspace, eye, tril_indices and triu_indices.
#include <algorithm>
#include <cmath>

#include "aten/core/factories.h"
#include "aten/ops/op.h"
#include "attempts/move.h"
#include "driver/build_call.h"
#include "runtime/device.h"

namespace npu::ops {

namespace {

// These outputs are given and take any size: no rule of structured operators.
npu_reason run_range(
    NativeSite& site, const at::Tensor& out, npu_range_attrs& attrs) {
  if (out.numel() != attrs.count) {
    out.resize_({attrs.count});
  }
  if (attrs.count == 0) {
    return NPU_REASON_NONE;
  }
  const at::Tensor line = out.is_contiguous() ? out.view({-1}) : out;
  if (line.dim() != 1) {
    return kLeaveToCpu;
  }
  return run<build::range>(site, line, attrs);
}

bool is_real(const c10::Scalar& value) {
  return !value.isComplex() && !value.isBoolean();
}

// Whether the driver would take an output that is still to be made.
npu_reason wants_output(NativeSite& site, const at::Tensor& out) {
  if (site.caps() == nullptr) {
    return NPU_REASON_NO_KERNEL;
  }
  return out.is_privateuseone() ? npu_reason{NPU_REASON_NONE} : kLeaveToCpu;
}

// ---- arange ----

// The number of values as CPU counts them, in double where the range is; -1:
// CPU has an error for it.
std::int64_t count_of(
    const c10::Scalar& start,
    const c10::Scalar& end,
    const c10::Scalar& step,
    bool integral) {
  const double by = step.toDouble();
  const double span = end.toDouble() - start.toDouble();
  if (by == 0 || !std::isfinite(span) || !std::isfinite(by) || span / by < 0) {
    return -1;
  }
  if (integral) {
    const std::int64_t s = step.toLong();
    const std::int64_t sign = s > 0 ? 1 : -1;
    return (end.toLong() - start.toLong() + s - sign) / s;
  }
  const double count = std::ceil(span / by);
  return count < 9e15 ? static_cast<std::int64_t>(count) : -1;
}

}  // namespace

npu_reason arange(
    NativeSite& site,
    Outputs& outputs,
    const c10::Scalar& start,
    const c10::Scalar& end,
    const c10::Scalar& step) {
  const at::Tensor& out = outputs.at(0);
  if (const npu_reason why = wants_output(site, out); why != NPU_REASON_NONE) {
    return why;
  }
  const bool integral =
      c10::isIntegralType(out.scalar_type(), /*includeBool=*/false);
  const bool whole = start.isIntegral(false) && end.isIntegral(false) &&
                     step.isIntegral(false);
  // Integers made from fractions round in ways of their own.
  if (!is_real(start) || !is_real(end) || !is_real(step) ||
      (integral && !whole)) {
    return kLeaveToCpu;
  }
  npu_range_attrs attrs{.count = count_of(start, end, step, integral)};
  if (attrs.count < 0) {
    return kLeaveToCpu;
  }
  attrs.start = to_npu_scalar(start);
  attrs.end = to_npu_scalar(end);
  attrs.step = to_npu_scalar(step);
  return run_range(site, out, attrs);
}

// ---- linspace, logspace ----

npu_reason logspace(
    NativeSite& site,
    Outputs& outputs,
    const c10::Scalar& start,
    const c10::Scalar& end,
    std::int64_t steps,
    double base) {
  const at::Tensor& out = outputs.at(0);
  if (const npu_reason why = wants_output(site, out); why != NPU_REASON_NONE) {
    return why;
  }
  // Where CPU cuts fractions off whole numbers is its own affair, and so are
  // the last bits of doubles, which follow the width of its vectors.
  const c10::ScalarType type = out.scalar_type();
  if (steps < 0 || c10::isIntegralType(type, true) || type == at::kDouble ||
      type == at::kComplexDouble ||
      (!out.is_complex() && (!is_real(start) || !is_real(end)))) {
    return kLeaveToCpu;
  }
  npu_range_attrs attrs{
      .start = to_npu_scalar(start),
      .end = to_npu_scalar(end),
      .base = base,
      .count = steps};
  return run_range(site, out, attrs);
}

// ---- eye, indices ----

npu_reason eye(
    NativeSite& site, Outputs& outputs, std::int64_t n, std::int64_t m) {
  const at::Tensor& out = outputs.at(0);
  if (const npu_reason why = wants_output(site, out); why != NPU_REASON_NONE) {
    return why;
  }
  if (n < 0 || m < 0) {
    return kLeaveToCpu;
  }
  out.resize_({n, m});
  if (out.numel() == 0) {
    return NPU_REASON_NONE;
  }
  return run<build::eye>(site, out);
}

namespace {

// Elements of the triangle.
std::int64_t triangle_size(
    std::int64_t rows, std::int64_t cols, std::int64_t offset, bool lower) {
  std::int64_t n = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t kept =
        std::clamp<std::int64_t>(r + offset + (lower ? 1 : 0), 0, cols);
    n += lower ? kept : cols - kept;
  }
  return n;
}

}  // namespace

npu_reason triangle_indices(
    NativeSite& site,
    Outputs& out,
    std::int64_t rows,
    std::int64_t cols,
    std::int64_t offset,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  const c10::ScalarType type = dtype.value_or(at::kLong);
  TORCH_CHECK(
      pin_memory != true,
      "Only dense CPU tensors can be pinned, not npu ones.");
  if (site.caps() == nullptr) {
    return NPU_REASON_NO_KERNEL;
  }
  if (rows < 0 || cols < 0 || (type != at::kLong && type != at::kInt) ||
      layout.value_or(at::kStrided) != at::kStrided) {
    return kLeaveToCpu;
  }
  const bool lower = site.code() == NPU_INDICES_TRIL;
  const std::int64_t n = triangle_size(rows, cols, offset, lower);
  const c10::Device place = device.value_or(c10::Device(kDeviceType));
  const at::Tensor& result = set_output(
      out,
      0,
      {2, n},
      c10::TensorOptions(type).device(
          place.has_index() ? place
                            : c10::Device(kDeviceType, current_device())));
  if (n == 0) {
    return NPU_REASON_NONE;
  }
  npu_indices_attrs attrs{.rows = rows, .cols = cols, .offset = offset};
  return run<build::indices>(site, result, attrs);
}

}  // namespace npu::ops
