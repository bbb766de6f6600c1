// SPDX-License-Identifier: Apache-2.0
// Kinds nll and cross_entropy, and backward: losses over classes.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
//
// The classes are dimension 1 of (N, C, ...), or the only dimension. A sample
// is one position of all other dimensions; it has one target.
#include <cmath>
#include <limits>

#include "kernels/loss.h"

namespace npu::host {
namespace {

constexpr std::uint64_t kTargets = kIndexDtypes | NPU_DTYPE_BIT(NPU_U8);

struct Samples {
  explicit Samples(const npu_tensor& in)
      : classes(in.sizes[in.ndim > 1 ? 1 : 0]), count(in.numel / classes) {
    for (int d = 2; d < in.ndim; ++d) {
      plane *= in.sizes[d];
    }
  }
  // Index of class c of sample i.
  std::int64_t at(std::int64_t i, std::int64_t c) const {
    return (i / plane * classes + c) * plane + i % plane;
  }
  std::int64_t classes;
  std::int64_t count;
  std::int64_t plane = 1;
};

// Targets are classes, or the one that is ignored.
npu_status check_targets(
    const char* kind,
    const Loaded<std::int64_t>& target,
    const Samples& samples,
    std::int64_t ignored) {
  for (std::int64_t i = 0; target && i < samples.count; ++i) {
    const std::int64_t t = target[i];
    if (t != ignored && (t < 0 || t >= samples.classes)) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: %s: target %lld is out of bounds: there are %lld "
          "classes.",
          kind,
          static_cast<long long>(t),
          static_cast<long long>(samples.classes));
    }
  }
  return NPU_OK;
}

// What the gradient of one sample's loss is multiplied by.
template <class T>
double scale_of(
    Reduction reduction, const Loaded<T>& grad, std::int64_t i, double total) {
  return reduction == Reduction::kNone   ? grad[i]
         : reduction == Reduction::kMean ? grad[0] / total
                                         : grad[0];
}

}  // namespace

npu_status nll_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 5);
  out.dtypes[3] = kTargets;
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status nll_grad_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 5);
  out.dtypes[2] = kTargets;
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status nll_run(const npu_call& call) {
  const npu_nll_args args = npu_nll_unpack(&call);
  const auto reduction = static_cast<Reduction>(args.attrs.reduction);
  const std::int64_t ignored = args.attrs.ignore_index;
  const Samples samples(*args.in);
  const Loaded<std::int64_t> target(args.target);
  if (const npu_status status =
          check_targets("nll", target, samples, ignored)) {
    return status;
  }
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Loaded<T> weight(args.weight);
    const Stored<T> out(args.out);
    const Stored<T> total(args.total_weight);
    double sum = 0;
    double weights = 0;
    for (std::int64_t i = 0; i < samples.count; ++i) {
      const bool counts = target[i] != ignored;
      const double w = counts ? weight.at(target[i], 1) : 0;
      const double loss = counts ? -w * in[samples.at(i, target[i])] : 0;
      if (reduction == Reduction::kNone) {
        out.set(i, loss);
      }
      sum += loss;
      weights += w;
    }
    if (reduction != Reduction::kNone) {
      out.set(0, reduction == Reduction::kMean ? sum / weights : sum);
    }
    // PyTorch saves no weight where every sample of a batch keeps its loss.
    const bool saves = reduction != Reduction::kNone || args.in->ndim == 1;
    total.set(0, saves ? weights : 0);
    return finish(NPU_OK, target, in, weight, out, total);
  });
}

npu_status nll_grad_run(const npu_call& call) {
  const npu_nll_grad_args args = npu_nll_grad_unpack(&call);
  const auto reduction = static_cast<Reduction>(args.attrs.reduction);
  const std::int64_t ignored = args.attrs.ignore_index;
  const Samples samples(*args.grad_in);
  const Loaded<std::int64_t> target(args.target);
  if (const npu_status status =
          check_targets("nll_grad", target, samples, ignored)) {
    return status;
  }
  return with_float(args.grad_in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> weight(args.weight);
    const Loaded<T> total(args.total_weight);
    const Stored<T> out(args.grad_in, Stored<T>::kZero);
    for (std::int64_t i = 0; i < samples.count; ++i) {
      if (target[i] != ignored) {
        const double w = weight.at(target[i], 1);
        out.set(
            samples.at(i, target[i]),
            -w * scale_of(reduction, grad, i, total.at(0, 1)));
      }
    }
    return finish(NPU_OK, target, grad, weight, total, out);
  });
}

namespace {

// The loss of a sample is a weighted sum over classes, -sum(q[c] * log_p[c]);
// q is the target distribution, with smoothing and class weights in it.
template <class T>
struct Distribution {
  Distribution(
      const npu_tensor* target,
      const npu_tensor* weights,
      bool holds_classes,
      std::int64_t ignore_index,
      double label_smoothing,
      const Samples& all)
      : classes(holds_classes ? target : nullptr),
        probabilities(holds_classes ? nullptr : target),
        weight(weights),
        ignored(ignore_index),
        smoothing(label_smoothing),
        samples(all) {}

  bool counts(std::int64_t i) const {
    return !classes || classes[i] != ignored;
  }
  double operator()(std::int64_t i, std::int64_t c) const {
    const double hard = classes ? (classes[i] == c ? 1.0 : 0.0)
                                : probabilities[samples.at(i, c)];
    const double n = static_cast<double>(samples.classes);
    return ((1 - smoothing) * hard + smoothing / n) * weight.at(c, 1);
  }
  // What the sample adds to the divisor of a mean.
  double mass(std::int64_t i) const {
    return !classes ? 1 : counts(i) ? weight.at(classes[i], 1) : 0;
  }

  Loaded<std::int64_t> classes;
  Loaded<T> probabilities;
  Loaded<T> weight;
  std::int64_t ignored;
  double smoothing;
  const Samples& samples;
};

}  // namespace

npu_status cross_entropy_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 6);
  out.dtypes[4] = code == NPU_CROSS_ENTROPY_INDEX ? kTargets : kFloatDtypes;
  return code <= NPU_CROSS_ENTROPY_PROBABILITY ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status cross_entropy_grad_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 7);
  out.dtypes[3] = code == NPU_CROSS_ENTROPY_INDEX ? kTargets : kFloatDtypes;
  return code <= NPU_CROSS_ENTROPY_PROBABILITY ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status cross_entropy_run(const npu_call& call) {
  const npu_cross_entropy_args args = npu_cross_entropy_unpack(&call);
  const auto reduction = static_cast<Reduction>(args.attrs.reduction);
  const Samples samples(*args.in);
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Distribution<T> q(
        args.target,
        args.weight,
        call.code == NPU_CROSS_ENTROPY_INDEX,
        args.attrs.ignore_index,
        args.attrs.label_smoothing,
        samples);
    if (const npu_status status =
            check_targets("cross_entropy", q.classes, samples, q.ignored)) {
      return status;
    }
    const Stored<T> out(args.out);
    const Stored<T> lse(args.lse);
    const Stored<T> total(args.total_weight);
    double all = 0;
    double mass = 0;
    for (std::int64_t i = 0; i < samples.count; ++i) {
      double most = -std::numeric_limits<double>::infinity();
      for (std::int64_t c = 0; c < samples.classes; ++c) {
        most = std::fmax(most, in[samples.at(i, c)]);
      }
      double sum = 0;
      for (std::int64_t c = 0; c < samples.classes; ++c) {
        sum += std::exp(in[samples.at(i, c)] - most);
      }
      const double log_sum = std::log(sum);
      double loss = 0;
      for (std::int64_t c = 0; q.counts(i) && c < samples.classes; ++c) {
        const double share = q(i, c);
        // The difference first: a small loss keeps its digits.
        const double off = most - in[samples.at(i, c)] + log_sum;
        loss += share == 0 ? 0 : share * off;
      }
      lse.set(i, most + log_sum);
      if (reduction == Reduction::kNone) {
        out.set(i, loss);
      }
      all += loss;
      mass += q.mass(i);
    }
    if (reduction != Reduction::kNone) {
      out.set(0, reduction == Reduction::kMean ? all / mass : all);
    }
    total.set(0, mass);
    return finish(
        loaded(q.classes, q.probabilities, q.weight), in, out, lse, total);
  });
}

// d loss / d x[c] = softmax[c] * sum(q) - q[c].
npu_status cross_entropy_grad_run(const npu_call& call) {
  const npu_cross_entropy_grad_args args = npu_cross_entropy_grad_unpack(&call);
  const auto reduction = static_cast<Reduction>(args.attrs.reduction);
  const Samples samples(*args.in);
  return with_float(args.grad_in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> in(args.in);
    const Loaded<T> lse(args.lse);
    const Distribution<T> q(
        args.target,
        args.weight,
        call.code == NPU_CROSS_ENTROPY_INDEX,
        args.attrs.ignore_index,
        args.attrs.label_smoothing,
        samples);
    const Stored<T> out(args.grad_in);
    double mass = 0;
    for (std::int64_t i = 0; i < samples.count; ++i) {
      mass += q.mass(i);
    }
    const auto sample = [&](std::int64_t i) {
      double whole = 0;
      for (std::int64_t c = 0; q.counts(i) && c < samples.classes; ++c) {
        whole += q(i, c);
      }
      const double scale = scale_of(reduction, grad, i, mass);
      for (std::int64_t c = 0; c < samples.classes; ++c) {
        const std::int64_t at = samples.at(i, c);
        const double p = std::exp(static_cast<double>(in[at]) - lse[i]);
        out.set(at, q.counts(i) ? scale * (p * whole - q(i, c)) : 0);
      }
    };
    const npu_status status =
        for_each_item(samples.count, samples.classes * 8, sample);
    return finish(
        status ? status : loaded(q.classes, q.probabilities, q.weight),
        grad,
        in,
        lse,
        out);
  });
}

}  // namespace npu::host
