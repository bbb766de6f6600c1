// SPDX-License-Identifier: Apache-2.0
// Attributes and flags of contract 1.1 on the host driver, which is the
// reference for what they mean. Answers are worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "compose/driver_test.h"
#include "driver/build_call.h"

namespace npu {
namespace {

using compose::host;

void run(Call& call) {
  npu_stream stream = nullptr;
  ASSERT_EQ(host().stream().create(0, 0, &stream), NPU_OK);
  ASSERT_EQ(call.plan(host(), 0).answer, NPU_VERDICT_YES);
  EXPECT_EQ(call.run(host(), stream), NPU_OK);
  EXPECT_EQ(host().stream().destroy(stream), NPU_OK);
}

// A contiguous float tensor.
struct Floats {
  Floats(std::vector<std::int64_t> shape, std::vector<float> values)
      : sizes(std::move(shape)),
        strides(sizes.size()),
        data(std::move(values)) {
    std::int64_t step = 1;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      strides[d] = step;
      step *= sizes[d];
    }
    data.resize(static_cast<std::size_t>(step), -77);
    tensor.data = tensor.storage = data.data();
    tensor.storage_bytes = data.size() * sizeof(float);
    tensor.numel = step;
    tensor.sizes = sizes.data();
    tensor.strides = strides.data();
    tensor.dtype = NPU_F32;
    tensor.ndim = static_cast<std::uint16_t>(sizes.size());
  }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::vector<float> data;
  npu_tensor tensor{};
};

TEST(HostDriver, SaysThatItIsTheCpuAndWhomItImitates) {
  EXPECT_TRUE(host().device_is_cpu());
  EXPECT_STREQ(host().default_profile(), "ascend910b");
}

// 1x1 kernel of weight 2 and bias -1 over {-1, 0, 1, 2}: -3, -1, 1, 3.
std::vector<float> convolved(std::uint32_t epilogue) {
  Floats out({1, 1, 4}, {});
  const Floats in({1, 1, 4}, {-1, 0, 1, 2});
  const Floats weight({1, 1, 1}, {2});
  const Floats bias({1}, {-1});
  npu_conv_attrs attrs{};
  attrs.spatial = 1;
  attrs.groups = 1;
  for (int i = 0; i < 3; ++i) {
    attrs.stride[i] = attrs.dilation[i] = 1;
  }
  attrs.epilogue = epilogue;
  Call call(NPU_KIND_CONV, 0, "test::conv");
  build::conv(call, out.tensor, in.tensor, weight.tensor, &bias.tensor, attrs);
  run(call);
  return out.data;
}

TEST(HostDriver, ConvAppliesItsEpilogueAfterTheBias) {
  EXPECT_EQ(
      convolved(NPU_CONV_EPILOGUE_NONE), (std::vector<float>{-3, -1, 1, 3}));
  EXPECT_EQ(
      convolved(NPU_CONV_EPILOGUE_RELU), (std::vector<float>{0, 0, 1, 3}));
  EXPECT_NEAR(convolved(NPU_CONV_EPILOGUE_SILU)[3], 2.857722, 1e-5);
  EXPECT_NEAR(convolved(NPU_CONV_EPILOGUE_GELU)[1], -0.158655, 1e-5);
  EXPECT_NEAR(convolved(NPU_CONV_EPILOGUE_GELU_TANH)[1], -0.158808, 1e-5);
}

// Two batches of a (2x3) @ b (3x2); pre receives sums over the 3.
std::vector<float> bias_gradient(std::uint32_t of) {
  Floats out({2, 2, 2}, {});
  Floats pre({2, 2}, {});
  const Floats a({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const Floats b({2, 3, 2}, {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60});
  npu_gemm_attrs attrs{};
  attrs.alpha.re = 1;
  attrs.alpha.kind = NPU_SCALAR_FLOAT;
  attrs.bias_gradient = of;
  Call call(NPU_KIND_GEMM, 0, "test::gemm");
  build::gemm(
      call,
      out.tensor,
      &pre.tensor,
      a.tensor,
      b.tensor,
      nullptr,
      nullptr,
      attrs);
  run(call);
  EXPECT_EQ(out.data[0], 14) << "the product is what it was";
  EXPECT_EQ(out.data[7], 1670);
  return pre.data;
}

TEST(HostDriver, GemmGivesTheGradientOfABias) {
  EXPECT_EQ(
      bias_gradient(NPU_GEMM_BIAS_GRADIENT_A),
      (std::vector<float>{6, 15, 24, 33}));
  EXPECT_EQ(
      bias_gradient(NPU_GEMM_BIAS_GRADIENT_B),
      (std::vector<float>{6, 60, 15, 150}));
}

}  // namespace
}  // namespace npu
