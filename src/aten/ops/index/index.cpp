// SPDX-License-Identifier: Apache-2.0
// gather, index, index_select, take, index_put: elements found by indices.
#include <ATen/WrapDimUtils.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/ops/index_meta.h>

#include <vector>

#include "aten/ops/index/overlap.h"
#include "aten/ops/op.h"
#include "attempts/index.h"
#include "driver/build_call.h"

namespace npu::ops {

namespace {

// Not given, or of self's dtype and apart from what is read.
bool is_apart(
    const at::Tensor& out, const at::Tensor& self, const at::Tensor& index) {
  if (out.defined() && same_dtype(out, self)) {
    check_overlap(out, self, index);
  }
  return !out.defined() || same_dtype(out, self);
}

}  // namespace

// ---- gather ----

bool fits_gather(const at::Tensor& self, const at::Tensor& index) {
  return index.numel() == 0 || index.dim() == self.dim();
}

npu_reason gather(
    NativeSite& site,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index,
    const at::Tensor& out) {
  if (index.numel() == 0) {
    return NPU_REASON_NONE;
  }
  npu_gather_attrs attrs{.dim = at::maybe_wrap_dim(dim, self.dim())};
  return run_checked<build::gather>(site, out, self, index, attrs);
}

// ---- index_select ----

bool selects(const at::Tensor& self, const at::Tensor& index) {
  return index.dim() <= 1 && self.dim() != 0;
}

npu_reason index_select(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    std::int64_t dim,
    const at::Tensor& index) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::DimVector sizes(self.sizes());
  sizes[static_cast<std::size_t>(dim)] = index.numel();
  if (!is_apart(out.at(0), self, index)) {
    return NPU_REASON_DTYPE;
  }
  const at::Tensor& result = set_output(out, 0, sizes, self);
  if (result.numel() == 0) {
    return index.numel() == 0 ? NPU_REASON_NONE : NPU_REASON_SIZE;
  }
  npu_index_select_attrs attrs{.dim = dim};
  return run_checked<build::index_select>(site, result, self, index, attrs);
}

// ---- take, put ----

npu_reason take(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& index) {
  if (!is_apart(out.at(0), self, index)) {
    return NPU_REASON_DTYPE;
  }
  const at::Tensor& result = set_output(out, 0, index.sizes(), self);
  return run_checked<build::take>(site, result, self, index);
}

npu_reason put(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const at::Tensor& index,
    const at::Tensor& source) {
  check_overlap(self, index, source);
  return run_checked<build::put>(site, out.at(0), index, source);
}

// ---- index, index_put ----

namespace {

using IndexList = c10::List<std::optional<at::Tensor>>;

// Indices as the kinds want them: one entry per dimension of the tensor, all
// of one shape, masks as the positions of their true elements.
class Picks {
 public:
  // `self` is on the device. Throws PyTorch's errors for masks that do not fit.
  Picks(const at::Tensor& self, const IndexList& indices) {
    std::vector<at::Tensor> expanded =
        at::native::expandTensors(self, indices, /*ensure_same_device=*/true);
    expanded.resize(std::max<std::size_t>(
        expanded.size(), static_cast<std::size_t>(self.dim())));
    for (at::Tensor& index : expanded) {
      if (index.defined() && index.device() != self.device()) {
        index = index.to(self.device());
      }
    }
    tensors_ = at::expand_outplace(expanded);
    // Driven apart by kept dimensions, the indices' shape comes first.
    std::size_t first = tensors_.size();
    std::size_t last = 0;
    std::size_t picked = 0;
    for (std::size_t d = 0; d < tensors_.size(); ++d) {
      if (tensors_[d].defined()) {
        first = std::min(first, d);
        last = d;
        ++picked;
      }
    }
    usable_ = picked > 0 && tensors_.size() == std::size_t(self.dim());
    dim_ = usable_ && last - first + 1 == picked ? std::int64_t(first) : 0;
  }

  // False: leave it to CPU.
  bool usable() const {
    return usable_;
  }
  std::int64_t dim() const {
    return dim_;
  }
  // For PyTorch's meta function.
  IndexList list() const {
    IndexList out;
    for (const at::Tensor& tensor : tensors_) {
      out.push_back(
          tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt);
    }
    return out;
  }
  // The sizes of an index call's result.
  at::DimVector sizes(const at::Tensor& self) const {
    at::DimVector kept;
    at::IntArrayRef picked;
    for (std::size_t d = 0; d < tensors_.size(); ++d) {
      if (tensors_[d].defined()) {
        picked = tensors_[d].sizes();
      } else {
        kept.push_back(self.size(static_cast<std::int64_t>(d)));
      }
    }
    kept.insert(kept.begin() + dim_, picked.begin(), picked.end());
    return kept;
  }
  const npu_list& operand() {
    for (const at::Tensor& tensor : tensors_) {
      operands_.push_back(tensor.defined() ? to_operand(tensor) : npu_tensor{});
      data_.push_back(operands_.back().data);
      numel_.push_back(operands_.back().numel);
      list_.dtype = tensor.defined() ? operands_.back().dtype : list_.dtype;
    }
    list_.n = static_cast<std::uint32_t>(operands_.size());
    list_.data = data_.data();
    list_.numel = numel_.data();
    list_.tensors = operands_.data();
    return list_;
  }

 private:
  std::vector<at::Tensor> tensors_;
  bool usable_ = false;
  std::int64_t dim_ = 0;
  std::vector<npu_tensor> operands_;
  std::vector<void*> data_;
  std::vector<std::int64_t> numel_;
  npu_list list_{};
};

// Indices of the kinds the frame can say; others, and too many, are CPU's.
bool are_usual(const at::Tensor& self, const IndexList& indices) {
  bool any = false;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::optional<at::Tensor> index = indices.get(i);
    if (index && index->defined()) {
      const c10::ScalarType type = index->scalar_type();
      if ((type != at::kLong && type != at::kInt && type != at::kBool) ||
          (index->device() != self.device() && !index->is_cpu())) {
        return false;
      }
      any = true;
    }
  }
  return any && indices.size() <= static_cast<std::size_t>(self.dim());
}

}  // namespace

npu_reason index(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const IndexList& indices) {
  if (!are_usual(self, indices)) {
    return kLeaveToCpu;
  }
  Picks picks(self, indices);
  if (!picks.usable()) {
    return kLeaveToCpu;
  }
  const IndexList list = picks.list();
  shape<at::meta::structured_index_Tensor>(
      out, self, at::IOptTensorListRef(list));
  const at::Tensor& result = out.at(0);
  if (result.numel() == 0) {
    return NPU_REASON_SIZE;
  }
  npu_index_attrs attrs{.dim = picks.dim()};
  return run_checked<build::index>(site, result, self, picks.operand(), attrs);
}

npu_reason index_put(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& self,
    const IndexList& indices,
    const at::Tensor& values) {
  if (const npu_reason why = first_failed(
          {{same_dtype(values, self), NPU_REASON_DTYPE},
           {!self.is_alias_of(values) &&
                at::has_internal_overlap(self) == at::MemOverlap::No,
            NPU_REASON_ALIAS},
           {are_usual(self, indices) && on_device(values), kLeaveToCpu}})) {
    return why;
  }
  Picks picks(self, indices);
  if (!picks.usable()) {
    return kLeaveToCpu;
  }
  const at::DimVector sizes = picks.sizes(self);
  if (!at::is_expandable_to(values.sizes(), sizes)) {
    return kLeaveToCpu;
  }
  const at::Tensor expanded = values.expand(sizes);
  if (expanded.numel() == 0) {
    return NPU_REASON_NONE;
  }
  npu_index_put_attrs attrs{.dim = picks.dim()};
  return run_checked<build::index_put>(
      site, out.at(0), expanded, picks.operand(), attrs);
}

}  // namespace npu::ops
