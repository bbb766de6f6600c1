// SPDX-License-Identifier: Apache-2.0
// Results of a call on a twin, and what it did to the tensors it wrote.
#include <ATen/core/List.h>

#include "aten/twin/call.h"
#include "aten/twin/unrecorded.h"
#include "aten/twin/wrapper_pool.h"
#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace npu::twin {
namespace {

// Device memory a kernel still looks at after its call: a twin storage whose
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

c10::Storage npu_storage(c10::DataPtr data, std::size_t bytes) {
  return c10::Storage(
      c10::Storage::use_byte_size_t(),
      bytes,
      std::move(data),
      device_allocator(),
      /*resizable=*/true);
}

}  // namespace

void TwinCall::adopt(c10::DataPtr& data, c10::Device device) const {
  if (C10_LIKELY(on_cpu_)) {
    hand_over(data, device);
  } else {
    twin_.adopt(data, device);
  }
}

c10::Storage TwinCall::upload(const c10::Storage& twin) {
  const std::size_t bytes = twin.nbytes();
  if (copies_) {  // rung 5 counts what it copies
    bytes_ += bytes;
  }
  c10::DataPtr data = allocate(bytes, device_.index());
  if (bytes != 0) {
    check_driver(
        active_driver().memory().copy_to_device(
            current_stream_handle(device_.index()),
            data.get(),
            twin.data(),
            bytes),
        "copy a result to the device");
  }
  return npu_storage(std::move(data), bytes);
}

c10::Storage TwinCall::storage_to_npu(const c10::Storage& twin) {
  c10::StorageImpl* const impl = twin.unsafeGetStorageImpl();
  const std::uint32_t known = find_twin_storage(impl);
  if (known != kNone) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        storages_[known].original));
  }
  if (const auto* const argument = find_unrecorded(tensors_, impl)) {
    return argument->original->unsafe_storage();
  }
  c10::Storage made;
  c10::DataPtr& data = impl->_mutable_data_ptr_no_checks();
  if (data.get() == nullptr) {
    made = npu_storage(c10::DataPtr(nullptr, device_), impl->nbytes());
  } else if (!copies_ && owns(data)) {
    adopt(data, twin_device_);
    // Two results, or a result and a kernel's own buffer, look at it: the
    // twin storage stays the owner.
    made = npu_storage(
        c10::DataPtr(
            data.get(), new c10::Storage(twin), &drop_storage, device_),
        impl->nbytes());
  } else {
    made = upload(twin);
  }
  // A second result over the same bytes must find this one.
  kept_.push_back(twin);
  kept_.push_back(made);
  Mapped mapped{};
  mapped.original = made.unsafeGetStorageImpl();
  mapped.twin = impl;
  append_storage(mapped);
  return made;
}

at::Tensor TwinCall::adopt_dense(at::Tensor twin) {
  c10::TensorImpl& impl = *twin.unsafeGetTensorImpl();
  const c10::Storage& storage = impl.unsafe_storage();
  c10::StorageImpl* const memory = storage.unsafeGetStorageImpl();
  if (C10_LIKELY(!copies_)) {
    bytes_ += static_cast<std::uint64_t>(impl.numel()) * impl.itemsize();
  }
  if (C10_UNLIKELY(
          find_twin_storage(memory) != kNone ||
          find_unrecorded(tensors_, memory) != nullptr)) {
    return tensor_like(storage_to_npu(storage), impl);
  }
  c10::DataPtr& data = memory->_mutable_data_ptr_no_checks();
  const bool ours = !copies_ && (owns(data) || data.get() == nullptr);
  if (C10_UNLIKELY(
          !ours || twin.use_count() != 1 || storage.use_count() != 1 ||
          impl.is_python_dispatch())) {
    return tensor_like(storage_to_npu(storage), impl);
  }
  // It has no other owner: the kernel's tensor becomes the npu tensor.
  adopt(data, device_);
  memory->set_allocator(device_allocator());
  impl._change_backend_component_keys(device_);
  // Its device is read off the storage only when one is set: set the same.
  impl.set_storage_keep_dtype(
      std::move(const_cast<c10::Storage&>(impl.unsafe_storage())));
  return twin;
}

at::Tensor TwinCall::to_npu(at::Tensor twin) {
  if (!twin.defined()) {
    return twin;
  }
  const c10::TensorImpl* impl = twin.unsafeGetTensorImpl();
  if (C10_UNLIKELY(wide_ != nullptr)) {
    if (c10::TensorImpl* const plain = wide_->plain_of(impl)) {
      impl = plain;
    } else {
      const ShimScope memory(shim());
      twin = wide_->narrow(std::move(twin));
      impl = twin.unsafeGetTensorImpl();
    }
  }
  const std::uint32_t known = find_twin(impl);
  if (known != kNone) {
    return at::Tensor(TensorImplPtr::reclaim_copy(tensors_[known].original));
  }
  if (twin.device().type() != twin_device_.type() || C10_UNLIKELY(for_host_)) {
    return twin;
  }
  if (C10_UNLIKELY(has_components(*twin.unsafeGetTensorImpl()))) {
    return components_to_npu(*this, twin);
  }
  return adopt_dense(std::move(twin));
}

void TwinCall::convert_results(c10::IValue* results, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    c10::IValue& value = results[i];
    if (C10_LIKELY(value.isTensor())) {
      value = to_npu(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> twin = std::move(value).toTensorList();
      c10::List<at::Tensor> converted;
      converted.reserve(twin.size());
      for (std::size_t k = 0; k < twin.size(); ++k) {
        converted.push_back(to_npu(twin.extract(k)));
      }
      value = std::move(converted);
    }
  }
}

void TwinCall::take_new_memory(Mapped& mapped) {
  c10::StorageImpl& twin = *mapped.twin;
  c10::DataPtr& data = twin._mutable_data_ptr_no_checks();
  if (data.get() == mapped.data && twin.nbytes() == mapped.bytes) {
    return;
  }
  // Into the existing storage, so that views of it see the new memory too.
  c10::StorageImpl& original = *mapped.original;
  if (data.get() == mapped.data) {
    original.set_nbytes(twin.nbytes());
  } else if (copies_) {
    // Grown on the device too; finish() copies what the kernel wrote.
    resize_bytes(&original, twin.nbytes());
  } else if (owns(data)) {
    close(mapped);
    adopt(data, device_);
    void* const bytes = data.get();
    original.set_data_ptr_noswap(std::move(data));
    original.set_nbytes(twin.nbytes());
    data = c10::DataPtr(bytes, twin_device_);
  } else {
    close(mapped);
    const c10::Storage made = upload(c10::Storage(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(mapped.twin)));
    original.set_data_ptr_noswap(
        std::move(made.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()));
    original.set_nbytes(twin.nbytes());
  }
  mapped.data = data.get();
  mapped.bytes = twin.nbytes();
}

void TwinCall::write_back_one(Wrapped& wrapped) {
  if (wrapped.storage == kNone || has_components(*wrapped.original)) {
    write_back_components(
        *this,
        at::Tensor(TensorImplPtr::reclaim_copy(wrapped.original)),
        wrapped.twin);
    return;
  }
  c10::TensorImpl& twin = *wrapped.twin.unsafeGetTensorImpl();
  c10::TensorImpl& original = *wrapped.original;
  Mapped& mapped = storages_[wrapped.storage];
  const c10::Storage& now = twin.unsafe_storage();
  if (C10_UNLIKELY(now.unsafeGetStorageImpl() != mapped.twin)) {
    mapped.twin = nullptr;  // set_(): may be gone, its address used again
    close(mapped);          // the next line may free the old memory
    original.set_storage_keep_dtype(storage_to_npu(now));
  } else {
    take_new_memory(mapped);
  }
  if (C10_UNLIKELY(!same_geometry(twin, original))) {
    original.set_sizes_and_strides(
        twin.sizes(), twin.strides(), twin.storage_offset());
  }
  if (C10_UNLIKELY(twin.is_conj() != original.is_conj())) {
    original._set_conj(twin.is_conj());
  }
  if (C10_UNLIKELY(twin.is_neg() != original.is_neg())) {
    original._set_neg(twin.is_neg());
  }
}

void TwinCall::write_back() {
  if (!entry_.any_written) {
    return;
  }
  if (C10_UNLIKELY(wide_ != nullptr)) {
    const ShimScope memory(shim());
    wide_->copy_home();
  }
  for (Wrapped& wrapped : tensors_) {
    if (wrapped.written) {
      write_back_one(wrapped);
    }
  }
}

void TwinCall::keep_alive(Mapped& mapped) const {
  auto* const context = new KeepAlive{c10::Storage(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(mapped.original))};
  if (opens_ && mapped.data != nullptr && mapped.bytes != 0) {
    open_range(mapped.data, mapped.bytes);
    context->opened = mapped.data;
    context->bytes = mapped.bytes;
  }
  mapped.twin->set_data_ptr_noswap(
      c10::DataPtr(mapped.data, context, &KeepAlive::drop, twin_device_));
}

void TwinCall::finish() {
  if (C10_UNLIKELY(copies_ && entry_.any_written)) {
    upload_written();
  }
  WrapperPool& pool = WrapperPool::of(twin_, twin_device_);
  for (Wrapped& wrapped : tensors_) {
    if (wrapped.storage == kNone) {
      continue;
    }
    const c10::Storage& storage =
        wrapped.twin.unsafeGetTensorImpl()->unsafe_storage();
    if (C10_LIKELY(wrapped.storage == kUnrecorded)) {
      if (C10_LIKELY(
              wrapped.twin.use_count() == 1 && storage.use_count() == 1)) {
        pool.give(
            TensorImplPtr::reclaim(wrapped.twin.unsafeReleaseTensorImpl()));
      } else {
        Mapped kept{};
        kept.original =
            wrapped.original->unsafe_storage().unsafeGetStorageImpl();
        kept.twin = storage.unsafeGetStorageImpl();
        kept.data = const_cast<void*>(kept.original->data());
        kept.bytes = kept.original->nbytes();
        keep_alive(kept);
      }
      continue;
    }
    Mapped& mapped = storages_[wrapped.storage];
    if (storage.unsafeGetStorageImpl() != mapped.twin) {
      continue;
    }
    if (C10_UNLIKELY(
            wrapped.twin.use_count() > 1 ||
            storage.use_count() > mapped.holders)) {
      if (!copies_ && !mapped.kept) {
        mapped.kept = true;
        keep_alive(mapped);
      }
    } else if (C10_LIKELY(wrapped.pooled && mapped.holders == 1)) {
      pool.give(TensorImplPtr::reclaim(wrapped.twin.unsafeReleaseTensorImpl()));
    }
  }
  tensors_.clear();
}

}  // namespace npu::twin
