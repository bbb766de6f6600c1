// SPDX-License-Identifier: Apache-2.0
// Shows the work that is given to one driver to a listener, while there is one.
//
// Without a listener callers get the driver's own functions. Watching adds a
// layer over them (Driver::watch_launches; Note [Layers of a driver] in
// slots.h), so it costs nothing while no profiler is active.
#pragma once

#include <cstdint>

#include "npu/op.h"

namespace npu {

// Work on its way to a driver.
class Launch {
 public:
  enum Kind : std::uint8_t {
    kKernel,
    kToDevice,
    kToHost,
    kOnDevice,
    kPeer,
    kSet,
  };

  Launch(Kind what, npu_stream where, std::uint64_t n, const npu_call* frame)
      : kind(what), stream(where), bytes(n), call(frame) {}
  virtual ~Launch() = default;

  // Gives it to the driver, a frame with `correlation`. Once.
  virtual npu_status give(std::uint64_t correlation) const = 0;

  const Kind kind;
  const npu_stream stream;
  const std::uint64_t bytes;   // moved or set; 0 for a kernel
  const npu_call* const call;  // of a kernel, else nullptr
};

// Called on the thread that gives the work. Lives as long as the process: a
// thread may be inside when it is taken away.
class LaunchListener {
 public:
  virtual ~LaunchListener() = default;
  // Answers what launch.give() answered.
  virtual npu_status on_launch(const Launch& launch) noexcept = 0;
};

}  // namespace npu
