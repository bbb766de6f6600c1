// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL, and how calls are given to NCCL.
#include "communicator.h"

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

namespace npu::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using Jobs = std::vector<Job>;

std::mutex known_mutex;
std::map<npu_comm, CommPtr>& known() {
  static auto* const all = new std::map<npu_comm, CommPtr>;
  return *all;
}

npu_status was_aborted(const Comm& comm) {
  return failed(comm, NPU_E_ASYNC, "the communicator was aborted");
}

npu_status status_of(nccl::Result result) {
  switch (result) {
    case nccl::kInvalidArgument:
    case nccl::kInvalidUsage:
      return NPU_E_INVALID;
    case nccl::kRemoteError:
      return NPU_E_ASYNC;
    default:
      return NPU_E_INTERNAL;
  }
}

// Until NCCL has taken what it was given. Another thread may abort meanwhile.
npu_status await(Comm& comm, const char* what) {
  const Clock::time_point until = Clock::now() + comm.limit;
  for (int times = 0;; ++times) {
    {
      const std::lock_guard lock(comm.mutex);
      const npu_status status = progress_of(comm, what);
      if (status != NPU_NOT_READY) {
        return status;
      }
    }
    if (Clock::now() > until) {
      return too_late(comm, what);
    }
    constexpr int kQuick = 100;
    if (times < kQuick) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

struct Group {
  int depth = 0;
  npu_status refused = NPU_OK;
  std::string why;  // the text of what was refused
  Jobs makes;       // NCCL takes init and split in groups of their own
  Jobs calls;
};
thread_local Group group;

// NCCL may write the handle of a split that failed at any later time.
void abandon(CommPtr comm) {
  static std::mutex mutex;
  static auto* const all = new std::vector<CommPtr>;
  const std::lock_guard lock(mutex);
  all->push_back(std::move(comm));
}

// In one NCCL group: NCCL takes all of them or none.
npu_status give(const Jobs& jobs) {
  if (jobs.empty()) {
    return NPU_OK;
  }
  const nccl::Api& api = *nccl::api();
  std::vector<CommPtr> comms;
  for (const Job& job : jobs) {
    comms.push_back(job.comm);
  }
  std::ranges::sort(comms);  // one order of locks for all threads
  const auto [first, last] = std::ranges::unique(comms);
  comms.erase(first, last);
  nccl::Result result = nccl::kSuccess;
  const Job* at = &jobs.front();
  {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const CommPtr& comm : comms) {
      locks.emplace_back(comm->mutex);
      if (comm->gone) {
        return was_aborted(*comm);
      }
    }
    result = api.group_start();
    for (const Job& job : jobs) {
      if (!is_fine(result)) {
        break;
      }
      at = &job;
      result = job.give(api, *job.comm);
    }
    const nccl::Result ended = api.group_end();
    result = is_fine(result) ? ended : result;
  }
  npu_status status =
      is_fine(result) ? NPU_OK : nccl_failed(*at->comm, at->what, result);
  for (const Job& job : jobs) {
    if (status != NPU_OK && job.makes) {
      const std::lock_guard lock(job.comm->mutex);
      job.comm->failure = status;
      job.comm->why = services->last_error();
    }
  }
  // Work that comes on the streams now has to come after it.
  for (const Job& job : jobs) {
    if (status == NPU_OK && !job.makes) {
      status = await(*job.comm, job.what);
    }
  }
  for (const Job& job : jobs) {
    if (status != NPU_OK && job.split != nullptr) {
      abandon(job.split);
    }
  }
  return status;
}

}  // namespace

// ---- by handle ----

npu_comm keep(const CommPtr& comm) {
  // A number that is never used again: one that is gone is not another.
  static std::uintptr_t last = 0;
  const std::lock_guard lock(known_mutex);
  const auto handle = reinterpret_cast<npu_comm>(++last);
  known()[handle] = comm;
  return handle;
}

CommPtr find(npu_comm handle) {
  const std::lock_guard lock(known_mutex);
  const auto found = known().find(handle);
  return found == known().end() ? nullptr : found->second;
}

CommPtr take_out(npu_comm handle) {
  const std::lock_guard lock(known_mutex);
  const auto found = known().find(handle);
  if (found == known().end()) {
    return nullptr;
  }
  CommPtr comm = std::move(found->second);
  known().erase(found);
  return comm;
}

// ---- errors ----

npu_status no_comm() {
  return fail(
      NPU_E_INVALID,
      "npu: cuda driver: there is no such communicator: it was aborted or "
      "destroyed.");
}

npu_status failed(const Comm& comm, npu_status status, const char* why) {
  return fail(
      status,
      "npu: cuda driver: rank %d of %d of group '%s': %s.",
      comm.rank,
      comm.size,
      comm.group.c_str(),
      why);
}

npu_status nccl_failed(
    const Comm& comm, const char* what, nccl::Result result) {
  const nccl::Api& api = *nccl::api();
  const char* const last = api.last_error(nullptr);
  std::string text = std::string(what) + ": NCCL answers " +
                     std::to_string(result) + " (" + api.error_string(result) +
                     ")";
  if (last != nullptr && *last != '\0') {
    text += ": " + std::string(last);
  }
  std::ranges::replace(text, '\n', ' ');
  text.erase(text.find_last_not_of(" .") + 1);
  return failed(comm, status_of(result), text.c_str());
}

npu_status too_late(const Comm& comm, const char* what) {
  const std::string text = std::string(what) + " took longer than " +
                           std::to_string(comm.limit.count()) +
                           " ms: another rank did not come, or ended";
  return failed(comm, NPU_E_TIMEOUT, text.c_str());
}

bool is_fine(nccl::Result result) {
  return result == nccl::kSuccess || result == nccl::kInProgress;
}

// ---- state ----

npu_status progress_of(Comm& comm, const char* what) {
  if (comm.gone) {
    return was_aborted(comm);
  }
  if (comm.failure != NPU_OK) {
    services->set_error(comm.why.c_str());
    return comm.failure;
  }
  if (comm.handle == nullptr) {
    return NPU_NOT_READY;  // the group that makes it has not ended
  }
  nccl::Result now = nccl::kSuccess;
  const nccl::Result asked = nccl::api()->async_error(comm.handle, &now);
  now = asked == nccl::kSuccess ? now : asked;
  return now == nccl::kInProgress ? NPU_NOT_READY
         : now == nccl::kSuccess  ? NPU_OK
                                  : nccl_failed(comm, what, now);
}

npu_status refresh(Comm& comm) {
  npu_status status = progress_of(comm, "joining the group");
  if (comm.ready) {
    return status == NPU_NOT_READY ? NPU_OK : status;  // it takes a call
  }
  if (status == NPU_OK && comm.split) {
    const nccl::Api& api = *nccl::api();
    nccl::Result result = api.count(comm.handle, &comm.size);
    result = result == nccl::kSuccess ? api.user_rank(comm.handle, &comm.rank)
                                      : result;
    status = result == nccl::kSuccess
                 ? NPU_OK
                 : nccl_failed(comm, "splitting the group", result);
  }
  comm.ready = status == NPU_OK;
  return status == NPU_NOT_READY && Clock::now() > comm.until
             ? too_late(comm, "joining the group")
             : status;
}

// ---- calls ----

npu_status refuse_group(npu_status status) {
  if (group.depth > 0 && group.refused == NPU_OK) {
    group.refused = status;
    const char* const text = services->last_error();
    group.why = text != nullptr ? text : "";
  }
  return status;
}

npu_status hand_over(Job job) {
  if (group.depth > 0) {
    const bool makes = job.makes || job.split != nullptr;
    (makes ? group.makes : group.calls).push_back(std::move(job));
    return NPU_OK;
  }
  Jobs one;
  one.push_back(std::move(job));
  return give(one);
}

npu_status group_begin() {
  return entry([] {
    ++group.depth;
    return NPU_OK;
  });
}

npu_status group_end() {
  return entry([]() -> npu_status {
    if (group.depth == 0) {
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: group_end without a group_begin on this thread.");
    }
    if (--group.depth > 0) {
      return NPU_OK;
    }
    const Group done = std::exchange(group, Group{});
    if (done.refused != NPU_OK) {
      services->set_error(done.why.c_str());
      return done.refused;
    }
    const npu_status made = give(done.makes);
    return made != NPU_OK ? made : give(done.calls);
  });
}

}  // namespace npu::cuda
