// SPDX-License-Identifier: Apache-2.0
// sum and mean of a whole tensor. PyTorch makes them of the forms with
// dimensions; a contiguous floating point tensor goes to the driver as it is.
#include <ATen/core/Tensor.h>
#include <ATen/ops/mean_cpu_dispatch.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/sum_cpu_dispatch.h>
#include <ATen/ops/sum_ops.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "aten/core/fast.h"
#include "aten/core/frame.h"
#include "aten/host_device/direct.h"
#include "aten/ladder/native.h"
#include "aten/ops/structured.h"
#include "attempts/reduce.h"
#include "driver/verdict.h"
#include "npu/kinds.h"
#include "runtime/device.h"

namespace npu {
namespace {

using OptionalDtype = std::optional<at::ScalarType>;

// Undefined when the call is none for this path; nothing has happened then.
at::Tensor reduce_fast(
    NativeSite& site, const at::Tensor& self, OptionalDtype dtype) {
  const npu_op_caps* const caps = site.fast_caps();
  if (caps == nullptr) {
    return {};
  }
  const c10::TensorImpl& impl = *self.unsafeGetTensorImpl();
  const c10::ScalarType type = c10::typeMetaToScalarType(impl.dtype());
  const npu_dtype operand = to_npu_dtype(type);
  const std::int64_t numel = impl.numel();
  // caps.dtypes[2] are the input's.
  if (dtype.value_or(type) != type || numel == 0 || numel > kMostFastElements ||
      (kFastDtypes & caps->dtypes[2] & NPU_DTYPE_BIT(operand)) == 0 ||
      !wants_size(*caps, operand, numel) || !is_plain_tensor(impl)) {
    return {};
  }
  const c10::DeviceIndex device = impl.device().index();
  const npu_device number = driver_device(device);
  at::Tensor out = make_contiguous({}, c10::elementSize(type), type, device);
  npu_tensor tensors[3] = {};
  set_line(
      tensors[0], *out.unsafeGetTensorImpl(), operand, number, &kUnitStride);
  tensors[0].ndim = 0;
  set_line(tensors[2], impl, operand, number, &numel);
  if (!is_aligned(*caps, tensors[0]) || !is_aligned(*caps, tensors[2])) {
    return {};
  }
  npu_reduce_attrs attrs{.size = sizeof(attrs), .dims = 1};
  site.run_fast(device, operand, {tensors, 2, 1}, &attrs, sizeof(attrs));
  return out;
}

// The form with dimensions, three times: on npu tensors by CPU's kernel, CPU's
// function, through the dispatcher.
struct WithDims {
  using Function = at::Tensor(
      const at::Tensor&, at::OptionalIntArrayRef, bool, OptionalDtype);
  bool (*direct)(
      Outputs&,
      const at::Tensor&,
      at::OptionalIntArrayRef,
      bool,
      OptionalDtype);
  Function* cpu;
  Function* dispatched;
};

// What the driver leaves to the CPU goes there without another dispatch.
at::Tensor reduce_dims(
    NativeSite& site,
    const WithDims& form,
    const at::Tensor& self,
    OptionalDtype dtype) {
  const npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    return form.dispatched(self, at::IntArrayRef{}, false, dtype);
  }
  if (host_device::DirectRun run(site.entry(), why, {&self}); run) {
    Outputs made(Outputs::Form::kFunctional);
    if (form.direct(made, self, at::IntArrayRef{}, false, dtype)) {
      run.finish({&made.at(0)});
      return made.take(0);
    }
  }
  return site.cpu(why, form.cpu, self, at::IntArrayRef{}, false, dtype);
}

at::Tensor sum(const at::Tensor& self, OptionalDtype dtype) {
  static NativeSite site("aten::sum", NPU_KIND_REDUCE, NPU_REDUCE_SUM);
  at::Tensor out = reduce_fast(site, self, dtype);
  if (out.defined()) {
    return out;
  }
  static NativeSite dims(
      "aten::sum.dim_IntList", NPU_KIND_REDUCE, NPU_REDUCE_SUM);
  return reduce_dims(
      dims,
      {&ops::sum_direct, &at::cpu::sum, &at::_ops::sum_dim_IntList::call},
      self,
      dtype);
}

at::Tensor mean(const at::Tensor& self, OptionalDtype dtype) {
  static NativeSite site("aten::mean", NPU_KIND_REDUCE, NPU_REDUCE_MEAN);
  at::Tensor out = reduce_fast(site, self, dtype);
  if (out.defined()) {
    return out;
  }
  static NativeSite dims("aten::mean.dim", NPU_KIND_REDUCE, NPU_REDUCE_MEAN);
  return reduce_dims(
      dims,
      {&ops::mean_direct, &at::cpu::mean, &at::_ops::mean_dim::call},
      self,
      dtype);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mean", TORCH_FN(mean));
  m.impl("sum", TORCH_FN(sum));
}

}  // namespace npu
