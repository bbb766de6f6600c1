// SPDX-License-Identifier: Apache-2.0
// npu_grouped_matmul of rows grouped by expert: on kind gemm_grouped where the
// driver has it, else one product after the other.
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mm_cpu_dispatch.h>

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

constexpr char kGrouped[] = "npu::npu_grouped_matmul";

std::size_t size_of(const at::Tensor& list) {
  return static_cast<std::size_t>(list.size(0));
}

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
  const at::Tensor& given = args[kGroupList].toTensor();
  if (given.dim() != 1 || !is_index(given)) {
    return {};
  }
  const at::Tensor list = given.to(at::kCPU, at::kLong).contiguous();
  const auto* const numbers = list.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> groups(numbers, numbers + list.numel());
  std::int64_t total = 0;
  for (auto& group : groups) {
    group -= kind == 0 ? total : 0;
    if (group < 0 || group > x[0].size(0) - total) {
      return {};
    }
    total += group;
  }
  const auto matrices = weight.size() == 1
                            ? static_cast<std::size_t>(weight[0].size(0))
                            : weight.size();
  return groups.size() <= matrices ? groups : std::vector<std::int64_t>();
}

bool fits_weight(const at::Tensor& w, const at::Tensor& x, std::int64_t n) {
  return w.dim() == 2 && same_dtype(w, x) && w.device() == x.device() &&
         w.size(0) == x.size(1) && w.size(1) == n;
}

using Groups = std::vector<std::int64_t>;

// Rows behind the last group are 0.
template <class Product>
void each_group(
    const at::Tensor& x,
    at::TensorList weight,
    const Groups& groups,
    const at::Tensor& out,
    Product product) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] > 0) {
      at::Tensor rows = out.narrow(0, at, groups[i]);
      product(rows, x.narrow(0, at, groups[i]), weight[i]);
    }
    at += groups[i];
  }
  if (at < x.size(0)) {
    out.narrow(0, at, x.size(0) - at).zero_();
  }
}

at::Tensor products_on_cpu(
    const at::Tensor& x, at::TensorList weight, const Groups& groups) {
  at::Tensor out = at::empty({x.size(0), weight[0].size(1)}, x.options());
  each_group(
      x, weight, groups, out, [](auto& to, const auto& a, const auto& b) {
        at::cpu::mm_out(to, a, b);
      });
  return out;
}

// Undefined where the driver lacks the kind, or weights are no single tensor.
at::Tensor on_kind(
    at::ArrayRef<c10::IValue> args, const at::Tensor& x, const Groups& groups) {
  static NativeSite site(kGrouped, NPU_KIND_GEMM_GROUPED, 0);
  const auto weight = args[kWeight].toTensorVector();
  if (weight.size() != 1 || groups.size() != size_of(weight[0]) ||
      !is_narrow(x) || site.caps() == nullptr ||
      site.wants(x, weight[0]) != NPU_REASON_NONE) {
    return {};
  }
  const at::Tensor list = args[kGroupList].toTensor().to(x.device());
  const at::Tensor ends =
      int_or(args[kListType], 0) == 0 ? list : at::cumsum(list, 0);
  at::Tensor out = empty_of(x, {x.size(0), weight[0].size(2)}, x.scalar_type());
  npu_gemm_grouped_attrs attrs{};
  return run<build::gemm_grouped>(
             site, out, x, weight[0], ends, nullptr, nullptr, nullptr, attrs) ==
                 NPU_REASON_NONE
             ? out
             : at::Tensor();
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
  at::Tensor out = on_kind(args, x, groups);
  if (!out.defined() && is_on_cpu()) {
    static ladder::Entry& entry =
        ladder::make_entry(find_operator("aten::mm"), kGrouped);
    out = ladder::run_unboxed<
        at::Tensor,
        const at::Tensor&,
        at::TensorList,
        const Groups&>(
        entry, NPU_REASON_NO_KERNEL, &products_on_cpu, x, weight, groups);
  } else if (!out.defined()) {
    out = empty_of(x, {x.size(0), n}, x.scalar_type());
    each_group(
        x, weight, groups, out, [](auto& to, const auto& a, const auto& b) {
          at::mm_out(to, a, b);
        });
  }
  torch::jit::drop(*stack, kArguments);
  torch::jit::push(*stack, std::vector<at::Tensor>{out});
}

const custom::Native kInstallGrouped(
    "npu_grouped_matmul", &install<&grouped_matmul>);
}  // namespace
}  // namespace npu::fused
