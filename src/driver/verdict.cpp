// SPDX-License-Identifier: Apache-2.0
// Compares a call with a kind's capabilities.
#include "driver/verdict.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "npu/validate.h"

namespace npu {

namespace {

constexpr std::uint64_t kHalves =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16);

// One operand with its place in the frame and in the kind.
struct Role {
  const npu_tensor* tensor;
  const npu_operand_info* info;  // nullptr for a vendor's own kind
  std::uint32_t place;
  bool is_output;
};

template <class Fn>
void for_each_operand(const npu_call& call, Fn fn) {
  const npu_kind_info* kind = npu_kind_of(call.slot);
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    const npu_tensor& tensor = call.tensors[i];
    if (tensor.dtype != NPU_ABSENT) {
      const bool known = kind != nullptr && i < kind->n_out + kind->n_in;
      fn(Role{
          &tensor, known ? &kind->operands[i] : nullptr, i, i < call.n_out});
    }
  }
}

std::uint64_t bit_of(const Role& role) noexcept {
  return std::uint64_t{1} << role.place;
}

// The dtypes a driver takes for an operand.
std::uint64_t allowed_dtypes(
    const npu_op_caps& caps, const Role& role, npu_dtype first) noexcept {
  const std::uint64_t own = caps.dtypes[role.place];
  const bool special = role.info != nullptr && role.info->dtypes != 0;
  switch (caps.dtype_rule) {
    case NPU_DTYPES_SAME:
      // Masks and indices have dtypes of their own in any kind.
      if (special) {
        return own != 0 ? own : role.info->dtypes;
      }
      return caps.dtypes[0] & (own != 0 ? own : ~UINT64_C(0)) &
             NPU_DTYPE_BIT(first);
    case NPU_DTYPES_CAST:
      return own != 0 ? own : special ? role.info->dtypes : caps.dtypes[0];
    default:
      return own != 0 ? own : (special ? role.info->dtypes : ~UINT64_C(0));
  }
}

// Lists count as one large operand.
std::int64_t largest_numel(const npu_call& call) noexcept {
  std::int64_t most = 0;
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    most = std::max(most, call.tensors[i].numel);
  }
  for (std::uint32_t i = 0; i < call.n_lists; ++i) {
    std::int64_t sum = 0;
    for (std::uint32_t j = 0; j < call.lists[i].n; ++j) {
      sum += call.lists[i].numel[j];
    }
    most = std::max(most, sum);
  }
  return most;
}

// What numel_limit goes by: the first input, else the first output or list.
npu_dtype leading_dtype(const npu_call& call) noexcept {
  npu_dtype found = NPU_ABSENT;
  for (std::uint32_t i = 0; i < call.n_in && found == NPU_ABSENT; ++i) {
    found = call.tensors[call.n_out + i].dtype;
  }
  for (std::uint32_t i = 0; i < call.n_out && found == NPU_ABSENT; ++i) {
    found = call.tensors[i].dtype;
  }
  for (std::uint32_t i = 0; i < call.n_lists && found == NPU_ABSENT; ++i) {
    found = call.lists[i].dtype;
  }
  return found;
}

// For NPU_CAP_ONE_INPUT_DTYPE.
bool inputs_of_one_dtype(const npu_call& call) noexcept {
  npu_dtype first = NPU_ABSENT;
  bool same = true;
  for_each_operand(call, [&](const Role& role) {
    const npu_tensor& tensor = *role.tensor;
    const bool special = role.info != nullptr && role.info->dtypes != 0;
    if (role.is_output || special || tensor.dtype == NPU_BOOL ||
        (tensor.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
      return;
    }
    first = first == NPU_ABSENT ? tensor.dtype : first;
    same = same && tensor.dtype == first;
  });
  return same;
}

// A kind whose result in float32, rounded at the end, is the one asked for. The
// next float32 after a half is, rounded, that half again.
bool may_compute_wider(const npu_call& call) noexcept {
  const npu_kind_info* kind = npu_kind_of(call.slot);
  const bool next =
      call.slot == NPU_KIND_BINARY && call.code == NPU_BINARY_NEXTAFTER;
  return kind != nullptr && call.slot != NPU_KIND_COPY && !next &&
         std::string_view(kind->family) != "random";
}

// Lists have their dtypes after those of the kind's operands.
std::uint64_t list_dtypes(
    const npu_op_caps& caps, const npu_call& call, std::uint32_t i) noexcept {
  const npu_kind_info* kind = npu_kind_of(call.slot);
  const std::uint32_t first =
      kind == nullptr ? call.n_out + call.n_in : kind->n_out + kind->n_in;
  const std::uint64_t own =
      first + i < NPU_MAX_OPERANDS ? caps.dtypes[first + i] : 0;
  const std::uint64_t kinds = kind != nullptr && i < kind->n_lists
                                  ? kind->operands[first + i].dtypes
                                  : 0;
  if (own != 0 || kinds != 0) {
    return own != 0 ? own : kinds;
  }
  const bool any = caps.dtype_rule == NPU_DTYPES_FREE || kind == nullptr;
  return any ? ~UINT64_C(0) : caps.dtypes[0];
}

npu_verdict check_list_dtypes(const npu_op_caps& caps, const npu_call& call) {
  npu_verdict verdict{};
  verdict.answer = NPU_VERDICT_YES;
  std::uint64_t halves = 0;
  bool widening_helps = may_compute_wider(call);
  for (std::uint32_t i = 0; i < call.n_lists; ++i) {
    const npu_dtype dtype = call.lists[i].dtype;
    if (dtype == NPU_ABSENT) {
      continue;
    }
    const bool half = (NPU_DTYPE_BIT(dtype) & kHalves) != 0;
    halves |= half ? std::uint64_t{1} << (call.n_out + call.n_in + i) : 0;
    const std::uint64_t allowed = list_dtypes(caps, call, i);
    if ((allowed & NPU_DTYPE_BIT(dtype)) == 0) {
      verdict = declined(NPU_REASON_DTYPE, "a list");
      widening_helps =
          widening_helps && half && (allowed & NPU_DTYPE_BIT(NPU_F32)) != 0;
    }
  }
  if (verdict.answer == NPU_VERDICT_NO && widening_helps) {
    verdict.answer = NPU_VERDICT_IF_CAST;
    verdict.cast_dtype = NPU_F32;
    verdict.mask = halves;
  }
  return verdict;
}

// ---- combinations of dtypes ----

// Operands of `call` that differ from the row, as a mask; a row can be reached
// when they all are halves it wants as float32.
struct RowDistance {
  std::uint64_t differ = 0;
  bool reachable = true;
};

RowDistance distance_to(
    const npu_dtype_row& row, const npu_op_caps& caps, const npu_call& call) {
  RowDistance distance;
  for_each_operand(call, [&](const Role& role) {
    const npu_dtype wanted = row.dtypes[role.place];
    const std::uint64_t any = caps.dtypes[role.place];
    const std::uint64_t allowed = wanted != NPU_ABSENT ? NPU_DTYPE_BIT(wanted)
                                  : any != 0           ? any
                                                       : ~UINT64_C(0);
    const std::uint64_t mine = NPU_DTYPE_BIT(role.tensor->dtype);
    if ((allowed & mine) == 0) {
      distance.differ |= bit_of(role);
      distance.reachable = distance.reachable && (mine & kHalves) != 0 &&
                           (allowed & NPU_DTYPE_BIT(NPU_F32)) != 0;
    }
  });
  const npu_kind_info* kind = npu_kind_of(call.slot);
  const std::uint32_t first =
      kind == nullptr ? call.n_out + call.n_in : kind->n_out + kind->n_in;
  for (std::uint32_t i = 0; i < call.n_lists && first + i < NPU_MAX_OPERANDS;
       ++i) {
    const npu_dtype wanted = row.dtypes[first + i];
    if (wanted != NPU_ABSENT && call.lists[i].dtype != NPU_ABSENT &&
        wanted != call.lists[i].dtype) {
      distance.reachable = false;
      distance.differ = ~UINT64_C(0);
    }
  }
  return distance;
}

// YES for a row that fits; else a cast of the fewest operands, or no.
npu_verdict check_dtype_rows(const npu_op_caps& caps, const npu_call& call) {
  RowDistance best{~UINT64_C(0), false};
  for (std::uint32_t i = 0; i < caps.n_dtype_rows; ++i) {
    const RowDistance distance = distance_to(caps.dtype_rows[i], caps, call);
    const bool nearer = !best.reachable || std::popcount(distance.differ) <
                                               std::popcount(best.differ);
    if (distance.reachable && nearer) {
      best = distance;
    }
  }
  npu_verdict verdict{};
  if (best.reachable && best.differ == 0) {
    verdict.answer = NPU_VERDICT_YES;
    return verdict;
  }
  verdict.reason = NPU_REASON_DTYPE;
  if (best.reachable && may_compute_wider(call)) {
    verdict.answer = NPU_VERDICT_IF_CAST;
    verdict.cast_dtype = NPU_F32;
    verdict.mask = best.differ;
    return verdict;
  }
  std::snprintf(verdict.detail, sizeof(verdict.detail), "this mix of dtypes");
  return verdict;
}

npu_verdict check_dtypes(const npu_op_caps& caps, const npu_call& call) {
  if (caps.dtype_rule == NPU_DTYPES_ROWS) {
    return check_dtype_rows(caps, call);
  }
  npu_verdict verdict{};
  npu_dtype first = NPU_ABSENT;
  std::uint64_t wrong = 0;
  std::uint64_t halves = 0;
  bool widening_helps = may_compute_wider(call);
  for_each_operand(call, [&](const Role& role) {
    const npu_dtype dtype = role.tensor->dtype;
    const bool special = role.info != nullptr && role.info->dtypes != 0;
    if (first == NPU_ABSENT && !special) {
      first = dtype;
    }
    halves |= (NPU_DTYPE_BIT(dtype) & kHalves) != 0 ? bit_of(role) : 0;
    if ((allowed_dtypes(caps, role, first) & NPU_DTYPE_BIT(dtype)) != 0) {
      return;
    }
    if (wrong == 0) {
      std::snprintf(
          verdict.detail,
          sizeof(verdict.detail),
          "operand '%s' is %s",
          role.info != nullptr ? role.info->name : "?",
          npu_dtype_name(dtype));
    }
    wrong |= bit_of(role);
    widening_helps =
        widening_helps && (NPU_DTYPE_BIT(dtype) & kHalves) != 0 &&
        (allowed_dtypes(caps, role, NPU_F32) & NPU_DTYPE_BIT(NPU_F32)) != 0;
  });
  if (wrong == 0) {
    verdict.answer = NPU_VERDICT_YES;
    return verdict;
  }
  verdict.reason = NPU_REASON_DTYPE;
  if (widening_helps) {
    verdict.answer = NPU_VERDICT_IF_CAST;
    verdict.cast_dtype = NPU_F32;
    verdict.mask = halves;
  }
  return verdict;
}

// alias_mask counts inputs, not operands.
std::uint64_t input_bit(const npu_call& call, const Role& role) noexcept {
  return std::uint64_t{1} << (role.place - call.n_out);
}

// A copy of the operand would do: plain, on the device, read as it stands.
bool needs_copy(
    const npu_op_caps& caps,
    const npu_driver& driver,
    const npu_call& call,
    const Role& role) {
  const std::uint32_t flags = role.tensor->flags;
  constexpr std::uint32_t kMeaning = NPU_TENSOR_HOST_SCALAR | NPU_TENSOR_CONJ |
                                     NPU_TENSOR_NEG | NPU_TENSOR_ALIAS;
  if ((flags & kMeaning & ~driver.tensor_flags_known) != 0) {
    return true;
  }
  if ((flags & NPU_TENSOR_HOST_SCALAR) != 0) {
    return (caps.flags & NPU_CAP_HOST_SCALAR) == 0;
  }
  if ((flags & NPU_TENSOR_ALIAS) != 0 && !role.is_output &&
      ((caps.flags & NPU_CAP_ALIAS) == 0 ||
       (caps.alias_mask & input_bit(call, role)) == 0)) {
    return true;
  }
  return !takes_layout(caps, *role.tensor, role.is_output);
}

// ---- lists ----

// What a list needs before the kernel takes it.
struct ListNeeds {
  bool copy = false;
  bool align = false;
  bool wide = false;
  std::uint32_t ndim = 0;
};

bool is_written(const npu_call& call, std::uint32_t i) noexcept {
  const npu_kind_info* kind = npu_kind_of(call.slot);
  return kind != nullptr && i < kind->n_lists &&
         kind->operands[kind->n_out + kind->n_in + i].mode != NPU_MODE_IN;
}

ListNeeds needs_of_list(
    const npu_op_caps& caps,
    const npu_driver& driver,
    const npu_call& call,
    std::uint32_t i) {
  const npu_list& list = call.lists[i];
  ListNeeds needs;
  if ((list.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
    needs.copy = (caps.flags & NPU_CAP_HOST_SCALAR) == 0 ||
                 (driver.tensor_flags_known & NPU_TENSOR_HOST_SCALAR) == 0;
    return needs;
  }
  needs.wide = (caps.flags & NPU_CAP_INDEX64) == 0 && !fits_index32(list);
  const bool written = is_written(call, i);
  for (std::uint32_t k = 0; k < list.n; ++k) {
    const void* data = nullptr;
    if (list.tensors == nullptr) {
      data = list.data != nullptr ? list.data[k] : nullptr;
    } else if (list.tensors[k].dtype != NPU_ABSENT) {
      const npu_tensor& tensor = list.tensors[k];
      data = tensor.data;
      needs.ndim = std::max<std::uint32_t>(needs.ndim, tensor.ndim);
      needs.copy = needs.copy || !takes_layout(caps, tensor, written);
    }
    needs.align =
        needs.align ||
        (caps.min_alignment > 1 &&
         reinterpret_cast<std::uintptr_t>(data) % caps.min_alignment != 0);
  }
  return needs;
}

npu_verdict check_layout(
    const npu_op_caps& caps, const npu_driver& driver, const npu_call& call) {
  npu_verdict verdict{};
  std::uint64_t copy = 0;
  std::uint64_t align = 0;
  bool wide = false;
  std::uint32_t ndim = 0;
  for_each_operand(call, [&](const Role& role) {
    const npu_tensor& tensor = *role.tensor;
    copy |= needs_copy(caps, driver, call, role) ? bit_of(role) : 0;
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    if (caps.min_alignment > 1 && address % caps.min_alignment != 0 &&
        (tensor.flags & NPU_TENSOR_HOST_SCALAR) == 0) {
      align |= bit_of(role);
    }
    wide = wide || !fits_index32(tensor);
    ndim = std::max<std::uint32_t>(ndim, tensor.ndim);
  });
  for (std::uint32_t i = 0; i < call.n_lists; ++i) {
    const ListNeeds needs = needs_of_list(caps, driver, call, i);
    const std::uint64_t bit = std::uint64_t{1} << (call.n_out + call.n_in + i);
    copy |= needs.copy ? bit : 0;
    align |= needs.align ? bit : 0;
    wide = wide || needs.wide;
    ndim = std::max(ndim, needs.ndim);
  }
  verdict.answer = NPU_VERDICT_YES;
  if (caps.max_ndim != 0 && ndim > caps.max_ndim) {
    return declined(NPU_REASON_NDIM);
  }
  if (wide && (caps.flags & NPU_CAP_INDEX64) == 0) {
    return declined(NPU_REASON_INDEX_WIDTH);
  }
  if (copy != 0) {
    verdict.answer = NPU_VERDICT_IF_CONTIGUOUS;
    verdict.reason = NPU_REASON_STRIDES;
    verdict.mask = copy;
  } else if (align != 0) {
    verdict.answer = NPU_VERDICT_IF_ALIGNED;
    verdict.reason = NPU_REASON_ALIGNMENT;
    verdict.mask = align;
    verdict.alignment = static_cast<std::uint16_t>(caps.min_alignment);
  }
  return verdict;
}

// Set to what only kernels with the attribute's cap know.
bool is_later_value(const npu_attr_info& attr, const unsigned char* bytes) {
  if (attr.cap_from > 1) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    return value >= attr.cap_from;
  }
  return std::any_of(
      bytes, bytes + attr.bytes, [](auto byte) { return byte != 0; });
}

// The name of an attribute or operand that is there and that the kernel does
// not know; nullptr when there is none.
const char* unknown_attribute(const npu_op_caps& caps, const npu_call& call) {
  const npu_kind_info* kind = npu_kind_of(call.slot);
  if (kind == nullptr || (kind->flags & NPU_KIND_LATER_ATTRS) == 0) {
    return nullptr;
  }
  for (std::uint32_t i = 0; i < kind->n_attrs; ++i) {
    const npu_attr_info& attr = kind->attrs[i];
    if (attr.cap == 0 || (caps.flags & attr.cap) != 0 ||
        attr.offset + attr.bytes > call.attr_bytes) {
      continue;
    }
    const auto* bytes =
        static_cast<const unsigned char*>(call.attrs) + attr.offset;
    if (is_later_value(attr, bytes)) {
      return attr.name;
    }
  }
  const std::uint32_t n =
      std::min(call.n_out + call.n_in, kind->n_out + kind->n_in);
  for (std::uint32_t i = kind->n_out; i < n; ++i) {
    const std::uint32_t cap = kind->operands[i].cap;
    if (call.tensors[i].dtype != NPU_ABSENT && cap != 0 &&
        (caps.flags & cap) == 0) {
      return kind->operands[i].name;
    }
  }
  return nullptr;
}

}  // namespace

npu_verdict declined(npu_reason reason, const char* detail) noexcept {
  npu_verdict verdict{};
  verdict.size = sizeof(verdict);
  verdict.answer = NPU_VERDICT_NO;
  verdict.reason = reason;
  std::snprintf(verdict.detail, sizeof(verdict.detail), "%s", detail);
  return verdict;
}

npu_verdict verdict_of_caps(
    const npu_op_caps& caps, const npu_driver& driver, const npu_call& call) {
  if (call.deterministic != 0 && (caps.flags & NPU_CAP_DETERMINISTIC) == 0) {
    return declined(NPU_REASON_DETERMINISTIC);
  }
  if ((call.flags & NPU_CALL_CAPTURE) != 0 &&
      (caps.flags & NPU_CAP_CAPTURE) == 0) {
    return declined(NPU_REASON_CAPTURE);
  }
  if ((call.flags & NPU_CALL_COUNT & ~driver.call_flags_known) != 0) {
    return declined(NPU_REASON_NO_KERNEL, "count calls are not known");
  }
  if (const char* attribute = unknown_attribute(caps, call)) {
    return declined(NPU_REASON_ATTRIBUTE, attribute);
  }
  const npu_dtype leading = leading_dtype(call);
  if (caps.numel_limit[leading % NPU_DTYPE_ROOM] != 0 &&
      !wants_size(caps, leading, largest_numel(call))) {
    return declined(NPU_REASON_SLOWER);
  }
  if ((caps.flags & NPU_CAP_ONE_INPUT_DTYPE) != 0 &&
      !inputs_of_one_dtype(call)) {
    return declined(NPU_REASON_DTYPE, "inputs of several dtypes");
  }
  npu_verdict verdict = check_list_dtypes(caps, call);
  if (verdict.answer == NPU_VERDICT_YES) {
    verdict = check_dtypes(caps, call);
  }
  if (verdict.answer == NPU_VERDICT_YES) {
    verdict = check_layout(caps, driver, call);
  }
  verdict.size = sizeof(verdict);
  return verdict;
}

}  // namespace npu
