// SPDX-License-Identifier: Apache-2.0
// Kinds ctc and ctc_grad: connectionist temporal classification.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
//
// A target of S labels becomes a path of 2 S + 1 places, blanks around and
// between the labels. alpha(t, s) is the log-probability of all ways to be at
// place s after step t, beta(t, s) that of all ways to go on from there; both
// include step t itself.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/loss.h"

namespace npu::host {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

double log_add(double a, double b) {
  const double most = std::fmax(a, b);
  return most == kNever
             ? kNever
             : most + std::log(std::exp(a - most) + std::exp(b - most));
}

// One sample: its log-probabilities and its path.
template <class T>
struct Sample {
  const T* log_probs;  // of step 0, class 0
  std::int64_t step;   // elements from one step to the next
  std::int64_t steps;
  const std::int64_t* labels;
  std::int64_t places;
  std::int64_t blank;

  std::int64_t label(std::int64_t s) const {
    return s % 2 == 0 ? blank : labels[s / 2];
  }
  double log_prob(std::int64_t t, std::int64_t s) const {
    return log_probs[t * step + label(s)];
  }
  // Whether a path may leap over the blank between places s - 2 and s.
  bool leaps(std::int64_t s) const {
    return s >= 2 && label(s) != blank && label(s) != label(s - 2);
  }
};

// Targets of all samples: rows of a matrix, or one after the other.
struct Targets {
  Targets(
      const Loaded<std::int64_t>& labels,
      const npu_tensor& tensor,
      const Loaded<std::int64_t>& lengths,
      std::int64_t samples)
      : first(static_cast<std::size_t>(samples)) {
    std::int64_t at = 0;
    for (std::int64_t n = 0; n < samples; ++n) {
      const bool rows = tensor.ndim > 1;
      first[static_cast<std::size_t>(n)] =
          labels.data() + (rows ? n * tensor.sizes[1] : at);
      at += lengths[n];
    }
  }
  const std::int64_t* operator[](std::int64_t n) const {
    return first[static_cast<std::size_t>(n)];
  }
  std::vector<const std::int64_t*> first;
};

npu_status check_ctc(
    const npu_tensor& log_probs,
    const npu_tensor& targets,
    const Loaded<std::int64_t>& input_lengths,
    const Loaded<std::int64_t>& target_lengths,
    std::int64_t width) {
  std::int64_t total = 0;
  for (std::int64_t n = 0; n < log_probs.sizes[1]; ++n) {
    const std::int64_t labels = target_lengths[n];
    const std::int64_t most =
        targets.ndim > 1 ? targets.sizes[1] : targets.numel - total;
    if (input_lengths[n] < 0 || input_lengths[n] > log_probs.sizes[0] ||
        labels < 0 || labels > most || 2 * labels + 1 > width) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: ctc: sample %lld has length %lld and %lld labels, "
          "more than there are.",
          static_cast<long long>(n),
          static_cast<long long>(input_lengths[n]),
          static_cast<long long>(labels));
    }
    total += labels;
  }
  return NPU_OK;
}

npu_status check_labels(
    const Loaded<std::int64_t>& targets, std::int64_t n, std::int64_t classes) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (targets[i] < 0 || targets[i] >= classes) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: ctc: label %lld is out of bounds: there are %lld "
          "classes.",
          static_cast<long long>(targets[i]),
          static_cast<long long>(classes));
    }
  }
  return NPU_OK;
}

// What both kinds are given: sizes, lengths and labels, checked.
struct Batch {
  template <class Args>
  explicit Batch(const Args& args)
      : samples(args.log_probs->sizes[1]),
        classes(args.log_probs->sizes[2]),
        steps(args.log_alpha->sizes[1]),
        width(args.log_alpha->sizes[2]),
        blank(args.attrs.blank),
        labels(args.targets),
        lengths(args.input_lengths),
        label_counts(args.target_lengths),
        status(loaded(labels, lengths, label_counts)) {
    status =
        status
            ? status
            : check_ctc(
                  *args.log_probs, *args.targets, lengths, label_counts, width);
    status =
        status ? status : check_labels(labels, args.targets->numel, classes);
  }
  template <class T>
  Sample<T> sample(
      const Loaded<T>& log_probs,
      const Targets& targets,
      std::int64_t n) const {
    return {
        log_probs.data() + n * classes,
        samples * classes,
        lengths[n],
        targets[n],
        2 * label_counts[n] + 1,
        blank};
  }
  // Where the alphas of sample n begin.
  std::int64_t alpha(std::int64_t n) const {
    return n * steps * width;
  }
  std::int64_t work() const {
    return steps * width * 16;
  }

  std::int64_t samples, classes, steps, width, blank;
  Loaded<std::int64_t> labels, lengths, label_counts;
  npu_status status;
};

// alpha has `width` places per step. Returns the log-probability of the target.
template <class T>
double forward(const Sample<T>& x, T* alpha, std::int64_t width) {
  if (x.steps == 0) {
    return x.places == 1 ? 0 : kNever;
  }
  for (std::int64_t s = 0; s < std::min<std::int64_t>(2, x.places); ++s) {
    alpha[s] = static_cast<T>(x.log_prob(0, s));
  }
  for (std::int64_t t = 1; t < x.steps; ++t) {
    const T* before = alpha + (t - 1) * width;
    for (std::int64_t s = 0; s < x.places; ++s) {
      double sum = before[s];
      sum = s > 0 ? log_add(sum, before[s - 1]) : sum;
      sum = x.leaps(s) ? log_add(sum, before[s - 2]) : sum;
      alpha[t * width + s] = static_cast<T>(sum + x.log_prob(t, s));
    }
  }
  const T* last = alpha + (x.steps - 1) * width + x.places - 1;
  return x.places > 1 ? log_add(last[0], last[-1]) : last[0];
}

// As PyTorch defines the gradient: of log_probs that are a log_softmax, with
// the softmax part in it.
template <class T>
void backward(
    const Sample<T>& x,
    const T* alpha,
    std::int64_t width,
    std::int64_t classes,
    double loss,
    double grad,
    T* out) {
  std::vector<double> beta(static_cast<std::size_t>(x.places + 2), kNever);
  std::vector<double> through(static_cast<std::size_t>(classes));
  for (std::int64_t t = x.steps - 1; t >= 0; --t) {
    std::fill(through.begin(), through.end(), kNever);
    for (std::int64_t s = 0; s < x.places; ++s) {
      double sum = kNever;
      if (t == x.steps - 1) {
        sum = s >= x.places - 2 ? 0 : kNever;
      } else {  // beta[s] is still that of step t + 1
        const auto at = static_cast<std::size_t>(s);
        sum = log_add(beta[at], beta[at + 1]);
        const bool leaps = s + 2 < x.places && x.leaps(s + 2);
        sum = leaps ? log_add(sum, beta[at + 2]) : sum;
      }
      beta[static_cast<std::size_t>(s)] = sum + x.log_prob(t, s);
      double& all = through[static_cast<std::size_t>(x.label(s))];
      all = log_add(
          all, alpha[t * width + s] + beta[static_cast<std::size_t>(s)]);
    }
    for (std::int64_t c = 0; c < classes; ++c) {
      const double lp = x.log_probs[t * x.step + c];
      const double share =
          std::exp(through[static_cast<std::size_t>(c)] + loss - lp);
      out[t * x.step + c] = static_cast<T>((std::exp(lp) - share) * grad);
    }
  }
}

}  // namespace

npu_status ctc_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 3);
  out.dtypes[3] = kIndexDtypes;
  out.dtypes[4] = out.dtypes[5] = NPU_DTYPE_BIT(NPU_I64);
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status ctc_grad_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 8);
  out.dtypes[3] = kIndexDtypes;
  out.dtypes[4] = out.dtypes[5] = NPU_DTYPE_BIT(NPU_I64);
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status ctc_run(const npu_call& call) {
  const npu_ctc_args args = npu_ctc_unpack(&call);
  const Batch batch(args);
  if (batch.status != NPU_OK) {
    return batch.status;
  }
  return with_float(args.log_probs->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> log_probs(args.log_probs);
    const Stored<T> out(args.out);
    const Stored<T> alpha(args.log_alpha);
    std::fill(alpha.data(), alpha.data() + args.log_alpha->numel, T(kNever));
    const Targets targets(
        batch.labels, *args.targets, batch.label_counts, batch.samples);
    const auto sample = [&](std::int64_t n) {
      const Sample<T> x = batch.sample(log_probs, targets, n);
      out.set(n, -forward(x, alpha.data() + batch.alpha(n), batch.width));
    };
    return finish(
        for_each_item(batch.samples, batch.work(), sample),
        log_probs,
        out,
        alpha);
  });
}

npu_status ctc_grad_run(const npu_call& call) {
  const npu_ctc_grad_args args = npu_ctc_grad_unpack(&call);
  const Batch batch(args);
  if (batch.status != NPU_OK) {
    return batch.status;
  }
  return with_float(args.log_probs->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> log_probs(args.log_probs);
    const Loaded<T> losses(args.losses);
    const Loaded<T> alpha(args.log_alpha);
    const Stored<T> out(args.grad_in, Stored<T>::kZero);
    const Targets targets(
        batch.labels, *args.targets, batch.label_counts, batch.samples);
    const auto sample = [&](std::int64_t n) {
      if (args.attrs.zero_infinity && std::isinf(losses[n])) {
        return;
      }
      backward(
          batch.sample(log_probs, targets, n),
          alpha.data() + batch.alpha(n),
          batch.width,
          batch.classes,
          losses[n],
          grad[n],
          out.data() + n * batch.classes);
    };
    return finish(
        for_each_item(batch.samples, batch.work(), sample),
        grad,
        log_probs,
        losses,
        alpha,
        out);
  });
}

}  // namespace npu::host
