// SPDX-License-Identifier: Apache-2.0
// Free blocks whose pages the system may have: which ones, when, and that
// no block is handed out while its contents are being discarded.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_backend.h"

namespace npu::memory {
namespace {

using Ranges = std::vector<FakeBackend::Range>;

constexpr StreamKey kMain{0, 0};
constexpr StreamKey kSide{0, 96};

class IdleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_.can_discard = true;
    pool_ = std::make_unique<DevicePool>(0, backend_, table_, Config{});
  }
  void* take(std::size_t bytes, StreamKey stream = kMain) {
    return pool_->allocate(stream.id, bytes);
  }
  void give(void* ptr) {
    EXPECT_GT(pool_->free(table_.find(ptr).segment, ptr), 0u);
  }
  Ranges sweep() {
    pool_->sweep_idle();
    return backend_.take_discards();
  }

  FakeBackend backend_{std::size_t{4} << 30};
  SegmentTable table_;
  std::unique_ptr<DevicePool> pool_;
};

TEST_F(IdleTest, ABlockFreeThroughAPeriodIsDiscardedOnce) {
  void* block = take(12 * kMiB);
  give(block);
  EXPECT_EQ(sweep(), Ranges{});  // not free for a whole period yet
  EXPECT_EQ(sweep(), (Ranges{{block, 12 * kMiB}}));
  EXPECT_EQ(sweep(), Ranges{});
  EXPECT_EQ(take(12 * kMiB), block);
  give(block);
  sweep();
  EXPECT_EQ(sweep(), (Ranges{{block, 12 * kMiB}}));
  EXPECT_EQ(backend_.allocs, 1);
}

TEST_F(IdleTest, BlocksInUseAndSmallOnesAreLeftAlone) {
  void* used = take(12 * kMiB);
  void* again = take(14 * kMiB);
  give(take(kMiB));
  give(again);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(take(14 * kMiB), again);
    give(again);
    EXPECT_EQ(sweep(), Ranges{});
  }
  give(used);
}

TEST_F(IdleTest, NeighboursAreOneRangeAndStayTwoBlocks) {
  void* first = take(4 * kMiB);
  void* second = take(6 * kMiB);
  give(first);
  give(second);
  sweep();
  EXPECT_EQ(sweep(), (Ranges{{first, 10 * kMiB}}));
  EXPECT_EQ(take(6 * kMiB), second);
  EXPECT_EQ(take(4 * kMiB), first);
}

TEST_F(IdleTest, ABusyStreamIsAskedAgain) {
  void* block = take(12 * kMiB, kSide);
  give(block);
  backend_.busy_streams.insert(kSide.id);
  sweep();
  EXPECT_EQ(sweep(), Ranges{});
  backend_.busy_streams.clear();
  EXPECT_EQ(sweep(), (Ranges{{block, 12 * kMiB}}));
}

TEST_F(IdleTest, ABlockAnotherStreamUsesIsNotFree) {
  void* block = take(12 * kMiB);
  pool_->record_stream(table_.find(block).segment, block, kSide);
  give(block);
  sweep();
  EXPECT_EQ(sweep(), Ranges{});
}

// 40 sizes one after the other, each a little larger, as a test suite takes
// them: what is idle and keeps its contents stays below a bound.
TEST_F(IdleTest, GrowthDiscardsTheLongestIdleAboveABound) {
  std::size_t idle = 0;
  std::size_t discarded = 0;
  std::vector<void*> order;
  std::vector<void*> freed;
  for (std::size_t i = 0; i < 40; ++i) {
    freed.push_back(take((20 + 2 * i) * kMiB));
    for (const auto& range : backend_.take_discards()) {
      discarded += range.bytes;
      order.push_back(range.ptr);
    }
    EXPECT_LE(idle - discarded, 256 * kMiB) << i;
    give(freed.back());
    idle += (20 + 2 * i) * kMiB;
  }
  EXPECT_GT(discarded, std::size_t{1} << 30);
  freed.resize(order.size());
  std::sort(order.begin(), order.end());
  std::sort(freed.begin(), freed.end());
  EXPECT_EQ(order, freed);
}

TEST_F(IdleTest, ARestNobodyWroteToNeedsNoDiscard) {
  void* block = take(2 * kMiB);  // of a segment of 20
  sweep();
  EXPECT_EQ(sweep(), Ranges{});
  give(block);
  sweep();
  EXPECT_EQ(sweep(), (Ranges{{block, 2 * kMiB}}));
}

TEST_F(IdleTest, NobodyTakesABlockWhileItIsDiscarded) {
  void* block = take(12 * kMiB);
  give(block);
  sweep();
  std::future<void*> other;
  backend_.during_discard = [&] {
    other = std::async(std::launch::async, [&] { return take(12 * kMiB); });
    // It waits for the driver's mutex, and finds the block afterwards.
    EXPECT_EQ(
        other.wait_for(std::chrono::milliseconds(50)),
        std::future_status::timeout);
  };
  sweep();
  EXPECT_EQ(other.get(), block);
  EXPECT_EQ(backend_.allocs, 1);
}

TEST_F(IdleTest, WithoutTheSlotNothingIsDiscarded) {
  backend_.can_discard = false;
  give(take(300 * kMiB));
  give(take(301 * kMiB));
  sweep();
  EXPECT_EQ(sweep(), Ranges{});
}

TEST(SweeperTest, TheAllocatorSweepsByItself) {
  FakeBackend backend(64 * kMiB);
  backend.can_discard = true;
  CachingAllocator allocator(backend, Config{}, std::chrono::milliseconds(5));
  void* block = allocator.allocate(kMain, 12 * kMiB);
  allocator.free(block);
  Ranges seen;
  for (int i = 0; i < 500 && seen.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    seen = backend.take_discards();
  }
  EXPECT_EQ(seen, (Ranges{{block, 12 * kMiB}}));
}

}  // namespace
}  // namespace npu::memory
