// SPDX-License-Identifier: Apache-2.0
// Copies between two npu devices, ordered with events on both sides.
#include "aten/core/copy.h"
#include "aten/core/factories.h"
#include "driver/registry.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/event.h"
#include "runtime/host_work.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu {
namespace {

// Makes later work of `later` wait for what `earlier` has queued so far.
void order(c10::Stream earlier, c10::Stream later) {
  Event event;
  event.record(earlier);
  event.block(later);
}

// Same size, both dense in the same order.
void copy_bytes(const at::Tensor& dst, const at::Tensor& src) {
  const c10::DeviceIndex to = dst.device().index();
  const c10::DeviceIndex from = src.device().index();
  const c10::Stream to_stream = current_stream(to);
  const c10::Stream from_stream = current_stream(from);
  sanitizer::raise_pending();
  note_host_work();
  // dst may still be in use by work on its own device's stream.
  order(to_stream, from_stream);
  check_driver(
      active_driver().memory().copy_peer(
          stream_handle(from_stream),
          driver_device(to),
          dst.data_ptr(),
          driver_device(from),
          src.data_ptr(),
          dst.nbytes()),
      "copy between devices");
  order(from_stream, to_stream);
}

}  // namespace

void copy_between_devices(const at::Tensor& dst, const at::Tensor& src) {
  if (dst.numel() == 0 && src.numel() == 0) {
    return;
  }
  // Cast and gather where the data is, then move dense bytes.
  at::Tensor dense = src;
  const bool plain = src.scalar_type() == dst.scalar_type() && !src.is_conj() &&
                     !src.is_neg() && src.is_non_overlapping_and_dense();
  const bool fits =
      dst.is_non_overlapping_and_dense() && dst.sizes().equals(src.sizes());
  if (!plain || (fits && !src.strides().equals(dst.strides()))) {
    dense =
        fits ? make_empty_strided(
                   dst.sizes(),
                   dst.strides(),
                   dst.scalar_type(),
                   src.device().index())
             : make_empty(src.sizes(), dst.scalar_type(), src.device().index());
    copy_on_device(dense, src);
  }
  if (fits) {
    copy_bytes(dst, dense);
    return;
  }
  const at::Tensor arrived = make_empty_strided(
      dense.sizes(),
      dense.strides(),
      dense.scalar_type(),
      dst.device().index());
  copy_bytes(arrived, dense);
  copy_on_device(dst, arrived);
}

}  // namespace npu
