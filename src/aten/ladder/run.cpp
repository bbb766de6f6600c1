// SPDX-License-Identifier: Apache-2.0
// Rungs 4 and 5, step by step.
#include "aten/ladder/run.h"

#include <optional>

#include "aten/ladder/ladder.h"
#include "aten/ladder/settle.h"
#include "aten/ladder/unboxed.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace npu::ladder {
namespace {

bool is_npu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

// Where the call happens: at its first npu tensor, else at the device it asks
// for, else here.
c10::Device target_device(const Entry& entry, const c10::IValue* args) {
  std::optional<c10::Device> asked;
  for (const Arg& arg : entry.args) {
    const c10::IValue& value = args[arg.index];
    if (value.isTensor()) {
      if (C10_LIKELY(is_npu(value.toTensor()))) {
        return value.toTensor().device();
      }
    } else if (value.isList() && arg.kind != ArgKind::kTensor) {
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor() && is_npu(item.toTensor())) {
          return item.toTensor().device();
        }
      }
    } else if (value.isDevice() && value.toDevice().type() == kDeviceType) {
      asked = value.toDevice();
    }
  }
  const c10::DeviceIndex index = asked ? asked->index() : -1;
  return {kDeviceType, device_or_current(index)};
}

// True when this call of a random operator draws nothing.
bool draws_nothing(const Entry& entry, const c10::IValue* args) {
  const c10::FunctionSchema& schema = entry.op.schema();
  if (schema.name() == "aten::_fused_sdp_choice") {
    return true;
  }
  for (std::uint32_t i = 0; i < entry.n_args; ++i) {
    const std::string& name = schema.arguments()[i].name();
    if ((name == "train" || name == "training") && args[i].isBool() &&
        !args[i].toBool()) {
      return true;
    }
    if (name == "dropout_p" && args[i].isDouble() && args[i].toDouble() == 0) {
      return true;
    }
  }
  return false;
}

void refuse_random(const Entry& entry, const c10::IValue* args) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      draws_nothing(entry, args),
      "npu: ",
      entry.label,
      ": draws random numbers and has no kernel for the npu device; the CPU's "
      "generator is never used in its place. Draw on the CPU and move the "
      "result with .to(\"npu\").",
      ops_error(Code::kNotSupported));
}

}  // namespace

void run_on_cpu(
    Entry& entry,
    c10::DispatchKey cpu_key,
    torch::jit::Stack* stack,
    npu_reason reason) {
  settle(entry);
  c10::IValue* const args = stack->data() + stack->size() - entry.n_args;
  if (C10_UNLIKELY(entry.seeded)) {
    refuse_random(entry, args);
  }
  CpuRun run(entry, target_device(entry, args), reason);
  run.call.convert_arguments(args);
  run.ready();
  try {
    const CpuScope scope(run);
    entry.call_kernel(cpu_key, stack);
  } catch (...) {
    // As on the CPU, an out= tensor stays as the kernel left it.
    run.call.write_back();
    throw;
  }
  run.call.write_back();
  run.call.convert_results(
      stack->data() + stack->size() - entry.n_returns, entry.n_returns);
  run.finish();
}

void call_on_cpu(
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    npu_reason reason) {
  run_on_cpu(entry_for(op), c10::DispatchKey::CPU, stack, reason);
}

CpuOp::CpuOp(const char* name, const char* overload, const char* label)
    : entry_(&make_entry(
          c10::Dispatcher::singleton().findSchemaOrThrow(name, overload),
          label)) {}

void CpuOp::run(torch::jit::Stack* stack) const {
  run_on_cpu(*entry_, c10::DispatchKey::CPU, stack, NPU_REASON_NO_KERNEL);
}

}  // namespace npu::ladder
