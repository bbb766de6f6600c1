// SPDX-License-Identifier: Apache-2.0
// Private pools: memory kept apart, routes of threads, users' own memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "driver/status.h"
#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_backend.h"
#include "runtime/allocator/oom.h"

namespace npu::memory {
namespace {

constexpr StreamKey kMain{0, 0};
constexpr PoolId kOne{0, 1};
constexpr PoolId kTwo{0, 2};

// Memory from functions of the user's.
class Counting final : public SegmentSource {
 public:
  npu_status alloc(StreamKey, std::size_t bytes, void** out) override {
    *out = full ? nullptr : std::malloc(bytes);
    taken += *out != nullptr ? 1 : 0;
    return *out == nullptr ? NPU_E_OUT_OF_MEMORY : NPU_OK;
  }
  npu_status free(StreamKey, void* ptr, std::size_t) override {
    std::free(ptr);
    ++given;
    return NPU_OK;
  }
  int taken = 0;
  int given = 0;
  bool full = false;
};

class PrivatePoolTest : public ::testing::Test {
 protected:
  void* take(std::size_t bytes) {
    return allocator_.allocate(kMain, bytes);
  }
  void* take_from(PoolId id, std::size_t bytes) {
    pool().begin_route(id);
    void* ptr = take(bytes);
    pool().end_route(id);
    return ptr;
  }
  std::int64_t reserved() {
    return pool().stats().reserved_bytes[0].current;
  }
  DevicePool& pool() {
    return allocator_.pool(0);
  }
  PoolId pool_of(void* ptr) {
    for (const SegmentInfo& segment : pool().snapshot()) {
      const auto address = reinterpret_cast<std::uintptr_t>(ptr);
      if (address >= segment.address &&
          address < segment.address + segment.total_size) {
        return segment.pool;
      }
    }
    return {9, 9};
  }

  Counting source_;  // outlives the allocator, which gives its memory back
  FakeBackend backend_{64 * kMiB};
  CachingAllocator allocator_{backend_, Config{}};
};

TEST_F(PrivatePoolTest, BlocksOfDifferentPoolsShareNoSegment) {
  pool().hold_pool(kOne, {});
  void* common = take(1000);
  void* apart = take_from(kOne, 1000);
  EXPECT_EQ(pool_of(common), PoolId(0, 0));
  EXPECT_EQ(pool_of(apart), kOne);
  allocator_.free(apart);
  EXPECT_NE(take(1000), apart);
  EXPECT_EQ(take_from(kOne, 1000), apart);
}

TEST_F(PrivatePoolTest, IdleSegmentsStayWhileThePoolIsHeld) {
  pool().hold_pool(kOne, {});
  allocator_.free(take_from(kOne, 4 * kMiB));
  const std::int64_t kept = reserved();
  EXPECT_GT(kept, 0);
  pool().empty_cache();
  EXPECT_EQ(reserved(), kept);
  pool().empty_pool(kOne);
  EXPECT_EQ(reserved(), 0);
  allocator_.free(take_from(kOne, 4 * kMiB));
  pool().release_pool(kOne);
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(pool().pool_holders(kOne), 0u);
}

TEST_F(PrivatePoolTest, LiveBlocksOutliveTheirPool) {
  pool().hold_pool(kOne, {});
  void* block = take_from(kOne, 4 * kMiB);
  pool().release_pool(kOne);
  EXPECT_GT(reserved(), 0);
  EXPECT_NE(allocator_.free(block), 0u);
  pool().empty_cache();
  EXPECT_EQ(reserved(), 0);
}

TEST_F(PrivatePoolTest, RoutesNestAndBelongToAThread) {
  pool().hold_pool(kOne, {});
  pool().begin_route(kOne);
  pool().begin_route(kTwo);
  EXPECT_EQ(pool_of(take(100)), kTwo);
  pool().end_route(kTwo);
  EXPECT_EQ(pool_of(take(100)), kOne);
  void* elsewhere = nullptr;
  std::thread([&] { elsewhere = take(100); }).join();
  EXPECT_EQ(pool_of(elsewhere), PoolId(0, 0));
  EXPECT_EQ(pool().pool_holders(kOne), 2u);
  pool().end_route(kOne);
  EXPECT_EQ(pool_of(take(100)), PoolId(0, 0));
  EXPECT_THROW(pool().end_route(kOne), Error);
}

TEST_F(PrivatePoolTest, OthersGetItsIdleBlocksOnlyWhenItLends) {
  pool().hold_pool(kOne, {});
  void* block = take_from(kOne, 40 * kMiB);
  allocator_.free(block);
  EXPECT_THROW(take(40 * kMiB), OutOfMemory);
  pool().release_pool(kOne);
  PoolOptions lends;
  lends.use_on_oom = true;
  pool().hold_pool(kTwo, lends);
  block = take_from(kTwo, 40 * kMiB);
  allocator_.free(block);
  EXPECT_EQ(take(40 * kMiB), block);
}

TEST_F(PrivatePoolTest, WithoutSplittingEachBlockHasASegment) {
  PoolOptions whole;
  whole.no_split = true;
  pool().hold_pool(kOne, whole);
  take_from(kOne, 1000);
  take_from(kOne, 1000);
  EXPECT_EQ(pool().stats().segment[0].current, 2);
  EXPECT_EQ(reserved(), 2048);
}

TEST_F(PrivatePoolTest, AUsersFunctionsGiveAPoolItsMemory) {
  PoolOptions users;
  users.source = &source_;
  pool().hold_pool(kOne, users);
  void* block = take_from(kOne, 4 * kMiB);
  EXPECT_EQ(source_.taken, 1);
  EXPECT_EQ(backend_.allocs, 0);
  take(4 * kMiB);
  EXPECT_EQ(source_.taken, 1);
  allocator_.free(block);
  pool().release_pool(kOne);
  EXPECT_EQ(source_.given, 1);
  EXPECT_EQ(backend_.bad_frees, 0);
  source_.full = true;
  pool().hold_pool(kTwo, users);
  EXPECT_THROW(take_from(kTwo, 4 * kMiB), OutOfMemory);
}

TEST_F(PrivatePoolTest, OrTheWholeProcessUncached) {
  ASSERT_TRUE(allocator_.set_source(&source_));
  allocator_.free(take(1000));
  allocator_.free(take(1000));
  EXPECT_EQ(source_.taken, 2);
  EXPECT_EQ(source_.given, 2);
  EXPECT_EQ(backend_.allocs, 0);
  EXPECT_FALSE(allocator_.set_source(nullptr));
}

}  // namespace
}  // namespace npu::memory
