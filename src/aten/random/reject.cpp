// SPDX-License-Identifier: Apache-2.0
// Distributions drawn by rejection: poisson, gamma, binomial, dirichlet.
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include "aten/core/factories.h"
#include "aten/core/frame.h"
#include "aten/random/seeded.h"
#include "npu/kinds.h"

namespace npu {
namespace {

using OptGenerator = std::optional<at::Generator>;

// Whatever the number of attempts, a call owns this many words.
constexpr std::int64_t kWords = 1024;

// One draw per element of p (and q, of the same sizes and dtype); contiguous
// whatever the layout of p, as on the CPU.
at::Tensor draw(
    Site& site,
    const at::Tensor& p,
    const at::Tensor& q,
    const OptGenerator& generator) {
  at::Tensor out = make_empty(p.sizes(), p.scalar_type(), p.device().index());
  if (out.numel() == 0) {
    return out;
  }
  const at::Tensor tensors[] = {
      out,
      laid_out_like(p, out),
      q.defined() ? laid_out_like(q, out) : at::Tensor()};
  npu_random_attrs attrs{};
  run_seeded(
      {site, 1, tensors, reserve_random(generator, p.device().index(), kWords)},
      attrs);
  return out;
}

at::Tensor poisson(const at::Tensor& self, OptGenerator generator) {
  check_floating("poisson_npu", self);
  TORCH_CHECK(
      self.numel() == 0 || self.ge(0).all().item<bool>(),
      "invalid Poisson rate, expected rate to be non-negative");
  static Site site("aten::poisson", NPU_KIND_RANDOM, NPU_RANDOM_POISSON);
  return draw(site, self, {}, generator);
}

at::Tensor standard_gamma(const at::Tensor& self, OptGenerator generator) {
  check_floating("gamma_npu", self);
  static Site site("aten::_standard_gamma", NPU_KIND_RANDOM, NPU_RANDOM_GAMMA);
  return draw(site, self, {}, generator);
}

at::Tensor binomial(
    const at::Tensor& count, const at::Tensor& prob, OptGenerator generator) {
  check_same_device("binomial", {&count, &prob});
  TORCH_CHECK_VALUE(
      at::isFloatingType(count.scalar_type()),
      "binomial only supports floating-point dtypes for count, got: ",
      count.scalar_type());
  TORCH_CHECK_VALUE(
      at::isFloatingType(prob.scalar_type()),
      "binomial only supports floating-point dtypes for prob, got: ",
      prob.scalar_type());
  TORCH_CHECK(
      count.scalar_type() == prob.scalar_type(),
      "Found dtype ",
      prob.scalar_type(),
      " but expected ",
      count.scalar_type());
  const auto sizes = at::infer_size(count.sizes(), prob.sizes());
  static Site site("aten::binomial", NPU_KIND_RANDOM, NPU_RANDOM_BINOMIAL);
  return draw(site, count.expand(sizes), prob.expand(sizes), generator);
}

at::Tensor sample_dirichlet(const at::Tensor& self, OptGenerator generator) {
  check_floating("dirichlet", self);
  const at::Tensor gamma = standard_gamma(self, std::move(generator));
  return gamma.div(gamma.sum(-1, /*keepdim=*/true));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("poisson", TORCH_FN(poisson));
  m.impl("_standard_gamma", TORCH_FN(standard_gamma));
  m.impl("binomial", TORCH_FN(binomial));
  m.impl("_sample_dirichlet", TORCH_FN(sample_dirichlet));
}

}  // namespace npu
