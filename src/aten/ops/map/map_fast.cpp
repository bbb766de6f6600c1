// SPDX-License-Identifier: Apache-2.0
// Elementwise calls without an iterator: floating point tensors of one dtype,
// contiguous, broadcast where needed.
#include <algorithm>

#include "aten/core/factories.h"
#include "aten/core/fast.h"
#include "aten/ops/map/map.h"
#include "aten/ops/map/map_number.h"
#include "driver/registry.h"
#include "driver/verdict.h"
#include "npu/kinds.h"
#include "npu/validate.h"
#include "runtime/device.h"

namespace npu {
namespace {

constexpr int kMostInputs = 3;
constexpr int kMostOutputs = 2;
constexpr int kMostDims = 8;
// The shape that several contiguous tensors broadcast to, and how each of them
// lies in it: dimensions are merged where that holds for all.
class Broadcast {
 public:
  // False when they do not fit, are too many or too large, or have strides
  // (of single elements) that the longer way would keep.
  bool build(const c10::TensorImpl* const* inputs, int n) {
    n_ = n;
    for (int i = 0; i < n; ++i) {
      steps_[i] = 1;
      dims_ = std::max(dims_, static_cast<int>(inputs[i]->dim()));
    }
    if (dims_ > kMostDims) {
      return false;
    }
    for (int d = dims_ - 1; d >= 0; --d) {
      if (!add_dimension(inputs, d)) {
        return false;
      }
    }
    if (ndim_ == 0) {
      std::int64_t none[kMostInputs] = {};
      push(1, none);
    }
    return true;
  }

  std::int64_t numel() const {
    return numel_;
  }
  at::IntArrayRef shape() const {
    return {shape_, static_cast<std::size_t>(dims_)};
  }
  // Merged, the last one innermost.
  std::uint16_t ndim() const {
    return static_cast<std::uint16_t>(ndim_);
  }
  const std::int64_t* sizes() const {
    return sizes_ + kMostDims - ndim_;
  }
  const std::int64_t* strides(int input) const {
    return strides_[input] + kMostDims - ndim_;
  }
  const std::int64_t* contiguous() const {
    return contiguous_ + kMostDims - ndim_;
  }

 private:
  bool add_dimension(const c10::TensorImpl* const* inputs, int d) {
    std::int64_t size = 1;
    std::int64_t strides[kMostInputs];
    for (int i = 0; i < n_; ++i) {
      const auto at = d - dims_ + inputs[i]->dim();
      const std::int64_t mine = at < 0 ? 1 : inputs[i]->sizes()[at];
      if (at >= 0 && inputs[i]->strides()[at] != steps_[i]) {
        return false;
      }
      strides[i] = mine == 1 ? 0 : steps_[i];
      steps_[i] *= mine;
      if (mine != 1) {
        if (size != 1 && size != mine) {
          return false;
        }
        size = mine;
      }
    }
    shape_[d] = size;
    numel_ *= size;
    if (size != 1 && !merge(size, strides)) {
      push(size, strides);
    }
    return numel_ != 0 && numel_ <= kMostFastElements;
  }

  // The dimension goes on where the one inside it ends.
  bool merge(std::int64_t size, const std::int64_t* strides) {
    if (ndim_ == 0) {
      return false;
    }
    const int at = kMostDims - ndim_;
    for (int i = 0; i < n_; ++i) {
      if (strides[i] != strides_[i][at] * sizes_[at]) {
        return false;
      }
    }
    sizes_[at] *= size;
    return true;
  }

  void push(std::int64_t size, const std::int64_t* strides) {
    const int at = kMostDims - ++ndim_;
    sizes_[at] = size;
    contiguous_[at] = ndim_ == 1 ? 1 : contiguous_[at + 1] * sizes_[at + 1];
    for (int i = 0; i < n_; ++i) {
      strides_[i][at] = strides[i];
    }
  }

  int n_ = 0;
  int dims_ = 0;
  int ndim_ = 0;
  std::int64_t numel_ = 1;
  std::int64_t steps_[kMostInputs];
  std::int64_t shape_[kMostDims];
  std::int64_t sizes_[kMostDims];  // filled from the end
  std::int64_t contiguous_[kMostDims];
  std::int64_t strides_[kMostInputs][kMostDims];
};

class FastCall {
 public:
  FastCall(NativeSite& site, const npu_op_caps& caps)
      : site_(site), caps_(caps), n_out_(npu_kind_of(site.slot())->n_out) {
    for (std::uint32_t i = 1; i < n_out_; ++i) {
      tensors_[i] = npu_tensor{};
    }
  }

  // The first input decides; false when it is none for this path.
  bool start(const at::Tensor& first) {
    const c10::TensorImpl& impl = *first.unsafeGetTensorImpl();
    numel_ = impl.numel();
    dtype_ = to_npu_dtype(c10::typeMetaToScalarType(impl.dtype()));
    if (impl.device_type() != kDeviceType || numel_ == 0 ||
        numel_ > kMostFastElements ||
        (kFastDtypes & caps_.dtypes[n_out_] & NPU_DTYPE_BIT(dtype_)) == 0 ||
        !wants_size(caps_, dtype_, numel_) || !is_plain_tensor(impl)) {
      return false;
    }
    first_ = &impl;
    device_ = impl.device().index();
    number_of_device_ = driver_device(device_);
    return add(impl);
  }
  bool add_input(const at::Tensor& tensor) {
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (impl.device_type() == c10::DeviceType::CPU) {
      return add_number(tensor);
    }
    if (impl.dtype() != first_->dtype() || impl.device() != first_->device() ||
        !is_plain_tensor(impl)) {
      return false;
    }
    same_sizes_ = same_sizes_ && impl.sizes() == first_->sizes();
    return add(impl);
  }

  // All inputs are there: lays them out.
  bool lay_out() {
    if (C10_LIKELY(same_sizes_)) {
      return true;
    }
    // A number counts as well: it has no place in the shape.
    if ((caps_.flags & NPU_CAP_STRIDED_IN) == 0 || has_number_ ||
        !shape_.build(impls_, static_cast<int>(n_in_)) ||
        !wants_size(caps_, dtype_, shape_.numel())) {
      return false;
    }
    for (std::uint32_t i = 0; i < n_in_; ++i) {
      npu_tensor& in = tensors_[n_out_ + i];
      in.flags = in.numel == shape_.numel() ? in.flags : 0;
      in.sizes = shape_.sizes();
      in.strides = shape_.strides(static_cast<int>(i));
      in.ndim = shape_.ndim();
      in.numel = shape_.numel();
    }
    numel_ = shape_.numel();
    return true;
  }
  at::IntArrayRef sizes() const {
    return same_sizes_ ? first_->sizes() : shape_.shape();
  }

  bool add_output(const c10::TensorImpl& impl, npu_dtype dtype) {
    npu_tensor& out = tensors_[0];
    set_line(out, impl, dtype, number_of_device_, &numel_);
    if (!same_sizes_) {
      out.sizes = shape_.sizes();
      out.strides = shape_.contiguous();
      out.ndim = shape_.ndim();
    }
    return is_aligned(caps_, out);
  }
  // The first input becomes the output too.
  bool may_alias() {
    if ((caps_.flags & NPU_CAP_ALIAS) == 0 || (caps_.alias_mask & 1) == 0 ||
        (!same_sizes_ && shape_.shape() != first_->sizes())) {
      return false;
    }
    tensors_[n_out_].flags |= NPU_TENSOR_ALIAS;
    return true;
  }

  // In place: an input shares some, not all, of what is written. The long way
  // says what is wrong with that.
  bool partly_overlaps() const {
    const char* const out = static_cast<const char*>(tensors_[n_out_].data);
    const auto bytes = static_cast<std::int64_t>(this->bytes(dtype_));
    for (std::uint32_t i = 1; i < n_in_; ++i) {
      const npu_tensor& in = tensors_[n_out_ + i];
      const std::int64_t apart = static_cast<const char*>(in.data) - out;
      if (in.storage == tensors_[n_out_].storage &&
          (apart != 0 || !same_sizes_) && apart < bytes && -apart < bytes) {
        return true;
      }
    }
    return false;
  }

  void run(const MapAttrs& attrs) {
    site_.run_fast(
        device_, dtype_, {tensors_, n_out_, n_in_}, attrs.data, attrs.bytes);
  }

  c10::DeviceIndex device() const {
    return device_;
  }
  npu_dtype dtype() const {
    return dtype_;
  }
  std::size_t bytes(npu_dtype dtype) const {
    return static_cast<std::size_t>(numel_) * npu_dtype_bytes(dtype);
  }

 private:
  bool add(const c10::TensorImpl& impl) {
    impls_[n_in_] = &impl;
    npu_tensor& in = tensors_[n_out_ + n_in_++];
    set_line(in, impl, dtype_, number_of_device_, &numel_);
    return is_aligned(caps_, in);
  }
  // A 0-dim tensor of the host does not decide the dtype next to one that has
  // dimensions, unless it is complex.
  bool add_number(const at::Tensor& tensor) {
    const npu_dtype dtype = number_dtype(site_, dtype_, n_in_, tensor);
    const bool known = (active_driver().table().tensor_flags_known &
                        NPU_TENSOR_HOST_SCALAR) != 0 &&
                       (caps_.flags & NPU_CAP_HOST_SCALAR) != 0;
    // PyTorch refuses to subtract a truth value; the long way says so.
    const bool refused = tensor.scalar_type() == c10::kBool &&
                         site_.slot() == NPU_KIND_BINARY &&
                         site_.code() == NPU_BINARY_SUB;
    if (!known || refused || first_->dim() == 0 || tensor.dim() != 0 ||
        tensor.is_complex() || tensor.is_conj() || tensor.is_neg() ||
        has_number_ || needs_wider_compute(site_, dtype_, dtype) ||
        !store_number(number_, tensor, dtype)) {
      return false;
    }
    has_number_ = true;
    impls_[n_in_] = nullptr;
    tensors_[n_out_ + n_in_++] = host_operand(number_, dtype);
    return true;
  }

  NativeSite& site_;
  const npu_op_caps& caps_;
  const c10::TensorImpl* first_ = nullptr;
  std::int64_t numel_ = 0;
  npu_dtype dtype_ = NPU_ABSENT;
  c10::DeviceIndex device_ = -1;
  npu_device number_of_device_ = -1;
  const std::uint32_t n_out_;
  std::uint32_t n_in_ = 0;
  bool has_number_ = false;
  bool same_sizes_ = true;
  const c10::TensorImpl* impls_[kMostInputs];
  npu_tensor tensors_[kMostOutputs + kMostInputs];
  HostNumber number_;
  Broadcast shape_;
};

}  // namespace

// The parts are called once or per operand; as calls of their own they save and
// restore more registers than they use.
[[gnu::flatten]] bool run_map_fast(
    NativeSite& site,
    at::Tensor& out,
    MapInputs inputs,
    const MapAttrs& attrs,
    bool bools) {
  const npu_op_caps* const caps = site.fast_caps();
  if (caps == nullptr) {
    return false;
  }
  FastCall call(site, *caps);
  const at::Tensor* const* input = inputs.begin();
  if (!call.start(**input)) {
    return false;
  }
  while (++input != inputs.end()) {
    if (!call.add_input(**input)) {
      return false;
    }
  }
  if (!call.lay_out()) {
    return false;
  }
  if (out.defined()) {
    if (bools || !call.may_alias() || call.partly_overlaps()) {
      return false;
    }
    call.add_output(*out.unsafeGetTensorImpl(), call.dtype());
    call.run(attrs);
    return true;
  }
  const npu_dtype dtype = bools ? npu_dtype{NPU_BOOL} : call.dtype();
  at::Tensor made = make_contiguous(
      call.sizes(),
      call.bytes(dtype),
      bools ? c10::kBool : (*inputs.begin())->scalar_type(),
      call.device());
  if (!call.add_output(*made.unsafeGetTensorImpl(), dtype)) {
    return false;
  }
  call.run(attrs);
  out = std::move(made);
  return true;
}

}  // namespace npu
