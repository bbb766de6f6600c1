// SPDX-License-Identifier: Apache-2.0
// What the core knows about the running thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace optools {

struct Program;
class ToolLocal;

// Tools that can run at once: a bit each in ThreadState::busy.
inline constexpr int kMaxTools = 32;
using ToolMask = uint32_t;

enum class Phase : uint8_t { kForward = 0, kBackward = 1, kOptimizer = 2 };
inline const char* phase_name(Phase phase) {
  constexpr const char* kNames[] = {"forward", "backward", "optimizer"};
  return kNames[static_cast<int>(phase)];
}

struct ThreadState {
  // The program this thread is inside of; keeps it from being freed.
  std::atomic<const Program*> inside{nullptr};
  // Tools that have taken a kernel this thread is inside of: kernels called
  // from there are part of it. All ones while a tool computes.
  ToolMask busy = 0;
  uint32_t id = 0;
  int optimizer = 0;  // depth of Optimizer.step on this thread
  uint32_t api = 0;   // the Python API being called, 0 for none
  uint64_t api_call = 0;
  bool api_in_node = false;    // the call was made by code inside backward
  uint64_t seen_sequence = 0;  // see Origins
  struct Entered {
    uint32_t module;
    const void* node;  // of autograd's that ran then, null for none
  };
  std::vector<Entered> modules;
  size_t modules_entered = 0;  // more than `modules` where memory was short
  struct Slot {
    uint64_t tool = 0;
    ToolLocal* local = nullptr;
  };
  std::array<Slot, kMaxTools> slots{};
};

ThreadState& this_thread();

// Every state there is, also of threads that have ended (they are reused).
std::vector<ThreadState*> all_threads();

// Around fork(): no thread is being born or ending then.
void lock_threads();
void unlock_threads();

// While it lives, no tool sees what this thread runs.
class Quiet {
 public:
  Quiet() : thread_(this_thread()), before_(thread_.busy) {
    thread_.busy = ~ToolMask{0};
  }
  ~Quiet() {
    thread_.busy = before_;
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  ThreadState& thread_;
  ToolMask before_;
};

}  // namespace optools
