// SPDX-License-Identifier: Apache-2.0
// scatter and index_add, index_copy, index_fill, index_reduce: elements and
// slices written at indices.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/index_add_cpu_dispatch.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_copy_cpu_dispatch.h>
#include <ATen/ops/index_copy_meta.h>
#include <ATen/ops/index_fill_cpu_dispatch.h>
#include <ATen/ops/index_reduce_cpu_dispatch.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/scatter_add_cpu_dispatch.h>
#include <ATen/ops/scatter_add_meta.h>
#include <ATen/ops/scatter_cpu_dispatch.h>
#include <ATen/ops/scatter_meta.h>
#include <ATen/ops/scatter_reduce_cpu_dispatch.h>
#include <ATen/ops/scatter_reduce_meta.h>

#include <optional>
#include <utility>

#include "aten/ops/op.h"
#include "aten/ops/operands.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using c10::Scalar;
using c10::string_view;

// ---- scatter ----

npu_reason run_scatter(
    NativeSite& site,
    std::optional<std::uint32_t> code,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const npu_tensor& src,
    bool include_self) {
  if (!code || self.dim() != index.dim() || !is_index(index) ||
      self.numel() == 0) {
    return kOdd;
  }
  const at::Tensor& result = begin_with(out, self);
  if (index.numel() == 0) {
    return NPU_REASON_NONE;
  }
  npu_scatter_attrs attrs{};
  attrs.dim = at::maybe_wrap_dim(dim, self.dim());
  attrs.include_self = include_self ? 1 : 0;
  Call call = site.call();
  call.frame().code = *code;
  build::scatter(call, to_operand(result), to_operand(index), src, attrs);
  return run_checked(site, call, self);
}

npu_reason run_scatter(
    NativeSite& site,
    std::optional<std::uint32_t> code,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src,
    bool include_self) {
  if (src.dim() != index.dim() || src.scalar_type() != self.scalar_type()) {
    return kOdd;
  }
  return run_scatter(
      site, code, out, self, dim, index, to_operand(src), include_self);
}

// set and add, whose code is known from the operator's name.
template <class Meta>
npu_reason scatter_src(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src) {
  if (const npu_reason why = site.wants(self, index, src);
      why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, self, dim, index, src);
  return run_scatter(site, site.code(), out, self, dim, index, src, true);
}

npu_reason scatter_value(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const Scalar& value) {
  if (const npu_reason why = site.wants(self, index); why != NPU_REASON_NONE) {
    return why;
  }
  shape<at::meta::structured_scatter_value>(out, self, dim, index, value);
  const NumberOperand number(value, self);
  return run_scatter(
      site, site.code(), out, self, dim, index, number.operand(), true);
}

// The code a reduction's name stands for; CPU has the error for others.
std::optional<std::uint32_t> scatter_code(string_view reduce) {
  constexpr std::pair<string_view, std::uint32_t> kNames[] = {
      {"add", NPU_SCATTER_ADD},
      {"sum", NPU_SCATTER_ADD},
      {"multiply", NPU_SCATTER_MUL},
      {"prod", NPU_SCATTER_MUL},
      {"mean", NPU_SCATTER_MEAN},
      {"amin", NPU_SCATTER_MIN},
      {"amax", NPU_SCATTER_MAX}};
  for (const auto& [name, code] : kNames) {
    if (name == reduce) {
      return code;
    }
  }
  return std::nullopt;
}

npu_reason scatter_reduced(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src,
    string_view reduce) {
  if (const npu_reason why = site.wants(self, index, src);
      why != NPU_REASON_NONE) {
    return why;
  }
  shape<at::meta::structured_scatter_reduce>(
      out, self, dim, index, src, reduce);
  return run_scatter(
      site, scatter_code(reduce), out, self, dim, index, src, true);
}

npu_reason scatter_value_reduced(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const Scalar& value,
    string_view reduce) {
  if (const npu_reason why = site.wants(self, index); why != NPU_REASON_NONE) {
    return why;
  }
  shape<at::meta::structured_scatter_value_reduce>(
      out, self, dim, index, value, reduce);
  const NumberOperand number(value, self);
  return run_scatter(
      site,
      scatter_code(reduce),
      out,
      self,
      dim,
      index,
      number.operand(),
      true);
}

npu_reason scatter_reduce_two(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src,
    string_view reduce,
    bool include_self) {
  if (const npu_reason why = site.wants(self, index, src);
      why != NPU_REASON_NONE) {
    return why;
  }
  shape<at::meta::structured_scatter_reduce_two>(
      out, self, dim, index, src, reduce, include_self);
  return run_scatter(
      site, scatter_code(reduce), out, self, dim, index, src, include_self);
}

// ---- index_add, index_copy, index_reduce, index_fill ----

npu_reason run_update(
    NativeSite& site,
    std::uint32_t code,
    const at::Tensor& result,
    const at::Tensor& index,
    const npu_tensor& source,
    npu_index_update_attrs& attrs) {
  if (index.numel() == 0) {
    return NPU_REASON_NONE;
  }
  Call call = site.call();
  call.frame().code = code;
  build::index_update(
      call, to_operand(result), to_operand(index), source, attrs);
  return run_checked(site, call, result);
}

bool is_plain_update(
    const at::Tensor& self, const at::Tensor& index, const at::Tensor& source) {
  return self.dim() > 0 && source.dim() == self.dim() && self.numel() > 0 &&
         is_index(index) && index.dim() <= 1 &&
         source.scalar_type() == self.scalar_type() &&
         at::has_internal_overlap(self) != at::MemOverlap::Yes;
}

npu_reason index_add(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source,
    const Scalar& alpha) {
  if (const npu_reason why = site.wants(self, index, source);
      why != NPU_REASON_NONE) {
    return why;
  }
  const auto found = shape<at::meta::structured_index_add>(
      out, self, dim, index, source, alpha);
  if (!is_plain_update(self, index, source)) {
    return kOdd;
  }
  npu_index_update_attrs attrs{};
  attrs.dim = found.dim;
  attrs.include_self = 1;
  attrs.alpha = to_npu_scalar(alpha);
  const at::Tensor& result = begin_with(out, self);
  return run_update(
      site, NPU_INDEX_UPDATE_ADD, result, index, to_operand(source), attrs);
}

npu_reason index_copy(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source) {
  if (const npu_reason why = site.wants(self, index, source);
      why != NPU_REASON_NONE) {
    return why;
  }
  const auto found =
      shape<at::meta::structured_index_copy>(out, self, dim, index, source);
  if (!is_plain_update(self, index, source)) {
    return kOdd;
  }
  npu_index_update_attrs attrs{};
  attrs.dim = found.dim;
  const at::Tensor& result = begin_with(out, self);
  return run_update(
      site, NPU_INDEX_UPDATE_COPY, result, index, to_operand(source), attrs);
}

npu_reason index_reduce(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source,
    string_view reduce,
    bool include_self) {
  if (const npu_reason why = site.wants(self, index, source);
      why != NPU_REASON_NONE) {
    return why;
  }
  const auto found = shape<at::meta::structured_index_reduce>(
      out, self, dim, index, source, reduce, include_self);
  if (!is_plain_update(self, index, source)) {
    return kOdd;
  }
  const std::uint32_t code = reduce == "prod"   ? NPU_INDEX_UPDATE_PROD
                             : reduce == "mean" ? NPU_INDEX_UPDATE_MEAN
                             : reduce == "amin" ? NPU_INDEX_UPDATE_AMIN
                                                : NPU_INDEX_UPDATE_AMAX;
  npu_index_update_attrs attrs{};
  attrs.dim = found.dim;
  attrs.include_self = include_self ? 1 : 0;
  const at::Tensor& result = begin_with(out, self);
  return run_update(site, code, result, index, to_operand(source), attrs);
}

npu_reason index_fill(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const Scalar& value) {
  if (const npu_reason why = site.wants(self, index); why != NPU_REASON_NONE) {
    return why;
  }
  if (self.dim() == 0 || index.dim() > 1 || self.numel() == 0 ||
      index.scalar_type() != at::kLong ||
      (value.isComplex() && !self.is_complex()) ||
      at::has_internal_overlap(self) != at::MemOverlap::No) {
    return kOdd;
  }
  npu_index_update_attrs attrs{};
  attrs.dim = at::maybe_wrap_dim(dim, self.dim());
  const NumberOperand number(value, self);
  return run_update(
      site, NPU_INDEX_UPDATE_FILL, out.at(0), index, number.operand(), attrs);
}

npu_reason index_fill_tensor(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& value) {
  if (site.caps() == nullptr) {
    return NPU_REASON_NO_KERNEL;
  }
  return value.dim() == 0
             ? index_fill(site, out, self, dim, index, value.item())
             : kOdd;
}

// ---- rows ----

using at::Tensor;
using std::int64_t;
template <class... Last>
using New = Tensor (*)(const Tensor&, int64_t, const Tensor&, Last...);
template <class... Last>
using InPlace = Tensor& (*)(Tensor&, int64_t, const Tensor&, Last...);
constexpr std::uint32_t kScatter = NPU_KIND_SCATTER;
constexpr std::uint32_t kUpdate = NPU_KIND_INDEX_UPDATE;

void add_scatter(torch::Library& m) {
  constexpr auto src = scatter_src<at::meta::structured_scatter_src>;
  constexpr New<const Tensor&> new_src = &at::cpu::scatter;
  constexpr InPlace<const Tensor&> in_src = &at::cpu::scatter_;
  constexpr auto out_src = static_cast<
      Tensor& (*)(const Tensor&, int64_t, const Tensor&, const Tensor&, Tensor&)>(
      &at::cpu::scatter_outf);
  add<Op<"scatter.src", kScatter, 0, new_src, src>>(m);
  add<Op<"scatter_.src", kScatter, 0, in_src, src>>(m);
  add<Op<"scatter.src_out", kScatter, 0, out_src, src>>(m);

  constexpr New<const Scalar&> new_value = &at::cpu::scatter;
  constexpr InPlace<const Scalar&> in_value = &at::cpu::scatter_;
  constexpr auto out_value = static_cast<
      Tensor& (*)(const Tensor&, int64_t, const Tensor&, const Scalar&, Tensor&)>(
      &at::cpu::scatter_outf);
  add<Op<"scatter.value", kScatter, 0, new_value, scatter_value>>(m);
  add<Op<"scatter_.value", kScatter, 0, in_value, scatter_value>>(m);
  add<Op<"scatter.value_out", kScatter, 0, out_value, scatter_value>>(m);
}

void add_scatter_reduced(torch::Library& m) {
  constexpr New<const Tensor&, string_view> new_src = &at::cpu::scatter;
  constexpr InPlace<const Tensor&, string_view> in_src = &at::cpu::scatter_;
  constexpr auto out_src = static_cast<
      Tensor& (*)(const Tensor&, int64_t, const Tensor&, const Tensor&, string_view, Tensor&)>(
      &at::cpu::scatter_outf);
  constexpr std::uint32_t k = NPU_SCATTER_ADD;
  add<Op<"scatter.reduce", kScatter, k, new_src, scatter_reduced>>(m);
  add<Op<"scatter_.reduce", kScatter, k, in_src, scatter_reduced>>(m);
  add<Op<"scatter.reduce_out", kScatter, k, out_src, scatter_reduced>>(m);

  constexpr auto value = scatter_value_reduced;
  constexpr New<const Scalar&, string_view> new_value = &at::cpu::scatter;
  constexpr InPlace<const Scalar&, string_view> in_value = &at::cpu::scatter_;
  constexpr auto out_value = static_cast<
      Tensor& (*)(const Tensor&, int64_t, const Tensor&, const Scalar&, string_view, Tensor&)>(
      &at::cpu::scatter_outf);
  add<Op<"scatter.value_reduce", kScatter, k, new_value, value>>(m);
  add<Op<"scatter_.value_reduce", kScatter, k, in_value, value>>(m);
  add<Op<"scatter.value_reduce_out", kScatter, k, out_value, value>>(m);

  constexpr auto two = scatter_reduce_two;
  using namespace at::cpu;
  add<Op<"scatter_reduce.two", kScatter, k, &scatter_reduce, two>>(m);
  add<Op<"scatter_reduce_.two", kScatter, k, &scatter_reduce_, two>>(m);
  add<Op<"scatter_reduce.two_out", kScatter, k, &scatter_reduce_outf, two>>(m);
  constexpr auto sum = scatter_src<at::meta::structured_scatter_add>;
  add<Op<"scatter_add", kScatter, k, &scatter_add, sum>>(m);
  add<Op<"scatter_add_", kScatter, k, &scatter_add_, sum>>(m);
  add<Op<"scatter_add.out", kScatter, k, &scatter_add_outf, sum>>(m);
}

void add_updates(torch::Library& m) {
  using namespace at::cpu;
  constexpr std::uint32_t kAdd = NPU_INDEX_UPDATE_ADD;
  constexpr std::uint32_t kCopy = NPU_INDEX_UPDATE_COPY;
  constexpr std::uint32_t kFill = NPU_INDEX_UPDATE_FILL;
  constexpr std::uint32_t kReduce = NPU_INDEX_UPDATE_PROD;
  constexpr auto sum = npu::index_add;
  constexpr auto copied = npu::index_copy;
  constexpr auto reduced = npu::index_reduce;
  add<Op<"index_add", kUpdate, kAdd, &at::cpu::index_add, sum>>(m);
  add<Op<"index_add_", kUpdate, kAdd, &index_add_, sum>>(m);
  add<Op<"index_add.out", kUpdate, kAdd, &index_add_outf, sum>>(m);
  add<Op<"index_copy", kUpdate, kCopy, &at::cpu::index_copy, copied>>(m);
  add<Op<"index_copy_", kUpdate, kCopy, &index_copy_, copied>>(m);
  add<Op<"index_copy.out", kUpdate, kCopy, &index_copy_outf, copied>>(m);
  add<Op<"index_reduce", kUpdate, kReduce, &at::cpu::index_reduce, reduced>>(m);
  add<Op<"index_reduce_", kUpdate, kReduce, &index_reduce_, reduced>>(m);
  add<Op<"index_reduce.out", kUpdate, kReduce, &index_reduce_outf, reduced>>(m);
  constexpr InPlace<const Scalar&> fill = &index_fill_;
  constexpr InPlace<const Tensor&> fill_by = &index_fill_;
  add<Op<"index_fill_.int_Scalar", kUpdate, kFill, fill, index_fill>>(m);
  add<Op<"index_fill_.int_Tensor", kUpdate, kFill, fill_by, index_fill_tensor>>(
      m);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  add_scatter(m);
  add_scatter_reduced(m);
  add_updates(m);
}

}  // namespace npu
