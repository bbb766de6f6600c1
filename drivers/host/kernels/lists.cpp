// SPDX-License-Identifier: Apache-2.0
// What the list kinds share, the two of loss scaling, and the family's table.
#include "kernels/lists.h"

#include <atomic>
#include <cmath>

namespace npu::host {
namespace {

constexpr std::uint64_t kF32 = NPU_DTYPE_BIT(NPU_F32);

npu_status unscale_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  list_caps(out);
  out.dtypes[0] = out.dtypes[1] = kF32;
  out.dtypes[2] = kListDtypes;
  return NPU_OK;
}

npu_status unscale_run(const npu_call& call) {
  const npu_amp_unscale_args args = npu_amp_unscale_unpack(&call);
  if (npu_status status = check_lists(call, {args.grads})) {
    return status;
  }
  const int type = list_type(args.grads->dtype);
  const auto line = list_table().unscale[type];
  const float scale = *static_cast<const float*>(args.inv_scale->data);
  std::atomic<bool> bad{false};
  const npu_status status = parallel_stretches(
      *args.grads, [&](std::int64_t i, std::int64_t at, std::int64_t n) {
        if (line(list_data(args.grads, i, at), scale, n)) {
          bad.store(true, std::memory_order_relaxed);
        }
      });
  if (bad.load(std::memory_order_relaxed)) {
    *static_cast<float*>(args.found_inf->data) = 1.0f;
  }
  return status;
}

npu_status update_scale_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  list_caps(out);
  out.dtypes[0] = out.dtypes[2] = kF32;
  out.dtypes[1] = NPU_DTYPE_BIT(NPU_I32);
  return NPU_OK;
}

npu_status update_scale_run(const npu_call& call) {
  const npu_amp_update_scale_args args = npu_amp_update_scale_unpack(&call);
  auto& scale = *static_cast<float*>(args.scale->data);
  auto& tracker = *static_cast<std::int32_t*>(args.growth_tracker->data);
  if (*static_cast<const float*>(args.found_inf->data) != 0.0f) {
    scale = static_cast<float>(scale * args.attrs.backoff_factor);
    tracker = 0;
    return NPU_OK;
  }
  if (++tracker == args.attrs.growth_interval) {
    // A scale that would overflow stays where it is.
    const auto grown = static_cast<float>(scale * args.attrs.growth_factor);
    scale = std::isfinite(grown) ? grown : scale;
    tracker = 0;
  }
  return NPU_OK;
}

}  // namespace

int list_type(npu_dtype dtype) noexcept {
  switch (dtype) {
    case NPU_F16:
      return kListF16;
    case NPU_BF16:
      return kListBF16;
    case NPU_F32:
      return kListF32;
    case NPU_F64:
      return kListF64;
    default:
      return -1;
  }
}

npu_status check_lists(
    const npu_call& call, std::initializer_list<const npu_list*> lists) {
  const npu_list* first = nullptr;
  for (const npu_list* list : lists) {
    if (list == nullptr) {
      continue;
    }
    first = first == nullptr ? list : first;
    if (list_type(list->dtype) < 0) {
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: host driver: %s: no kernel for lists of %s",
          npu_kind_name(call.slot),
          dtype_name(list->dtype));
    }
    if (list->tensors != nullptr || list->data == nullptr) {
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: host driver: %s: takes lists of dense tensors only",
          npu_kind_name(call.slot));
    }
    const bool fits =
        list->n == first->n &&
        std::equal(list->numel, list->numel + list->n, first->numel);
    if (!fits) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: %s: lists of different lengths or sizes",
          npu_kind_name(call.slot));
    }
  }
  return first != nullptr ? NPU_OK
                          : fail(
                                NPU_E_INVALID,
                                "npu: host driver: %s: no list given",
                                npu_kind_name(call.slot));
}

std::int64_t total_elements(const npu_list& list) noexcept {
  std::int64_t total = 0;
  for (std::uint32_t i = 0; i < list.n; ++i) {
    total += list.numel[i];
  }
  return total;
}

double read_number(npu_dtype dtype, const void* data) noexcept {
  switch (dtype) {
    case NPU_F16:
      return *static_cast<const F16*>(data);
    case NPU_BF16:
      return *static_cast<const BF16*>(data);
    case NPU_F32:
      return *static_cast<const float*>(data);
    default:
      return *static_cast<const double*>(data);
  }
}

void list_caps(npu_op_caps& out) noexcept {
  out.flags = NPU_CAP_INDEX64 | NPU_CAP_ALIAS | NPU_CAP_DETERMINISTIC |
              NPU_CAP_CAPTURE | NPU_CAP_HOST_SCALAR;
  out.alias_mask = ~std::uint64_t{0};
  out.accumulate = NPU_DTYPE_BIT(NPU_F64);
  out.dtype_rule = NPU_DTYPES_FREE;
  out.plan_use = NPU_PLAN_NONE;
}

const ListTable& list_table() noexcept {
  return NPU_TABLE_IN_USE(kLists);
}

namespace {

constexpr KernelRow kRows[] = {
    {NPU_KIND_MULTI_MAP, multi_map_caps, nullptr, multi_map_run},
    {NPU_KIND_MULTI_REDUCE, multi_reduce_caps, nullptr, multi_reduce_run},
    {NPU_KIND_OPTIMIZER, optimizer_caps, nullptr, optimizer_run},
    {NPU_KIND_AMP_UNSCALE, unscale_caps, nullptr, unscale_run},
    {NPU_KIND_AMP_UPDATE_SCALE, update_scale_caps, nullptr, update_scale_run},
};

}  // namespace

const std::span<const KernelRow> kListKernels = kRows;

}  // namespace npu::host
