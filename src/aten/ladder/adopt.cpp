// SPDX-License-Identifier: Apache-2.0
// Results of a CPU call, and what it did to the tensors it wrote.
#include <ATen/core/List.h>

#include "aten/ladder/call.h"
#include "aten/ladder/copies.h"
#include "aten/ladder/shim.h"
#include "aten/ladder/unmapped.h"
#include "aten/ladder/wrapper_pool.h"
#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace npu::ladder {
namespace {

// Device memory a kernel still looks at after its call: a CPU storage whose
// owner is the npu one.
struct KeepAlive {
  c10::Storage storage;
  void* opened = nullptr;
  std::size_t bytes = 0;

  static void drop(void* context) {
    auto* const self = static_cast<KeepAlive*>(context);
    if (self->opened != nullptr) {
      close_range(self->opened, self->bytes);
    }
    delete self;
  }
};

void drop_storage(void* context) {
  delete static_cast<c10::Storage*>(context);
}

bool same_geometry(const c10::TensorImpl& a, const c10::TensorImpl& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset();
}

// An npu tensor over `storage` with the geometry and bits of `like`.
at::Tensor tensor_like(c10::Storage storage, const c10::TensorImpl& like) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      like.dtype());
  impl->set_sizes_and_strides(
      like.sizes(), like.strides(), like.storage_offset());
  impl->_set_conj(like.is_conj());
  impl->_set_neg(like.is_neg());
  if (like.is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  return at::Tensor(std::move(impl));
}

// Ends host access to an argument's memory, which must come before the memory
// is freed.
template <class Mapped>
void close(Mapped& mapped) {
  if (mapped.opened != nullptr) {
    close_range(mapped.opened, mapped.opened_bytes);
    mapped.opened = nullptr;
  }
}

// Rung 5: leases of arguments become shadows, unless the kernel kept them.
template <class Tensors, class Storages>
void keep_arguments(
    const Tensors& tensors, const Storages& storages, std::uint32_t none) {
  for (const auto& wrapped : tensors) {
    if (wrapped.storage == none) {
      continue;
    }
    const auto& mapped = storages[wrapped.storage];
    Lease* const lease = Lease::of(mapped.cpu);
    const c10::Storage& storage =
        wrapped.cpu.unsafeGetTensorImpl()->unsafe_storage();
    if (lease != nullptr && (wrapped.cpu.use_count() > 1 ||
                             storage.unsafeGetStorageImpl() != mapped.cpu ||
                             storage.use_count() > mapped.holders)) {
      lease->disown();
    }
  }
  for (const auto& wrapped : tensors) {
    if (wrapped.storage != none) {
      if (Lease* const lease = Lease::of(storages[wrapped.storage].cpu)) {
        lease->publish();
      }
    }
  }
}

// The same for results: `kept` has a CPU storage, then its npu one, and so on.
void keep_results(c10::ArrayRef<c10::Storage> kept) {
  for (std::size_t i = 0; i < kept.size(); i += 2) {
    Lease* const lease = Lease::of(kept[i].unsafeGetStorageImpl());
    if (lease != nullptr && kept[i].use_count() == 1) {
      lease->publish();
    }
  }
}

c10::Storage npu_storage(c10::DataPtr data, std::size_t bytes) {
  return c10::Storage(
      c10::Storage::use_byte_size_t(),
      bytes,
      std::move(data),
      device_allocator(),
      /*resizable=*/true);
}

}  // namespace

c10::Storage CpuCall::upload(const c10::Storage& cpu) {
  const std::size_t bytes = cpu.nbytes();
  if (copies_) {
    bytes_ += bytes;
    return npu_storage(upload_result(cpu, device_.index()), bytes);
  }
  c10::DataPtr data = allocate(bytes, device_.index());
  if (bytes != 0) {
    check_driver(
        active_driver().memory().copy_to_device(
            current_stream_handle(device_.index()),
            data.get(),
            cpu.data(),
            bytes),
        "copy a result to the device");
  }
  return npu_storage(std::move(data), bytes);
}

c10::Storage CpuCall::storage_to_npu(const c10::Storage& cpu) {
  c10::StorageImpl* const impl = cpu.unsafeGetStorageImpl();
  const std::uint32_t known = find_cpu_storage(impl);
  if (known != kNone) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        storages_[known].original));
  }
  if (const auto* const argument = find_unmapped(tensors_, impl)) {
    return argument->original->unsafe_storage();
  }
  c10::Storage made;
  c10::DataPtr& data = impl->_mutable_data_ptr_no_checks();
  if (data.get() == nullptr) {
    made = npu_storage(c10::DataPtr(nullptr, device_), impl->nbytes());
  } else if (!copies_ && is_pool_block(data)) {
    hand_over(data, c10::Device(c10::DeviceType::CPU));
    // Two results, or a result and a kernel's own buffer, look at it: the
    // CPU storage stays the owner.
    made = npu_storage(
        c10::DataPtr(data.get(), new c10::Storage(cpu), &drop_storage, device_),
        impl->nbytes());
  } else {
    made = upload(cpu);
  }
  // A second result over the same bytes must find this one.
  kept_.push_back(cpu);
  kept_.push_back(made);
  Mapped mapped{};
  mapped.original = made.unsafeGetStorageImpl();
  mapped.cpu = impl;
  append_storage(mapped);
  return made;
}

at::Tensor CpuCall::adopt_dense(at::Tensor cpu) {
  c10::TensorImpl& impl = *cpu.unsafeGetTensorImpl();
  const c10::Storage& storage = impl.unsafe_storage();
  c10::StorageImpl* const memory = storage.unsafeGetStorageImpl();
  if (C10_LIKELY(!copies_)) {
    bytes_ += static_cast<std::uint64_t>(impl.numel()) * impl.itemsize();
  }
  if (C10_UNLIKELY(
          find_cpu_storage(memory) != kNone ||
          find_unmapped(tensors_, memory) != nullptr)) {
    return tensor_like(storage_to_npu(storage), impl);
  }
  c10::DataPtr& data = memory->_mutable_data_ptr_no_checks();
  const bool ours = !copies_ && (is_pool_block(data) || data.get() == nullptr);
  if (C10_UNLIKELY(
          !ours || cpu.use_count() != 1 || storage.use_count() != 1 ||
          impl.is_python_dispatch())) {
    return tensor_like(storage_to_npu(storage), impl);
  }
  // Nobody else has seen it: the kernel's tensor becomes the npu tensor.
  hand_over(data, device_);
  memory->set_allocator(device_allocator());
  impl._change_backend_component_keys(device_);
  // Its device is read off the storage only when one is set: set the same.
  impl.set_storage_keep_dtype(
      std::move(const_cast<c10::Storage&>(impl.unsafe_storage())));
  return cpu;
}

at::Tensor CpuCall::to_npu(at::Tensor cpu) {
  if (!cpu.defined()) {
    return cpu;
  }
  const c10::TensorImpl* impl = cpu.unsafeGetTensorImpl();
  if (C10_UNLIKELY(wide_ != nullptr)) {
    if (c10::TensorImpl* const plain = wide_->plain_of(impl)) {
      impl = plain;
    } else {
      const ShimScope memory = scratch();
      cpu = wide_->narrow(std::move(cpu));
      impl = cpu.unsafeGetTensorImpl();
    }
  }
  const std::uint32_t known = find_cpu(impl);
  if (known != kNone) {
    return at::Tensor(TensorImplPtr::reclaim_copy(tensors_[known].original));
  }
  if (!cpu.device().is_cpu() || C10_UNLIKELY(for_host_)) {
    return cpu;
  }
  if (C10_UNLIKELY(has_components(*cpu.unsafeGetTensorImpl()))) {
    return components_to_npu(*this, cpu);
  }
  return adopt_dense(std::move(cpu));
}

void CpuCall::convert_results(c10::IValue* results, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    c10::IValue& value = results[i];
    if (C10_LIKELY(value.isTensor())) {
      value = to_npu(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> cpu = std::move(value).toTensorList();
      c10::List<at::Tensor> converted;
      converted.reserve(cpu.size());
      for (std::size_t k = 0; k < cpu.size(); ++k) {
        converted.push_back(to_npu(cpu.extract(k)));
      }
      value = std::move(converted);
    }
  }
}

void CpuCall::take_new_memory(Mapped& mapped) {
  c10::StorageImpl& cpu = *mapped.cpu;
  c10::DataPtr& data = cpu._mutable_data_ptr_no_checks();
  if (data.get() == mapped.data && cpu.nbytes() == mapped.bytes) {
    return;
  }
  // Into the existing storage, so that views of it see the new memory too.
  c10::StorageImpl& original = *mapped.original;
  if (data.get() == mapped.data) {
    original.set_nbytes(cpu.nbytes());
  } else if (copies_) {
    // Grown on the device too; finish() copies what the kernel wrote.
    resize_bytes(&original, cpu.nbytes());
  } else if (is_pool_block(data)) {
    close(mapped);
    hand_over(data, device_);
    void* const bytes = data.get();
    original.set_data_ptr_noswap(std::move(data));
    original.set_nbytes(cpu.nbytes());
    data = c10::DataPtr(bytes, c10::Device(c10::DeviceType::CPU));
  } else {
    close(mapped);
    const c10::Storage made = upload(c10::Storage(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(mapped.cpu)));
    original.set_data_ptr_noswap(
        std::move(made.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
    original.set_nbytes(cpu.nbytes());
  }
  mapped.data = data.get();
  mapped.bytes = cpu.nbytes();
}

void CpuCall::write_back_one(Wrapped& wrapped) {
  if (wrapped.storage == kNone || has_components(*wrapped.original)) {
    write_back_components(
        *this,
        at::Tensor(TensorImplPtr::reclaim_copy(wrapped.original)),
        wrapped.cpu);
    return;
  }
  c10::TensorImpl& cpu = *wrapped.cpu.unsafeGetTensorImpl();
  c10::TensorImpl& original = *wrapped.original;
  Mapped& mapped = storages_[wrapped.storage];
  const c10::Storage& now = cpu.unsafe_storage();
  if (C10_UNLIKELY(now.unsafeGetStorageImpl() != mapped.cpu)) {
    mapped.cpu = nullptr;  // set_(): may be gone, its address used again
    close(mapped);         // the next line may free the old memory
    original.set_storage_keep_dtype(storage_to_npu(now));
  } else {
    take_new_memory(mapped);
  }
  if (C10_UNLIKELY(!same_geometry(cpu, original))) {
    original.set_sizes_and_strides(
        cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }
  if (C10_UNLIKELY(cpu.is_conj() != original.is_conj())) {
    original._set_conj(cpu.is_conj());
  }
  if (C10_UNLIKELY(cpu.is_neg() != original.is_neg())) {
    original._set_neg(cpu.is_neg());
  }
}

void CpuCall::write_back() {
  if (!entry_.any_written) {
    return;
  }
  if (C10_UNLIKELY(wide_ != nullptr)) {
    const ShimScope memory = scratch();
    wide_->copy_home();
  }
  for (Wrapped& wrapped : tensors_) {
    if (wrapped.written) {
      write_back_one(wrapped);
    }
  }
}

void CpuCall::keep_alive(Mapped& mapped) const {
  auto* const context = new KeepAlive{c10::Storage(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(mapped.original))};
  if (opens_ && mapped.data != nullptr && mapped.bytes != 0) {
    open_range(mapped.data, mapped.bytes);
    context->opened = mapped.data;
    context->bytes = mapped.bytes;
  }
  mapped.cpu->set_data_ptr_noswap(c10::DataPtr(
      mapped.data,
      context,
      &KeepAlive::drop,
      c10::Device(c10::DeviceType::CPU)));
}

void CpuCall::finish() {
  if (C10_UNLIKELY(copies_)) {
    if (entry_.any_written) {
      upload_written();
    }
    keep_arguments(tensors_, storages_, kNone);
  }
  WrapperPool& pool = WrapperPool::here();
  for (Wrapped& wrapped : tensors_) {
    if (wrapped.storage == kNone) {
      continue;
    }
    const c10::Storage& storage =
        wrapped.cpu.unsafeGetTensorImpl()->unsafe_storage();
    if (C10_LIKELY(wrapped.storage == kUnmapped)) {
      if (C10_LIKELY(
              wrapped.cpu.use_count() == 1 && storage.use_count() == 1)) {
        pool.give(
            TensorImplPtr::reclaim(wrapped.cpu.unsafeReleaseTensorImpl()));
      } else {
        Mapped kept{};
        kept.original =
            wrapped.original->unsafe_storage().unsafeGetStorageImpl();
        kept.cpu = storage.unsafeGetStorageImpl();
        kept.data = const_cast<void*>(kept.original->data());
        kept.bytes = kept.original->nbytes();
        keep_alive(kept);
      }
      continue;
    }
    Mapped& mapped = storages_[wrapped.storage];
    if (storage.unsafeGetStorageImpl() != mapped.cpu) {
      continue;
    }
    if (C10_UNLIKELY(
            wrapped.cpu.use_count() > 1 ||
            storage.use_count() > mapped.holders)) {
      if (!copies_ && !mapped.kept) {
        mapped.kept = true;
        keep_alive(mapped);
      }
    } else if (C10_LIKELY(wrapped.pooled && mapped.holders == 1)) {
      pool.give(TensorImplPtr::reclaim(wrapped.cpu.unsafeReleaseTensorImpl()));
    }
  }
  tensors_.clear();
  if (C10_UNLIKELY(copies_)) {
    keep_results(kept_);
  }
}

}  // namespace npu::ladder
