// SPDX-License-Identifier: Apache-2.0
// PyTorch's intra-op threads, for adapters and for drivers.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace npu {

// at::parallel_for over [0, n). That is a template which runs on one thread
// where it is compiled without OpenMP, as all files but parallel.cpp are.
void parallel_ranges(
    std::int64_t n,
    std::int64_t grain,
    c10::function_ref<void(std::int64_t begin, std::int64_t end)> run);

// From now on services->parallel_for runs on at::parallel_for.
void lend_torch_threads() noexcept;

// How many threads a call of this thread may use.
int thread_count();

// Makes it what torch.set_num_threads was given last, on whichever thread.
void renew_thread_count();

}  // namespace npu
