// SPDX-License-Identifier: Apache-2.0
// Group event: query, synchronize, elapsed time.
#include <atomic>
#include <chrono>
#include <thread>

#include "kit.h"

namespace npu::kit {
namespace {

TEST(event, NeverRecordedIsDone) {
  Event event;
  EXPECT_EQ(event_table().query(event.get()), NPU_OK);
  NPU_EXPECT_OK(event_table().synchronize(event.get()));
}

TEST(event, SynchronizeWaitsForTheWork) {
  for (const std::uint32_t flags :
       {0u,
        NPU_EVENT_TIMING,
        NPU_EVENT_BLOCKING,
        NPU_EVENT_TIMING | NPU_EVENT_BLOCKING}) {
    constexpr std::uint64_t kBytes = 1 << 18;
    void* pinned = nullptr;
    NPU_ASSERT_OK(memory_table().host_alloc(kBytes, &pinned));
    auto* bytes = static_cast<std::uint8_t*>(pinned);
    bytes[kBytes - 1] = 0;
    Buffer a(kBytes);
    Stream stream;
    Event event(flags);
    NPU_ASSERT_OK(memory_table().set_bytes(stream.get(), a.data(), 7, kBytes));
    NPU_ASSERT_OK(
        memory_table().copy_to_host(stream.get(), pinned, a.data(), kBytes));
    NPU_ASSERT_OK(event_table().record(event.get(), stream.get()));
    NPU_ASSERT_OK(event_table().synchronize(event.get()));
    EXPECT_EQ(bytes[kBytes - 1], 7);
    EXPECT_EQ(event_table().query(event.get()), NPU_OK);
    stream.synchronize();
    NPU_EXPECT_OK(memory_table().host_free(pinned));
  }
}

// A host call that waits shows the time in which the event is not done. Only
// for drivers with real asynchrony: on others host_call runs at once.
TEST(event, QueryIsNotReadyWhileWorkIsQueued) {
  Stream stream;
  Event event;
  struct Gate {
    std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> open{false};
    std::atomic<bool> runs_inline{false};
  } gate;
  NPU_ASSERT_OK(stream_table().host_call(
      stream.get(),
      [](void* p) {
        auto* g = static_cast<Gate*>(p);
        if (std::this_thread::get_id() == g->caller) {
          g->runs_inline = true;
          return;
        }
        while (!g->open) {
          std::this_thread::yield();
        }
      },
      &gate));
  NPU_ASSERT_OK(event_table().record(event.get(), stream.get()));
  if (gate.runs_inline) {
    EXPECT_EQ(event_table().query(event.get()), NPU_OK);
    return;
  }
  EXPECT_EQ(event_table().query(event.get()), NPU_NOT_READY);
  EXPECT_EQ(stream_table().query(stream.get()), NPU_NOT_READY);
  gate.open = true;
  NPU_EXPECT_OK(event_table().synchronize(event.get()));
  EXPECT_EQ(event_table().query(event.get()), NPU_OK);
  stream.synchronize();
}

TEST(event, SecondRecordReplacesTheFirst) {
  Stream stream;
  Event event(NPU_EVENT_TIMING);
  Event end(NPU_EVENT_TIMING);
  NPU_ASSERT_OK(event_table().record(event.get(), stream.get()));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  NPU_ASSERT_OK(event_table().record(event.get(), stream.get()));
  NPU_ASSERT_OK(event_table().record(end.get(), stream.get()));
  stream.synchronize();
  double all = -1;
  NPU_ASSERT_OK(event_table().elapsed_ms(event.get(), end.get(), &all));
  EXPECT_GE(all, 0);
}

TEST(event, ElapsedGrowsWithTheWork) {
  Stream stream;
  Event start(NPU_EVENT_TIMING);
  Event end(NPU_EVENT_TIMING);
  NPU_ASSERT_OK(event_table().record(start.get(), stream.get()));
  NPU_ASSERT_OK(stream_table().host_call(
      stream.get(),
      [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); },
      nullptr));
  NPU_ASSERT_OK(event_table().record(end.get(), stream.get()));
  NPU_ASSERT_OK(event_table().synchronize(end.get()));
  double ms = -1;
  NPU_ASSERT_OK(event_table().elapsed_ms(start.get(), end.get(), &ms));
  EXPECT_GE(ms, 9.0);
  double back = 1;
  NPU_ASSERT_OK(event_table().elapsed_ms(end.get(), start.get(), &back));
  EXPECT_LE(back, 0.0);
}

TEST(event, ElapsedNeedsTimingAndRecords) {
  Stream stream;
  Event plain;
  Event timed(NPU_EVENT_TIMING);
  Event never(NPU_EVENT_TIMING);
  NPU_ASSERT_OK(event_table().record(plain.get(), stream.get()));
  NPU_ASSERT_OK(event_table().record(timed.get(), stream.get()));
  stream.synchronize();
  double ms = 0;
  EXPECT_EQ(
      event_table().elapsed_ms(plain.get(), timed.get(), &ms), NPU_E_INVALID);
  EXPECT_EQ(
      event_table().elapsed_ms(timed.get(), never.get(), &ms), NPU_E_INVALID);
}

TEST(event, FromAnyThread) {
  Stream stream;
  Event event;
  NPU_ASSERT_OK(event_table().record(event.get(), stream.get()));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const npu_status status = event_table().query(event.get());
        EXPECT_TRUE(status == NPU_OK || status == NPU_NOT_READY);
      }
      NPU_EXPECT_OK(event_table().synchronize(event.get()));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  stream.synchronize();
}

TEST(event, MayOutliveItsStream) {
  Event event;
  {
    Stream stream;
    NPU_ASSERT_OK(event_table().record(event.get(), stream.get()));
  }
  NPU_EXPECT_OK(event_table().synchronize(event.get()));
  EXPECT_EQ(event_table().query(event.get()), NPU_OK);
}

}  // namespace
}  // namespace npu::kit
