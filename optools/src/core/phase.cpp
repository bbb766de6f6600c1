// SPDX-License-Identifier: Apache-2.0
// Which part of a training step a thread is in. Autograd numbers the nodes a
// thread creates; the node of a forward call is created just before its kernel
// runs, and its backward kernels run inside that node: the number ties them.
#include "core/phase.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <atomic>
#include <cstring>
#include <optional>

#include "core/call_site.h"
#include "core/engine.h"

namespace optools {
namespace {

constexpr char kStepPrefix[] = "Optimizer.step#";

bool is_step(const at::RecordFunction& fn) {
  return std::strncmp(fn.name(), kStepPrefix, sizeof(kStepPrefix) - 1) == 0;
}

std::unique_ptr<at::ObserverContext> enter_scope(const at::RecordFunction& fn) {
  if (is_step(fn)) {
    ++this_thread().optimizer;
  }
  return nullptr;
}

void leave_scope(const at::RecordFunction& fn, at::ObserverContext*) {
  auto& thread = this_thread();
  // A tool may have started inside the step: then nothing was entered.
  if (is_step(fn) && thread.optimizer > 0 && --thread.optimizer == 0) {
    auto& engine = Engine::get();
    engine.set_step(engine.step() + 1);
  }
}

// Forward origins by (thread, autograd number). A fixed table where newer
// calls displace older ones: a graph deeper than this loses its oldest names.
// Each entry is a sequence lock: odd while it is written, and a reader takes
// only what was the same before and after.
class Origins {
 public:
  void put(uint64_t thread, uint64_t sequence, const Origin& origin) {
    Entry& entry = at(thread, sequence);
    auto version = entry.version.load(std::memory_order_relaxed);
    if (version % 2 != 0 ||
        !entry.version.compare_exchange_strong(version, version + 1)) {
      return;  // another thread writes here: its origin is as good as ours
    }
    std::atomic_thread_fence(std::memory_order_release);
    const Words words{
        thread,
        sequence,
        uint64_t{origin.api} << 32 | origin.module,
        origin.site,
        origin.api_call,
        origin.number};
    for (size_t i = 0; i < words.size(); ++i) {
      entry.words[i].store(words[i], std::memory_order_relaxed);
    }
    entry.version.store(version + 2, std::memory_order_release);
  }

  bool get(uint64_t thread, uint64_t sequence, Origin& origin) const {
    const Entry& entry = at(thread, sequence);
    const auto before = entry.version.load(std::memory_order_acquire);
    if (before % 2 != 0 || before == 0) {
      return false;
    }
    Words words;
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = entry.words[i].load(std::memory_order_relaxed);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.version.load(std::memory_order_relaxed) != before ||
        words[0] != thread || words[1] != sequence) {
      return false;
    }
    origin = Origin{
        .api = static_cast<uint32_t>(words[2] >> 32),
        .module = static_cast<uint32_t>(words[2]),
        .site = static_cast<uint32_t>(words[3]),
        .api_call = words[4],
        .number = words[5]};
    return true;
  }

 private:
  using Words = std::array<uint64_t, 6>;
  struct Entry {
    std::atomic<uint32_t> version{0};
    std::array<std::atomic<uint64_t>, std::tuple_size_v<Words>> words{};
  };
  static constexpr size_t kEntries = 1 << 15;
  std::unique_ptr<Entry[]> entries_{new Entry[kEntries]};

  Entry& at(uint64_t thread, uint64_t sequence) const {
    return entries_[(sequence + thread * 7919) % kEntries];
  }
};

Origins& origins() {
  static auto* table = new Origins;
  return *table;
}

at::CallbackHandle g_handle = at::INVALID_CALLBACK_HANDLE;

std::atomic<uint64_t> g_backward_calls{0};

// Std's or PyTorch's own kind of pointer: versions differ.
using WeakNode = decltype(torch::autograd::AutogradMeta::grad_accumulator_);

// Forward calls of this thread that autograd made a node for since backward
// last ran anywhere, and a node of theirs, which lives while their graph does.
struct Waiting {
  uint64_t calls = 0;
  uint64_t since = 0;
  std::optional<WeakNode> node;
};
thread_local Waiting t_waiting;

// `input` requires a gradient.
void note_waiting(const at::Tensor& input) {
  const uint64_t now = g_backward_calls.load(std::memory_order_relaxed);
  if (t_waiting.since != now) {
    t_waiting.since = now;
    t_waiting.calls = 0;
  }
  ++t_waiting.calls;
  if (const auto* meta = torch::autograd::impl::get_autograd_meta(input)) {
    t_waiting.node = meta->grad_fn_ ? WeakNode(meta->grad_fn_)
                                    : WeakNode(meta->grad_accumulator_);
  }
}

// Did autograd make a node for this call? Then the thread's counter has moved
// since the last call we saw. (A custom Function's own node is made after its
// forward ran; the next call that needs no gradient must not take its number.)
bool made_node(const Call& call, uint64_t next) {
  if (next == 0 || next == call.thread.seen_sequence ||
      !c10::GradMode::is_enabled()) {
    return false;
  }
  bool found = false;
  for (const auto& value : call.inputs()) {
    each_tensor(value, [&](const at::Tensor& t) {
      if (!found && t.requires_grad()) {
        found = true;
        note_waiting(t);
      }
    });
  }
  return found;
}

// A custom Function's node gets its number before its forward runs, without
// gradients: the first call there is as near to it as a call comes.
bool is_first_in_function(const Call& call, uint64_t next) {
  const uint64_t seen = call.thread.seen_sequence;
  return seen != 0 && next == seen + 1 && !c10::GradMode::is_enabled() &&
         in_custom_function();
}

void find_node(Call& call, bool needs_origin) {
  const uint64_t next = at::sequence_number::peek();
  if (made_node(call, next)) {
    call.made_node = static_cast<int64_t>(next - 1);
  } else if (needs_origin && is_first_in_function(call, next)) {
    call.function_node = static_cast<int64_t>(next - 1);
  }
  call.thread.seen_sequence = next;
}

void put_origin(int64_t node, const Origin& origin) {
  origins().put(
      at::RecordFunction::currentThreadId(),
      static_cast<uint64_t>(node),
      origin);
}

}  // namespace

void watch_optimizers(bool on) {
  if (on && g_handle == at::INVALID_CALLBACK_HANDLE) {
    g_handle = at::addGlobalCallback(
        at::RecordFunctionCallback(&enter_scope, &leave_scope)
            .scopes({at::RecordScope::USER_SCOPE}));
  } else if (!on && g_handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(g_handle);
    g_handle = at::INVALID_CALLBACK_HANDLE;
  }
}

void place_call(Call& call, bool needs_origin) {
  auto& thread = call.thread;
  const auto node = torch::autograd::get_current_node();
  if (node) {
    call.phase = Phase::kBackward;
    g_backward_calls.fetch_add(1, std::memory_order_relaxed);
    call.sequence = static_cast<int64_t>(node->sequence_nr());
    call.sequence_thread = node->thread_id();
    // A checkpoint's second run enters modules: its calls are of those, and not
    // of the call whose gradient made it necessary.
    if (!thread.modules.empty() && thread.modules.back().node == node.get()) {
      call.recomputed = true;
      call.origin.module = thread.modules.back().module;
      find_node(call, needs_origin);
    } else if (needs_origin) {
      origins().get(call.sequence_thread, node->sequence_nr(), call.origin);
    }
    // Python inside backward (a custom Function, a second run) makes API calls
    // of its own.
    if (thread.api_in_node) {
      call.origin.api = thread.api;
      call.origin.api_call = thread.api_call;
    }
    return;
  }
  call.phase = thread.optimizer > 0 ? Phase::kOptimizer : Phase::kForward;
  call.origin.api = thread.api;
  call.origin.api_call = thread.api_call;
  call.origin.module =
      thread.modules.empty() ? 0 : thread.modules.back().module;
  find_node(call, needs_origin);
  if (call.made_node >= 0) {
    call.sequence = call.made_node;
    call.sequence_thread = at::RecordFunction::currentThreadId();
  }
}

std::pair<uint64_t, uint64_t> calls_without_backward() {
  const uint64_t now = g_backward_calls.load(std::memory_order_relaxed);
  const bool waits =
      t_waiting.since == now && t_waiting.node && !t_waiting.node->expired();
  return {waits ? t_waiting.calls : 0, now};
}

void remember_origin(const Call& call) {
  if (call.made_node >= 0) {
    Origin origin = call.origin;
    origin.number = call.number;
    put_origin(call.made_node, origin);
  } else if (call.function_node >= 0) {
    put_origin(call.function_node, call.origin);
  }
}

}  // namespace optools
