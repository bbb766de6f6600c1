// SPDX-License-Identifier: Apache-2.0
// Rungs 4 and 5, boxed, step by step.
#include "aten/ladder/run.h"

#include <optional>

#include "aten/ladder/ladder.h"
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
  for (const twin::Arg& arg : entry.args) {
    const c10::IValue& value = args[arg.index];
    if (value.isTensor()) {
      if (C10_LIKELY(is_npu(value.toTensor()))) {
        return value.toTensor().device();
      }
    } else if (value.isList() && arg.kind != twin::ArgKind::kTensor) {
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

const twin::Reach& choose_reach(
    const Entry& entry, c10::DispatchKey npu_key, c10::Device device) {
  const twin::Reaches& reaches = twin::reaches_of(device);
  const twin::Twin& own = *reaches.own.twin;
  return &own == reaches.host.twin || (own.refusal(entry) == nullptr &&
                                       entry.has_kernel(own.key_of(npu_key)))
             ? reaches.own
             : reaches.host;
}

bool has_kernel(const Entry& entry, c10::DispatchKey npu_key) {
  if (entry.has_kernel(twin::cpu_twin().key_of(npu_key))) {
    return true;
  }
  const twin::Twin* const other = twin::other_twin();
  return other != nullptr && entry.has_kernel(other->key_of(npu_key));
}

bool needs_copies(const Entry& entry, const torch::jit::Stack& stack) {
  const c10::IValue* const args = stack.data() + stack.size() - entry.n_args;
  return choose_reach(
             entry, c10::DispatchKey::PrivateUse1, target_device(entry, args))
      .copies;
}

void run_boxed(
    Entry& entry,
    c10::DispatchKey npu_key,
    torch::jit::Stack* stack,
    npu_reason reason) {
  check_policy(entry);
  c10::IValue* const args = stack->data() + stack->size() - entry.n_args;
  if (C10_UNLIKELY(entry.seeded)) {
    refuse_random(entry, args);
  }
  const c10::Device device = target_device(entry, args);
  TwinRun run(entry, device, reason, choose_reach(entry, npu_key, device));
  run.call.convert_arguments(args);
  run.ready();
  try {
    const TwinScope scope(run.call);
    entry.call_kernel(run.call.twin().key_of(npu_key), stack);
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

void run_below(
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    npu_reason reason) {
  run_boxed(twin::entry_for(op), c10::DispatchKey::PrivateUse1, stack, reason);
}

TwinOp::TwinOp(const char* name, const char* overload, const char* label)
    : entry_(&twin::make_entry(
          c10::Dispatcher::singleton().findSchemaOrThrow(name, overload),
          label)) {}

void TwinOp::run(torch::jit::Stack* stack) const {
  run_boxed(
      *entry_, c10::DispatchKey::PrivateUse1, stack, NPU_REASON_NO_KERNEL);
}

}  // namespace npu::ladder
