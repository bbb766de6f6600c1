// SPDX-License-Identifier: Apache-2.0
// sum and mean by PyTorch's CPU kernel on npu tensors (Note [Direct]).
#include <ATen/TensorIterator.h>
#include <ATen/native/ReduceOpsUtils.h>

#include "aten/core/factories.h"
#include "aten/host_device/cpu_kernels.h"
#include "aten/ops/op.h"
#include "attempts/reduce.h"

namespace npu::ops {

namespace {

// The sizes of a sum, and how PyTorch lays it out beside its input while the
// kernel runs: dimensions that go away have stride 0.
struct Summed {
  c10::DimVector sizes;
  c10::DimVector kept_sizes;
  c10::DimVector kept_strides;
  std::size_t numel = 1;

  Summed(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim) {
    const auto mask = at::native::make_dim_mask(dim, self.dim());
    const auto from = self.sizes();
    kept_sizes.resize(from.size());
    kept_strides.resize(from.size());
    for (std::size_t d = from.size(); d-- > 0;) {
      const bool goes = mask[d];
      kept_sizes[d] = goes ? 1 : from[d];
      kept_strides[d] = goes ? 0 : static_cast<std::int64_t>(numel);
      numel *= static_cast<std::size_t>(kept_sizes[d]);
    }
    for (std::size_t d = 0; d < from.size(); ++d) {
      if (keepdim || !mask[d]) {
        sizes.push_back(kept_sizes[d]);
      }
    }
  }
};

// As CPU's mean divides its sums: each by the number of terms, in their dtype.
template <class T>
void divide(const at::Tensor& sums, std::int64_t terms) {
  T* const values = sums.mutable_data_ptr<T>();
  const auto by = static_cast<T>(terms);
  for (std::int64_t i = 0; i < sums.numel(); ++i) {
    values[i] /= by;
  }
}

}  // namespace

bool sum_direct(
    Outputs& out,
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    std::optional<at::ScalarType> dtype) {
  // Half types may go through a wider copy on the CPU.
  const at::ScalarType type = self.scalar_type();
  if ((type != at::kFloat && type != at::kDouble) ||
      dtype.value_or(type) != type || self.numel() == 0) {
    return false;
  }
  const Summed summed(self, dim, keepdim);
  at::Tensor result = make_contiguous(
      summed.sizes,
      summed.numel * c10::elementSize(type),
      type,
      self.device().index());
  c10::TensorImpl& impl = *result.unsafeGetTensorImpl();
  if (!keepdim) {
    impl.set_sizes_and_strides(summed.kept_sizes, summed.kept_strides);
  }
  {
    at::TensorIterator iter = at::TensorIterator::reduce_op(result, self);
    host_device::cpu::sum(iter);
  }
  if (!keepdim) {
    impl.set_sizes_contiguous(summed.sizes);
  }
  out.keep(0, result);
  return true;
}

bool mean_direct(
    Outputs& out,
    const at::Tensor& self,
    at::OptionalIntArrayRef dim,
    bool keepdim,
    std::optional<at::ScalarType> dtype) {
  // More means than one thread should divide.
  constexpr std::size_t kMostMeans = 1 << 15;
  if (self.numel() == 0 || Summed(self, dim, keepdim).numel > kMostMeans ||
      !sum_direct(out, self, dim, keepdim, dtype)) {
    return false;
  }
  const at::Tensor& result = out.at(0);
  const std::int64_t terms = self.numel() / result.numel();
  if (result.scalar_type() == at::kFloat) {
    divide<float>(result, terms);
  } else {
    divide<double>(result, terms);
  }
  return true;
}

}  // namespace npu::ops
