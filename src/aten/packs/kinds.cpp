// SPDX-License-Identifier: Apache-2.0
// Kinds called by packs.
#include <c10/util/Exception.h>

#include "aten/core/frame.h"
#include "aten/core/runner.h"
#include "driver/registry.h"
#include "runtime/error.h"
#include "torch_npu/pack.h"

namespace npu::pack {

bool has_kind(const std::string& kind) {
  return use_driver([&] { return active_driver().find(kind.c_str()) != 0; });
}

void run_kind(
    const char* label,
    const std::string& kind,
    std::uint32_t code,
    at::ArrayRef<at::Tensor> outputs,
    at::ArrayRef<at::Tensor> inputs,
    const void* attrs,
    std::uint32_t attr_bytes) {
  TORCH_CHECK(
      !outputs.empty(),
      label,
      ": kind ",
      kind,
      " is run without an output.",
      ops_error(Code::kParam));
  const c10::DeviceIndex device = check_same_device(label, {&outputs[0]});
  for (const at::Tensor& tensor : inputs) {
    check_same_device(label, {&outputs[0], &tensor});
  }
  use_driver([&] {
    const std::uint32_t slot = active_driver().find(kind.c_str());
    TORCH_CHECK_NOT_IMPLEMENTED(
        slot != 0,
        label,
        ": driver '",
        active_driver().name(),
        "' has no kind '",
        kind,
        "'.",
        ops_error(Code::kNotSupported));
    Call call(slot, code, label);
    for (const at::Tensor& tensor : outputs) {
      call.add_output(to_operand(tensor));
    }
    for (const at::Tensor& tensor : inputs) {
      call.add_input(tensor.defined() ? to_operand(tensor) : npu_tensor{});
    }
    call.frame().attrs = attrs;
    call.frame().attr_bytes = attr_bytes;
    const npu_reason why = FrameRun(call, device).run({});
    TORCH_CHECK_NOT_IMPLEMENTED(
        why == NPU_REASON_NONE,
        label,
        ": driver '",
        active_driver().name(),
        "' declines kind '",
        kind,
        "' (",
        reason_text(why),
        ").",
        ops_error(Code::kNotSupported));
  });
}

}  // namespace npu::pack
