// SPDX-License-Identifier: Apache-2.0
// randperm and multinomial.
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <torch/library.h>

#include "aten/core/copy.h"
#include "aten/core/factories.h"
#include "aten/core/frame.h"
#include "aten/random/seeded.h"
#include "npu/kinds.h"

namespace npu {
namespace {

using OptGenerator = std::optional<at::Generator>;

at::Tensor& randperm_out(
    std::int64_t n, OptGenerator generator, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, out);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !out.is_complex() && out.scalar_type() != at::kBool,
      "\"randperm\" not implemented for '",
      c10::toString(out.scalar_type()),
      "'");
  out.resize_({n});
  if (n == 0) {
    return out;
  }
  const c10::DeviceIndex device = out.device().index();
  const at::Tensor dense = dense_or_temporary(out);
  npu_randperm_attrs attrs{.n = n};
  static Site site("aten::randperm.generator_out", NPU_KIND_RANDPERM, 0);
  run_seeded({site, 1, dense, reserve_random(generator, device, 2 * n)}, attrs);
  if (!dense.is_same(out)) {
    copy(out, dense, false);
  }
  return out;
}

void check_weights(
    const at::Tensor& self, std::int64_t samples, bool replacement) {
  TORCH_CHECK(
      self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ",
      self.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(
      replacement || samples <= self.size(-1),
      "cannot sample n_sample > prob_dist.size(-1) samples without "
      "replacement");
  constexpr std::int64_t kMaxCategories = std::int64_t{1} << 24;
  TORCH_CHECK(
      self.size(-1) <= kMaxCategories,
      "number of categories cannot exceed 2^24");
}

void check_weight_values(const at::Tensor& self) {
  const at::Tensor valid = self.max()
                               .lt(std::numeric_limits<double>::infinity())
                               .logical_and_(self.min().ge(0));
  TORCH_CHECK(
      valid.item<bool>(),
      "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(
      !self.sum(-1).eq(0).any().item<bool>(),
      "invalid multinomial distribution (sum of probabilities <= 0)");
}

at::Tensor& multinomial_out(
    const at::Tensor& self,
    std::int64_t samples,
    bool replacement,
    OptGenerator generator,
    at::Tensor& out) {
  const c10::DeviceIndex device =
      check_same_device("multinomial", {&self, &out});
  check_weights(self, samples, replacement);
  TORCH_CHECK(
      out.scalar_type() == at::kLong,
      "multinomial expects Long tensor out, got: ",
      out.scalar_type());
  const bool one = self.dim() == 1;
  const std::int64_t rows = one ? 1 : self.size(0);
  if (one) {
    out.resize_({samples});
  } else {
    out.resize_({rows, samples});
  }
  if (out.numel() == 0) {
    return out;
  }
  check_weight_values(self);
  const at::Tensor dense =
      out.is_contiguous() ? out : make_empty(out.sizes(), at::kLong, device);
  npu_multinomial_attrs attrs{.samples = samples, .replacement = replacement};
  const std::int64_t words = 2 * rows * (replacement ? samples : self.size(-1));
  const at::Tensor tensors[] = {dense, self.contiguous()};
  static Site site("aten::multinomial.out", NPU_KIND_MULTINOMIAL, 0);
  SeededFrame frame{site, 1, tensors, reserve_random(generator, device, words)};
  frame.flat = false;
  run_seeded(frame, attrs);
  if (!dense.is_same(out)) {
    copy(out, dense, false);
  }
  return out;
}

at::Tensor multinomial(
    const at::Tensor& self,
    std::int64_t samples,
    bool replacement,
    OptGenerator generator) {
  at::Tensor out = make_empty({0}, at::kLong, self.device().index());
  return multinomial_out(self, samples, replacement, std::move(generator), out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("randperm.generator_out", TORCH_FN(randperm_out));
  m.impl("multinomial", TORCH_FN(multinomial));
  m.impl("multinomial.out", TORCH_FN(multinomial_out));
}

}  // namespace npu
