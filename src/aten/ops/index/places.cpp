// SPDX-License-Identifier: Apache-2.0
// Places among sorted values and edges: searchsorted, bucketize, histogram,
// histc; and isin with a number.
#include <ATen/core/Tensor.h>
// The next ones lean on it.
#include <ATen/ops/aminmax.h>
#include <ATen/ops/bucketize_cpu_dispatch.h>
#include <ATen/ops/histc_cpu_dispatch.h>
#include <ATen/ops/histogram_cpu_dispatch.h>
#include <ATen/ops/isin_cpu_dispatch.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted_cpu_dispatch.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "aten/core/factories.h"
#include "aten/ops/op.h"
#include "aten/ops/operands.h"
#include "aten/ops/rows.h"
#include "driver/build_call.h"
#include "impls.h"

namespace npu {
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

// Nothing given, or an output as it must be.
bool is_free(
    const at::Tensor& given,
    const at::Tensor& a,
    const at::Tensor& b,
    at::IntArrayRef sizes,
    c10::ScalarType type) {
  return !given.defined() ||
         (fits(given, a, sizes, type) && !overlaps(given, b));
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
  npu_reason why = site.wants(sorted, values);
  if (why != NPU_REASON_NONE) {
    return why;
  }
  if (!can_search(
          sorted, values, out_int32, right, side, or_undefined(sorter)) ||
      !is_free(out.at(0), values, sorted, values.sizes(), type)) {
    return kOdd;
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
  const npu_reason why = site.wants(sorted);
  if (why != NPU_REASON_NONE || !goes_with(value, sorted)) {
    return why == NPU_REASON_NONE ? kOdd : why;
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
             : kOdd;
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
             : kOdd;
}

// ---- isin ----

// Those that the kind takes; the CPU rung refuses the others.
bool is_member_type(const at::Tensor& tensor) {
  return !tensor.is_complex() && tensor.scalar_type() != c10::kBool;
}

npu_reason isin_number(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& elements,
    const c10::Scalar& test,
    bool assume_unique,
    bool invert) {
  const npu_reason why = site.wants(elements);
  if (why != NPU_REASON_NONE || !is_member_type(elements) ||
      elements.numel() == 0 || test.isComplex() || test.isBoolean() ||
      !is_free(out.at(0), elements, elements, elements.sizes(), at::kBool)) {
    return why == NPU_REASON_NONE ? kOdd : why;
  }
  const at::Tensor& made =
      set_output(out, 0, elements.sizes(), elements.options().dtype(at::kBool));
  const at::Tensor number =
      number_on(elements, test, at::result_type(elements, test));
  return at_npu::native::isin_out(
      site, elements, number, assume_unique, invert, made);
}

npu_reason number_isin(
    NativeSite& site,
    Outputs& out,
    const c10::Scalar& element,
    const at::Tensor& tests,
    bool assume_unique,
    bool invert) {
  const npu_reason why = site.wants(tests);
  if (why != NPU_REASON_NONE || !is_member_type(tests) || tests.numel() == 0 ||
      element.isComplex() || element.isBoolean() ||
      !is_free(out.at(0), tests, tests, {}, at::kBool)) {
    return why == NPU_REASON_NONE ? kOdd : why;
  }
  const at::Tensor& made =
      set_output(out, 0, {}, tests.options().dtype(at::kBool));
  const at::Tensor number =
      number_on(tests, element, at::result_type(tests, element));
  return at_npu::native::isin_out(
      site, number, tests, assume_unique, invert, made);
}

// ---- histograms ----

bool is_counted(const at::Tensor& self, const at::Tensor& weight) {
  return (self.scalar_type() == at::kFloat ||
          self.scalar_type() == at::kDouble) &&
         on_device(self, weight) && self.numel() != 0 &&
         (!weight.defined() || (weight.sizes() == self.sizes() &&
                                weight.scalar_type() == self.scalar_type()));
}

at::Tensor histc(
    const at::Tensor& self,
    std::int64_t bins,
    const at::Scalar& min,
    const at::Scalar& max) {
  static NativeSite site(
      "aten::histc", NPU_KIND_HISTOGRAM, NPU_HISTOGRAM_UNIFORM);
  const bool plain =
      (self.scalar_type() == at::kFloat || self.scalar_type() == at::kDouble) &&
      bins > 0 && !min.isComplex() && !max.isComplex() &&
      min.toDouble() <= max.toDouble();
  npu_reason why = plain ? site.wants(self) : npu_reason{NPU_REASON_ATTRIBUTE};
  if (why == NPU_REASON_NONE) {
    npu_histogram_attrs attrs{};
    attrs.bins = bins;
    attrs.low = min.toDouble();
    attrs.high = max.toDouble();
    at::Tensor out =
        make_empty({bins}, self.scalar_type(), self.device().index());
    Call call = site.call();
    build::histogram(
        call,
        to_operand(out),
        nullptr,
        to_operand(self),
        nullptr,
        nullptr,
        attrs);
    why = site.run(call, self.device().index());
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, &at::cpu::histc, self, bins, min, max);
}

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
  if (!is_free(out.at(0), self, edges, bins, self.scalar_type()) ||
      !is_free(out.at(1), self, edges, sizes, self.scalar_type())) {
    return kOdd;
  }
  const at::Tensor& hist = set_output(out, 0, bins, self);
  const at::Tensor& kept = set_output(out, 1, sizes, self);
  npu_histogram_attrs attrs{};
  attrs.bins = bins[0];
  attrs.density = density ? 1 : 0;
  const npu_tensor kept_operand = to_operand(kept);
  const npu_tensor edge_operand = to_operand(edges);
  Call call = site.call();
  build::histogram(
      call,
      to_operand(hist),
      &kept_operand,
      to_operand(self),
      &edge_operand,
      MaybeOperand(weight),
      attrs);
  return run(site, call, self);
}

npu_reason histogram(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& edges,
    const OptTensor& weight,
    bool density) {
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(self, edges, w);
  if (takes(
          is_counted(self, w) && on_device(edges) && edges.dim() == 1 &&
              edges.numel() > 1 && edges.scalar_type() == self.scalar_type(),
          why)) {
    why = run_histogram(site, out, self, edges, w, density);
  }
  return why;
}

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

npu_reason histogram_counted(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t bins,
    std::optional<at::ArrayRef<double>> range,
    const OptTensor& weight,
    bool density) {
  const at::Tensor& w = or_undefined(weight);
  npu_reason why = site.wants(self, w);
  double low = 0;
  double high = 0;
  if (takes(
          is_counted(self, w) && bins > 0 &&
              outer_edges(self, range, low, high),
          why)) {
    const at::Tensor edges = at::linspace(low, high, bins + 1, self.options());
    why = run_histogram(site, out, self, edges, w, density);
  }
  return why;
}

// ---- one line per overload ----

template <Name kName, auto kCpu, auto kAttempt>
using Search = Op<kName, NPU_KIND_SEARCHSORTED, 0, kCpu, kAttempt>;
template <Name kName, auto kCpu, auto kAttempt>
using Member = Op<kName, NPU_KIND_ISIN, 0, kCpu, kAttempt>;
template <Name kName, auto kCpu, auto kAttempt>
using Histogram =
    Op<kName, NPU_KIND_HISTOGRAM, NPU_HISTOGRAM_EDGES, kCpu, kAttempt>;

using T = const at::Tensor&;
using S = const at::Scalar&;
using Two = std::tuple<at::Tensor, at::Tensor>;
using TwoOut = std::tuple<at::Tensor&, at::Tensor&>;
using Range = std::optional<at::ArrayRef<double>>;

constexpr auto kSearch =
    static_cast<at::Tensor (*)(T, T, bool, bool, Side, const OptTensor&)>(
        &at::cpu::searchsorted);
constexpr auto kSearchOut = static_cast<
    at::Tensor& (*)(T, T, bool, bool, Side, const OptTensor&, at::Tensor&)>(
    &at::cpu::searchsorted_outf);
constexpr auto kSearchNumber =
    static_cast<at::Tensor (*)(T, S, bool, bool, Side, const OptTensor&)>(
        &at::cpu::searchsorted);
constexpr auto kSearchNumberOut = static_cast<
    at::Tensor& (*)(T, S, bool, bool, Side, const OptTensor&, at::Tensor&)>(
    &at::cpu::searchsorted_outf);
constexpr auto kBucketize =
    static_cast<at::Tensor (*)(T, T, bool, bool)>(&at::cpu::bucketize);
constexpr auto kBucketizeOut =
    static_cast<at::Tensor& (*)(T, T, bool, bool, at::Tensor&)>(
        &at::cpu::bucketize_outf);
constexpr auto kBucketizeNumber =
    static_cast<at::Tensor (*)(S, T, bool, bool)>(&at::cpu::bucketize);
constexpr auto kIsinNumber =
    static_cast<at::Tensor (*)(T, S, bool, bool)>(&at::cpu::isin);
constexpr auto kIsinNumberOut =
    static_cast<at::Tensor& (*)(T, S, bool, bool, at::Tensor&)>(
        &at::cpu::isin_outf);
constexpr auto kNumberIsin =
    static_cast<at::Tensor (*)(S, T, bool, bool)>(&at::cpu::isin);
constexpr auto kNumberIsinOut =
    static_cast<at::Tensor& (*)(S, T, bool, bool, at::Tensor&)>(
        &at::cpu::isin_outf);
constexpr auto kHistogram =
    static_cast<Two (*)(T, T, const OptTensor&, bool)>(&at::cpu::histogram);
constexpr auto kHistogramOut = static_cast<TwoOut (*)(
    T, T, const OptTensor&, bool, at::Tensor&, at::Tensor&)>(
    &at::cpu::histogram_outf);
constexpr auto kHistogramCounted =
    static_cast<Two (*)(T, std::int64_t, Range, const OptTensor&, bool)>(
        &at::cpu::histogram);
constexpr auto kHistogramCountedOut = static_cast<TwoOut (*)(
    T, std::int64_t, Range, const OptTensor&, bool, at::Tensor&, at::Tensor&)>(
    &at::cpu::histogram_outf);

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  add<Search<"searchsorted.Tensor", kSearch, search>>(m);
  add<Search<"searchsorted.Tensor_out", kSearchOut, search>>(m);
  add<Search<"searchsorted.Scalar", kSearchNumber, search_number>>(m);
  add<Search<"searchsorted.Scalar_out", kSearchNumberOut, search_number>>(m);
  add<Search<"bucketize.Tensor", kBucketize, bucketize>>(m);
  add<Search<"bucketize.Tensor_out", kBucketizeOut, bucketize>>(m);
  add<Search<"bucketize.Scalar", kBucketizeNumber, bucketize_number>>(m);
  add<Member<"isin.Tensor_Scalar", kIsinNumber, isin_number>>(m);
  add<Member<"isin.Tensor_Scalar_out", kIsinNumberOut, isin_number>>(m);
  add<Member<"isin.Scalar_Tensor", kNumberIsin, number_isin>>(m);
  add<Member<"isin.Scalar_Tensor_out", kNumberIsinOut, number_isin>>(m);
  m.impl("histc", TORCH_FN(histc));
  add<Histogram<"histogram.bins_tensor", kHistogram, histogram>>(m);
  add<Histogram<"histogram.bins_tensor_out", kHistogramOut, histogram>>(m);
  add<Histogram<"histogram.bin_ct", kHistogramCounted, histogram_counted>>(m);
  add<Histogram<
      "histogram.bin_ct_out",
      kHistogramCountedOut,
      histogram_counted>>(m);
}

}  // namespace npu
