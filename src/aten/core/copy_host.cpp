// SPDX-License-Identifier: Apache-2.0
// Copies between host tensors and npu tensors.
#include <ATen/EmptyTensor.h>

#include <cstring>
#include <memory>
#include <vector>

#include "aten/core/copy.h"
#include "aten/core/factories.h"
#include "aten/core/host_view.h"
#include "aten/core/queue.h"
#include "aten/core/transfer.h"
#include "driver/registry.h"
#include "npu/kinds.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/pinned.h"
#include "runtime/stream.h"

namespace npu {
namespace {

// Host memory that a queued copy still uses must not go back to the pinned
// pool before the copy is done. Ordinary memory is unknown there: no harm.
void record_host(const at::Tensor& host, c10::Stream stream) {
  record_pinned(
      host.data_ptr(), host.storage().data_ptr().get_context(), stream);
}

// One of the tensors is on the host; both have the same bytes.
void move_bytes(
    ByteWork::Kind kind,
    const at::Tensor& to,
    const at::Tensor& from,
    bool non_blocking,
    const char* what) {
  const bool up = kind == ByteWork::kToDevice;
  const at::Tensor& device = up ? to : from;
  const c10::DeviceIndex index = device.device().index();
  const c10::Stream stream = current_stream(index);
  queue_copy(
      kind, to.data_ptr(), from.data_ptr(), device.nbytes(), index, what);
  if (non_blocking) {
    record_host(up ? from : to, stream);
  } else {
    synchronize_stream(stream);
  }
}

void upload(const at::Tensor& dst, const at::Tensor& host, bool non_blocking) {
  move_bytes(
      ByteWork::kToDevice, dst, host, non_blocking, "copy to the device");
}

void download(
    const at::Tensor& host, const at::Tensor& src, bool non_blocking) {
  move_bytes(ByteWork::kToHost, host, src, non_blocking, "copy to the host");
}

at::Tensor empty_host(
    at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype) {
  return at::Tensor(
      at::detail::empty_strided_cpu(sizes, strides, dtype, false));
}

// A pinned buffer for one copy; it is used again when `stream` has passed.
at::Tensor pinned_buffer(
    at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype) {
  c10::DataPtr data =
      pinned_allocator()->allocate(at::detail::computeStorageNbytes(
          sizes, strides, c10::elementSize(dtype)));
  at::Tensor buffer(c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(
          c10::Storage::use_byte_size_t(),
          at::detail::computeStorageNbytes(
              sizes, strides, c10::elementSize(dtype)),
          std::move(data),
          pinned_allocator(),
          /*resizable=*/false),
      c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype)));
  buffer.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return buffer;
}

// Without waiting for the stream. `src_stays`: its bytes go to the device as
// they are, which casts and spreads them. Otherwise, and when src has gaps, a
// buffer takes the converted values here.
void copy_from_host_queued(
    const at::Tensor& dst, const at::Tensor& src, bool src_stays) {
  const c10::DeviceIndex device = dst.device().index();
  if (src_stays && src.is_non_overlapping_and_dense() &&
      active_driver().has_kind(NPU_KIND_COPY)) {
    const at::Tensor arrived = make_empty_strided(
        src.sizes(), src.strides(), src.scalar_type(), device);
    upload(arrived, src, /*non_blocking=*/true);
    arrived._set_conj(src.is_conj());
    arrived._set_neg(src.is_neg());
    copy_on_device(dst, arrived);
    return;
  }
  const bool fits = dst.is_non_overlapping_and_dense();
  const at::Tensor target =
      fits ? dst : make_empty(dst.sizes(), dst.scalar_type(), device);
  const at::Tensor host =
      pinned_buffer(target.sizes(), target.strides(), target.scalar_type());
  host.copy_(src);
  upload(target, host, /*non_blocking=*/true);
  if (!fits) {
    copy_on_device(dst, target);
  }
}

// Moves a packed buffer into a tensor with gaps, when the stream gets there.
// Runs on a thread of the driver: plain loops over memory that record_host()
// keeps, nothing of PyTorch.
struct Spread {
  char* to;
  const char* from;
  std::size_t item;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;

  static void run(void* context) {
    const std::unique_ptr<const Spread> self(
        static_cast<const Spread*>(context));
    std::vector<std::int64_t> at(self->sizes.size(), 0);
    const char* from = self->from;
    for (;;) {
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < at.size(); ++d) {
        offset += at[d] * self->strides[d];
      }
      std::memcpy(
          self->to + offset * static_cast<std::int64_t>(self->item),
          from,
          self->item);
      from += self->item;
      std::size_t d = at.size();
      while (d > 0 && ++at[d - 1] == self->sizes[d - 1]) {
        at[--d] = 0;
      }
      if (d == 0) {
        return;
      }
    }
  }
};

// Into pinned memory without waiting: cast on the device, bytes come over in
// dst's order; a dst with gaps is filled by the stream from a packed buffer.
void copy_to_host_queued(const at::Tensor& dst, const at::Tensor& src) {
  const c10::DeviceIndex device = src.device().index();
  const bool fits = dst.is_non_overlapping_and_dense();
  const at::Tensor dense =
      fits ? make_empty_strided(
                 dst.sizes(), dst.strides(), dst.scalar_type(), device)
           : make_empty(dst.sizes(), dst.scalar_type(), device);
  copy_on_device(dense, src);
  if (fits) {
    download(dst, dense, /*non_blocking=*/true);
    return;
  }
  const at::Tensor packed =
      pinned_buffer(dense.sizes(), dense.strides(), dense.scalar_type());
  download(packed, dense, /*non_blocking=*/true);
  const c10::Stream stream = current_stream(device);
  auto spread = std::make_unique<Spread>(Spread{
      static_cast<char*>(dst.data_ptr()),
      static_cast<const char*>(packed.data_ptr()),
      static_cast<std::size_t>(dst.element_size()),
      dst.sizes().vec(),
      dst.strides().vec()});
  check_driver(
      active_driver().stream().host_call(
          stream_handle(stream), &Spread::run, spread.get()),
      "queue a copy to the host");
  spread.release();
  record_host(packed, stream);
  record_host(dst, stream);
}

}  // namespace

void copy_from_host(
    const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (same_bytes(dst, src)) {
    upload(dst, src, non_blocking);
    return;
  }
  make_copy_iterator(dst, src);
  if (dst.numel() == 0) {
    return;
  }
  const bool src_stays = non_blocking && is_pinned(src.data_ptr());
  if (src_stays || !host_can_read(dst.device().index())) {
    copy_from_host_queued(dst, src, src_stays);
    return;
  }
  HostView view(dst, HostView::kWrite);
  view.tensor().copy_(src);
}

void copy_to_host(
    const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (same_bytes(dst, src)) {
    download(dst, src, non_blocking);
    return;
  }
  make_copy_iterator(dst, src);
  if (dst.numel() == 0) {
    return;
  }
  if (non_blocking && is_pinned(dst.data_ptr()) &&
      active_driver().has_kind(NPU_KIND_COPY)) {
    copy_to_host_queued(dst, src);
    return;
  }
  if (host_can_read(src.device().index())) {
    const HostView view(src, HostView::kRead);
    dst.copy_(view.tensor());
    return;
  }
  at::Tensor dense = src;
  if (!src.is_non_overlapping_and_dense() || !same_meaning(dst, src)) {
    dense = make_empty(src.sizes(), dst.scalar_type(), src.device().index());
    copy_on_device(dense, src);
  }
  const at::Tensor host =
      empty_host(dense.sizes(), dense.strides(), dense.scalar_type());
  download(host, dense, /*non_blocking=*/false);
  dst.copy_(host);
}

}  // namespace npu
