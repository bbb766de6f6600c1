// SPDX-License-Identifier: Apache-2.0
// The services drivers call back: error text, threads, log, accounts.
#include "driver/services.h"

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "driver/test_env.h"

namespace npu {
namespace {

using test::ScopedEnv;

const npu_host_services& services() {
  return *host_services();
}

TEST(Services, TableIsWhole) {
  EXPECT_EQ(services().size, sizeof(npu_host_services));
  EXPECT_EQ(services().abi, NPU_ABI);
}

TEST(Services, ErrorTextBelongsToTheThread) {
  services().set_error("mine");
  std::string theirs = "unset";
  std::thread([&] { theirs = services().last_error(); }).join();
  EXPECT_EQ(theirs, "");
  EXPECT_STREQ(services().last_error(), "mine");
  services().set_error(nullptr);
  EXPECT_STREQ(services().last_error(), "");
}

TEST(Services, LongErrorTextIsCutNotOverrun) {
  services().set_error(std::string(5000, 'x').c_str());
  EXPECT_EQ(std::string(services().last_error()), std::string(1023, 'x'));
  services().set_error(nullptr);
}

TEST(Status, CheckThrowsWithTheDriversLastWords) {
  services().set_error("bank 2 is broken");
  EXPECT_EQ(
      test::error_of(
          [] { check(NPU_E_OUT_OF_MEMORY, "alloc 64 MiB on npu:0"); }),
      "npu: alloc 64 MiB on npu:0: out of memory (bank 2 is broken).");
  EXPECT_STREQ(services().last_error(), "");
  EXPECT_NO_THROW(check(NPU_OK, "x"));
  EXPECT_NO_THROW(check(NPU_NOT_READY, "x"));
  EXPECT_HAS(test::error_of([] { check(77, "x"); }), "unknown status 77");
}

TEST(Status, EveryReasonHasItsOwnText) {
  std::set<std::string> texts;
  for (npu_reason reason = 0; reason < NPU_REASON_COUNT; ++reason) {
    texts.insert(reason_text(reason));
  }
  EXPECT_EQ(texts.size(), NPU_REASON_COUNT);
  EXPECT_STREQ(reason_text(NPU_REASON_COUNT), "unknown reason");
}

// ---- parallel_for ----

npu_status mark(void* context, std::int64_t begin, std::int64_t end) {
  auto& seen = *static_cast<std::vector<std::atomic<int>>*>(context);
  for (std::int64_t i = begin; i < end; ++i) {
    ++seen[static_cast<std::size_t>(i)];
  }
  return NPU_OK;
}

TEST(ParallelFor, EveryIndexOnce) {
  const std::pair<std::int64_t, std::int64_t> cases[] = {
      {0, 1}, {1, 1}, {7, 100}, {1000, 1}, {1000, 0}, {100001, 64}};
  for (const auto& [n, grain] : cases) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(n));
    EXPECT_EQ(services().parallel_for(n, grain, &mark, &seen), NPU_OK);
    for (const auto& times : seen) {
      EXPECT_EQ(times, 1);
    }
  }
}

TEST(ParallelFor, PiecesAreAtLeastAGrain) {
  static std::atomic<int> small;
  small = 0;
  const auto fn = [](void*, std::int64_t begin, std::int64_t end) {
    small += end - begin < 64 && end != 1000 ? 1 : 0;
    return NPU_OK;
  };
  EXPECT_EQ(services().parallel_for(1000, 64, fn, nullptr), NPU_OK);
  EXPECT_EQ(small, 0);
}

TEST(ParallelFor, ErrorAndItsTextReachTheCaller) {
  const auto fn = [](void*, std::int64_t begin, std::int64_t) -> npu_status {
    if (begin > 500) {
      services().set_error("row 501 is odd");
      return NPU_E_INTERNAL;
    }
    return NPU_OK;
  };
  services().set_error(nullptr);
  EXPECT_EQ(services().parallel_for(1000, 1, fn, nullptr), NPU_E_INTERNAL);
  EXPECT_STREQ(services().last_error(), "row 501 is odd");
  services().set_error(nullptr);
}

TEST(ParallelFor, BadArgumentsAreRefused) {
  EXPECT_EQ(services().parallel_for(4, 1, nullptr, nullptr), NPU_E_INVALID);
  EXPECT_EQ(services().parallel_for(-1, 1, &mark, nullptr), NPU_E_INVALID);
}

npu_status same_thread(void* context, std::int64_t, std::int64_t) {
  return *static_cast<std::thread::id*>(context) == std::this_thread::get_id()
             ? NPU_OK
             : NPU_E_INTERNAL;
}

npu_status nested(void*, std::int64_t, std::int64_t) {
  std::thread::id here = std::this_thread::get_id();
  return services().parallel_for(10000, 1, &same_thread, &here);
}

TEST(ParallelFor, NestedIsSerial) {
  EXPECT_EQ(services().parallel_for(64, 1, &nested, nullptr), NPU_OK);
}

TEST(ParallelFor, SerialOnAStreamWorker) {
  npu_status status = NPU_E_TIMEOUT;
  std::thread([&] {
    services().stream_worker();
    status = nested(nullptr, 0, 1);
  }).join();
  EXPECT_EQ(status, NPU_OK);
}

TEST(ParallelFor, ManyCallersAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        std::vector<std::atomic<int>> seen(500);
        services().parallel_for(500, 1, &mark, &seen);
        for (const auto& times : seen) {
          wrong += times == 1 ? 0 : 1;
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

TEST(ParallelFor, ThePoolCanBeReplacedAndMayThrow) {
  set_parallel_for([](std::int64_t, std::int64_t, npu_range_fn, void*) {
    return npu_status{NPU_E_TIMEOUT};
  });
  std::vector<std::atomic<int>> seen(10);
  EXPECT_EQ(services().parallel_for(10, 1, &mark, &seen), NPU_E_TIMEOUT);
  set_parallel_for(
      [](std::int64_t, std::int64_t, npu_range_fn, void*) -> npu_status {
        throw std::runtime_error("pool is gone");
      });
  EXPECT_EQ(services().parallel_for(10, 1, &mark, &seen), NPU_E_INTERNAL);
  EXPECT_STREQ(services().last_error(), "pool is gone");
  services().set_error(nullptr);
  set_parallel_for(nullptr);
  EXPECT_EQ(services().parallel_for(10, 1, &mark, &seen), NPU_OK);
}

// ---- log ----

class Log : public testing::Test {
 protected:
  void TearDown() override {
    reload_log_environment();
  }
};

TEST_F(Log, OnlyErrorsByDefaultAndToStderr) {
  const ScopedEnv level("ASCEND_GLOBAL_LOG_LEVEL", nullptr);
  const ScopedEnv place("SLOG_PRINT_TO_STDOUT", nullptr);
  reload_log_environment();
  EXPECT_FALSE(log_enabled(NPU_LOG_WARNING));
  EXPECT_TRUE(log_enabled(NPU_LOG_ERROR));
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  services().log(NPU_LOG_WARNING, "quiet");
  services().log(NPU_LOG_ERROR, "loud");
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_HAS(err, "[ERROR] NPU(");
  EXPECT_HAS(err, " loud\n");
  EXPECT_FALSE(test::contains(err, "quiet"));
}

TEST_F(Log, StdoutHasEverythingAskedFor) {
  const ScopedEnv level("ASCEND_GLOBAL_LOG_LEVEL", "0");
  const ScopedEnv place("SLOG_PRINT_TO_STDOUT", "1");
  reload_log_environment();
  EXPECT_EQ(services().log_level(), 0);
  testing::internal::CaptureStdout();
  services().log(NPU_LOG_DEBUG, "a detail");
  EXPECT_HAS(testing::internal::GetCapturedStdout(), "[DEBUG] NPU(");
}

TEST_F(Log, LevelWithoutStdoutShowsErrorsOnly) {
  const ScopedEnv level("ASCEND_GLOBAL_LOG_LEVEL", "0");
  const ScopedEnv place("SLOG_PRINT_TO_STDOUT", nullptr);
  reload_log_environment();
  EXPECT_FALSE(log_enabled(NPU_LOG_DEBUG));
  EXPECT_TRUE(log_enabled(NPU_LOG_ERROR));
}

TEST_F(Log, LevelFourIsSilence) {
  const ScopedEnv level("ASCEND_GLOBAL_LOG_LEVEL", "4");
  const ScopedEnv place("SLOG_PRINT_TO_STDOUT", "1");
  reload_log_environment();
  EXPECT_FALSE(log_enabled(NPU_LOG_ERROR));
}

TEST_F(Log, AWrongLevelIsNamed) {
  const ScopedEnv level("ASCEND_GLOBAL_LOG_LEVEL", "debug");
  EXPECT_HAS(
      test::error_of(&check_log_environment),
      "ASCEND_GLOBAL_LOG_LEVEL='debug' is not allowed. Allowed: an integer "
      "from 0 to 4.");
}

TEST_F(Log, BadCallsOfADriverAreIgnored) {
  testing::internal::CaptureStderr();
  services().log(9, "no such level");
  services().log(-1, "no such level");
  services().log(NPU_LOG_ERROR, nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// ---- the rest ----

TEST(Account, BytesAddUpPerDevice) {
  const std::int64_t before = accounted_bytes(3);
  services().account(3, 100, "handles");
  services().account(3, -40, "handles");
  services().account(4, 7, nullptr);
  services().account(-1, 7, "nothing");
  services().account(1 << 20, 7, "nothing");
  EXPECT_EQ(accounted_bytes(3) - before, 60);
  EXPECT_EQ(accounted_bytes(-1), 0);
}

TEST(Ranges, GoToTheProfilerThatRuns) {
  static std::string seen;
  services().range_push("no listener");
  services().range_pop();
  set_ranges([](const char* name) { seen += name; }, [] { seen += "."; });
  services().range_push("gemm");
  services().range_pop();
  set_ranges(nullptr, nullptr);
  services().range_push("late");
  EXPECT_EQ(seen, "gemm.");
}

}  // namespace
}  // namespace npu
