// SPDX-License-Identifier: Apache-2.0
// An npu tensor's bytes for host code, for as long as the object lives.
#include "aten/core/host_view.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>

#include "aten/core/transfer.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu {
namespace {

at::Tensor cpu_tensor_over(void* data, const at::Tensor& like) {
  at::Tensor out = at::from_blob(
      data,
      like.sizes(),
      like.strides(),
      at::TensorOptions(like.scalar_type()).device(at::kCPU));
  out._set_conj(like.is_conj());
  out._set_neg(like.is_neg());
  return out;
}

}  // namespace

std::uint64_t span_bytes(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(
      tensor.sizes(), tensor.strides(), tensor.element_size());
}

HostView::HostView(const at::Tensor& tensor, Access access)
    : device_(tensor),
      data_(tensor.data_ptr()),
      bytes_(span_bytes(tensor)),
      access_(access) {
  const c10::DeviceIndex device = tensor.device().index();
  sanitizer::raise_pending();
  const npu_memory_table& memory = active_driver().memory();
  if (bytes_ != 0 && !host_can_read(device)) {
    at::Tensor buffer = at::Tensor(
        at::detail::empty_cpu({static_cast<std::int64_t>(bytes_)}, at::kByte));
    if ((access & kRead) != 0) {
      check_driver(
          memory.copy_to_host(
              current_stream_handle(device), buffer.data_ptr(), data_, bytes_),
          "read device memory");
    }
    synchronize_stream(current_stream(device));
    host_ = cpu_tensor_over(buffer.data_ptr(), tensor);
    staging_ = std::move(buffer);
    return;
  }
  synchronize_stream(current_stream(device));
  if (bytes_ != 0 && needs_host_open(device)) {
    check_driver(memory.host_open(data_, bytes_, access), "open device memory");
    opened_ = true;
  }
  host_ = cpu_tensor_over(data_, tensor);
}

HostView::~HostView() {
  if (!opened_) {
    return;
  }
  const npu_status status =
      active_driver().memory().host_close(data_, bytes_, access_);
  if (status != NPU_OK) {
    log(NPU_LOG_ERROR,
        std::string("npu: close device memory: ") + status_name(status) + ".");
  }
}

void HostView::write_back() {
  if (!staging_.defined()) {
    return;
  }
  // Storage offsets count from the storage's first byte.
  const char* const first = static_cast<const char*>(staging_.data_ptr());
  upload_elements(
      *device_.unsafeGetTensorImpl(),
      first - device_.storage_offset() * device_.element_size(),
      current_stream(device_.device().index()));
}

}  // namespace npu
