// SPDX-License-Identifier: Apache-2.0
// Plans: keys, eviction, lifetimes, tuning and smaller workspaces.
#include <functional>
#include <thread>
#include <vector>

#include "driver/services.h"
#include "driver/test_call.h"
#include "driver/verdict.h"

namespace npu {
namespace {

using test::Gemm;
using test::Tiny;

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
  // Not in the key: a pointer of the same alignment.
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

// beta 0 lets a kernel leave c unread, 1 lets it add c as a bias.
TEST_F(Tiny, KeyHoldsWhetherAScaleIsZeroOneOrAnotherNumber) {
  const auto plan = [&](double alpha, double beta) {
    Gemm gemm(4);
    gemm.attrs.alpha = {NPU_SCALAR_FLOAT, 0, 0, alpha, 0};
    gemm.attrs.beta = {NPU_SCALAR_FLOAT, 0, 0, beta, 0};
    gemm.call.plan(*driver_, 0);
    return *made_;
  };
  EXPECT_EQ(plan(1, 0), 1);
  EXPECT_EQ(plan(1, 1), 2);
  EXPECT_EQ(plan(1, 0.5), 3);
  EXPECT_EQ(plan(1, -7), 3) << "any other number is one class";
  EXPECT_EQ(plan(2, 0), 4);
  EXPECT_EQ(plan(3, 0), 4);
  EXPECT_EQ(plan(0, 0), 5);
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

// A plan that is used all the time must not be made again because others came
// by: a full cache drops one unused plan, not a whole part.
TEST_F(Tiny, AFullCacheDropsOnePlanAtATimeAndKeepsWhatIsUsed) {
  const auto plan = [&](std::int64_t n) {
    Gemm gemm(2);
    gemm.a.sizes[1] = n;  // never run
    gemm.call.plan(*driver_, 0);
  };
  for (std::int64_t n = 1000; n < 30000; ++n) {
    plan(n);
    plan(7);
  }
  EXPECT_EQ(*made_, 29001) << "the plan in use was made once";
  const std::size_t full = cached_plans();
  EXPECT_EQ(full, 16u * 1024u);
  const int released = *released_;
  plan(40000);
  EXPECT_EQ(cached_plans(), full);
  EXPECT_EQ(*released_, released + 1);
}

TEST_F(Tiny, AGraphKeepsItsPlanAfterCallAndCache) {
  PlanHandle graph;
  {
    Gemm gemm(4);
    gemm.call.plan(*driver_, 0);
    graph = gemm.call.plan_handle();
    EXPECT_EQ(graph->verdict.plan, gemm.call.frame().plan);
  }
  clear_plans();
  EXPECT_EQ(*released_, 0);
  graph = nullptr;
  EXPECT_EQ(*released_, 1);
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

// ---- workspaces that cannot be had ----

// Takes what `most` allows and notes what was asked for.
struct Memory {
  std::uint64_t most;
  std::vector<std::uint64_t> asked = {};
  char byte = 0;

  void* operator()(std::uint64_t bytes) {
    asked.push_back(bytes);
    return bytes <= most ? &byte : nullptr;
  }
};

npu_verdict fit(const Driver& driver, Gemm& gemm, Memory& memory) {
  const npu_verdict verdict = gemm.call.plan(driver, 0);
  return fit_workspace(gemm.call, driver, 0, verdict, std::ref(memory));
}

TEST_F(Tiny, AWorkspaceThatFitsIsSet) {
  Gemm gemm(1000);
  Memory memory{1u << 30};
  EXPECT_EQ(fit(*driver_, gemm, memory).answer, NPU_VERDICT_YES);
  EXPECT_EQ(memory.asked, (std::vector<std::uint64_t>{1u << 20}));
  EXPECT_EQ(gemm.call.frame().workspace, &memory.byte);
  EXPECT_EQ(gemm.call.frame().workspace_bytes, 1u << 20);
}

TEST_F(Tiny, ASmallerPlanIsAskedForWhenItDoesNotFit) {
  Gemm gemm(1000);
  Memory memory{4096};
  EXPECT_EQ(fit(*driver_, gemm, memory).answer, NPU_VERDICT_YES);
  EXPECT_EQ(memory.asked, (std::vector<std::uint64_t>{1u << 20, 4096}));
  EXPECT_EQ(gemm.call.frame().workspace_bytes, 4096u);
  EXPECT_EQ(*made_, 2);
  Gemm again(1000);
  Memory more{1u << 30};
  fit(*driver_, again, more);
  EXPECT_EQ(again.call.frame().workspace_bytes, 1u << 20)
      << "the limit belongs to the call, not to the key without one";
}

TEST_F(Tiny, NoPlanWithSoLittleIsADeclineAndNoError) {
  Gemm gemm(1000);
  Memory memory{0};
  const npu_verdict verdict = fit(*driver_, gemm, memory);
  EXPECT_EQ(verdict.answer, NPU_VERDICT_NO);
  EXPECT_EQ(verdict.reason, NPU_REASON_WORKSPACE);
  EXPECT_LE(memory.asked.size(), 3u);
}

TEST_F(Tiny, ADriverThatNeverAsksForLessEndsTheSearch) {
  Gemm gemm(4);  // always 64 bytes
  Memory memory{0};
  EXPECT_EQ(fit(*driver_, gemm, memory).reason, NPU_REASON_WORKSPACE);
  EXPECT_LE(memory.asked.size(), 2u);
}

// ---- tuning ----

class Extras : public Tiny {
 protected:
  Extras() : Tiny("tiny_extras") {}
  void SetUp() override {
    Tiny::SetUp();
    tuned_ = counter("tiny_tuned");
    makes_ = counter("tiny_tune_makes");
    status_ = counter("tiny_tune_status");
    *tuned_ = *makes_ = *status_ = 0;
  }
  // Plans, tunes and runs; the frame's plan is what it ran with.
  void* go(std::uint32_t flags, std::int64_t n = 4) {
    Gemm gemm(n);
    gemm.call.frame().flags |= flags;
    Memory memory{64};
    EXPECT_EQ(fit(*driver_, gemm, memory).answer, NPU_VERDICT_YES);
    gemm.call.tune(*driver_, 0, stream_);
    EXPECT_EQ(gemm.call.run(*driver_, stream_), NPU_OK);
    return gemm.call.frame().plan;
  }
  int* tuned_ = nullptr;
  int* makes_ = nullptr;
  npu_status* status_ = nullptr;
};

TEST_F(Extras, TuneIsAskedOncePerKeyAndOnlyWhenBenchmarking) {
  go(0);
  EXPECT_EQ(*tuned_, 0);
  for (int i = 0; i < 3; ++i) {
    go(NPU_CALL_BENCHMARK);
  }
  EXPECT_EQ(*tuned_, 1);
  go(NPU_CALL_BENCHMARK, 5);
  EXPECT_EQ(*tuned_, 2);
}

TEST_F(Extras, ADriverThatDoesNotKnowTheFlagIsNeverTuned) {
  Driver& plain = *Driver::load(NPU_TEST_DRIVER_DIR "/libnpu_tiny.so");
  Gemm gemm(4);
  gemm.call.frame().flags |= NPU_CALL_BENCHMARK;
  gemm.call.plan(plain, 0);
  EXPECT_EQ(gemm.call.frame().flags & NPU_CALL_BENCHMARK, 0u);
}

TEST_F(Extras, WhatTuneFindsReplacesThePlanAndTheOldOneIsReleased) {
  *makes_ = 1;
  void* const first = go(NPU_CALL_BENCHMARK);
  EXPECT_EQ(*made_, 2) << "plan's and tune's";
  EXPECT_EQ(*released_, 1) << "plan's, which has no holder any more";
  EXPECT_EQ(go(NPU_CALL_BENCHMARK), first);
  EXPECT_EQ(*made_, 2);
  clear_plans();
  EXPECT_EQ(*released_, 2);
}

TEST_F(Extras, APlanTuneLeavesAloneIsReleasedOnce) {
  go(NPU_CALL_BENCHMARK);
  EXPECT_EQ(*released_, 0);
  Gemm gemm(4);
  gemm.call.frame().flags |= NPU_CALL_BENCHMARK;
  EXPECT_EQ(gemm.call.plan(*driver_, 0).workspace_bytes, 32u)
      << "the tuned verdict is kept";
  clear_plans();
  EXPECT_EQ(*released_, 0);
  gemm.call.plan(*driver_, 0);  // lets go of the first
  EXPECT_EQ(*released_, 1);
  EXPECT_EQ(*made_, 2);
}

TEST_F(Extras, AnAnswerThatWantsMoreIsNotUsed) {
  *makes_ = 2;
  go(NPU_CALL_BENCHMARK);
  EXPECT_EQ(*made_, 2);
  EXPECT_EQ(*released_, 1) << "tune's own";
  EXPECT_EQ(*tuned_, 1);
}

TEST_F(Extras, AFailureOfTuneLeavesThePlanButAsyncErrorsAreTold) {
  *status_ = NPU_E_OUT_OF_MEMORY;
  EXPECT_NE(go(NPU_CALL_BENCHMARK), nullptr);
  *status_ = NPU_E_ASYNC;
  Gemm gemm(6);
  gemm.call.frame().flags |= NPU_CALL_BENCHMARK;
  Memory memory{64};
  fit(*driver_, gemm, memory);
  EXPECT_HAS(
      test::error_of([&] { gemm.call.tune(*driver_, 0, stream_); }),
      "tuning fails, as asked");
}

TEST_F(Extras, ManyThreadsTuneOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        go(NPU_CALL_BENCHMARK, 20 + i % 4);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(*tuned_, 4);
  clear_plans();
  EXPECT_EQ(*made_, *released_);
}

// ---- warm ----

TEST_F(Extras, EachKindIsWarmedOnceBeforeItsFirstCall) {
  int* const warmed = counter("tiny_warmed");
  Driver& driver = *Driver::load(NPU_TEST_DRIVER_DIR "/libnpu_tiny_extras.so");
  driver.ensure_warm(3, NPU_KIND_GEMM);
  const int before = *warmed;
  driver.ensure_warm(3, NPU_KIND_GEMM);
  EXPECT_EQ(*warmed, before);
  driver.ensure_warm(4, NPU_KIND_GEMM);
  driver.ensure_warm(3, NPU_KIND_FILL);
  driver.ensure_warm(3, NPU_FIRST_VENDOR_SLOT);
  driver.ensure_warm(3, NPU_FIRST_VENDOR_SLOT);
  EXPECT_EQ(*warmed, before + 3);
  Gemm gemm(4);
  gemm.call.plan(driver, 5);
  gemm.call.plan(driver, 5);
  EXPECT_EQ(*warmed, before + 4) << "plan warms up; its failure is no error";
  EXPECT_STREQ(host_services()->last_error(), "");
}

}  // namespace
}  // namespace npu
