// SPDX-License-Identifier: Apache-2.0
// The page by which a process shows its devices to `opennpu top`.
//
// A small file that the process maps and holds a lock on, in a folder of its
// user's: NPU_TOP_FOLDER, or opennpu-<user number> in /dev/shm. A reader
// counts `requests` up and wakes the process (futex); a thread that slept until
// then fills in the numbers, ten times a second, for two seconds after the last
// request. So nothing is counted without readers. A page whose lock is free
// belongs to no process any more; the next process removes it.
//
// python/opennpu/top_pages.py reads it: keep both alike.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace npu::profiler {

inline constexpr std::uint32_t kPageVersion = 1;
inline constexpr std::uint32_t kPageDevices = 64;

struct PageDevice {
  std::int32_t number;     // as the driver counts
  std::uint32_t permille;  // busy, of the time since the last sample
  std::uint64_t total;     // bytes of the device
  std::uint64_t free;
  std::uint64_t allocated;  // by tensors of this process
  std::uint64_t reserved;   // taken from the driver by this process
  std::uint64_t peak;       // most ever allocated
  std::uint64_t pieces;     // of work seen while it was read
  char name[64];
};

struct Page {
  char magic[8];  // "OPENNPU" and a zero
  std::uint32_t version;
  std::uint32_t bytes;
  std::int64_t pid;
  std::int64_t started_ns;  // since the epoch
  char driver[32];
  char command[256];
  std::atomic<std::uint32_t> requests;
  std::atomic<std::uint32_t> sequence;  // odd while being written
  std::uint32_t samples;                // 0: nothing was filled in yet
  std::uint32_t n_devices;              // open ones, from devices[0] on
  PageDevice devices[kPageDevices];
};

static_assert(sizeof(PageDevice) == 120);
static_assert(offsetof(Page, requests) == 320);
static_assert(offsetof(Page, devices) == 336);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// The file of this process, or "" when it has none; for tests.
std::string page_path();

}  // namespace npu::profiler
