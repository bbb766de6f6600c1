// SPDX-License-Identifier: Apache-2.0
// Group memory: allocation, pointers, copies of bytes in all directions.
#include <cstring>
#include <numeric>
#include <thread>

#include "kit.h"

namespace npu::kit {
namespace {

Bytes pattern(std::uint64_t bytes, unsigned seed = 1) {
  Bytes out(bytes);
  std::uint32_t x = seed * 2654435761u + 12345u;
  for (std::uint8_t& byte : out) {
    x = x * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(x >> 24);
  }
  return out;
}

constexpr std::uint64_t kSizes[] = {
    1, 2, 3, 7, 8, 63, 64, 65, 511, 4096, 4097, 100003, 3 << 20};

TEST(memory, AllocIsAlignedAndDistinct) {
  const std::uint32_t alignment = properties().allocation_alignment;
  std::vector<void*> taken;
  for (const std::uint64_t bytes : kSizes) {
    void* ptr = nullptr;
    NPU_ASSERT_OK(memory_table().alloc(0, bytes, &ptr));
    ASSERT_NE(ptr, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(ptr) % alignment, 0u) << bytes;
    for (void* other : taken) {
      EXPECT_NE(other, ptr);
    }
    taken.push_back(ptr);
  }
  for (void* ptr : taken) {
    NPU_EXPECT_OK(memory_table().free(0, ptr));
  }
}

TEST(memory, OutOfMemoryThenUsableAgain) {
  const std::uint64_t total = properties().total_memory;
  void* ptr = nullptr;
  clear_error();
  EXPECT_EQ(
      memory_table().alloc(0, total + (1 << 20), &ptr), NPU_E_OUT_OF_MEMORY);
  EXPECT_NE(last_error(), "") << "no error text";
  EXPECT_EQ(
      memory_table().alloc(0, UINT64_MAX - 4096, &ptr), NPU_E_OUT_OF_MEMORY);
  Buffer small(pattern(1000));
  EXPECT_EQ(small.get(), pattern(1000));
}

TEST(memory, CapacityIsReachedAndGivenBack) {
  const npu_device_properties p = properties();
#if defined(__SANITIZE_ADDRESS__)
  if (p.total_memory > (std::uint64_t{1} << 30)) {
    GTEST_SKIP() << "too much memory to fill under ASAN";
  }
#endif
  std::uint64_t piece = p.total_memory / 8;
  if (p.max_single_allocation != 0) {
    piece = std::min(piece, p.max_single_allocation);
  }
  std::vector<void*> taken;
  npu_status status = NPU_OK;
  while (status == NPU_OK && taken.size() < 4096) {
    void* ptr = nullptr;
    status = memory_table().alloc(0, piece, &ptr);
    if (status == NPU_OK) {
      taken.push_back(ptr);
    }
  }
  EXPECT_EQ(status, NPU_E_OUT_OF_MEMORY) << explain(status);
  EXPECT_GE(taken.size(), 4u) << "half of the memory cannot be taken";
  for (void* ptr : taken) {
    NPU_EXPECT_OK(memory_table().free(0, ptr));
  }
  void* again = nullptr;
  NPU_ASSERT_OK(memory_table().alloc(0, piece, &again));
  NPU_EXPECT_OK(memory_table().free(0, again));
}

TEST(memory, PointerInfoKnowsInteriorPointers) {
  void* ptr = nullptr;
  NPU_ASSERT_OK(memory_table().alloc(0, 10000, &ptr));
  for (const std::uint64_t at : {0, 1, 4096, 9999}) {
    npu_pointer_info info{};
    info.size = sizeof(info);
    NPU_EXPECT_OK(
        memory_table().pointer_info(static_cast<char*>(ptr) + at, &info));
    EXPECT_EQ(info.kind, NPU_MEMORY_DEVICE) << at;
    EXPECT_EQ(info.device, 0);
    EXPECT_EQ(info.base, ptr);
    EXPECT_GE(info.bytes, 10000u);
  }
  NPU_EXPECT_OK(memory_table().free(0, ptr));
  npu_pointer_info info{};
  info.size = sizeof(info);
  NPU_EXPECT_OK(memory_table().pointer_info(ptr, &info));
  EXPECT_EQ(info.kind, NPU_MEMORY_UNKNOWN) << "after free";
}

TEST(memory, PointerInfoOfOtherMemory) {
  int local = 0;
  npu_pointer_info info{};
  info.size = sizeof(info);
  NPU_EXPECT_OK(memory_table().pointer_info(&local, &info));
  EXPECT_EQ(info.kind, NPU_MEMORY_UNKNOWN);
  EXPECT_EQ(info.device, -1);
  NPU_EXPECT_OK(memory_table().pointer_info(nullptr, &info));
  EXPECT_EQ(info.kind, NPU_MEMORY_UNKNOWN);
  void* pinned = nullptr;
  NPU_ASSERT_OK(memory_table().host_alloc(5000, &pinned));
  NPU_EXPECT_OK(
      memory_table().pointer_info(static_cast<char*>(pinned) + 4000, &info));
  EXPECT_EQ(info.kind, NPU_MEMORY_HOST);
  EXPECT_EQ(info.device, -1);
  EXPECT_EQ(info.base, pinned);
  NPU_EXPECT_OK(memory_table().host_free(pinned));
}

TEST(memory, DevicesHaveTheirOwnMemory) {
  for (npu_device device = 0; device < device_count(); ++device) {
    Buffer buffer(pattern(777), device);
    npu_pointer_info info{};
    info.size = sizeof(info);
    NPU_EXPECT_OK(memory_table().pointer_info(buffer.data(), &info));
    EXPECT_EQ(info.device, device);
    EXPECT_EQ(buffer.get(), pattern(777));
  }
}

TEST(memory, RoundTripOfEverySize) {
  for (const std::uint64_t bytes : kSizes) {
    const Bytes content = pattern(bytes);
    Buffer a(content);
    Buffer b(bytes);
    Stream stream;
    NPU_ASSERT_OK(
        memory_table().copy_on_device(stream.get(), b.data(), a.data(), bytes));
    stream.synchronize();
    ASSERT_EQ(b.get(), content) << bytes << " bytes";
  }
}

TEST(memory, RoundTripAtOddOffsets) {
  const Bytes content = pattern(1000);
  Buffer a(content);
  Buffer b(1000);
  Stream stream;
  for (const std::uint64_t at : {1u, 3u, 13u}) {
    auto* src = static_cast<std::uint8_t*>(a.data()) + at;
    auto* dst = static_cast<std::uint8_t*>(b.data()) + 2 * at;
    NPU_ASSERT_OK(memory_table().copy_on_device(stream.get(), dst, src, 500));
    Bytes got(500);
    NPU_ASSERT_OK(
        memory_table().copy_to_host(stream.get(), got.data(), dst, 500));
    stream.synchronize();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), content.begin() + at));
  }
}

TEST(memory, ZeroBytesIsNoWork) {
  Buffer a(pattern(64));
  Bytes host(64, 9);
  Stream stream;
  NPU_EXPECT_OK(
      memory_table().copy_to_device(stream.get(), a.data(), host.data(), 0));
  NPU_EXPECT_OK(
      memory_table().copy_to_host(stream.get(), host.data(), a.data(), 0));
  NPU_EXPECT_OK(memory_table().set_bytes(stream.get(), a.data(), 1, 0));
  stream.synchronize();
  EXPECT_EQ(a.get(), pattern(64));
  EXPECT_EQ(host, Bytes(64, 9));
}

// Ordinary host memory may be reused as soon as the call returns.
TEST(memory, PageableSourceIsFreeAfterTheCall) {
  constexpr std::uint64_t kBytes = 1 << 20;
  Buffer a(kBytes);
  Stream stream;
  Bytes host = pattern(kBytes);
  NPU_ASSERT_OK(memory_table().copy_to_device(
      stream.get(), a.data(), host.data(), kBytes));
  std::memset(host.data(), 0, kBytes);
  stream.synchronize();
  EXPECT_EQ(a.get(), pattern(kBytes));
}

// Ordinary host memory holds the bytes when the call returns.
TEST(memory, PageableTargetIsThereAfterTheCall) {
  constexpr std::uint64_t kBytes = 1 << 20;
  Buffer a(pattern(kBytes));
  Bytes host(kBytes);
  Stream stream;
  NPU_ASSERT_OK(
      memory_table().copy_to_host(stream.get(), host.data(), a.data(), kBytes));
  EXPECT_EQ(host, pattern(kBytes));
}

TEST(memory, PinnedMemoryBothWays) {
  constexpr std::uint64_t kBytes = 300001;
  void* pinned = nullptr;
  NPU_ASSERT_OK(memory_table().host_alloc(kBytes, &pinned));
  const Bytes content = pattern(kBytes, 5);
  std::memcpy(pinned, content.data(), kBytes);
  Buffer a(kBytes);
  Stream stream;
  NPU_ASSERT_OK(
      memory_table().copy_to_device(stream.get(), a.data(), pinned, kBytes));
  stream.synchronize();
  std::memset(pinned, 0, kBytes);
  NPU_ASSERT_OK(
      memory_table().copy_to_host(stream.get(), pinned, a.data(), kBytes));
  stream.synchronize();
  EXPECT_EQ(std::memcmp(pinned, content.data(), kBytes), 0);
  NPU_EXPECT_OK(memory_table().host_free(pinned));
}

// What the driver says is over can be looked at in the next instruction: a copy
// that ends a few microseconds later is a wrong result on a fast machine. Two
// sources take turns, so that stale bytes are seen without clearing them.
class AtOnce {
 public:
  AtOnce() {
    NPU_EXPECT_OK(memory_table().host_alloc(kBytes, &pinned_));
  }
  ~AtOnce() {
    NPU_EXPECT_OK(stream_table().synchronize(stream_.get()));
    NPU_EXPECT_OK(memory_table().host_free(pinned_));
  }
  // wait(target): copies `source` to `target` and comes back when that is over.
  template <class Wait>
  void expect(const char* what, void* target, Wait wait) {
    const auto* last = static_cast<volatile std::uint8_t*>(target) + kBytes - 1;
    for (int round = 0; round < 40; ++round) {
      wait(round % 2 == 0 ? zero_.data() : one_.data(), target);
      const std::uint8_t found = *last;
      ASSERT_EQ(found, round % 2) << what << " is not over, round " << round;
    }
  }
  void* pinned() const {
    return pinned_;
  }
  npu_stream stream() const {
    return stream_.get();
  }
  void to_host(void* target, const void* source) {
    NPU_ASSERT_OK(
        memory_table().copy_to_host(stream_.get(), target, source, kBytes));
  }

  static constexpr std::uint64_t kBytes = 4096;

 private:
  Buffer zero_{Bytes(kBytes, 0)};
  Buffer one_{Bytes(kBytes, 1)};
  Stream stream_;
  void* pinned_ = nullptr;
};

TEST(memory, CopiesToTheHostAreOverWhenTheDriverSaysSo) {
  Bytes ordinary(AtOnce::kBytes);  // outlives copies that are late
  AtOnce at_once;
  const npu_stream stream = at_once.stream();
  at_once.expect(
      "copy_to_host to ordinary memory",
      ordinary.data(),
      [&](void* source, void* target) { at_once.to_host(target, source); });
  at_once.expect(
      "copy_to_host to pinned memory after stream.synchronize",
      at_once.pinned(),
      [&](void* source, void* target) {
        at_once.to_host(target, source);
        NPU_ASSERT_OK(stream_table().synchronize(stream));
      });
  Event event;
  at_once.expect(
      "copy_to_host to pinned memory after event.synchronize",
      at_once.pinned(),
      [&](void* source, void* target) {
        at_once.to_host(target, source);
        NPU_ASSERT_OK(event_table().record(event.get(), stream));
        NPU_ASSERT_OK(event_table().synchronize(event.get()));
      });
  at_once.expect(
      "copy_to_host to pinned memory after stream.query",
      at_once.pinned(),
      [&](void* source, void* target) {
        at_once.to_host(target, source);
        while (stream_table().query(stream) == NPU_NOT_READY) {
        }
      });
}

TEST(memory, CopiesOnTheDeviceAreOverWhenTheDriverSaysSo) {
  Bytes ordinary(AtOnce::kBytes);  // outlives copies that are late
  AtOnce at_once;
  Buffer between(Bytes(AtOnce::kBytes, 7));
  Stream other;
  const auto through = [&](void* source, void* target, npu_stream reader) {
    NPU_ASSERT_OK(memory_table().copy_on_device(
        at_once.stream(), between.data(), source, AtOnce::kBytes));
    if (reader != at_once.stream()) {
      NPU_ASSERT_OK(stream_table().synchronize(at_once.stream()));
    }
    NPU_ASSERT_OK(memory_table().copy_to_host(
        reader, target, between.data(), AtOnce::kBytes));
  };
  for (const npu_stream reader : {at_once.stream(), other.get()}) {
    at_once.expect(
        reader == other.get() ? "copy_on_device, seen by another stream"
                              : "copy_on_device, seen by its stream",
        ordinary.data(),
        [&](void* source, void* target) { through(source, target, reader); });
  }
}

TEST(memory, SetBytes) {
  for (const std::uint64_t bytes : kSizes) {
    Buffer a(bytes);
    Stream stream;
    NPU_ASSERT_OK(
        memory_table().set_bytes(stream.get(), a.data(), 0x1AB, bytes));
    stream.synchronize();
    ASSERT_EQ(a.get(), Bytes(bytes, 0xAB)) << "only the low byte counts";
  }
}

TEST(memory, PeerCopies) {
  if (device_count() < 2) {
    GTEST_SKIP() << "one device";
  }
  ASSERT_NE(memory_table().copy_peer, nullptr) << "required: count > 1";
  const Bytes content = pattern(50001, 3);
  for (npu_device d = 1; d < device_count(); ++d) {
    for (const npu_device owner : {0, d}) {
      Buffer a(content, 0);
      Buffer b(content.size(), d);
      Buffer back(content.size(), 0);
      Stream stream(owner);
      NPU_ASSERT_OK(memory_table().copy_peer(
          stream.get(), d, b.data(), 0, a.data(), content.size()));
      NPU_ASSERT_OK(memory_table().copy_peer(
          stream.get(), 0, back.data(), d, b.data(), content.size()));
      stream.synchronize();
      EXPECT_EQ(b.get(), content);
      EXPECT_EQ(back.get(), content);
    }
  }
}

TEST(memory, HostAccessAsDeclared) {
  const std::uint32_t access = properties().host_access;
  if (access == NPU_HOST_ACCESS_NONE) {
    NPU_NOT_DECLARED("host access to device memory");
  }
  Buffer a(pattern(9000));
  auto* bytes = static_cast<std::uint8_t*>(a.data());
  const bool open = access == NPU_HOST_ACCESS_EXPLICIT;
  constexpr std::uint32_t kBoth = NPU_ACCESS_READ | NPU_ACCESS_WRITE;
  if (open) {
    NPU_ASSERT_OK(memory_table().host_open(bytes, 9000, kBoth));
    NPU_ASSERT_OK(memory_table().host_open(bytes + 10, 20, NPU_ACCESS_READ));
    NPU_ASSERT_OK(memory_table().host_close(bytes + 10, 20, NPU_ACCESS_READ));
  }
  const bool same = std::equal(bytes, bytes + 9000, pattern(9000).begin());
  std::memset(bytes, 3, 9000);
  if (open) {
    NPU_ASSERT_OK(memory_table().host_close(bytes, 9000, kBoth));
  }
  EXPECT_TRUE(same);
  EXPECT_EQ(a.get(), Bytes(9000, 3));
}

bool offers_discard() {
  const npu_memory_table& memory = memory_table();
  return memory.size > offsetof(npu_memory_table, discard) &&
         memory.discard != nullptr;
}

// Neither end of the range lies on a page.
TEST(memory, DiscardLeavesOtherBytesAndARangeThatCanBeWritten) {
  if (!offers_discard()) {
    NPU_NOT_DECLARED("memory.discard");
  }
  constexpr std::uint64_t kBytes = 8 << 20;
  constexpr std::uint64_t kBegin = 1000003;
  constexpr std::uint64_t kEnd = kBytes - 700001;
  const Bytes content = pattern(kBytes);
  Buffer a(content);
  Stream stream;
  auto* begin = static_cast<char*>(a.data()) + kBegin;
  NPU_ASSERT_OK(memory_table().discard(stream.get(), begin, kEnd - kBegin));
  Bytes now = a.get();
  EXPECT_TRUE(std::equal(now.begin(), now.begin() + kBegin, content.begin()));
  EXPECT_TRUE(
      std::equal(now.begin() + kEnd, now.end(), content.begin() + kEnd));
  const Bytes second = pattern(kBytes, 2);
  a.put(second.data(), kBytes);
  EXPECT_EQ(a.get(), second);
}

TEST(memory, DiscardDoesNotOvertakeQueuedWork) {
  if (!offers_discard()) {
    NPU_NOT_DECLARED("memory.discard");
  }
  constexpr std::uint64_t kBytes = 8 << 20;
  const Bytes content = pattern(kBytes);
  Buffer from(content);
  Buffer to(kBytes);
  Stream stream;
  const auto sleep = [](void*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  NPU_ASSERT_OK(stream_table().host_call(stream.get(), sleep, nullptr));
  NPU_ASSERT_OK(memory_table().copy_on_device(
      stream.get(), to.data(), from.data(), kBytes));
  const npu_status status =
      memory_table().discard(stream.get(), to.data(), kBytes);
  if (status != NPU_NOT_READY) {
    NPU_EXPECT_OK(status);
    NPU_EXPECT_OK(stream_table().query(stream.get()));
    return;
  }
  stream.synchronize();
  EXPECT_EQ(to.get(), content);
  NPU_EXPECT_OK(memory_table().discard(stream.get(), to.data(), kBytes));
}

TEST(memory, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (unsigned round = 0; round < 20; ++round) {
        const Bytes content = pattern(1 + 997 * round, t + 1);
        Buffer a(content);
        EXPECT_EQ(a.get(), content);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(memory, RegisteredHostMemory) {
  if (memory_table().host_register == nullptr) {
    NPU_NOT_DECLARED("memory host_register");
  }
  constexpr std::uint64_t kBytes = 100003;
  Bytes mine = pattern(kBytes);
  const Bytes expected = mine;
  const npu_status status = memory_table().host_register(mine.data(), kBytes);
  if (status == NPU_E_UNSUPPORTED) {
    GTEST_SKIP() << last_error();
  }
  NPU_ASSERT_OK(status);
  npu_pointer_info info{};
  info.size = sizeof(info);
  NPU_ASSERT_OK(memory_table().pointer_info(mine.data() + 5, &info));
  EXPECT_EQ(info.kind, NPU_MEMORY_HOST);
  EXPECT_EQ(memory_table().host_register(mine.data() + 100, 8), NPU_E_INVALID);
  Buffer a(kBytes);
  Stream stream;
  NPU_ASSERT_OK(memory_table().copy_to_device(
      stream.get(), a.data(), mine.data(), kBytes));
  stream.synchronize();
  mine.assign(kBytes, 0);
  NPU_ASSERT_OK(
      memory_table().copy_to_host(stream.get(), mine.data(), a.data(), kBytes));
  stream.synchronize();
  EXPECT_EQ(mine, expected);
  NPU_EXPECT_OK(memory_table().host_unregister(mine.data()));
  EXPECT_EQ(memory_table().host_unregister(mine.data()), NPU_E_INVALID);
}

}  // namespace
}  // namespace npu::kit
