// SPDX-License-Identifier: Apache-2.0
// Direct calls: operators of a recording that a replay calls as kernels,
// without the dispatcher.
//
// Where the device is this processor, PyTorch's CPU kernels compute on the
// device's bytes, and src/aten/host_device makes direct calls of them. On other
// devices there are none, and such operators are islands.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "aten/graph/traced_graph.h"
#include "graph/graph.h"

namespace npu::graph {

// One operator of a recording.
class DirectCall {
 public:
  virtual ~DirectCall() = default;
  // Whether there is a kernel that writes results into given memory.
  virtual bool can_write() const noexcept = 0;
  // From now on results are written to `outs`, tensors of DirectCalls::wrap.
  virtual void write_into(const std::vector<at::Tensor>& outs) = 0;
  // After write_into: results are in the buffers when run() returns. Else run()
  // leaves them on the stack.
  virtual bool writes_results() const noexcept = 0;
  // Values of the graph are read from `registers`.
  virtual void run(
      torch::jit::Stack& stack,
      std::vector<c10::IValue>& registers,
      c10::DeviceIndex device) const = 0;
  // Where the operator's result k is among the kernel's results; -1: constant.
  virtual std::int32_t result_of(std::size_t k) const noexcept = 0;
  virtual const c10::IValue& constant(std::size_t k) const noexcept = 0;
};

// The direct calls of one recording, and what they see of its buffers.
class DirectCalls {
 public:
  virtual ~DirectCalls() = default;
  struct Making {
    const Instruction& instruction;
    // What computed it when it was recorded: last_host_work().
    const void* kernel;
    const std::vector<c10::IValue>& given;  // arguments, as they were
    const std::vector<c10::IValue>& results;
    // The buffer of a tensor; nothing when the recording does not know it.
    std::function<std::optional<BufferId>(const at::Tensor&)> find;
    c10::DeviceIndex device;
  };
  // Null when the operator has to go through the dispatcher again.
  virtual std::unique_ptr<DirectCall> make(const Making& making) = 0;
  // A tensor for kernels with the geometry of `like` over the buffer.
  virtual at::Tensor wrap(
      BufferId buffer, std::uint64_t bytes, const at::Tensor& like) = 0;
  // From now on the buffer's tensors show this memory.
  virtual void point(BufferId buffer, void* data) = 0;
  // A result on the stack as memory of the device.
  virtual c10::Storage to_device(
      c10::Storage made, c10::DeviceIndex device) = 0;
};

// Set once, while the library is loaded; answers null for a device that has no
// direct calls. Unset: no device has.
using MakeDirectCalls = std::unique_ptr<DirectCalls> (*)(c10::DeviceIndex);
void set_direct_calls(MakeDirectCalls make) noexcept;
std::unique_ptr<DirectCalls> make_direct_calls(c10::DeviceIndex device);

}  // namespace npu::graph
