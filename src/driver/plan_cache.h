// SPDX-License-Identifier: Apache-2.0
// Plans a driver made, kept by everything its answer may depend on.
#pragma once

#include <cstddef>
#include <memory>

#include "driver/driver.h"

namespace npu {

// A driver's answer. Shared by the cache and the calls that use it; the driver
// is told when the last of them lets go.
struct Plan {
  Plan(const Driver& owner, const npu_verdict& answer) noexcept
      : driver(owner), verdict(answer) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan();

  const Driver& driver;
  npu_verdict verdict;
};

// From the cache, or the driver's answer now. `use` is NPU_PLAN_BY_DTYPE or
// NPU_PLAN_BY_SHAPE. Throws Error when the driver fails rather than declines.
std::shared_ptr<Plan> find_plan(
    const Driver& driver,
    npu_device device,
    const npu_call& call,
    std::uint32_t use);

// Lets go of all plans; those in use live on until their calls end.
void clear_plans();
std::size_t cached_plans();

}  // namespace npu
