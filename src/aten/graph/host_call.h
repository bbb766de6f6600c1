// SPDX-License-Identifier: Apache-2.0
// An operator of a recording that the CPU computes on the device's own bytes,
// called without the dispatcher.
//
// The ladder makes CPU tensors for every call and gives them back. A recording
// knows all of them beforehand: one CPU storage per buffer, one CPU tensor per
// use. A replay points the storages at the bytes and calls the kernel; where
// PyTorch has a kernel that writes into given memory, that is planned memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "aten/graph/program.h"
#include "aten/ladder/entry.h"
#include "graph/graph.h"

namespace npu::graph {

// Where host code may call kernels on device memory at any time: the driver has
// finished a call when it returns, and nothing has to be opened.
bool is_host_memory(c10::DeviceIndex device);

// The CPU's side of a recording's buffers: storages without bytes of their own.
class HostStorages {
 public:
  // A CPU tensor with the geometry of `like` over the buffer.
  at::Tensor wrap(BufferId buffer, std::uint64_t bytes, const at::Tensor& like);
  // From now on its tensors show this memory.
  void point(BufferId buffer, void* data) {
    if (buffer < storages_.size() && storages_[buffer] &&
        shown_[buffer] != data) {
      set(buffer, data);
    }
  }

 private:
  void set(BufferId buffer, void* data);

  std::vector<c10::Storage> storages_;  // by buffer; empty where none is used
  std::vector<void*> shown_;
};

class HostCall {
 public:
  // The buffer of a tensor, nothing when the recording does not know it.
  using Find = std::function<std::optional<BufferId>(const at::Tensor&)>;
  struct Making {
    const Instruction& instruction;
    ladder::Entry& ran;                     // what the ladder called for it
    const std::vector<c10::IValue>& given;  // arguments, as they were
    const std::vector<c10::IValue>& results;
    const Find& find;
    HostStorages& storages;
  };
  // Null when the operator has to go through the dispatcher again.
  static std::unique_ptr<HostCall> make(const Making& making);

  // Results are written into buffers, which have memory when it runs. Else the
  // kernel makes them: run() leaves them on the stack as CPU tensors.
  bool writes_results() const noexcept {
    return writes_results_;
  }
  // Into the planned memory from now on; `outs` are the wrappers of results.
  void write_into(const std::vector<at::Tensor>& outs);
  bool can_write() const noexcept {
    return out_form_ != nullptr;
  }
  // Values of the graph are read from `registers`.
  void run(
      torch::jit::Stack& stack,
      std::vector<c10::IValue>& registers,
      c10::DeviceIndex device) const;
  // Where the operator's result k is among the kernel's results; -1: constant.
  std::int32_t result_of(std::size_t k) const noexcept {
    return results_[k];
  }
  const c10::IValue& constant(std::size_t k) const noexcept {
    return constants_[k];
  }

 private:
  HostCall() = default;
  bool convert(const Making& making);
  bool convert_attention(const Making& making);

  ladder::Entry* counted_ = nullptr;   // the operator as the ladder knows it
  ladder::Entry* kernel_ = nullptr;    // what is called
  ladder::Entry* out_form_ = nullptr;  // the same, into given memory
  std::vector<c10::IValue> arguments_;
  std::vector<std::pair<std::uint32_t, Operand>> moving_;
  std::vector<std::int32_t> results_;
  std::vector<c10::IValue> constants_;  // by result
  bool writes_results_ = false;
};

// Results of a kernel as storages of the device: their memory came from its
// pool.
c10::Storage to_device(c10::Storage cpu, c10::DeviceIndex device);

}  // namespace npu::graph
