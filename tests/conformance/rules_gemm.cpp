// SPDX-License-Identifier: Apache-2.0
// Rules of the products of matrices and vectors.
#include "rules.h"

namespace npu::kit {
namespace {

void gemm(Draw& d) {
  const Shape batch = d.shape(0, 2);
  const std::int64_t m = d.size();
  const std::int64_t n = d.size();
  const std::int64_t k = d.between(1, 40);
  const Shape out = batch + Shape{m, n};
  d.set("out", out).set("a", batch + Shape{m, k}).set("b", batch + Shape{k, n});
  const std::int64_t gradient =
      d.has_cap(NPU_CAP_BIAS_GRADIENT) ? d.between(0, 2) : 0;
  const bool of_a = gradient == NPU_GEMM_BIAS_GRADIENT_A;
  d.maybe("c", out).maybe("bias", {n});
  d.maybe("pre", gradient == 0 ? out : batch + Shape{of_a ? m : n});
  d.attr("bias_gradient", number(gradient));
  constexpr double kFactors[] = {1, 2, 0.5, 0};
  const double alpha = kFactors[d.between(0, 2)];
  const double beta = kFactors[d.between(0, 3)];
  const bool activates = is_floating(d.main()) && d.coin();
  const bool derives = d.has_cap(NPU_CAP_EPILOGUE_GRAD);
  const std::int64_t epilogue =
      activates ? d.between(
                      1,
                      derives ? NPU_GEMM_EPILOGUE_GELU_TANH_GRAD
                              : NPU_GEMM_EPILOGUE_SILU)
                : 0;
  if (epilogue >= NPU_GEMM_EPILOGUE_RELU_GRAD) {
    d.set("aux", out);
  }
  d.attr("epilogue", number(epilogue)).attr("alpha", alpha).attr("beta", beta);
  if (epilogue == 0) {
    d.linear(k);
  } else {
    d.terms(k).cancels(number(k));  // products of numbers up to 3
  }
}

void dot(Draw& d) {
  const std::int64_t n = d.between(1, 60);
  d.set("out", {}).set("a", {n}).set("b", {n}).linear(n);
}

// ---- narrow operands ----

constexpr std::uint64_t kFloats =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16) | NPU_DTYPE_BIT(NPU_F32) |
    NPU_DTYPE_BIT(NPU_F64);
constexpr std::uint64_t kNarrow =
    NPU_DTYPE_BIT(NPU_I8) | NPU_DTYPE_BIT(NPU_F8_E4M3FN) |
    NPU_DTYPE_BIT(NPU_F8_E5M2) | NPU_DTYPE_BIT(NPU_F8_E4M3FNUZ) |
    NPU_DTYPE_BIT(NPU_F8_E5M2FNUZ);

// Scales of `lines` rows (or columns) of `depth` elements each.
struct Scaling {
  std::uint32_t code;
  std::int64_t lines, blocks;
};

Scaling draw_scaling(Draw& d, std::int64_t lines, std::int64_t depth) {
  const auto code = static_cast<std::uint32_t>(
      d.between(0, NPU_GEMM_SCALED_SCALING_A_BLOCK_1X16));
  const auto blocks = [&](std::int64_t of, std::int64_t n) {
    return (n + of - 1) / of;
  };
  switch (code) {
    case NPU_GEMM_SCALED_SCALING_A_TENSOR:
      return {code, 1, 1};
    case NPU_GEMM_SCALED_SCALING_A_ROW:
      return {code, lines, 1};
    case NPU_GEMM_SCALED_SCALING_A_BLOCK_1X128:
      return {code, lines, blocks(128, depth)};
    case NPU_GEMM_SCALED_SCALING_A_BLOCK_128X128:
      return {code, blocks(128, lines), blocks(128, depth)};
    case NPU_GEMM_SCALED_SCALING_A_BLOCK_1X32:
      return {code, lines, blocks(32, depth)};
    default:
      return {code, lines, blocks(16, depth)};
  }
}

void gemm_scaled(Draw& d) {
  const std::int64_t m = d.size();
  const std::int64_t n = d.coin() ? d.size() : d.between(127, 130);
  const std::int64_t k = d.coin() ? d.between(1, 40) : d.between(127, 140);
  const Scaling a = draw_scaling(d, m, k);
  const Scaling b = draw_scaling(d, n, k);
  d.attr("scaling_a", a.code).attr("scaling_b", b.code);
  d.dtype("out", d.one_of("out", kFloats)).set("out", {m, n});
  d.dtype("a", d.one_of("a", kNarrow)).set("a", {m, k});
  d.dtype("b", d.one_of("b", kNarrow)).set("b", {k, n});
  d.set("scale_a", {a.lines, a.blocks}).range("scale_a", 0.25, 2);
  d.set("scale_b", {b.blocks, b.lines}).range("scale_b", 0.25, 2);
  if (d.coin()) {
    d.dtype("bias", d.one_of("bias", kFloats)).set("bias", {n});
  }
  d.maybe("scale_out", {}).maybe("amax", {}).range("scale_out", 0.25, 2);
  d.linear(k);
}

// Integers alone, integers scaled into floats, or weights of 8 bits.
void gemm_int8(Draw& d) {
  const std::int64_t m = d.size();
  const std::int64_t n = d.size();
  const std::int64_t k = d.between(1, 40);
  const bool integers = d.code_is("int8") && d.coin();
  if (d.code_is("weight_int4")) {
    d.impossible();  // how two values lie in a byte is every library's own
    return;
  }
  const npu_dtype result =
      integers ? npu_dtype{NPU_I32} : d.one_of("out", kFloats);
  d.dtype("out", result).set("out", {m, n}).set("a", {m, k});
  d.dtype("b", NPU_I8).set("b", {k, n}).attr("group_size", 0).linear(k);
  if (!integers) {
    d.dtype("scales", d.one_of("scales", kFloats)).set("scales", {n});
    d.range("scales", 0.25, 2);
  }
  if (d.coin()) {
    d.dtype("bias", result).set("bias", {n});
  }
}

constexpr Rule kRules[] = {
    {"gemm", gemm},
    {"dot", dot},
    {"gemm_scaled", gemm_scaled},
    {"gemm_int8", gemm_int8},
};

}  // namespace

const std::span<const Rule> kGemmRules = kRules;

}  // namespace npu::kit
