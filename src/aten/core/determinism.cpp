// SPDX-License-Identifier: Apache-2.0
// What the user asks of algorithms, where calls are planned.
#include "aten/core/determinism.h"

#include <ATen/Context.h>

namespace npu {

npu_verdict plan_call(Call& call, const Driver& driver, npu_device device) {
  npu_call& frame = call.frame();
  const bool wanted = at::globalContext().deterministicAlgorithms();
  frame.deterministic = wanted ? 1 : 0;
  if (at::globalContext().benchmarkCuDNN()) {
    frame.flags |= NPU_CALL_BENCHMARK;
  }
  npu_verdict verdict = call.plan(driver, device);
  if (C10_UNLIKELY(wanted) && verdict.answer == NPU_VERDICT_NO &&
      verdict.reason == NPU_REASON_DETERMINISTIC) {
    at::globalContext().alertNotDeterministic(frame.label);
    frame.deterministic = 0;
    verdict = call.plan(driver, device);
  }
  return verdict;
}

}  // namespace npu
