// SPDX-License-Identifier: Apache-2.0
// profiler/1 of the cuda driver on a stand-in of CUPTI. The kit judges the
// interface on the same stand-in (cuda.kit).
#include "npu/profiler.h"

#include <cupti.h>

#include <algorithm>

#include "lib/cupti.h"
#include "npu/kinds.h"
#include "stand_in_driver.h"

namespace stand_in_test {
namespace {

namespace ours = npu::cuda::cupti;

// Layouts of ours begin as cupti.h's do.
#define SAME(record, theirs, field, other)                        \
  static_assert(                                                  \
      offsetof(ours::record, field) == offsetof(theirs, other) && \
      sizeof(ours::record::field) == sizeof(theirs::other))
SAME(KernelRecord, CUpti_ActivityKernel10, begin, start);
SAME(KernelRecord, CUpti_ActivityKernel10, end, end);
SAME(KernelRecord, CUpti_ActivityKernel10, device, deviceId);
SAME(KernelRecord, CUpti_ActivityKernel10, stream, streamId);
SAME(KernelRecord, CUpti_ActivityKernel10, correlation, correlationId);
SAME(KernelRecord, CUpti_ActivityKernel10, name, name);
SAME(CopyRecord, CUpti_ActivityMemcpy6, sort, copyKind);
SAME(CopyRecord, CUpti_ActivityMemcpy6, bytes, bytes);
SAME(CopyRecord, CUpti_ActivityMemcpy6, begin, start);
SAME(CopyRecord, CUpti_ActivityMemcpy6, device, deviceId);
SAME(CopyRecord, CUpti_ActivityMemcpy6, stream, streamId);
SAME(CopyRecord, CUpti_ActivityMemcpy6, correlation, correlationId);
SAME(PeerCopyRecord, CUpti_ActivityMemcpyPtoP4, bytes, bytes);
SAME(PeerCopyRecord, CUpti_ActivityMemcpyPtoP4, begin, start);
SAME(PeerCopyRecord, CUpti_ActivityMemcpyPtoP4, device, deviceId);
SAME(PeerCopyRecord, CUpti_ActivityMemcpyPtoP4, stream, streamId);
SAME(PeerCopyRecord, CUpti_ActivityMemcpyPtoP4, correlation, correlationId);
SAME(SetRecord, CUpti_ActivityMemset4, bytes, bytes);
SAME(SetRecord, CUpti_ActivityMemset4, begin, start);
SAME(SetRecord, CUpti_ActivityMemset4, device, deviceId);
SAME(SetRecord, CUpti_ActivityMemset4, stream, streamId);
SAME(SetRecord, CUpti_ActivityMemset4, correlation, correlationId);
using External = CUpti_ActivityExternalCorrelation;
SAME(CorrelationRecord, External, external_kind, externalKind);
SAME(CorrelationRecord, External, external, externalId);
SAME(CorrelationRecord, External, correlation, correlationId);
static_assert(ours::kCopyRecord == CUPTI_ACTIVITY_KIND_MEMCPY);
static_assert(ours::kSetRecord == CUPTI_ACTIVITY_KIND_MEMSET);
static_assert(ours::kDriverCall == CUPTI_ACTIVITY_KIND_DRIVER);
static_assert(ours::kRuntimeCall == CUPTI_ACTIVITY_KIND_RUNTIME);
static_assert(ours::kKernelRecord == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
static_assert(ours::kPeerCopyRecord == CUPTI_ACTIVITY_KIND_MEMCPY2);
static_assert(
    ours::kCorrelationRecord == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
static_assert(ours::kCustom2 == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2);
static_assert(
    ours::kMultipleSubscribers ==
    CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);

constexpr std::uint32_t kEvery = (1u << NPU_RECORD_COUNT) - 1;
using Records = std::vector<npu_profile_record>;

const npu_profiler& table() {
  static const auto* const found = static_cast<const npu_profiler*>(
      driver().get_interface(NPU_PROFILER_INTERFACE));
  EXPECT_NE(found, nullptr) << log_text;
  return *found;
}

Records flush(npu_device device) {
  Records out;
  std::uint64_t lost = 0;
  EXPECT_EQ(
      table().flush(
          device,
          [](void* context, const npu_profile_record* all, std::uint32_t n) {
            auto& taken = *static_cast<Records*>(context);
            taken.insert(taken.end(), all, all + n);
          },
          &out,
          &lost),
      NPU_OK)
      << error_text;
  EXPECT_EQ(lost, 0u);
  return out;
}

class Device {
 public:
  explicit Device(npu_device number) : number_(number) {
    EXPECT_EQ(driver().stream->create(number, 0, &stream), NPU_OK);
    EXPECT_EQ(driver().memory->alloc(number, 256, &memory), NPU_OK);
  }
  ~Device() {
    if (stream != nullptr) {
      EXPECT_EQ(driver().stream->destroy(stream), NPU_OK);
    }
    EXPECT_EQ(driver().memory->free(number_, memory), NPU_OK);
  }
  void set() {
    EXPECT_EQ(driver().memory->set_bytes(stream, memory, 1, 256), NPU_OK);
  }
  void fill(std::uint64_t correlation) {
    npu_fill_attrs attrs{};
    attrs.value = {NPU_SCALAR_FLOAT, 0, 0, 1.5, 0};
    const std::int64_t size = 64;
    const std::int64_t stride = 1;
    npu_tensor out{};
    out.data = memory;
    out.storage = memory;
    out.storage_bytes = 256;
    out.numel = size;
    out.dtype = NPU_F32;
    out.ndim = 1;
    out.sizes = &size;
    out.strides = &stride;
    out.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
    out.device = number_;
    npu_call call{};
    call.size = sizeof(call);
    call.slot = NPU_KIND_FILL;
    call.n_out = 1;
    call.tensors = &out;
    call.attrs = &attrs;
    call.attr_bytes = sizeof(attrs);
    call.correlation = correlation;
    EXPECT_EQ(driver().op->run(stream, &call), NPU_OK) << error_text;
  }
  void synchronize() {
    EXPECT_EQ(driver().stream->synchronize(stream), NPU_OK);
  }

  npu_stream stream = nullptr;
  void* memory = nullptr;

 private:
  npu_device number_;
};

TEST(cuda_profiler, AKernelHasItsOwnNameAndTheNumberOfItsCall) {
  Device gpu(0);
  ASSERT_EQ(table().start(0, kEvery), NPU_OK) << error_text;
  gpu.fill(41);
  gpu.set();
  gpu.fill(42);
  gpu.synchronize();
  ASSERT_EQ(table().stop(0), NPU_OK);
  Records all = flush(0);
  std::ranges::sort(all, {}, &npu_profile_record::begin_ns);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].kind, NPU_RECORD_KERNEL);
  EXPECT_EQ(all[0].correlation, 41u);
  EXPECT_TRUE(has(all[0].name, "npu::cuda::")) << all[0].name;
  EXPECT_TRUE(has(all[0].name, "fill")) << all[0].name;
  EXPECT_EQ(all[1].kind, NPU_RECORD_SET);
  EXPECT_EQ(all[1].correlation, 0u);
  EXPECT_EQ(all[1].bytes, 256u);
  EXPECT_EQ(all[2].correlation, 42u);
  for (const npu_profile_record& each : all) {
    EXPECT_EQ(each.stream, reinterpret_cast<std::uint64_t>(gpu.stream));
  }
}

TEST(cuda_profiler, AStreamThatIsGoneIsStillNamed) {
  Device gpu(0);
  ASSERT_EQ(table().start(0, kEvery), NPU_OK) << error_text;
  gpu.set();
  gpu.synchronize();
  const auto number = reinterpret_cast<std::uint64_t>(gpu.stream);
  ASSERT_EQ(driver().stream->destroy(gpu.stream), NPU_OK);
  gpu.stream = nullptr;
  ASSERT_EQ(table().stop(0), NPU_OK);
  const Records all = flush(0);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].stream, number);
}

TEST(cuda_profiler, DevicesAreRecordedOneByOne) {
  Device first(0);
  Device second(1);
  ASSERT_EQ(table().start(0, kEvery), NPU_OK) << error_text;
  first.set();
  second.set();  // before its start
  first.synchronize();
  second.synchronize();
  ASSERT_EQ(table().start(1, 1u << NPU_RECORD_KERNEL), NPU_OK) << error_text;
  first.set();
  second.set();
  second.fill(7);
  first.synchronize();
  second.synchronize();
  ASSERT_EQ(table().stop(0), NPU_OK);
  first.set();  // after its stop
  second.fill(8);
  first.synchronize();
  second.synchronize();
  ASSERT_EQ(table().stop(1), NPU_OK);
  EXPECT_EQ(flush(0).size(), 2u);
  Records all = flush(1);
  std::ranges::sort(all, {}, &npu_profile_record::begin_ns);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].correlation, 7u);
  EXPECT_EQ(all[1].correlation, 8u);
  EXPECT_EQ(all[0].device, 1);
}

TEST(cuda_profiler, AnotherProfilerMakesStartDecline) {
  Device gpu(0);
  setenv("STAND_IN_CUPTI_TAKEN", "1", 1);
  EXPECT_EQ(table().start(0, kEvery), NPU_E_UNSUPPORTED);
  unsetenv("STAND_IN_CUPTI_TAKEN");
  EXPECT_TRUE(is_sentence(error_text)) << error_text;
  EXPECT_TRUE(has(error_text, "another profiler")) << error_text;
  // And when it is gone, start works.
  EXPECT_EQ(table().start(0, kEvery), NPU_OK) << error_text;
  gpu.set();
  gpu.synchronize();
  EXPECT_EQ(table().stop(0), NPU_OK);
  EXPECT_EQ(flush(0).size(), 1u);
}

TEST(cuda_profiler, ARefusedKindOfRecordIsReportedAndGivesCuptiBack) {
  Device gpu(0);
  setenv("STAND_IN_CUPTI_REFUSES", "10", 1);
  EXPECT_EQ(table().start(0, kEvery), NPU_E_UNSUPPORTED);
  unsetenv("STAND_IN_CUPTI_REFUSES");
  EXPECT_TRUE(has(error_text, "INSUFFICIENT_PRIVILEGES")) << error_text;
  EXPECT_EQ(table().start(0, kEvery), NPU_OK) << error_text;
  EXPECT_EQ(table().stop(0), NPU_OK);
  EXPECT_TRUE(flush(0).empty());
}

TEST(cuda_profiler_DeathTest, WithoutCuptiThereIsNoProfilerAndASentence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto without = [](const char* variable, const char* value) {
    setenv(variable, value, 1);
    const bool none = driver().get_interface(NPU_PROFILER_INTERFACE) == nullptr;
    std::fprintf(stderr, "%d %s", none, log_text.c_str());
    std::exit(0);
  };
  EXPECT_EXIT(
      without("STAND_IN_CUPTI_VERSION", "120005"),
      ::testing::ExitedWithCode(0),
      "1 npu: cuda driver: no records of device work: libcupti.so.13 is CUPTI "
      "12, and the driver knows 13: pip install nvidia-cuda-cupti\\. Events "
      "give the times\\.");
}

}  // namespace
}  // namespace stand_in_test
