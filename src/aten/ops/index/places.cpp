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
npu_reason check_search(
    const at::Tensor& sorted,
    const at::Tensor& values,
    bool out_int32,
    bool right,
    const Side& side,
    const at::Tensor& sorter) {
  const bool usual_side = !side || *side == (right ? "right" : "left") ||
                          (*side == "right" && !right);
  if (const npu_reason why = first_failed(
          {{same_dtype(sorted, values), NPU_REASON_DTYPE},
           {sorted.numel() != 0 && values.numel() != 0, NPU_REASON_SIZE},
           {!sorter.defined() && sorted.dim() != 0 &&
                on_device(sorted, values) && usual_side,
            kLeaveToCpu}})) {
    return why;
  }
  const bool counted =
      !out_int32 || sorted.size(-1) < std::numeric_limits<std::int32_t>::max();
  const bool rows =
      sorted.dim() == 1 || (sorted.dim() == values.dim() &&
                            sorted.sizes().slice(0, sorted.dim() - 1) ==
                                values.sizes().slice(0, values.dim() - 1));
  return counted && rows ? npu_reason{NPU_REASON_NONE} : kLeaveToCpu;
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
    const at::Tensor& sorter) {
  const c10::ScalarType type = out_int32 ? at::kInt : at::kLong;
  if (const npu_reason why =
          check_search(sorted, values, out_int32, right, side, sorter)) {
    return why;
  }
  if (!is_ready(out.at(0), values.sizes(), type, {&values, &sorted})) {
    return kLeaveToCpu;
  }
  const at::Tensor& made =
      set_output(out, 0, values.sizes(), values.options().dtype(type));
  npu_searchsorted_attrs attrs{.right = right || (side && *side == "right")};
  return run<build::searchsorted>(site, made, sorted, values, nullptr, attrs);
}

npu_reason search_number(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& sorted,
    const c10::Scalar& value,
    bool out_int32,
    bool right,
    Side side,
    const at::Tensor& sorter) {
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

// The number meets the tensor in the dtype of both.
npu_reason isin_number(
    NativeSite& site,
    Outputs& out,
    bool number_is_element,
    const at::Tensor& tensor,
    const c10::Scalar& value,
    bool assume_unique,
    bool invert) {
  const at::IntArrayRef sizes =
      number_is_element ? at::IntArrayRef() : tensor.sizes();
  if (const npu_reason why = first_failed(
          {{!tensor.is_complex() && tensor.scalar_type() != c10::kBool &&
                !value.isComplex() && !value.isBoolean(),
            NPU_REASON_DTYPE},
           {tensor.numel() != 0, NPU_REASON_SIZE},
           {is_ready(out.at(0), sizes, at::kBool, {&tensor}), kLeaveToCpu}})) {
    return why;
  }
  const at::Tensor& made =
      set_output(out, 0, sizes, tensor.options().dtype(at::kBool));
  const at::Tensor number =
      number_on(tensor, value, at::result_type(tensor, value));
  return number_is_element
             ? isin_out(site, number, tensor, assume_unique, invert, made)
             : isin_out(site, tensor, number, assume_unique, invert, made);
}

// ---- histograms ----

namespace {

npu_reason check_counted(const at::Tensor& self, const at::Tensor& weight) {
  return first_failed(
      {{(self.scalar_type() == at::kFloat ||
         self.scalar_type() == at::kDouble) &&
            (!weight.defined() || same_dtype(weight, self)),
        NPU_REASON_DTYPE},
       {self.numel() != 0, NPU_REASON_SIZE},
       {on_device(self, weight) && has_sizes(weight, self.sizes()),
        kLeaveToCpu}});
}

// Accelerators count integers, the CPU function refuses them: the same in
// float64.
npu_reason histc_of_integers(
    Outputs& out,
    const at::Tensor& self,
    std::int64_t bins,
    const at::Scalar& min,
    const at::Scalar& max) {
  if (!is_ready(out.at(0), {bins}, self.scalar_type(), {&self})) {
    return kLeaveToCpu;
  }
  const at::Tensor counts = at::histc(self.to(at::kDouble), bins, min, max);
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
  if (const npu_reason why = check_counted(self, {})) {
    return why;
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
  npu_histogram_attrs attrs{
      .bins = bins, .low = min.toDouble(), .high = max.toDouble()};
  return run<build::histogram>(
      site, out.at(0), nullptr, self, nullptr, nullptr, attrs);
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
  npu_histogram_attrs attrs{.bins = bins[0], .density = density};
  return run<build::histogram>(site, hist, kept, self, edges, weight, attrs);
}

}  // namespace

npu_reason histogram(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& edges,
    const at::Tensor& w,
    bool density) {
  if (const npu_reason why = check_counted(self, w)) {
    return why;
  }
  if (!same_dtype(edges, self)) {
    return NPU_REASON_DTYPE;
  }
  return on_device(edges) && edges.dim() == 1 && edges.numel() > 1
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
    const at::Tensor& w,
    bool density) {
  if (const npu_reason why = check_counted(self, w)) {
    return why;
  }
  double low = 0;
  double high = 0;
  if (bins <= 0 || !outer_edges(self, range, low, high)) {
    return kLeaveToCpu;
  }
  const at::Tensor edges = at::linspace(low, high, bins + 1, self.options());
  return run_histogram(site, out, self, edges, w, density);
}

}  // namespace npu::ops
