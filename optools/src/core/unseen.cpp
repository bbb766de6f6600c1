// SPDX-License-Identifier: Apache-2.0
// Where operators run while a tool sees none.
#include "core/unseen.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <atomic>
#include <mutex>

#include "core/fork_mutex.h"
#include "core/taps.h"
#include "core/tool.h"

namespace optools {
namespace {

std::array<std::atomic<uint64_t>, std::tuple_size_v<CallsByDevice>> g_counted;
std::atomic<uint64_t> g_left{0};  // until counting stops
thread_local int t_depth = 0;     // operators inside operators are not counted

struct InsideCounted : at::ObserverContext {};

// As far as its arguments tell: a factory without a device argument makes its
// tensor on the cpu.
c10::DeviceType device_of_arguments(c10::ArrayRef<const c10::IValue> inputs) {
  std::optional<c10::DeviceType> found;
  for (const auto& value : inputs) {
    each_tensor(value, [&](const at::Tensor& t) {
      if (!found || *found == c10::DeviceType::CPU) {
        found = t.device().type();
      }
    });
    if (!found && value.isDevice()) {
      found = value.toDevice().type();
    }
  }
  return found.value_or(c10::DeviceType::CPU);
}

std::unique_ptr<at::ObserverContext> enter_operator(
    const at::RecordFunction& fn) {
  const auto name = fn.operator_name();
  if (!name || ~this_thread().busy == 0 || g_left.load() == 0) {
    return nullptr;
  }
  const auto handle = c10::Dispatcher::singleton().findOp(*name);
  if (!handle || is_composition(*handle)) {
    return nullptr;  // what it is made of counts
  }
  std::unique_ptr<InsideCounted> inside(new (std::nothrow) InsideCounted);
  if (inside != nullptr && t_depth++ == 0) {
    const auto device = device_of_arguments(fn.inputs());
    ++g_counted[static_cast<size_t>(device)];
    --g_left;
  }
  return inside;
}

void leave_operator(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) {
    --t_depth;
  }
}

struct BlindTools {
  ForkMutex<BlindTools> mutex;
  int count = 0;
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

  static BlindTools& get() {
    static auto* all = new BlindTools;
    return *all;
  }

  void listen(bool on) {
    if (on && handle == at::INVALID_CALLBACK_HANDLE) {
      g_left = kMostUnseen;
      handle = at::addGlobalCallback(
          at::RecordFunctionCallback(&enter_operator, &leave_operator)
              .needsInputs(true)
              .scopes({at::RecordScope::FUNCTION}));
    } else if (!on && handle != at::INVALID_CALLBACK_HANDLE) {
      at::removeCallback(handle);
      handle = at::INVALID_CALLBACK_HANDLE;
    }
  }
};

}  // namespace

void add_blind_tool() {
  auto& all = BlindTools::get();
  std::lock_guard lock(all.mutex);
  all.listen(++all.count > 0);
}

void drop_blind_tool() {
  auto& all = BlindTools::get();
  std::lock_guard lock(all.mutex);
  all.listen(--all.count > 0);
}

void forget_blind_tools() {
  auto& all = BlindTools::get();
  std::lock_guard lock(all.mutex);
  all.count = 0;
  all.listen(false);
}

CallsByDevice calls_by_device() {
  CallsByDevice all{};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = g_counted[i].load();
  }
  return all;
}

}  // namespace optools
