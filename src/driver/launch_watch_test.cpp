// SPDX-License-Identifier: Apache-2.0
// A listener sees work on its way to the driver, and leaves nothing behind.
#include "driver/launch_watch.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "driver/test_call.h"

namespace npu {
namespace {

struct Seen final : LaunchListener {
  npu_status on_launch(const Launch& launch) noexcept override {
    ++calls;
    kind = launch.kind;
    bytes = launch.bytes;
    stream = launch.stream;
    label = launch.call != nullptr ? launch.call->label : nullptr;
    const npu_status answer = launch.give(77);
    status = answer;
    return answer;
  }
  std::atomic<int> calls{0};
  Launch::Kind kind = Launch::kKernel;
  std::uint64_t bytes = 0;
  npu_stream stream = nullptr;
  const char* label = nullptr;
  std::atomic<npu_status> status{NPU_E_INTERNAL};  // until a driver answers
};

struct Counting final : LaunchListener {
  npu_status on_launch(const Launch& launch) noexcept override {
    ++calls;
    return launch.give(1);
  }
  std::atomic<int> calls{0};
};

// A listener lives as long as the process; reachable, so that it is no leak.
template <class Listener>
Listener& for_ever() {
  static auto* kept = new std::vector<std::unique_ptr<Listener>>;
  return *kept->emplace_back(std::make_unique<Listener>());
}

class Watch : public test::Tiny {
 protected:
  void TearDown() override {
    driver_->watch_launches(nullptr);
    Tiny::TearDown();
  }
  Seen& seen_ = for_ever<Seen>();
};

TEST_F(Watch, WithoutAListenerTheTablesAreTheDriversOwn) {
  const npu_memory_table* const before = &driver_->memory();
  EXPECT_EQ(before, driver_->table().memory);
  driver_->watch_launches(&seen_);
  EXPECT_NE(&driver_->memory(), before);
  EXPECT_EQ(driver_->table().memory, before);
  driver_->watch_launches(nullptr);
  EXPECT_EQ(&driver_->memory(), before);
}

TEST_F(Watch, SeesBytesAndKernels) {
  char block[64] = {};
  driver_->watch_launches(&seen_);
  EXPECT_EQ(driver_->memory().set_bytes(stream_, block, 1, 16), NPU_OK);
  EXPECT_EQ(seen_.kind, Launch::kSet);
  EXPECT_EQ(seen_.bytes, 16u);
  EXPECT_EQ(seen_.stream, stream_);
  EXPECT_EQ(block[15], 1);
  EXPECT_EQ(
      driver_->memory().copy_to_host(stream_, block + 32, block, 8), NPU_OK);
  EXPECT_EQ(seen_.kind, Launch::kToHost);
  EXPECT_EQ(block[39], 1);

  npu_call call{};
  call.size = sizeof(call);
  call.slot = 200;
  call.label = "my::op";
  EXPECT_EQ(driver_->run(stream_, call), NPU_OK);
  EXPECT_EQ(seen_.kind, Launch::kKernel);
  EXPECT_STREQ(seen_.label, "my::op");
  EXPECT_EQ(seen_.status, NPU_OK);  // the driver's own answer
  EXPECT_EQ(call.correlation, 0u);  // the caller's frame is untouched
  EXPECT_EQ(seen_.calls, 3);

  driver_->watch_launches(nullptr);
  EXPECT_EQ(driver_->memory().set_bytes(stream_, block, 2, 16), NPU_OK);
  EXPECT_EQ(seen_.calls, 3);
}

TEST_F(Watch, ComesAndGoesWhileOthersLaunch) {
  auto& counting = for_ever<Counting>();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      char block[16];
      while (!stop) {
        failures +=
            driver_->memory().set_bytes(stream_, block, 3, 16) != NPU_OK;
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    driver_->watch_launches(i % 2 == 0 ? &counting : nullptr);
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace npu
