// SPDX-License-Identifier: Apache-2.0
// Functions the host side offers every driver: log, errors, threads, accounts.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "npu/driver.h"

namespace npu {

// The functions handed to drivers; none of them throws.
const npu_host_services* host_services() noexcept;

// Levels as ASCEND_GLOBAL_LOG_LEVEL has them: 0 debug, 1 info, 2 warning,
// 3 error (default), 4 nothing. Lines go to stdout only when
// SLOG_PRINT_TO_STDOUT=1 (else to stderr for errors, nowhere for the rest).
bool log_enabled(int level) noexcept;
void log(int level, const std::string& text);
// Throws Error when one of the two variables has a wrong value; log_enabled
// then uses the default.
void check_log_environment();
// Reads the two variables again, for tests and for programs that set them late.
void reload_log_environment() noexcept;

namespace detail {
// Bits: debug lines are written; a profiler watches; a forked child.
inline std::atomic<unsigned> call_hearers{0};
}  // namespace detail
// A call must do more than its work: a line for the log, a row for a profiler,
// the error of a forked child. One load, for paths that every operator takes.
inline bool calls_are_heard() noexcept {
  return detail::call_hearers.load(std::memory_order_relaxed) != 0;
}
void set_calls_watched(bool yes) noexcept;

// The thread pool parallel_for uses; torch's once the plugin is loaded, plain
// std::thread before that and in torch-free programs. nullptr = the latter.
using ParallelFor = npu_status (*)(
    std::int64_t n, std::int64_t grain, npu_range_fn fn, void* context);
void set_parallel_for(ParallelFor fn) noexcept;

// Named ranges, for a profiler that sets both; nullptr = none runs.
using RangePush = void (*)(const char* name);
using RangePop = void (*)();
void set_ranges(RangePush push, RangePop pop) noexcept;

// Bytes drivers reported as taken for themselves.
std::int64_t accounted_bytes(npu_device device) noexcept;

// True in a child forked after a device was used: no driver may be called
// there. Asking which devices there are is no use.
bool forked_child() noexcept;
// Starts watching for forks; called before the first device is opened.
void watch_forks() noexcept;

}  // namespace npu
