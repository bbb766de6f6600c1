// SPDX-License-Identifier: Apache-2.0
// npu_grouped_matmul of rows grouped by expert, and npu_dynamic_quant of rows.
#include <ATen/ops/mm.h>

#include "aten/ops/fused/fused.h"

namespace npu::fused {
namespace {

// The arguments of npu_grouped_matmul in their order.
enum Place : std::size_t {
  kX = 0,
  kWeight = 1,
  kFirstExtra = 2,  // bias, scales, offsets: not in plain products
  kGroupList = 8,
  kLastExtra = 11,
  kSplitItem = 12,
  kGroupType = 13,
  kListType = 14,
  kAct = 15,
  kTuning = 16,
  kOutputDtype = 17,
  kArguments = 22,
};

std::int64_t int_or(const c10::IValue& value, std::int64_t otherwise) {
  return value.isNone() ? otherwise : value.toInt();
}

// The sizes of the groups of one matrix of rows; empty where the call is
// another one, or its numbers are wrong.
std::vector<std::int64_t> plain_groups(at::ArrayRef<c10::IValue> args) {
  for (std::size_t i = kFirstExtra; i <= kLastExtra; ++i) {
    if (i != kGroupList && !args[i].isNone()) {
      return {};
    }
  }
  const auto x = args[kX].toTensorVector();
  const auto weight = args[kWeight].toTensorVector();
  const std::int64_t split = int_or(args[kSplitItem], 0);
  const std::int64_t kind = int_or(args[kListType], 0);
  if (!args[kGroupList].isTensor() || int_or(args[kGroupType], -1) != 0 ||
      (split != 2 && split != 3) || (kind != 0 && kind != 1) ||
      int_or(args[kAct], 0) != 0 || !args[kOutputDtype].isNone() ||
      x.size() != 1 || x[0].dim() != 2 || !is_float(x[0]) || weight.empty() ||
      weight[0].dim() != (weight.size() == 1 ? 3 : 2)) {
    return {};
  }
  const at::Tensor list =
      args[kGroupList].toTensor().to(at::kCPU, at::kLong).contiguous();
  const auto* const numbers = list.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> groups(numbers, numbers + list.numel());
  std::int64_t total = 0;
  for (auto& group : groups) {
    group -= kind == 0 ? total : 0;
    total += group;
    if (group < 0) {
      return {};
    }
  }
  const auto matrices = weight.size() == 1
                            ? static_cast<std::size_t>(weight[0].size(0))
                            : weight.size();
  return total <= x[0].size(0) && groups.size() <= matrices
             ? groups
             : std::vector<std::int64_t>();
}

bool fits_weight(const at::Tensor& w, const at::Tensor& x, std::int64_t n) {
  return w.dim() == 2 && same_dtype(w, x) && w.size(0) == x.size(1) &&
         w.size(1) == n;
}

void grouped_matmul(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet,
    torch::jit::Stack* stack) {
  const auto args = torch::jit::last(*stack, kArguments);
  const std::vector<std::int64_t> groups = plain_groups(args);
  if (groups.empty()) {
    op.redispatchBoxed(kComposition, stack);
    return;
  }
  const at::Tensor x = args[kX].toTensorVector()[0];
  std::vector<at::Tensor> weight = args[kWeight].toTensorVector();
  if (weight.size() == 1) {
    weight = weight[0].unbind(0);
  }
  const std::int64_t n = weight[0].size(-1);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!fits_weight(weight[i], x, n)) {
      op.redispatchBoxed(kComposition, stack);
      return;
    }
  }
  at::Tensor out = empty_of(x, {x.size(0), n}, x.scalar_type());
  std::int64_t at = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] > 0) {
      at::Tensor rows = out.narrow(0, at, groups[i]);
      at::mm_out(rows, x.narrow(0, at, groups[i]), weight[i]);
    }
    at += groups[i];
  }
  if (at < x.size(0)) {
    out.narrow(0, at, x.size(0) - at).zero_();
  }
  torch::jit::drop(*stack, kArguments);
  torch::jit::push(*stack, std::vector<at::Tensor>{out});
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

const custom::Native kInstallGrouped(
    "npu_grouped_matmul", [](torch::Library& m) {
      const char* const name = "npu_grouped_matmul";
      impl(
          m,
          name,
          c10::DispatchKey::PrivateUse1,
          torch::CppFunction::makeFromBoxedFunction<&grouped_matmul>());
      impl_parts(m, name);
    });
const custom::Native kInstallDynamicQuant(
    "npu_dynamic_quant", [](torch::Library& m) {
      const char* const name = "npu_dynamic_quant";
      impl(m, name, c10::DispatchKey::PrivateUse1, TORCH_FN(dynamic_quant));
      impl_parts(m, name);
    });

}  // namespace
}  // namespace npu::fused
