// SPDX-License-Identifier: Apache-2.0
// Kinds made of other kinds, for drivers that lack them (rung 3).
#pragma once

#include <cstdint>

#include "driver/call.h"

namespace npu::compose {

// What a decomposition needs of the side that runs it.
class Runner {
 public:
  virtual ~Runner() = default;
  // Device memory for a temporary. It is kept until everything that the
  // decomposition queued has run.
  virtual void* allocate(std::uint64_t bytes) = 0;
  // Queues one call. False when the driver declines; throws when it fails.
  virtual bool run(Call& call) = 0;
};

bool has_decomposition(std::uint32_t slot) noexcept;

// Queues `call` as calls of other kinds. False when there is no decomposition
// for it, or a part was declined: outputs may then hold anything, everything
// else is as before.
bool run(Runner& runner, const npu_call& call);

}  // namespace npu::compose
