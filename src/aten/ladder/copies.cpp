// SPDX-License-Identifier: Apache-2.0
// Rung 5: the bytes of a call come down in one go, and go up again.
#include <ATen/core/CachingHostAllocator.h>

#include <algorithm>

#include "aten/ladder/call.h"
#include "driver/registry.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu::ladder {
namespace {

struct Extent {
  std::size_t begin = SIZE_MAX;
  std::size_t end = 0;
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

// Pinned, so that copies are queued and waited for once.
c10::DataPtr staging(std::size_t bytes) {
  return at::getHostAllocator(kDeviceType)->allocate(bytes);
}

}  // namespace

void CpuCall::download() {
  std::vector<Extent> extents(storages_.size());
  for (const Wrapped& wrapped : tensors_) {
    if (wrapped.storage == kNone) {
      continue;
    }
    const c10::TensorImpl& tensor = *wrapped.cpu.unsafeGetTensorImpl();
    const Extent one = extent_of(tensor);
    Extent& all = extents[wrapped.storage];
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
    // Gaps between the elements of an output must survive its upload.
    Mapped& mapped = storages_[wrapped.storage];
    mapped.out_only &= tensor.is_non_overlapping_and_dense() &&
                       one.begin == 0 && one.end == mapped.bytes;
  }
  const npu_stream stream = current_stream_handle(device_.index());
  bool queued = false;
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    Mapped& mapped = storages_[i];
    Extent extent = extents[i];
    // A written storage may be resized, which copies all of its old content.
    if (mapped.written || extent.begin == SIZE_MAX || reaches_beyond(entry_)) {
      extent = {0, mapped.bytes};
    }
    const std::size_t bytes = extent.end - extent.begin;
    if (bytes == 0) {
      continue;
    }
    c10::DataPtr buffer = staging(bytes);
    if (!mapped.out_only) {
      const auto* const from =
          static_cast<const char*>(mapped.original->data()) + extent.begin;
      check_driver(
          active_driver().memory().copy_to_host(
              stream, buffer.get(), from, bytes),
          "copy an argument to the host");
      queued = true;
    }
    // The kernel addresses by storage offset: the base lies before the buffer.
    mapped.data = static_cast<char*>(buffer.get()) - extent.begin;
    void* const context = buffer.get_context();
    const c10::DeleterFnPtr deleter = buffer.get_deleter();
    buffer.release_context();
    mapped.cpu->set_data_ptr_noswap(c10::DataPtr(
        mapped.data, context, deleter, c10::Device(c10::DeviceType::CPU)));
  }
  if (queued) {
    synchronize_stream(current_stream(device_.index()));
  }
}

void CpuCall::upload_written() {
  const c10::Stream stream = current_stream(device_.index());
  for (Mapped& mapped : storages_) {
    if (!mapped.written || mapped.bytes == 0 || mapped.data == nullptr) {
      continue;
    }
    check_driver(
        active_driver().memory().copy_to_device(
            stream_handle(stream),
            mapped.original->mutable_data(),
            mapped.data,
            mapped.bytes),
        "copy a written argument to the device");
    // The staging buffer is pinned: it must outlive the copy.
    const c10::DataPtr& data = mapped.cpu->data_ptr();
    at::getHostAllocator(kDeviceType)
        ->record_event(data.get(), data.get_context(), stream);
  }
}

}  // namespace npu::ladder
