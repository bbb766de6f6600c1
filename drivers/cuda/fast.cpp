// SPDX-License-Identifier: Apache-2.0
// Which calls are left to PyTorch's own CUDA kernels, where there are any.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "kernels/kernel.h"

namespace npu::cuda {
namespace {

struct Limit {
  std::uint32_t slot;
  std::uint8_t numel_log2;  // of npu_op_caps::numel_limit
};

// Measured on an H200, in a GPT-2 step of 8 x 1024 tokens in bfloat16
// (benchmarks/notes/2026-11-19-gpu.md): log_softmax over 50257 columns takes
// 5.2 ms and its gradient 7.1 ms, about 14 times what the memory allows; layer
// norm 0.11 and 0.23 ms, sums of rows 0.07 ms. Small calls are bound by their
// launch, where these kernels are ahead.
constexpr Limit kLimits[] = {
    {NPU_KIND_SOFTMAX, 16},
    {NPU_KIND_SOFTMAX_GRAD, 16},
    {NPU_KIND_LAYER_NORM, 16},
    {NPU_KIND_LAYER_NORM_GRAD, 16},
    {NPU_KIND_REDUCE, 16},
};

bool torch_has_kernels() noexcept {
  constexpr std::size_t kKnown =
      offsetof(npu_host_services, torch_platform) + sizeof(void*);
  return services != nullptr && services->size >= kKnown &&
         services->torch_platform != nullptr &&
         std::string_view(services->torch_platform()) == NPU_PLATFORM_CUDA;
}

// Read once: frames are planned by the answer.
bool is_limited() noexcept {
  static const bool limited = [] {
    const char* const chosen = std::getenv("NPU_CUDA_KERNELS");
    const std::string_view word = chosen != nullptr ? chosen : "";
    return word == "fast" || (word != "all" && torch_has_kernels());
  }();
  return limited;
}

}  // namespace

void limit_to_fast(std::uint32_t slot, npu_op_caps& out) noexcept {
  const Limit* const limit = std::find_if(
      std::begin(kLimits), std::end(kLimits), [slot](const Limit& row) {
        return row.slot == slot;
      });
  if (limit != std::end(kLimits) && is_limited()) {
    std::fill(
        std::begin(out.numel_limit),
        std::end(out.numel_limit),
        limit->numel_log2);
  }
}

}  // namespace npu::cuda
