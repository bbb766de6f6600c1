// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: the few functions that take a tensor or a generator apart.
#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/utils/pybind.h>

#include "python/bindings.h"
#include "runtime/device.h"
#include "runtime/generator.h"

namespace py = pybind11;

namespace npu {
namespace {

// The same bytes without a share in their ownership (vllm frees the original
// and keeps the address in a captured graph).
at::Tensor weak_ref_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      tensor.device().type() == kDeviceType,
      "npu: _weak_ref_tensor: expected an npu tensor, but got one on ",
      tensor.device(),
      ". Move it with .npu() first.");
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

}  // namespace

void bind_tensor(py::module_& m) {
  // `storage` is the address of a StorageImpl: UntypedStorage._cdata.
  m.def("_storage_Use_Count", [](std::uintptr_t storage) {
    auto* impl = reinterpret_cast<c10::StorageImpl*>(storage);
    const auto shared = c10::raw::intrusive_ptr::use_count(impl);
    return static_cast<std::int64_t>(shared);
  });
  m.def("_weak_ref_tensor", &weak_ref_tensor);
  m.def("_default_generator", [](int device) {
    return default_generator(static_cast<c10::DeviceIndex>(device));
  });
}

}  // namespace npu
