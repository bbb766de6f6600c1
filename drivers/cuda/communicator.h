// SPDX-License-Identifier: Apache-2.0
// A communicator of NCCL, and how calls are given to NCCL.
//
// Note [Communicators]: NCCL's communicators are made non-blocking: its calls
// return while NCCL still connects ranks, and ncclCommGetAsyncError says when
// it is done. So no thread is inside NCCL for long, and an abort is never
// blocked by the other ranks.
//
// What is called in a group is kept on the calling thread and given to NCCL by
// the last group_end. If one of the calls was refused, NCCL gets none of them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm.h"
#include "lib/nccl.h"

namespace npu::cuda {

struct Comm;
using CommPtr = std::shared_ptr<Comm>;

struct Comm {
  std::string group;
  int rank = 0;
  int size = 1;
  npu_device device = 0;
  std::chrono::milliseconds limit{60'000};
  std::chrono::steady_clock::time_point until;  // it has to be ready by then

  // Held while NCCL is given the handle.
  std::mutex mutex;
  nccl::Handle handle = nullptr;
  bool ready = false;
  bool gone = false;   // aborted or destroyed
  bool split = false;  // NCCL says which rank of how many it is
  // Why it could not be made.
  npu_status failure = NPU_OK;
  std::string why;
};

// ---- by handle ----

npu_comm keep(const CommPtr& comm);
CommPtr find(npu_comm handle);      // null: there is none
CommPtr take_out(npu_comm handle);  // the same; later calls do not find it

// ---- errors: sentences that name rank and group ----

npu_status no_comm();
npu_status failed(const Comm& comm, npu_status status, const char* why);
// With NCCL's own words, which name devices and addresses.
npu_status nccl_failed(const Comm& comm, const char* what, nccl::Result result);
npu_status too_late(const Comm& comm, const char* what);
bool is_fine(nccl::Result result);  // done, or going on in the background

// ---- state ----

// NPU_NOT_READY while NCCL works on it. With the lock held.
npu_status progress_of(Comm& comm, const char* what);
// The same, but NPU_OK once it was ready. With the lock held.
npu_status refresh(Comm& comm);

// ---- calls ----

struct Job {
  const char* what = "";
  CommPtr comm;
  // With the lock of `comm` held.
  std::function<nccl::Result(const nccl::Api&, Comm&)> give;
  // It makes `comm`, and is not waited for: state says when it is done.
  bool makes = false;
  CommPtr split;  // NCCL writes its handle meanwhile
};

// Now, or with the group of this thread. NCCL takes what makes communicators in
// groups of their own.
npu_status hand_over(Job job);
// Hands back `status`. A group with a refused call is given to NCCL as nothing.
npu_status refuse_group(npu_status status);
npu_status group_begin();
npu_status group_end();

// ---- entries (membership.cpp) ----

npu_status make_id(void* id);
npu_status init(
    const void* id,
    std::int32_t rank,
    std::int32_t n_ranks,
    npu_device device,
    const npu_comm_config* config,
    npu_comm* out);
npu_status comm_state(npu_comm handle);
npu_status abort_comm(npu_comm handle);
npu_status destroy_comm(npu_comm handle);
npu_status split(
    npu_comm handle,
    std::int32_t color,
    std::int32_t key,
    const npu_comm_config* config,
    npu_comm* out);

}  // namespace npu::cuda
