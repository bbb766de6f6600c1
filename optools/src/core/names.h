// SPDX-License-Identifier: Apache-2.0
// Strings that get a number: Python API names, module paths.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace optools {

// Number 0 is the empty name.
class Names {
 public:
  uint32_t number(const std::string& name) {
    std::lock_guard lock(mutex_);
    const auto [it, fresh] =
        numbers_.try_emplace(name, static_cast<uint32_t>(names_.size()));
    if (fresh) {
      names_.push_back(std::make_unique<std::string>(name));
    }
    return it->second;
  }

  std::string name(uint32_t number) const {
    std::lock_guard lock(mutex_);
    return number < names_.size() ? *names_[number] : std::string();
  }

  std::vector<std::string> all() const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> list;
    for (const auto& name : names_) {
      list.push_back(*name);
    }
    return list;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<std::string>> names_{make_empty()};
  std::unordered_map<std::string, uint32_t> numbers_{{"", 0}};

  static std::vector<std::unique_ptr<std::string>> make_empty() {
    std::vector<std::unique_ptr<std::string>> names;
    names.push_back(std::make_unique<std::string>());
    return names;
  }
};

Names& api_names();
Names& module_names();

}  // namespace optools
