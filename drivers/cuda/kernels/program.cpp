// SPDX-License-Identifier: Apache-2.0
// Kinds program and multi_program: one kernel for all operations, compiled by
// NVRTC when it is planned.
#include <algorithm>
#include <cstdio>

#include "jit/programs.h"
#include "kernels/kernel.h"
#include "kernels/layout.h"

namespace npu::cuda {
namespace {

npu_status caps(npu_op_caps& out) {
  usual_caps(out, NPU_DTYPES_FREE);
  out.flags |= NPU_CAP_ALIAS | NPU_CAP_HOST_SCALAR;
  out.plan_use = NPU_PLAN_BY_SHAPE;
  out.alias_mask = (UINT64_C(1) << NPU_PROGRAM_INPUTS) - 1;
  std::fill_n(
      out.dtypes, jit::kOperands, kNumberBits & ~NPU_DTYPE_BIT(NPU_U64));
  return NPU_OK;
}

npu_status program_caps(std::uint32_t code, npu_op_caps& out) {
  if (code >= NPU_PROGRAM_CODES) {
    return NPU_E_UNSUPPORTED;
  }
  caps(out);
  out.flags |= NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT;
  out.max_ndim = kMostDims;
  out.accumulate =
      NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64) | NPU_DTYPE_BIT(NPU_I64);
  return NPU_OK;
}
npu_status multi_program_caps(std::uint32_t code, npu_op_caps& out) {
  return code == 0 ? caps(out) : NPU_E_UNSUPPORTED;
}

// A row is one block's work: a few long ones leave the GPU idle.
bool few_long_rows(npu_device device, const jit::Problem& problem) {
  const auto processors = device_at(device).properties.multiProcessorCount;
  return problem.spec.rows && problem.args.row > 65536 &&
         problem.args.numel < processors / 2;
}

npu_status decline(
    npu_verdict& verdict, std::uint32_t reason, const std::string& why) {
  verdict.answer = NPU_VERDICT_NO;
  verdict.reason = reason;
  std::snprintf(verdict.detail, sizeof(verdict.detail), "%s", why.c_str());
  return NPU_OK;
}

// What a call needs of a plan that was made for an equal one.
npu_status plan(npu_device device, const npu_call& call, npu_verdict& verdict) {
  char text[160];
  if (npu_call_validate(&call, text, sizeof(text)) != NPU_OK) {
    return fail(NPU_E_INVALID, "npu: cuda driver: program: %s.", text);
  }
  jit::Problem problem;
  std::string why;
  if (!problem.set(call, why)) {
    return decline(verdict, NPU_REASON_NO_KERNEL, why);
  }
  if (few_long_rows(device, problem)) {
    return decline(verdict, NPU_REASON_SLOWER, "a few long rows");
  }
  return jit::kernel_of(device, problem, why) != nullptr
             ? NPU_OK
             : decline(verdict, NPU_REASON_NO_KERNEL, why);
}

npu_status launch_grid(
    Stream& stream, const void* kernel, const jit::Grid& grid, void* args) {
  void* pointers[] = {args};
  const auto blocks = static_cast<unsigned>(
      std::min<unsigned long long>(grid.blocks, 0x7fffffffu));
  return cuda_status(
      cudaLaunchKernel(
          kernel,
          dim3(blocks),
          dim3(grid.x, grid.y),
          pointers,
          0,
          stream.handle),
      "launching a program");
}

npu_status run(Stream& stream, const npu_call& call) {
  jit::Problem problem;
  std::string why;
  const jit::Kernel* const kernel =
      problem.set(call, why) ? jit::kernel_of(stream.device, problem, why)
                             : nullptr;
  if (kernel == nullptr) {
    return refuse(call, why.c_str());
  }
  const auto* const attrs = static_cast<const npu_program_attrs*>(call.attrs);
  npu_scalar numbers[jit::kNumbers] = {};
  if (!jit::fill_numbers(
          numbers,
          kernel->numbers,
          problem.spec,
          attrs->scalars,
          problem.host_values.data())) {
    return refuse(call, "a number that no register holds");
  }
  const auto most =
      static_cast<unsigned long long>(
          device_at(stream.device).properties.multiProcessorCount) *
      16;
  if (!problem.spec.lists) {
    std::copy_n(numbers, jit::kNumbers, problem.args.scalars);
    return launch_grid(
        stream, kernel->handle, jit::grid_of(problem, most), &problem.args);
  }
  jit::ListArgs args{};
  std::copy_n(numbers, jit::kNumbers, args.scalars);
  return jit::for_launches(
      call, args, [&](jit::ListArgs& each, unsigned long long blocks) {
        return launch_grid(stream, kernel->handle, {256, 1, blocks}, &each);
      });
}

constexpr KernelRow kTable[] = {
    {NPU_KIND_PROGRAM, program_caps, plan, run},
    {NPU_KIND_MULTI_PROGRAM, multi_program_caps, plan, run},
};

}  // namespace

const Rows kProgramKernels = kTable;

}  // namespace npu::cuda
