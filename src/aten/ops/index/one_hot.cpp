// SPDX-License-Identifier: Apache-2.0
// one_hot of int32, which Ascend takes; PyTorch's composite wants int64.
#include <ATen/core/Tensor.h>
#include <ATen/ops/one_hot_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

namespace npu {
namespace {

at::Tensor one_hot(const at::Tensor& self, std::int64_t num_classes) {
  return at::compositeimplicitautograd::one_hot(
      self.scalar_type() == at::kInt ? self.to(at::kLong) : self, num_classes);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("one_hot", &one_hot);
}

}  // namespace
}  // namespace npu
