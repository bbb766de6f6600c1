// SPDX-License-Identifier: Apache-2.0
// A tool: code around the kernels its selection wants.
#pragma once

#include <ATen/core/stack.h>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/operators.h"
#include "core/selection.h"
#include "core/thread.h"
#include "core/unseen.h"

namespace optools {

// Where a kernel comes from. Of a backward kernel: where its forward did.
struct Origin {
  uint32_t api = 0;
  uint32_t module = 0;
  uint32_t site = 0;
  uint64_t api_call = 0;
  uint64_t number = 0;  // Call::number of the forward call, 0 where unknown
};

struct Call;

// Runs a call in place of its kernel.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual void execute(Call& call) = 0;
};

struct Call {
  Operator& op;
  const c10::SafeKernelFunction& kernel;
  c10::DispatchKeySet keys;
  torch::jit::Stack& stack;
  ThreadState& thread;
  c10::DeviceType device;
  Phase phase;
  uint64_t number;  // 1, 2, ... in the order calls began
  int64_t step;
  int64_t sequence = -1;  // autograd's number, shared by forward and backward
  uint64_t sequence_thread = 0;
  int64_t made_node = -1;  // the number of the node that autograd made for it
  int64_t function_node = -1;  // of the custom Function that this call begins
  bool recomputed = false;     // forward code that backward runs once more
  Origin origin;
  Executor* executor = nullptr;
  bool cast = false;  // a tool gave it tensors of another dtype

  // Before the kernel ran.
  c10::ArrayRef<c10::IValue> inputs() const {
    return torch::jit::last(stack, op.arguments);
  }
  // After it ran.
  c10::ArrayRef<c10::IValue> outputs() const {
    return torch::jit::last(stack, op.returns);
  }
};

class Tool;

// The tools that still have to see the call, then the kernel.
class Chain {
 public:
  explicit Chain(Call& call) : call_(call) {}
  void add(Tool* tool) {
    tools_[count_++] = tool;
  }
  void run();

 private:
  Call& call_;
  std::array<Tool*, kMaxTools> tools_;
  int count_ = 0;
  int at_ = 0;
};

// What a tool keeps per thread, so that threads never share a line of memory.
class ToolLocal {
 public:
  explicit ToolLocal(ThreadState& owner) : thread(owner), thread_id(owner.id) {}
  virtual ~ToolLocal() = default;
  ThreadState& thread;
  const uint32_t thread_id;
};

class Tool {
 public:
  Tool();
  virtual ~Tool() = default;

  // Must call chain.run() exactly once; what that throws is the user's. Own
  // mistakes belong into attempt().
  virtual void around(Call& call, Chain& chain) = 0;

  // Called once no thread is inside the tool any more.
  virtual void finish() {}

  Selection selection;
  std::string label = "a tool";  // in messages
  bool wants_sites = false;

  // Called by taps before they hand it a call.
  void note_call() {
    if (!saw()) [[unlikely]] {
      first_call();
    }
  }
  // Has it been around any call since it started?
  bool saw() const {
    return saw_.load(std::memory_order_relaxed);
  }
  // Where operators ran while it saw none; after it stopped. See
  // core/unseen.h.
  const CallsByDevice& unseen() const {
    return unseen_;
  }

  bool failed() const {
    return failed_.load(std::memory_order_relaxed);
  }
  std::string failure() const;

 protected:
  // A tool's exception never reaches user code: the tool says why, once, and
  // goes quiet.
  template <class F>
  bool attempt(F&& body) noexcept {
    try {
      body();
      return true;
    } catch (const std::exception& error) {
      fail(error.what());
    } catch (...) {
      fail("unknown exception");
    }
    return false;
  }
  void fail(const char* why) noexcept;

  template <class Local>
  Local& local(Call& call) {
    auto& slot = call.thread.slots[slot_];
    if (slot.tool != id_) [[unlikely]] {
      slot = {id_, add_local(std::make_unique<Local>(call.thread))};
    }
    return static_cast<Local&>(*slot.local);
  }

  // Locals of threads that are not inside the tool; all, once it has stopped.
  std::vector<ToolLocal*> quiet_locals() const;

 private:
  friend class Engine;
  void first_call();
  void end_blindness();
  ToolLocal* add_local(std::unique_ptr<ToolLocal> local);

  const uint64_t id_;
  int slot_ = -1;
  std::atomic<bool> failed_{false};
  std::atomic<bool> saw_{false};
  std::atomic<bool> blind_{false};  // one of those add_blind_tool() counts
  CallsByDevice unseen_{};          // while it runs: counted before it started
  mutable std::mutex mutex_;
  std::string failure_;
  std::vector<std::unique_ptr<ToolLocal>> locals_;
};

// Runs `body(tensor)` for each tensor in a value, lists and optionals included.
template <class F>
void each_tensor(const c10::IValue& value, F&& body) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined()) {
      body(tensor);
    }
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (tensor.defined()) {
        body(tensor);
      }
    }
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      each_tensor(item, body);
    }
  }
}

inline bool holds_tensor(const c10::IValue& value) {
  bool found = false;
  each_tensor(value, [&](const at::Tensor&) { found = true; });
  return found;
}

// The memory of a tensor that has_storage().
inline c10::StorageImpl* storage_of(const at::Tensor& t) {
  return t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// How often it was written; 0 where that is not counted.
inline uint32_t version_of(const at::Tensor& t) {
  auto* impl = t.unsafeGetTensorImpl();
  return impl->is_inference() ? 0 : impl->version_counter().current_version();
}

}  // namespace optools
