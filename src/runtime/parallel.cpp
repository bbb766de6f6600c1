// SPDX-License-Identifier: Apache-2.0
// PyTorch's intra-op threads, for adapters and for drivers. Compiled with
// -fopenmp.
#include "runtime/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "driver/services.h"

namespace npu {
namespace {

npu_status torch_parallel_for(
    std::int64_t n, std::int64_t grain, npu_range_fn fn, void* context) {
  std::atomic<npu_status> first{NPU_OK};
  // No exception may cross the driver that called us.
  try {
    at::parallel_for(
        0,
        n,
        std::max<std::int64_t>(grain, 1),
        [&](std::int64_t begin, std::int64_t end) {
          const npu_status status = fn(context, begin, end);
          npu_status expected = NPU_OK;
          if (status != NPU_OK) {
            first.compare_exchange_strong(expected, status);
          }
        });
  } catch (const std::exception& e) {
    host_services()->set_error(e.what());
    return NPU_E_INTERNAL;
  } catch (...) {
    host_services()->set_error("npu: parallel_for: unknown exception");
    return NPU_E_INTERNAL;
  }
  return first.load();
}

}  // namespace

void parallel_ranges(
    std::int64_t n,
    std::int64_t grain,
    c10::function_ref<void(std::int64_t, std::int64_t)> run) {
  at::parallel_for(0, n, std::max<std::int64_t>(grain, 1), run);
}

int thread_count() {
  return at::get_num_threads();
}

void renew_thread_count() {
  at::init_num_threads();
}

void lend_torch_threads() noexcept {
  set_parallel_for(&torch_parallel_for);
}

}  // namespace npu
