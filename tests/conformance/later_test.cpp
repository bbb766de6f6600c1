// SPDX-License-Identifier: Apache-2.0
// What contract 1.2 added and no case of a kind shows.
#include <cstring>

#include "kit.h"
#include "random_kit.h"

namespace npu::kit {
namespace {

// ---- what a driver says of itself ----

TEST(abi, PlatformIsTrue) {
  const bool flagged = (driver().flags & NPU_DRIVER_DEVICE_IS_CPU) != 0;
  const std::string platform = driver().platform != nullptr ? driver().platform
                               : flagged                    ? NPU_PLATFORM_CPU
                                                            : "";
  if (platform.empty()) {
    NPU_NOT_DECLARED("a platform");
  }
  if (platform == NPU_PLATFORM_CPU) {
    EXPECT_NE(properties().host_access, NPU_HOST_ACCESS_NONE)
        << "platform \"cpu\", and host code cannot read device memory";
    return;
  }
  EXPECT_FALSE(flagged) << "platform \"" << platform
                        << "\" and NPU_DRIVER_DEVICE_IS_CPU";
  if (platform == NPU_PLATFORM_CUDA) {
    EXPECT_TRUE(stream_table().native_handle && event_table().native_handle)
        << "platform \"cuda\", and no native handles of streams and events";
  }
}

TEST(abi, WideStatisticsAreTaken) {
  int claimed = 0;
  for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
    const npu_kind_info& kind = *npu_kind_at(i);
    npu_op_caps caps;
    if (!declares(kind.slot, 0, &caps) ||
        (caps.flags & NPU_CAP_WIDE_STATISTICS) == 0) {
      continue;
    }
    for (std::uint32_t place = 0; place < kind.n_out + kind.n_in; ++place) {
      const std::string name = kind.operands[place].name;
      if (name == "mean" || name == "rstd") {
        ++claimed;
        EXPECT_TRUE(has(taken_dtypes(kind, caps, place), NPU_F32))
            << kind.name << " says NPU_CAP_WIDE_STATISTICS, and '" << name
            << "' cannot be float32";
      }
    }
  }
  if (claimed == 0) {
    NPU_NOT_DECLARED("NPU_CAP_WIDE_STATISTICS");
  }
}

// ---- gemm ----

constexpr std::int64_t kRows = 4;
const View kMatrix = {.dtype = NPU_F32, .sizes = {kRows, kRows}, .strides = {}};

npu_scalar scalar(double value) {
  return {NPU_SCALAR_FLOAT, 0, static_cast<std::int64_t>(value), value, 0};
}

std::vector<float> ramp(float step) {
  std::vector<float> out(kRows * kRows);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = 1 + step * static_cast<float>(i);
  }
  return out;
}

Bytes bytes_of(const std::vector<float>& values) {
  Bytes out(values.size() * sizeof(float));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

bool multiplies(npu_op_caps& caps) {
  return declares(NPU_KIND_GEMM, 0, &caps) && has(caps.dtypes[0], NPU_F32);
}

// The plan key says of alpha and beta only whether they are 0, 1 or another
// number, so a plan serves every call of its class.
TEST(abi, PlansOfGemmServeAllScalesOfTheirClass) {
  npu_op_caps caps;
  if (!multiplies(caps) || caps.plan_use == NPU_PLAN_NONE) {
    NPU_NOT_DECLARED("plans of gemm for float32");
  }
  std::vector<float> unit(kRows * kRows, 0);
  for (std::int64_t i = 0; i < kRows; ++i) {
    unit[static_cast<std::size_t>(i * kRows + i)] = 1;
  }
  const std::vector<float> a = ramp(1);
  Buffer out(a.size() * sizeof(float));
  const Buffer left(bytes_of(a));
  const Buffer right(bytes_of(unit));
  const Buffer sum(bytes_of(ramp(0)));
  npu_gemm_attrs attrs{};
  attrs.alpha = scalar(2);
  attrs.beta = scalar(0.5);
  Frame frame(NPU_KIND_GEMM, 0);
  frame.out(out, kMatrix).absent_out().in(left, kMatrix).in(right, kMatrix);
  frame.in(sum, kMatrix).absent_in().attrs(attrs);
  npu_verdict verdict{};
  verdict.size = sizeof(verdict);
  NPU_ASSERT_OK(op_table().plan(0, &frame.call(), &verdict));
  if (verdict.answer != NPU_VERDICT_YES) {
    NPU_NOT_DECLARED("gemm of small float32 matrices");
  }
  attrs.alpha = scalar(3);
  attrs.beta = scalar(-1);
  frame.attrs(attrs);
  npu_call& call = frame.call();
  const Buffer workspace(verdict.workspace_bytes + 1);
  call.plan = verdict.plan;
  call.workspace = workspace.data();
  call.workspace_bytes = verdict.workspace_bytes;
  NPU_ASSERT_OK(memory_table().host_alloc(
      verdict.host_workspace_bytes + 1, &call.host_workspace));
  call.host_workspace_bytes = verdict.host_workspace_bytes;
  StockStream stream;
  NPU_EXPECT_OK(frame.run_unchecked(stream.get()));
  NPU_EXPECT_OK(memory_table().host_free(call.host_workspace));
  if (verdict.plan && op_table().release_plan) {
    op_table().release_plan(verdict.plan);
  }
  const std::vector<float> got = out.get_as<float>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(got[i], 3 * a[i] - 1, 1e-4)
        << "element " << i << ": planned with alpha 2 and beta 0.5, run with 3 "
        << "and -1";
  }
}

// The mode is about halves: float32 operands have the digits of float32.
TEST(abi, HalfPartialsLeaveFloat32Alone) {
  npu_op_caps caps;
  if ((driver().abi & 0xffff) < 2 || !multiplies(caps)) {
    NPU_NOT_DECLARED("gemm of float32 in contract 1.2");
  }
  const std::vector<float> a = ramp(0.001f);
  Buffer out(a.size() * sizeof(float));
  const Buffer left(bytes_of(a));
  const Buffer right(bytes_of(ramp(0)));
  npu_gemm_attrs attrs{};
  attrs.alpha = scalar(1);
  attrs.beta = scalar(0);
  Frame frame(NPU_KIND_GEMM, 0);
  frame.out(out, kMatrix).absent_out().in(left, kMatrix).in(right, kMatrix);
  frame.absent_in().absent_in().attrs(attrs);
  frame.call().math_mode = NPU_MATH_HALF_PARTIALS;
  const npu_status status = frame.run();
  if (status == NPU_E_UNSUPPORTED) {
    NPU_NOT_DECLARED("gemm of small float32 matrices");
  }
  NPU_ASSERT_OK(status);
  const std::vector<float> got = out.get_as<float>();
  for (std::int64_t i = 0; i < kRows * kRows; ++i) {
    const auto row = static_cast<std::size_t>(i / kRows * kRows);
    const double sum = double(a[row]) + a[row + 1] + a[row + 2] + a[row + 3];
    ASSERT_NEAR(got[static_cast<std::size_t>(i)], sum, 1e-5);
  }
}

// ---- random numbers of the device's own ----

#define NPU_NEEDS_OWN_RANDOM()                              \
  if ((driver().flags & NPU_DRIVER_OWN_RANDOM) == 0) {      \
    NPU_NOT_DECLARED("random numbers of the device's own"); \
  }

constexpr std::int64_t kDraws = 20000;

TEST(random, OwnNumbersRepeatWithSeedAndOffset) {
  NPU_NEEDS_OWN_RANDOM();
  RandomCall draw;
  draw.code = NPU_RANDOM_UNIFORM;
  draw.n = kDraws;
  if (!draw.declared()) {
    NPU_NOT_DECLARED("random.uniform of float32");
  }
  const std::vector<double> first = draw.numbers();
  EXPECT_EQ(draw.numbers(), first) << "equal seed and offset, other numbers";
  draw.rng.offset = kDraws;
  const std::vector<double> later = draw.numbers();
  std::int64_t same = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    same += first[i] == later[i] ? 1 : 0;
  }
  EXPECT_LT(same, kDraws / 100) << "another offset gives the same numbers";
}

TEST(random, OwnNumbersHaveTheirDistribution) {
  NPU_NEEDS_OWN_RANDOM();
  RandomCall uniform;
  uniform.code = NPU_RANDOM_UNIFORM;
  RandomCall normal;
  normal.code = NPU_RANDOM_NORMAL;
  uniform.n = normal.n = kDraws;
  const auto moments = [](const std::vector<double>& x) {
    double sum = 0;
    double squares = 0;
    for (const double each : x) {
      sum += each;
      squares += each * each;
    }
    const double mean = sum / kDraws;
    return std::pair{mean, squares / kDraws - mean * mean};
  };
  if (uniform.declared()) {
    const std::vector<double> x = uniform.numbers();
    const auto [mean, variance] = moments(x);
    EXPECT_NEAR(mean, 0.5, 0.015);
    EXPECT_NEAR(variance, 1.0 / 12, 0.005);
    EXPECT_GE(*std::min_element(x.begin(), x.end()), 0);
    EXPECT_LT(*std::max_element(x.begin(), x.end()), 1);
  }
  if (normal.declared()) {
    const auto [mean, variance] = moments(normal.numbers());
    EXPECT_NEAR(mean, 0, 0.05);
    EXPECT_NEAR(variance, 1, 0.06);
  }
}

// One head of attention over equal keys: each row is the share of keys kept.
std::vector<float> kept_shares(const npu_rng& rng) {
  constexpr std::int64_t kLength = 32;
  constexpr std::int64_t kWidth = 4;
  const View view = {
      .dtype = NPU_F32, .sizes = {1, 1, kLength, kWidth}, .strides = {}};
  const std::vector<float> ones(kLength * kWidth, 1);
  const std::vector<float> zeros(kLength * kWidth, 0);
  Buffer out(ones.size() * sizeof(float));
  const Buffer q(bytes_of(zeros));
  const Buffer v(bytes_of(ones));
  npu_attention_attrs attrs{};
  attrs.scale = 1;
  attrs.dropout = 0.5;
  attrs.max_q = attrs.max_k = kLength;
  attrs.window_left = attrs.window_right = -1;
  attrs.dropout_rule = NPU_ATTENTION_DROPOUT_RULE_OWN;
  Frame frame(NPU_KIND_ATTENTION, 0);
  frame.out(out, view).absent_out().in(q, view).in(q, view).in(v, view);
  frame.absent_in().absent_in().absent_in().absent_in().attrs(attrs).rng(rng);
  NPU_EXPECT_OK(frame.run());
  return out.get_as<float>();
}

TEST(random, AttentionsOwnDropoutFollowsSeedAndOffset) {
  npu_op_caps caps;
  if (!declares(NPU_KIND_ATTENTION, 0, &caps) ||
      !has(caps.dtypes[0], NPU_F32) ||
      (caps.flags & NPU_CAP_DROPOUT_RULE) == 0) {
    NPU_NOT_DECLARED("attention's own dropout rule");
  }
  const std::vector<float> first = kept_shares({7, 0, nullptr, nullptr});
  EXPECT_EQ(kept_shares({7, 0, nullptr, nullptr}), first)
      << "equal seed and offset, another mask";
  EXPECT_NE(kept_shares({8, 0, nullptr, nullptr}), first)
      << "another seed, the same mask";
  EXPECT_NE(kept_shares({7, 4096, nullptr, nullptr}), first)
      << "another offset, the same mask";
  double sum = 0;
  for (const float share : first) {
    sum += share;
  }
  EXPECT_NEAR(sum / static_cast<double>(first.size()), 1, 0.15);
}

}  // namespace
}  // namespace npu::kit
