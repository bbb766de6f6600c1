// SPDX-License-Identifier: Apache-2.0
// Operators that PyTorch has as one kernel and no composite. Where that kernel
// reaches the device's bytes it runs (rung 4). Elsewhere it would work on
// copies (rung 5), so these are made of operators that drivers have.
#include "aten/ops/composed.h"

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_cdist_forward_cpu_dispatch.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams_cpu_dispatch.h>
#include <ATen/ops/_pdist_forward_cpu_dispatch.h>
#include <ATen/ops/channel_shuffle_cpu_dispatch.h>
#include <ATen/ops/equal_cpu_dispatch.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask_cpu_dispatch.h>
#include <ATen/ops/fake_quantize_per_tensor_affine_cachemask_cpu_dispatch.h>
#include <ATen/ops/linalg_cross_cpu_dispatch.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/renorm_cpu_dispatch.h>
#include <ATen/ops/trace_cpu_dispatch.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/where.h>

#include <optional>
#include <tuple>
#include <vector>

#include "aten/ladder/unboxed.h"
#include "aten/ops/op.h"
#include "aten/ops/register.h"
#include "aten/twin/twin.h"
#include "runtime/device.h"

namespace npu {
namespace {

// An operator: kName, kCpu (PyTorch's CPU function), parts() of the same
// signature, and fits(): the arguments are some that PyTorch does not refuse.
// For the others the CPU function has the error. beyond_cpu(), where there is
// one: arguments that Ascend takes and the CPU function does not.
template <class Op, class R, class... Args>
R run_composed(Args... args) {
  const c10::DeviceIndex device = device_among(args...);
  if constexpr (requires { Op::beyond_cpu(args...); }) {
    if (Op::fits(args...) && Op::beyond_cpu(args...)) {
      return Op::parts(args...);
    }
  }
  if (device >= 0 && twin::reaches_of({kDeviceType, device}).own.copies &&
      Op::fits(args...)) {
    return Op::parts(args...);
  }
  static twin::Entry& entry =
      twin::make_entry(find_operator(Op::kName), Op::kName);
  return ladder::Unboxed<R(Args...)>::run_operator(
      entry, NPU_REASON_NO_KERNEL, Op::kCpu, args...);
}

template <class Op, class R, class... Args>
ladder::UnboxedRow composed_row(
    const char* name, const char* overload, R (*)(Args...)) {
  return native_row(name, overload, &run_composed<Op, R, Args...>);
}
template <class Op>
ladder::UnboxedRow composed_row(const char* name, const char* overload = "") {
  return composed_row<Op>(name, overload, &Op::parts);
}

bool is_filled(const at::Tensor& x) {
  return x.numel() != 0 && x.layout() == at::kStrided;
}

struct Trace {
  static constexpr char kName[] = "aten::trace";
  static constexpr auto kCpu = &at::cpu::trace;
  static bool fits(const at::Tensor& self) {
    return self.dim() == 2 && is_filled(self);
  }
  static at::Tensor parts(const at::Tensor& self) {
    return self.diagonal().sum();
  }
};

struct Equal {
  static constexpr char kName[] = "aten::equal";
  static constexpr auto kCpu = &at::cpu::equal;
  static bool fits(const at::Tensor& self, const at::Tensor& other) {
    return is_filled(self) && is_filled(other) && same_dtype(self, other) &&
           self.device() == other.device();
  }
  static bool parts(const at::Tensor& self, const at::Tensor& other) {
    return self.sizes() == other.sizes() &&
           !at::ne(self, other).any().item<bool>();
  }
};

struct ChannelShuffle {
  static constexpr char kName[] = "aten::channel_shuffle";
  static constexpr auto kCpu = &at::cpu::channel_shuffle;
  static bool fits(const at::Tensor& self, std::int64_t groups) {
    return self.dim() > 2 && is_filled(self) && groups > 0 &&
           self.size(1) % groups == 0;
  }
  static at::Tensor parts(const at::Tensor& self, std::int64_t groups) {
    const at::Tensor moved =
        self.reshape({self.size(0), groups, self.size(1) / groups, -1})
            .transpose(1, 2)
            .reshape(self.sizes());
    return moved.contiguous(self.suggest_memory_format());
  }
};

// a x b = a[1, 2, 0] * b[2, 0, 1] - a[2, 0, 1] * b[1, 2, 0].
at::Tensor cross(
    const at::Tensor& self, const at::Tensor& other, std::int64_t dim) {
  return self.roll(-1, dim)
      .mul(other.roll(-2, dim))
      .sub_(self.roll(-2, dim).mul(other.roll(-1, dim)));
}

struct Cross {
  static constexpr char kName[] = "aten::linalg_cross";
  static constexpr auto kCpu = &at::cpu::linalg_cross;
  static bool fits(
      const at::Tensor& self, const at::Tensor& other, std::int64_t dim) {
    return is_filled(self) && is_filled(other) && same_dtype(self, other) &&
           self.sizes() == other.sizes() && -self.dim() <= dim &&
           dim < self.dim() && self.size(dim) == 3;
  }
  static at::Tensor parts(
      const at::Tensor& self, const at::Tensor& other, std::int64_t dim) {
    return cross(self, other, dim);
  }
};

// x times min(1, maxnorm / norm) along one dimension.
struct Renorm {
  static constexpr char kName[] = "aten::renorm";
  static constexpr auto kCpu = &at::cpu::renorm;
  static bool fits(
      const at::Tensor& self,
      const at::Scalar& p,
      std::int64_t dim,
      const at::Scalar& maxnorm) {
    return is_float(self) && self.dim() > 1 && -self.dim() <= dim &&
           dim < self.dim() && !p.isComplex() && p.toDouble() >= 0 &&
           !maxnorm.isComplex() && maxnorm.toDouble() >= 0;
  }
  // The norm of order 0 counts.
  static bool beyond_cpu(
      const at::Tensor&, const at::Scalar& p, std::int64_t, const at::Scalar&) {
    return p.toDouble() == 0;
  }
  static at::Tensor parts(
      const at::Tensor& self,
      const at::Scalar& p,
      std::int64_t dim,
      const at::Scalar& maxnorm) {
    at::DimVector others;
    for (std::int64_t d = 0; d < self.dim(); ++d) {
      if (d != (dim + self.dim()) % self.dim()) {
        others.push_back(d);
      }
    }
    const at::Tensor norm = at::linalg_vector_norm(
        self, p, others, true, at::toOpMathType(self.scalar_type()));
    const at::Tensor factor = at::where(
        norm.gt(maxnorm), norm.add(1e-7).reciprocal_().mul_(maxnorm), 1);
    return self.mul(factor.to(self.scalar_type()));
  }
};

struct Cdist {
  static constexpr char kName[] = "aten::_cdist_forward";
  static constexpr auto kCpu = &at::cpu::_cdist_forward;
  static bool fits(
      const at::Tensor& a,
      const at::Tensor& b,
      double p,
      std::optional<std::int64_t> mode) {
    return is_float(a) && is_float(b) && same_dtype(a, b) && a.dim() >= 2 &&
           b.dim() >= 2 && a.size(-1) == b.size(-1) && p >= 0 &&
           mode.value_or(0) >= 0 && mode.value_or(0) <= 2;
  }
  static at::Tensor parts(
      const at::Tensor& a,
      const at::Tensor& b,
      double p,
      std::optional<std::int64_t>) {
    return at::linalg_vector_norm(
        a.unsqueeze(-2).sub(b.unsqueeze(-3)), p, at::IntArrayRef(-1));
  }
};

struct Pdist {
  static constexpr char kName[] = "aten::_pdist_forward";
  static constexpr auto kCpu = &at::cpu::_pdist_forward;
  static bool fits(const at::Tensor& self, double p) {
    return is_float(self) && self.dim() == 2 && self.size(0) > 1 && p >= 0;
  }
  static at::Tensor parts(const at::Tensor& self, double p) {
    const at::Tensor pairs = at::triu_indices(
        self.size(0), self.size(0), 1, self.options().dtype(at::kLong));
    return at::linalg_vector_norm(
        self.index_select(0, pairs[0]).sub(self.index_select(0, pairs[1])),
        p,
        at::IntArrayRef(-1));
  }
};

// ---- fake quantisation ----

using Pair = std::tuple<at::Tensor, at::Tensor>;

// Scale and zero point are numbers, or tensors of float32.
template <class Scale, class Zero>
Pair fake_quantise(
    const at::Tensor& self,
    const Scale& inverse,
    const Scale& scale,
    const Zero& zero,
    std::int64_t low,
    std::int64_t high) {
  const at::Tensor places =
      self.to(at::kFloat).mul(inverse).round_().add_(zero);
  return {
      places.clamp(low, high).sub_(zero).mul_(scale).to(self.scalar_type()),
      places.ge(low).logical_and_(places.le(high))};
}

struct FakeQuantise {
  static constexpr char kName[] =
      "aten::fake_quantize_per_tensor_affine_cachemask";
  static constexpr auto kCpu =
      &at::cpu::fake_quantize_per_tensor_affine_cachemask;
  static bool fits(
      const at::Tensor& self,
      double,
      std::int64_t zero,
      std::int64_t low,
      std::int64_t high) {
    return is_float(self) && low <= high && low <= zero && zero <= high;
  }
  static Pair parts(
      const at::Tensor& self,
      double scale,
      std::int64_t zero,
      std::int64_t low,
      std::int64_t high) {
    const auto number = static_cast<float>(scale);
    return fake_quantise(
        self,
        at::Scalar(1.0f / number),
        at::Scalar(number),
        at::Scalar(zero),
        low,
        high);
  }
};

struct FakeQuantiseByTensors {
  static constexpr char kName[] =
      "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams";
  static constexpr auto kCpu =
      &at::cpu::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams;
  static bool fits(
      const at::Tensor& self,
      const at::Tensor& scale,
      const at::Tensor& zero,
      const at::Tensor& enabled,
      std::int64_t low,
      std::int64_t high) {
    return is_float(self) && low <= high && scale.numel() == 1 &&
           zero.numel() == 1 && enabled.numel() == 1 &&
           on_device(self, scale, zero, enabled);
  }
  static Pair parts(
      const at::Tensor& self,
      const at::Tensor& scale,
      const at::Tensor& zero,
      const at::Tensor& enabled,
      std::int64_t low,
      std::int64_t high) {
    const at::Tensor width = scale.to(at::kFloat).reshape({});
    const at::Tensor place = zero.to(at::kFloat).reshape({});
    const auto [out, mask] =
        fake_quantise(self, width.reciprocal(), width, place, low, high);
    const at::Tensor off = enabled.reshape({}).eq(0);
    return {at::where(off, self, out), mask.logical_or(off)};
  }
};

struct FakeQuantiseChannels {
  static constexpr char kName[] =
      "aten::fake_quantize_per_channel_affine_cachemask";
  static constexpr auto kCpu =
      &at::cpu::fake_quantize_per_channel_affine_cachemask;
  static bool fits(
      const at::Tensor& self,
      const at::Tensor& scale,
      const at::Tensor& zero,
      std::int64_t axis,
      std::int64_t low,
      std::int64_t high) {
    // A zero point out of range is refused: it would have to be read.
    return is_float(self) && low <= high && axis >= 0 && axis < self.dim() &&
           scale.dim() == 1 && zero.sizes() == scale.sizes() &&
           scale.numel() == self.size(axis) && on_device(scale, zero) &&
           at::isFloatingType(zero.scalar_type());
  }
  static Pair parts(
      const at::Tensor& self,
      const at::Tensor& scale,
      const at::Tensor& zero,
      std::int64_t axis,
      std::int64_t low,
      std::int64_t high) {
    at::DimVector sizes(static_cast<std::size_t>(self.dim()), 1);
    sizes[static_cast<std::size_t>(axis)] = -1;
    const at::Tensor width = scale.to(at::kFloat).reshape(sizes);
    return fake_quantise(
        self,
        width.reciprocal(),
        width,
        zero.to(at::kFloat).reshape(sizes),
        low,
        high);
  }
};

}  // namespace

ladder::UnboxedRows composed_rows() {
  static const std::vector<ladder::UnboxedRow> rows = {
      composed_row<Trace>("aten::trace"),
      composed_row<Equal>("aten::equal"),
      composed_row<ChannelShuffle>("aten::channel_shuffle"),
      composed_row<Cross>("aten::linalg_cross"),
      composed_row<Renorm>("aten::renorm"),
      composed_row<Cdist>("aten::_cdist_forward"),
      composed_row<Pdist>("aten::_pdist_forward"),
      composed_row<FakeQuantise>(
          "aten::fake_quantize_per_tensor_affine_cachemask"),
      composed_row<FakeQuantiseByTensors>(
          "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"),
      composed_row<FakeQuantiseChannels>(
          "aten::fake_quantize_per_channel_affine_cachemask"),
  };
  return {rows.data(), rows.size()};
}

}  // namespace npu
