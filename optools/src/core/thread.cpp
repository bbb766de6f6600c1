// SPDX-License-Identifier: Apache-2.0
// What the core knows about the running thread.
#include "core/thread.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <deque>
#include <mutex>

#include "core/thread_names.h"

namespace optools {
namespace {

constexpr size_t kNamesKept = 4096;

ThreadName name_here(uint32_t number) {
  char text[32] = "";
  pthread_getname_np(pthread_self(), text, sizeof(text));
  return {number, static_cast<int64_t>(::syscall(SYS_gettid)), text};
}

struct Registry {
  std::mutex mutex;
  std::deque<ThreadName> names;  // the newest
  std::vector<ThreadState*> all;
  std::vector<ThreadState*> spare;
  uint32_t next = 1;
};

// Lives as long as the process: threads may end after static destructors ran.
Registry& registry() {
  static auto* it = new Registry;
  return *it;
}

ThreadState* take() {
  auto& reg = registry();
  std::lock_guard lock(reg.mutex);
  ThreadState* state;
  if (reg.spare.empty()) {
    state = new ThreadState;
    reg.all.push_back(state);
  } else {
    state = reg.spare.back();
    reg.spare.pop_back();
  }
  state->id = reg.next++;
  reg.names.push_back(name_here(state->id));
  if (reg.names.size() > kNamesKept) {
    reg.names.pop_front();
  }
  return state;
}

void give_back(ThreadState* state) {
  auto& reg = registry();
  std::lock_guard lock(reg.mutex);
  state->inside.store(nullptr);
  state->busy = 0;
  state->optimizer = 0;
  state->api = 0;
  state->api_call = 0;
  state->api_in_node = false;
  state->seen_sequence = 0;
  state->modules.clear();
  state->slots.fill({});
  reg.spare.push_back(state);
}

struct Holder {
  ThreadState* state = nullptr;
  ~Holder() {
    if (state != nullptr) {
      give_back(state);
    }
  }
};

constinit thread_local ThreadState* t_state = nullptr;
thread_local Holder t_holder;

}  // namespace

ThreadState& this_thread() {
  if (t_state == nullptr) [[unlikely]] {
    t_state = take();
    t_holder.state = t_state;
  }
  return *t_state;
}

std::vector<ThreadState*> all_threads() {
  auto& reg = registry();
  std::lock_guard lock(reg.mutex);
  return reg.all;
}

std::vector<ThreadName> thread_names() {
  auto& reg = registry();
  std::lock_guard lock(reg.mutex);
  return {reg.names.begin(), reg.names.end()};
}

void lock_threads() {
  registry().mutex.lock();
}

void unlock_threads() {
  registry().mutex.unlock();
}

}  // namespace optools
