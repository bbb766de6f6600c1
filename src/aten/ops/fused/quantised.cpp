// SPDX-License-Identifier: Apache-2.0
// npu_quant_matmul of int8 matrices: a product of integers, then kind
// dequantise; npu_dynamic_quant of rows on kind quantise.
#include <ATen/ops/_int_mm.h>

#include "aten/ops/fused/arguments.h"
#include "aten/ops/fused/fused.h"

namespace npu::fused {
namespace {

constexpr char kQuantMatmul[] = "npu::npu_quant_matmul";

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
           !args.has("group_sizes") && !args.has("y_scale") &&
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
  at::Tensor out = empty_of(p.x1, sums.sizes(), more ? at::kFloat : *p.type);
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

void quant_matmul(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  static NativeSite site(
      kQuantMatmul, NPU_KIND_DEQUANTISE, NPU_DEQUANTISE_PRODUCT);
  const QuantProduct p(Arguments(op, *stack));
  if (p.fits && site.wants(p.x1, p.x2, p.scale) == NPU_REASON_NONE) {
    at::Tensor out = scaled_product(site, p);
    if (out.defined()) {
      torch::jit::drop(*stack, op.schema().arguments().size());
      torch::jit::push(*stack, std::move(out));
      return;
    }
  }
  op.redispatchBoxed(kComposition, stack);
}

constexpr char kDynamicQuant[] = "npu::npu_dynamic_quant";
using DynamicQuantFn = Pair(
    const at::Tensor&,
    const OptTensor&,
    const OptTensor&,
    std::optional<std::int64_t>,
    c10::string_view,
    double);

Pair dynamic_quant(
    const at::Tensor& x,
    const OptTensor& given,
    const OptTensor& group_index,
    std::optional<std::int64_t> dst_type,
    c10::string_view mode,
    double dst_type_max) {
  static NativeSite site(
      kDynamicQuant, NPU_KIND_QUANTISE, NPU_QUANTISE_DYNAMIC_TOKEN);
  const at::Tensor& smooth = or_undefined(given);
  constexpr std::int64_t kInt8 = 1;
  npu_reason why = site.wants(x, smooth);
  if (takes(
          is_narrow(x) && x.dim() > 1 && !group_index.has_value() &&
              dst_type.value_or(kInt8) == kInt8 && dst_type_max == 0 &&
              std::string_view(mode.data(), mode.size()) == "pertoken" &&
              (!smooth.defined() || (is_narrow(smooth) && smooth.dim() == 1 &&
                                     smooth.size(0) == x.size(-1))),
          why)) {
    npu_quantise_attrs attrs{};
    attrs.axis = x.dim() - 1;
    attrs.low = -128;
    attrs.high = 127;
    attrs.symmetric = 1;
    at::Tensor out = empty_of(x, x.sizes(), at::kChar);
    at::Tensor scale = empty_of(x, x.sizes().slice(0, x.dim() - 1), at::kFloat);
    if (run<build::quantise>(
            site, out, scale, nullptr, x, nullptr, nullptr, smooth, attrs) ==
        NPU_REASON_NONE) {
      return {std::move(out), std::move(scale)};
    }
  }
  static const auto op = typed<DynamicQuantFn>(kDynamicQuant);
  return op.redispatch(
      kComposition, x, given, group_index, dst_type, mode, dst_type_max);
}

const custom::Native kInstallQuantMatmul(
    "npu_quant_matmul", &install<&quant_matmul>);
const custom::Native kInstallDynamicQuant(
    "npu_dynamic_quant", &install<&dynamic_quant>);

}  // namespace
}  // namespace npu::fused
