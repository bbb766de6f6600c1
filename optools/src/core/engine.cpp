// SPDX-License-Identifier: Apache-2.0
// Which tools run. Threads read the program without a lock: each says which
// one it is inside of (a hazard pointer), and only programs that no thread is
// inside of are freed.
#include "core/engine.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/phase.h"
#include "core/taps.h"

namespace optools {
namespace {

std::atomic<const Program*> g_program{nullptr};

constexpr auto kStopPatience = std::chrono::seconds(1);

std::atomic<bool> g_needs_origin{false};

}  // namespace

Engine& Engine::get() {
  static auto* engine = new Engine;
  return *engine;
}

Engine::Engine() {
  pthread_atfork(
      [] {
        get().mutex_.lock();
        lock_threads();
      },
      [] {
        unlock_threads();
        get().mutex_.unlock();
      },
      [] {
        unlock_threads();
        get().after_fork();
        get().mutex_.unlock();
      });
}

// A child process has the forking thread only, and tools' files and buffers
// belong to the parent: nothing runs there until the child starts a tool.
void Engine::after_fork() {
  g_program.store(nullptr);
  tools_.clear();
  for (auto* thread : all_threads()) {
    thread->inside.store(nullptr);
  }
}

const Program* Engine::enter(ThreadState& thread) {
  // Inside a kernel a tool has taken, its program goes on being ours.
  if (const Program* outer = thread.inside.load(std::memory_order_relaxed)) {
    return outer;
  }
  const Program* program = g_program.load(std::memory_order_relaxed);
  while (program != nullptr) {
    thread.inside.store(program);
    const Program* now = g_program.load();
    if (now == program) {
      return program;
    }
    program = now;
  }
  leave(thread);
  return nullptr;
}

void Engine::start(std::shared_ptr<Tool> tool) {
  std::lock_guard lock(mutex_);
  ToolMask used = 0;
  for (const auto& other : tools_) {
    if (other == tool) {
      throw std::invalid_argument("this tool runs already");
    }
    used |= ToolMask{1} << other->slot_;
  }
  if (~used == 0) {
    throw std::invalid_argument("32 tools run already: stop one first");
  }
  int slot = 0;
  while (used >> slot & 1) {
    ++slot;
  }
  tool->slot_ = slot;
  if (tools_.empty()) {
    watch_optimizers(true);
  }
  tool->saw_ = false;
  tool->unseen_ = calls_by_device();
  tool->blind_ = true;
  add_blind_tool();
  tools_.push_back(std::move(tool));
  refresh_operators();
  publish();
}

bool Engine::stop(const std::shared_ptr<Tool>& tool) {
  std::lock_guard lock(mutex_);
  const auto at = std::find(tools_.begin(), tools_.end(), tool);
  if (at == tools_.end()) {
    return false;
  }
  tools_.erase(at);
  publish();
  if (tools_.empty()) {
    watch_optimizers(false);
  }
  const auto deadline = std::chrono::steady_clock::now() + kStopPatience;
  while (anyone_inside(tool.get()) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  reclaim();
  auto before = std::exchange(tool->unseen_, calls_by_device());
  for (size_t i = 0; i < before.size(); ++i) {
    tool->unseen_[i] -= before[i];
  }
  tool->end_blindness();
  return true;
}

void Engine::publish() {
  const auto& operators = all_operators();
  std::unique_ptr<Program> program;
  TapPlan plan;
  if (!tools_.empty()) {
    program = std::make_unique<Program>();
    plan.wanted.resize(operators.size());
    plan.named.resize(operators.size());
  }
  bool needs_origin = false;
  for (const auto& tool : tools_) {
    const auto& selection = tool->selection;
    const auto bit = ToolMask{1} << tool->slot_;
    for (size_t i = 0; i < operators.size(); ++i) {
      plan.wanted[i] |= selection.may_want(i) ? bit : 0;
      plan.named[i] = plan.named[i] || selection.names(i);
    }
    plan.devices |= selection.devices;
    program->tools.push_back(tool.get());
    program->bits.push_back(bit);
    program->keep.push_back(tool);
    needs_origin |= selection.needs_origin() || tool->wants_sites;
    program->needs_origin = needs_origin;
    program->needs_sites |= tool->wants_sites;
  }
  g_needs_origin = needs_origin;
  // Taps before the program: a tap without a program passes calls through.
  const Program* next = program.get();
  if (next != nullptr) {
    set_taps(plan);
    program->wanted = std::move(plan.wanted);
    programs_.push_back(std::move(program));
    g_program.store(next);
  } else {
    g_program.store(nullptr);
    set_taps({});
  }
  reclaim();
}

void Engine::reclaim() {
  const Program* current = g_program.load();
  std::vector<const Program*> used{current};
  for (auto* thread : all_threads()) {
    used.push_back(thread->inside.load());
  }
  std::erase_if(programs_, [&](const auto& program) {
    return std::find(used.begin(), used.end(), program.get()) == used.end();
  });
}

bool Engine::anyone_inside(const Tool* tool) {
  const ThreadState* self = &this_thread();
  for (auto* thread : all_threads()) {
    const Program* inside = thread->inside.load();
    if (thread == self || inside == nullptr) {
      continue;
    }
    const auto& tools = inside->tools;
    if (std::find(tools.begin(), tools.end(), tool) != tools.end()) {
      return true;
    }
  }
  return false;
}

bool Engine::has_tool(const Program* inside, const Tool* tool) {
  std::lock_guard lock(mutex_);
  for (const auto& program : programs_) {
    if (program.get() == inside) {
      const auto& tools = program->tools;
      return std::find(tools.begin(), tools.end(), tool) != tools.end();
    }
  }
  return false;
}

bool Engine::running(const Tool* tool) {
  std::lock_guard lock(mutex_);
  return std::any_of(tools_.begin(), tools_.end(), [&](const auto& other) {
    return other.get() == tool;
  });
}

bool Engine::idle() {
  std::lock_guard lock(mutex_);
  return tools_.empty();
}

const Operator* Engine::operator_at(uint32_t number) {
  std::lock_guard lock(mutex_);
  if (number >= all_operators().size()) {
    refresh_operators();
  }
  const auto& list = all_operators();
  return number < list.size() ? list[number] : nullptr;
}

std::vector<std::string> Engine::operator_names() {
  std::lock_guard lock(mutex_);
  refresh_operators();
  std::vector<std::string> names;
  for (const auto* op : all_operators()) {
    names.push_back(op->name);
  }
  return names;
}

bool Engine::needs_origin() const {
  return g_needs_origin.load(std::memory_order_relaxed);
}

void Engine::drop_taps() {
  std::lock_guard lock(mutex_);
  if (tools_.empty()) {
    set_taps({});
    watch_optimizers(false);
    forget_blind_tools();
  }
}

size_t Engine::tap_count() {
  std::lock_guard lock(mutex_);
  return installed_taps();
}

}  // namespace optools
