// SPDX-License-Identifier: Apache-2.0
// npu_quant_matmul of int8 matrices: a product of integers, then kind
// dequantise; npu_dynamic_quant of rows on kind quantise.
#include <ATen/ops/_int_mm.h>

#include "aten/ops/fused/fused.h"
#include "attempts/matmul.h"
#include "attempts/quant.h"

namespace npu::fused {
namespace {

// Numbers that mean the dtypes a result can have; int8 where none is given.
std::optional<c10::ScalarType> result_type(const c10::IValue& number) {
  switch (number.isNone() ? 1 : number.toInt()) {
    case 1:
    case 258:
      return at::kChar;
    case 5:
    case 257:
      return at::kHalf;
    case 6:
    case 256:
      return at::kFloat;
    case 15:
    case 283:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

struct QuantProduct {
  explicit QuantProduct(const Arguments& args)
      : x1(args.tensor("x1")),
        x2(args.tensor("x2")),
        scale(args.tensor("scale")),
        token(args.maybe("pertoken_scale")),
        bias(args.maybe("bias")),
        offset(args.maybe("offset")),
        type(result_type(args["output_dtype"])) {
    const auto is_row = [](const at::Tensor& x, std::int64_t n) {
      return x.dim() == 1 && (x.size(0) == n || x.size(0) == 1);
    };
    fits = type.has_value() && x1.scalar_type() == at::kChar &&
           x2.scalar_type() == at::kChar && x1.dim() == 2 && x2.dim() == 2 &&
           x1.size(1) == x2.size(0) && x1.numel() > 0 && x2.numel() > 0 &&
           is_narrow(scale) && is_row(scale, x2.size(1)) &&
           (!token.defined() ||
            (token.scalar_type() == at::kFloat && token.dim() == 1 &&
             token.size(0) == x1.size(0))) &&
           (!offset.defined() || *type == at::kChar) &&
           on_device(x1, x2, scale, token, bias, offset);
    if (bias.defined()) {
      late_bias = bias.is_floating_point();
      fits = fits && bias.dim() == 1 && bias.size(0) == x2.size(1) &&
             (late_bias || bias.scalar_type() == at::kInt);
    }
  }
  at::Tensor x1;
  at::Tensor x2;
  at::Tensor scale;
  at::Tensor token;
  at::Tensor bias;
  at::Tensor offset;
  std::optional<c10::ScalarType> type;
  bool late_bias = false;
  bool fits = false;
};

// (x1 @ x2 + bias) * scale * token, then a floating bias, then the offset.
at::Tensor scaled_product(NativeSite& site, const QuantProduct& p) {
  npu_dequantise_attrs attrs{};
  const at::Tensor sums = at::_int_mm(p.x1, p.x2);
  const bool more = p.late_bias || *p.type == at::kChar;
  at::Tensor out = make_empty(
      sums.sizes(), more ? at::kFloat : *p.type, p.x1.device().index());
  const at::Tensor early = p.late_bias ? at::Tensor() : p.bias;
  if (run<build::dequantise>(
          site, out, sums, p.scale, nullptr, p.token, early, attrs) !=
      NPU_REASON_NONE) {
    return {};
  }
  if (p.late_bias) {
    out.add_(p.bias);
  }
  if (*p.type != at::kChar) {
    return out.to(*p.type);
  }
  if (p.offset.defined()) {
    out.add_(p.offset);
  }
  return out.round_().clamp_(-128, 127).to(at::kChar);
}

}  // namespace

npu_reason quant_matmul(
    NativeSite& site, const Arguments& args, torch::jit::Stack& results) {
  const QuantProduct p(args);
  if (!p.fits) {
    return kLeaveToCpu;
  }
  if (const npu_reason why = site.wants(p.x1, p.x2, p.scale);
      why != NPU_REASON_NONE) {
    return why;
  }
  at::Tensor out = scaled_product(site, p);
  if (!out.defined()) {
    return kLeaveToCpu;
  }
  results.emplace_back(std::move(out));
  return NPU_REASON_NONE;
}

npu_reason dynamic_quant(
    NativeSite& site,
    Outputs& out,
    const at::Tensor& x,
    const at::Tensor& smooth,
    std::optional<std::int64_t> dst_type,
    c10::string_view mode,
    double dst_type_max) {
  constexpr std::int64_t kInt8 = 1;
  if (!is_narrow(x) || x.dim() < 2 || dst_type.value_or(kInt8) != kInt8 ||
      dst_type_max != 0 || mode != "pertoken") {
    return kLeaveToCpu;
  }
  if (smooth.defined() && (!is_narrow(smooth) || smooth.dim() != 1 ||
                           smooth.size(0) != x.size(-1))) {
    return kLeaveToCpu;
  }
  npu_quantise_attrs attrs{};
  attrs.axis = x.dim() - 1;
  attrs.low = -128;
  attrs.high = 127;
  attrs.symmetric = 1;
  const at::Tensor& y = set_output(out, 0, x.sizes(), x, at::kChar);
  const at::Tensor& scale =
      set_output(out, 1, x.sizes().slice(0, x.dim() - 1), x, at::kFloat);
  return run<build::quantise>(
      site, y, scale, nullptr, x, nullptr, nullptr, smooth, attrs);
}

}  // namespace npu::fused
