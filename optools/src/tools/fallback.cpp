// SPDX-License-Identifier: Apache-2.0
// Fall back to the CPU below autograd: what the operator wrote is copied back
// into the tensors it was given, so in-place, out= and foreach forms work, and
// gradients are none of our business.
#include "tools/fallback.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include <utility>

#include "core/host_memory.h"
#include "core/values.h"
#include "judge/rules.h"
#include "tools/snapshot.h"

namespace optools {
namespace {

// Why this call cannot run on the CPU; null when it can.
const char* obstacle(const Call& call) {
  if (call.device == c10::DeviceType::CPU) {
    return "runs on the cpu already";
  }
  if (call.op.is_view) {
    return "a view: nothing is computed";
  }
  if (call.op.uninitialised) {
    return "allocates only";
  }
  if (call.op.name.rfind("aten::_to_copy", 0) == 0 ||
      call.op.name.rfind("aten::copy_", 0) == 0 ||
      call.op.name.rfind("aten::_copy_from", 0) == 0 ||
      call.op.name.rfind("aten::_local_scalar_dense", 0) == 0 ||
      call.op.name.rfind("aten::set_", 0) == 0) {
    return "moves data, computes nothing";
  }
  if (!has_host_kernel(call.op)) {
    return kNoHostKernel;
  }
  // The CPU's generator has other numbers: what follows would be another run.
  if (draws(call.op, call.inputs())) {
    return "draws from the device's generator";
  }
  for (const auto& value : call.inputs()) {
    const char* why = nullptr;
    each_tensor(value, [&](const at::Tensor& t) {
      if (t.layout() != c10::kStrided || t.is_nested() || t.is_quantized()) {
        why = "sparse, nested or quantised tensor";
      }
    });
    if (why != nullptr) {
      return why;
    }
  }
  return nullptr;
}

// CPU stand-ins of a call's tensors. One tensor given twice has one stand-in.
class Standins {
 public:
  explicit Standins(bool widen) : widen_(widen) {}

  at::Tensor of(const at::Tensor& original) {
    for (const auto& [theirs, ours] : pairs_) {
      if (theirs.is_same(original)) {
        return ours;
      }
    }
    at::Tensor ours =
        original.is_non_overlapping_and_dense() && !original.is_conj()
            ? host_copy(original)
            : original.to(c10::kCPU);
    if (widen_ && is_half(ours.scalar_type())) {
      narrow_ = ours.scalar_type();
      ours = ours.to(c10::ScalarType::Float);
    }
    pairs_.emplace_back(original, ours);
    return ours;
  }

  // The tensor a stand-in belongs to, with the stand-in's contents when it was
  // written; null for a new tensor.
  const at::Tensor* original(const at::Tensor& ours) const {
    for (const auto& [theirs, standin] : pairs_) {
      if (standin.is_same(ours)) {
        return &theirs;
      }
    }
    return nullptr;
  }

  // What a new result's dtype is without the widening.
  c10::ScalarType result_dtype(c10::ScalarType dtype) const {
    return dtype == c10::ScalarType::Float &&
                   narrow_ != c10::ScalarType::Undefined
               ? narrow_
               : dtype;
  }

  static bool is_half(c10::ScalarType dtype) {
    return dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
  }

 private:
  bool widen_;
  c10::ScalarType narrow_ = c10::ScalarType::Undefined;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
};

struct Plan {
  std::vector<c10::IValue> inputs;  // as they were given
  c10::Device device{c10::DeviceType::CPU};
  bool has_half = false;
};

Plan plan_of(const Call& call) {
  Plan plan;
  plan.inputs = call.inputs().vec();
  for (const auto& value : plan.inputs) {
    if (value.isDevice() && plan.device.is_cpu()) {
      plan.device = value.toDevice();
    }
    each_tensor(value, [&](const at::Tensor& t) {
      if (plan.device.is_cpu()) {
        plan.device = t.device();
      }
      plan.has_half = plan.has_half || Standins::is_half(t.scalar_type());
    });
  }
  return plan;
}

torch::jit::Stack run_on_cpu(
    const Call& call, const Plan& plan, Standins& standins) {
  torch::jit::Stack stack;
  for (const auto& value : plan.inputs) {
    if (value.isDevice()) {
      stack.emplace_back(c10::Device(c10::DeviceType::CPU));
    } else {
      stack.push_back(map_tensors(
          value, [&](const at::Tensor& t) { return standins.of(t); }));
    }
  }
  call.op.handle.redispatchBoxed(
      c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return stack;
}

void copy_back(const Call& call, const Plan& plan, Standins& standins) {
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    if (!call.op.written[i]) {
      continue;
    }
    each_tensor(plan.inputs[i], [&](const at::Tensor& theirs) {
      const at::Tensor ours = standins.of(theirs);
      if (theirs.sizes() != ours.sizes()) {  // out= of another size
        theirs.resize_(ours.sizes());
      }
      theirs.copy_(ours);
    });
  }
}

at::Tensor to_device(
    const at::Tensor& ours, const Standins& standins, c10::Device device) {
  if (const auto* theirs = standins.original(ours)) {
    return *theirs;
  }
  const auto dtype = standins.result_dtype(ours.scalar_type());
  auto result = at::empty_strided(
      ours.sizes(), ours.strides(), ours.options().device(device).dtype(dtype));
  return result.copy_(ours);
}

// The operator's results on the CPU; false when the CPU has no such kernel.
bool compute(
    const Call& call,
    const Plan& plan,
    Standins& standins,
    torch::jit::Stack& results) {
  try {
    results = run_on_cpu(call, plan, standins);
    return true;
  } catch (const c10::NotImplementedError&) {
    if (!plan.has_half) {
      return false;
    }
  } catch (const c10::Error&) {
    if (!plan.has_half) {
      throw;
    }
  }
  standins = Standins(true);  // no CPU kernel for half: compute in float
  try {
    results = run_on_cpu(call, plan, standins);
    return true;
  } catch (const c10::NotImplementedError&) {
    return false;
  }
}

}  // namespace

void Fallback::around(Call& call, Chain& chain) {
  attempt([&] {
    const char* why = obstacle(call);
    if (why == nullptr && call.executor != nullptr) {
      why = "another tool runs it";
    }
    if (why != nullptr) {
      count(call, why);
    } else {
      call.executor = this;
    }
  });
  chain.run();
}

void Fallback::execute(Call& call) {
  const Plan plan = plan_of(call);
  Standins standins(false);
  torch::jit::Stack results;
  Quiet quiet;
  at::AutoDispatchBelowADInplaceOrView below;
  if (!compute(call, plan, standins, results)) {
    attempt([&] { count(call, kNoHostKernel); });
    call.kernel.callBoxed(call.op.handle, call.keys, &call.stack);
    return;
  }
  attempt([&] { count(call, ""); });
  copy_back(call, plan, standins);
  torch::jit::drop(call.stack, call.op.arguments);
  for (const auto& value : results) {
    call.stack.push_back(map_tensors(value, [&](const at::Tensor& t) {
      return to_device(t, standins, plan.device);
    }));
  }
}

void Fallback::finish() {
  release_pool();
}

}  // namespace optools
