// SPDX-License-Identifier: Apache-2.0
// The host services: functions that a driver may call.
#include "driver/services.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <mutex>

#include "driver/driver.h"
#include "driver/env.h"
#include "driver/registry.h"
#include "driver/status.h"
#include "driver/thread_pool.h"

namespace npu {

namespace {

// ---- log ----

constexpr int kLogNothing = 4;
constexpr int kLogUnread = -1;

std::atomic<int> log_least{kLogUnread};
std::atomic<bool> log_to_stdout{false};

int read_level() {
  return static_cast<int>(
      env::integer("ASCEND_GLOBAL_LOG_LEVEL", 0, kLogNothing, NPU_LOG_ERROR));
}

bool read_to_stdout() {
  return env::flag("SLOG_PRINT_TO_STDOUT", false);
}

// Lowest level that has somewhere to go, so that nothing is formatted in vain.
int effective_level(int level, bool to_stdout) noexcept {
  return to_stdout || level == kLogNothing ? level : NPU_LOG_ERROR;
}

constexpr unsigned kDebugLines = 1;
constexpr unsigned kWatcher = 2;
constexpr unsigned kForkedChild = 4;

void set_hearer(unsigned who, bool hears) noexcept {
  if (hears) {
    detail::call_hearers.fetch_or(who);
  } else {
    detail::call_hearers.fetch_and(~who);
  }
}

int least_level() noexcept {
  const int level = log_least.load(std::memory_order_relaxed);
  if (level == kLogUnread) {
    reload_log_environment();
    return log_least.load(std::memory_order_relaxed);
  }
  return level;
}

void write_line(int level, const char* text) noexcept {
  static constexpr std::array<const char*, 4> kNames = {
      "DEBUG", "INFO", "WARNING", "ERROR"};
  const bool to_stdout = log_to_stdout.load(std::memory_order_relaxed);
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  std::tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char when[32];
  std::strftime(when, sizeof(when), "%Y-%m-%d-%H:%M:%S", &parts);
  std::FILE* file = to_stdout ? stdout : stderr;
  std::fprintf(
      file,
      "[%s] NPU(%ld):%s.%03ld %s\n",
      kNames[static_cast<std::size_t>(level)],
      static_cast<long>(::getpid()),
      when,
      now.tv_nsec / 1000000,
      text);
  std::fflush(file);
}

int32_t service_log_level() {
  return least_level();
}

void service_log(int32_t level, const char* text) {
  if (level < NPU_LOG_DEBUG || level > NPU_LOG_ERROR || text == nullptr) {
    return;
  }
  if (level >= least_level()) {
    write_line(level, text);
  }
}

// ---- error text ----

// A plain buffer: no destructor, so late threads may still use it.
thread_local char error_text[1024];

void service_set_error(const char* text) {
  std::snprintf(
      error_text, sizeof(error_text), "%s", text == nullptr ? "" : text);
}

const char* service_last_error() {
  return error_text;
}

// ---- threads ----

std::atomic<ParallelFor> parallel_for_fn{&pool_parallel_for};
thread_local bool stream_worker = false;
thread_local bool in_parallel_for = false;

struct Body {
  npu_range_fn fn;
  void* context;
  std::mutex mutex;
  std::string text;  // of the first error, for the caller's thread
};

// Marks the thread a piece runs on, whichever pool it belongs to.
npu_status run_piece(void* context, std::int64_t begin, std::int64_t end) {
  auto* body = static_cast<Body*>(context);
  in_parallel_for = true;
  const npu_status status = body->fn(body->context, begin, end);
  in_parallel_for = false;
  if (status != NPU_OK) {
    const std::lock_guard<std::mutex> lock(body->mutex);
    if (body->text.empty()) {
      body->text = error_text;
    }
  }
  return status;
}

npu_status service_parallel_for(
    int64_t n, int64_t grain, npu_range_fn fn, void* context) {
  if (fn == nullptr || n < 0) {
    service_set_error("parallel_for: no function, or a negative count");
    return NPU_E_INVALID;
  }
  if (n == 0) {
    return NPU_OK;
  }
  if (in_parallel_for || stream_worker || n <= grain) {
    return fn(context, 0, n);
  }
  try {
    Body body{fn, context, {}, {}};
    const npu_status status =
        parallel_for_fn.load()(n, grain, &run_piece, &body);
    if (status != NPU_OK) {
      service_set_error(body.text.c_str());
    }
    return status;
  } catch (const std::exception& error) {
    service_set_error(error.what());
    return NPU_E_INTERNAL;
  } catch (...) {
    service_set_error("parallel_for: the thread pool threw");
    return NPU_E_INTERNAL;
  }
}

void service_stream_worker() {
  stream_worker = true;
}

// ---- ranges ----

std::atomic<RangePush> range_push{nullptr};
std::atomic<RangePop> range_pop{nullptr};

void service_range_push(const char* name) {
  const RangePush push = range_push.load(std::memory_order_acquire);
  if (push != nullptr && name != nullptr) {
    push(name);
  }
}

void service_range_pop() {
  const RangePop pop = range_pop.load(std::memory_order_acquire);
  if (pop != nullptr) {
    pop();
  }
}

// ---- accounts ----

constexpr std::size_t kMaxAccounts = 256;
std::array<std::atomic<std::int64_t>, kMaxAccounts> accounts{};

void service_account(npu_device device, int64_t bytes, const char* what) {
  if (device < 0 || static_cast<std::size_t>(device) >= kMaxAccounts) {
    return;
  }
  accounts[static_cast<std::size_t>(device)] += bytes;
  if (log_enabled(NPU_LOG_DEBUG)) {
    log(NPU_LOG_DEBUG,
        "account: npu:" + std::to_string(device) + " " + std::to_string(bytes) +
            " bytes for " + (what == nullptr ? "itself" : what));
  }
}

// ---- drivers, for packs ----

const npu_driver* service_find_driver(const char* name) {
  const Driver* driver = Driver::find_loaded(name);
  return driver != nullptr ? &driver->table() : nullptr;
}

// ---- forks ----

std::atomic<bool> in_forked_child{false};

void after_fork_in_child() {
  in_forked_child.store(true, std::memory_order_relaxed);
  set_hearer(kForkedChild, true);
}

}  // namespace

const npu_host_services* host_services() noexcept {
  static constexpr npu_host_services kServices = {
      sizeof(npu_host_services),
      NPU_ABI,
      &service_log_level,
      &service_log,
      &service_set_error,
      &service_last_error,
      &service_parallel_for,
      &service_range_push,
      &service_range_pop,
      &service_account,
      &service_stream_worker,
      &service_find_driver,
      &torch_platform};
  return &kServices;
}

bool log_enabled(int level) noexcept {
  return level >= least_level();
}

void log(int level, const std::string& text) {
  service_log(level, text.c_str());
}

void check_log_environment() {
  read_level();
  read_to_stdout();
}

void reload_log_environment() noexcept {
  int level = NPU_LOG_ERROR;
  bool to_stdout = false;
  try {
    to_stdout = read_to_stdout();
    level = read_level();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  log_to_stdout.store(to_stdout);
  log_least.store(effective_level(level, to_stdout));
  set_hearer(kDebugLines, log_least.load() <= NPU_LOG_DEBUG);
}

void set_calls_watched(bool yes) noexcept {
  set_hearer(kWatcher, yes);
}

void set_parallel_for(ParallelFor fn) noexcept {
  parallel_for_fn.store(fn == nullptr ? &pool_parallel_for : fn);
}

void set_ranges(RangePush push, RangePop pop) noexcept {
  range_pop.store(pop, std::memory_order_release);
  range_push.store(push, std::memory_order_release);
}

std::int64_t accounted_bytes(npu_device device) noexcept {
  if (device < 0 || static_cast<std::size_t>(device) >= kMaxAccounts) {
    return 0;
  }
  return accounts[static_cast<std::size_t>(device)];
}

bool forked_child() noexcept {
  return in_forked_child.load(std::memory_order_relaxed);
}

void watch_forks() noexcept {
  static std::once_flag once;
  std::call_once(
      once, [] { ::pthread_atfork(nullptr, nullptr, &after_fork_in_child); });
}

}  // namespace npu
