// SPDX-License-Identifier: Apache-2.0
// Optional interfaces, and drivers of older minors.
#include "driver/interfaces.h"

#include <functional>

#include "driver/services.h"
#include "driver/test_call.h"
#include "npu/mailbox.h"

namespace npu {
namespace {

using test::Gemm;

class Interfaces : public test::Tiny {
 protected:
  explicit Interfaces(const char* name = "tiny_extras") : Tiny(name) {}
};

TEST_F(Interfaces, AreAskedForOnceAndWork) {
  const npu_capture* const capture = driver_->interface<npu_capture>();
  ASSERT_NE(capture, nullptr);
  const int asked = *counter("tiny_asked");
  EXPECT_EQ(driver_->interface<npu_capture>(), capture);
  EXPECT_EQ(*counter("tiny_asked"), asked);
  EXPECT_EQ(capture->size, sizeof(npu_capture));
  EXPECT_EQ(capture->begin(0, &stream_, 1, 0), NPU_OK);
  npu_graph graph = nullptr;
  EXPECT_EQ(capture->end(stream_, &graph), NPU_OK);
  npu_graph_exec exec = nullptr;
  EXPECT_EQ(capture->instantiate(graph, &exec), NPU_OK);
  EXPECT_EQ(capture->launch(exec, stream_), NPU_OK);
}

TEST_F(Interfaces, ADriverWithoutOneIsAskedOnceToo) {
  EXPECT_EQ(driver_->interface<npu_vmm>(), nullptr);
  const int asked = *counter("tiny_asked");
  EXPECT_EQ(driver_->interface<npu_vmm>(), nullptr);
  EXPECT_EQ(*counter("tiny_asked"), asked);
  EXPECT_EQ(driver_->interface<npu_ipc>(), nullptr);
}

TEST_F(Interfaces, OptionalFunctionsHaveDefaults) {
  const npu_comm_table* const comm = driver_->interface<npu_comm_table>();
  ASSERT_NE(comm, nullptr);
  EXPECT_EQ(comm->id_bytes, 16u);
  EXPECT_EQ(comm->dtypes_per_hop, NPU_DTYPE_BIT(NPU_BF16));
  npu_comm out = nullptr;
  EXPECT_EQ(comm->split(nullptr, 0, 0, nullptr, &out), NPU_E_UNSUPPORTED);
  EXPECT_EQ(
      comm->all_to_all(
          nullptr,
          nullptr,
          nullptr,
          nullptr,
          nullptr,
          nullptr,
          nullptr,
          NPU_F32,
          stream_),
      NPU_E_UNSUPPORTED);
  host_services()->set_error(nullptr);
}

TEST_F(Interfaces, RecordsOfAProfiler) {
  const npu_profiler* const profiler = driver_->interface<npu_profiler>();
  ASSERT_NE(profiler, nullptr);
  std::uint64_t found = 0;
  std::uint64_t lost = 1;
  EXPECT_EQ(
      profiler->flush(
          0,
          [](void* context, const npu_profile_record* records, uint32_t n) {
            *static_cast<std::uint64_t*>(context) =
                n == 1 ? records[0].correlation : 0;
          },
          &found,
          &lost),
      NPU_OK);
  EXPECT_EQ(found, 42u);
  EXPECT_EQ(lost, 0u);
}

class BadInterfaces : public Interfaces {
 protected:
  BadInterfaces() : Interfaces("tiny_bad_extras") {}
  template <class T>
  std::string complaint() {
    testing::internal::CaptureStderr();
    EXPECT_EQ(driver_->interface<T>(), nullptr);
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(driver_->interface<T>(), nullptr) << "and is not asked again";
    return text;
  }
};

TEST_F(BadInterfaces, AreNamedAndNotUsed) {
  const std::string capture = complaint<npu_capture>();
  EXPECT_HAS(capture, "capture/1 is not used: its version is 2, expected 1");
  const std::string comm = complaint<npu_comm_table>();
  EXPECT_HAS(comm, "comm/1 is not used: its size is 4");
  const std::string profiler = complaint<npu_profiler>();
  EXPECT_HAS(
      profiler, "profiler/1 is not used: functions are missing: flush, clocks");
}

// ---- a driver built against the headers of 1.0 ----

class Older : public test::Tiny {
 protected:
  Older() : Tiny("tiny_1_0") {}
};

TEST_F(Older, LoadsAndItsMissingTailIsTheDefault) {
  EXPECT_EQ(driver_->minor(), 0u);
  EXPECT_FALSE(driver_->device_is_cpu());
  EXPECT_STREQ(driver_->default_profile(), "");
  EXPECT_EQ(driver_->interface<npu_capture>(), nullptr);
  EXPECT_EQ(driver_->device().enable_peer(0, 1), NPU_OK);
  EXPECT_EQ(driver_->device().native_handle(0), nullptr);
  EXPECT_EQ(driver_->stream().mailbox(stream_), nullptr);
  int x = 0;
  EXPECT_EQ(driver_->memory().host_register(&x, sizeof(x)), NPU_E_UNSUPPORTED);
  EXPECT_EQ(driver_->memory().host_unregister(&x), NPU_E_UNSUPPORTED);
  EXPECT_FALSE(driver_->can_tune(NPU_KIND_GEMM));
  host_services()->set_error(nullptr);
}

TEST_F(Older, SeesFramesAndCapsOfItsOwnSize) {
  Gemm gemm(4);
  gemm.call.frame().flags |= NPU_CALL_BENCHMARK;
  EXPECT_EQ(gemm.call.plan(*driver_, 0).answer, NPU_VERDICT_YES);
  gemm.call.tune(*driver_, 0, stream_);
  EXPECT_EQ(gemm.call.run(*driver_, stream_), NPU_OK);
  EXPECT_EQ(*counter("tiny_call_size"), 168);
  EXPECT_EQ(*counter("tiny_call_flags"), static_cast<int>(NPU_CALL_INDEX32));
  EXPECT_EQ(*counter("tiny_caps_size"), 200);
}

TEST_F(Older, IsNotAskedToDoWithLess) {
  Gemm gemm(4);
  npu_verdict verdict = gemm.call.plan(*driver_, 0);
  verdict = fit_workspace(
      gemm.call, *driver_, 0, verdict, [](std::uint64_t) -> void* {
        return nullptr;
      });
  EXPECT_EQ(verdict.reason, NPU_REASON_WORKSPACE);
  EXPECT_EQ(*made_, 1);
}

// ---- a driver built against the headers of 1.1 ----

class Of11 : public test::Tiny {
 protected:
  Of11() : Tiny("tiny_1_1") {}
};

TEST_F(Of11, LoadsAndItsMissingTailIsTheDefault) {
  EXPECT_EQ(driver_->minor(), 1u);
  EXPECT_STREQ(driver_->platform(), "cpu") << "NPU_DRIVER_DEVICE_IS_CPU";
  EXPECT_TRUE(driver_->device_is_cpu());
  EXPECT_FALSE(driver_->draws_own_random());
  const Gemm gemm(4);
  EXPECT_EQ(driver_->op().prepare(0, &gemm.call.frame()), NPU_OK);
}

TEST_F(Of11, IsNotGivenAMathModeItDoesNotKnow) {
  Gemm gemm(4);
  gemm.call.frame().math_mode = NPU_MATH_HALF_PARTIALS;
  EXPECT_EQ(gemm.call.plan(*driver_, 0).answer, NPU_VERDICT_YES);
  EXPECT_EQ(gemm.call.frame().math_mode, NPU_MATH_EXACT);
  Gemm known(4);
  known.call.frame().math_mode = NPU_MATH_F16_ACCUMULATE;
  known.call.plan(*driver_, 0);
  EXPECT_EQ(known.call.frame().math_mode, NPU_MATH_F16_ACCUMULATE);
}

TEST(Newer, SeesTheWholeFrame) {
  EXPECT_EQ(
      Driver::load(NPU_TEST_DRIVER_DIR "/libnpu_tiny.so")->frame_bytes(),
      sizeof(npu_call));
}

TEST(Mailbox, TextSaysWhatTheKernelFound) {
  npu_mailbox box{};
  box.error = NPU_MAILBOX_INDEX;
  box.value = 12;
  box.limit = 10;
  box.position = 3;
  box.operand = 2;
  std::snprintf(box.label, sizeof(box.label), "aten::gather");
  char text[200];
  EXPECT_GT(npu_mailbox_text(&box, text, sizeof(text)), 0);
  EXPECT_STREQ(
      text,
      "aten::gather: index 12 is out of bounds for size 10 (element 3 of "
      "operand 2)");
}

}  // namespace
}  // namespace npu
