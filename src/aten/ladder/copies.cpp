// SPDX-License-Identifier: Apache-2.0
// Rung 5: arguments are copied to the host together, what the kernel wrote is
// copied back.
//
// Note [Only what was written]: other streams and threads may write other
// elements of the same storage while the kernel runs. So only the elements of
// written tensors are copied back, never the bytes between or around them.
#include <ATen/core/CachingHostAllocator.h>

#include <algorithm>

#include "aten/core/transfer.h"
#include "aten/ladder/call.h"
#include "driver/registry.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/pinned.h"
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

// Buffers that not all bytes arrived in are given up: what they hold must not
// be copied back when the call ends with an error.
template <class Storages>
struct Arrival {
  explicit Arrival(Storages& all) : storages(all) {}
  ~Arrival() {
    for (auto& mapped : storages) {
      mapped.data = is_complete ? mapped.data : nullptr;
    }
  }
  Storages& storages;
  bool is_complete = false;
};

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
    Mapped& mapped = storages_[wrapped.storage];
    const Extent one =
        tensor.is_nested() ? Extent{0, mapped.bytes} : extent_of(tensor);
    Extent& all = extents[wrapped.storage];
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
  }
  const npu_stream stream = current_stream_handle(device_.index());
  Arrival arrival(storages_);
  bool queued = false;
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    Mapped& mapped = storages_[i];
    Extent read = extents[i];
    if (reaches_beyond(entry_)) {
      mapped.out_only = false;
      read = {0, mapped.bytes};
    } else if (read.begin == SIZE_MAX) {
      read = {0, 0};
    }
    // A kernel may resize what it writes, which reads the whole old storage:
    // its buffer is as large, although only `read` has values.
    const Extent held = mapped.written ? Extent{0, mapped.bytes} : read;
    if (held.end == held.begin) {
      continue;
    }
    c10::DataPtr buffer = staging(held.end - held.begin);
    // The kernel addresses by storage offset: the base may lie before the
    // buffer.
    mapped.data = static_cast<char*>(buffer.get()) - held.begin;
    if (!mapped.out_only && read.end != read.begin) {
      check_driver(
          active_driver().memory().copy_to_host(
              stream,
              static_cast<char*>(mapped.data) + read.begin,
              static_cast<const char*>(mapped.original->data()) + read.begin,
              read.end - read.begin),
          "copy an argument to the host");
      queued = true;
    }
    void* const context = buffer.get_context();
    const c10::DeleterFnPtr deleter = buffer.get_deleter();
    buffer.release_context();
    mapped.cpu->set_data_ptr_noswap(c10::DataPtr(
        mapped.data, context, deleter, c10::Device(c10::DeviceType::CPU)));
  }
  if (queued) {
    synchronize_stream(current_stream(device_.index()));
  }
  arrival.is_complete = true;
}

void CpuCall::upload_written() {
  const c10::Stream stream = current_stream(device_.index());
  for (const Wrapped& wrapped : tensors_) {
    if (!wrapped.written || wrapped.storage == kNone) {
      continue;
    }
    const Mapped& mapped = storages_[wrapped.storage];
    if (!mapped.written || mapped.cpu == nullptr || mapped.data == nullptr) {
      continue;
    }
    upload_elements(*wrapped.original, mapped.data, stream);
    // Pinned memory must not be used again before the copy is done.
    const c10::DataPtr& data = mapped.cpu->data_ptr();
    record_pinned(data.get(), data.get_context(), stream);
  }
}

}  // namespace npu::ladder
