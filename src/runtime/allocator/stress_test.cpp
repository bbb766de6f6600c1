// SPDX-License-Identifier: Apache-2.0
// Many threads, random sizes and streams; blocks freed on other threads. Run
// under ASAN and TSAN; every byte written is checked before it is freed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "runtime/allocator/caching_allocator.h"
#include "runtime/allocator/fake_backend.h"
#include "runtime/allocator/oom.h"

namespace npu::memory {
namespace {

struct Held {
  void* ptr;
  std::size_t bytes;
  unsigned char mark;
};

// Blocks handed from thread to thread, as autograd does.
class Exchange {
 public:
  void give(Held held) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_.push_back(held);
  }
  bool take(std::mt19937& random, Held& out) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (held_.empty()) {
      return false;
    }
    std::swap(held_[random() % held_.size()], held_.back());
    out = held_.back();
    held_.pop_back();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<Held> held_;
};

std::size_t random_size(std::mt19937& random) {
  const unsigned kind = random() % 16;
  if (kind < 12) {
    return 1 + random() % 8192;
  }
  if (kind < 15) {
    return 1 + random() % (512 * kKiB);
  }
  return kMiB + random() % (6 * kMiB);
}

// The ends are enough to see an overlap, and cheap.
void write(const Held& held) {
  const std::size_t n = std::min<std::size_t>(held.bytes, 64);
  std::memset(held.ptr, held.mark, n);
  std::memset(static_cast<char*>(held.ptr) + held.bytes - n, held.mark, n);
}

void check(const Held& held) {
  const auto* bytes = static_cast<const unsigned char*>(held.ptr);
  ASSERT_EQ(bytes[0], held.mark);
  ASSERT_EQ(bytes[held.bytes - 1], held.mark);
  ASSERT_EQ(bytes[std::min<std::size_t>(held.bytes, 64) - 1], held.mark);
}

void work(CachingAllocator& allocator, Exchange& exchange, unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 4000; ++i) {
    Held held{};
    const unsigned action = random() % 100;
    if (action < 52) {
      const StreamKey stream{0, random() % 4 == 0 ? 96 : 0};
      held.bytes = random_size(random);
      held.mark = static_cast<unsigned char>(random());
      try {
        held.ptr = allocator.allocate(stream, held.bytes);
      } catch (const OutOfMemory&) {
        continue;
      }
      ASSERT_EQ(allocator.device_of(held.ptr), 0);
      write(held);
      exchange.give(held);
    } else if (action < 98) {
      if (exchange.take(random, held)) {
        check(held);
        if (random() % 16 == 0) {
          allocator.record_stream(held.ptr, {0, 97});
        }
        ASSERT_GE(allocator.free(held.ptr), held.bytes);
      }
    } else if (action < 99) {
      allocator.pool(0).stats();
      allocator.pool(0).snapshot();
      ASSERT_EQ(allocator.device_of(&random), -1);
    } else {
      allocator.empty_cache();
    }
  }
}

// Discards idle blocks all the time, until the workers are done.
void sweep_until(std::atomic<bool>& done, CachingAllocator& allocator) {
  while (!done) {
    allocator.sweep_idle();
    std::this_thread::yield();
  }
}

void run(bool caching, const char* options, bool discards = false) {
  FakeBackend backend(48 * kMiB);
  backend.can_discard = discards;
  backend.scribble = discards;
  backend.all_done = true;  // events are done when asked
  Config config;
  parse_config(options, "test", config);
  config.caching = caching;
  CachingAllocator allocator(backend, config);
  Exchange exchange;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { work(allocator, exchange, 17 * i + 1); });
  }
  std::atomic<bool> done{false};
  std::thread sweeper([&] { sweep_until(done, allocator); });
  for (std::thread& thread : threads) {
    thread.join();
  }
  done = true;
  sweeper.join();
  // On a busy machine the sweeper may have had no turn while they worked.
  allocator.sweep_idle();
  allocator.sweep_idle();
  EXPECT_EQ(!backend.take_discards().empty(), discards);
  std::mt19937 random(5);
  Held held{};
  while (exchange.take(random, held)) {
    check(held);
    EXPECT_GE(allocator.free(held.ptr), held.bytes);
  }
  allocator.empty_cache();
  EXPECT_EQ(backend.used(), 0u);
  EXPECT_EQ(backend.bad_frees, 0);
  const DeviceStats stats = allocator.pool(0).stats();
  for (const StatArray* array :
       {&stats.allocation,
        &stats.active,
        &stats.allocated_bytes,
        &stats.active_bytes,
        &stats.requested_bytes,
        &stats.inactive_split,
        &stats.inactive_split_bytes,
        &stats.segment,
        &stats.reserved_bytes}) {
    for (const Stat& stat : *array) {
      EXPECT_EQ(stat.current, 0);
      EXPECT_EQ(stat.allocated, stat.freed);
    }
  }
}

TEST(Stress, Cached) {
  run(true, "");
}

TEST(Stress, CachedWithOptions) {
  run(true,
      "max_split_size_mb:21,garbage_collection_threshold:0.6,"
      "roundup_power2_divisions:4");
}

// A live block that is discarded loses its marks.
TEST(Stress, CachedWithIdleBlocksDiscarded) {
  run(true, "", true);
}

TEST(Stress, Uncached) {
  run(false, "");
}

TEST(Stress, ReadersNeverSeeAHalfWrittenTable) {
  SegmentTable table;
  static char memory[64][256];
  // Even rows stay, odd rows come and go; a stack address never matches.
  for (int i = 0; i < 64; i += 2) {
    table.insert(memory[i], 256, i, nullptr);
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      while (!stop) {
        for (int i = 0; i < 64; i += 2) {
          ASSERT_EQ(table.find(&memory[i][100]).device, i);
        }
        int local = 0;
        ASSERT_EQ(table.find(&local).device, -1);
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    for (int i = 1; i < 64; i += 2) {
      table.insert(memory[i], 256, i, nullptr);
    }
    for (int i = 1; i < 64; i += 2) {
      table.erase(memory[i]);
    }
  }
  stop = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
}

}  // namespace
}  // namespace npu::memory
