// SPDX-License-Identifier: Apache-2.0
// Plans a driver made, kept by everything its answer may depend on.
//
// A plan is counted: the cache holds it, every Call that was planned with it
// holds it until the call object is gone, and a graph holds the PlanHandle of
// each frame it recorded (Call::plan_handle). The driver's release_plan runs
// when the last of them lets go, so never during a run. The cache drops one
// plan at a time when it is full, one that was not used lately.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "driver/driver.h"

namespace npu {

struct Plan;
using PlanHandle = std::shared_ptr<Plan>;

// A driver's answer. The verdict does not change: tuning makes another Plan.
struct Plan {
  Plan(
      const Driver& owner,
      std::uint32_t kind,
      const npu_verdict& answer,
      bool tuned = false,
      PlanHandle owner_of_plan = nullptr) noexcept
      : driver(owner),
        slot(kind),
        verdict(answer),
        tune_asked(tuned),
        plan_owner(std::move(owner_of_plan)) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan();

  const Driver& driver;
  const std::uint32_t slot;
  const npu_verdict verdict;
  std::atomic<bool> tune_asked;
  // When tuning left the driver's plan as it was, the Plan that releases it.
  const PlanHandle plan_owner;
};

// From the cache, or the driver's answer now. `use` is NPU_PLAN_BY_DTYPE or
// NPU_PLAN_BY_SHAPE. Throws Error when the driver fails rather than declines.
PlanHandle find_plan(
    const Driver& driver,
    npu_device device,
    const npu_call& call,
    std::uint32_t use);

// Asks the driver to tune `plan` by running `call`, which has its workspaces,
// and keeps what it finds for the key; once per plan. The plan to run with:
// the new one, or `plan` itself when there is nothing better. Throws Error for
// NPU_E_ASYNC and NPU_E_DEVICE_LOST, which are not about tuning.
PlanHandle tune_plan(
    const PlanHandle& plan,
    npu_device device,
    npu_stream stream,
    const npu_call& call,
    std::uint32_t use);

// Lets go of all plans; those in use live on until their calls and graphs end.
void clear_plans();
std::size_t cached_plans();

}  // namespace npu
