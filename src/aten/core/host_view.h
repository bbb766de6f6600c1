// SPDX-License-Identifier: Apache-2.0
// An npu tensor's bytes for host code, for as long as the object lives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "npu/driver.h"

namespace npu {

// Drains the device's current stream, then gives a CPU tensor with the same
// sizes, strides and flags. Memory host code can reach is used in place, other
// memory is copied out, and copied back by write_back().
class HostView {
 public:
  enum Access : std::uint32_t {
    kRead = NPU_ACCESS_READ,
    kWrite = NPU_ACCESS_WRITE,
    kReadWrite = NPU_ACCESS_READ | NPU_ACCESS_WRITE,
  };

  HostView(const at::Tensor& tensor, Access access);
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;
  ~HostView();

  const at::Tensor& tensor() const {
    return host_;
  }
  void write_back();

 private:
  at::Tensor device_;
  at::Tensor host_;
  at::Tensor staging_;  // defined when host code cannot reach the memory
  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  Access access_;
  bool opened_ = false;
};

// Bytes from the first element to the end of the last one.
std::uint64_t span_bytes(const at::Tensor& tensor);

}  // namespace npu
