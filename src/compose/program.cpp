// SPDX-License-Identifier: Apache-2.0
// program and multi_program: one call of a map kind per operation.
#include <algorithm>
#include <array>

#include "compose/decompositions.h"
#include "driver/build_call.h"
#include "npu/program.h"
#include "npu/validate.h"

namespace npu::compose {
namespace {

constexpr std::size_t kInputs = NPU_PROGRAM_INPUTS;
constexpr std::size_t kOutputs = NPU_PROGRAM_OUTPUTS;

using Operands = std::array<npu_tensor, kOutputs + kInputs>;

class Operations {
 public:
  // Operands as in the frame of a program, outputs first. The sizes are those
  // of `shape`; its last `reduced` dimensions are what reductions go over.
  Operations(
      Builder& build,
      const npu_program_attrs& attrs,
      const Operands& operands,
      const npu_tensor& shape,
      std::uint32_t reduced)
      : build_(build),
        attrs_(attrs),
        operands_(operands),
        sizes_(shape.sizes, shape.sizes + shape.ndim),
        numel_(shape.numel),
        reduced_(reduced),
        contiguous_(sizes_.size(), 1),
        expanded_(sizes_.size(), 0) {
    for (std::size_t d = sizes_.size(); d-- > 1;) {
      contiguous_[d - 1] = contiguous_[d] * sizes_[d];
    }
    std::copy_n(operands.begin() + kOutputs, kInputs, registers_.begin());
  }

  void run() {
    for (std::uint32_t i = 0; i < attrs_.n_ops; ++i) {
      if (!npu_program_reduces(attrs_.ops, kInputs + i)) {
        run_operation(i, npu_program_at(attrs_.ops, i));
      }
    }
    for (std::size_t o = 0; o < kOutputs; ++o) {
      if (operands_[o].dtype != NPU_ABSENT &&
          npu_program_reduces(attrs_.ops, attrs_.outs[o])) {
        reduce(operands_[o], attrs_.outs[o] - kInputs);
      }
    }
    // Last: an output may lie in an input that is reduced.
    for (std::size_t o = 0; o < kOutputs; ++o) {
      if (npu_program_reduces(attrs_.ops, attrs_.outs[o])) {
        continue;
      }
      const npu_tensor& held = registers_[attrs_.outs[o] % registers_.size()];
      if (operands_[o].dtype != NPU_ABSENT && held.data != operands_[o].data) {
        Call call(NPU_KIND_COPY, 0, build_.call().label);
        build::copy(call, operands_[o], held);
        build_.run(call);
      }
    }
  }

 private:
  // The output itself, where no input that is read later lies in it.
  npu_tensor place_of(std::uint32_t i, npu_dtype dtype) {
    for (std::size_t o = 0; o < kOutputs; ++o) {
      if (operands_[o].dtype != NPU_ABSENT && attrs_.outs[o] == kInputs + i &&
          !is_read_later(operands_[o].data, i)) {
        return operands_[o];
      }
    }
    const Tensor made = build_.make(dtype, sizes_);
    return made.operand(sizes_, contiguous_);
  }
  bool is_read_later(const void* data, std::uint32_t i) const {
    for (std::uint32_t k = 0; k < attrs_.n_ops; ++k) {
      const npu_program_op op = npu_program_at(attrs_.ops, k);
      if (k <= i && op.slot != NPU_KIND_REDUCE) {
        continue;  // reductions come last
      }
      for (const std::uint8_t r : op.in) {
        if (r < kInputs && registers_[r].data == data) {
          return true;
        }
      }
    }
    return false;
  }

  void run_operation(std::uint32_t i, const npu_program_op& op) {
    npu_tensor& made = registers_[kInputs + i];
    Call call(op.slot, op.code, build_.call().label);
    call.frame().compute_dtype = op.compute_dtype;
    if (op.slot == NPU_KIND_FILL) {
      npu_fill_attrs attrs{};
      attrs.value = attrs_.scalars[op.scalar];
      const Tensor one = build_.make(op.dtype, {1});
      build::fill(call, one.operand(), attrs);
      build_.run(call);
      made = one.operand(sizes_, expanded_);
      made.numel = numel_;
      made.flags = 0;
      return;
    }
    made = place_of(i, op.dtype);
    std::array<npu_tensor, 3> in{};
    for (std::size_t k = 0; k < in.size(); ++k) {
      if (op.in[k] != NPU_PROGRAM_NONE) {
        in[k] = registers_[op.in[k]];
        const bool inside = in[k].data == made.data;
        in[k].flags &= ~NPU_TENSOR_ALIAS;
        in[k].flags |= inside ? NPU_TENSOR_ALIAS : 0u;
        in[k].alias_of = 0;
      }
    }
    fill_and_run(call, op, made, in);
  }

  void reduce(const npu_tensor& out, std::uint32_t i) {
    const npu_program_op op = npu_program_at(attrs_.ops, i);
    Call call(op.slot, op.code, build_.call().label);
    call.frame().compute_dtype = op.compute_dtype;
    call.frame().deterministic = build_.call().deterministic;
    npu_reduce_attrs attrs{};
    attrs.keepdim = 1;
    for (std::size_t d = sizes_.size() - reduced_; d < sizes_.size(); ++d) {
      attrs.dims |= UINT64_C(1) << d;
    }
    npu_tensor in = registers_[op.in[0]];
    in.flags &= ~NPU_TENSOR_ALIAS;
    build::reduce(call, out, nullptr, in, attrs);
    build_.run(call);
  }

  void fill_and_run(
      Call& call,
      const npu_program_op& op,
      const npu_tensor& out,
      const std::array<npu_tensor, 3>& in) {
    std::array<npu_scalar, 4> s{};
    if (op.scalar != NPU_PROGRAM_NONE) {
      std::copy_n(
          attrs_.scalars + op.scalar, npu_program_scalars(op.slot), s.begin());
    }
    npu_unary_with_attrs with{0, 0, s[0], s[1], s[2], s[3]};
    npu_binary_attrs binary{0, 0, s[0], s[1], s[2], s[3]};
    npu_ternary_attrs ternary{0, 0, s[0], s[1], s[2]};
    const auto maybe = [&](std::size_t k) {
      return in[k].dtype == NPU_ABSENT ? nullptr : &in[k];
    };
    switch (op.slot) {
      case NPU_KIND_COPY:
        build::copy(call, out, in[0]);
        break;
      case NPU_KIND_UNARY:
        build::unary(call, out, nullptr, in[0]);
        break;
      case NPU_KIND_UNARY_WITH:
        build::unary_with(call, out, in[0], with);
        break;
      case NPU_KIND_BINARY:
        build::binary(call, out, in[0], in[1], binary);
        break;
      case NPU_KIND_COMPARE:
        build::compare(call, out, in[0], in[1]);
        break;
      default:
        build::ternary(call, out, nullptr, in[0], maybe(1), maybe(2), ternary);
    }
    build_.run(call);
  }

  Builder& build_;
  const npu_program_attrs& attrs_;
  const Operands& operands_;
  const Sizes sizes_;
  const std::int64_t numel_;
  const std::uint32_t reduced_;
  Sizes contiguous_;
  const Sizes expanded_;  // strides of one element all over
  std::array<npu_tensor, kInputs + NPU_PROGRAM_OPS> registers_{};
};

// Entry i of every list.
Operands entry_of(const npu_call& call, std::uint32_t i) {
  static constexpr std::int64_t kOne = 1;
  static constexpr std::int64_t kZero = 0;
  Operands made{};
  const npu_list& out = call.lists[0];
  for (std::uint32_t k = 0; k < call.n_lists; ++k) {
    const npu_list* const list = npu_call_list(&call, k);
    if (list == nullptr) {
      continue;
    }
    npu_tensor& t = made[k];
    const bool number = (list->flags & NPU_TENSOR_HOST_SCALAR) != 0;
    t.data = t.storage = list->data[i];
    t.dtype = list->dtype;
    t.flags = list->flags & NPU_TENSOR_HOST_SCALAR;
    t.numel = number ? 1 : out.numel[i];
    t.ndim = number ? 0 : 1;
    t.sizes = &out.numel[i];
    t.strides = list->numel[i] == out.numel[i] ? &kOne : &kZero;
    t.storage_bytes = static_cast<std::uint64_t>(list->numel[i]) *
                      npu_dtype_bytes(list->dtype);
  }
  return made;
}

}  // namespace

void program(Builder& build) {
  const auto attrs = build.attrs<npu_program_attrs>();
  const npu_call& call = build.call();
  Operands operands{};
  std::copy_n(call.tensors, call.n_out + call.n_in, operands.begin());
  const npu_tensor* const shape = npu_program_shape(&call);
  if (shape == nullptr) {
    throw Declined();
  }
  const std::uint32_t reduced =
      call.code == NPU_PROGRAM_ROWS
          ? npu_program_reduced_dims(&call, attrs.outs, attrs.ops)
          : 0;
  Operations(build, attrs, operands, *shape, reduced).run();
}

void multi_program(Builder& build) {
  const auto attrs = build.attrs<npu_program_attrs>();
  const npu_call& call = build.call();
  for (std::uint32_t i = 0; i < call.lists[0].n; ++i) {
    if (call.lists[0].numel[i] != 0) {
      const Operands operands = entry_of(call, i);
      Operations(build, attrs, operands, operands[0], 0).run();
    }
  }
}

}  // namespace npu::compose
