// SPDX-License-Identifier: Apache-2.0
// Listens to GoogleTest and prints the driver's report at the end.
#include "report.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "crash.h"
#include "kinds_test.h"
#include "kit.h"

namespace npu::kit {
namespace {

struct Failure {
  std::string test;
  std::string message;
};

struct Group {
  std::string name;
  int passed = 0;
  int failed = 0;
  int not_declared = 0;
  int skipped = 0;
  std::vector<Failure> failures;
};

// In the order a driver grows.
constexpr const char* kGroups[] = {
    "abi",
    "device",
    "memory",
    "stream",
    "event",
    "capture",
    "errors",
    "copy",
    "fill",
    "map",
    "mixed",
    "random",
    "program",
    "oracle",
    "kind",
    "index_errors",
    "profiler",
    "comm"};

class Report : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& info) override {
    note_test(std::string(info.test_suite_name()) + "." + info.name());
    set_threads(1);
    clear_error();
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    Group& group = find(info.test_suite_name());
    const testing::TestResult& result = *info.result();
    if (result.Failed()) {
      ++group.failed;
      group.failures.push_back({info.name(), first_message(result)});
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
        "\ndriver %s (%s), %d device(s)\n\n%-12s %7s %7s %13s %8s\n",
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
          "%-12s %7d %7d %13d %8d\n",
          name,
          g.passed,
          g.failed,
          g.not_declared,
          g.skipped);
    }
    print_kinds();
    print_next();
    write_json();
  }

 private:
  Group& find(const std::string& name) {
    for (Group& group : groups_) {
      if (group.name == name) {
        return group;
      }
    }
    groups_.push_back({.name = name, .failures = {}});
    return groups_.back();
  }

  // Begins with the expression and ends with the kit's own words; long values
  // between them are cut.
  static std::string first_message(const testing::TestResult& result) {
    constexpr std::size_t kHead = 240;
    constexpr std::size_t kTail = 360;
    for (int i = 0; i < result.total_part_count(); ++i) {
      const testing::TestPartResult& part = result.GetTestPartResult(i);
      if (part.failed()) {
        const std::string text = part.message();
        return text.size() <= kHead + kTail
                   ? text
                   : text.substr(0, kHead) + " ... " +
                         text.substr(text.size() - kTail);
      }
    }
    return "";
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

  // What the random cases of every declared kind found.
  void print_kinds() const {
    std::printf(
        "\nkinds declared: %zu of %u\n", declared_.size(), NPU_KIND_COUNT);
    std::printf(
        "%-22s %6s %6s %7s %9s %9s %7s\n",
        "kind",
        "codes",
        "cases",
        "failed",
        "declined",
        "no oracle",
        "worst E");
    for (const std::string& name : declared_) {
      const KindResult& found = kind_result(name.c_str());
      if (found.cases > 0 || found.failed > 0) {
        std::printf(
            "%-22s %6d %6d %7d %9d %9d %7.2f\n",
            name.c_str(),
            found.codes,
            found.cases,
            found.failed,
            found.declined,
            found.without_oracle,
            found.worst);
      }
    }
  }

  // For programs: the same, and the kinds that are missing.
  void write_json() {
    if (options().json.empty()) {
      return;
    }
    std::FILE* out = std::fopen(options().json.c_str(), "w");
    if (!out) {
      ADD_FAILURE() << "cannot write " << options().json;
      return;
    }
    std::fprintf(out, "{\"driver\": \"%s\", \"groups\": [", driver().name);
    const char* comma = "";
    for (const char* name : kGroups) {
      const Group& g = find(name);
      std::fprintf(
          out,
          "%s\n {\"name\": \"%s\", \"passed\": %d, \"failed\": %d, "
          "\"not_declared\": %d, \"skipped\": %d, \"failures\": [",
          comma,
          name,
          g.passed,
          g.failed,
          g.not_declared,
          g.skipped);
      comma = "";
      for (const Failure& each : g.failures) {
        std::fprintf(
            out,
            "%s{\"test\": \"%s\", \"message\": \"%s\"}",
            comma,
            escaped(each.test).c_str(),
            escaped(each.message).c_str());
        comma = ", ";
      }
      std::fprintf(out, "]}");
      comma = ",";
    }
    std::fprintf(out, "],\n \"kinds\": [");
    comma = "";
    for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
      const npu_kind_info* kind = npu_kind_at(i);
      const KindResult& found = kind_result(kind->name);
      const bool declared =
          std::find(declared_.begin(), declared_.end(), kind->name) !=
          declared_.end();
      std::fprintf(
          out,
          "%s\n {\"name\": \"%s\", \"family\": \"%s\", \"declared\": %s, "
          "\"codes\": %d, \"of_codes\": %u, \"cases\": %d, \"failed\": %d, "
          "\"declined\": %d, \"without_oracle\": %d, \"worst\": %.6g, "
          "\"why_declined\": \"%s\", \"first_failure\": \"%s\"}",
          comma,
          kind->name,
          kind->family,
          declared ? "true" : "false",
          found.codes,
          kind->n_codes,
          found.cases,
          found.failed,
          found.declined,
          found.without_oracle,
          std::min(found.worst, 1e300),
          escaped(found.why_declined).c_str(),
          escaped(found.first_failure).c_str());
      comma = ",";
    }
    std::fprintf(out, "]}\n");
    std::fclose(out);
  }

  static std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') {
        out += '\\';
      }
      out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return out;
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
            g.failures.front().test.c_str());
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
