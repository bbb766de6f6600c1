// SPDX-License-Identifier: Apache-2.0
// Kinds program and multi_program: operands to blocks, threads.
#include <algorithm>
#include <cstdio>

#include "host.h"
#include "kernels/lists.h"
#include "kernels/nest.h"
#include "kernels/program.h"
#include "npu/validate.h"

namespace npu::host {
namespace {

// Elements of one thread: the more operations, the fewer.
std::int64_t grain(const Program& program) {
  return std::max<std::int64_t>(
      kGrain / std::max(program.operations(), 1), 4096);
}

// Both kinds have these attributes; they are used where they lie.
static_assert(sizeof(npu_program_attrs) == sizeof(npu_multi_program_attrs));
npu_status find_attrs(const npu_call& call, const npu_program_attrs*& attrs) {
  attrs = static_cast<const npu_program_attrs*>(call.attrs);
  if (attrs == nullptr || call.attr_bytes < sizeof(*attrs)) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: program: its attributes are missing.");
  }
  const char* const wrong = npu_program_wrong_rows(
      call.slot == NPU_KIND_PROGRAM && call.code == NPU_PROGRAM_ROWS,
      std::min(attrs->n_ops, NPU_PROGRAM_OPS),
      attrs->outs,
      attrs->ops);
  return wrong == nullptr
             ? NPU_OK
             : fail(NPU_E_INVALID, "npu: host driver: program: %s.", wrong);
}

npu_status caps(npu_op_caps& out, std::uint32_t flags) {
  out.flags = flags | NPU_CAP_ALIAS | NPU_CAP_INDEX64 | NPU_CAP_DETERMINISTIC |
              NPU_CAP_HOST_SCALAR;
  out.dtype_rule = NPU_DTYPES_FREE;
  out.plan_use = NPU_PLAN_BY_SHAPE;
  out.alias_mask = (UINT64_C(1) << NPU_PROGRAM_INPUTS) - 1;
  std::fill_n(out.dtypes, kProgramOperands, kMapBits);
  return NPU_OK;
}

// Making a program ready takes as long as a few thousand elements: below that
// separate calls are faster.
bool is_worth_it(const Program& program, std::int64_t elements) {
  constexpr std::int64_t kLeast = 20000;
  return settings.all_kernels || elements * program.operations() >= kLeast;
}

// A program that has no kernel is declined, and one that is too small.
npu_status answer(
    npu_status status,
    const Program& program,
    std::int64_t elements,
    npu_verdict& verdict) {
  if (status != NPU_OK && status != NPU_E_UNSUPPORTED) {
    return status;
  }
  if (status != NPU_OK || !is_worth_it(program, elements)) {
    verdict.answer = NPU_VERDICT_NO;
    verdict.reason =
        status != NPU_OK ? NPU_REASON_NO_KERNEL : NPU_REASON_SLOWER;
    std::snprintf(
        verdict.detail,
        sizeof(verdict.detail),
        status != NPU_OK ? "an operation of the program" : "few elements");
  }
  return NPU_OK;
}

// ---- tensors ----

struct TensorOperands {
  const npu_tensor* tensors[kProgramOperands];
  ProgramOperands told;
  Nest<kProgramOperands> nest;
  char* data[kProgramOperands] = {};
  std::int64_t strides[kProgramOperands] = {};
  std::int64_t row = 0;  // elements of a row; 0: the code is map

  npu_status set(const npu_call& call) {
    for (std::uint32_t i = 0; i < kProgramOperands; ++i) {
      tensors[i] = i < NPU_PROGRAM_OUTPUTS
                       ? npu_call_out(&call, i)
                       : npu_call_in(&call, i - NPU_PROGRAM_OUTPUTS);
    }
    // This call was not validated: the operands say what it computes.
    char text[160];
    if (npu_call_validate(&call, text, sizeof(text)) != NPU_OK) {
      return fail(NPU_E_INVALID, "npu: host driver: program: %s.", text);
    }
    const npu_tensor* const shape = npu_program_shape(&call);
    const npu_program_attrs& attrs =
        *static_cast<const npu_program_attrs*>(call.attrs);
    const std::uint32_t reduced =
        call.code == NPU_PROGRAM_ROWS
            ? npu_program_reduced_dims(&call, attrs.outs, attrs.ops)
            : 0;
    set_nest(*shape);
    row = call.code == NPU_PROGRAM_ROWS ? 1 : 0;
    for (std::uint32_t d = shape->ndim - reduced; d < shape->ndim; ++d) {
      row *= shape->sizes[d];
    }
    for (std::size_t i = 0; i < kProgramOperands; ++i) {
      if (tensors[i] != nullptr) {
        tell(i, *tensors[i]);
      }
    }
    return NPU_OK;
  }

 private:
  static bool is_number(const npu_tensor& t) {
    return (t.flags & NPU_TENSOR_HOST_SCALAR) != 0;
  }
  // A dimension of one element has no stride: outputs of reductions.
  void set_nest(const npu_tensor& out) {
    for (std::uint32_t d = 0; d < out.ndim; ++d) {
      Offsets<kProgramOperands> steps{};
      for (std::size_t i = 0; i < kProgramOperands; ++i) {
        const npu_tensor* const t = tensors[i];
        steps[i] = t == nullptr || is_number(*t) || t->sizes[d] == 1
                       ? 0
                       : t->strides[d] *
                             static_cast<std::int64_t>(element_bytes(t->dtype));
      }
      nest.add(out.sizes[d], steps);
    }
  }
  void tell(std::size_t i, const npu_tensor& t) {
    ProgramOperand& operand = told[i];
    const auto bytes = static_cast<std::int64_t>(element_bytes(t.dtype));
    data[i] = static_cast<char*>(t.data);
    strides[i] = nest.step(i);
    operand.dtype = t.dtype;
    operand.negate = (t.flags & NPU_TENSOR_NEG) != 0;
    operand.conj = (t.flags & NPU_TENSOR_CONJ) != 0;
    for (std::uint32_t o = 0; o < NPU_PROGRAM_OUTPUTS; ++o) {
      const bool same = tensors[o] != nullptr && tensors[o]->data == t.data;
      operand.lies_in |= same ? 1u << o : 0;
    }
    operand.contiguous = strides[i] == bytes;
    bool constant = i >= NPU_PROGRAM_OUTPUTS;
    for (int d = 0; d < nest.ndim; ++d) {
      constant = constant && nest.strides[d][i] == 0;
    }
    operand.constant = constant && nest.numel > 1;
  }
};

npu_status program_caps(std::uint32_t code, npu_op_caps& out) {
  return code < NPU_PROGRAM_CODES
             ? caps(out, NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT)
             : NPU_E_UNSUPPORTED;
}

template <class Operands>
npu_status set_program(
    const npu_call& call, Operands& operands, Program& program) {
  const npu_program_attrs* attrs = nullptr;
  npu_status status = find_attrs(call, attrs);
  status = status ? status : operands.set(call);
  return status ? status : program.set(*attrs, operands.told);
}

npu_status program_plan(const npu_call& call, npu_verdict& verdict) {
  TensorOperands operands;
  Program program;
  const npu_status status = set_program(call, operands, program);
  return answer(status, program, operands.nest.numel, verdict);
}

// Elements [begin, end) in the order of the sizes.
npu_status run_stretch(
    const TensorOperands& operands,
    Program::Scratch& scratch,
    std::int64_t begin,
    std::int64_t end) {
  npu_status status = NPU_OK;
  operands.nest.walk(begin, end, [&](const auto& offsets, std::int64_t n) {
    char* at[kProgramOperands];
    for (std::int64_t i = 0; i < n && status == NPU_OK; i += scratch.block()) {
      for (std::size_t k = 0; k < kProgramOperands; ++k) {
        at[k] = operands.data[k] + offsets[k] + i * operands.strides[k];
      }
      status =
          scratch.run(at, operands.strides, std::min(scratch.block(), n - i));
    }
  });
  return status;
}

npu_status run_row(
    const TensorOperands& operands, Program::Scratch& scratch, std::int64_t r) {
  scratch.begin_row(operands.row);
  const std::int64_t begin = r * operands.row;
  char* at[kProgramOperands];
  operands.nest.walk(begin, begin + 1, [&](const auto& offsets, std::int64_t) {
    for (std::size_t k = 0; k < kProgramOperands; ++k) {
      at[k] = operands.data[k] + offsets[k];
    }
  });
  const npu_status status =
      run_stretch(operands, scratch, begin, begin + operands.row);
  if (status == NPU_OK) {
    scratch.end_row(at);
  }
  return status;
}

npu_status program_run(const npu_call& call) {
  TensorOperands operands;
  Program program;
  if (npu_status status = set_program(call, operands, program)) {
    return status;
  }
  const std::int64_t row = operands.row;
  return parallel(
      row == 0 ? operands.nest.numel : operands.nest.numel / row,
      row == 0 ? grain(program)
               : std::max<std::int64_t>(1, grain(program) / row),
      [&](std::int64_t begin, std::int64_t end) {
        Program::Scratch scratch(program);
        scratch.load_constants(operands.data, operands.strides);
        npu_status status =
            row == 0 ? run_stretch(operands, scratch, begin, end) : NPU_OK;
        for (std::int64_t r = begin; row != 0 && r < end && status == NPU_OK;
             ++r) {
          status = run_row(operands, scratch, r);
        }
        return status;
      });
}

// ---- lists ----

struct ListOperands {
  const npu_list* lists[kProgramOperands];
  ProgramOperands told;

  npu_status set(const npu_call& call) {
    for (std::uint32_t i = 0; i < kProgramOperands; ++i) {
      lists[i] = npu_call_list(&call, i);
    }
    const npu_list* const out = lists[0];
    for (std::size_t i = 0; i < kProgramOperands; ++i) {
      const npu_list* const list = lists[i];
      if ((i == 0 && list == nullptr) ||
          (list != nullptr && !fits(*list, *out, i >= NPU_PROGRAM_OUTPUTS))) {
        return fail(
            NPU_E_INVALID,
            "npu: host driver: multi_program: list %d does not fit the first.",
            static_cast<int>(i));
      }
    }
    for (std::size_t i = 0; i < kProgramOperands; ++i) {
      if (lists[i] != nullptr) {
        tell(i, *lists[i]);
      }
    }
    return NPU_OK;
  }

  // Operands of entry e, from element `at` on.
  void find(std::int64_t e, std::int64_t at, char** data, std::int64_t* strides)
      const {
    for (std::size_t i = 0; i < kProgramOperands; ++i) {
      const npu_list* const list = lists[i];
      const bool one =
          list != nullptr && list->numel[e] == 1 && lists[0]->numel[e] != 1;
      data[i] = list_data(list, e, one ? 0 : at);
      strides[i] = list == nullptr || one
                       ? 0
                       : static_cast<std::int64_t>(element_bytes(list->dtype));
    }
  }

 private:
  static bool fits(const npu_list& list, const npu_list& out, bool is_input) {
    if (list.n != out.n || list.data == nullptr || list.numel == nullptr ||
        list.tensors != nullptr) {
      return false;
    }
    for (std::uint32_t e = 0; e < list.n; ++e) {
      if (list.numel[e] != out.numel[e] && !(is_input && list.numel[e] == 1)) {
        return false;
      }
    }
    return true;
  }
  void tell(std::size_t i, const npu_list& list) {
    ProgramOperand& operand = told[i];
    operand.dtype = list.dtype;
    operand.contiguous =
        std::equal(list.numel, list.numel + list.n, lists[0]->numel);
    for (std::uint32_t o = 0; o < NPU_PROGRAM_OUTPUTS; ++o) {
      for (std::uint32_t e = 0; lists[o] != nullptr && e < list.n; ++e) {
        const bool same = lists[o]->data[e] == list.data[e];
        operand.lies_in |= same ? 1u << o : 0;
      }
    }
  }
};

npu_status multi_program_caps(std::uint32_t code, npu_op_caps& out) {
  return code == 0 ? caps(out, 0) : NPU_E_UNSUPPORTED;
}

npu_status multi_program_plan(const npu_call& call, npu_verdict& verdict) {
  ListOperands operands;
  Program program;
  const npu_status status = set_program(call, operands, program);
  const std::int64_t elements =
      status == NPU_OK ? total_elements(*operands.lists[0]) : 0;
  return answer(status, program, elements, verdict);
}

npu_status multi_program_run(const npu_call& call) {
  ListOperands operands;
  Program program;
  if (npu_status status = set_program(call, operands, program)) {
    return status;
  }
  const npu_list& out = *operands.lists[0];
  return parallel(
      total_elements(out),
      grain(program),
      [&](std::int64_t begin, std::int64_t end) {
        Program::Scratch scratch(program);
        char* data[kProgramOperands] = {};
        std::int64_t strides[kProgramOperands] = {};
        npu_status status = NPU_OK;
        scratch.load_constants(data, strides);
        for_stretches(
            out,
            begin,
            end,
            [&](std::int64_t e, std::int64_t first, std::int64_t n) {
              for (std::int64_t i = 0; i < n && status == NPU_OK;
                   i += scratch.block()) {
                operands.find(e, first + i, data, strides);
                status = scratch.run(
                    data, strides, std::min(scratch.block(), n - i));
              }
            });
        return status;
      });
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_PROGRAM, program_caps, program_plan, program_run},
    {NPU_KIND_MULTI_PROGRAM,
     multi_program_caps,
     multi_program_plan,
     multi_program_run},
};

}  // namespace

const std::span<const KernelRow> kProgramKernels = kRows;

}  // namespace npu::host
