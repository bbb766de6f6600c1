// SPDX-License-Identifier: Apache-2.0
// Which driver is chosen. Each case runs in a child: the choice is for life.
#include "driver/registry.h"

#include "driver/services.h"
#include "driver/test_env.h"
#include "npu/kinds.h"

namespace npu {
namespace {

using test::contains;
using test::error_of;

// Runs `body` in a fresh copy of this program, so that nothing is loaded yet;
// its text must match.
#define IN_CHILD(body, text)      \
  EXPECT_EXIT(                    \
      {                           \
        body;                     \
        std::exit(0);             \
      },                          \
      testing::ExitedWithCode(0), \
      text)

void say(const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
}

void choose(const char* driver, const char* path = nullptr) {
  driver != nullptr ? ::setenv("NPU_DRIVER", driver, 1)
                    : ::unsetenv("NPU_DRIVER");
  path != nullptr ? ::setenv("NPU_DRIVER_PATH", path, 1)
                  : ::unsetenv("NPU_DRIVER_PATH");
}

class Registry : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(Registry, ByNameFromThePackage) {
  IN_CHILD(
      {
        choose("tiny");
        set_package_driver_dir(NPU_TEST_DRIVER_DIR);
        say(active_driver().path());
      },
      "libnpu_tiny.so");
}

TEST_F(Registry, ByNameFromTheSearchPathFirst) {
  IN_CHILD(
      {
        choose("tiny", "/nowhere:" NPU_TEST_DRIVER_DIR);
        set_package_driver_dir("/elsewhere");
        const auto dirs = driver_search_path();
        say(dirs[0] + " " + dirs[1] + " " + dirs[2] + " " +
            active_driver().name());
      },
      "/nowhere .*test_drivers /elsewhere tiny");
}

TEST_F(Registry, ByPath) {
  IN_CHILD(
      {
        choose(NPU_TEST_DRIVER_DIR "/libnpu_tiny_newer.so");
        say(active_driver().path());
      },
      "libnpu_tiny_newer.so");
}

TEST_F(Registry, HostWhenNothingIsSaid) {
  IN_CHILD(
      {
        choose(nullptr);
        set_package_driver_dir(NPU_TEST_DRIVER_DIR "/none");
        say(driver_failure());
      },
      "driver 'host' was not found");
}

// What auto takes for a PyTorch built for `platform`, and why.
std::string auto_choice(const char* platform) {
  choose("auto", NPU_TEST_DRIVER_DIR ":" NPU_HOST_DRIVER_DIR);
  set_torch_platform(platform);
  const std::string name = active_driver().name();
  return name + ", " + driver_choice_reason();
}

TEST_F(Registry, AutoTakesTheDriverOfTorchsAccelerator) {
  IN_CHILD(say(auto_choice("tiny")), "^tiny, driver 'tiny' finds 1 device");
}

TEST_F(Registry, AutoTakesHostWhereThatDriverCannotBeUsed) {
  IN_CHILD(
      say(auto_choice("")), "^host, this PyTorch is built for the CPU alone");
  IN_CHILD(
      say(auto_choice("absent")), "^host, no driver 'absent' is installed");
  IN_CHILD(
      say(auto_choice("tiny_none")),
      "^host, driver 'tiny_none' finds no device");
  IN_CHILD(
      say(auto_choice("tiny_init_fails")),
      "no card in slot 3.*NPU_DRIVER=auto takes host.*host, driver "
      "'tiny_init_fails' cannot be used: .*no card in slot 3");
}

TEST_F(Registry, ADriverThatIsNamedNeedsNoReason) {
  IN_CHILD(
      {
        choose("tiny", NPU_TEST_DRIVER_DIR);
        const std::string name = active_driver().name();
        say(name + ":" + driver_choice_reason());
      },
      "^tiny:\n");
}

TEST_F(Registry, NotFoundSaysWhatWasSearchedAndWhatIsThere) {
  IN_CHILD(
      {
        choose("tinny", "/nowhere");
        set_package_driver_dir(NPU_TEST_DRIVER_DIR);
        say(driver_failure());
      },
      "^npu: driver 'tinny' was not found .did you mean 'tiny'... Searched: "
      "/nowhere .no such folder., .*test_drivers. Drivers there: .*tiny, .*Set "
      "NPU_DRIVER to one of them or to the path of a .so, or NPU_DRIVER_PATH "
      "to its folder.");
}

TEST_F(Registry, AFailureIsKeptAndThrownAgain) {
  IN_CHILD(
      {
        choose(NPU_TEST_DRIVER_DIR "/libnpu_tiny_init_fails.so");
        const std::string first = error_of([] { active_driver(); });
        choose(NPU_TEST_DRIVER_DIR "/libnpu_tiny.so");
        const std::string second = error_of([] { active_driver(); });
        if (first.empty() || first != second || driver_failure() != first ||
            active_driver_or_null() != nullptr) {
          std::exit(1);
        }
        say(first);
      },
      "failed to initialise: device lost .no card in slot 3.");
}

TEST_F(Registry, DisabledKindsAreGone) {
  IN_CHILD(
      {
        choose("tiny", NPU_TEST_DRIVER_DIR);
        ::setenv("NPU_DISABLE_KIND", "fill", 1);
        const Driver& driver = active_driver();
        say(std::to_string(driver.has_kind(NPU_KIND_FILL)) +
            std::to_string(driver.is_disabled(NPU_KIND_FILL)));
      },
      "01");
}

TEST_F(Registry, WrongVariablesAreTheFailure) {
  IN_CHILD(
      {
        choose("tiny", NPU_TEST_DRIVER_DIR);
        ::setenv("NPU_DISABLE_KIND", "coppy", 1);
        say(driver_failure());
      },
      "NPU_DISABLE_KIND names 'coppy', which is no kind .did you mean 'copy'");
  IN_CHILD(
      {
        choose("tiny", NPU_TEST_DRIVER_DIR);
        ::setenv("ASCEND_GLOBAL_LOG_LEVEL", "7", 1);
        say(driver_failure());
      },
      "ASCEND_GLOBAL_LOG_LEVEL='7' is not allowed");
}

}  // namespace
}  // namespace npu
