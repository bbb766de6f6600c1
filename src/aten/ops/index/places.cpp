// SPDX-License-Identifier: Apache-2.0
// Places among sorted values and edges: searchsorted, bucketize, histogram,
// histc; and isin with a number.
#include <ATen/ops/aminmax.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "aten/ops/op.h"
#include "attempts/index.h"
#include "attempts/order.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

using Side = std::optional<std::string_view>;

// A number as a tensor of no dimension beside `like`, in `type`.
at::Tensor number_on(
    const at::Tensor& like, const c10::Scalar& value, c10::ScalarType type) {
  return at::scalar_tensor(value, like.options().dtype(type));
}

// A number that takes the dtype of the tensor it meets.
bool goes_with(const c10::Scalar& value, const at::Tensor& tensor) {
  return !tensor.is_complex() && tensor.scalar_type() != c10::kBool &&
         (value.isIntegral(/*includeBool=*/false) ||
          (value.isFloatingPoint() && tensor.is_floating_point()));
}

// ---- searchsorted, bucketize ----

// What the CPU rung checks and refuses is left to it.
bool can_search(
    const at::Tensor& sorted,
    const at::Tensor& values,
    bool out_int32,
    bool right,
    const Side& side,
    const at::Tensor& sorter) {
  if (sorter.defined() || sorted.dim() == 0 || sorted.numel() == 0 ||
      values.numel() == 0 || !on_device(sorted, values) ||
      sorted.scalar_type() != values.scalar_type() ||
      (side && *side != (right ? "right" : "left") &&
       !(*side == "right" && !right)) ||
      (out_int32 &&
       sorted.size(-1) >= std::numeric_limits<std::int32_t>::max())) {
    return false;
  }
  return sorted.dim() == 1 || (sorted.dim() == values.dim() &&
                               sorted.sizes().slice(0, sorted.dim() - 1) ==
                                   values.sizes().slice(0, values.dim() - 1));
}

}  // namespace

npu_reason search(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& sorted,
    const at::Tensor& values,
    bool out_int32,
    bool right,
    Side side,
    const OptTensor& sorter) {
  const c10::ScalarType type = out_int32 ? at::kInt : at::kLong;
  if (!can_search(
          sorted, values, out_int32, right, side, or_undefined(sorter)) ||
      !is_ready(out.at(0), values.sizes(), type, {&values, &sorted})) {
    return kLeaveToCpu;
  }
  const at::Tensor& made =
      set_output(out, 0, values.sizes(), values.options().dtype(type));
  npu_searchsorted_attrs attrs{};
  attrs.right = right || (side && *side == "right") ? 1 : 0;
  Call call = site.call();
  build::searchsorted(
      call,
      to_operand(made),
      to_operand(sorted),
      to_operand(values),
      nullptr,
      attrs);
  return run(site, call, values);
}

npu_reason search_number(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& sorted,
    const c10::Scalar& value,
    bool out_int32,
    bool right,
    Side side,
    const OptTensor& sorter) {
  if (!goes_with(value, sorted)) {
    return kLeaveToCpu;
  }
  const at::Tensor values = number_on(sorted, value, sorted.scalar_type());
  return search(site, out, sorted, values, out_int32, right, side, sorter);
}

npu_reason bucketize(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& values,
    const at::Tensor& boundaries,
    bool out_int32,
    bool right) {
  return boundaries.dim() == 1
             ? search(site, out, boundaries, values, out_int32, right, {}, {})
             : kLeaveToCpu;
}

npu_reason bucketize_number(
    NativeSite& site,
    Outputs& out,
    const c10::Scalar& value,
    const at::Tensor& boundaries,
    bool out_int32,
    bool right) {
  return boundaries.dim() == 1
             ? search_number(
                   site, out, boundaries, value, out_int32, right, {}, {})
             : kLeaveToCpu;
}

// ---- isin ----

namespace {

// Those that the kind takes; the CPU rung refuses the others.
bool is_member_type(const at::Tensor& tensor) {
  return !tensor.is_complex() && tensor.scalar_type() != c10::kBool;
}

}  // namespace

npu_reason isin_number(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& elements,
    const c10::Scalar& test,
    bool assume_unique,
    bool invert) {
  if (!is_member_type(elements)) {
    return NPU_REASON_DTYPE;
  }
  if (elements.numel() == 0 || test.isComplex() || test.isBoolean() ||
      !is_ready(out.at(0), elements.sizes(), at::kBool, {&elements})) {
    return kLeaveToCpu;
  }
  const at::Tensor& made =
      set_output(out, 0, elements.sizes(), elements.options().dtype(at::kBool));
  const at::Tensor number =
      number_on(elements, test, at::result_type(elements, test));
  return isin_out(site, elements, number, assume_unique, invert, made);
}

npu_reason number_isin(
    NativeSite& site,
    Outputs& out,
    const c10::Scalar& element,
    const at::Tensor& tests,
    bool assume_unique,
    bool invert) {
  if (!is_member_type(tests)) {
    return NPU_REASON_DTYPE;
  }
  if (tests.numel() == 0 || element.isComplex() || element.isBoolean() ||
      !is_ready(out.at(0), {}, at::kBool, {&tests})) {
    return kLeaveToCpu;
  }
  const at::Tensor& made =
      set_output(out, 0, {}, tests.options().dtype(at::kBool));
  const at::Tensor number =
      number_on(tests, element, at::result_type(tests, element));
  return isin_out(site, number, tests, assume_unique, invert, made);
}

// ---- histograms ----

namespace {

bool is_counted(const at::Tensor& self, const at::Tensor& weight) {
  return (self.scalar_type() == at::kFloat ||
          self.scalar_type() == at::kDouble) &&
         on_device(self, weight) && self.numel() != 0 &&
         (!weight.defined() || (weight.sizes() == self.sizes() &&
                                weight.scalar_type() == self.scalar_type()));
}

// Accelerators count integers, the CPU function refuses them: the same in
// float64.
npu_reason histc_of_integers(
    Outputs& out,
    const at::Tensor& self,
    std::int64_t bins,
    const at::Scalar& min,
    const at::Scalar& max) {
  const at::Tensor counts = at::histc(self.to(at::kDouble), bins, min, max);
  if (!is_ready(out.at(0), {bins}, self.scalar_type(), {&self})) {
    return kLeaveToCpu;
  }
  set_output(out, 0, {bins}, self).copy_(counts);
  return NPU_REASON_NONE;
}

}  // namespace

npu_reason histc(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t bins,
    const at::Scalar& min,
    const at::Scalar& max) {
  if (c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    return histc_of_integers(out, self, bins, min, max);
  }
  if (self.scalar_type() != at::kFloat && self.scalar_type() != at::kDouble) {
    return NPU_REASON_DTYPE;
  }
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  if (bins <= 0 || min.isComplex() || max.isComplex() ||
      min.toDouble() > max.toDouble() ||
      !is_ready(out.at(0), {bins}, self.scalar_type(), {&self})) {
    return kLeaveToCpu;
  }
  set_output(out, 0, {bins}, self);
  npu_histogram_attrs attrs{};
  attrs.bins = bins;
  attrs.low = min.toDouble();
  attrs.high = max.toDouble();
  Call call = site.call();
  build::histogram(
      call,
      to_operand(out.at(0)),
      nullptr,
      to_operand(self),
      nullptr,
      nullptr,
      attrs);
  return run(site, call, self);
}

namespace {

// Between edges that increase; hist in output 0, the edges in output 1.
npu_reason run_histogram(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& edges,
    const at::Tensor& weight,
    bool density) {
  const at::IntArrayRef sizes = edges.sizes();
  const at::DimVector bins = {edges.numel() - 1};
  const c10::ScalarType type = self.scalar_type();
  if (!is_ready(out.at(0), bins, type, {&self, &edges}) ||
      !is_ready(out.at(1), sizes, type, {&self, &edges})) {
    return kLeaveToCpu;
  }
  const at::Tensor& hist = set_output(out, 0, bins, self);
  const at::Tensor& kept = set_output(out, 1, sizes, self);
  npu_histogram_attrs attrs{};
  attrs.bins = bins[0];
  attrs.density = density ? 1 : 0;
  Call call = site.call();
  build::histogram(
      call,
      to_operand(hist),
      MaybeOperand(kept),
      to_operand(self),
      MaybeOperand(edges),
      MaybeOperand(weight),
      attrs);
  return run(site, call, self);
}

}  // namespace

npu_reason histogram(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& edges,
    const OptTensor& weight,
    bool density) {
  const at::Tensor& w = or_undefined(weight);
  if (!same_dtype(edges, self)) {
    return NPU_REASON_DTYPE;
  }
  return is_counted(self, w) && on_device(edges) && edges.dim() == 1 &&
                 edges.numel() > 1
             ? run_histogram(site, out, self, edges, w, density)
             : kLeaveToCpu;
}

namespace {

// The outermost edges as CPU chooses them. False: not ones to count between.
bool outer_edges(
    const at::Tensor& self,
    const std::optional<at::ArrayRef<double>>& range,
    double& low,
    double& high) {
  if (range) {
    if (range->size() != 2) {
      return false;
    }
    low = (*range)[0];
    high = (*range)[1];
  } else {
    const auto [least, greatest] = at::aminmax(self);
    low = least.item<double>();
    high = greatest.item<double>();
  }
  if (!std::isfinite(low) || !std::isfinite(high) || low > high) {
    return false;
  }
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  return true;
}

}  // namespace

npu_reason histogram_counted(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t bins,
    std::optional<at::ArrayRef<double>> range,
    const OptTensor& weight,
    bool density) {
  const at::Tensor& w = or_undefined(weight);
  double low = 0;
  double high = 0;
  if (!is_counted(self, w) || bins <= 0 ||
      !outer_edges(self, range, low, high)) {
    return kLeaveToCpu;
  }
  const at::Tensor edges = at::linspace(low, high, bins + 1, self.options());
  return run_histogram(site, out, self, edges, w, density);
}

}  // namespace npu::ops
