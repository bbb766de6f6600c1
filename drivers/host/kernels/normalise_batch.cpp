// SPDX-License-Identifier: Apache-2.0
// Batch norm in its four steps, and in one call. Everything is per channel,
// dimension 1.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <cmath>

#include "kernels/normalise.h"

namespace npu::host {
namespace {

// Dimension 1: its slices are the channels.
constexpr std::int64_t kChannels = 1;

// What one channel's statistics are made into.
template <class T>
struct Results {
  Results(const npu_batch_norm_stats_args& args)
      : mean(args.mean),
        rstd(args.rstd),
        var(args.var),
        running_mean(args.running_mean, Stored<T>::kLoad),
        running_var(args.running_var, Stored<T>::kLoad),
        eps(args.attrs.eps),
        momentum(args.attrs.momentum) {}

  // squares: the sum of squared distances from the mean, of n elements.
  void set(std::int64_t c, double centre, double squares, double n) const {
    mean.set(c, centre);
    rstd.set(c, 1 / std::sqrt(squares / n + eps));
    var.set(c, squares / n);
    move(running_mean, c, centre);
    move(running_var, c, squares / (n - 1));
  }
  npu_status finish(npu_status status) const {
    return npu::host::finish(
        status, mean, rstd, var, running_mean, running_var);
  }

  Stored<T> mean;
  Stored<T> rstd;
  Stored<T> var;
  Stored<T> running_mean;
  Stored<T> running_var;
  double eps;
  double momentum;

 private:
  void move(const Stored<T>& running, std::int64_t c, double to) const {
    if (running) {
      running.set(c, (1 - momentum) * running[c] + momentum * to);
    }
  }
};

template <class T>
npu_status stats_of_batch(const npu_batch_norm_stats_args& args) {
  const Loaded<T> in(args.in);
  const Results<T> results(args);
  const Slices channels(*args.in, kChannels);
  const npu_status status = channels.for_each([&](std::int64_t c) {
    double sum = 0;
    channels.each(c, [&](std::int64_t i) { sum += in[i]; });
    const double mean = sum / channels.elements();
    double squares = 0;
    channels.each(
        c, [&](std::int64_t i) { squares += (in[i] - mean) * (in[i] - mean); });
    results.set(c, mean, squares, channels.elements());
  });
  return results.finish(finish(status, in));
}

template <class T>
npu_status stats_of_parts(const npu_batch_norm_stats_args& args) {
  const Loaded<T> means(args.means);
  const Loaded<T> rstds(args.rstds);
  const Loaded<double> counts(args.counts);
  const Results<T> results(args);
  const std::int64_t parts = args.counts->numel;
  const std::int64_t channels = args.means->numel / parts;
  const npu_status status =
      for_each_item(channels, parts * 4, [&](std::int64_t c) {
        double total = 0;
        double sum = 0;
        for (std::int64_t p = 0; p < parts; ++p) {
          total += counts[p];
          sum += counts[p] * means[p * channels + c];
        }
        const double mean = sum / total;
        double squares = 0;
        for (std::int64_t p = 0; p < parts; ++p) {
          const double scale = rstds[p * channels + c];
          const double apart = means[p * channels + c] - mean;
          squares += counts[p] *
                     (1 / (scale * scale) - args.attrs.eps + apart * apart);
        }
        results.set(c, mean, squares, total);
      });
  return results.finish(finish(status, means, rstds, counts));
}

}  // namespace

npu_status batch_norm_stats_run(const npu_call& call) {
  const npu_batch_norm_stats_args args = npu_batch_norm_stats_unpack(&call);
  const bool batch = call.code == NPU_BATCH_NORM_STATS_BATCH;
  const npu_tensor& source = batch ? *args.in : *args.means;
  return with_float(source.dtype, [&](auto type) {
    using T = decltype(type);
    return batch ? stats_of_batch<T>(args) : stats_of_parts<T>(args);
  });
}

npu_status batch_norm_apply_run(const npu_call& call) {
  const npu_batch_norm_apply_args args = npu_batch_norm_apply_unpack(&call);
  const bool is_var = call.code == NPU_BATCH_NORM_APPLY_VAR;
  return with_float(args.out->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Loaded<T> mean(args.mean);
    const Loaded<T> scale(args.scale);
    const Loaded<T> weight(args.weight);
    const Loaded<T> bias(args.bias);
    const Stored<T> out(args.out);
    const Slices channels(*args.in, kChannels);
    const npu_status status = channels.for_each([&](std::int64_t c) {
      const double rstd =
          is_var ? 1 / std::sqrt(scale[c] + args.attrs.eps) : scale[c];
      const double by = rstd * weight.at(c, 1);
      const double centre = mean[c];
      const double shift = bias.at(c, 0);
      channels.each(c, [&](std::int64_t i) {
        out.set(i, (in[i] - centre) * by + shift);
      });
    });
    return finish(status, in, mean, scale, weight, bias, out);
  });
}

npu_status batch_norm_grad_reduce_run(const npu_call& call) {
  const npu_batch_norm_grad_reduce_args args =
      npu_batch_norm_grad_reduce_unpack(&call);
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> in(args.in);
    const Loaded<T> mean(args.mean);
    const Loaded<T> rstd(args.rstd);
    const Stored<T> sum_grad(args.sum_grad);
    const Stored<T> sum_grad_in(args.sum_grad_in);
    const Stored<T> grad_weight(args.grad_weight);
    const Stored<T> grad_bias(args.grad_bias);
    const Slices channels(*args.in, kChannels);
    const npu_status status = channels.for_each([&](std::int64_t c) {
      const double centre = mean[c];
      double sum = 0;
      double dot = 0;
      channels.each(c, [&](std::int64_t i) {
        sum += grad[i];
        dot += grad[i] * (in[i] - centre);
      });
      sum_grad.set(c, sum);
      sum_grad_in.set(c, dot);
      grad_weight.set(c, dot * rstd[c]);
      grad_bias.set(c, sum);
    });
    return finish(
        status,
        grad,
        in,
        mean,
        rstd,
        sum_grad,
        sum_grad_in,
        grad_weight,
        grad_bias);
  });
}

// train: (g - sum_grad / n - (x - mean) * rstd^2 * sum_grad_in / n) * rstd *
// weight; eval: g * rstd * weight.
npu_status batch_norm_grad_apply_run(const npu_call& call) {
  const npu_batch_norm_grad_apply_args args =
      npu_batch_norm_grad_apply_unpack(&call);
  const bool train = call.code == NPU_BATCH_NORM_GRAD_APPLY_TRAIN;
  return with_float(args.grad_in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> in(args.in);
    const Loaded<T> mean(args.mean);
    const Loaded<T> rstd(args.rstd);
    const Loaded<T> weight(args.weight);
    const Loaded<T> sum_grad(args.sum_grad);
    const Loaded<T> sum_grad_in(args.sum_grad_in);
    const Loaded<double> counts(args.counts);
    const Stored<T> out(args.grad_in);
    const Slices channels(*args.in, kChannels);
    double n = counts ? 0 : channels.elements();
    for (std::int64_t p = 0; counts && p < args.counts->numel; ++p) {
      n += counts[p];
    }
    const npu_status status = channels.for_each([&](std::int64_t c) {
      const double scale = rstd[c];
      const double centre = mean[c];
      const double shift = train ? sum_grad[c] / n : 0;
      const double slope = train ? sum_grad_in[c] / n * scale * scale : 0;
      const double by = scale * weight.at(c, 1);
      channels.each(c, [&](std::int64_t i) {
        out.set(i, (grad[i] - shift - (in[i] - centre) * slope) * by);
      });
    });
    return finish(
        status,
        grad,
        in,
        mean,
        rstd,
        weight,
        sum_grad,
        sum_grad_in,
        counts,
        out);
  });
}

namespace {

// The outputs that batch_norm_stats has too.
npu_batch_norm_stats_args stats_args(const npu_batch_norm_args& args) {
  npu_batch_norm_stats_args stats{};
  stats.mean = args.mean;
  stats.rstd = args.rstd;
  stats.running_mean = args.running_mean;
  stats.running_var = args.running_var;
  stats.attrs.eps = args.attrs.eps;
  stats.attrs.momentum = args.attrs.momentum;
  return stats;
}

}  // namespace

npu_status batch_norm_run(const npu_call& call) {
  const npu_batch_norm_args args = npu_batch_norm_unpack(&call);
  const bool train = call.code == NPU_BATCH_NORM_TRAIN;
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Loaded<T> weight(args.weight);
    const Loaded<T> bias(args.bias);
    const Loaded<T> mean_in(args.mean_in);
    const Loaded<T> var_in(args.var_in);
    const Stored<T> out(args.out);
    const Results<T> results(stats_args(args));
    const Slices channels(*args.in, kChannels);
    const double n = channels.elements();
    const npu_status status = channels.for_each([&](std::int64_t c) {
      double mean = 0;
      double var = 0;
      if (train) {
        channels.each(c, [&](std::int64_t i) { mean += in[i]; });
        mean /= n;
        channels.each(
            c, [&](std::int64_t i) { var += (in[i] - mean) * (in[i] - mean); });
        results.set(c, mean, var, n);
        var /= n;
      } else {
        mean = mean_in[c];
        var = var_in[c];
      }
      const double by = weight.at(c, 1) / std::sqrt(var + args.attrs.eps);
      const double shift = bias.at(c, 0);
      channels.each(
          c, [&](std::int64_t i) { out.set(i, (in[i] - mean) * by + shift); });
    });
    return results.finish(
        finish(status, in, weight, bias, mean_in, var_in, out));
  });
}

npu_status batch_norm_grad_run(const npu_call& call) {
  const npu_batch_norm_grad_args args = npu_batch_norm_grad_unpack(&call);
  const bool train = call.code == NPU_BATCH_NORM_GRAD_TRAIN;
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> in(args.in);
    const Loaded<T> mean(args.mean);
    const Loaded<T> rstd(args.rstd);
    const Loaded<T> weight(args.weight);
    const Stored<T> out(args.grad_in);
    const Stored<T> grad_weight(args.grad_weight);
    const Stored<T> grad_bias(args.grad_bias);
    const Slices channels(*args.in, kChannels);
    const double n = channels.elements();
    const npu_status status = channels.for_each([&](std::int64_t c) {
      const double scale = rstd[c];
      const double centre = mean[c];
      double sum = 0;
      double dot = 0;
      channels.each(c, [&](std::int64_t i) {
        sum += grad[i];
        dot += grad[i] * (in[i] - centre);
      });
      grad_weight.set(c, dot * scale);
      grad_bias.set(c, sum);
      if (!out) {
        return;
      }
      const double shift = train ? sum / n : 0;
      const double slope = train ? dot / n * scale * scale : 0;
      const double by = scale * weight.at(c, 1);
      channels.each(c, [&](std::int64_t i) {
        out.set(i, (grad[i] - shift - (in[i] - centre) * slope) * by);
      });
    });
    return finish(
        status, grad, in, mean, rstd, weight, out, grad_weight, grad_bias);
  });
}

}  // namespace npu::host
