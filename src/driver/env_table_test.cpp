// SPDX-License-Identifier: Apache-2.0
// The table of environment variables against what the sources read.
#include "driver/env_table.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "driver/env.h"
#include "driver/test_env.h"

namespace npu {
namespace {

using test::error_of;
namespace fs = std::filesystem;

// Variables that sources read by a literal name: getenv("X"), env::flag("X"),
// environ.get("X"), and constants that hold one.
std::set<std::string> read_in(const fs::path& folder) {
  static const std::regex kUse(
      "(?:getenv\\(|env::[a-z]+\\(|environ\\.get\\(|environ\\[|"
      "(?:flag|integer|bytes|choice|get)\\(|k[A-Za-z]*(?:\\[\\])? = )"
      "\\s*[\"']((?:[A-Z][A-Z0-9]*_)+[A-Z0-9]+|RANK|SEED)[\"']");
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
    for (std::sregex_iterator it(text.begin(), text.end(), kUse), end;
         it != end;
         ++it) {
      names.insert((*it)[1]);
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
        << variable.name << " has a row and nobody reads it";
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

}  // namespace
}  // namespace npu
