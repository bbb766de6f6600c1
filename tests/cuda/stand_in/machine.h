// SPDX-License-Identifier: Apache-2.0
// A machine with GPUs that is none: streams are threads, memory is the host's,
// and kernels do nothing. What tests of the cuda driver link in place of the
// CUDA runtime, and what the stand-ins of NCCL and CUPTI build upon.
//
//   STAND_IN_GPUS=4         how many there are
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

namespace stand_in {

enum class Sort : std::uint8_t { kKernel, kCopy, kSet, kPeerCopy, kOther };

// Work of a stream, as a profiler sees it.
struct Work {
  Sort sort = Sort::kOther;
  std::string name;
  std::uint64_t bytes = 0;
  std::function<void()> run;
  // Filled in when it is queued and when it ran.
  int device = 0;
  std::uint32_t stream = 0;  // a number of its device
  std::uint32_t correlation = 0;
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  bool watched = false;
};

int gpus();

// Queues it; the stream runs one piece after the other.
cudaError_t queue(cudaStream_t stream, Work work);
int device_of(cudaStream_t stream);
std::uint32_t number_of(cudaStream_t stream);
std::uint64_t now_ns();

// What a profiler asks for. `call` is told of each call that queues, on the
// calling thread, and says whether its work is to be shown; `done` gets the
// work from the thread of its stream.
struct Watcher {
  bool (*call)(const Work& work) = nullptr;
  void (*done)(const Work& work) = nullptr;
};
void watch(const Watcher& watcher);

}  // namespace stand_in
