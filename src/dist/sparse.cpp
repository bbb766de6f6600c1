// SPDX-License-Identifier: Apache-2.0
// Collectives of sparse npu tensors are refused. Without these kernels the CPU
// fallback would run PyTorch's kernel for sparse CPU tensors on a copy.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace npu::dist {
namespace {

void refuse_sparse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_VALUE(
      false,
      "hccl: ",
      op.operator_name().name,
      " takes dense npu tensors. Give it tensor.to_dense().");
}

void refuse_every_operator(torch::Library& library) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() == "c10d") {
      library.impl(
          c10::toString(name).c_str(),
          torch::CppFunction::makeFromBoxedFunction<&refuse_sparse>());
    }
  }
}

TORCH_LIBRARY_IMPL(c10d, SparsePrivateUse1, m) {
  refuse_every_operator(m);
}
TORCH_LIBRARY_IMPL(c10d, SparseCsrPrivateUse1, m) {
  refuse_every_operator(m);
}

}  // namespace
}  // namespace npu::dist
