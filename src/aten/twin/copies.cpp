// SPDX-License-Identifier: Apache-2.0
// Rung 5: arguments are copied to the host together, what the kernel wrote is
// copied back. Nothing is kept from call to call.
//
// Note [Only what was written]: other streams and threads may write other
// elements of the same storage while the kernel runs. So only the elements of
// written tensors are copied back, never the bytes between or around them.
#include <ATen/core/CachingHostAllocator.h>

#include <algorithm>

#include "aten/core/transfer.h"
#include "aten/twin/call.h"
#include "driver/registry.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu::twin {
namespace {

// Bytes of a storage, counted from its first one.
struct Extent {
  std::size_t begin = SIZE_MAX;
  std::size_t end = 0;
  std::size_t size() const {
    return end <= begin ? 0 : end - begin;
  }
};

// The bytes of its storage that a tensor can reach.
Extent extent_of(const c10::TensorImpl& tensor) {
  if (tensor.numel() == 0) {
    return {};
  }
  std::int64_t last = tensor.storage_offset();
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    last += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const std::size_t item = tensor.itemsize();
  return {
      static_cast<std::size_t>(tensor.storage_offset()) * item,
      (static_cast<std::size_t>(last) + 1) * item};
}

// Operators that may look beyond the tensor they are given.
bool reaches_beyond(const Entry& entry) {
  return !entry.builtin || entry.label.find("as_strided") != std::string::npos;
}

// Gives a CPU storage pinned memory for these bytes of it, so that copies are
// queued and waited for once; returns the address of the storage's first byte.
// The kernel addresses by storage offset: that byte may lie before the memory.
void* give_pinned(c10::StorageImpl& twin, Extent held) {
  c10::DataPtr memory =
      at::getHostAllocator(kDeviceType)->allocate(held.size());
  void* const first = static_cast<char*>(memory.get()) - held.begin;
  const c10::DeleterFnPtr deleter = memory.get_deleter();
  twin.set_data_ptr_noswap(c10::DataPtr(
      first,
      memory.release_context(),
      deleter,
      c10::Device(c10::DeviceType::CPU)));
  return first;
}

// Copies that are on their way to the host. After an error they still write
// memory that is about to be freed, so the destructor waits too.
class Arrival {
 public:
  explicit Arrival(c10::Stream stream) : stream_(stream) {}
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;
  ~Arrival() {
    if (C10_UNLIKELY(queued_)) {
      try {
        synchronize_stream(stream_);
      } catch (const std::exception&) {  // the first error is reported
      }
    }
  }
  void queued() {
    queued_ = true;
  }
  void wait() {
    if (std::exchange(queued_, false)) {
      synchronize_stream(stream_);
    }
  }

 private:
  const c10::Stream stream_;
  bool queued_ = false;
};

}  // namespace

void TwinCall::download() {
  std::vector<Extent> reached(storages_.size());
  for (const Wrapped& wrapped : tensors_) {
    if (wrapped.storage == kNone) {
      continue;
    }
    const c10::TensorImpl& tensor = *wrapped.twin.unsafeGetTensorImpl();
    const Extent one = tensor.is_nested()
                           ? Extent{0, storages_[wrapped.storage].bytes}
                           : extent_of(tensor);
    Extent& all = reached[wrapped.storage];
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
  }
  const c10::Stream stream = current_stream(device_.index());
  try {
    Arrival arrival(stream);
    for (std::size_t i = 0; i < storages_.size(); ++i) {
      Mapped& mapped = storages_[i];
      Extent read = reached[i];
      if (reaches_beyond(entry_)) {
        mapped.out_only = false;
        read = {0, mapped.bytes};
      }
      // Resizing an out= tensor reads the whole old storage: its memory is as
      // large, although only `read` has values.
      const Extent held = mapped.may_grow ? Extent{0, mapped.bytes} : read;
      if (held.size() == 0) {
        continue;
      }
      mapped.data = give_pinned(*mapped.twin, held);
      if (mapped.out_only || read.size() == 0) {
        continue;
      }
      check_driver(
          active_driver().memory().copy_to_host(
              stream_handle(stream),
              static_cast<char*>(mapped.data) + read.begin,
              static_cast<const char*>(mapped.original->data()) + read.begin,
              read.size()),
          "copy an argument to the host");
      arrival.queued();
      bytes_ += read.size();
    }
    arrival.wait();
  } catch (...) {
    // Memory that not all bytes arrived in must not be copied back.
    for (Mapped& mapped : storages_) {
      mapped.data = nullptr;
    }
    throw;
  }
}

void TwinCall::upload_written() {
  const c10::Stream stream = current_stream(device_.index());
  bool kept = false;
  for (const Wrapped& wrapped : tensors_) {
    if (!wrapped.written || wrapped.storage == kNone) {
      continue;
    }
    const Mapped& mapped = storages_[wrapped.storage];
    if (!mapped.written || mapped.twin == nullptr || mapped.data == nullptr) {
      continue;
    }
    const c10::TensorImpl& original = *wrapped.original;
    upload_elements(original, mapped.data, stream);
    bytes_ +=
        static_cast<std::uint64_t>(original.numel()) * original.itemsize();
    // Pinned memory must not be used again before the copy has read it. The
    // storage may begin before that memory, the tensor does not.
    const c10::DataPtr& data = mapped.twin->data_ptr();
    record_pinned(
        static_cast<const char*>(data.get()) +
            static_cast<std::size_t>(original.storage_offset()) *
                original.itemsize(),
        data.get_context(),
        stream);
    const c10::Storage& storage =
        wrapped.twin.unsafeGetTensorImpl()->unsafe_storage();
    kept |=
        wrapped.twin.use_count() > 1 || storage.use_count() > mapped.holders;
  }
  if (C10_UNLIKELY(kept)) {
    // The kernel kept the memory and may write it before the copy has read it.
    synchronize_stream(stream);
  }
}

}  // namespace npu::twin
