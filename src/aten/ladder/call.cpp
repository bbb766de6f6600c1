// SPDX-License-Identifier: Apache-2.0
// Arguments of a CPU call: wrapping, identity, device checks, lists.
#include "aten/ladder/call.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>

#include <sstream>

#include "aten/ladder/run.h"
#include "aten/ladder/unmapped.h"
#include "aten/ladder/wrapper_pool.h"
#include "driver/services.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace npu::ladder {
namespace {

// Up to here a linear search is faster than a hash map.
constexpr std::size_t kLinear = 16;

const c10::Device kCpuDevice(c10::DeviceType::CPU);

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

// See Note [Unmapped].
void read_bytes_of(c10::StorageImpl& cpu, const c10::StorageImpl& original) {
  void* const data = const_cast<void*>(original.data());
  c10::DataPtr& pointer = cpu._mutable_data_ptr_no_checks();
  // A pointer that owns nothing is replaced in place.
  if (pointer.get() != data &&
      C10_UNLIKELY(!pointer.unsafe_reset_data_and_ctx(data))) {
    cpu.set_data_ptr_noswap(c10::DataPtr(data, kCpuDevice));
  }
  if (cpu.nbytes() != original.nbytes()) {
    cpu.set_nbytes(original.nbytes());
  }
}

}  // namespace

CpuCall::CpuCall(
    const Entry& entry, c10::Device device, bool copies, bool opens)
    : entry_(entry), device_(device), copies_(copies), opens_(opens) {}

CpuCall::~CpuCall() {
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

std::uint32_t CpuCall::find_original(const c10::TensorImpl* impl) const {
  if (tensors_.size() <= kLinear) {
    return find_linear(
        tensors_,
        [impl](const Wrapped& w) { return w.original == impl; },
        kNone);
  }
  const auto found = index_->tensors.find(impl);
  return found == index_->tensors.end() ? kNone : found->second;
}

std::uint32_t CpuCall::find_cpu(const c10::TensorImpl* impl) const {
  if (tensors_.size() <= kLinear) {
    return find_linear(
        tensors_,
        [impl](const Wrapped& w) {
          return w.cpu.unsafeGetTensorImpl() == impl;
        },
        kNone);
  }
  return find_original(impl);  // one index holds both sides
}

std::uint32_t CpuCall::find_storage(const c10::StorageImpl* original) const {
  if (storages_.size() <= kLinear) {
    return find_linear(
        storages_,
        [original](const Mapped& m) { return m.original == original; },
        kNone);
  }
  const auto found = index_->storages.find(original);
  return found == index_->storages.end() ? kNone : found->second;
}

std::uint32_t CpuCall::find_cpu_storage(const c10::StorageImpl* cpu) const {
  if (storages_.size() <= kLinear) {
    return find_linear(
        storages_, [cpu](const Mapped& m) { return m.cpu == cpu; }, kNone);
  }
  return find_storage(cpu);
}

inline void CpuCall::append(Wrapped wrapped) {
  tensors_.push_back(std::move(wrapped));
  if (C10_UNLIKELY(tensors_.size() > kLinear)) {
    index_last();
  }
}

void CpuCall::index_last() {
  if (index_ == nullptr) {
    index_ = std::make_unique<Index>();
  }
  auto& index = index_->tensors;
  const std::size_t first = index.empty() ? 0 : tensors_.size() - 1;
  for (std::size_t i = first; i < tensors_.size(); ++i) {
    const auto at = static_cast<std::uint32_t>(i);
    index[tensors_[i].original] = at;
    index[tensors_[i].cpu.unsafeGetTensorImpl()] = at;
  }
}

void CpuCall::remember(
    const at::Tensor& original, const at::Tensor& cpu, bool written) {
  // Quantised and nested tensors have a storage; sparse ones have members,
  // which were converted as tensors of their own.
  const c10::Storage& storage = cpu.unsafeGetTensorImpl()->unsafe_storage();
  const std::uint32_t index =
      storage ? find_cpu_storage(storage.unsafeGetStorageImpl()) : kNone;
  append({original.unsafeGetTensorImpl(), cpu, index, written, false});
}

void CpuCall::check_device(const at::Tensor& tensor, const Arg& arg) const {
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

std::uint32_t CpuCall::append_storage(const Mapped& mapped) {
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
      index[storages_[i].cpu] = at;
    }
  }
  return static_cast<std::uint32_t>(storages_.size() - 1);
}

std::uint32_t CpuCall::map_storage(
    c10::StorageImpl* original, c10::StorageImpl* cpu, const Arg& arg) {
  Mapped mapped{};
  mapped.original = original;
  mapped.cpu = cpu;
  mapped.bytes = original->nbytes();
  mapped.holders = 1;
  mapped.written = arg.written;
  mapped.out_only = arg.out;
  cpu->set_nbytes(mapped.bytes);
  cpu->set_resizable(original->resizable());
  if (C10_LIKELY(!copies_)) {
    mapped.data = const_cast<void*>(original->data());
    if (arg.written && original->mutable_data() != mapped.data) {
      // That unshared a lazily cloned storage: the copy is only queued.
      mapped.data = original->mutable_data();
      drain(device_);
    }
    cpu->set_data_ptr_noswap(c10::DataPtr(mapped.data, kCpuDevice));
  }
  if (opens_ && mapped.data != nullptr && mapped.bytes != 0) {
    open_range(mapped.data, mapped.bytes);
    mapped.opened = mapped.data;
    mapped.opened_bytes = mapped.bytes;
  }
  return append_storage(mapped);
}

c10::Storage CpuCall::storage_to_cpu(
    const c10::Storage& original, const Arg& arg) {
  const std::uint32_t known = find_storage(original.unsafeGetStorageImpl());
  if (known != kNone) {
    Mapped& mapped = storages_[known];
    mapped.holders += 1;
    mapped.written |= arg.written;
    mapped.out_only = false;
    return c10::Storage(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(mapped.cpu));
  }
  c10::Storage cpu(
      c10::Storage::use_byte_size_t(),
      0,
      c10::DataPtr(nullptr, kCpuDevice),
      c10::GetCPUAllocator(),
      /*resizable=*/true);
  map_storage(original.unsafeGetStorageImpl(), cpu.unsafeGetStorageImpl(), arg);
  return cpu;
}

c10::TensorImpl* CpuCall::wrap_dense(c10::TensorImpl& from, const Arg& arg) {
  TORCH_CHECK(
      from.has_storage(),
      "npu: ",
      entry_.label,
      ": argument '",
      entry_.op.schema().arguments()[arg.index].name(),
      "' has no memory of its own (a tensor subclass?), so no CPU kernel can "
      "read it. Pass a plain tensor.");
  const c10::Storage& storage = from.unsafe_storage();
  const bool maps = !needs_no_record(entry_, copies_, opens_);
  const std::uint32_t known =
      maps ? find_storage(storage.unsafeGetStorageImpl()) : kNone;
  TensorImplPtr wrapper;
  std::uint32_t index = known;
  if (C10_LIKELY(!maps)) {
    wrapper = WrapperPool::here().take(from);
    read_bytes_of(
        *wrapper->unsafe_storage().unsafeGetStorageImpl(),
        *storage.unsafeGetStorageImpl());
    index = kUnmapped;
  } else if (C10_LIKELY(known == kNone)) {
    wrapper = WrapperPool::here().take(from);
    index = map_storage(
        storage.unsafeGetStorageImpl(),
        wrapper->unsafe_storage().unsafeGetStorageImpl(),
        arg);
  } else {
    wrapper = c10::make_intrusive<c10::TensorImpl>(
        storage_to_cpu(storage, arg),
        c10::DispatchKeySet(c10::DispatchKey::CPU),
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
  c10::TensorImpl* const cpu = wrapper.get();
  append(
      {&from,
       at::Tensor(std::move(wrapper)),
       index,
       arg.written,
       /*pooled=*/known == kNone && entry_.builtin});
  return cpu;
}

inline c10::TensorImpl* CpuCall::wrap(
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
    if (wrapped.storage < kUnmapped) {
      storages_[wrapped.storage].written |= arg.written;
      storages_[wrapped.storage].out_only = false;
    }
    return wrapped.cpu.unsafeGetTensorImpl();
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
    const at::Tensor cpu = components_to_cpu(*this, original, arg);
    remember(original, cpu, arg.written);
    return cpu.unsafeGetTensorImpl();
  }
  return wrap_dense(*impl, arg);
}

c10::TensorImpl* CpuCall::convert(const at::Tensor& original, const Arg& arg) {
  c10::TensorImpl* const plain = wrap(original, arg);
  if (C10_LIKELY(wide_ == nullptr)) {
    return plain;
  }
  const ShimScope memory = scratch();
  return wide_->stand_in(plain, arg);
}

ShimScope CpuCall::scratch() const {
  return {
      copies_ || for_host_ ? c10::DeviceIndex{-1} : device_.index(), opens_};
}

at::Tensor CpuCall::to_cpu(const at::Tensor& original, const Arg& arg) {
  if (!original.defined()) {
    return original;
  }
  originals_.push_back(original);
  return at::Tensor(TensorImplPtr::reclaim_copy(convert(original, arg)));
}

std::string CpuCall::describe() const {
  std::ostringstream text;
  for (const Wrapped& wrapped : tensors_) {
    text << ' ' << wrapped.cpu.scalar_type();
    if (!wrapped.original->has_symbolic_sizes_strides()) {
      text << wrapped.original->sizes();
    }
  }
  return text.str();
}

void CpuCall::convert_list(c10::IValue& value, const Arg& arg) {
  if (arg.kind == ArgKind::kTensorList) {
    c10::List<at::Tensor> converted;
    const auto items = value.toListRef();
    converted.reserve(items.size());
    for (const c10::IValue& item : items) {
      converted.push_back(to_cpu(item.toTensor(), arg));
    }
    value = std::move(converted);
    return;
  }
  c10::List<std::optional<at::Tensor>> converted;
  const auto items = value.toListRef();
  converted.reserve(items.size());
  for (const c10::IValue& item : items) {
    if (item.isTensor()) {
      converted.push_back(to_cpu(item.toTensor(), arg));
    } else {
      converted.push_back(std::nullopt);
    }
  }
  value = std::move(converted);
}

void CpuCall::widen(c10::IValue* args) {
  WideSight sight(*entry_.wide);
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
      sight.next(std::optional(args[i].toScalarType()));
    } else {
      sight.next(args[i]);
    }
  }
  widen(sight);
  for (std::uint32_t i = 0; wide_ != nullptr && i < entry_.n_args; ++i) {
    if (args[i].isInt() && is_dtype(i)) {
      args[i] = *wide_->stand_in(args[i].toScalarType());
    }
  }
}

void CpuCall::convert_arguments(c10::IValue* args) {
  if (C10_UNLIKELY(entry_.wide != nullptr)) {
    widen(args);
  }
  for (const Arg& arg : entry_.args) {
    c10::IValue& value = args[arg.index];
    switch (arg.kind) {
      case ArgKind::kTensor:
        if (value.isTensor()) {
          const at::Tensor original = std::move(value).toTensor();
          value = to_cpu(original, arg);
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
          for_host_ |= value.toDevice().is_cpu();
          value = kCpuDevice;
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

}  // namespace npu::ladder
