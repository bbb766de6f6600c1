// SPDX-License-Identifier: Apache-2.0
// Kind reduce, operators without a structured meta: variance and its siblings,
// nansum, count_nonzero, logsumexp, and reductions of a whole tensor.
#include "aten/ops/rows.h"

#include <ATen/ops/count_nonzero_cpu_dispatch.h>
#include <ATen/ops/max_cpu_dispatch.h>
#include <ATen/ops/min_cpu_dispatch.h>
#include <ATen/ops/nansum_cpu_dispatch.h>
#include <ATen/ops/prod_cpu_dispatch.h>
#include <ATen/ops/std_cpu_dispatch.h>
#include <ATen/ops/std_mean_cpu_dispatch.h>
#include <ATen/ops/var_cpu_dispatch.h>
#include <ATen/ops/var_mean_cpu_dispatch.h>
#include <torch/library.h>

#include "aten/core/factories.h"

namespace npu {
namespace {

using Dims = at::OptionalIntArrayRef;
using OptionalScalar = std::optional<at::Scalar>;
using OptionalDtype = std::optional<at::ScalarType>;

at::Tensor make_reduced(
    const at::Tensor& self, const Reduction& reduction, c10::ScalarType dtype) {
  return make_empty(
      reduced_sizes(self, reduction.dims, reduction.keepdim),
      dtype,
      self.device().index());
}

// ---- variance ----

c10::ScalarType real_type(const at::Tensor& self) {
  return c10::toRealValueType(self.scalar_type());
}

Reduction spread(
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim) {
  return {
      .dims = dims_mask(dim, self),
      .keepdim = keepdim,
      .correction = correction ? correction->toDouble() : 1.0};
}

// Integers are an error, too few elements a warning: the CPU rung has both.
npu_reason wants_spread(
    const NativeSite& site,
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction) {
  if (!self.is_floating_point() && !self.is_complex()) {
    return NPU_REASON_DTYPE;
  }
  const npu_reason why = site.wants(self);
  if (why != NPU_REASON_NONE) {
    return why;
  }
  const Reduction all = spread(self, dim, correction, false);
  std::int64_t count = self.numel();
  for (const std::int64_t size : reduced_sizes(self, all.dims, false)) {
    count /= size;
  }
  return static_cast<double>(count) > all.correction ? NPU_REASON_NONE
                                                     : NPU_REASON_SIZE;
}

template <class Cpu>
at::Tensor one_spread(
    NativeSite& site,
    Cpu* cpu,
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim) {
  npu_reason why = wants_spread(site, self, dim, correction);
  if (why == NPU_REASON_NONE) {
    const Reduction all = spread(self, dim, correction, keepdim);
    at::Tensor out = make_reduced(self, all, real_type(self));
    why = run_reduce(site, self, all, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, cpu, self, dim, correction, keepdim);
}

template <class Cpu>
at::Tensor& one_spread_out(
    NativeSite& site,
    Cpu* cpu,
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim,
    at::Tensor& out) {
  npu_reason why = wants_spread(site, self, dim, correction);
  if (why == NPU_REASON_NONE) {
    const Reduction all = spread(self, dim, correction, keepdim);
    const at::DimVector sizes = reduced_sizes(self, all.dims, keepdim);
    why = fits(out, self, sizes, real_type(self))
              ? run_reduce(site, self, all, out)
              : npu_reason{NPU_REASON_DTYPE};
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, cpu, self, dim, correction, keepdim, out);
}

template <class Cpu>
std::tuple<at::Tensor, at::Tensor> two_spreads(
    NativeSite& site,
    Cpu* cpu,
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim) {
  npu_reason why = wants_spread(site, self, dim, correction);
  if (why == NPU_REASON_NONE) {
    const Reduction all = spread(self, dim, correction, keepdim);
    at::Tensor out = make_reduced(self, all, real_type(self));
    at::Tensor mean = make_reduced(self, all, self.scalar_type());
    why = run_reduce(site, self, all, out, mean);
    if (why == NPU_REASON_NONE) {
      return {std::move(out), std::move(mean)};
    }
  }
  return site.cpu(why, cpu, self, dim, correction, keepdim);
}

using Spread = at::Tensor(const at::Tensor&, Dims, const OptionalScalar&, bool);
using SpreadOut = at::Tensor&(
    const at::Tensor&, Dims, const OptionalScalar&, bool, at::Tensor&);
using SpreadMean = std::tuple<at::Tensor, at::Tensor>(
    const at::Tensor&, Dims, const OptionalScalar&, bool);

at::Tensor var(
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim) {
  static NativeSite site(
      "aten::var.correction", NPU_KIND_REDUCE, NPU_REDUCE_VAR);
  return one_spread(
      site,
      static_cast<Spread*>(&at::cpu::var),
      self,
      dim,
      correction,
      keepdim);
}
at::Tensor std_(
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim) {
  static NativeSite site(
      "aten::std.correction", NPU_KIND_REDUCE, NPU_REDUCE_STD);
  return one_spread(
      site,
      static_cast<Spread*>(&at::cpu::std),
      self,
      dim,
      correction,
      keepdim);
}
at::Tensor& var_out(
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim,
    at::Tensor& out) {
  static NativeSite site(
      "aten::var.correction_out", NPU_KIND_REDUCE, NPU_REDUCE_VAR);
  return one_spread_out(
      site,
      static_cast<SpreadOut*>(&at::cpu::var_outf),
      self,
      dim,
      correction,
      keepdim,
      out);
}
at::Tensor& std_out(
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim,
    at::Tensor& out) {
  static NativeSite site(
      "aten::std.correction_out", NPU_KIND_REDUCE, NPU_REDUCE_STD);
  return one_spread_out(
      site,
      static_cast<SpreadOut*>(&at::cpu::std_outf),
      self,
      dim,
      correction,
      keepdim,
      out);
}
std::tuple<at::Tensor, at::Tensor> var_mean(
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim) {
  static NativeSite site(
      "aten::var_mean.correction", NPU_KIND_REDUCE, NPU_REDUCE_VAR_MEAN);
  return two_spreads(
      site,
      static_cast<SpreadMean*>(&at::cpu::var_mean),
      self,
      dim,
      correction,
      keepdim);
}
std::tuple<at::Tensor, at::Tensor> std_mean(
    const at::Tensor& self,
    Dims dim,
    const OptionalScalar& correction,
    bool keepdim) {
  static NativeSite site(
      "aten::std_mean.correction", NPU_KIND_REDUCE, NPU_REDUCE_STD_MEAN);
  return two_spreads(
      site,
      static_cast<SpreadMean*>(&at::cpu::std_mean),
      self,
      dim,
      correction,
      keepdim);
}

// ---- sums, counts and whole tensors ----

// Integers are summed in int64.
c10::ScalarType sum_type(const at::Tensor& self, const OptionalDtype& dtype) {
  return dtype ? *dtype
         : c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)
             ? c10::ScalarType::Long
             : self.scalar_type();
}

at::Tensor nansum(
    const at::Tensor& self, Dims dim, bool keepdim, OptionalDtype dtype) {
  static NativeSite site("aten::nansum", NPU_KIND_REDUCE, NPU_REDUCE_NANSUM);
  npu_reason why =
      self.is_complex() ? npu_reason{NPU_REASON_DTYPE} : site.wants(self);
  if (why == NPU_REASON_NONE) {
    const Reduction all{.dims = dims_mask(dim, self), .keepdim = keepdim};
    at::Tensor out = make_reduced(self, all, sum_type(self, dtype));
    why = run_reduce(site, self, all, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, &at::cpu::nansum, self, dim, keepdim, dtype);
}

at::Tensor& nansum_out(
    const at::Tensor& self,
    Dims dim,
    bool keepdim,
    OptionalDtype dtype,
    at::Tensor& out) {
  static NativeSite site(
      "aten::nansum.out", NPU_KIND_REDUCE, NPU_REDUCE_NANSUM);
  npu_reason why =
      self.is_complex() ? npu_reason{NPU_REASON_DTYPE} : site.wants(self);
  if (why == NPU_REASON_NONE) {
    const Reduction all{.dims = dims_mask(dim, self), .keepdim = keepdim};
    why = fits(
              out,
              self,
              reduced_sizes(self, all.dims, keepdim),
              sum_type(self, dtype))
              ? run_reduce(site, self, all, out)
              : npu_reason{NPU_REASON_DTYPE};
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, &at::cpu::nansum_outf, self, dim, keepdim, dtype, out);
}

at::Tensor count_nonzero(const at::Tensor& self, at::IntArrayRef dim) {
  static NativeSite site(
      "aten::count_nonzero.dim_IntList",
      NPU_KIND_REDUCE,
      NPU_REDUCE_COUNT_NONZERO);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    const Reduction all{.dims = dims_mask(dim, self)};
    at::Tensor out = make_reduced(self, all, c10::ScalarType::Long);
    why = run_reduce(site, self, all, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, &at::cpu::count_nonzero, self, dim);
}

at::Tensor logsumexp(
    const at::Tensor& self, at::IntArrayRef dim, bool keepdim) {
  static NativeSite site(
      "aten::logsumexp", NPU_KIND_REDUCE, NPU_REDUCE_LOGSUMEXP);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    const Reduction all{.dims = dims_mask(dim, self), .keepdim = keepdim};
    const bool whole =
        c10::isIntegralType(self.scalar_type(), /*includeBool=*/true);
    at::Tensor out = make_reduced(
        self,
        all,
        whole ? c10::typeMetaToScalarType(c10::get_default_dtype())
              : self.scalar_type());
    why = run_reduce(site, self, all, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu_boxed<at::Tensor>(why, self, dim, keepdim);
}

template <class Cpu>
at::Tensor reduce_whole(NativeSite& site, Cpu* cpu, const at::Tensor& self) {
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    at::Tensor out = make_reduced(self, {}, self.scalar_type());
    why = run_reduce(site, self, {}, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, cpu, self);
}

at::Tensor& reduce_whole_out(
    NativeSite& site,
    at::Tensor& (*cpu)(const at::Tensor&, at::Tensor&),
    const at::Tensor& self,
    at::Tensor& out) {
  const bool ready = fits(out, self, {}, self.scalar_type());
  npu_reason why = ready ? site.wants(self) : npu_reason{NPU_REASON_DTYPE};
  if (why == NPU_REASON_NONE) {
    why = run_reduce(site, self, {}, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  return site.cpu(why, cpu, self, out);
}

at::Tensor max_whole(const at::Tensor& self) {
  static NativeSite site("aten::max", NPU_KIND_REDUCE, NPU_REDUCE_MAX);
  return reduce_whole(
      site,
      static_cast<at::Tensor (*)(const at::Tensor&)>(&at::cpu::max),
      self);
}
at::Tensor min_whole(const at::Tensor& self) {
  static NativeSite site("aten::min", NPU_KIND_REDUCE, NPU_REDUCE_MIN);
  return reduce_whole(
      site,
      static_cast<at::Tensor (*)(const at::Tensor&)>(&at::cpu::min),
      self);
}
using WholeOut = at::Tensor& (*)(const at::Tensor&, at::Tensor&);
at::Tensor& max_whole_out(const at::Tensor& self, at::Tensor& out) {
  static NativeSite site(
      "aten::max.unary_out", NPU_KIND_REDUCE, NPU_REDUCE_MAX);
  return reduce_whole_out(
      site, static_cast<WholeOut>(&at::cpu::max_outf), self, out);
}
at::Tensor& min_whole_out(const at::Tensor& self, at::Tensor& out) {
  static NativeSite site(
      "aten::min.unary_out", NPU_KIND_REDUCE, NPU_REDUCE_MIN);
  return reduce_whole_out(
      site, static_cast<WholeOut>(&at::cpu::min_outf), self, out);
}

at::Tensor prod_whole(const at::Tensor& self, OptionalDtype dtype) {
  static NativeSite site("aten::prod", NPU_KIND_REDUCE, NPU_REDUCE_PROD);
  npu_reason why = site.wants(self);
  if (why == NPU_REASON_NONE) {
    at::Tensor out = make_reduced(self, {}, sum_type(self, dtype));
    why = run_reduce(site, self, {}, out);
    if (why == NPU_REASON_NONE) {
      return out;
    }
  }
  using Cpu = at::Tensor(const at::Tensor&, OptionalDtype);
  return site.cpu(why, static_cast<Cpu*>(&at::cpu::prod), self, dtype);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("count_nonzero.dim_IntList", TORCH_FN(count_nonzero));
  m.impl("logsumexp", TORCH_FN(logsumexp));
  m.impl("max", TORCH_FN(max_whole));
  m.impl("max.unary_out", TORCH_FN(max_whole_out));
  m.impl("min", TORCH_FN(min_whole));
  m.impl("min.unary_out", TORCH_FN(min_whole_out));
  m.impl("nansum", TORCH_FN(nansum));
  m.impl("nansum.out", TORCH_FN(nansum_out));
  m.impl("prod", TORCH_FN(prod_whole));
  m.impl("std.correction", TORCH_FN(std_));
  m.impl("std.correction_out", TORCH_FN(std_out));
  m.impl("std_mean.correction", TORCH_FN(std_mean));
  m.impl("var.correction", TORCH_FN(var));
  m.impl("var.correction_out", TORCH_FN(var_out));
  m.impl("var_mean.correction", TORCH_FN(var_mean));
}

}  // namespace npu
