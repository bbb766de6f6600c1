// SPDX-License-Identifier: Apache-2.0
#include "jit/problem.h"

#include <algorithm>
#include <cstdint>

#include "npu/validate.h"
#include "shared/dtype.h"

namespace npu::cuda::jit {
namespace {

bool is_number(const npu_tensor& t) {
  return (t.flags & NPU_TENSOR_HOST_SCALAR) != 0;
}

// Operands over one shape, dimensions of one element dropped and neighbours
// merged where all operands allow it. Strides in bytes.
struct Nest {
  int ndim = 0;
  long long sizes[NPU_MAX_DIMS];
  long long strides[NPU_MAX_DIMS][kOperands];

  void add(long long size, const long long (&steps)[kOperands]) {
    if (size == 1) {
      return;
    }
    bool joins = ndim > 0;
    for (int k = 0; joins && k < kOperands; ++k) {
      joins = strides[ndim - 1][k] == steps[k] * size;
    }
    if (joins) {
      sizes[ndim - 1] *= size;
    } else {
      sizes[ndim++] = size;
    }
    std::copy_n(steps, kOperands, strides[ndim - 1]);
  }
};

}  // namespace

bool Problem::set(const npu_call& call, std::string& why) {
  npu_call_attrs(&call, &spec.attrs, sizeof(spec.attrs));
  spec.lists = call.slot == NPU_KIND_MULTI_PROGRAM;
  spec.rows = !spec.lists && call.code == NPU_PROGRAM_ROWS;
  // What is not in a kernel's key: scalars, and sizes of attributes.
  std::fill(
      std::begin(spec.attrs.scalars),
      std::end(spec.attrs.scalars),
      npu_scalar{});
  return spec.lists ? set_lists(call, why) : set_tensors(call, why);
}

bool Problem::set_tensors(const npu_call& call, std::string& why) {
  const npu_tensor* const shape = npu_program_shape(&call);
  if (shape == nullptr) {
    why = "no operand gives the program its sizes";
    return false;
  }
  const npu_tensor* operands[kOperands];
  for (int k = 0; k < kOperands; ++k) {
    const auto i = static_cast<std::uint32_t>(k);
    operands[k] = i < NPU_PROGRAM_OUTPUTS
                      ? npu_call_out(&call, i)
                      : npu_call_in(&call, i - NPU_PROGRAM_OUTPUTS);
    const npu_tensor* const t = operands[k];
    if (t == nullptr) {
      continue;
    }
    spec.dtypes[k] = t->dtype;
    if ((t->flags & (NPU_TENSOR_CONJ | NPU_TENSOR_NEG)) != 0) {
      why = "an operand that is read negated or conjugated";
      return false;
    }
    if (is_number(*t)) {
      host_values[k] = t->data;
    } else {
      args.data[k] = static_cast<char*>(t->data);
    }
  }
  const std::uint32_t reduced =
      spec.rows
          ? npu_program_reduced_dims(&call, spec.attrs.outs, spec.attrs.ops)
          : 0;
  Nest outer;
  Nest inner;
  for (std::uint32_t d = 0; d < shape->ndim; ++d) {
    long long steps[kOperands] = {};
    for (int k = 0; k < kOperands; ++k) {
      const npu_tensor* const t = operands[k];
      if (t != nullptr && !is_number(*t) && t->sizes[d] != 1) {
        steps[k] =
            t->strides[d] * static_cast<long long>(element_bytes(t->dtype));
      }
    }
    (d + reduced < shape->ndim ? outer : inner).add(shape->sizes[d], steps);
  }
  if (outer.ndim > kDims || inner.ndim > 1) {
    why = "more dimensions than its kernels take";
    return false;
  }
  // Positions and offsets in 32 bits?
  long long total = 0;
  for (int k = 0; k < kOperands; ++k) {
    long long far = 0;
    for (int d = 0; d < outer.ndim; ++d) {
      far += (outer.sizes[d] - 1) * std::abs(outer.strides[d][k]);
    }
    for (int d = 0; d < inner.ndim; ++d) {
      far += (inner.sizes[d] - 1) * std::abs(inner.strides[d][k]);
    }
    total = std::max(total, far);
  }
  // A grid's step is added once more behind the last element.
  constexpr long long kMost32 = (1ll << 31) - (1ll << 26);
  spec.wide = std::max<long long>(total, shape->numel) >= kMost32;

  args.ndim = outer.ndim;
  args.numel = 1;
  for (int d = 0; d < outer.ndim; ++d) {
    args.sizes[d] = outer.sizes[d];
    args.numel *= outer.sizes[d];
    for (int k = 0; k < kOperands; ++k) {
      args.strides[k][d] = outer.strides[d][k];
    }
  }
  args.row = inner.ndim == 0 ? 1 : inner.sizes[0];
  const Nest& along = spec.rows ? inner : outer;
  for (int k = 0; k < kOperands; ++k) {
    const npu_tensor* const t = operands[k];
    if (t == nullptr) {
      continue;
    }
    const auto bytes = static_cast<long long>(element_bytes(t->dtype));
    const long long step =
        along.ndim == 0 ? 0 : along.strides[along.ndim - 1][k];
    bool same = true;
    for (int d = 0; d < along.ndim; ++d) {
      same = same && along.strides[d][k] == 0;
    }
    const bool flat = along.ndim <= 1 && (step == bytes || along.ndim == 0);
    const bool is_output = k < static_cast<int>(NPU_PROGRAM_OUTPUTS);
    const bool is_row =
        is_output && npu_program_reduces(spec.attrs.ops, spec.attrs.outs[k]);
    spec.access[k] = is_number(*t)        ? Access::kNumber
                     : flat               ? Access::kFlat
                     : same && !is_output ? Access::kSame
                     : is_row             ? Access::kFlat
                                          : Access::kStrided;
    args.inner[k] = step;
    row_bytes = std::max(row_bytes, bytes * args.row);
  }
  choose_packs();
  return true;
}

// As many elements at once as make 16 bytes of the widest operand, where all of
// them lie side by side and begin at such an address, each row's too.
void Problem::choose_packs() {
  std::size_t widest = 1;
  for (int k = 0; k < kOperands; ++k) {
    if (spec.access[k] == Access::kStrided) {
      return;
    }
    if (spec.access[k] == Access::kFlat) {
      widest = std::max(widest, element_bytes(spec.dtypes[k]));
    }
  }
  const auto each = static_cast<int>(16 / widest);
  for (int k = 0; k < kOperands; ++k) {
    if (spec.access[k] != Access::kFlat) {
      continue;
    }
    const bool is_row = k < static_cast<int>(NPU_PROGRAM_OUTPUTS) &&
                        npu_program_reduces(spec.attrs.ops, spec.attrs.outs[k]);
    const auto bytes =
        static_cast<long long>(element_bytes(spec.dtypes[k])) * each;
    bool aligned = reinterpret_cast<std::uintptr_t>(args.data[k]) % bytes == 0;
    for (int d = 0; spec.rows && d < args.ndim; ++d) {
      aligned = aligned && args.strides[k][d] % bytes == 0;
    }
    if (!is_row && !aligned) {
      return;
    }
  }
  const long long n = spec.rows ? args.row : args.numel;
  spec.each = n >= each ? each : 1;
}

bool Problem::set_lists(const npu_call& call, std::string& why) {
  const npu_list* const out = npu_call_list(&call, 0);
  if (out == nullptr) {
    why = "no list gives the program its sizes";
    return false;
  }
  for (int k = 0; k < kOperands; ++k) {
    const npu_list* const list =
        npu_call_list(&call, static_cast<std::uint32_t>(k));
    if (list == nullptr) {
      continue;
    }
    if ((list->flags & NPU_TENSOR_HOST_SCALAR) != 0 ||
        list->tensors != nullptr) {
      why = "a list in host memory, or one that is not dense";
      return false;
    }
    spec.dtypes[k] = list->dtype;
    spec.access[k] = Access::kFlat;
    for (std::uint32_t e = 0; e < list->n; ++e) {
      spec.wide = spec.wide || list->numel[e] >= 1ll << 30;
    }
  }
  return true;
}

Grid grid_of(const Problem& problem, unsigned long long most_blocks) {
  Grid made;
  const Spec& spec = problem.spec;
  if (!spec.rows) {
    made.x = 256;
    const auto n = static_cast<unsigned long long>(problem.args.numel);
    const auto a_block = static_cast<unsigned long long>(made.x) *
                         static_cast<unsigned>(spec.each);
    made.blocks = std::clamp((n + a_block - 1) / a_block, 1ull, most_blocks);
    return made;
  }
  // A warp for a short row; a block of more threads for a longer one.
  const long long steps = (problem.args.row + spec.each - 1) / spec.each;
  made.x = steps <= 256 ? 32 : steps <= 1024 ? 128 : steps <= 8192 ? 256 : 512;
  made.y = made.x == 32 ? 8 : 1;
  const auto rows = static_cast<unsigned long long>(problem.args.numel);
  made.blocks = std::clamp((rows + made.y - 1) / made.y, 1ull, most_blocks);
  return made;
}

}  // namespace npu::cuda::jit
