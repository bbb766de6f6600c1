// SPDX-License-Identifier: Apache-2.0
// What the host side offers every driver: log, error text, threads, accounts.
#pragma once

#include <cstdint>
#include <string>

#include "npu/driver.h"

namespace npu {

const npu_host_services* host_services() noexcept;

// Levels as ASCEND_GLOBAL_LOG_LEVEL has them: 0 debug, 1 info, 2 warning,
// 3 error (default), 4 nothing. Lines go to stdout only when
// SLOG_PRINT_TO_STDOUT=1 (else to stderr for errors, nowhere for the rest).
bool log_enabled(int level) noexcept;
void log(int level, const std::string& text);

// The thread pool parallel_for uses; torch's once the plugin is loaded, plain
// std::thread before that and in torch-free programs.
using ParallelFor = npu_status (*)(
    std::int64_t n, std::int64_t grain, npu_range_fn fn, void* context);
void set_parallel_for(ParallelFor fn) noexcept;

// Marks this thread as a stream's worker: parallel_for is then serial.
// Bytes drivers reported as taken for themselves.
std::int64_t accounted_bytes(npu_device device) noexcept;

}  // namespace npu
