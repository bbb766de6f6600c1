// SPDX-License-Identifier: Apache-2.0
// Group profiler: interface profiler/1, for drivers that have it.
#include "npu/profiler.h"

#include <algorithm>
#include <ctime>

#include "kit.h"

namespace npu::kit {
namespace {

constexpr std::uint64_t kBytes = 4096;
constexpr std::uint32_t kEvery = (1u << NPU_RECORD_COUNT) - 1;

std::int64_t host_ns() {
  std::timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class profiler : public ::testing::Test {
 protected:
  using Records = std::vector<npu_profile_record>;
  struct Clocks {
    std::int64_t device = 0;
    std::int64_t host = 0;
  };

  void SetUp() override {
    const void* const found =
        driver().get_interface == nullptr
            ? nullptr
            : driver().get_interface(NPU_PROFILER_INTERFACE);
    if (found == nullptr) {
      NPU_NOT_DECLARED(NPU_PROFILER_INTERFACE);
    }
    table_ = static_cast<const npu_profiler*>(found);
    ASSERT_GE(table_->size, sizeof(npu_profiler));
    ASSERT_EQ(table_->version, NPU_PROFILER_VERSION);
    ASSERT_TRUE(
        table_->start && table_->stop && table_->flush && table_->clocks)
        << "a required function of profiler/1 is NULL";
    flush();
  }
  void TearDown() override {
    if (table_ != nullptr) {
      NPU_EXPECT_OK(table_->stop(0));
      flush();
    }
  }

  Records flush() {
    Records out;
    std::uint64_t lost = ~UINT64_C(0);
    const npu_record_fn take =
        [](void* context, const npu_profile_record* records, std::uint32_t n) {
          auto& all = *static_cast<Records*>(context);
          all.insert(all.end(), records, records + n);
        };
    NPU_EXPECT_OK(table_->flush(0, take, &out, &lost));
    EXPECT_EQ(lost, 0u) << "records lost, of so few";
    return out;
  }
  Clocks clocks() {
    Clocks out;
    NPU_EXPECT_OK(table_->clocks(0, &out.device, &out.host));
    return out;
  }
  // One piece of work of every kind the kit can make; the kernel's number.
  void work(const Stream& stream, std::uint64_t correlation) {
    NPU_EXPECT_OK(
        memory_table().set_bytes(stream.get(), to_.data(), 1, kBytes));
    NPU_EXPECT_OK(memory_table().copy_on_device(
        stream.get(), to_.data(), from_.data(), kBytes));
    npu_op_caps caps;
    if (declares(NPU_KIND_FILL, 0, &caps) && has(caps.dtypes[0], NPU_F32)) {
      has_kernel_ = true;
      npu_fill_attrs attrs{};
      attrs.value = {NPU_SCALAR_FLOAT, 0, 0, 1.5, 0};
      Frame frame(NPU_KIND_FILL);
      frame.out(to_, flat(NPU_F32, kBytes / 4)).attrs(attrs);
      frame.call().correlation = correlation;
      NPU_EXPECT_OK(frame.run(stream.get()));
    }
    stream.synchronize();
  }
  static std::size_t count(const Records& all, std::uint32_t kind) {
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [&](const auto& r) { return r.kind == kind; }));
  }
  static bool has_correlation(const Records& all, std::uint64_t number) {
    return std::any_of(all.begin(), all.end(), [&](const auto& r) {
      return r.kind == NPU_RECORD_KERNEL && r.correlation == number;
    });
  }

  const npu_profiler* table_ = nullptr;
  Buffer to_{kBytes};
  Buffer from_{Bytes(kBytes, 7)};
  bool has_kernel_ = false;
};

TEST_F(profiler, RecordsWhatWasQueuedBetweenStartAndStop) {
  const Stream stream;
  work(stream, 71);
  NPU_ASSERT_OK(table_->start(0, kEvery));
  work(stream, 72);
  NPU_ASSERT_OK(table_->stop(0));
  work(stream, 73);
  const Records all = flush();
  EXPECT_EQ(count(all, NPU_RECORD_SET), 1u) << "set_bytes: one was in between";
  EXPECT_EQ(count(all, NPU_RECORD_COPY), 1u) << "copies: one was in between";
  for (const npu_profile_record& each : all) {
    EXPECT_LT(each.kind, NPU_RECORD_COUNT);
    EXPECT_LE(each.begin_ns, each.end_ns) << "it ends before it begins";
    EXPECT_EQ(each.device, 0);
    EXPECT_EQ(each.stream, reinterpret_cast<std::uint64_t>(stream.get()));
    EXPECT_NE(each.name, nullptr) << "a record without a name";
  }
  if (has_kernel_) {
    EXPECT_TRUE(has_correlation(all, 72))
        << "the kernel's record is missing, or has not the call's correlation";
    EXPECT_FALSE(has_correlation(all, 71)) << "it was queued before start";
    EXPECT_FALSE(has_correlation(all, 73)) << "it was queued after stop";
  }
  EXPECT_TRUE(flush().empty()) << "flush gives the same records twice";
}

TEST_F(profiler, RecordsOnlyWhatTheMaskNames) {
  const Stream stream;
  NPU_ASSERT_OK(table_->start(0, 1u << NPU_RECORD_SET));
  work(stream, 74);
  NPU_ASSERT_OK(table_->stop(0));
  const Records all = flush();
  EXPECT_EQ(count(all, NPU_RECORD_SET), 1u);
  EXPECT_EQ(all.size(), count(all, NPU_RECORD_SET))
      << "start asked for set_bytes alone";
}

// Two looks at both clocks turn a record's times into the host's.
TEST_F(profiler, TimesFitTheHostsClock) {
  constexpr double kSlack = 1e6;  // a millisecond: clocks are read one by one
  const Stream stream;
  const std::int64_t early = host_ns();
  const Clocks before = clocks();
  EXPECT_GE(before.host, early) << "host_ns is not CLOCK_MONOTONIC";
  EXPECT_LE(before.host, host_ns()) << "host_ns is not CLOCK_MONOTONIC";
  NPU_ASSERT_OK(table_->start(0, kEvery));
  const std::int64_t queued = host_ns();
  work(stream, 75);
  const std::int64_t done = host_ns();
  NPU_ASSERT_OK(table_->stop(0));
  const Clocks after = clocks();
  ASSERT_GT(after.device, before.device) << "the device's clock stands still";
  const double rate = static_cast<double>(after.host - before.host) /
                      static_cast<double>(after.device - before.device);
  const auto host_time = [&](std::int64_t device) {
    return static_cast<double>(before.host) +
           rate * static_cast<double>(device - before.device);
  };
  for (const npu_profile_record& each : flush()) {
    EXPECT_GE(host_time(each.begin_ns), static_cast<double>(queued) - kSlack)
        << each.name << " began before it was queued";
    EXPECT_LE(host_time(each.end_ns), static_cast<double>(done) + kSlack)
        << each.name << " ended after its stream was waited for";
  }
}

}  // namespace
}  // namespace npu::kit
