// SPDX-License-Identifier: Apache-2.0
// A job on the driver's communicator: how the group gets one, how a job runs
// on it, and what ends it early.
#include <c10/core/StreamGuard.h>

#include "dist/shared.h"
#include "runtime/external_stream.h"
#include "runtime/stream.h"

namespace npu::dist {

using std::chrono::steady_clock;

namespace {

// A rank may have left after its part of the call: what it sent is still on its
// way here.
constexpr auto kGrace = std::chrono::milliseconds(500);
constexpr auto kBetween = std::chrono::milliseconds(20);  // looks at processes

}  // namespace

Communicator::Watch ProcessGroupHccl::Shared::watch_over(const Job& job) const {
  struct Seen {
    steady_clock::time_point next = steady_clock::now() + kBetween;
    std::optional<steady_clock::time_point> gone;
  };
  return [this, &job, seen = Seen{}]() mutable {
    if (aborted.load() || lanes_are_ending()) {
      throw_backend_error("was aborted.");
    }
    const auto now = steady_clock::now();
    if (now >= job.deadline) {
      throw_backend_error(
          "timed out after " + std::to_string(job.timeout.count()) + " ms.");
    }
    if (now < seen.next) {
      return;
    }
    seen.next = now + kBetween;
    if (!somebody_ended()) {
      seen.gone.reset();
    } else if (!seen.gone) {
      seen.gone = now;
    } else if (now - *seen.gone > kGrace) {
      throw_backend_error("a rank has ended.");
    }
  };
}

// Made at the first call that it could serve: all ranks are at it. It stays on
// the device of that call; tensors of other devices are copied there.
std::shared_ptr<Communicator> ProcessGroupHccl::Shared::communicator(Job& job) {
  {
    const std::lock_guard lock(mutex_);
    if (communicator_ || refused_.load()) {
      return communicator_;
    }
  }
  auto made = Communicator::make(
      {rank, size, job.arguments.device(), group},
      *gloo,
      job.deadline,
      watch_over(job));
  const std::lock_guard lock(mutex_);
  refused_.store(made == nullptr);
  communicator_ = std::move(made);
  return communicator_;
}

void ProcessGroupHccl::Shared::abort_driver() {
  std::shared_ptr<Communicator> found;
  {
    const std::lock_guard lock(mutex_);
    // An idle one is destroyed with the group.
    found = driver_works_ ? communicator_ : nullptr;
  }
  if (found) {
    found->abort();
  }
}

bool ProcessGroupHccl::Shared::run_on_driver(Job& job) {
  if (!job.on_driver) {
    return false;
  }
  job.driver_has_it = true;
  const auto used = communicator(job);
  if (!used) {
    job.driver_has_it = false;
    return false;
  }
  // Tensors of another device are copied on a stream of ours there, too: the
  // program's own may be waiting for this very call.
  const c10::StreamGuard there(copy_stream(job.arguments.device()));
  const c10::StreamGuard stream(used->stream());
  job.arguments.place(used->stream());
  const DriverPlan plan = job.on_driver(job.arguments);
  const auto set_working = [this](bool yes) {
    const std::lock_guard lock(mutex_);
    driver_works_ = yes;
  };
  set_working(true);
  bool taken = false;
  try {
    taken = plan.steps.empty() || used->run(
                                      [&](const Communicator::Call& call) {
                                        return queue_plan(call, plan);
                                      },
                                      watch_over(job));
  } catch (...) {
    set_working(false);
    if (used->is_stuck()) {
      static_cast<void>(new DriverPlan(plan));  // never freed, on purpose
      static_cast<void>(new Arguments(std::move(job.arguments)));
    }
    throw;
  }
  set_working(false);
  job.driver_has_it = taken;
  if (!taken) {
    return false;
  }
  if (plan.after) {
    plan.after();
  }
  job.arguments.put_back();
  synchronize_stream(used->stream());
  job.count(Way::kDriver);
  return true;
}

}  // namespace npu::dist
