// SPDX-License-Identifier: Apache-2.0
// Call frames: what the host side decides before a driver is called.
#include "driver/call.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "driver/build_call.h"
#include "driver/plan_cache.h"
#include "driver/services.h"
#include "driver/test_env.h"
#include "driver/verdict.h"

namespace npu {
namespace {

using test::ScopedEnv;

// The test driver "tiny": fill for contiguous float32, gemm planned by shape.
class Tiny : public testing::Test {
 protected:
  void SetUp() override {
    driver_ = Driver::load(NPU_TEST_DRIVER_DIR "/libnpu_tiny.so");
    library_ =
        ::dlopen(driver_->path().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    clear_plans();
    made_ = counter("tiny_plans_made");
    released_ = counter("tiny_plans_released");
    *made_ = *released_ = 0;
    ASSERT_EQ(driver_->stream().create(0, 0, &stream_), NPU_OK);
  }
  void TearDown() override {
    driver_->stream().destroy(stream_);
    clear_plans();
  }
  int* counter(const char* name) {
    return static_cast<int*>(::dlsym(library_, name));
  }

  Driver* driver_ = nullptr;
  void* library_ = nullptr;
  npu_stream stream_ = nullptr;
  int* made_ = nullptr;
  int* released_ = nullptr;
};

// A tensor with its own sizes and strides.
struct Holder {
  Holder(
      std::vector<std::int64_t> s,
      std::vector<std::int64_t> t,
      npu_dtype dtype = NPU_F32)
      : sizes(std::move(s)), strides(std::move(t)) {
    tensor.dtype = dtype;
    tensor.ndim = static_cast<std::uint16_t>(sizes.size());
    tensor.sizes = sizes.data();
    tensor.strides = strides.data();
    tensor.numel = 1;
    for (const auto size : sizes) {
      tensor.numel *= size;
    }
    tensor.data = tensor.storage = data;
    tensor.storage_bytes = sizeof(data);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  alignas(256) unsigned char data[4096] = {};
  npu_tensor tensor{};
};

npu_verdict plan_fill(const Driver& driver, const npu_tensor& out) {
  Call call(NPU_KIND_FILL, 0, "aten::fill_.Scalar");
  npu_fill_attrs attrs{};
  build::fill(call, out, attrs);
  return call.plan(driver, 0);
}

// out = a @ b with square matrices of n rows.
struct Gemm {
  explicit Gemm(std::int64_t n)
      : out({n, n}, {n, 1}),
        a({n, n}, {n, 1}),
        b({n, n}, {1, n}),
        call(NPU_KIND_GEMM, 0, "aten::mm") {
    build::gemm(
        call, out.tensor, nullptr, a.tensor, b.tensor, nullptr, nullptr, attrs);
  }
  Holder out;
  Holder a;
  Holder b;
  npu_gemm_attrs attrs{};
  Call call;
};

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

// One call with one input, against capabilities made up for the case.
class Caps : public testing::Test {
 protected:
  Caps() : x_({2, 3}, {3, 1}), y_({2, 3}, {3, 1}) {
    caps_.size = sizeof(caps_);
    caps_.dtypes[0] = NPU_DTYPE_BIT(NPU_F32);
    driver_.tensor_flags_known = ~0u;
    driver_.call_flags_known = ~0u;
  }
  npu_verdict verdict() {
    Call call(NPU_KIND_UNARY, NPU_UNARY_EXP, "aten::exp");
    build::unary(call, x_.tensor, nullptr, y_.tensor);
    call.frame().deterministic = deterministic_;
    call.frame().flags = flags_;
    return verdict_of_caps(caps_, driver_, call.frame());
  }
  Holder x_;
  Holder y_;
  npu_op_caps caps_{};
  npu_driver driver_{};
  std::uint32_t deterministic_ = 0;
  std::uint32_t flags_ = 0;
};

TEST_F(Caps, DeterministicAndCapture) {
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  deterministic_ = 1;
  EXPECT_EQ(verdict().reason, NPU_REASON_DETERMINISTIC);
  caps_.flags |= NPU_CAP_DETERMINISTIC;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  flags_ = NPU_CALL_CAPTURE;
  EXPECT_EQ(verdict().reason, NPU_REASON_CAPTURE);
  caps_.flags |= NPU_CAP_CAPTURE;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, Dimensions) {
  caps_.max_ndim = 1;
  EXPECT_EQ(verdict().reason, NPU_REASON_NDIM);
  caps_.max_ndim = 2;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, SizesAnotherRungServesFaster) {
  caps_.numel_limit[NPU_F32] = 2;
  EXPECT_EQ(verdict().reason, NPU_REASON_SLOWER) << "6 elements > 2^2";
  caps_.numel_limit[NPU_F32] = 3;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  caps_.numel_limit[NPU_F32] = NPU_NEVER_ASK;
  EXPECT_EQ(verdict().reason, NPU_REASON_SLOWER);
  x_.tensor.dtype = NPU_F64;
  caps_.numel_limit[NPU_F32] = 0;
  caps_.numel_limit[NPU_F64] = NPU_NEVER_ASK;
  EXPECT_NE(verdict().reason, NPU_REASON_SLOWER) << "the input's dtype decides";
}

TEST_F(Caps, ListsCountAsOneOperand) {
  const std::int64_t numel[] = {3, 3};
  Call call(NPU_KIND_CAT, 0, "aten::cat");
  npu_list list{};
  list.n = 2;
  list.dtype = NPU_F32;
  list.numel = numel;
  call.add_list(list);
  caps_.numel_limit[NPU_F32] = 2;
  EXPECT_EQ(
      verdict_of_caps(caps_, driver_, call.frame()).reason, NPU_REASON_SLOWER);
}

TEST_F(Caps, Alignment) {
  caps_.min_alignment = 64;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  y_.tensor.data = y_.data + 4;
  const npu_verdict v = verdict();
  EXPECT_EQ(v.answer, NPU_VERDICT_IF_ALIGNED);
  EXPECT_EQ(v.alignment, 64);
  EXPECT_EQ(v.mask, 4u);  // tensors: out, out2 (absent), in
}

TEST_F(Caps, WideIndexing) {
  y_.strides = {std::int64_t{1} << 31, 1};
  EXPECT_FALSE(fits_index32(y_.tensor));
  EXPECT_EQ(verdict().reason, NPU_REASON_INDEX_WIDTH);
  caps_.flags |= NPU_CAP_INDEX64 | NPU_CAP_STRIDED_IN;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, AliasesConjAndHostScalarsAreCopiedUnlessTaken) {
  y_.tensor.flags = NPU_TENSOR_ALIAS;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_IF_CONTIGUOUS);
  caps_.flags |= NPU_CAP_ALIAS;
  EXPECT_EQ(verdict().mask, 4u) << "the mask does not name the input yet";
  caps_.alias_mask = 1;  // the first input
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  driver_.tensor_flags_known = ~std::uint32_t{NPU_TENSOR_ALIAS};
  EXPECT_EQ(verdict().mask, 4u);
  driver_.tensor_flags_known = ~std::uint32_t{NPU_TENSOR_CONJ};
  y_.tensor.flags = NPU_TENSOR_CONJ;
  EXPECT_EQ(verdict().mask, 4u);
  driver_.tensor_flags_known = ~0u;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  y_.tensor.flags = NPU_TENSOR_HOST_SCALAR;
  EXPECT_EQ(verdict().mask, 4u);
  caps_.flags |= NPU_CAP_HOST_SCALAR;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, DtypeRules) {
  y_.tensor.dtype = NPU_I32;
  EXPECT_EQ(verdict().reason, NPU_REASON_DTYPE) << "same: f32 and i32 differ";
  caps_.dtype_rule = NPU_DTYPES_CAST;
  EXPECT_EQ(verdict().reason, NPU_REASON_DTYPE);
  caps_.dtypes[2] = NPU_DTYPE_BIT(NPU_I32);
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  caps_.dtype_rule = NPU_DTYPES_FREE;
  caps_.dtypes[2] = 0;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, CountCallsMustBeKnown) {
  flags_ = NPU_CALL_COUNT;
  driver_.call_flags_known = 0;
  EXPECT_EQ(verdict().reason, NPU_REASON_NO_KERNEL);
}

// ---- contiguity and reach ----

TEST(Layout, Contiguous) {
  EXPECT_TRUE(is_contiguous(Holder({}, {}).tensor));
  EXPECT_TRUE(is_contiguous(Holder({2, 3}, {3, 1}).tensor));
  EXPECT_TRUE(is_contiguous(Holder({2, 1, 3}, {3, 77, 1}).tensor));
  EXPECT_TRUE(is_contiguous(Holder({0, 3}, {5, 5}).tensor));
  EXPECT_FALSE(is_contiguous(Holder({2, 3}, {1, 2}).tensor));
  EXPECT_FALSE(is_contiguous(Holder({2, 3}, {0, 1}).tensor));
}

TEST(Layout, Index32IsInBytes) {
  constexpr std::int64_t kEdge = (std::int64_t{1} << 31) / 4;
  EXPECT_TRUE(fits_index32(Holder({kEdge - 1}, {1}).tensor));
  EXPECT_FALSE(fits_index32(Holder({kEdge}, {1}).tensor));
  EXPECT_TRUE(fits_index32(Holder({kEdge}, {1}, NPU_I8).tensor));
  EXPECT_FALSE(fits_index32(Holder({2}, {INT64_MAX}).tensor));
  EXPECT_TRUE(fits_index32(Holder({1000}, {0}).tensor));
}

// ---- plans ----

TEST_F(Tiny, PlansAreCachedByShape) {
  for (int i = 0; i < 3; ++i) {
    Gemm gemm(4);
    const npu_verdict verdict = gemm.call.plan(*driver_, 0);
    EXPECT_EQ(verdict.answer, NPU_VERDICT_YES);
    EXPECT_EQ(verdict.workspace_bytes, 64u);
    EXPECT_NE(gemm.call.frame().plan, nullptr);
  }
  EXPECT_EQ(*made_, 1);
  Gemm other(5);
  other.call.plan(*driver_, 0);
  EXPECT_EQ(*made_, 2);
  EXPECT_EQ(cached_plans(), 2u);
}

TEST_F(Tiny, KeyHoldsWhatTheContractSays) {
  const auto plan = [&](auto change) {
    Gemm gemm(4);
    change(gemm);
    gemm.call.plan(*driver_, 0);
  };
  const auto tensor = [](Gemm& gemm, int i) -> npu_tensor& {
    return const_cast<npu_tensor&>(gemm.call.frame().tensors[i]);
  };
  plan([](Gemm&) {});
  // Not in the key: scalars, and a pointer of the same alignment.
  plan([](Gemm& gemm) { gemm.attrs.alpha.re = 3; });
  plan([&](Gemm& gemm) { tensor(gemm, 2).data = gemm.a.data + 256; });
  EXPECT_EQ(*made_, 1);
  // In the key: attributes marked so, alignment, strides, modes.
  plan([](Gemm& gemm) { gemm.attrs.epilogue = NPU_GEMM_EPILOGUE_RELU; });
  EXPECT_EQ(*made_, 2);
  plan([&](Gemm& gemm) { tensor(gemm, 2).data = gemm.a.data + 16; });
  EXPECT_EQ(*made_, 3);
  plan([](Gemm& gemm) { gemm.b.strides = {4, 1}; });
  EXPECT_EQ(*made_, 4);
  plan([](Gemm& gemm) { gemm.call.frame().math_mode = NPU_MATH_TF32; });
  EXPECT_EQ(*made_, 5);
}

TEST_F(Tiny, APlanOutlivesTheCacheWhileACallHoldsIt) {
  {
    Gemm gemm(4);
    gemm.call.plan(*driver_, 0);
    clear_plans();
    EXPECT_EQ(*released_, 0);
    EXPECT_EQ(gemm.call.run(*driver_, stream_), NPU_OK);
  }
  EXPECT_EQ(*released_, 1);
}

TEST_F(Tiny, TheCacheIsBounded) {
  for (std::int64_t n = 100; n < 20100; ++n) {
    Gemm gemm(2);
    gemm.a.sizes[1] = n;  // never run
    gemm.call.plan(*driver_, 0);
  }
  EXPECT_LE(cached_plans(), 16u * 1024u);
  EXPECT_EQ(*made_, 20000);
  EXPECT_EQ(*made_ - *released_, static_cast<int>(cached_plans()));
}

TEST_F(Tiny, ManyThreadsPlanOnceEach) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        Gemm gemm(20 + i % 8);
        gemm.call.plan(*driver_, 0);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(cached_plans(), 8u);
  EXPECT_EQ(*made_ - *released_, 8);
}

TEST_F(Tiny, ADeclineFromPlanKeepsItsReason) {
  Gemm gemm(13);
  const npu_verdict verdict = gemm.call.plan(*driver_, 0);
  EXPECT_EQ(verdict.answer, NPU_VERDICT_NO);
  EXPECT_EQ(verdict.reason, NPU_REASON_SIZE);
  EXPECT_STREQ(verdict.detail, "13 rows");
}

TEST_F(Tiny, AFailureOfPlanIsAnErrorAndNotCached) {
  Gemm gemm(14);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(
        test::error_of([&] { gemm.call.plan(*driver_, 0); }),
        "npu: tiny op.plan of aten::mm: internal error (tiny: planner "
        "broke).");
  }
  EXPECT_EQ(cached_plans(), 0u);
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
  const ScopedEnv level("ASCEND_GLOBAL_LOG_LEVEL", "0");
  const ScopedEnv place("SLOG_PRINT_TO_STDOUT", "1");
  reload_log_environment();
  Gemm gemm(4);
  testing::internal::CaptureStdout();
  gemm.call.run(*driver_, stream_);
  EXPECT_HAS(
      testing::internal::GetCapturedStdout(),
      "run on tiny: gemm (aten::mm) out f32[4, 4] - in f32[4, 4] f32[4, 4] - "
      "- rung native\n");
  ::unsetenv("ASCEND_GLOBAL_LOG_LEVEL");
  reload_log_environment();
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
      test::error_of([&] { other.add_list(npu_list{}); }), "more than 8 lists");
}

}  // namespace
}  // namespace npu
