// SPDX-License-Identifier: Apache-2.0
// Joining and leaving groups of ranks.
#include <algorithm>
#include <thread>
#include <utility>

#include "communicator.h"

namespace npu::cuda {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

CommPtr new_comm(
    int rank, int size, npu_device device, const npu_comm_config* config) {
  auto comm = std::make_shared<Comm>();
  comm->rank = rank;
  comm->size = size;
  comm->device = device;
  if (config != nullptr) {
    comm->group = config->name != nullptr ? config->name : "";
    if (config->timeout_ms != 0) {
      comm->limit = milliseconds(config->timeout_ms);
    }
  }
  comm->until = Clock::now() + comm->limit;
  return comm;
}

nccl::Config without_blocking() {
  nccl::Config config;
  config.blocking = 0;
  return config;
}

// Frees a communicator whose work is done, with the lock held.
npu_status finish(Comm& comm) {
  const nccl::Api& api = *nccl::api();
  const OnDevice on(comm.device);
  const Clock::time_point until = Clock::now() + comm.limit;
  npu_status status = progress_of(comm, "destroying it");
  if (status == NPU_OK) {
    const nccl::Result result = api.finalize(comm.handle);
    status = is_fine(result) ? npu_status{NPU_NOT_READY}
                             : nccl_failed(comm, "destroying it", result);
  }
  while (status == NPU_NOT_READY) {
    status = progress_of(comm, "destroying it");
    if (status == NPU_NOT_READY) {
      if (Clock::now() > until) {
        status = too_late(comm, "destroying it");
        break;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  const nccl::Handle handle = std::exchange(comm.handle, nullptr);
  if (status != NPU_OK) {
    api.abort(handle);
    return status;
  }
  const nccl::Result result = api.destroy(handle);
  return is_fine(result) ? NPU_OK : nccl_failed(comm, "destroying it", result);
}

}  // namespace

npu_status make_id(void* id) {
  return entry(given(id), [&]() -> npu_status {
    const OnDevice on(any_device());
    nccl::Id made{};
    const nccl::Result result = nccl::api()->get_unique_id(&made);
    if (result != nccl::kSuccess) {
      return nccl_failed(Comm{}, "making the id of a group", result);
    }
    std::copy_n(made.bytes, sizeof(made), static_cast<char*>(id));
    return NPU_OK;
  });
}

npu_status init(
    const void* id,
    std::int32_t rank,
    std::int32_t n_ranks,
    npu_device device,
    const npu_comm_config* config,
    npu_comm* out) {
  return refuse_group(entry(given(id, out), [&]() -> npu_status {
    *out = nullptr;
    if (npu_status status = check_open(device)) {
      return status;
    }
    if (rank < 0 || rank >= n_ranks) {
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: there is no rank %d in a group of %d.",
          rank,
          n_ranks);
    }
    const CommPtr comm = new_comm(rank, n_ranks, device, config);
    nccl::Id copy{};
    std::copy_n(static_cast<const char*>(id), sizeof(copy), copy.bytes);
    const npu_comm handle = keep(comm);
    const npu_status status = hand_over(
        {"joining the group",
         comm,
         [copy](const nccl::Api& api, Comm& made) {
           const OnDevice on(made.device);
           nccl::Config wanted = without_blocking();
           made.until = Clock::now() + made.limit;
           return api.init(&made.handle, made.size, copy, made.rank, &wanted);
         },
         /*makes=*/true,
         nullptr});
    if (status != NPU_OK) {
      take_out(handle);
      return status;
    }
    *out = handle;
    return NPU_OK;
  }));
}

npu_status comm_state(npu_comm handle) {
  return entry(true, [&]() -> npu_status {
    const CommPtr comm = find(handle);
    if (comm == nullptr) {
      return no_comm();
    }
    const std::lock_guard lock(comm->mutex);
    return refresh(*comm);
  });
}

npu_status abort_comm(npu_comm handle) {
  return entry([&]() -> npu_status {
    const CommPtr comm = take_out(handle);
    if (comm == nullptr) {
      return no_comm();
    }
    const std::lock_guard lock(comm->mutex);
    comm->gone = true;
    if (comm->handle == nullptr) {
      return NPU_OK;
    }
    const OnDevice on(comm->device);
    const nccl::Result result =
        nccl::api()->abort(std::exchange(comm->handle, nullptr));
    return is_fine(result) ? NPU_OK : nccl_failed(*comm, "aborting it", result);
  });
}

npu_status destroy_comm(npu_comm handle) {
  return entry([&]() -> npu_status {
    const CommPtr comm = take_out(handle);
    if (comm == nullptr) {
      return no_comm();
    }
    const std::lock_guard lock(comm->mutex);
    const npu_status status = comm->handle != nullptr ? finish(*comm) : NPU_OK;
    comm->gone = true;
    return status;
  });
}

npu_status split(
    npu_comm handle,
    std::int32_t color,
    std::int32_t key,
    const npu_comm_config* config,
    npu_comm* out) {
  return refuse_group(entry(given(out), [&]() -> npu_status {
    *out = nullptr;
    const CommPtr from = find(handle);
    if (from == nullptr) {
      return no_comm();
    }
    // Until NCCL says the new rank and size, messages name the old ones.
    const CommPtr comm = new_comm(from->rank, from->size, from->device, config);
    comm->split = true;
    const bool stays = color != NPU_COMM_NO_COLOR;
    const npu_comm made = stays ? keep(comm) : nullptr;
    const npu_status status = hand_over(
        {"splitting the group",
         from,
         [comm, color, key](const nccl::Api& api, Comm& old) {
           nccl::Config wanted = without_blocking();
           comm->until = Clock::now() + comm->limit;
           return api.split(old.handle, color, key, &comm->handle, &wanted);
         },
         /*makes=*/false,
         comm});
    if (status != NPU_OK && stays) {
      take_out(made);
    }
    *out = status == NPU_OK ? made : nullptr;
    return status;
  }));
}

}  // namespace npu::cuda
