// SPDX-License-Identifier: Apache-2.0
// Kinds sort, topk and isin (structured), searchsorted, histogram, bincount.
#include "aten/adapters/rows.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/bincount_cpu_dispatch.h>
#include <ATen/ops/bucketize_cpu_dispatch.h>
#include <ATen/ops/histc_cpu_dispatch.h>
#include <ATen/ops/searchsorted_cpu_dispatch.h>
#include <torch/library.h>

#include <limits>

#include "aten/factories.h"
#include "driver/build_call.h"
#include "impls.h"

namespace npu {
namespace {

// ---- searchsorted ----

// What the CPU rung checks and refuses is left to it.
bool can_search(
    const at::Tensor& sorted,
    const at::Tensor& values,
    bool out_int32,
    bool right,
    const std::optional<std::string_view>& side,
    const at::Tensor& sorter) {
  if (sorter.defined() || sorted.dim() == 0 ||
      sorted.scalar_type() != values.scalar_type() ||
      (side && *side != (right ? "right" : "left") &&
       !(*side == "right" && !right)) ||
      (out_int32 &&
       sorted.size(-1) >= std::numeric_limits<std::int32_t>::max())) {
    return false;
  }
  if (sorted.dim() == 1) {
    return true;
  }
  return sorted.dim() == values.dim() &&
         sorted.sizes().slice(0, sorted.dim() - 1) ==
             values.sizes().slice(0, values.dim() - 1);
}

npu_reason run_search(
    NativeSite& site,
    const at::Tensor& sorted,
    const at::Tensor& values,
    bool right,
    const at::Tensor& out) {
  npu_searchsorted_attrs attrs{};
  attrs.right = right ? 1 : 0;
  Call call = site.call();
  build::searchsorted(
      call,
      to_operand(out),
      to_operand(sorted),
      to_operand(values),
      nullptr,
      attrs);
  return site.run(call, values.device().index());
}

c10::ScalarType index_type(bool out_int32) {
  return out_int32 ? c10::ScalarType::Int : c10::ScalarType::Long;
}

npu_reason wants_search(
    const NativeSite& site,
    const at::Tensor& sorted,
    const at::Tensor& values) {
  return sorted.numel() == 0 || values.numel() == 0 ||
                 !values.device().is_privateuseone()
             ? npu_reason{NPU_REASON_SIZE}
             : site.wants(sorted, values);
}

const at::Tensor& or_none(const std::optional<at::Tensor>& tensor) {
  static const at::Tensor none;
  return tensor ? *tensor : none;
}

at::Tensor searchsorted(
    const at::Tensor& sorted,
    const at::Tensor& self,
    bool out_int32,
    bool right,
    std::optional<std::string_view> side,
    const std::optional<at::Tensor>& sorter) {
  static NativeSite site("aten::searchsorted.Tensor", NPU_KIND_SEARCHSORTED, 0);
  npu_reason why = NPU_REASON_ATTRIBUTE;
  if (can_search(sorted, self, out_int32, right, side, or_none(sorter))) {
    why = wants_search(site, sorted, self);
  }
  if (why == NPU_REASON_NONE) {
    at::Tensor out =
        make_empty(self.sizes(), index_type(out_int32), self.device().index());
    why = run_search(
        site, sorted, self, right || (side && *side == "right"), out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  using Cpu = at::Tensor(
      const at::Tensor&,
      const at::Tensor&,
      bool,
      bool,
      std::optional<std::string_view>,
      const std::optional<at::Tensor>&);
  return site.cpu(
      why,
      static_cast<Cpu*>(&at::cpu::searchsorted),
      sorted,
      self,
      out_int32,
      right,
      side,
      sorter);
}

at::Tensor& searchsorted_out(
    const at::Tensor& sorted,
    const at::Tensor& self,
    bool out_int32,
    bool right,
    std::optional<std::string_view> side,
    const std::optional<at::Tensor>& sorter,
    at::Tensor& out) {
  static NativeSite site(
      "aten::searchsorted.Tensor_out", NPU_KIND_SEARCHSORTED, 0);
  npu_reason why = NPU_REASON_ATTRIBUTE;
  if (can_search(sorted, self, out_int32, right, side, or_none(sorter)) &&
      fits(out, self, self.sizes(), index_type(out_int32)) &&
      !overlaps(out, sorted)) {
    why = wants_search(site, sorted, self);
  }
  if (why == NPU_REASON_NONE) {
    why = run_search(
        site, sorted, self, right || (side && *side == "right"), out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  using Cpu = at::Tensor&(
      const at::Tensor&,
      const at::Tensor&,
      bool,
      bool,
      std::optional<std::string_view>,
      const std::optional<at::Tensor>&,
      at::Tensor&);
  return site.cpu(
      why,
      static_cast<Cpu*>(&at::cpu::searchsorted_outf),
      sorted,
      self,
      out_int32,
      right,
      side,
      sorter,
      out);
}

bool can_bucketize(
    const at::Tensor& self, const at::Tensor& boundaries, bool out_int32) {
  return boundaries.dim() == 1 &&
         can_search(boundaries, self, out_int32, false, std::nullopt, {});
}

at::Tensor bucketize(
    const at::Tensor& self,
    const at::Tensor& boundaries,
    bool out_int32,
    bool right) {
  static NativeSite site("aten::bucketize.Tensor", NPU_KIND_SEARCHSORTED, 0);
  npu_reason why = can_bucketize(self, boundaries, out_int32)
                       ? wants_search(site, boundaries, self)
                       : npu_reason{NPU_REASON_ATTRIBUTE};
  if (why == NPU_REASON_NONE) {
    at::Tensor out =
        make_empty(self.sizes(), index_type(out_int32), self.device().index());
    why = run_search(site, boundaries, self, right, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  using Cpu = at::Tensor(const at::Tensor&, const at::Tensor&, bool, bool);
  return site.cpu(
      why,
      static_cast<Cpu*>(&at::cpu::bucketize),
      self,
      boundaries,
      out_int32,
      right);
}

at::Tensor& bucketize_out(
    const at::Tensor& self,
    const at::Tensor& boundaries,
    bool out_int32,
    bool right,
    at::Tensor& out) {
  static NativeSite site(
      "aten::bucketize.Tensor_out", NPU_KIND_SEARCHSORTED, 0);
  npu_reason why = NPU_REASON_ATTRIBUTE;
  if (can_bucketize(self, boundaries, out_int32) &&
      fits(out, self, self.sizes(), index_type(out_int32)) &&
      !overlaps(out, boundaries)) {
    why = wants_search(site, boundaries, self);
  }
  if (why == NPU_REASON_NONE) {
    why = run_search(site, boundaries, self, right, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  using Cpu = at::Tensor&(
      const at::Tensor&, const at::Tensor&, bool, bool, at::Tensor&);
  return site.cpu(
      why,
      static_cast<Cpu*>(&at::cpu::bucketize_outf),
      self,
      boundaries,
      out_int32,
      right,
      out);
}

// ---- counts ----

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

// First how many bins, then what is in them.
at::Tensor bincount(
    const at::Tensor& self,
    const std::optional<at::Tensor>& weights,
    std::int64_t minlength) {
  static NativeSite site("aten::bincount", NPU_KIND_BINCOUNT, 0);
  const at::Tensor& weight = or_none(weights);
  const bool plain =
      self.dim() == 1 && minlength >= 0 &&
      c10::isIntegralType(self.scalar_type(), /*includeBool=*/false) &&
      (!weight.defined() || weight.sizes() == self.sizes());
  npu_reason why =
      plain ? site.wants(self, weight) : npu_reason{NPU_REASON_ATTRIBUTE};
  if (why == NPU_REASON_NONE) {
    const c10::DeviceIndex device = self.device().index();
    npu_bincount_attrs attrs{};
    attrs.minlength = minlength;
    const OptionalOperand weight_operand(weight);
    at::Tensor total = make_empty({}, c10::ScalarType::Long, device);
    const npu_tensor total_operand = to_operand(total);
    Call count = site.call();
    count.frame().flags |= NPU_CALL_COUNT;
    build::bincount(
        count,
        &total_operand,
        nullptr,
        to_operand(self),
        weight_operand.get(),
        attrs);
    why = site.run(count, device);
    if (why == NPU_REASON_NONE) {
      const c10::ScalarType dtype =
          !weight.defined() ? c10::ScalarType::Long
          : weight.scalar_type() == c10::ScalarType::Float
              ? c10::ScalarType::Float
              : c10::ScalarType::Double;
      at::Tensor out = make_empty({total.item<std::int64_t>()}, dtype, device);
      const npu_tensor out_operand = to_operand(out);
      Call fill = site.call();
      build::bincount(
          fill,
          nullptr,
          &out_operand,
          to_operand(self),
          weight_operand.get(),
          attrs);
      why = site.run(fill, device);
      if (why == NPU_REASON_NONE) {
        return out;
      }
    }
  }
  return site.cpu(why, &at::cpu::bincount, self, weights, minlength);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("bincount", TORCH_FN(bincount));
  m.impl("bucketize.Tensor", TORCH_FN(bucketize));
  m.impl("bucketize.Tensor_out", TORCH_FN(bucketize_out));
  m.impl("histc", TORCH_FN(histc));
  m.impl("searchsorted.Tensor", TORCH_FN(searchsorted));
  m.impl("searchsorted.Tensor_out", TORCH_FN(searchsorted_out));
}

}  // namespace npu

namespace at_npu::native {

npu_reason sort_out(
    npu::NativeSite& site,
    const at::Tensor& self,
    std::optional<bool> stable,
    std::int64_t dim,
    bool descending,
    const at::Tensor& values,
    const at::Tensor& indices) {
  if (npu::overlaps(values, self) || npu::overlaps(indices, self)) {
    return NPU_REASON_ALIAS;
  }
  npu_sort_attrs attrs{};
  attrs.dim = self.dim() == 0 ? -1 : at::maybe_wrap_dim(dim, self.dim());
  attrs.stable = stable.value_or(false) ? 1 : 0;
  attrs.descending = descending ? 1 : 0;
  const npu_tensor value_operand = npu::to_operand(values);
  const npu_tensor index_operand = npu::to_operand(indices);
  npu::Call call = site.call();
  npu::build::sort(
      call, &value_operand, &index_operand, npu::to_operand(self), attrs);
  return site.run(call, self.device().index());
}

npu_reason topk_out(
    npu::NativeSite& site,
    const at::Tensor& self,
    std::int64_t k,
    std::int64_t dim,
    bool largest,
    bool sorted,
    const at::Tensor& values,
    const at::Tensor& indices) {
  if (npu::overlaps(values, self) || npu::overlaps(indices, self) ||
      values.numel() == 0) {
    return NPU_REASON_SIZE;
  }
  npu_topk_attrs attrs{};
  attrs.dim = self.dim() == 0 ? -1 : at::maybe_wrap_dim(dim, self.dim());
  attrs.k = k;
  attrs.largest = largest ? 1 : 0;
  attrs.sorted = sorted ? 1 : 0;
  const npu_tensor index_operand = npu::to_operand(indices);
  npu::Call call = site.call();
  npu::build::topk(
      call,
      npu::to_operand(values),
      &index_operand,
      npu::to_operand(self),
      attrs);
  return site.run(call, self.device().index());
}

npu_reason isin_out(
    npu::NativeSite& site,
    const at::Tensor& elements,
    const at::Tensor& test_elements,
    bool assume_unique,
    bool invert,
    const at::Tensor& out) {
  if (elements.numel() == 0 || test_elements.numel() == 0 ||
      npu::overlaps(out, elements) || npu::overlaps(out, test_elements) ||
      test_elements.device() != elements.device()) {
    return NPU_REASON_SIZE;
  }
  npu_isin_attrs attrs{};
  attrs.assume_unique = assume_unique ? 1 : 0;
  attrs.invert = invert ? 1 : 0;
  npu::Call call = site.call();
  npu::build::isin(
      call,
      npu::to_operand(out),
      npu::to_operand(elements),
      npu::to_operand(test_elements),
      attrs);
  call.frame().compute_dtype = npu::to_npu_dtype(
      c10::promoteTypes(elements.scalar_type(), test_elements.scalar_type()));
  return site.run(call, elements.device().index());
}

}  // namespace at_npu::native
