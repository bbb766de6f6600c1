// SPDX-License-Identifier: Apache-2.0
// The user's settings for algorithms, read where calls are planned.
#include "aten/core/algorithms.h"

#include <ATen/Context.h>

#include <atomic>

#include "npu/kinds.h"

namespace npu {
namespace {

std::atomic<bool> matmul_hf32{false};
std::atomic<bool> conv_hf32{true};

bool is_tf32(at::Float32Op op) {
  return at::globalContext().float32Precision(at::Float32Backend::CUDA, op) ==
         at::Float32Precision::TF32;
}

// Torch's switch or npu's: both are off until a program asks.
bool matmul_may_round() {
  return matmul_hf32.load(std::memory_order_relaxed) ||
         is_tf32(at::Float32Op::MATMUL);
}

// Both are on until a program asks for exact convolutions.
bool conv_may_round() {
  return conv_hf32.load(std::memory_order_relaxed) &&
         is_tf32(at::Float32Op::CONV);
}

bool allows_half_partials(at::CuBLASReductionOption option) {
  return option == at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK;
}

std::uint16_t mode_of_product(npu_dtype dtype) {
  const at::Context& context = at::globalContext();
  switch (dtype) {
    case NPU_F32:
      return matmul_may_round() ? NPU_MATH_TF32 : NPU_MATH_EXACT;
    case NPU_F16:
      return context.allowFP16AccumulationCuBLAS() ? NPU_MATH_F16_ACCUMULATE
             : allows_half_partials(context.allowFP16ReductionCuBLAS())
                 ? NPU_MATH_HALF_PARTIALS
                 : NPU_MATH_EXACT;
    case NPU_BF16:
      return allows_half_partials(context.allowBF16ReductionCuBLAS())
                 ? NPU_MATH_HALF_PARTIALS
                 : NPU_MATH_EXACT;
    default:
      return NPU_MATH_EXACT;
  }
}

std::uint16_t math_mode_of(const npu_call& frame) {
  switch (frame.slot) {
    case NPU_KIND_GEMM:
    case NPU_KIND_GEMM_GROUPED:
    case NPU_KIND_ATTENTION:
    case NPU_KIND_ATTENTION_GRAD:
      return mode_of_product(frame.tensors[frame.n_out].dtype);
    case NPU_KIND_CONV:
    case NPU_KIND_CONV_GRAD_INPUT:
    case NPU_KIND_CONV_GRAD_WEIGHT:
      return frame.tensors[frame.n_out].dtype == NPU_F32 && conv_may_round()
                 ? NPU_MATH_TF32
                 : NPU_MATH_EXACT;
    default:
      return NPU_MATH_EXACT;
  }
}

}  // namespace

npu_verdict plan_call(Call& call, const Driver& driver, npu_device device) {
  npu_call& frame = call.frame();
  const bool wanted = at::globalContext().deterministicAlgorithms();
  frame.deterministic = wanted ? 1 : 0;
  if (at::globalContext().benchmarkCuDNN()) {
    frame.flags |= NPU_CALL_BENCHMARK;
  }
  frame.math_mode = math_mode_of(frame);
  npu_verdict verdict = call.plan(driver, device);
  if (C10_UNLIKELY(wanted) && verdict.answer == NPU_VERDICT_NO &&
      verdict.reason == NPU_REASON_DETERMINISTIC) {
    at::globalContext().alertNotDeterministic(frame.label);
    frame.deterministic = 0;
    verdict = call.plan(driver, device);
  }
  return verdict;
}

void set_allow_hf32(bool matmul, bool conv) noexcept {
  matmul_hf32.store(matmul, std::memory_order_relaxed);
  conv_hf32.store(conv, std::memory_order_relaxed);
}

std::uint64_t algorithm_settings() {
  const at::Context& context = at::globalContext();
  std::uint64_t bits = 0;
  for (const bool bit :
       {context.deterministicAlgorithms(),
        context.deterministicAlgorithmsWarnOnly(),
        context.benchmarkCuDNN(),
        matmul_may_round(),
        conv_may_round(),
        context.allowFP16AccumulationCuBLAS(),
        allows_half_partials(context.allowFP16ReductionCuBLAS()),
        allows_half_partials(context.allowBF16ReductionCuBLAS())}) {
    bits = bits << 1 | (bit ? 1 : 0);
  }
  return bits;
}

}  // namespace npu
