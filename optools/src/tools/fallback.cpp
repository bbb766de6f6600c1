// SPDX-License-Identifier: Apache-2.0
// Fall back to the CPU below autograd: what the operator wrote is copied back
// into the tensors it was given, so in-place, out= and foreach forms work, and
// gradients are none of our business.
#include "tools/fallback.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/host_memory.h"
#include "core/values.h"
#include "judge/rules.h"
#include "tools/snapshot.h"

namespace optools {
namespace {

// Elements of a storage that several tensors of a call lie in, copied once.
struct SharedMemory {
  int64_t first = 0;
  int64_t end = 0;
  int tensors = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool plain = true;  // of one dtype, none of them a conjugate or negative view
  at::Tensor copy;

  void add(const at::Tensor& t) {
    const int64_t begin = t.storage_offset();
    int64_t last = begin + 1;
    for (int64_t d = 0; d < t.dim(); ++d) {
      last += (t.size(d) - 1) * t.stride(d);
    }
    first = tensors == 0 ? begin : std::min(first, begin);
    end = std::max(end, last);
    plain = plain && !t.is_conj() && !t.is_neg() &&
            (tensors == 0 || dtype == t.scalar_type());
    dtype = t.scalar_type();
    ++tensors;
  }
};
using SharedMemories = std::unordered_map<c10::StorageImpl*, SharedMemory>;

// Storages that more than one tensor of a call that writes has a part of.
SharedMemories shared_memories(
    const Call& call, c10::ArrayRef<c10::IValue> inputs) {
  SharedMemories found;
  if (!call.op.writes) {
    return found;  // copies of one memory stay equal
  }
  std::unordered_set<c10::TensorImpl*> seen;
  for (const auto& value : inputs) {
    each_tensor(value, [&](const at::Tensor& t) {
      if (t.numel() != 0 && t.has_storage() && !t.device().is_cpu() &&
          seen.insert(t.unsafeGetTensorImpl()).second) {
        found[storage_of(t)].add(t);
      }
    });
  }
  std::erase_if(
      found, [](const auto& each) { return each.second.tensors < 2; });
  return found;
}

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
  for (const auto& [storage, memory] : shared_memories(call, call.inputs())) {
    if (!memory.plain) {
      return "two kinds of view of one memory";
    }
  }
  return nullptr;
}

// CPU stand-ins of a call's tensors. One tensor given twice has one stand-in,
// and those of one memory have one memory.
class Standins {
 public:
  Standins(bool widen, SharedMemories shared)
      : widen_(widen), shared_(std::move(shared)) {}

  at::Tensor of(const at::Tensor& original) {
    const auto [at, fresh] =
        by_original_.try_emplace(original.unsafeGetTensorImpl(), pairs_.size());
    if (fresh) {
      const auto shared = original.has_storage()
                              ? shared_.find(storage_of(original))
                              : shared_.end();
      const bool apart = shared == shared_.end() || original.numel() == 0;
      const at::Tensor ours =
          apart ? copy_of(original) : part_of(shared->second, original);
      by_standin_.emplace(ours.unsafeGetTensorImpl(), pairs_.size());
      pairs_.emplace_back(original, ours);
    }
    return pairs_[at->second].second;
  }

  // The tensor a stand-in belongs to, with the stand-in's contents when it was
  // written; null for a new tensor.
  const at::Tensor* original(const at::Tensor& ours) const {
    const auto at = by_standin_.find(ours.unsafeGetTensorImpl());
    return at == by_standin_.end() ? nullptr : &pairs_[at->second].first;
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
  at::Tensor widened(at::Tensor ours) {
    if (widen_ && is_half(ours.scalar_type())) {
      narrow_ = ours.scalar_type();
      ours = ours.to(c10::ScalarType::Float);
    }
    return ours;
  }
  at::Tensor copy_of(const at::Tensor& original) {
    return widened(
        original.is_non_overlapping_and_dense() && !original.is_conj()
            ? host_copy(original)
            : original.to(c10::kCPU));
  }
  at::Tensor part_of(SharedMemory& memory, const at::Tensor& original) {
    if (!memory.copy.defined()) {
      const int64_t elements = memory.end - memory.first;
      memory.copy = widened(
          at::as_strided(original, {elements}, {1}, memory.first)
              .to(c10::kCPU, original.scalar_type(), false, /*copy=*/true));
    }
    return at::as_strided(
        memory.copy,
        original.sizes(),
        original.strides(),
        original.storage_offset() - memory.first);
  }

  bool widen_;
  SharedMemories shared_;
  c10::ScalarType narrow_ = c10::ScalarType::Undefined;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;
  std::unordered_map<c10::TensorImpl*, size_t> by_original_;
  std::unordered_map<c10::TensorImpl*, size_t> by_standin_;
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
  // No CPU kernel for half: compute in float.
  standins = Standins(true, shared_memories(call, plan.inputs));
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
  Standins standins(false, shared_memories(call, plan.inputs));
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
