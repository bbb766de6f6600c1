// SPDX-License-Identifier: Apache-2.0
// The allocator on the host driver: idle blocks are memory the system can take.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "driver/driver.h"
#include "driver/status.h"
#include "runtime/allocator/caching_allocator.h"

namespace npu::memory {
namespace {

// The driver's tables, one stream for all.
class HostBackend final : public Backend {
 public:
  HostBackend() : driver_(*Driver::load(NPU_HOST_DRIVER)) {
    driver_.device().open(0);
    driver_.stream().create(0, 0, &stream_);
  }
  npu_status alloc(int device, std::size_t bytes, void** out) override {
    return driver_.memory().alloc(device, bytes, out);
  }
  npu_status free(int device, void* ptr) override {
    return driver_.memory().free(device, ptr);
  }
  npu_status synchronize(int device) override {
    return driver_.device().synchronize(device);
  }
  npu_status memory_info(
      int device, std::uint64_t* free, std::uint64_t* total) override {
    return driver_.device().memory_info(device, free, total);
  }
  void trim(int) noexcept override {}
  bool discards() const noexcept override {
    return driver_.can_discard();
  }
  npu_status discard(StreamKey, void* ptr, std::size_t bytes) override {
    return driver_.memory().discard(stream_, ptr, bytes);
  }
  npu_status record(StreamKey, npu_event*) override {
    return NPU_E_UNSUPPORTED;
  }
  npu_status query(npu_event) override {
    return NPU_OK;
  }
  npu_status synchronize(npu_event) override {
    return NPU_OK;
  }
  void release(StreamKey, npu_event) noexcept override {}
  [[noreturn]] void fail(npu_status status, const char* what) override {
    throw Error(status, what);
  }

 private:
  Driver& driver_;
  npu_stream stream_ = nullptr;
};

// One number of /proc/self/smaps_rollup in bytes; -1 when it is not there.
std::int64_t process_memory(const std::string& name) {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string line;
  while (std::getline(file, line)) {
    long long kib = 0;
    if (line.rfind(name + ":", 0) == 0 &&
        std::sscanf(line.c_str() + name.size() + 1, "%lld", &kib) == 1) {
      return kib * 1024;
    }
  }
  return -1;
}

// Resident memory the system cannot take without writing it anywhere.
std::int64_t held() {
  return process_memory("Rss") - process_memory("LazyFree");
}

TEST(HostMemory, ManySizesHoldNoMoreThanTheBound) {
  if (process_memory("LazyFree") < 0) {
    GTEST_SKIP() << "this kernel does not say what it may take";
  }
  HostBackend backend;
  CachingAllocator allocator(backend, Config{});
  const std::int64_t before = held();
  for (std::size_t i = 0; i < 20; ++i) {
    const std::size_t bytes = (20 + 2 * i) * kMiB;
    void* block = allocator.allocate({0, 0}, bytes);
    std::memset(block, 1, bytes);
    allocator.free(block);
  }
  EXPECT_GT(
      allocator.pool(0).stats().reserved_bytes[0].current,
      std::int64_t{700} << 20)
      << "the sizes were to have segments of their own";
  EXPECT_LT(held() - before, std::int64_t{400} << 20);
}

}  // namespace
}  // namespace npu::memory
