// SPDX-License-Identifier: Apache-2.0
// Which tools run, and the taps they need.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/names.h"
#include "core/tool.h"

namespace optools {

// The running tools, compiled: immutable, replaced whole.
struct Program {
  std::vector<ToolMask> wanted;  // by Operator::index
  std::vector<Tool*> tools;      // in the order entered
  std::vector<std::shared_ptr<Tool>> keep;
  std::vector<ToolMask> bits;  // of tools, same order
  bool needs_origin = false;
  bool needs_sites = false;
};

class Engine {
 public:
  static Engine& get();

  // Throws std::invalid_argument for a tool that runs already.
  void start(std::shared_ptr<Tool> tool);
  // Returns once no thread is inside the tool, or after a second: a thread
  // inside a kernel that waits for this one must not stop us. False when the
  // tool does not run.
  bool stop(const std::shared_ptr<Tool>& tool);
  bool running(const Tool* tool);
  bool idle();

  // Null for a number no operator has.
  const Operator* operator_at(uint32_t number);
  // By number, those that are new included.
  std::vector<std::string> operator_names();

  // True while a running tool asks where calls come from.
  bool needs_origin() const;

  int64_t step() const {
    return step_.load(std::memory_order_relaxed);
  }
  void set_step(int64_t step) {
    step_.store(step, std::memory_order_relaxed);
  }

  // Is `inside`, read from some thread, a live program that holds the tool?
  bool has_tool(const Program* inside, const Tool* tool);

  // The program of this thread until leave(); null when no tool runs.
  static const Program* enter(ThreadState& thread);
  static void leave(ThreadState& thread) {
    thread.inside.store(nullptr, std::memory_order_release);
  }

  size_t tap_count();
  // In a forked child: the taps it inherited go.
  void drop_taps();

 private:
  Engine();
  void publish();
  void reclaim();
  void after_fork();
  bool anyone_inside(const Tool* tool);

  std::mutex mutex_;
  std::vector<std::shared_ptr<Tool>> tools_;
  std::vector<std::unique_ptr<const Program>> programs_;  // live and retired
  std::atomic<int64_t> step_{0};
};

}  // namespace optools
