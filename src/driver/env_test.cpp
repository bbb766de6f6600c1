// SPDX-License-Identifier: Apache-2.0
// Environment variables: what is taken, and what is refused with which words.
#include "driver/env.h"

#include <limits>

#include "driver/test_env.h"
#include "driver/words.h"

namespace npu {
namespace {

using test::error_of;
using test::ScopedEnv;

constexpr const char* kName = "NPU_TEST_VALUE";

class Env : public testing::Test {
 protected:
  void SetUp() override {
    env::declare_for_test(kName);
  }
  void TearDown() override {
    env::declare_for_test("");
  }
};

TEST_F(Env, UnsetAndEmptyAreAbsent) {
  const ScopedEnv unset(kName, nullptr);
  EXPECT_FALSE(env::text(kName));
  const ScopedEnv empty(kName, "");
  EXPECT_FALSE(env::text(kName));
  EXPECT_TRUE(env::flag(kName, true));
  EXPECT_EQ(env::integer(kName, 0, 9, 7), 7);
  EXPECT_EQ(env::bytes(kName, 5), 5u);
  EXPECT_EQ(env::choice(kName, {"a", "b"}, 1), 1u);
}

TEST_F(Env, FlagTakesOnlyZeroAndOne) {
  {
    const ScopedEnv one(kName, "1");
    EXPECT_TRUE(env::flag(kName, false));
  }
  {
    const ScopedEnv zero(kName, "0");
    EXPECT_FALSE(env::flag(kName, true));
  }
  for (const char* bad : {"yes", "true", "2", " 1", "01"}) {
    const ScopedEnv value(kName, bad);
    EXPECT_EQ(
        error_of([] { env::flag(kName, false); }),
        std::string("npu: environment: NPU_TEST_VALUE='") + bad +
            "' is not allowed. Allowed: 0, 1.");
  }
}

TEST_F(Env, IntegerIsWholeAndInRange) {
  {
    const ScopedEnv value(kName, "-3");
    EXPECT_EQ(env::integer(kName, -5, 5, 0), -3);
  }
  for (const char* bad :
       {"6", "-6", "1.5", "1x", "x", "99999999999999999999"}) {
    const ScopedEnv value(kName, bad);
    EXPECT_HAS(
        error_of([] { env::integer(kName, -5, 5, 0); }),
        "Allowed: an integer from -5 to 5.");
  }
  const ScopedEnv value(kName, "0");
  EXPECT_HAS(
      error_of([] {
        env::integer(kName, 1, std::numeric_limits<std::int64_t>::max(), 1);
      }),
      "Allowed: an integer from 1.");
}

TEST_F(Env, BytesHaveUnits) {
  const std::pair<const char*, std::uint64_t> good[] = {
      {"0", 0},
      {"512", 512},
      {"512B", 512},
      {"4k", 4096},
      {"64M", 64ull << 20},
      {"64MiB", 64ull << 20},
      {"16GB", 16ull << 30},
      {"1T", 1ull << 40}};
  for (const auto& [text, bytes] : good) {
    const ScopedEnv value(kName, text);
    EXPECT_EQ(env::bytes(kName, 1), bytes) << text;
  }
  for (const char* bad :
       {"-1", "1.5G", "G", "1 G", "1P", "1GiBs", "99999999999T"}) {
    const ScopedEnv value(kName, bad);
    EXPECT_HAS(
        error_of([] { env::bytes(kName, 1); }),
        "Allowed: a number of bytes such as 512, 512K, 64M, 16G or 1T.")
        << bad;
  }
}

TEST_F(Env, ChoiceListsWhatIsAllowed) {
  {
    const ScopedEnv value(kName, "fast");
    EXPECT_EQ(env::choice(kName, {"all", "fast"}, 0), 1u);
  }
  const ScopedEnv value(kName, "quick");
  EXPECT_EQ(
      error_of([] {
        env::choice(kName, {"all", "fast"}, 0);
      }),
      "npu: environment: NPU_TEST_VALUE='quick' is not allowed. Allowed: all, "
      "fast.");
}

TEST(Words, SplitDropsBlanksAndEmptyPieces) {
  EXPECT_EQ(split(" a, b ,,c", ','), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(split("", ',').empty());
  EXPECT_TRUE(split(" , ", ',').empty());
}

TEST(Words, NearestWantsAFewEditsOnly) {
  const std::vector<std::string> known = {"host", "null", "cuda"};
  EXPECT_EQ(nearest("hots", known), "host");
  EXPECT_EQ(nearest("nul", known), "null");
  EXPECT_EQ(nearest("zzzzzzzz", known), "");
}

}  // namespace
}  // namespace npu
