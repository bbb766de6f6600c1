// SPDX-License-Identifier: Apache-2.0
// Time: how long each kernel took to launch and to run.
#pragma once

#include <c10/core/Event.h>

#include <optional>

#include "core/tool.h"

namespace optools {

class Timing : public Tool {
 public:
  struct Sample {
    uint64_t number;
    uint64_t api_call;
    uint64_t forward;
    int64_t sequence;
    int64_t start_ns;   // host clock
    int64_t launch_ns;  // host time inside the kernel's call
    int64_t device_ns;  // device's own time; -1 where it has no clock
    uint32_t op;
    uint32_t api;
    uint32_t module;
    uint32_t site;
    uint32_t thread;
    int32_t step;
    Phase phase;
    bool raised;
    // What the kernel took: on the device where that is known.
    int64_t took_ns() const {
      return device_ns >= 0 ? device_ns : launch_ns;
    }
  };

  // `limit`: samples kept per thread; the rest only count.
  explicit Timing(size_t limit) : limit_(limit) {}

  void around(Call& call, Chain& chain) override;
  void finish() override;

  std::vector<Sample> samples() const;  // by call number
  uint64_t dropped() const;

 private:
  struct Local;
  void make_room(Local& mine, c10::Device device);
  void drain(Local& mine);
  const size_t limit_;
};

}  // namespace optools
