// SPDX-License-Identifier: Apache-2.0
// Group stream: order of work, waits between streams, host calls.
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "kit.h"

namespace npu::kit {
namespace {

TEST(stream, CreateManyDestroyMany) {
  std::vector<npu_stream> streams(64);
  for (npu_stream& stream : streams) {
    NPU_ASSERT_OK(stream_table().create(0, 0, &stream));
    EXPECT_NE(stream, nullptr);
    EXPECT_EQ(stream_table().query(stream), NPU_OK) << "new and not idle";
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    for (std::size_t j = i + 1; j < streams.size(); ++j) {
      EXPECT_NE(streams[i], streams[j]);
    }
  }
  for (npu_stream stream : streams) {
    NPU_EXPECT_OK(stream_table().destroy(stream));
  }
}

TEST(stream, PrioritiesAreClamped) {
  std::int32_t least = 0;
  std::int32_t greatest = 0;
  if (stream_table().priority_range) {
    NPU_ASSERT_OK(stream_table().priority_range(0, &least, &greatest));
    EXPECT_LE(greatest, least) << "lower number = more urgent";
  }
  for (const std::int32_t priority : {-1000, -1, 0, 1, 1000}) {
    Stream stream(0, priority);
    stream.synchronize();
  }
}

TEST(stream, WorkIsInOrder) {
  constexpr int kSteps = 200;
  constexpr std::uint64_t kBytes = 4096;
  Buffer a(kBytes);
  Buffer b(kBytes);
  Buffer log(kSteps);
  Stream stream;
  for (int step = 0; step < kSteps; ++step) {
    NPU_ASSERT_OK(
        memory_table().set_bytes(stream.get(), a.data(), step, kBytes));
    NPU_ASSERT_OK(memory_table().copy_on_device(
        stream.get(), b.data(), a.data(), kBytes));
    NPU_ASSERT_OK(memory_table().copy_on_device(
        stream.get(),
        static_cast<std::uint8_t*>(log.data()) + step,
        static_cast<std::uint8_t*>(b.data()) + kBytes - 1,
        1));
  }
  stream.synchronize();
  const Bytes got = log.get();
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(got[static_cast<std::size_t>(step)], step & 0xff);
  }
}

struct Calls {
  std::vector<int> seen;
  struct Item {
    Calls* calls;
    int number;
  };
  static void call(void* context) {
    const auto* item = static_cast<Item*>(context);
    item->calls->seen.push_back(item->number);
  }
};

TEST(stream, HostCallsRunInOrderAndBeforeSynchronize) {
  Calls calls;
  std::vector<Calls::Item> items;
  for (int i = 0; i < 100; ++i) {
    items.push_back({&calls, i});
  }
  Stream stream;
  Buffer a(1 << 16);
  for (Calls::Item& item : items) {
    NPU_ASSERT_OK(
        memory_table().set_bytes(stream.get(), a.data(), 1, a.bytes()));
    NPU_ASSERT_OK(stream_table().host_call(stream.get(), Calls::call, &item));
  }
  stream.synchronize();
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(calls.seen, expected);
}

// A host call sees the work queued before it, and holds back what comes after.
TEST(stream, HostCallSitsBetweenItsNeighbours) {
  constexpr std::uint64_t kBytes = 1 << 16;
  void* pinned = nullptr;
  NPU_ASSERT_OK(memory_table().host_alloc(kBytes, &pinned));
  Buffer a(kBytes);
  Stream stream;
  NPU_ASSERT_OK(memory_table().set_bytes(stream.get(), a.data(), 5, kBytes));
  NPU_ASSERT_OK(
      memory_table().copy_to_host(stream.get(), pinned, a.data(), kBytes));
  struct Context {
    std::uint8_t* bytes;
    bool saw_all;
  } context{static_cast<std::uint8_t*>(pinned), false};
  NPU_ASSERT_OK(stream_table().host_call(
      stream.get(),
      [](void* p) {
        auto* c = static_cast<Context*>(p);
        c->saw_all = true;
        for (std::uint64_t i = 0; i < kBytes; ++i) {
          c->saw_all = c->saw_all && c->bytes[i] == 5;
          c->bytes[i] = 6;
        }
      },
      &context));
  NPU_ASSERT_OK(
      memory_table().copy_to_device(stream.get(), a.data(), pinned, kBytes));
  stream.synchronize();
  EXPECT_TRUE(context.saw_all);
  EXPECT_EQ(a.get(), Bytes(kBytes, 6));
  NPU_EXPECT_OK(memory_table().host_free(pinned));
}

// The CPU rungs of a driver that says so read memory without synchronising.
// The last piece of work has left the queue, and is not over.
TEST(stream, QueryIsNotReadyWhileTheLastWorkRuns) {
  struct State {
    std::atomic<bool> started{false};
    std::atomic<bool> over{false};
  } state;
  Stream stream;
  const npu_host_fn slow = [](void* context) {
    auto& given = *static_cast<State*>(context);
    given.started = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    given.over = true;
  };
  NPU_ASSERT_OK(stream_table().host_call(stream.get(), slow, &state));
  while (!state.started) {
    std::this_thread::yield();
  }
  const npu_status status = stream_table().query(stream.get());
  if (!state.over) {
    EXPECT_EQ(status, NPU_NOT_READY) << "work is still running";
  }
  stream.synchronize();
  EXPECT_TRUE(state.over);
  NPU_EXPECT_OK(stream_table().query(stream.get()));
}

TEST(stream, InlineWorkIsDoneAtOnce) {
  if ((driver().flags & NPU_DRIVER_INLINE) == 0) {
    NPU_NOT_DECLARED("NPU_DRIVER_INLINE");
  }
  Stream stream;
  Event event;
  Buffer a(1 << 20);
  const auto is_over = [&](const char* what) {
    const npu_status status = stream_table().query(stream.get());
    EXPECT_EQ(status, NPU_OK)
        << "the driver says NPU_DRIVER_INLINE, and " << what << " is not over";
    stream.synchronize();
  };
  npu_op_caps caps;
  const bool fills = declares(NPU_KIND_FILL, 0, &caps) &&
                     caps.plan_use == NPU_PLAN_NONE &&
                     ((caps.dtypes[0] >> NPU_F32) & 1) != 0;
  Frame fill(NPU_KIND_FILL);
  fill.out(a, flat(NPU_F32, 1 << 18)).attrs(npu_fill_attrs{});
  std::atomic<bool> ran{false};
  NPU_ASSERT_OK(stream_table().host_call(
      stream.get(),
      [](void* p) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        *static_cast<std::atomic<bool>*>(p) = true;
      },
      &ran));
  EXPECT_TRUE(ran.load())
      << "the driver says NPU_DRIVER_INLINE, and a host function has not run";
  stream.synchronize();
  for (int i = 0; i < 20; ++i) {
    NPU_ASSERT_OK(
        memory_table().set_bytes(stream.get(), a.data(), i, a.bytes()));
    is_over("a copy");
    NPU_ASSERT_OK(event_table().record(event.get(), stream.get()));
    EXPECT_EQ(event_table().query(event.get()), NPU_OK)
        << "the driver says NPU_DRIVER_INLINE, and an event is not recorded";
    if (fills) {
      NPU_ASSERT_OK(op_table().run(stream.get(), &fill.call()));
      is_over("a kernel");
    }
  }
}

TEST(stream, DestroyFinishesTheWork) {
  Buffer a(1 << 20);
  npu_stream stream = nullptr;
  NPU_ASSERT_OK(stream_table().create(0, 0, &stream));
  NPU_ASSERT_OK(memory_table().set_bytes(stream, a.data(), 1, a.bytes()));
  NPU_ASSERT_OK(memory_table().set_bytes(stream, a.data(), 2, a.bytes()));
  NPU_ASSERT_OK(stream_table().destroy(stream));
  NPU_ASSERT_OK(device_table().synchronize(0));
  EXPECT_EQ(a.get(), Bytes(1 << 20, 2));
}

TEST(stream, WaitEventOrdersTwoStreams) {
  constexpr std::uint64_t kBytes = 1 << 18;
  for (int round = 0; round < 10; ++round) {
    Buffer a(kBytes);
    Buffer b(kBytes);
    Stream producer;
    Stream consumer;
    Event ready;
    for (int i = 0; i <= 10; ++i) {
      NPU_ASSERT_OK(memory_table().set_bytes(
          producer.get(), a.data(), round + i, kBytes));
    }
    NPU_ASSERT_OK(event_table().record(ready.get(), producer.get()));
    NPU_ASSERT_OK(stream_table().wait_event(consumer.get(), ready.get()));
    NPU_ASSERT_OK(memory_table().copy_on_device(
        consumer.get(), b.data(), a.data(), kBytes));
    consumer.synchronize();
    EXPECT_EQ(b.get(), Bytes(kBytes, static_cast<std::uint8_t>(round + 10)));
    producer.synchronize();
  }
}

// The same with a producer that is late for certain: a host function holds it.
TEST(stream, WaitEventWaitsForALateStream) {
  constexpr std::uint64_t kBytes = 4096;
  Buffer a(kBytes);
  Buffer b(kBytes);
  Stream producer;
  Stream consumer;
  Event ready;
  NPU_ASSERT_OK(memory_table().set_bytes(producer.get(), a.data(), 1, kBytes));
  producer.synchronize();
  const auto hold = [](void*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  NPU_ASSERT_OK(stream_table().host_call(producer.get(), hold, nullptr));
  NPU_ASSERT_OK(memory_table().set_bytes(producer.get(), a.data(), 2, kBytes));
  NPU_ASSERT_OK(event_table().record(ready.get(), producer.get()));
  NPU_ASSERT_OK(stream_table().wait_event(consumer.get(), ready.get()));
  NPU_ASSERT_OK(memory_table().copy_on_device(
      consumer.get(), b.data(), a.data(), kBytes));
  consumer.synchronize();
  EXPECT_EQ(b.get(), Bytes(kBytes, 2))
      << "work after wait_event ran before the event's own stream reached it";
  producer.synchronize();
}

// Queued waits keep what was recorded when they were queued; a later record
// does not hold them.
TEST(stream, WaitKeepsTheRecordItSaw) {
  Stream first;
  Stream second;
  Stream third;
  Event event;
  Buffer a(4096);
  NPU_ASSERT_OK(memory_table().set_bytes(first.get(), a.data(), 1, 4096));
  NPU_ASSERT_OK(event_table().record(event.get(), first.get()));
  NPU_ASSERT_OK(stream_table().wait_event(second.get(), event.get()));
  Event later;
  NPU_ASSERT_OK(event_table().record(later.get(), second.get()));
  // The second record comes after `second` on purpose: waiting for it there
  // would never end.
  NPU_ASSERT_OK(stream_table().wait_event(third.get(), later.get()));
  NPU_ASSERT_OK(event_table().record(event.get(), third.get()));
  second.synchronize();
  third.synchronize();
  first.synchronize();
}

TEST(stream, WaitForAnEventNeverRecordedIsNoWait) {
  Stream stream;
  Event event;
  NPU_ASSERT_OK(stream_table().wait_event(stream.get(), event.get()));
  stream.synchronize();
}

TEST(stream, EventMayBeDestroyedAfterTheWaitWasQueued) {
  Stream producer;
  Stream consumer;
  Buffer a(1 << 20);
  {
    Event event;
    NPU_ASSERT_OK(
        memory_table().set_bytes(producer.get(), a.data(), 3, a.bytes()));
    NPU_ASSERT_OK(event_table().record(event.get(), producer.get()));
    NPU_ASSERT_OK(stream_table().wait_event(consumer.get(), event.get()));
  }
  NPU_ASSERT_OK(
      memory_table().set_bytes(consumer.get(), a.data(), 4, a.bytes()));
  consumer.synchronize();
  EXPECT_EQ(a.get(), Bytes(1 << 20, 4));
}

TEST(stream, WaitsBetweenDevices) {
  if (device_count() < 2) {
    GTEST_SKIP() << "one device";
  }
  constexpr std::uint64_t kBytes = 1 << 16;
  Buffer a(kBytes, 0);
  Buffer b(kBytes, 1);
  Stream zero(0);
  Stream one(1);
  Event event(0, 0);
  NPU_ASSERT_OK(memory_table().set_bytes(zero.get(), a.data(), 9, kBytes));
  NPU_ASSERT_OK(event_table().record(event.get(), zero.get()));
  NPU_ASSERT_OK(stream_table().wait_event(one.get(), event.get()));
  NPU_ASSERT_OK(
      memory_table().copy_peer(one.get(), 1, b.data(), 0, a.data(), kBytes));
  one.synchronize();
  EXPECT_EQ(b.get(), Bytes(kBytes, 9));
}

TEST(stream, OneStreamFromManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 200;
  Stream stream;
  std::atomic<int> calls{0};
  std::vector<std::thread> threads;
  const bool locked = properties().needs_stream_lock != 0;
  if (locked) {
    GTEST_SKIP() << "the driver asks the host side to lock";
  }
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) {
        NPU_EXPECT_OK(stream_table().host_call(
            stream.get(),
            [](void* p) { ++*static_cast<std::atomic<int>*>(p); },
            &calls));
        const npu_status status = stream_table().query(stream.get());
        EXPECT_TRUE(status == NPU_OK || status == NPU_NOT_READY);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  stream.synchronize();
  EXPECT_EQ(calls.load(), kThreads * kCalls);
}

TEST(stream, NativeHandle) {
  if (!stream_table().native_handle) {
    NPU_NOT_DECLARED("stream native_handle");
  }
  Stream stream;
  EXPECT_NE(stream_table().native_handle(stream.get()), nullptr);
}

}  // namespace
}  // namespace npu::kit
