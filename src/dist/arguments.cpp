// SPDX-License-Identifier: Apache-2.0
// Tensors of a collective, as CPU tensors for Gloo or as dense ones for a
// driver's communicator.
#include "dist/arguments.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>

#include "driver/registry.h"
#include "runtime/allocator/allocator.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"
#include "runtime/external_stream.h"
#include "runtime/stream.h"

namespace npu::dist {

bool gloo_reaches(c10::DeviceIndex device) {
  return host_can_read(device) && !needs_host_open(device);
}

bool streams_wait_for_host() {
  return active_driver().queues_work();
}

Arguments::Arguments(c10::DeviceIndex device)
    : device_(device), in_place_(gloo_reaches(device)) {}

std::size_t Arguments::add(const at::Tensor& tensor, bool reads, bool writes) {
  TORCH_CHECK_VALUE(
      !writes || !(tensor.is_conj() || tensor.is_neg()),
      "hccl: a conjugate or negative view cannot be written by a collective. "
      "Give it tensor.resolve_conj().resolve_neg().");
  TORCH_CHECK_VALUE(
      !writes || at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
      "hccl: a tensor whose elements share memory (an expanded view) cannot be "
      "written by a collective. Give it tensor.contiguous().");
  Argument argument;
  // Detached: what lanes write is no step of autograd's.
  const at::Tensor plain = tensor.detach();
  argument.tensor = writes ? plain : plain.resolve_conj().resolve_neg();
  argument.reads = reads;
  argument.writes = writes;
  all_.push_back(std::move(argument));
  return all_.size() - 1;
}

std::size_t Arguments::read(const at::Tensor& tensor) {
  return add(tensor, true, false);
}

std::size_t Arguments::write(const at::Tensor& tensor) {
  return add(tensor, false, true);
}

std::size_t Arguments::update(const at::Tensor& tensor) {
  return add(tensor, true, true);
}

std::vector<at::Tensor> Arguments::inputs() const {
  std::vector<at::Tensor> found;
  for (const auto& argument : all_) {
    if (argument.reads) {
      found.push_back(argument.tensor);
    }
  }
  return found;
}

std::vector<at::Tensor> Arguments::outputs() const {
  std::vector<at::Tensor> found;
  for (const auto& argument : all_) {
    if (argument.writes) {
      found.push_back(argument.tensor);
    }
  }
  return found;
}

std::uint64_t Arguments::bytes_of_this_rank() const {
  std::uint64_t read = 0;
  std::uint64_t written = 0;
  for (const auto& argument : all_) {
    (argument.reads ? read : written) += argument.tensor.nbytes();
  }
  return read != 0 ? read : written;
}

void Arguments::queue() {
  for (auto& argument : all_) {
    const auto options = argument.tensor.options().device(c10::kCPU);
    if (in_place_) {
      argument.alias = at::from_blob(
          argument.tensor.data_ptr(),
          argument.tensor.sizes(),
          argument.tensor.strides(),
          options);
    }
  }
  if (!kept_) {
    stage();
  }
  queued_.record(current_stream(device_));
}

// On the current stream.
void Arguments::stage() {
  for (auto& argument : all_) {
    if (in_place_) {
      return;
    }
    argument.host = at::empty(
        argument.tensor.sizes(),
        argument.tensor.options().device(c10::kCPU).pinned_memory(true));
    if (argument.reads) {
      argument.host.copy_(argument.tensor, true);
    }
  }
}

void Arguments::fetch() {
  if (kept_ && !in_place_) {
    const c10::StreamGuard stream(copy_stream(device_));
    stage();
    synchronize_stream(copy_stream(device_));
  }
  for (auto& argument : all_) {
    if (in_place_) {
      // A copy only where the elements have gaps.
      argument.host =
          argument.alias.is_contiguous() ? argument.alias
          : argument.reads
              ? argument.alias.contiguous()
              : at::empty(argument.alias.sizes(), argument.alias.options());
    }
  }
}

at::Tensor Arguments::bytes(std::size_t number) {
  at::Tensor& host = all_[number].host;
  return at::from_blob(
      host.data_ptr(),
      {static_cast<int64_t>(host.nbytes())},
      at::TensorOptions().dtype(at::kByte));
}

void Arguments::store() {
  if (in_place_) {
    for (auto& argument : all_) {
      if (argument.writes && !argument.host.is_same(argument.alias)) {
        argument.alias.copy_(argument.host);
      }
    }
    return;
  }
  const c10::Stream lane = copy_stream(device_);
  const c10::StreamGuard stream(lane);
  for (auto& argument : all_) {
    if (argument.writes) {
      argument.tensor.copy_(argument.host, true);
    }
  }
  synchronize_stream(lane);
}

void Arguments::place(c10::Stream stream) {
  queued_.block(stream);
  if (device_ != stream.device_index()) {
    queued_.block(current_stream(device_));
  }
  for (auto& argument : all_) {
    const at::Tensor& tensor = argument.tensor;
    if (tensor.is_contiguous() && tensor.device() == stream.device()) {
      argument.placed = tensor;
    } else {
      argument.placed =
          at::empty(tensor.sizes(), tensor.options().device(stream.device()));
      if (argument.reads) {
        argument.placed.copy_(tensor, true);
      }
    }
  }
}

void Arguments::put_back() {
  for (auto& argument : all_) {
    if (argument.writes && !argument.placed.is_same(argument.tensor)) {
      argument.tensor.copy_(argument.placed, true);
    }
  }
}

std::vector<at::Tensor> Arguments::release(c10::Stream stream) {
  std::vector<at::Tensor> foreign;
  for (auto& argument : all_) {
    const at::Tensor& tensor = argument.tensor;
    if (!tensor.has_storage() || tensor.nbytes() == 0) {
      continue;
    }
    const c10::DataPtr& memory = tensor.storage().data_ptr();
    if (device_of_pointer(memory.get()) < 0) {
      foreign.push_back(tensor);
      continue;
    }
    record_stream(memory, stream);
    if (device_ != stream.device_index()) {
      record_stream(memory, current_stream(device_));
    }
  }
  all_.clear();
  return foreign;
}

}  // namespace npu::dist
