// SPDX-License-Identifier: Apache-2.0
// Allocating and freeing: reuse, split and merge, limits, streams, failures.
#include "runtime/allocator/caching_allocator.h"

#include <gtest/gtest.h>

#include "runtime/allocator/fake_backend.h"
#include "runtime/allocator/oom.h"

namespace npu::memory {
namespace {

constexpr StreamKey kMain{0, 0};
constexpr StreamKey kSide{0, 96};

class AllocatorTest : public ::testing::Test {
 protected:
  void make(const char* options = "", bool caching = true) {
    Config config;
    parse_config(options, "test", config);
    config.caching = caching;
    allocator_ = std::make_unique<CachingAllocator>(backend_, config);
  }
  void SetUp() override {
    make();
  }
  DevicePool& pool() {
    return allocator_->pool(0);
  }
  DeviceStats stats() {
    return pool().stats();
  }
  void* take(std::size_t bytes, StreamKey stream = kMain) {
    return allocator_->allocate(stream, bytes);
  }

  FakeBackend backend_{64 * kMiB};
  std::unique_ptr<CachingAllocator> allocator_;
};

TEST_F(AllocatorTest, ReusesABlockOfTheSameSize) {
  void* first = take(1000);
  EXPECT_EQ(allocator_->free(first), 1024u);
  EXPECT_EQ(take(1024), first);
  EXPECT_EQ(backend_.allocs, 1);
}

TEST_F(AllocatorTest, SmallBlocksShareASegment) {
  auto* a = static_cast<std::byte*>(take(512));
  auto* b = static_cast<std::byte*>(take(512));
  EXPECT_EQ(b - a, 512);
  EXPECT_EQ(stats().segment[0].current, 1);
  EXPECT_EQ(stats().reserved_bytes[1].current, 2 << 20);
}

TEST_F(AllocatorTest, FreedNeighboursMergeBeforeMoreMemoryIsTaken) {
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(take(512 * kKiB));
  }
  for (void* block : blocks) {
    allocator_->free(block);
  }
  // 1 MiB fits only when two halves become one again.
  EXPECT_EQ(take(kMiB), blocks[0]);
  EXPECT_EQ(backend_.allocs, 1);
}

TEST_F(AllocatorTest, LargeBlocksOfOneSizeAreReusedThoughNotCutToSize) {
  // 19.5 of 20 MiB: the rest is too small to split off.
  void* first = take(9 * kMiB);
  void* second = take(10 * kMiB + 512 * kKiB);
  allocator_->free(first);
  allocator_->free(second);
  EXPECT_EQ(take(10 * kMiB + 512 * kKiB), second);
  EXPECT_EQ(take(9 * kMiB), first);
}

TEST_F(AllocatorTest, StreamsDoNotShareFreeBlocks) {
  void* main = take(4096);
  allocator_->free(main);
  EXPECT_NE(take(4096, kSide), main);
  EXPECT_EQ(take(4096, kMain), main);
}

TEST_F(AllocatorTest, CountsWhatIsAllocatedAndWhatWasAsked) {
  void* small = take(1000);
  void* large = take(3 * kMiB);
  DeviceStats now = stats();
  EXPECT_EQ(now.allocation[0].current, 2);
  EXPECT_EQ(now.allocation[1].current, 1);
  EXPECT_EQ(now.allocation[2].current, 1);
  EXPECT_EQ(now.allocated_bytes[0].current, 1024 + (3 << 20));
  EXPECT_EQ(now.requested_bytes[1].current, 1000);
  EXPECT_EQ(now.reserved_bytes[0].current, 22 << 20);
  EXPECT_EQ(now.inactive_split[0].current, 2);
  EXPECT_EQ(now.inactive_split_bytes[1].current, (2 << 20) - 1024);
  allocator_->free(small);
  allocator_->free(large);
  now = stats();
  EXPECT_EQ(now.allocation[0].current, 0);
  EXPECT_EQ(now.allocation[0].freed, 2);
  EXPECT_EQ(now.active_bytes[0].current, 0);
  EXPECT_EQ(now.allocated_bytes[0].peak, 1024 + (3 << 20));
  EXPECT_EQ(now.requested_bytes[0].current, 0);
}

TEST_F(AllocatorTest, ResetsPeaksAndSums) {
  allocator_->free(take(4096));
  pool().reset_peak_stats();
  EXPECT_EQ(stats().allocated_bytes[0].peak, 0);
  EXPECT_EQ(stats().allocated_bytes[0].allocated, 4096);
  pool().reset_accumulated_stats();
  EXPECT_EQ(stats().allocated_bytes[0].allocated, 0);
  EXPECT_EQ(stats().num_device_alloc, 0);
}

TEST_F(AllocatorTest, PeaksAreTheHighestSumsEverHeld) {
  void* small = take(1024);
  void* large = take(3 * kMiB);
  allocator_->free(large);
  void* more = take(2048);
  EXPECT_EQ(stats().allocated_bytes[0].peak, 1024 + (3 << 20));
  EXPECT_EQ(stats().allocated_bytes[1].peak, 1024 + 2048);
  EXPECT_EQ(stats().allocation[0].peak, 2);
  allocator_->record_stream(small, kSide);
  allocator_->free(small);  // still active
  EXPECT_EQ(stats().active_bytes[1].current, 1024 + 2048);
  pool().reset_peak_stats();
  void* third = take(4096);
  EXPECT_EQ(stats().allocated_bytes[0].peak, 2048 + 4096);
  EXPECT_EQ(stats().active_bytes[0].peak, 1024 + 2048 + 4096);
  allocator_->free(more);
  allocator_->free(third);
  EXPECT_EQ(stats().allocated_bytes[0].current, 0);
  EXPECT_EQ(stats().inactive_split_bytes[1].peak, (2 << 20) - 1024);
}

TEST_F(AllocatorTest, SumsGoOnAfterAReset) {
  void* kept = take(1024);
  pool().reset_accumulated_stats();
  void* next = take(2048);
  allocator_->free(kept);
  EXPECT_EQ(stats().allocated_bytes[0].allocated, 2048);
  EXPECT_EQ(stats().allocated_bytes[0].freed, 1024);
  EXPECT_EQ(stats().active[0].freed, 1);
  allocator_->free(next);
}

TEST_F(AllocatorTest, EmptyCacheKeepsSegmentsInUse) {
  void* kept = take(512);
  void* other = take(512);
  void* large = take(3 * kMiB);
  allocator_->free(other);
  allocator_->free(large);
  allocator_->empty_cache();
  EXPECT_EQ(backend_.used(), 2 * kMiB);
  EXPECT_EQ(backend_.device_syncs, 1);
  EXPECT_EQ(backend_.trims, 1);
  EXPECT_EQ(allocator_->device_of(kept), 0);
  EXPECT_EQ(allocator_->device_of(large), -1);
  EXPECT_EQ(stats().inactive_split[0].current, 1);
  allocator_->free(kept);
  allocator_->empty_cache();
  EXPECT_EQ(backend_.used(), 0u);
  EXPECT_EQ(stats().reserved_bytes[0].current, 0);
  EXPECT_EQ(stats().inactive_split[0].current, 0);
  EXPECT_EQ(stats().inactive_split_bytes[0].current, 0);
}

TEST_F(AllocatorTest, UnknownAndRepeatedFreesChangeNothing) {
  int outside = 0;
  auto* block = static_cast<std::byte*>(take(1024));
  EXPECT_EQ(allocator_->free(&outside), 0u);
  EXPECT_EQ(allocator_->free(block + 512), 0u);
  EXPECT_EQ(allocator_->free(block + 1), 0u);
  EXPECT_EQ(allocator_->free(block), 1024u);
  EXPECT_EQ(allocator_->free(block), 0u);
  EXPECT_EQ(stats().allocation[0].current, 0);
}

TEST_F(AllocatorTest, FindsTheDeviceOfInteriorPointers) {
  auto* block = static_cast<std::byte*>(take(4096));
  int outside = 0;
  EXPECT_EQ(allocator_->device_of(block), 0);
  EXPECT_EQ(allocator_->device_of(block + 4095), 0);
  EXPECT_EQ(allocator_->device_of(block + 2 * kMiB), -1);
  EXPECT_EQ(allocator_->device_of(&outside), -1);
  EXPECT_EQ(allocator_->device_of(nullptr), -1);
}

// ---- out of memory ----

TEST_F(AllocatorTest, FreesCachesThenThrowsThenGoesOn) {
  void* kept = take(40 * kMiB);
  allocator_->free(take(20 * kMiB));
  EXPECT_EQ(backend_.used(), 60 * kMiB);
  void* second = take(22 * kMiB);  // only after the cache is given back
  EXPECT_EQ(stats().num_alloc_retries, 1);
  try {
    take(30 * kMiB);
    FAIL() << "64 MiB are not enough";
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(
        error.what(),
        "NPU out of memory. Tried to allocate 30.00 MiB (NPU 0; 64.00 MiB "
        "total capacity; 62.00 MiB already allocated; 62.00 MiB current "
        "active; 2.00 MiB free; 62.00 MiB reserved in total by PyTorch). If "
        "reserved memory is >> allocated memory try setting max_split_size_mb "
        "to avoid fragmentation.");
  }
  EXPECT_EQ(stats().num_ooms, 1);
  allocator_->free(kept);
  allocator_->free(second);
  EXPECT_NE(take(60 * kMiB), nullptr);
}

TEST_F(AllocatorTest, AbsurdSizesAreNotTried) {
  try {
    take(kAbsurd);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(
        error.what(),
        "NPU out of memory. Tried to allocate more than 1EB memory.");
  }
  EXPECT_EQ(backend_.allocs, 0);
  EXPECT_THROW(take(SIZE_MAX), OutOfMemory);
}

TEST_F(AllocatorTest, TakesASmallerSegmentRatherThanFail) {
  take(60 * kMiB);
  EXPECT_NE(take(3 * kMiB), nullptr);  // 20 MiB would be usual
  EXPECT_EQ(backend_.used(), 64 * kMiB);
}

TEST_F(AllocatorTest, FractionLimitsWhatIsReserved) {
  pool().set_memory_fraction(0.5);
  EXPECT_THROW(take(33 * kMiB), OutOfMemory);
  void* fits = take(32 * kMiB);
  EXPECT_THROW(take(512), OutOfMemory);
  pool().set_memory_fraction(1);
  EXPECT_NE(take(512), nullptr);
  allocator_->free(fits);
}

TEST_F(AllocatorTest, DriverFailuresReachTheCaller) {
  backend_.fail_alloc = NPU_E_DEVICE_LOST;
  EXPECT_THROW(take(512), Error);
  backend_.fail_alloc = NPU_OK;
  EXPECT_NE(take(512), nullptr);
}

TEST_F(AllocatorTest, FailureWhileReleasingIsRaisedOnce) {
  allocator_->free(take(512));
  backend_.fail_sync = NPU_E_ASYNC;
  EXPECT_THROW(allocator_->empty_cache(), Error);
  EXPECT_EQ(backend_.used(), 0u);
  EXPECT_NE(take(512), nullptr);
}

// ---- options ----

TEST_F(AllocatorTest, BlocksAboveMaxSplitSizeStayWhole) {
  make("max_split_size_mb:21");
  void* whole = take(30 * kMiB);
  EXPECT_EQ(stats().oversize_allocations.current, 1);
  EXPECT_EQ(stats().oversize_segments.current, 1);
  allocator_->free(whole);
  EXPECT_EQ(stats().oversize_allocations.current, 0);
  EXPECT_NE(take(2 * kMiB), whole);   // small requests may not have it
  EXPECT_EQ(take(29 * kMiB), whole);  // near enough
  EXPECT_EQ(stats().max_split_size, 21 << 20);
}

TEST_F(AllocatorTest, GarbageCollectionReleasesTheLongestIdleFirst) {
  make("garbage_collection_threshold:0.5");
  void* old = take(12 * kMiB);
  void* recent = take(14 * kMiB);
  allocator_->free(old);
  take(512);
  allocator_->free(recent);
  // 28 of 64 MiB are reserved, 16 more pass the half: `old` has to go.
  take(16 * kMiB);
  EXPECT_EQ(allocator_->device_of(old), -1);
  EXPECT_EQ(allocator_->device_of(recent), 0);
  EXPECT_EQ(stats().num_alloc_retries, 0);
}

TEST_F(AllocatorTest, WithoutCachingEveryBlockIsTheDriversOwn) {
  make("", false);
  void* block = take(1000);
  EXPECT_EQ(backend_.used(), 1000u);
  EXPECT_EQ(allocator_->device_of(block), 0);
  EXPECT_EQ(allocator_->free(block), 1000u);
  EXPECT_EQ(backend_.used(), 0u);
  EXPECT_EQ(backend_.device_syncs, 1);
  EXPECT_EQ(stats().reserved_bytes[0].current, 0);
  EXPECT_EQ(stats().inactive_split[0].current, 0);
}

TEST_F(AllocatorTest, SettingsChangeAtRunTime) {
  take(512);
  Config config = allocator_->config();
  parse_config("roundup_power2_divisions:2", "test", config);
  pool().set_memory_fraction(0.75);
  allocator_->set_config(config);
  take(1100 * kKiB);
  EXPECT_EQ(stats().allocated_bytes[2].current, 1536 << 10);
  EXPECT_EQ(pool().memory_fraction(), 0.75);
}

// ---- record_stream ----

TEST_F(AllocatorTest, ABlockUsedByAnotherStreamWaitsForIt) {
  void* block = take(4096);
  EXPECT_TRUE(allocator_->record_stream(block, kSide));
  EXPECT_TRUE(allocator_->record_stream(block, kSide));
  allocator_->free(block);
  EXPECT_EQ(stats().allocation[0].current, 0);
  EXPECT_EQ(stats().active[0].current, 1);
  EXPECT_NE(take(4096), block);
  backend_.finish_streams();
  EXPECT_EQ(take(4096), block);
  EXPECT_EQ(stats().active[0].current, 2);
  EXPECT_EQ(backend_.released_events, 1);
}

TEST_F(AllocatorTest, RecordingTheOwnStreamIsNothing) {
  void* block = take(4096);
  EXPECT_TRUE(allocator_->record_stream(block, kMain));
  allocator_->free(block);
  EXPECT_EQ(take(4096), block);
}

TEST_F(AllocatorTest, RecordStreamTakesInteriorPointers) {
  auto* block = static_cast<std::byte*>(take(4096));
  EXPECT_TRUE(allocator_->record_stream(block + 3000, kSide));
  EXPECT_FALSE(allocator_->record_stream(block + 4096, kSide));
  int outside = 0;
  EXPECT_FALSE(allocator_->record_stream(&outside, kSide));
  allocator_->free(block);
  EXPECT_EQ(stats().active[0].current, 1);
}

TEST_F(AllocatorTest, OutOfMemoryWaitsForStreams) {
  void* block = take(60 * kMiB);
  allocator_->record_stream(block, kSide);
  allocator_->free(block);
  EXPECT_EQ(take(60 * kMiB), block);
  EXPECT_EQ(stats().num_sync_all_streams, 1);
}

TEST_F(AllocatorTest, FailureToRecordIsRaisedAtTheNextAllocation) {
  void* block = take(4096);
  allocator_->record_stream(block, kSide);
  backend_.fail_record = NPU_E_ASYNC;
  allocator_->free(block);
  backend_.fail_record = NPU_OK;
  EXPECT_THROW(take(512), Error);
  EXPECT_EQ(take(4096), block);
}

TEST_F(AllocatorTest, AfterShutdownFreesAreQuiet) {
  void* block = take(4096);
  allocator_->record_stream(block, kSide);
  backend_.fail_record = NPU_E_SHUTDOWN;
  EXPECT_EQ(allocator_->free(block), 4096u);
  EXPECT_EQ(stats().active[0].current, 0);
}

// ---- snapshots and history ----

TEST_F(AllocatorTest, SnapshotShowsSegmentsAndBlocks) {
  void* first = take(1000);
  void* second = take(2048);
  take(3 * kMiB, kSide);
  allocator_->record_stream(second, kSide);
  allocator_->free(second);
  const auto segments = pool().snapshot();
  ASSERT_EQ(segments.size(), 2u);
  const auto& small = segments[segments[0].is_large ? 1 : 0];
  const auto& large = segments[segments[0].is_large ? 0 : 1];
  EXPECT_EQ(small.address, reinterpret_cast<std::uintptr_t>(first));
  EXPECT_EQ(small.total_size, 2 * kMiB);
  EXPECT_EQ(small.allocated_size, 1024u);
  EXPECT_EQ(small.active_size, 3072u);
  EXPECT_EQ(small.requested_size, 1000u);
  ASSERT_EQ(small.blocks.size(), 3u);
  EXPECT_STREQ(small.blocks[0].state, "active_allocated");
  EXPECT_STREQ(small.blocks[1].state, "active_pending_free");
  EXPECT_STREQ(small.blocks[2].state, "inactive");
  EXPECT_EQ(small.blocks[0].requested_size, 1000u);
  EXPECT_EQ(large.stream, kSide.id);
  EXPECT_TRUE(large.is_large);
}

TEST_F(AllocatorTest, HistoryKeepsTheLastEntries) {
  int gathered = 0;
  allocator_->record_history(
      3, Record::kAll, [&] { return std::make_shared<int>(++gathered); });
  void* block = take(512);
  EXPECT_EQ(gathered, 1);
  allocator_->free(block);
  EXPECT_EQ(gathered, 2);
  const auto entries = pool().history(true);
  ASSERT_EQ(entries.size(), 3u);  // segment_alloc fell out
  EXPECT_EQ(entries[0].action, Action::kAlloc);
  EXPECT_EQ(entries[1].action, Action::kFreeRequested);
  EXPECT_EQ(entries[2].action, Action::kFreeCompleted);
  EXPECT_EQ(entries[0].size, 512u);
  EXPECT_EQ(*std::static_pointer_cast<int>(entries[0].context), 1);
  EXPECT_TRUE(pool().history(false).empty());
  allocator_->record_history(0, Record::kNever, nullptr);
  take(512);
  EXPECT_TRUE(pool().history(false).empty());
}

}  // namespace
}  // namespace npu::memory
