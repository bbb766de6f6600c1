// SPDX-License-Identifier: Apache-2.0
// npu_grouped_matmul of rows grouped by expert: on kind gemm_grouped where the
// driver has it, else products of PyTorch's where the device is this processor.
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include "aten/ops/fused/fused.h"
#include "attempts/matmul.h"
#include "runtime/capabilities.h"

namespace npu::fused {
namespace {

using Groups = std::vector<std::int64_t>;

std::int64_t int_or(const c10::IValue& value, std::int64_t otherwise) {
  return value.isNone() ? otherwise : value.toInt();
}

// The sizes of the groups of one matrix of rows; empty where the call is
// another one, or its numbers are wrong.
Groups plain_groups(const Arguments& args) {
  const auto x = args["x"].toTensorVector();
  const auto weight = args["weight"].toTensorVector();
  const std::int64_t split = int_or(args["split_item"], 0);
  const std::int64_t kind = int_or(args["group_list_type"], 0);
  if (!args["group_list"].isTensor() || int_or(args["group_type"], -1) != 0 ||
      (split != 2 && split != 3) || (kind != 0 && kind != 1) ||
      int_or(args["act_type"], 0) != 0 || x.size() != 1 || x[0].dim() != 2 ||
      !is_float(x[0]) || weight.empty() ||
      weight[0].dim() != (weight.size() == 1 ? 3 : 2)) {
    return {};
  }
  const at::Tensor given = args.tensor("group_list");
  if (given.dim() != 1 || !is_index(given)) {
    return {};
  }
  const at::Tensor list = given.to(at::kCPU, at::kLong).contiguous();
  const auto* const numbers = list.const_data_ptr<std::int64_t>();
  Groups groups(numbers, numbers + list.numel());
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
  return groups.size() <= matrices ? groups : Groups();
}

bool fits_weight(const at::Tensor& w, const at::Tensor& x, std::int64_t n) {
  return w.dim() == 2 && same_dtype(w, x) && w.device() == x.device() &&
         w.size(0) == x.size(1) && w.size(1) == n;
}

// Rows behind the last group are 0.
at::Tensor products_on_cpu(
    const at::Tensor& x, at::TensorList weight, const Groups& groups) {
  at::Tensor out = at::empty({x.size(0), weight[0].size(1)}, x.options());
  std::int64_t at = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] > 0) {
      at::Tensor rows = out.narrow(0, at, groups[i]);
      at::cpu::mm_out(rows, x.narrow(0, at, groups[i]), weight[i]);
    }
    at += groups[i];
  }
  if (at < x.size(0)) {
    out.narrow(0, at, x.size(0) - at).zero_();
  }
  return out;
}

// Undefined where the driver lacks the kind, or weights are no single tensor.
at::Tensor on_kind(
    NativeSite& site,
    const Arguments& args,
    const at::Tensor& x,
    const Groups& groups) {
  const auto weight = args["weight"].toTensorVector();
  if (weight.size() != 1 ||
      static_cast<std::int64_t>(groups.size()) != weight[0].size(0) ||
      !is_narrow(x) || site.caps() == nullptr ||
      site.wants(x, weight[0]) != NPU_REASON_NONE) {
    return {};
  }
  const at::Tensor list = args.tensor("group_list").to(x.device());
  const at::Tensor ends =
      int_or(args["group_list_type"], 0) == 0 ? list : at::cumsum(list, 0);
  const at::Tensor out = make_empty(
      {x.size(0), weight[0].size(2)}, x.scalar_type(), x.device().index());
  npu_gemm_grouped_attrs attrs{};
  return run<build::gemm_grouped>(
             site, out, x, weight[0], ends, nullptr, nullptr, nullptr, attrs) ==
                 NPU_REASON_NONE
             ? out
             : at::Tensor();
}

}  // namespace

npu_reason grouped_matmul(
    NativeSite& site, const Arguments& args, torch::jit::Stack& results) {
  const Groups groups = plain_groups(args);
  if (groups.empty()) {
    return kLeaveToCpu;
  }
  const at::Tensor x = args["x"].toTensorVector()[0];
  std::vector<at::Tensor> weight = args["weight"].toTensorVector();
  if (weight.size() == 1) {
    weight = weight[0].unbind(0);
  }
  const std::int64_t n = weight[0].size(-1);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!fits_weight(weight[i], x, n)) {
      return kLeaveToCpu;
    }
  }
  at::Tensor out = on_kind(site, args, x, groups);
  if (!out.defined() && host_code_is_native()) {
    static twin::Entry& entry =
        twin::make_entry(find_operator("aten::mm"), "npu::npu_grouped_matmul");
    out = ladder::run_unboxed<
        at::Tensor,
        const at::Tensor&,
        at::TensorList,
        const Groups&>(
        entry, NPU_REASON_NO_KERNEL, &products_on_cpu, x, weight, groups);
  }
  if (!out.defined()) {
    return kLeaveToCpu;
  }
  results.emplace_back(std::vector<at::Tensor>{out});
  return NPU_REASON_NONE;
}

}  // namespace npu::fused
