// SPDX-License-Identifier: Apache-2.0
// Frames of any driver's device on the embedded host driver.
#include <c10/core/CPUAllocator.h>

#include <array>
#include <optional>
#include <vector>

#include "aten/core/runner.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "npu/validate.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream.h"

namespace npu {
namespace {

// A stream of the embedded host driver for frames of another driver's device.
npu_stream embedded_stream() {
  static const npu_stream stream = [] {
    const Driver& host = host_driver();
    check_driver(host.device().open(0), "open the embedded host driver");
    npu_stream made = nullptr;
    check_driver(
        host.stream().create(0, 0, &made),
        "create a stream of the embedded host driver");
    return made;
  }();
  return stream;
}

bool host_is_active() {
  return &active_driver() == &host_driver();
}

// From the first element to the end of the last one.
std::uint64_t span_bytes(const npu_tensor& tensor) {
  std::int64_t last = 0;
  for (std::uint32_t d = 0; d < tensor.ndim; ++d) {
    last += (tensor.sizes[d] - 1) * tensor.strides[d];
  }
  return tensor.numel == 0 ? 0
                           : (static_cast<std::uint64_t>(last) + 1) *
                                 npu_dtype_bytes(tensor.dtype);
}

// Bytes of an operand for the host driver: in place where host code can reach
// them, else a copy that write_back() copies back.
class HostBytes {
 public:
  HostBytes(
      void* data,
      std::uint64_t bytes,
      c10::DeviceIndex device,
      std::uint32_t access)
      : data_(data), bytes_(bytes), device_(device), access_(access) {
    const npu_memory_table& memory = active_driver().memory();
    if (host_can_read(device)) {
      if (needs_host_open(device)) {
        check_driver(
            memory.host_open(data, bytes, access), "open device memory");
        opened_ = true;
      }
      return;
    }
    copy_ = c10::GetCPUAllocator()->allocate(bytes);
    if ((access & NPU_ACCESS_READ) != 0) {
      check_driver(
          memory.copy_to_host(
              current_stream_handle(device), copy_.get(), data, bytes),
          "read device memory");
    }
  }
  HostBytes(const HostBytes&) = delete;
  HostBytes& operator=(const HostBytes&) = delete;
  ~HostBytes() {
    if (opened_ &&
        active_driver().memory().host_close(data_, bytes_, access_) != NPU_OK) {
      log(NPU_LOG_ERROR, "npu: the driver could not close device memory.");
    }
  }

  void* data() const noexcept {
    return copy_ ? copy_.get() : data_;
  }
  std::uint64_t copied() const noexcept {
    return copy_ ? bytes_ : 0;
  }
  void write_back() {
    if (copy_) {
      check_driver(
          active_driver().memory().copy_to_device(
              current_stream_handle(device_), data_, copy_.get(), bytes_),
          "write device memory");
    }
  }

 private:
  void* const data_;
  const std::uint64_t bytes_;
  const c10::DeviceIndex device_;
  const std::uint32_t access_;
  c10::DataPtr copy_;
  bool opened_ = false;
};

// The frame's operands as host memory, for as long as this lives.
class HostOperands {
 public:
  HostOperands(npu_call& frame, c10::DeviceIndex device) : frame_(frame) {
    // The frame's array is the call's own.
    auto* const tensors = const_cast<npu_tensor*>(frame.tensors);
    const bool other = !host_is_active();
    synchronize_stream(current_stream(device));
    for (std::uint32_t i = 0; i < frame.n_out + frame.n_in; ++i) {
      npu_tensor& tensor = tensors[i];
      if (tensor.dtype == NPU_ABSENT ||
          (tensor.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
        continue;
      }
      const std::uint64_t bytes = span_bytes(tensor);
      operands_[i].emplace(tensor.data, bytes, device, access(i));
      tensor.data = tensor.storage = operands_[i]->data();
      tensor.storage_bytes = bytes;
      tensor.device = other ? 0 : tensor.device;
      copied_ += operands_[i]->copied();
    }
  }
  void write_back() {
    for (std::uint32_t i = 0; i < frame_.n_out; ++i) {
      if (operands_[i]) {
        operands_[i]->write_back();
      }
    }
  }
  std::uint64_t copied_bytes() const noexcept {
    return copied_;
  }

 private:
  // Gaps between elements of an output come back as they were.
  std::uint32_t access(std::uint32_t place) const {
    if (place >= frame_.n_out) {
      return NPU_ACCESS_READ;
    }
    const npu_kind_info* const kind = npu_kind_of(frame_.slot);
    const bool is_read =
        (frame_.tensors[place].flags & NPU_TENSOR_DENSE) == 0 ||
        kind == nullptr || kind->operands[place].mode == NPU_MODE_INOUT;
    return is_read ? NPU_ACCESS_READ | NPU_ACCESS_WRITE : NPU_ACCESS_WRITE;
  }

  npu_call& frame_;
  std::uint64_t copied_ = 0;
  std::array<std::optional<HostBytes>, NPU_MAX_OPERANDS> operands_;
};

}  // namespace

std::uint64_t run_embedded(Call& call, c10::DeviceIndex device) {
  const Driver& host = host_driver();
  npu_call& frame = call.frame();
  TORCH_INTERNAL_ASSERT(frame.n_lists == 0);
  const npu_stream stream =
      host_is_active() ? current_stream_handle(device) : embedded_stream();
  HostOperands operands(frame, device);
  frame.plan = nullptr;
  frame.workspace = nullptr;
  frame.workspace_bytes = 0;
  std::vector<std::max_align_t> workspace;
  // A host driver that imitates one without the kind declines; it has it.
  const npu_verdict verdict =
      call.plan(host, host_is_active() ? driver_device(device) : 0);
  if (verdict.answer == NPU_VERDICT_YES && verdict.workspace_bytes != 0) {
    workspace.resize(
        (verdict.workspace_bytes + sizeof(std::max_align_t) - 1) /
        sizeof(std::max_align_t));
    frame.workspace = workspace.data();
    frame.workspace_bytes = verdict.workspace_bytes;
  }
  check_driver(call.run(host, stream), frame.label);
  check_driver(host.stream().synchronize(stream), frame.label);
  operands.write_back();
  return operands.copied_bytes();
}

}  // namespace npu
