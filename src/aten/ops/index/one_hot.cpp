// SPDX-License-Identifier: Apache-2.0
// one_hot of int32, which Ascend takes and answers in int32; PyTorch's
// composite wants int64.
#include <ATen/core/Tensor.h>
#include <ATen/ops/one_hot_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

namespace npu {
namespace {

at::Tensor one_hot(const at::Tensor& self, std::int64_t num_classes) {
  if (self.scalar_type() != at::kInt) {
    return at::compositeimplicitautograd::one_hot(self, num_classes);
  }
  return at::compositeimplicitautograd::one_hot(self.to(at::kLong), num_classes)
      .to(at::kInt);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("one_hot", &one_hot);
}

}  // namespace
}  // namespace npu
