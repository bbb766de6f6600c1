// SPDX-License-Identifier: Apache-2.0
// What each thread launched.
#include "profiler/thread_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <iterator>
#include <memory>
#include <unordered_set>
#include <utility>

namespace npu::profiler {
namespace {

// Logs of threads that ended keep what they hold until it is taken.
struct Logs {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadLog>> all;
};

Logs& logs() {
  static auto* const instance = new Logs;
  return *instance;
}

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
};
using Texts = std::unordered_set<std::string, TextHash, std::equal_to<>>;

struct AllTexts {
  std::mutex mutex;
  Texts texts;
};

AllTexts& all_texts() {
  static auto* const instance = new AllTexts;
  return *instance;
}

// Texts this thread has seen, so that it asks the others once for each.
struct SeenHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
  std::size_t operator()(const std::string* text) const noexcept {
    return (*this)(std::string_view(*text));
  }
};
struct SeenEqual {
  using is_transparent = void;
  static std::string_view text(std::string_view t) {
    return t;
  }
  static std::string_view text(const std::string* t) {
    return *t;
  }
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return text(a) == text(b);
  }
};

}  // namespace

ThreadLog::ThreadLog()
    : thread_(static_cast<std::int32_t>(::syscall(SYS_gettid))) {}

ThreadLog& ThreadLog::mine() {
  static thread_local const std::shared_ptr<ThreadLog> log = [] {
    std::shared_ptr<ThreadLog> made(new ThreadLog);
    const std::lock_guard<std::mutex> lock(logs().mutex);
    logs().all.push_back(made);
    return made;
  }();
  return *log;
}

std::vector<Record> ThreadLog::take_all() {
  std::vector<Record> taken;
  const std::lock_guard<std::mutex> lock(logs().mutex);
  for (const auto& log : logs().all) {
    const std::lock_guard<std::mutex> each(log->mutex_);
    std::move(
        log->records_.begin(), log->records_.end(), std::back_inserter(taken));
    log->records_.clear();
    log->resolved_ = 0;
  }
  std::erase_if(logs().all, [](const auto& log) {
    return log.use_count() == 1;  // its thread has ended
  });
  return taken;
}

const std::string* lasting(std::string_view text) {
  static thread_local std::
      unordered_set<const std::string*, SeenHash, SeenEqual>
          seen;
  if (const auto found = seen.find(text); found != seen.end()) {
    return *found;
  }
  AllTexts& all = all_texts();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto found = all.texts.find(text);
  if (found == all.texts.end()) {
    found = all.texts.emplace(text).first;
  }
  seen.insert(&*found);
  return &*found;
}

}  // namespace npu::profiler
