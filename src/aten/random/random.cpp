// SPDX-License-Identifier: Apache-2.0
// In-place random operators: one frame of kind random each. PyTorch's own
// templates check the parameters, so that errors are CPU's.
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/all.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/le.h>
#include <torch/library.h>

#include <limits>

#include "aten/core/copy.h"
#include "aten/core/frame.h"
#include "aten/random/seeded.h"
#include "npu/kinds.h"
#include "runtime/device.h"

namespace npu {
namespace {

using OptGenerator = std::optional<at::Generator>;
namespace templates = at::native::templates;

bool is_double(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble;
}

// Draws into `self`, of any layout. `p`, when defined, is one parameter per
// element, expanded to self's sizes.
void draw(
    Site& site,
    const at::Tensor& self,
    npu_random_attrs attrs,
    std::int64_t words,
    const OptGenerator& generator,
    const at::Tensor& p = {}) {
  const c10::DeviceIndex device = self.device().index();
  const npu_rng rng = reserve_random(generator, device, words);
  const at::Tensor out = dense_or_temporary(self);
  const at::Tensor tensors[] = {
      out, p.defined() ? laid_out_like(p, out) : at::Tensor(), at::Tensor()};
  run_seeded({site, 1, tensors, rng}, attrs);
  if (!out.is_same(self)) {
    copy(self, out, false);
  }
}

std::int64_t one_word_each(const at::Tensor& self) {
  return is_double(self) ? 2 * self.numel() : self.numel();
}

npu_random_attrs with(double a, double b = 0) {
  npu_random_attrs attrs{.a = a, .b = b};
  return attrs;
}

// The functors below are what the templates call once parameters are checked;
// RNG is only a name to them.
struct Rng;

at::Tensor tensor_of(at::TensorIteratorBase& iter) {
  return at::Tensor(iter.tensor(0));
}

template <class>
struct Uniform {
  void operator()(
      at::TensorIteratorBase& iter,
      double from,
      double to,
      const OptGenerator& gen) {
    const at::Tensor self = tensor_of(iter);
    static Site site("aten::uniform_", NPU_KIND_RANDOM, NPU_RANDOM_UNIFORM);
    draw(site, self, with(from, to), one_word_each(self), gen);
  }
};

template <class>
struct Normal {
  void operator()(
      at::Tensor& self, double mean, double std, const OptGenerator& gen) {
    check_floating("normal_kernel_npu", self);
    static Site site("aten::normal_", NPU_KIND_RANDOM, NPU_RANDOM_NORMAL);
    draw(site, self, with(mean, std), one_word_each(self), gen);
  }
};

template <class>
struct LogNormal {
  void operator()(
      at::TensorIteratorBase& iter,
      double mean,
      double std,
      const OptGenerator& gen) {
    const at::Tensor self = tensor_of(iter);
    check_floating("log_normal_npu", self);
    static Site site(
        "aten::log_normal_", NPU_KIND_RANDOM, NPU_RANDOM_LOG_NORMAL);
    draw(site, self, with(mean, std), one_word_each(self), gen);
  }
};

template <class>
struct Exponential {
  void operator()(
      at::TensorIteratorBase& iter, double lambda, const OptGenerator& gen) {
    const at::Tensor self = tensor_of(iter);
    TORCH_CHECK(
        at::isFloatingType(self.scalar_type()),
        "Exponential distribution is a continuous probability distribution. "
        "dtype must be a floating point but you specified ",
        self.dtype());
    static Site site(
        "aten::exponential_", NPU_KIND_RANDOM, NPU_RANDOM_EXPONENTIAL);
    draw(site, self, with(lambda), one_word_each(self), gen);
  }
};

template <class>
struct Geometric {
  void operator()(
      at::TensorIteratorBase& iter, double p, const OptGenerator& gen) {
    const at::Tensor self = tensor_of(iter);
    TORCH_CHECK_NOT_IMPLEMENTED(
        !self.is_complex() && self.scalar_type() != at::kBool,
        "\"geometric_npu\" not implemented for '",
        c10::toString(self.scalar_type()),
        "'");
    const bool wide =
        is_double(self) || at::isIntegralType(self.scalar_type(), false);
    static Site site("aten::geometric_", NPU_KIND_RANDOM, NPU_RANDOM_GEOMETRIC);
    draw(site, self, with(p), wide ? 2 * self.numel() : self.numel(), gen);
  }
};

template <class>
struct Cauchy {
  void operator()(
      at::TensorIteratorBase& iter,
      double median,
      double sigma,
      const OptGenerator& gen) {
    const at::Tensor self = tensor_of(iter);
    static Site site("aten::cauchy_", NPU_KIND_RANDOM, NPU_RANDOM_CAUCHY);
    draw(site, self, with(median, sigma), one_word_each(self), gen);
  }
};

template <class>
struct BernoulliScalar {
  void operator()(at::Tensor& self, double p, const OptGenerator& gen) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !self.is_complex(),
        "\"bernoulli_scalar_npu_\" not implemented for '",
        c10::toString(self.scalar_type()),
        "'");
    static Site site(
        "aten::bernoulli_.float", NPU_KIND_RANDOM, NPU_RANDOM_BERNOULLI);
    draw(site, self, with(p), self.numel(), gen);
  }
};

template <class>
struct BernoulliTensor {
  void operator()(
      at::Tensor& self, const at::Tensor& given, const OptGenerator& gen) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !self.is_complex(),
        "\"bernoulli_tensor_npu_self_\" not implemented "
        "for '",
        c10::toString(self.scalar_type()),
        "'");
    check_floating("bernoulli_tensor_npu_p_", given);
    // As on CPU, the probabilities may come from anywhere.
    const at::Tensor p = given.to(self.device());
    TORCH_CHECK(
        at::all(p.ge(0).logical_and_(p.le(1))).item<bool>(),
        "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
    static Site site(
        "aten::bernoulli_.Tensor", NPU_KIND_RANDOM, NPU_RANDOM_BERNOULLI);
    draw(site, self, with(0), self.numel(), gen, p.expand_as(self));
  }
};

// low + [0, range); a range of 0 is all of 2^64.
void draw_integers(
    Site& site,
    const at::Tensor& self,
    std::int64_t low,
    std::uint64_t range,
    const OptGenerator& gen) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !self.is_complex(),
      "\"random_kernel_npu\" not implemented for '",
      c10::toString(self.scalar_type()),
      "'");
  npu_random_attrs attrs{.low = low, .range = range};
  const bool wide = range == 0 || range > (std::uint64_t{1} << 32);
  draw(site, self, attrs, wide ? 2 * self.numel() : self.numel(), gen);
}

template <class>
struct IntegersFromTo {
  void operator()(
      at::TensorIteratorBase& iter,
      std::uint64_t range,
      std::int64_t low,
      const OptGenerator& gen) {
    draw_integers(site(), tensor_of(iter), low, range, gen);
  }
  void operator()(at::TensorIteratorBase& iter, const OptGenerator& gen) {
    draw_integers(site(), tensor_of(iter), 0, 0, gen);
  }

 private:
  static Site& site() {
    static Site mine("aten::random_.from", NPU_KIND_RANDOM, NPU_RANDOM_INT);
    return mine;
  }
};

// How many values random_() without bounds draws from: every non-negative
// integer the type holds exactly.
std::uint64_t natural_range(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return 2;
    case at::kHalf:
      return (1u << std::numeric_limits<at::Half>::digits) + 1;
    case at::kBFloat16:
      return (1u << std::numeric_limits<at::BFloat16>::digits) + 1;
    case at::kFloat:
      return (1u << std::numeric_limits<float>::digits) + 1;
    case at::kDouble:
      return (std::uint64_t{1} << std::numeric_limits<double>::digits) + 1;
    default: {
      const auto bits = 8 * c10::elementSize(dtype);
      const bool is_signed = c10::isSignedType(dtype);
      const auto value_bits = is_signed ? bits - 1 : bits;
      return value_bits == 64 ? 0 : std::uint64_t{1} << value_bits;
    }
  }
}

template <class>
struct Integers {
  void operator()(at::TensorIteratorBase& iter, const OptGenerator& gen) {
    static Site site("aten::random_", NPU_KIND_RANDOM, NPU_RANDOM_INT);
    const at::Tensor self = tensor_of(iter);
    draw_integers(site, self, 0, natural_range(self.scalar_type()), gen);
  }
};

at::Tensor& uniform_(at::Tensor& self, double from, double to, OptGenerator g) {
  return templates::uniform_impl_<Uniform, Rng>(self, from, to, std::move(g));
}

at::Tensor& normal_(at::Tensor& self, double mean, double std, OptGenerator g) {
  return templates::normal_impl_<Normal, Rng>(self, mean, std, std::move(g));
}

at::Tensor& log_normal_(
    at::Tensor& self, double mean, double std, OptGenerator g) {
  return templates::log_normal_impl_<LogNormal, Rng>(
      self, mean, std, std::move(g));
}

at::Tensor& exponential_(at::Tensor& self, double lambda, OptGenerator g) {
  return templates::exponential_impl_<Exponential, Rng>(
      self, lambda, std::move(g));
}

at::Tensor& geometric_(at::Tensor& self, double p, OptGenerator g) {
  return templates::geometric_impl_<Geometric, Rng>(self, p, std::move(g));
}

at::Tensor& cauchy_(
    at::Tensor& self, double median, double sigma, OptGenerator g) {
  return templates::cauchy_impl_<Cauchy, Rng>(
      self, median, sigma, std::move(g));
}

at::Tensor& bernoulli_tensor_(
    at::Tensor& self, const at::Tensor& p, OptGenerator g) {
  return templates::bernoulli_impl_<BernoulliTensor, Rng>(
      self, p, std::move(g));
}

at::Tensor& bernoulli_float_(at::Tensor& self, double p, OptGenerator g) {
  return templates::bernoulli_impl_<BernoulliScalar, Rng>(
      self, p, std::move(g));
}

at::Tensor& bernoulli_out(
    const at::Tensor& self, OptGenerator g, at::Tensor& out) {
  check_same_device("bernoulli", {&self, &out});
  return templates::bernoulli_out_impl<BernoulliTensor, Rng>(
      out, self, std::move(g));
}

at::Tensor& random_(at::Tensor& self, OptGenerator g) {
  return templates::random_impl<Integers, Rng>(self, std::move(g));
}

at::Tensor& random_from_(
    at::Tensor& self,
    std::int64_t from,
    std::optional<std::int64_t> to,
    OptGenerator g) {
  return templates::random_from_to_impl<IntegersFromTo, Rng>(
      self, from, to, std::move(g));
}

at::Tensor& random_to_(at::Tensor& self, std::int64_t to, OptGenerator g) {
  return random_from_(self, 0, to, std::move(g));
}

at::Tensor& normal_tensor_float_out(
    const at::Tensor& mean, double std, OptGenerator g, at::Tensor& out) {
  return templates::normal_out_impl<Normal, Rng>(out, mean, std, std::move(g));
}

at::Tensor& normal_float_tensor_out(
    double mean, const at::Tensor& std, OptGenerator g, at::Tensor& out) {
  return templates::normal_out_impl<Normal, Rng>(out, mean, std, std::move(g));
}

at::Tensor& normal_tensor_tensor_out(
    const at::Tensor& mean,
    const at::Tensor& std,
    OptGenerator g,
    at::Tensor& out) {
  return templates::normal_out_impl<Normal, Rng>(out, mean, std, std::move(g));
}

at::Tensor normal_tensor_float(
    const at::Tensor& mean, double std, OptGenerator g) {
  return templates::normal_impl<Normal, Rng>(mean, std, std::move(g));
}

at::Tensor normal_float_tensor(
    double mean, const at::Tensor& std, OptGenerator g) {
  return templates::normal_impl<Normal, Rng>(mean, std, std::move(g));
}

at::Tensor normal_tensor_tensor(
    const at::Tensor& mean, const at::Tensor& std, OptGenerator g) {
  return templates::normal_impl<Normal, Rng>(mean, std, std::move(g));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", TORCH_FN(uniform_));
  m.impl("normal_", TORCH_FN(normal_));
  m.impl("log_normal_", TORCH_FN(log_normal_));
  m.impl("exponential_", TORCH_FN(exponential_));
  m.impl("geometric_", TORCH_FN(geometric_));
  m.impl("cauchy_", TORCH_FN(cauchy_));
  m.impl("bernoulli_.Tensor", TORCH_FN(bernoulli_tensor_));
  m.impl("bernoulli_.float", TORCH_FN(bernoulli_float_));
  m.impl("bernoulli.out", TORCH_FN(bernoulli_out));
  m.impl("random_", TORCH_FN(random_));
  m.impl("random_.from", TORCH_FN(random_from_));
  m.impl("random_.to", TORCH_FN(random_to_));
  m.impl("normal.Tensor_float_out", TORCH_FN(normal_tensor_float_out));
  m.impl("normal.float_Tensor_out", TORCH_FN(normal_float_tensor_out));
  m.impl("normal.Tensor_Tensor_out", TORCH_FN(normal_tensor_tensor_out));
  m.impl("normal.Tensor_float", TORCH_FN(normal_tensor_float));
  m.impl("normal.float_Tensor", TORCH_FN(normal_float_tensor));
  m.impl("normal.Tensor_Tensor", TORCH_FN(normal_tensor_tensor));
}

}  // namespace npu
