// SPDX-License-Identifier: Apache-2.0
// cat, roll, tril and triu: elements moved as they are.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat_cpu_dispatch.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/roll_cpu_dispatch.h>
#include <ATen/ops/tril_cpu_dispatch.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/triu_cpu_dispatch.h>
#include <ATen/ops/triu_meta.h>

#include <vector>

#include "aten/ops/op.h"
#include "driver/build_call.h"

namespace npu {
namespace {

// ---- cat ----

npu_reason cat(
    NativeSite& site,
    Outputs& out,
    const at::ITensorListRef& tensors,
    std::int64_t dim) {
  if (site.caps() == nullptr) {
    return NPU_REASON_NO_KERNEL;
  }
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& tensor : tensors) {
    // The meta function says which empty ones may stand among the others.
    if (tensor.numel() == 0) {
      continue;
    }
    if (const npu_reason why = site.wants(tensor); why != NPU_REASON_NONE) {
      return why;
    }
    if (!pieces.empty() && tensor.device() != pieces[0].device()) {
      return kOdd;
    }
    pieces.push_back(tensor);
  }
  if (pieces.empty()) {
    return kOdd;
  }
  const auto found = shape<at::meta::structured_cat>(out, tensors, dim);
  const at::Tensor& result = out.at(0);
  std::vector<npu_tensor> operands;
  std::vector<void*> data;
  std::vector<std::int64_t> numel;
  for (at::Tensor& piece : pieces) {
    if (piece.is_alias_of(result)) {
      return kOdd;
    }
    piece = piece.to(result.scalar_type());
    operands.push_back(to_operand(piece));
    data.push_back(operands.back().data);
    numel.push_back(operands.back().numel);
  }
  npu_list list{};
  list.n = static_cast<std::uint32_t>(operands.size());
  list.dtype = operands[0].dtype;
  list.data = data.data();
  list.numel = numel.data();
  list.tensors = operands.data();
  npu_cat_attrs attrs{};
  attrs.dim = found.dim;
  Call call = site.call();
  build::cat(call, to_operand(result), list, attrs);
  return run(site, call, result);
}

// ---- roll ----

npu_reason roll(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    at::IntArrayRef shifts,
    at::IntArrayRef dims) {
  npu_roll_attrs attrs{};
  constexpr std::size_t kMost = std::size(npu_roll_attrs{}.axes);
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  // Without dims the elements are one row.
  const bool flat = dims.empty() && shifts.size() == 1;
  if (!flat && (dims.empty() || dims.size() != shifts.size() ||
                dims.size() > kMost || self.dim() == 0)) {
    return kOdd;
  }
  const at::Tensor in = flat ? self.reshape({-1}) : self;
  attrs.n = static_cast<std::int64_t>(shifts.size());
  for (std::size_t i = 0; i < shifts.size(); ++i) {
    attrs.axes[i] = flat ? 0 : at::maybe_wrap_dim(dims[i], self.dim());
    attrs.shifts[i] = shifts[i];
  }
  const at::Tensor& result = set_output(out, 0, self.sizes(), self);
  const at::Tensor view = flat ? result.view({-1}) : result;
  Call call = site.call();
  build::roll(call, to_operand(view), to_operand(in), attrs);
  return run(site, call, self);
}

// ---- tril, triu ----

template <class Meta>
npu_reason triangle(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t diagonal) {
  if (const npu_reason why = site.wants(self); why != NPU_REASON_NONE) {
    return why;
  }
  shape<Meta>(out, self, diagonal);
  const at::Tensor& result = out.at(0);
  const npu_tensor in = input_operand(self, result);
  if ((in.flags & NPU_TENSOR_ALIAS) == 0 && self.is_alias_of(result)) {
    return kOdd;
  }
  npu_triangle_attrs attrs{};
  attrs.diagonal = diagonal;
  Call call = site.call();
  build::triangle(call, to_operand(result), in, attrs);
  return run(site, call, self);
}
constexpr auto tril = triangle<at::meta::structured_tril>;
constexpr auto triu = triangle<at::meta::structured_triu>;

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  add<Op<"cat", NPU_KIND_CAT, 0, &at::cpu::cat, cat>>(m);
  add<Op<"cat.out", NPU_KIND_CAT, 0, &at::cpu::cat_outf, cat>>(m);
  add<Op<"roll", NPU_KIND_ROLL, 0, &at::cpu::roll, roll>>(m);
  constexpr std::uint32_t kTriangle = NPU_KIND_TRIANGLE;
  constexpr std::uint32_t kTril = NPU_TRIANGLE_TRIL;
  constexpr std::uint32_t kTriu = NPU_TRIANGLE_TRIU;
  add<Op<"tril", kTriangle, kTril, &at::cpu::tril, tril>>(m);
  add<Op<"tril_", kTriangle, kTril, &at::cpu::tril_, tril>>(m);
  add<Op<"tril.out", kTriangle, kTril, &at::cpu::tril_outf, tril>>(m);
  add<Op<"triu", kTriangle, kTriu, &at::cpu::triu, triu>>(m);
  add<Op<"triu_", kTriangle, kTriu, &at::cpu::triu_, triu>>(m);
  add<Op<"triu.out", kTriangle, kTriu, &at::cpu::triu_outf, triu>>(m);
}

}  // namespace npu
