// SPDX-License-Identifier: Apache-2.0
// What the optional interfaces of the discrete driver (profiler/1, capture/1,
// comm/1) need of the rest of it.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "discrete.h"

namespace npu::discrete {

// profiler.cpp: the same work, noted with its times during a recording.
struct Piece {
  uint32_t kind;  // NPU_RECORD_*
  uint64_t correlation;
  uint64_t bytes;
};
Work recorded(npu_stream stream, Piece piece, Work work);

// capture.cpp: work that streams keep instead of doing it.
struct Captured {
  npu_device device = 0;
  npu_stream origin = nullptr;
  uint64_t id = 0;
  uint64_t pool = 0;
  std::vector<npu_stream> streams;
  std::mutex mutex;
  std::vector<std::pair<uint64_t, Work>> items;  // tag, work
  bool broken = false;
  bool runs_too = false;
};
// Of a stream; nullptr when it runs what it is given.
Captured* captured_by(npu_stream stream);
void set_captured(npu_stream stream, Captured* captured);
// Waiting for a stream that records breaks its capture.
npu_status refuse_capture(npu_stream stream);

const void* profiler_interface(const char* name);
const void* capture_interface(const char* name);
const void* comm_interface(const char* name);
// host_kernels.cpp: with NPU_DISCRETE_KERNELS=<path of libnpu_host.so>,
// `driver` gets a table of all its kinds. NPU_E_INVALID when it cannot be used.
npu_status borrow_host_kernels(
    uint32_t abi, const npu_host_services* services, npu_driver* driver);
// Whichever of them has it.
const void* optional_interface(const char* name);

// `driver`, of the platform that NPU_DISCRETE_PLATFORM names.
const npu_driver* with_platform(const npu_driver& driver);

}  // namespace npu::discrete
