// SPDX-License-Identifier: Apache-2.0
// cat, roll, tril and triu: elements moved as they are.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/cat_meta.h>

#include <vector>

#include "aten/ops/op.h"
#include "attempts/move.h"
#include "driver/build_call.h"

namespace npu::ops {

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
      return kLeaveToCpu;
    }
    pieces.push_back(tensor);
  }
  if (pieces.empty()) {
    return NPU_REASON_SIZE;
  }
  const auto found = shape<at::meta::structured_cat>(out, tensors, dim);
  const at::Tensor& result = out.at(0);
  std::vector<npu_tensor> operands;
  std::vector<void*> data;
  std::vector<std::int64_t> numel;
  for (at::Tensor& piece : pieces) {
    if (piece.is_alias_of(result)) {
      return NPU_REASON_ALIAS;
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
  npu_cat_attrs attrs{.dim = found.dim};
  return run<build::cat>(site, result, list, attrs);
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
  // Without dims the elements are one row.
  const bool flat = dims.empty() && shifts.size() == 1;
  if (!flat && (dims.empty() || dims.size() != shifts.size() ||
                dims.size() > kMost || self.dim() == 0)) {
    return kLeaveToCpu;
  }
  const at::Tensor in = flat ? self.reshape({-1}) : self;
  attrs.n = static_cast<std::int64_t>(shifts.size());
  for (std::size_t i = 0; i < shifts.size(); ++i) {
    attrs.axes[i] = flat ? 0 : at::maybe_wrap_dim(dims[i], self.dim());
    attrs.shifts[i] = shifts[i];
  }
  const at::Tensor& result = set_output(out, 0, self.sizes(), self);
  const at::Tensor view = flat ? result.view({-1}) : result;
  return run<build::roll>(site, view, in, attrs);
}

// ---- tril, triu ----

npu_reason triangle(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t diagonal,
    const at::Tensor& result) {
  const npu_tensor in = input_operand(self, result);
  if ((in.flags & NPU_TENSOR_ALIAS) == 0 && self.is_alias_of(result)) {
    return NPU_REASON_ALIAS;
  }
  npu_triangle_attrs attrs{.diagonal = diagonal};
  return run<build::triangle>(site, result, in, attrs);
}

}  // namespace npu::ops
