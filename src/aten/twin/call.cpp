// SPDX-License-Identifier: Apache-2.0
// Arguments of a call: wrapping, identity, device checks, lists.
#include "aten/twin/call.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>

#include <sstream>

#include "aten/twin/unrecorded.h"
#include "aten/twin/wrapper_pool.h"
#include "driver/services.h"
#include "runtime/device.h"
#include "runtime/dtype.h"
#include "runtime/error.h"

namespace npu::twin {
namespace {

// Up to here a linear search is faster than a hash map, which is filled anew by
// every call: the arguments of a compiled graph of some layers.
constexpr std::size_t kLinear = 64;

template <class Items, class Pointer>
std::uint32_t find_linear(
    const Items& items, const Pointer& pointer, std::uint32_t none) {
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    if (pointer(items[i])) {
      return i;
    }
  }
  return none;
}

// A call to memcmp costs more for so few numbers.
bool same_numbers(c10::IntArrayRef a, c10::IntArrayRef b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i) {
    same = a[i] == b[i];
  }
  return same;
}

// A wrapper that was used before often has the geometry already.
//
// PyTorch reads sizes()[0] of tensors without dimensions (linalg.vector_norm
// with dim=0 takes another formula where it finds a 1), and a tensor keeps the
// sizes it had there. A new one has 0.
void take_geometry(c10::TensorImpl& wrapper, const c10::TensorImpl& from) {
  const std::int64_t offset = from.storage_offset();
  if (!same_numbers(wrapper.sizes(), from.sizes()) ||
      !same_numbers(wrapper.strides(), from.strides())) {
    if (from.dim() == 0 && wrapper.dim() != 0) {
      wrapper.set_sizes_contiguous({0});
    }
    wrapper.set_sizes_and_strides(from.sizes(), from.strides(), offset);
  } else if (wrapper.storage_offset() != offset) {
    wrapper.set_storage_offset(offset);
  }
}

// See Note [Unrecorded].
void read_bytes_of(
    c10::StorageImpl& twin,
    const c10::StorageImpl& original,
    c10::Device device) {
  void* const data = const_cast<void*>(original.data());
  c10::DataPtr& pointer = twin._mutable_data_ptr_no_checks();
  // A pointer that owns nothing is replaced in place.
  if (pointer.get() != data &&
      C10_UNLIKELY(!pointer.unsafe_reset_data_and_ctx(data))) {
    twin.set_data_ptr_noswap(c10::DataPtr(data, device));
  }
  if (twin.nbytes() != original.nbytes()) {
    twin.set_nbytes(original.nbytes());
  }
}

}  // namespace

TwinCall::TwinCall(const Entry& entry, c10::Device device, const Reach& reach)
    : entry_(entry),
      device_(device),
      twin_(*reach.twin),
      twin_device_(twin_.device_of(device)),
      on_cpu_(twin_device_.is_cpu()),
      copies_(reach.copies),
      opens_(reach.opens) {}

TwinCall::~TwinCall() {
  if (C10_UNLIKELY(!tensors_.empty())) {
    // finish() was not reached: the kernel or a conversion threw. A kernel may
    // still hold arguments, and what it wrote in place stays written. It need
    // not have written its out= tensors.
    try {
      for (Mapped& mapped : storages_) {
        mapped.written &= !mapped.out_only;
      }
      finish();
    } catch (const std::exception& error) {
      log(NPU_LOG_ERROR,
          "npu: " + entry_.label + ": after an error: " + error.what());
    }
  }
  if (opens_) {
    for (const Mapped& mapped : storages_) {
      if (mapped.opened != nullptr) {
        close_range(mapped.opened, mapped.opened_bytes);
      }
    }
  }
}

std::uint32_t TwinCall::find_original(const c10::TensorImpl* impl) const {
  if (tensors_.size() <= kLinear) {
    return find_linear(
        tensors_,
        [impl](const Wrapped& w) { return w.original == impl; },
        kNone);
  }
  const auto found = index_->tensors.find(impl);
  return found == index_->tensors.end() ? kNone : found->second;
}

std::uint32_t TwinCall::find_twin(const c10::TensorImpl* impl) const {
  if (tensors_.size() <= kLinear) {
    return find_linear(
        tensors_,
        [impl](const Wrapped& w) {
          return w.twin.unsafeGetTensorImpl() == impl;
        },
        kNone);
  }
  return find_original(impl);  // one index holds both sides
}

std::uint32_t TwinCall::find_storage(const c10::StorageImpl* original) const {
  if (storages_.size() <= kLinear) {
    return find_linear(
        storages_,
        [original](const Mapped& m) { return m.original == original; },
        kNone);
  }
  const auto found = index_->storages.find(original);
  return found == index_->storages.end() ? kNone : found->second;
}

std::uint32_t TwinCall::find_twin_storage(const c10::StorageImpl* twin) const {
  if (storages_.size() <= kLinear) {
    return find_linear(
        storages_, [twin](const Mapped& m) { return m.twin == twin; }, kNone);
  }
  return find_storage(twin);
}

inline void TwinCall::append(Wrapped wrapped) {
  tensors_.push_back(std::move(wrapped));
  if (C10_UNLIKELY(tensors_.size() > kLinear)) {
    index_last();
  }
}

void TwinCall::index_last() {
  if (index_ == nullptr) {
    index_ = std::make_unique<Index>();
  }
  auto& index = index_->tensors;
  const std::size_t first = index.empty() ? 0 : tensors_.size() - 1;
  for (std::size_t i = first; i < tensors_.size(); ++i) {
    const auto at = static_cast<std::uint32_t>(i);
    index[tensors_[i].original] = at;
    index[tensors_[i].twin.unsafeGetTensorImpl()] = at;
  }
}

void TwinCall::remember(
    const at::Tensor& original, const at::Tensor& twin, bool written) {
  // Quantised and nested tensors have a storage; sparse ones have members,
  // which were converted as tensors of their own.
  const c10::Storage& storage = twin.unsafeGetTensorImpl()->unsafe_storage();
  const std::uint32_t index =
      storage ? find_twin_storage(storage.unsafeGetStorageImpl()) : kNone;
  append({original.unsafeGetTensorImpl(), twin, index, written, false});
}

void TwinCall::check_device(const at::Tensor& tensor, const Arg& arg) const {
  const c10::Device found = tensor.device();
  if (C10_LIKELY(found == device_)) {
    return;
  }
  // A number in a tensor may come from the host; anything else that is read,
  // and everything that is written, must be here.
  if (found.is_cpu() &&
      ((tensor.dim() == 0 && !arg.written) || arg.cpu_allowed)) {
    return;
  }
  const auto& schema = entry_.op.schema();
  TORCH_CHECK(
      false,
      "Expected all tensors to be on the same device. Expected NPU tensor, "
      "please check whether the input tensor device is correct. Argument '",
      schema.arguments()[arg.index].name(),
      "' of ",
      full_name(entry_.op.operator_name()),
      " is on ",
      found,
      ", other tensors are on npu:",
      static_cast<int>(device_.index()),
      ".",
      ops_error(Code::kParam));
}

std::uint32_t TwinCall::append_storage(const Mapped& mapped) {
  storages_.push_back(mapped);
  if (C10_UNLIKELY(storages_.size() > kLinear)) {
    if (index_ == nullptr) {
      index_ = std::make_unique<Index>();
    }
    auto& index = index_->storages;
    const std::size_t first = index.empty() ? 0 : storages_.size() - 1;
    for (std::size_t i = first; i < storages_.size(); ++i) {
      const auto at = static_cast<std::uint32_t>(i);
      index[storages_[i].original] = at;
      index[storages_[i].twin] = at;
    }
  }
  return static_cast<std::uint32_t>(storages_.size() - 1);
}

std::uint32_t TwinCall::map_storage(
    c10::StorageImpl* original, c10::StorageImpl* twin, const Arg& arg) {
  Mapped mapped{};
  mapped.original = original;
  mapped.twin = twin;
  mapped.bytes = original->nbytes();
  mapped.holders = 1;
  mapped.written = arg.written;
  mapped.out_only = mapped.may_grow = arg.out;
  twin->set_nbytes(mapped.bytes);
  twin->set_resizable(original->resizable());
  if (C10_LIKELY(!copies_)) {
    mapped.data = const_cast<void*>(original->data());
    if (arg.written && original->mutable_data() != mapped.data) {
      // That unshared a lazily cloned storage: the copy is only queued.
      mapped.data = original->mutable_data();
      if (twin_.waits()) {
        drain(device_);
      }
    }
    twin->set_data_ptr_noswap(c10::DataPtr(mapped.data, twin_device_));
  }
  if (opens_ && mapped.data != nullptr && mapped.bytes != 0) {
    open_range(mapped.data, mapped.bytes);
    mapped.opened = mapped.data;
    mapped.opened_bytes = mapped.bytes;
  }
  return append_storage(mapped);
}

c10::Storage TwinCall::storage_to_twin(
    const c10::Storage& original, const Arg& arg) {
  const std::uint32_t known = find_storage(original.unsafeGetStorageImpl());
  if (known != kNone) {
    Mapped& mapped = storages_[known];
    mapped.holders += 1;
    mapped.written |= arg.written;
    mapped.may_grow |= arg.out;
    mapped.out_only = false;
    return c10::Storage(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(mapped.twin));
  }
  c10::Storage twin(
      c10::Storage::use_byte_size_t(),
      0,
      c10::DataPtr(nullptr, twin_device_),
      twin_.allocator(),
      /*resizable=*/true);
  map_storage(
      original.unsafeGetStorageImpl(), twin.unsafeGetStorageImpl(), arg);
  return twin;
}

c10::TensorImpl* TwinCall::wrap_dense(c10::TensorImpl& from, const Arg& arg) {
  TORCH_CHECK(
      from.has_storage(),
      "npu: ",
      entry_.label,
      ": argument '",
      entry_.op.schema().arguments()[arg.index].name(),
      "' has no memory (a tensor subclass?), so no CPU kernel can "
      "read it. Pass a plain tensor.");
  const c10::Storage& storage = from.unsafe_storage();
  const bool maps = !needs_no_record(entry_, copies_, opens_);
  const std::uint32_t known =
      maps ? find_storage(storage.unsafeGetStorageImpl()) : kNone;
  TensorImplPtr wrapper;
  std::uint32_t index = known;
  if (C10_LIKELY(!maps)) {
    wrapper = WrapperPool::of(twin_, twin_device_).take(from);
    read_bytes_of(
        *wrapper->unsafe_storage().unsafeGetStorageImpl(),
        *storage.unsafeGetStorageImpl(),
        twin_device_);
    index = kUnrecorded;
  } else if (C10_LIKELY(known == kNone)) {
    wrapper = WrapperPool::of(twin_, twin_device_).take(from);
    index = map_storage(
        storage.unsafeGetStorageImpl(),
        wrapper->unsafe_storage().unsafeGetStorageImpl(),
        arg);
  } else {
    wrapper = c10::make_intrusive<c10::TensorImpl>(
        storage_to_twin(storage, arg),
        c10::DispatchKeySet(twin_.key_of(c10::DispatchKey::PrivateUse1)),
        from.dtype());
  }
  take_geometry(*wrapper, from);
  if (C10_UNLIKELY(from.is_conj())) {
    wrapper->_set_conj(true);
  }
  if (C10_UNLIKELY(from.is_neg())) {
    wrapper->_set_neg(true);
  }
  if (wrapper->is_wrapped_number() != from.is_wrapped_number()) {
    wrapper->set_wrapped_number(from.is_wrapped_number());
  }
  // Some kernels prepare for their backward only when they see this. Setting it
  // allocates, so a wrapper keeps the place for it from call to call.
  const bool needs_grad = from.requires_grad() && c10::GradMode::is_enabled();
  if (C10_UNLIKELY(needs_grad != wrapper->requires_grad())) {
    wrapper->set_requires_grad(needs_grad);
  }
  if (C10_LIKELY(!copies_)) {  // rung 5 counts what it copies
    bytes_ += static_cast<std::uint64_t>(from.numel()) * from.itemsize();
  }
  c10::TensorImpl* const twin = wrapper.get();
  append(
      {&from,
       at::Tensor(std::move(wrapper)),
       index,
       arg.written,
       /*pooled=*/known == kNone && entry_.builtin});
  return twin;
}

inline c10::TensorImpl* TwinCall::wrap(
    const at::Tensor& original, const Arg& arg) {
  c10::TensorImpl* const impl = original.unsafeGetTensorImpl();
  if (!original.defined()) {
    return impl;
  }
  const std::uint32_t known = find_original(impl);
  if (C10_UNLIKELY(known != kNone)) {
    Wrapped& wrapped = tensors_[known];
    if (arg.written) {
      check_device(original, arg);
      wrapped.written = true;
    }
    if (wrapped.storage < kUnrecorded) {
      storages_[wrapped.storage].written |= arg.written;
      storages_[wrapped.storage].may_grow |= arg.out;
      storages_[wrapped.storage].out_only = false;
    }
    return wrapped.twin.unsafeGetTensorImpl();
  }
  if (C10_UNLIKELY(impl->device() != device_)) {
    check_device(original, arg);
  }
  if (C10_UNLIKELY(impl->device_type() == c10::DeviceType::CPU)) {
    for_host_ |= arg.written;
    remember(original, original, false);
    return impl;
  }
  if (C10_UNLIKELY(has_components(*impl))) {
    const at::Tensor twin = components_to_twin(*this, original, arg);
    remember(original, twin, arg.written);
    return twin.unsafeGetTensorImpl();
  }
  if (C10_LIKELY(!arg.out)) {
    judged_.see(to_npu_dtype(original.scalar_type()));
  }
  return wrap_dense(*impl, arg);
}

c10::TensorImpl* TwinCall::convert(const at::Tensor& original, const Arg& arg) {
  c10::TensorImpl* const plain = wrap(original, arg);
  if (C10_LIKELY(wide_ == nullptr)) {
    return plain;
  }
  const ShimScope memory(shim());
  return wide_->stand_in(plain, arg);
}

at::Tensor TwinCall::to_twin(const at::Tensor& original, const Arg& arg) {
  if (!original.defined()) {
    return original;
  }
  originals_.push_back(original);
  return at::Tensor(TensorImplPtr::reclaim_copy(convert(original, arg)));
}

std::string TwinCall::describe() const {
  std::ostringstream text;
  for (const Wrapped& wrapped : tensors_) {
    text << ' ' << wrapped.twin.scalar_type();
    if (!wrapped.original->has_symbolic_sizes_strides()) {
      text << wrapped.original->sizes();
    }
  }
  return text.str();
}

void TwinCall::convert_list(c10::IValue& value, const Arg& arg) {
  if (arg.kind == ArgKind::kTensorList) {
    c10::List<at::Tensor> converted;
    const auto items = value.toListRef();
    converted.reserve(items.size());
    for (const c10::IValue& item : items) {
      converted.push_back(to_twin(item.toTensor(), arg));
    }
    value = std::move(converted);
    return;
  }
  c10::List<std::optional<at::Tensor>> converted;
  const auto items = value.toListRef();
  converted.reserve(items.size());
  for (const c10::IValue& item : items) {
    if (item.isTensor()) {
      converted.push_back(to_twin(item.toTensor(), arg));
    } else {
      converted.push_back(std::nullopt);
    }
  }
  value = std::move(converted);
}

void TwinCall::widen(c10::IValue* args) {
  WideInputs inputs(*entry_.wide);
  const auto& arguments = entry_.op.schema().arguments();
  const auto is_dtype = [&arguments](std::uint32_t i) {
    c10::TypePtr type = arguments[i].real_type();
    if (const auto optional = type->cast<c10::OptionalType>()) {
      type = optional->getElementType();
    }
    return type->kind() == c10::TypeKind::ScalarTypeType;
  };
  for (std::uint32_t i = 0; i < entry_.n_args; ++i) {
    if (args[i].isInt() && is_dtype(i)) {
      inputs.next(std::optional(args[i].toScalarType()));
    } else {
      inputs.next(args[i]);
    }
  }
  widen(inputs);
  for (std::uint32_t i = 0; wide_ != nullptr && i < entry_.n_args; ++i) {
    if (args[i].isInt() && is_dtype(i)) {
      args[i] = *wide_->stand_in(args[i].toScalarType());
    }
  }
}

void TwinCall::convert_arguments(c10::IValue* args) {
  if (C10_UNLIKELY(entry_.wide != nullptr && twin_.widens())) {
    widen(args);
  }
  for (const Arg& arg : entry_.args) {
    c10::IValue& value = args[arg.index];
    switch (arg.kind) {
      case ArgKind::kTensor:
        if (value.isTensor()) {
          const at::Tensor original = std::move(value).toTensor();
          value = to_twin(original, arg);
        }
        break;
      case ArgKind::kTensorList:
      case ArgKind::kOptionalList:
        if (value.isList()) {
          convert_list(value, arg);
        }
        break;
      case ArgKind::kDevice:
        if (value.isDevice()) {
          const bool is_cpu = value.toDevice().is_cpu();
          for_host_ |= is_cpu;
          value = is_cpu ? value.toDevice() : twin_device_;
        }
        break;
      case ArgKind::kGenerator:
        value = c10::IValue();
        break;
      case ArgKind::kPinMemory:
        TORCH_CHECK(
            !value.isBool() || !value.toBool(),
            "Only dense CPU tensors can be pinned");
        break;
      case ArgKind::kStorage:
        TORCH_CHECK(
            false,
            "npu: ",
            entry_.label,
            ": takes a storage, which no CPU kernel can use for an npu "
            "tensor. Use the tensor form of this operator.");
    }
  }
}

}  // namespace npu::twin
