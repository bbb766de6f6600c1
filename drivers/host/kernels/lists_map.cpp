// SPDX-License-Identifier: Apache-2.0
// Kind multi_map: an elementwise operation on every tensor of a list. What has
// a loop of its own (isa/lists.h) runs in one go; the rest runs tensor by
// tensor through the kernel of the kind it belongs to.
#include <algorithm>
#include <optional>

#include "host.h"
#include "kernels/convert.h"
#include "kernels/lists.h"

namespace npu::host {
namespace {

using OptMap = std::optional<ListMap>;

OptMap unary_map(std::uint32_t op) {
  switch (op) {
    case NPU_UNARY_NEG:
      return kMap_neg;
    case NPU_UNARY_ABS:
      return kMap_abs;
    case NPU_UNARY_SQRT:
      return kMap_sqrt;
    case NPU_UNARY_RSQRT:
      return kMap_rsqrt;
    case NPU_UNARY_RECIPROCAL:
      return kMap_reciprocal;
    case NPU_UNARY_SQUARE:
      return kMap_square;
    case NPU_UNARY_SIGN:
      return kMap_sign;
    default:
      return std::nullopt;
  }
}

OptMap binary_map(std::uint32_t op, bool scalar) {
  switch (op) {
    case NPU_BINARY_ADD:
      return scalar ? kMap_add_scalar : kMap_add;
    case NPU_BINARY_SUB:
      return scalar ? kMap_sub_scalar : kMap_sub;
    case NPU_BINARY_MUL:
      return scalar ? kMap_mul_scalar : kMap_mul;
    case NPU_BINARY_DIV:
      return scalar ? kMap_div_scalar : kMap_div;
    case NPU_BINARY_MAXIMUM:
      return scalar ? kMap_maximum_scalar : kMap_maximum;
    case NPU_BINARY_MINIMUM:
      return scalar ? kMap_minimum_scalar : kMap_minimum;
    case NPU_BINARY_LERP:
      return scalar ? OptMap() : kMap_lerp;
    default:
      return std::nullopt;
  }
}

OptMap ternary_map(std::uint32_t op) {
  switch (op) {
    case NPU_TERNARY_ADDCMUL:
      return kMap_addcmul;
    case NPU_TERNARY_ADDCDIV:
      return kMap_addcdiv;
    case NPU_TERNARY_LERP:
      return kMap_lerp_tensor;
    default:
      return std::nullopt;
  }
}

OptMap map_of(std::uint32_t code, const npu_multi_map_args& args) {
  const std::uint32_t op = args.attrs.op;
  switch (code) {
    case NPU_MULTI_MAP_UNARY:
      return unary_map(op);
    case NPU_MULTI_MAP_BINARY:
      return binary_map(op, args.y == nullptr);
    case NPU_MULTI_MAP_TERNARY:
      return ternary_map(op);
    case NPU_MULTI_MAP_FILL:
      return kMap_fill;
    default:
      return std::nullopt;
  }
}

// The scalar of entry i. A missing one is the neutral 1 (alpha, value).
double scalar_of(const npu_multi_map_args& args, std::int64_t i) {
  if (args.scalars != nullptr) {
    return read_number(args.scalars->dtype, args.scalars->data[i]);
  }
  return args.attrs.a.kind == NPU_SCALAR_NONE ? 1.0 : args.attrs.a.re;
}

npu_status run_loops(ListMap map, const npu_multi_map_args& args) {
  const ListMapFn line = list_table().map[map][list_type(args.out->dtype)];
  return parallel_stretches(
      *args.out, [&](std::int64_t i, std::int64_t at, std::int64_t n) {
        line(
            list_data(args.out, i, at),
            list_data(args.x, i, at),
            list_data(args.y, i, at),
            list_data(args.z, i, at),
            scalar_of(args, i),
            n);
      });
}

npu_status run_copy(const npu_multi_map_args& args) {
  Conversion conversion;
  if (!conversion.set(args.out->dtype, args.x->dtype, false)) {
    return fail(
        NPU_E_UNSUPPORTED,
        "npu: host driver: multi_map copy: from %s to %s",
        dtype_name(args.x->dtype),
        dtype_name(args.out->dtype));
  }
  const auto to = static_cast<std::int64_t>(element_bytes(args.out->dtype));
  const auto from = static_cast<std::int64_t>(element_bytes(args.x->dtype));
  return parallel_stretches(
      *args.out, [&](std::int64_t i, std::int64_t at, std::int64_t n) {
        char* dst = list_data(args.out, i, at);
        const char* src = list_data(args.x, i, at);
        if (conversion.is_copy()) {
          __builtin_memmove(dst, src, static_cast<std::size_t>(n * to));
        } else {
          conversion.line(dst, to, src, from, n);
        }
      });
}

// ---- tensor by tensor ----

// The kind a code of multi_map stands for, with its numbers of operands.
struct Kind {
  std::uint32_t slot;
  std::uint32_t n_out;
  std::uint32_t n_in;
};

std::optional<Kind> kind_of(std::uint32_t code) {
  switch (code) {
    case NPU_MULTI_MAP_UNARY:
      return Kind{NPU_KIND_UNARY, 2, 1};
    case NPU_MULTI_MAP_UNARY_WITH:
      return Kind{NPU_KIND_UNARY_WITH, 1, 1};
    case NPU_MULTI_MAP_BINARY:
      return Kind{NPU_KIND_BINARY, 1, 2};
    case NPU_MULTI_MAP_TERNARY:
      return Kind{NPU_KIND_TERNARY, 2, 3};
    default:
      return std::nullopt;
  }
}

// A frame for one entry of the lists.
class EntryCall {
 public:
  EntryCall(const npu_call& call, const Kind& kind, std::uint32_t op)
      : kind_(kind) {
    frame_ = call;
    frame_.slot = kind.slot;
    frame_.code = op;
    frame_.n_lists = 0;
    frame_.lists = nullptr;
    frame_.n_out = kind.n_out;
    frame_.n_in = kind.n_in;
    frame_.tensors = tensors_;
    frame_.plan = nullptr;
  }

  const npu_call& set(const npu_multi_map_args& args, std::int64_t i) {
    numel_ = args.out->numel[i];
    set_tensor(tensors_[0], args.out, i);
    npu_tensor* const in = tensors_ + kind_.n_out;
    set_tensor(in[0], args.x, i);
    if (kind_.n_in > 1) {
      set_tensor(in[1], args.y, i);
    }
    if (kind_.n_in > 2) {
      set_tensor(in[2], args.z, i);
    }
    attrs_ = args.attrs;
    if (args.scalars != nullptr) {
      attrs_.a.kind = NPU_SCALAR_FLOAT;
      attrs_.a.re = scalar_of(args, i);
    }
    set_attrs();
    return frame_;
  }

 private:
  void set_tensor(npu_tensor& tensor, const npu_list* list, std::int64_t i) {
    tensor = npu_tensor{};
    if (list == nullptr) {
      return;
    }
    tensor.data = tensor.storage = list->data[i];
    tensor.numel = numel_;
    tensor.storage_bytes =
        static_cast<std::uint64_t>(numel_) * element_bytes(list->dtype);
    tensor.sizes = &numel_;
    tensor.strides = &kStride;
    tensor.dtype = list->dtype;
    tensor.ndim = 1;
    tensor.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  }

  // The kinds' own structs: their scalars, in the same order.
  void set_attrs() {
    frame_.attrs = &with_;
    frame_.attr_bytes = sizeof(with_);
    switch (kind_.slot) {
      case NPU_KIND_UNARY:
        frame_.attrs = nullptr;
        frame_.attr_bytes = 0;
        break;
      case NPU_KIND_UNARY_WITH:
        with_ = {sizeof(with_), 0, attrs_.a, attrs_.b, attrs_.c, attrs_.d};
        break;
      case NPU_KIND_BINARY:
        binary_ = {sizeof(binary_), 0, attrs_.a, attrs_.b, attrs_.c, attrs_.d};
        frame_.attrs = &binary_;
        frame_.attr_bytes = sizeof(binary_);
        break;
      default:
        ternary_ = {sizeof(ternary_), 0, attrs_.a, attrs_.b, attrs_.c};
        frame_.attrs = &ternary_;
        frame_.attr_bytes = sizeof(ternary_);
    }
  }

  static constexpr std::int64_t kStride = 1;
  Kind kind_;
  npu_call frame_;
  npu_tensor tensors_[5]{};
  std::int64_t numel_ = 0;
  npu_multi_map_attrs attrs_{};
  npu_unary_with_attrs with_{};
  npu_binary_attrs binary_{};
  npu_ternary_attrs ternary_{};
};

// The kernel of one operation, when this mode of the driver has it for tensors
// of this dtype, the largest of `most` elements.
const KernelRow* entry_kernel(
    std::uint32_t slot, std::uint32_t op, npu_dtype dtype, std::int64_t most) {
  const KernelRow* row = find_kernel(slot);
  npu_op_caps caps{};
  caps.size = sizeof(caps);
  if (row == nullptr || row->caps(op, caps) != NPU_OK ||
      (caps.dtypes[0] & NPU_DTYPE_BIT(dtype)) == 0) {
    return nullptr;
  }
  if (settings.all_kernels) {
    return row;
  }
  if (!limit_to_fast(slot, op, caps)) {
    return nullptr;
  }
  const std::uint8_t limit = caps.numel_limit[dtype];
  const bool wanted =
      limit == 0 || (limit != NPU_NEVER_ASK && most >> limit == 0);
  return wanted ? row : nullptr;
}

npu_status run_entries(const npu_call& call, const npu_multi_map_args& args) {
  const std::optional<Kind> kind = kind_of(call.code);
  const std::uint32_t op = args.attrs.op;
  const std::int64_t* numel = args.out->numel;
  const std::int64_t most = *std::max_element(numel, numel + args.out->n);
  const KernelRow* row =
      kind ? entry_kernel(kind->slot, op, args.out->dtype, most) : nullptr;
  const bool scalar_for_y =
      call.code == NPU_MULTI_MAP_BINARY && args.y == nullptr;
  if (row == nullptr || scalar_for_y) {
    return fail(
        NPU_E_UNSUPPORTED,
        "npu: host driver: multi_map %s: no kernel for op %s%s",
        npu_code_name(call.slot, call.code),
        kind ? npu_code_name(kind->slot, op) : "?",
        scalar_for_y ? " with a scalar" : "");
  }
  EntryCall entry(call, *kind, op);
  for (std::uint32_t i = 0; i < args.out->n; ++i) {
    if (args.out->numel[i] == 0) {
      continue;
    }
    if (npu_status status = row->run(entry.set(args, i))) {
      return status;
    }
  }
  return NPU_OK;
}

npu_status check(const npu_call& call, const npu_multi_map_args& args) {
  if (args.out == nullptr || args.x == nullptr || args.out->n == 0) {
    return fail(
        NPU_E_INVALID, "npu: host driver: multi_map: out or x is missing");
  }
  if (npu_status status =
          check_lists(call, {args.out, args.x, args.y, args.z})) {
    return status;
  }
  const bool reads_y =
      call.code == NPU_MULTI_MAP_TERNARY ||
      (call.code == NPU_MULTI_MAP_BINARY && args.attrs.op == NPU_BINARY_LERP);
  if ((reads_y && args.y == nullptr) ||
      (call.code == NPU_MULTI_MAP_TERNARY && args.z == nullptr)) {
    return fail(
        NPU_E_UNSUPPORTED, "npu: host driver: multi_map: y or z is missing");
  }
  const npu_list* s = args.scalars;
  if (s != nullptr &&
      (s->n != args.out->n || list_type(s->dtype) < 0 || s->data == nullptr)) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: multi_map: scalars do not fit %u tensors",
        args.out->n);
  }
  const bool is_copy = call.code == NPU_MULTI_MAP_COPY;
  for (const npu_list* list : {args.x, args.y, args.z}) {
    if (list != nullptr && list->dtype != args.out->dtype && !is_copy) {
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: host driver: multi_map: lists of %s and %s",
          dtype_name(args.out->dtype),
          dtype_name(list->dtype));
    }
  }
  return NPU_OK;
}

}  // namespace

npu_status multi_map_caps(std::uint32_t code, npu_op_caps& out) {
  if (code >= NPU_MULTI_MAP_CODES) {
    return NPU_E_UNSUPPORTED;
  }
  list_caps(out);
  for (int i = 0; i < 5; ++i) {
    out.dtypes[i] = kListDtypes;
  }
  return NPU_OK;
}

npu_status multi_map_run(const npu_call& call) {
  const npu_multi_map_args args = npu_multi_map_unpack(&call);
  if (npu_status status = check(call, args)) {
    return status;
  }
  if (call.code == NPU_MULTI_MAP_COPY) {
    return run_copy(args);
  }
  const OptMap map = map_of(call.code, args);
  return map ? run_loops(*map, args) : run_entries(call, args);
}

}  // namespace npu::host
