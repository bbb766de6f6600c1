// SPDX-License-Identifier: Apache-2.0
// The host driver's queues (NPU_HOST_ASYNC=1) with room for eight calls: a
// caller that queues more waits, but not for ever.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "driver/driver.h"

namespace npu {
namespace {

constexpr int kRoom = 8;

Driver& host() {
  static Driver* driver = [] {
    ::setenv("NPU_HOST_ASYNC", "1", 1);
    ::setenv("NPU_HOST_QUEUE", std::to_string(kRoom).c_str(), 1);
    Driver* loaded = Driver::load(NPU_HOST_DRIVER);
    loaded->device().open(0);
    return loaded;
  }();
  return *driver;
}

struct Queue {
  Queue() {
    EXPECT_EQ(host().stream().create(0, 0, &handle), NPU_OK);
  }
  ~Queue() {
    EXPECT_EQ(host().stream().destroy(handle), NPU_OK);
  }
  npu_status call(npu_host_fn fn, void* context) const {
    return host().stream().host_call(handle, fn, context);
  }
  void synchronize() const {
    EXPECT_EQ(host().stream().synchronize(handle), NPU_OK);
  }
  npu_stream handle = nullptr;
};

struct Event {
  Event() {
    EXPECT_EQ(host().event().create(0, 0, &handle), NPU_OK);
  }
  ~Event() {
    host().event().destroy(handle);
  }
  npu_event handle = nullptr;
};

void sleep_a_little(void* context) {
  std::this_thread::sleep_for(std::chrono::microseconds(500));
  ++*static_cast<std::atomic<int>*>(context);
}

TEST(HostQueue, NoMoreThanItsRoomWaits) {
  const Queue queue;
  std::atomic<int> done{0};
  int most = 0;
  for (int i = 1; i <= 10 * kRoom; ++i) {
    ASSERT_EQ(queue.call(&sleep_a_little, &done), NPU_OK);
    most = std::max(most, i - done.load());
  }
  EXPECT_LE(most, kRoom + 1);  // one more runs
  EXPECT_GE(most, kRoom / 2);  // and the queue is used
  queue.synchronize();
  EXPECT_EQ(done.load(), 10 * kRoom);
}

TEST(HostQueue, StreamsThatWaitForEachOther) {
  const Queue one;
  const Queue two;
  const Event first;
  const Event second;
  for (int i = 0; i < 100 * kRoom; ++i) {
    ASSERT_EQ(host().event().record(first.handle, one.handle), NPU_OK);
    ASSERT_EQ(host().stream().wait_event(two.handle, first.handle), NPU_OK);
    ASSERT_EQ(host().event().record(second.handle, two.handle), NPU_OK);
    ASSERT_EQ(host().stream().wait_event(one.handle, second.handle), NPU_OK);
  }
  one.synchronize();
  two.synchronize();
}

TEST(HostQueue, HostFunctionsMayQueueWork) {
  struct Context {
    const Queue* queue;
    const Event* event;
    std::atomic<int> done{0};
  } context{nullptr, nullptr};
  const Queue queue;
  const Event event;
  context.queue = &queue;
  context.event = &event;
  ASSERT_EQ(
      queue.call(
          [](void* p) {
            auto& c = *static_cast<Context*>(p);
            for (int i = 0; i < 4 * kRoom; ++i) {
              host().event().record(c.event->handle, c.queue->handle);
              c.queue->call(&sleep_a_little, &c.done);
            }
          },
          &context),
      NPU_OK);
  queue
      .synchronize();  // what the function queued comes after what it waits for
  queue.synchronize();
  EXPECT_EQ(context.done.load(), 4 * kRoom);
}

// A program's fault on most hardware; here it is slow, and comes to an end.
TEST(HostQueue, AHostFunctionThatWaitsForTheSubmitter) {
  const Queue queue;
  std::atomic<bool> go{false};
  std::atomic<int> done{0};
  ASSERT_EQ(
      queue.call(
          [](void* p) { static_cast<std::atomic<bool>*>(p)->wait(false); },
          &go),
      NPU_OK);
  for (int i = 0; i < kRoom + 2; ++i) {
    ASSERT_EQ(queue.call(&sleep_a_little, &done), NPU_OK);
  }
  go = true;
  go.notify_all();
  queue.synchronize();
  EXPECT_EQ(done.load(), kRoom + 2);
}

// Asking for an event never waits for room in the queue it is recorded on.
TEST(HostQueue, AnEventCanBeAskedForWhileItsRecordingWaits) {
  const Queue queue;
  const Event event;
  std::atomic<int> done{0};
  std::atomic<bool> over{false};
  std::thread submitter([&] {
    for (int i = 0; i < 10 * kRoom; ++i) {
      EXPECT_EQ(host().event().record(event.handle, queue.handle), NPU_OK);
      EXPECT_EQ(queue.call(&sleep_a_little, &done), NPU_OK);
    }
    over = true;
  });
  while (!over) {
    const npu_status status = host().event().query(event.handle);
    EXPECT_TRUE(status == NPU_OK || status == NPU_NOT_READY);
  }
  submitter.join();
  queue.synchronize();
}

}  // namespace
}  // namespace npu
