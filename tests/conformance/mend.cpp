// SPDX-License-Identifier: Apache-2.0
// What the host side does when a plan wants operands in another form (rung 2).
#include "case.h"

namespace npu::kit {
namespace {

void cast(Operand& operand, npu_dtype dtype) {
  Bytes raw(16);
  for (Value& value : operand.values) {
    store(dtype, value, raw.data());
    value = load(dtype, raw.data());
  }
  operand.dtype = dtype;
}

// True when the operand was not yet as the verdict wants it.
bool mend(Operand& operand, const npu_verdict& verdict) {
  const Operand before = operand;
  if (verdict.answer == NPU_VERDICT_IF_CAST) {
    cast(operand, verdict.cast_dtype);
  } else {
    operand.strides = contiguous_strides(operand.sizes);
  }
  operand.offset = 0;
  return operand.dtype != before.dtype || operand.strides != before.strides ||
         operand.offset != before.offset;
}

// Empty, or what is wrong with the verdict.
std::string mend(Case& value, const npu_verdict& verdict) {
  bool changed = false;
  for (std::size_t i = 0; i < value.operands.size(); ++i) {
    Operand& operand = value.operands[i];
    if (((verdict.mask >> i) & 1) == 0) {
      continue;
    }
    if (operand.present()) {
      changed = mend(operand, verdict) || changed;
    } else if (operand.info->mode == NPU_MODE_FILL && value.sized) {
      // It is there in the second call, when its size is known.
      value.sized = [sized = value.sized, i, verdict](Case& c, std::int64_t n) {
        sized(c, n);
        mend(c.operands[i], verdict);
      };
      changed = true;
    } else {
      return "plan wants an operand mended that is absent";
    }
  }
  return changed ? "" : "plan wants operands mended that are as it wants them";
}

}  // namespace

Outcome run_mended(const Machine& machine, Case& value) {
  constexpr int kMost = 4;  // cast, contiguous, aligned, and once more
  for (int attempt = 0;; ++attempt) {
    Outcome outcome = run_case(machine, value);
    if (!outcome.broken.empty()) {
      outcome.declined = false;
      return outcome;
    }
    if (!outcome.declined || outcome.verdict.answer == NPU_VERDICT_YES) {
      return outcome;
    }
    if (outcome.verdict.answer == NPU_VERDICT_NO) {
      if (outcome.verdict.reason == NPU_REASON_NONE) {
        outcome.declined = false;
        outcome.broken = "plan declines and gives no reason";
      }
      return outcome;
    }
    const std::string wrong = attempt == kMost ? "plan is never content"
                                               : mend(value, outcome.verdict);
    if (!wrong.empty()) {
      outcome.declined = false;
      outcome.broken = wrong;
      return outcome;
    }
  }
}

}  // namespace npu::kit
