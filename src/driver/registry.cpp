// SPDX-License-Identifier: Apache-2.0
// Chooses, finds and keeps the drivers of this process.
#include "driver/registry.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>

#include "driver/env.h"
#include "driver/services.h"
#include "driver/status.h"
#include "driver/words.h"
#include "npu/kinds.h"

namespace npu {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "libnpu_";
constexpr std::string_view kSuffix = ".so";

// Loads once; a failure is kept and thrown again at each use.
class Choice {
 public:
  Driver& get(Driver* (*load)()) {
    if (Driver* driver = driver_.load(std::memory_order_acquire)) {
      return *driver;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (Driver* driver = driver_.load(std::memory_order_relaxed)) {
      return *driver;
    }
    if (!failed_) {
      try {
        Driver* driver = load();
        driver_.store(driver, std::memory_order_release);
        return *driver;
      } catch (const Error& error) {
        code_ = error.code();
        text_ = error.what();
      } catch (const std::exception& error) {
        code_ = NPU_E_INTERNAL;
        text_ = std::string("npu: driver: ") + error.what();
      }
      failed_ = true;
    }
    throw Error(code_, text_);
  }

 private:
  std::atomic<Driver*> driver_{nullptr};
  std::mutex mutex_;
  bool failed_ = false;
  npu_status code_ = NPU_OK;
  std::string text_;
};

// Never destroyed: used until the process ends.
struct State {
  std::mutex mutex;
  std::string package_dir;
  std::string torch_platform;
  std::string choice_reason;
  Choice active;
  Choice host;
};

State& state() {
  static auto* s = new State;
  return *s;
}

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(kSuffix);
}

// What a folder holds, by the names NPU_DRIVER takes.
std::vector<std::string> drivers_in(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (file.starts_with(kPrefix) && file.ends_with(kSuffix) &&
        file.size() > kPrefix.size() + kSuffix.size()) {
      names.push_back(file.substr(
          kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size()));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

[[noreturn]] void not_found(
    const std::string& name, const std::vector<std::string>& dirs) {
  std::vector<std::string> searched;
  std::vector<std::string> there;
  for (const std::string& dir : dirs) {
    std::error_code error;
    searched.push_back(
        fs::is_directory(dir, error) ? dir : dir + " (no such folder)");
    for (std::string& driver : drivers_in(dir)) {
      if (std::find(there.begin(), there.end(), driver) == there.end()) {
        there.push_back(std::move(driver));
      }
    }
  }
  const std::string close = nearest(name, there);
  throw Error(
      NPU_E_INVALID,
      "npu: driver '" + name + "' was not found" +
          (close.empty() ? "" : " (did you mean '" + close + "'?)") +
          ". Searched: " +
          (searched.empty() ? "nothing, no folder is known"
                            : join(searched, ", ")) +
          ". Drivers there: " + (there.empty() ? "none" : join(there, ", ")) +
          ". Set NPU_DRIVER to one of them or to the path of a .so, or "
          "NPU_DRIVER_PATH to its folder.");
}

// Empty where no folder holds it.
std::string file_of(
    const std::string& name, const std::vector<std::string>& dirs) {
  for (const std::string& dir : dirs) {
    const fs::path file =
        fs::path(dir) / (std::string(kPrefix) + name + std::string(kSuffix));
    std::error_code error;
    if (fs::exists(file, error)) {
      return file.string();
    }
  }
  return "";
}

Driver* load_by_name(const std::string& name) {
  const std::vector<std::string> dirs = driver_search_path();
  const std::string file = file_of(name, dirs);
  if (file.empty()) {
    not_found(name, dirs);
  }
  return Driver::load(file);
}

void keep_reason(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().choice_reason = reason;
}

// The driver of the accelerator that this PyTorch is built for; nullptr, with
// the reason kept, where the host driver has to do.
Driver* load_platform_driver() {
  std::string name;
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    name = state().torch_platform;
  }
  if (name.empty()) {
    keep_reason("this PyTorch is built for the CPU alone");
    return nullptr;
  }
  const std::string file = file_of(name, driver_search_path());
  if (file.empty()) {
    keep_reason("no driver '" + name + "' is installed");
    return nullptr;
  }
  try {
    Driver* const driver = Driver::load(file);
    std::int32_t count = 0;
    check(driver->device().count(&count), "count devices");
    if (count > 0) {
      keep_reason(
          "driver '" + name + "' finds " + std::to_string(count) +
          (count == 1 ? " device" : " devices"));
      return driver;
    }
    keep_reason("driver '" + name + "' finds no device");
  } catch (const Error& error) {
    keep_reason("driver '" + name + "' cannot be used: " + error.what());
    log(NPU_LOG_ERROR,
        std::string(error.what()) + " NPU_DRIVER=auto takes host.");
  }
  return nullptr;
}

Driver* load_auto() {
  Driver* const driver = load_platform_driver();
  return driver != nullptr ? driver : load_by_name("host");
}

Driver* load_choice(const std::string& choice) {
  if (choice == "auto") {
    return load_auto();
  }
  return is_path(choice) ? Driver::load(choice) : load_by_name(choice);
}

Driver* load_active() {
  check_log_environment();
  const std::vector<std::uint32_t> disabled = disabled_kinds();
  Driver* driver = load_choice(env::text("NPU_DRIVER").value_or("auto"));
  driver->disable_kinds(disabled);
  load_packs(*driver);
  return driver;
}

}  // namespace

void set_package_driver_dir(const std::string& dir) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().package_dir = dir;
}

void set_torch_platform(const std::string& name) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().torch_platform = name;
}

const char* torch_platform() noexcept {
  return state().torch_platform.c_str();
}

std::string driver_choice_reason() {
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().choice_reason;
}

std::vector<std::string> driver_search_path() {
  std::vector<std::string> dirs =
      split(env::text("NPU_DRIVER_PATH").value_or(""), ':');
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (!state().package_dir.empty()) {
    dirs.push_back(state().package_dir);
  }
  return dirs;
}

std::atomic<Driver*> detail::active_driver{nullptr};

Driver& detail::load_active_driver() {
  Driver& driver = state().active.get(&load_active);
  detail::active_driver.store(&driver, std::memory_order_release);
  return driver;
}

Driver* active_driver_or_null() noexcept {
  try {
    return &active_driver();
  } catch (const std::exception&) {
    return nullptr;
  }
}

std::string driver_failure() {
  try {
    active_driver();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

Driver& host_driver() {
  return state().host.get([] { return load_by_name("host"); });
}

std::vector<std::uint32_t> disabled_kinds() {
  std::vector<std::uint32_t> slots;
  const auto value = env::text("NPU_DISABLE_KIND");
  if (!value) {
    return slots;
  }
  for (const std::string& word : split(*value, ',')) {
    const std::uint32_t slot = npu_kind_find(word.c_str());
    if (slot == 0) {
      std::vector<std::string> known;
      for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
        known.emplace_back(npu_kind_at(i)->name);
      }
      const std::string close = nearest(word, known);
      throw Error(
          NPU_E_INVALID,
          "npu: environment: NPU_DISABLE_KIND names '" + word +
              "', which is no kind" +
              (close.empty() ? "" : " (did you mean '" + close + "'?)") +
              ". Allowed, comma separated: " + join(known, ", ") + ".");
    }
    slots.push_back(slot);
  }
  return slots;
}

}  // namespace npu
