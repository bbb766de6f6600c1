// SPDX-License-Identifier: Apache-2.0
// Rungs 4 and 5, step by step.
#include "aten/ladder/run.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <sstream>

#include "aten/ladder/call.h"
#include "aten/ladder/ladder.h"
#include "aten/ladder/policy.h"
#include "aten/ladder/shim.h"
#include "aten/ladder/ticks.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "runtime/stream.h"

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

// CPU kernels know no streams: what was queued before must have happened.
void drain(c10::Device device) {
  static const Driver& driver = active_driver();
  check_driver(
      driver.stream().synchronize(current_stream_handle(device.index())),
      "wait for the current stream");
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

void print_call(const Entry& entry, const c10::IValue* args, bool copies) {
  std::ostringstream line;
  line << "npu: " << entry.label << ": rung " << (copies ? 5 : 4) << ":";
  for (const Arg& arg : entry.args) {
    const c10::IValue& value = args[arg.index];
    if (value.isTensor() && value.toTensor().defined()) {
      const at::Tensor& tensor = value.toTensor();
      line << ' ' << tensor.scalar_type();
      if (!tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
        line << tensor.sizes();
      }
    }
  }
  log(NPU_LOG_DEBUG, line.str());
}

// Below autograd as every backend kernel, and nothing casts temporaries.
const c10::DispatchKeySet kExcluded =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView |
    c10::autocast_dispatch_keyset;

void call_kernel(
    const Entry& entry,
    c10::DispatchKey cpu_key,
    CpuCall& call,
    bool copies,
    bool opens,
    torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  try {
    if (C10_LIKELY(!copies && !call.for_host())) {
      const ShimScope shim(call.device().index(), opens);
      entry.call_kernel(cpu_key, stack);
    } else {
      entry.call_kernel(cpu_key, stack);
    }
  } catch (...) {
    // As on the CPU, an out= tensor stays as the kernel left it.
    call.write_back();
    throw;
  }
}

}  // namespace

void run_on_cpu(
    Entry& entry,
    c10::DispatchKey cpu_key,
    torch::jit::Stack* stack,
    npu_reason reason) {
  settle(entry);
  const std::uint64_t start = read_ticks();
  c10::IValue* const args = stack->data() + stack->size() - entry.n_args;
  if (C10_UNLIKELY(entry.seeded)) {
    refuse_random(entry, args);
  }
  const c10::Device device = target_device(entry, args);
  const std::uint32_t access = device_properties(device.index()).host_access;
  const bool copies = access == NPU_HOST_ACCESS_NONE;
  const bool opens = access == NPU_HOST_ACCESS_EXPLICIT;
  if (C10_UNLIKELY(log_enabled(NPU_LOG_DEBUG))) {
    print_call(entry, args, copies);
  }
  if (C10_LIKELY(!copies)) {
    drain(device);
  }
  CpuCall call(entry, device, copies, opens);
  call.convert_arguments(args);
  call_kernel(entry, cpu_key, call, copies, opens, stack);
  call.write_back();
  call.convert_results(
      stack->data() + stack->size() - entry.n_returns, entry.n_returns);
  call.finish();

  Counters& counters = entry.counters;
  constexpr auto kRelaxed = std::memory_order_relaxed;
  counters.calls.fetch_add(1, kRelaxed);
  counters.bytes.fetch_add(call.bytes(), kRelaxed);
  counters.ticks.fetch_add(read_ticks() - start, kRelaxed);
  counters.reason.store(reason, kRelaxed);
  counters.rung.store(copies ? 5 : 4, kRelaxed);
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
