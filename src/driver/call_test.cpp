// SPDX-License-Identifier: Apache-2.0
// Call frames: what the host side decides before a driver is called.
#include "driver/call.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "driver/services.h"
#include "driver/test_call.h"
#include "driver/verdict.h"

namespace npu {
namespace {

using test::Gemm;
using test::Holder;
using test::ScopedEnv;
using test::Tiny;

npu_verdict plan_fill(const Driver& driver, const npu_tensor& out) {
  Call call(NPU_KIND_FILL, 0, "aten::fill_.Scalar");
  npu_fill_attrs attrs{};
  build::fill(call, out, attrs);
  return call.plan(driver, 0);
}

// ---- what capabilities say ----

TEST_F(Tiny, YesToWhatItDeclares) {
  const Holder out({2, 3}, {3, 1});
  EXPECT_EQ(plan_fill(*driver_, out.tensor).answer, NPU_VERDICT_YES);
}

TEST_F(Tiny, NoKernelForAKindItLacks) {
  const Holder x({2}, {1});
  Call call(NPU_KIND_COPY, 0, "aten::copy_");
  build::copy(call, x.tensor, x.tensor);
  const npu_verdict verdict = call.plan(*driver_, 0);
  EXPECT_EQ(verdict.answer, NPU_VERDICT_NO);
  EXPECT_EQ(verdict.reason, NPU_REASON_NO_KERNEL);
}

TEST_F(Tiny, StridedOutputIsAskedContiguous) {
  const Holder out({2, 3}, {1, 2});
  const npu_verdict verdict = plan_fill(*driver_, out.tensor);
  EXPECT_EQ(verdict.answer, NPU_VERDICT_IF_CONTIGUOUS);
  EXPECT_EQ(verdict.mask, 1u);
}

TEST_F(Tiny, HalfIsAskedAsFloatAndOthersDeclined) {
  const Holder half({2}, {1}, NPU_BF16);
  const npu_verdict cast = plan_fill(*driver_, half.tensor);
  EXPECT_EQ(cast.answer, NPU_VERDICT_IF_CAST);
  EXPECT_EQ(cast.cast_dtype, NPU_F32);
  EXPECT_EQ(cast.mask, 1u);
  const Holder ints({2}, {1}, NPU_I64);
  const npu_verdict no = plan_fill(*driver_, ints.tensor);
  EXPECT_EQ(no.answer, NPU_VERDICT_NO);
  EXPECT_EQ(no.reason, NPU_REASON_DTYPE);
  EXPECT_STREQ(no.detail, "operand 'out' is i64");
}

TEST_F(Tiny, DisabledKindsSaySo) {
  driver_->disable_kinds({NPU_KIND_GEMM});
  Gemm gemm(4);
  EXPECT_EQ(gemm.call.plan(*driver_, 0).reason, NPU_REASON_DISABLED);
  EXPECT_FALSE(driver_->has_kind(NPU_KIND_GEMM));
  driver_->enable_all_kinds();
  EXPECT_TRUE(driver_->has_kind(NPU_KIND_GEMM));
}

// ---- run ----

TEST_F(Tiny, OnlyKnownFlagsReachTheDriver) {
  Gemm gemm(4);
  gemm.call.frame().flags = 1u << 30;
  EXPECT_EQ(gemm.call.run(*driver_, stream_), NPU_OK);
  EXPECT_EQ(
      *static_cast<std::uint32_t*>(::dlsym(library_, "tiny_call_flags")),
      NPU_CALL_INDEX32);
}

TEST_F(Tiny, DebugLogHasOneLinePerCall) {
  Gemm gemm(4);
  std::string text;
  {
    const ScopedEnv level("ASCEND_GLOBAL_LOG_LEVEL", "0");
    const ScopedEnv place("SLOG_PRINT_TO_STDOUT", "1");
    reload_log_environment();
    testing::internal::CaptureStdout();
    gemm.call.run(*driver_, stream_);
    text = testing::internal::GetCapturedStdout();
  }
  reload_log_environment();
  EXPECT_HAS(
      text,
      "run on tiny: gemm (aten::mm) out f32[4, 4] - in f32[4, 4] f32[4, 4] - "
      "- rung native\n");
}

TEST_F(Tiny, DescribeNamesCodes) {
  const Holder x({3}, {1});
  Call call(NPU_KIND_UNARY, NPU_UNARY_EXP, "aten::exp");
  build::unary(call, x.tensor, nullptr, x.tensor);
  EXPECT_EQ(
      describe(call.frame()), "unary.exp (aten::exp) out f32[3] - in f32[3]");
}

TEST_F(Tiny, AForkedChildNeverReachesTheDriver) {
  Gemm gemm(4);
  watch_forks();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused =
        gemm.call.run(*driver_, stream_) == NPU_E_SHUTDOWN &&
        std::strstr(host_services()->last_error(), "spawn") != nullptr;
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Frames, TooManyOperandsAndWrongOrderAreRefused) {
  const Holder x({1}, {1});
  Call call(NPU_FIRST_VENDOR_SLOT, 0, "mine");
  for (int i = 0; i < NPU_MAX_OPERANDS; ++i) {
    call.add_input(x.tensor);
  }
  EXPECT_HAS(
      test::error_of([&] { call.add_input(x.tensor); }),
      "more than 16 operands");
  Call other(NPU_KIND_COPY, 0, "mine");
  other.add_input(x.tensor);
  EXPECT_HAS(
      test::error_of([&] { other.add_output(x.tensor); }),
      "an output was added after an input");
  for (std::size_t i = 0; i < Call::kMaxLists; ++i) {
    other.add_list(npu_list{});
  }
  EXPECT_HAS(
      test::error_of([&] { other.add_list(npu_list{}); }),
      "more than 16 lists");
}

}  // namespace
}  // namespace npu
