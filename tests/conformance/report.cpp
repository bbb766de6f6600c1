// SPDX-License-Identifier: Apache-2.0
// Listens to GoogleTest and prints the driver's report at the end.
#include "report.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "kit.h"

namespace npu::kit {
namespace {

struct Group {
  std::string name;
  int passed = 0;
  int failed = 0;
  int not_declared = 0;
  int skipped = 0;
  std::string first_failure;
};

// In the order a driver grows.
constexpr const char* kGroups[] = {
    "abi",
    "device",
    "memory",
    "stream",
    "event",
    "errors",
    "copy",
    "fill",
    "random"};

class Report : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override {
    set_threads(1);
    clear_error();
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    Group& group = find(info.test_suite_name());
    const testing::TestResult& result = *info.result();
    if (result.Failed()) {
      ++group.failed;
      if (group.first_failure.empty()) {
        group.first_failure = info.name();
      }
    } else if (!result.Skipped()) {
      ++group.passed;
    } else if (lacks(result)) {
      ++group.not_declared;
    } else {
      ++group.skipped;
    }
  }

  void OnTestProgramEnd(const testing::UnitTest&) override {
    std::printf(
        "\ndriver %s (%s), %d device(s)\n\n%-10s %7s %7s %13s %8s\n",
        driver().name,
        driver().vendor ? driver().vendor : "?",
        device_count_at_start_,
        "group",
        "passed",
        "failed",
        "not declared",
        "skipped");
    for (const char* name : kGroups) {
      const Group& g = find(name);
      std::printf(
          "%-10s %7d %7d %13d %8d\n",
          name,
          g.passed,
          g.failed,
          g.not_declared,
          g.skipped);
    }
    print_kinds();
    print_next();
  }

 private:
  Group& find(const std::string& name) {
    for (Group& group : groups_) {
      if (group.name == name) {
        return group;
      }
    }
    groups_.push_back({.name = name, .first_failure = ""});
    return groups_.back();
  }

  static bool lacks(const testing::TestResult& result) {
    for (int i = 0; i < result.total_part_count(); ++i) {
      const char* text = result.GetTestPartResult(i).message();
      if (text && std::strstr(text, kNotDeclared)) {
        return true;
      }
    }
    return false;
  }

  void print_kinds() const {
    std::printf(
        "\nkinds declared: %zu of %u", declared_.size(), NPU_KIND_COUNT);
    for (std::size_t i = 0; i < declared_.size(); ++i) {
      std::printf("%s%s", i == 0 ? ": " : ", ", declared_[i].c_str());
    }
    std::printf("\n");
  }

  void print_next() {
    std::printf("\nwhat to do next\n");
    for (const char* name : kGroups) {
      const Group& g = find(name);
      if (g.failed > 0) {
        std::printf(
            "  repair %s: run again with --gtest_filter=%s.%s\n",
            name,
            name,
            g.first_failure.c_str());
        return;
      }
    }
    for (const char* kind : {"copy", "fill", "random", "dropout"}) {
      if (std::find(declared_.begin(), declared_.end(), kind) ==
          declared_.end()) {
        std::printf(
            "  everything declared passes; write kind %s next (models train "
            "without it, more slowly: it is served by another rung)\n",
            kind);
        return;
      }
    }
    std::printf(
        "  everything here passes; further kinds: the table in "
        "docs/driver-guide.md\n");
  }

  static std::vector<std::string> declared_kinds() {
    std::vector<std::string> out;
    for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
      const npu_kind_info* kind = npu_kind_at(i);
      for (std::uint32_t code = 0; code < kind->n_codes; ++code) {
        if (declares(kind->slot, code)) {
          out.push_back(kind->name);
          break;
        }
      }
    }
    return out;
  }

  std::vector<Group> groups_;
  // Asked before the tests: after them the driver is shut down.
  const int device_count_at_start_ = device_count();
  const std::vector<std::string> declared_ = declared_kinds();
};

// The driver's last call, and what may follow it.
class Shutdown : public testing::Environment {
 public:
  void TearDown() override {
    release_stock();
    for (npu_device device = 0; device < devices_; ++device) {
      NPU_EXPECT_OK(device_table().close(device));
    }
    NPU_EXPECT_OK(driver().shutdown ? driver().shutdown() : npu_status{NPU_OK});
    if (driver().shutdown) {
      void* ptr = nullptr;
      EXPECT_EQ(memory_table().alloc(0, 64, &ptr), NPU_E_SHUTDOWN)
          << "alloc after shutdown";
      npu_stream stream = nullptr;
      EXPECT_EQ(stream_table().create(0, 0, &stream), NPU_E_SHUTDOWN)
          << "stream create after shutdown";
    }
  }

 private:
  const int devices_ = device_count();
};

}  // namespace

void install_report() {
  testing::UnitTest::GetInstance()->listeners().Append(new Report);
  testing::AddGlobalTestEnvironment(new Shutdown);
}

}  // namespace npu::kit
