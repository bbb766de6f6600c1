// SPDX-License-Identifier: Apache-2.0
// The table of environment variables against what the sources read.
#include "driver/env_table.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "driver/env.h"
#include "driver/test_env.h"

namespace npu {
namespace {

using test::error_of;
namespace fs = std::filesystem;

bool is_name(std::string_view text) {
  return text == "RANK" || text == "SEED" ||
         (text.find('_') != std::string_view::npos &&
          text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
              std::string_view::npos);
}

// What stands before a literal when a variable is read by it; " = " is that of
// a constant kSomething.
bool reads(std::string_view before) {
  before = before.substr(0, before.find_last_not_of(" \n") + 1);
  for (const std::string_view call :
       {"getenv(",
        "::text(",
        "environ.get(",
        "environ[",
        "flag(",
        "integer(",
        "bytes(",
        "choice(",
        "get("}) {
    if (before.ends_with(call)) {
      return true;
    }
  }
  if (!before.ends_with('=')) {
    return false;
  }
  const auto line = before.substr(before.rfind('\n') + 1);
  return line.find("constexpr") != std::string_view::npos &&
         line.find("char") != std::string_view::npos;
}

// Variables that sources read by a literal name: getenv("X"), env::flag("X"),
// environ.get("X"), and constants that hold one.
std::set<std::string> read_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& file : fs::recursive_directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    const std::string kind = file.path().extension().string();
    if ((kind != ".cpp" && kind != ".h" && kind != ".py") ||
        name.find("_test.") != std::string::npos) {
      continue;
    }
    std::ifstream stream(file.path());
    const std::string text(std::istreambuf_iterator<char>(stream), {});
    const std::string_view all = text;
    for (std::size_t at = all.find_first_of("\"'");
         at != std::string_view::npos;
         at = all.find_first_of("\"'", at + 1)) {
      const std::size_t end = all.find(all[at], at + 1);
      const std::string_view word =
          all.substr(at + 1, end == std::string_view::npos ? 0 : end - at - 1);
      const std::size_t back = at < 120 ? at : 120;
      if (!word.empty() && word.size() < 60 && is_name(word) &&
          reads(all.substr(at - back, back))) {
        names.emplace(word);
      }
    }
  }
  return names;
}

TEST(EnvTable, NamesEveryVariableTheSourcesRead) {
  const fs::path root = NPU_SOURCE_ROOT;
  std::set<std::string> read;
  for (const char* folder : {"src", "drivers", "python"}) {
    read.merge(read_in(root / folder));
  }
  EXPECT_TRUE(read.count("NPU_DRIVER") == 1 && read.count("RANK") == 1)
      << "the search finds nothing";
  for (const std::string& name : read) {
    EXPECT_NE(env::find(name), nullptr)
        << name << " is read and has no row in env_table.cpp";
  }
  for (const env::Variable& variable : env::table()) {
    EXPECT_EQ(read.count(variable.name), 1u)
        << variable.name << " has a row and is never read";
  }
}

TEST(EnvTable, RowsAreWhole) {
  std::set<std::string> names;
  for (const env::Variable& variable : env::table()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
    const std::string meaning = variable.meaning;
    ASSERT_FALSE(meaning.empty()) << variable.name;
    EXPECT_EQ(meaning.back(), '.') << variable.name;
    EXPECT_NE(*variable.allowed, '\0') << variable.name;
    EXPECT_NE(*variable.otherwise, '\0') << variable.name;
    for (const char* text :
         {variable.allowed, variable.otherwise, variable.meaning}) {
      EXPECT_EQ(std::string(text).find('|'), std::string::npos)
          << "breaks the page's tables";
    }
  }
}

TEST(EnvTable, UsesThatDoNotMatchAreRefused) {
  EXPECT_EQ(
      error_of([] {
        env::check_declared("NPU_DRIVER", env::Type::kText);
        env::check_declared(
            "NPU_FALLBACK", env::Type::kChoice, "warn, silent, error");
      }),
      "");
  EXPECT_HAS(
      error_of([] { env::check_declared("NPU_DRIVR", env::Type::kText); }),
      "NPU_DRIVR is read but not declared");
  EXPECT_HAS(
      error_of([] { env::check_declared("NPU_FALLBACK", env::Type::kFlag); }),
      "is read as flag, declared as choice");
  EXPECT_HAS(
      error_of([] {
        env::check_declared("NPU_FALLBACK", env::Type::kChoice, "warn, error");
      }),
      "allows 'warn, error', declared are 'warn, silent, error'");
}

TEST(EnvTable, DebugBuildsRefuseAnUndeclaredName) {
#ifdef NDEBUG
  GTEST_SKIP() << "a release build reads any name";
#else
  EXPECT_HAS(error_of([] { env::text("NPU_NOWHERE"); }), "not declared");
#endif
}

TEST(EnvTable, PageHasARowForEach) {
  const std::string page = env::markdown();
  for (const env::Variable& variable : env::table()) {
    EXPECT_HAS(page, std::string("| `") + variable.name + "` | ");
  }
  EXPECT_HAS(page, "## The host driver\n\n| variable |");
}

// docs/environment.md is its own first lines and the table. `make docs-env`
// writes it (NPU_TEST_WRITE=1).
TEST(EnvTable, TheDocumentIsThePage) {
  constexpr const char* kHead =
      "# Environment variables\n\n"
      "Every variable that the plugin and its drivers read. This page is made "
      "from the table in\nsrc/driver/env_table.cpp (`make docs-env`). A value "
      "that is not allowed raises an error that lists the allowed ones.\nThose "
      "of the operator tools are in "
      "[tools-reference.md](tools-reference.md#variables).\n\n";
  const fs::path file = fs::path(NPU_SOURCE_ROOT) / "docs/environment.md";
  if (std::getenv("NPU_TEST_WRITE") != nullptr) {
    std::ofstream(file) << kHead << env::markdown();
  }
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(text, kHead + env::markdown());
}

}  // namespace
}  // namespace npu
