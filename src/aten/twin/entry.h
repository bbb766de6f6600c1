// SPDX-License-Identifier: Apache-2.0
// What the ladder knows about one operator: how to call it on a twin, what
// the profile says about it, what it has cost so far.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "aten/profile/dtypes.h"
#include "aten/profile/operator_name.h"
#include "aten/twin/wide.h"
#include "npu/driver.h"

namespace npu::twin {

enum class ArgKind : std::uint8_t {
  kTensor,
  kTensorList,
  kOptionalList,
  kDevice,
  kGenerator,
  kStorage,
  kPinMemory,
};

// One argument that a call on a twin has to convert or check; others pass as
// they are.
struct Arg {
  std::uint16_t index;
  ArgKind kind;
  bool written;      // in-place and out=, and what a schema forgets to say
  bool out;          // only written
  bool cpu_allowed;  // may be a CPU tensor of any size (trap 10)
};

struct Counters {
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<std::uint64_t> ticks{0};
  std::atomic<std::uint64_t> wide{0};  // of the calls: Note [Wide]
  std::atomic<std::uint32_t> reason{NPU_REASON_NO_KERNEL};
  std::atomic<int> rung{4};
};

// Lives for ever.
struct Entry {
  Entry(const c10::OperatorHandle& op, std::string label);

  // The kernel of a key of a twin (CPU, SparseCPU, CUDA, ...). That of the CPU
  // key is the one that was there when we were installed.
  void call_kernel(c10::DispatchKey key, torch::jit::Stack* stack) const;
  bool has_kernel(c10::DispatchKey key) const;

  const c10::OperatorHandle op;
  const std::string label;  // "aten::add.Tensor"
  c10::SmallVector<Arg, 8> args;
  std::uint32_t n_args = 0;
  std::uint32_t n_returns = 0;
  bool any_written = false;
  bool seeded = false;   // tagged nondeterministic_seeded
  bool builtin = false;  // of aten: its kernels keep no Python references
  std::unique_ptr<const WideRules> wide;  // Note [Wide]; null for most

  // False until the user's policy was applied (ladder/check_policy.h).
  std::atomic<bool> policy_checked{false};
  std::mutex mutex;  // guards what follows
  bool profile_known = false;
  bool falls_back = false;
  bool warned = false;
  std::string reported;
  std::string call_site;

  Counters counters;
  DtypeJudge dtypes;

 private:
  const c10::SafeKernelFunction* saved_ = nullptr;
};

// Keeps the CPU kernels that are registered now.
void save_cpu_kernels();

Entry& entry_for(const c10::OperatorHandle& op);
// Counted under `label` instead of the operator's own name.
Entry& make_entry(const c10::OperatorHandle& op, const std::string& label);
void for_each_entry(const std::function<void(Entry&)>& visit);

}  // namespace npu::twin
