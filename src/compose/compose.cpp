// SPDX-License-Identifier: Apache-2.0
// Which kinds can be made of others.
#include "compose/compose.h"

#include <algorithm>
#include <iterator>

#include "compose/decompositions.h"

namespace npu::compose {
namespace {

struct Recipe {
  std::uint32_t slot;
  Decomposition fn;
};

constexpr Recipe kRows[] = {
    {NPU_KIND_FLIP, flip},
    {NPU_KIND_ROLL, roll},
    {NPU_KIND_ISIN, isin},
    {NPU_KIND_WEIGHT_NORM, weight_norm},
    {NPU_KIND_WEIGHT_NORM_GRAD, weight_norm_grad},
    {NPU_KIND_LOSS, loss},
    {NPU_KIND_LOSS_GRAD, loss_grad},
    {NPU_KIND_MARGIN, margin},
    {NPU_KIND_MARGIN_GRAD, margin_grad},
    {NPU_KIND_PROGRAM, program},
    {NPU_KIND_MULTI_PROGRAM, multi_program},
};

Decomposition find(std::uint32_t slot) noexcept {
  const Recipe* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Recipe& r) {
        return r.slot == slot;
      });
  return row != std::end(kRows) ? row->fn : nullptr;
}

// Values to be read conjugated or negated are left to those who asked.
bool is_plain(const npu_call& call) noexcept {
  return std::all_of(
      call.tensors,
      call.tensors + call.n_out + call.n_in,
      [](const npu_tensor& tensor) {
        return (tensor.flags & (NPU_TENSOR_CONJ | NPU_TENSOR_NEG |
                                NPU_TENSOR_HOST_SCALAR)) == 0;
      });
}

}  // namespace

bool has_decomposition(std::uint32_t slot) noexcept {
  return find(slot) != nullptr;
}

bool run(Runner& runner, const npu_call& call) {
  const Decomposition fn = find(call.slot);
  // Operations of a program read operands as they are, in calls that are
  // planned themselves.
  if (fn == nullptr || (call.slot != NPU_KIND_PROGRAM && !is_plain(call))) {
    return false;
  }
  if (writes_nothing(call)) {
    return true;
  }
  Builder builder(runner, call);
  try {
    fn(builder);
  } catch (const Declined&) {
    return false;
  }
  return true;
}

}  // namespace npu::compose
