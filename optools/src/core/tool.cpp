// SPDX-License-Identifier: Apache-2.0
// A tool, its selection and the chain of tools around a kernel.
#include "core/tool.h"

#include <cstdio>

#include "core/engine.h"

namespace optools {

Names& api_names() {
  static auto* names = new Names;
  return *names;
}

Names& module_names() {
  static auto* names = new Names;
  return *names;
}

bool Selection::wants(const Call& call) const {
  if ((devices >> static_cast<int>(call.device) & 1) == 0 ||
      (phases >> static_cast<int>(call.phase) & 1) == 0 ||
      call.step < first_step || call.step > last_step ||
      (thread != 0 && thread != call.thread.id)) {
    return false;
  }
  if (refuses_apis && refused_apis.wanted(call.origin.api)) {
    return false;
  }
  if (by_module && !modules.wanted(call.origin.module)) {
    return false;
  }
  const auto op = call.op.index;
  return every_operator || names(op) ||
         (by_api && apis.wanted(call.origin.api));
}

void Chain::run() {
  if (at_ < count_) {
    Tool* tool = tools_[at_++];
    if (tool->failed()) {
      run();
    } else {
      tool->around(call_, *this);
    }
  } else if (call_.executor != nullptr) {
    call_.executor->execute(call_);
  } else {
    call_.kernel.callBoxed(call_.op.handle, call_.keys, &call_.stack);
  }
}

namespace {
std::atomic<uint64_t> g_next_tool{1};
}

Tool::Tool() : id_(g_next_tool++) {}

std::string Tool::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Tool::fail(const char* why) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (!failed_) {
      failure_ = why;
      std::fprintf(
          stderr,
          "op_tools: %s stopped watching after an internal error: %s\n",
          label.c_str(),
          why);
    }
  } catch (...) {  // out of memory: the flag alone has to do
  }
  failed_ = true;
}

void Tool::first_call() {
  saw_ = true;
  end_blindness();
}

void Tool::end_blindness() {
  if (blind_.exchange(false)) {
    drop_blind_tool();
  }
}

ToolLocal* Tool::add_local(std::unique_ptr<ToolLocal> local) {
  std::lock_guard lock(mutex_);
  locals_.push_back(std::move(local));
  return locals_.back().get();
}

std::vector<ToolLocal*> Tool::quiet_locals() const {
  std::lock_guard lock(mutex_);
  std::vector<ToolLocal*> list;
  for (const auto& local : locals_) {
    const Program* inside = local->thread.inside.load();
    if (inside == nullptr || local->thread.id != local->thread_id ||
        !Engine::get().has_tool(inside, this)) {
      list.push_back(local.get());
    }
  }
  return list;
}

}  // namespace optools
