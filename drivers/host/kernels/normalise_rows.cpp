// SPDX-License-Identifier: Apache-2.0
// Kinds that normalise rows: layer_norm, rms_norm, group_norm, and backward.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all. Only rms_norm is
// fast, of all but float64: fused_rms.cpp.
//
// All are one shape: rows of `length` elements, x^ = (x - mean) * rstd, out =
// x^ * weight + bias. A row of layer_norm and rms_norm has a weight per
// element; a row of group_norm (one group of one image) has one per channel.
// rms_norm has mean 0.
#include <cmath>

#include "kernels/fused.h"
#include "kernels/normalise.h"

namespace npu::host {
namespace {

struct Rows {
  std::int64_t count;     // rows
  std::int64_t length;    // elements of a row
  std::int64_t channels;  // weights
  std::int64_t plane;     // neighbours with the same weight
  // The weight of element k of row i.
  std::int64_t weight_of(std::int64_t i, std::int64_t k) const {
    return (i * length + k) / plane % channels;
  }
};

// The last `axes` dims make up a row.
Rows rows_of_axes(const npu_tensor& in, std::int64_t axes) {
  std::int64_t length = 1;
  for (std::int64_t d = in.ndim - axes; d < in.ndim; ++d) {
    length *= in.sizes[d];
  }
  return {in.numel / length, length, length, 1};
}

Rows rows_of_groups(const npu_tensor& in, std::int64_t groups) {
  const std::int64_t rows = in.sizes[0] * groups;
  const std::int64_t channels = in.sizes[1];
  return {rows, in.numel / rows, channels, in.numel / in.sizes[0] / channels};
}

struct Forward {
  const npu_tensor* out;
  const npu_tensor* mean;
  const npu_tensor* rstd;
  const npu_tensor* in;
  const npu_tensor* weight;
  const npu_tensor* bias;
  double eps;
  bool centred;
};

npu_status normalise(const Forward& args, const Rows& rows) {
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Loaded<T> weight(args.weight);
    const Loaded<T> bias(args.bias);
    const Stored<T> out(args.out);
    const Stored<T> mean_out(args.mean);
    const Stored<T> rstd_out(args.rstd);
    const auto row = [&](std::int64_t i) {
      const T* x = in.data() + i * rows.length;
      double mean = 0;
      for (std::int64_t k = 0; args.centred && k < rows.length; ++k) {
        mean += x[k];
      }
      mean /= static_cast<double>(rows.length);
      double squares = 0;
      for (std::int64_t k = 0; k < rows.length; ++k) {
        squares += (x[k] - mean) * (x[k] - mean);
      }
      const double rstd =
          1 / std::sqrt(squares / static_cast<double>(rows.length) + args.eps);
      for (std::int64_t k = 0; k < rows.length; ++k) {
        const std::int64_t w = rows.weight_of(i, k);
        out.set(
            i * rows.length + k,
            (x[k] - mean) * rstd * weight.at(w, 1) + bias.at(w, 0));
      }
      mean_out.set(i, mean);
      rstd_out.set(i, rstd);
    };
    const npu_status status = for_each_item(rows.count, rows.length * 3, row);
    return finish(status, in, weight, bias, out, mean_out, rstd_out);
  });
}

struct Backward {
  const npu_tensor* grad_in;
  const npu_tensor* grad_weight;
  const npu_tensor* grad_bias;
  const npu_tensor* grad_out;
  const npu_tensor* in;
  const npu_tensor* mean;  // absent: 0, and constant
  const npu_tensor* rstd;
  const npu_tensor* weight;
};

// With g = grad * weight and averages over the row:
//   grad_in = rstd * (g - average(g) - x^ * average(g * x^)),
// without average(g) where there is no mean.
template <class T>
npu_status grad_of_rows(
    const Backward& args,
    const Rows& rows,
    const Loaded<T>& grad,
    const Loaded<T>& in,
    const Loaded<T>& mean,
    const Loaded<T>& rstd) {
  const Loaded<T> weight(args.weight);
  const Stored<T> out(args.grad_in);
  const auto row = [&](std::int64_t i) {
    const double centre = mean.at(i, 0);
    const double scale = rstd[i];
    const auto g = [&](std::int64_t k) {
      return static_cast<double>(grad[i * rows.length + k]) *
             weight.at(rows.weight_of(i, k), 1);
    };
    const auto normal = [&](std::int64_t k) {
      return (in[i * rows.length + k] - centre) * scale;
    };
    double sum = 0;
    double dot = 0;
    for (std::int64_t k = 0; k < rows.length; ++k) {
      sum += mean ? g(k) : 0;
      dot += g(k) * normal(k);
    }
    const double n = static_cast<double>(rows.length);
    for (std::int64_t k = 0; k < rows.length; ++k) {
      out.set(
          i * rows.length + k,
          scale * (g(k) - sum / n - normal(k) * (dot / n)));
    }
  };
  const npu_status status = for_each_item(rows.count, rows.length * 4, row);
  return finish(status, weight, out);
}

// grad_weight = sum of grad * x^, grad_bias = sum of grad, per weight.
template <class T>
npu_status grad_of_weights(
    const Backward& args,
    const Rows& rows,
    const Loaded<T>& grad,
    const Loaded<T>& in,
    const Loaded<T>& mean,
    const Loaded<T>& rstd) {
  const Stored<T> grad_weight(args.grad_weight);
  const Stored<T> grad_bias(args.grad_bias);
  const std::int64_t images = args.in->numel / rows.channels / rows.plane;
  const auto channel = [&](std::int64_t c) {
    double dot = 0;
    double sum = 0;
    for (std::int64_t n = 0; n < images; ++n) {
      for (std::int64_t p = 0; p < rows.plane; ++p) {
        const std::int64_t at = (n * rows.channels + c) * rows.plane + p;
        const std::int64_t i = at / rows.length;
        const double g = grad[at];
        dot += g * (in[at] - static_cast<double>(mean.at(i, 0))) * rstd[i];
        sum += g;
      }
    }
    grad_weight.set(c, dot);
    grad_bias.set(c, sum);
  };
  const npu_status status =
      for_each_item(rows.channels, images * rows.plane, channel);
  return finish(status, grad_weight, grad_bias);
}

npu_status normalise_grad(const Backward& args, const Rows& rows) {
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> in(args.in);
    const Loaded<T> mean(args.mean);
    const Loaded<T> rstd(args.rstd);
    npu_status status = loaded(grad, in, mean, rstd);
    if (status == NPU_OK && args.grad_in != nullptr) {
      status = grad_of_rows<T>(args, rows, grad, in, mean, rstd);
    }
    if (status == NPU_OK &&
        (args.grad_weight != nullptr || args.grad_bias != nullptr)) {
      status = grad_of_weights<T>(args, rows, grad, in, mean, rstd);
    }
    return status;
  });
}

// Layers and groups have the same operands.
template <class Args>
Forward forward_of(const Args& a) {
  return {a.out, a.mean, a.rstd, a.in, a.weight, a.bias, a.attrs.eps, true};
}
template <class Args>
Backward backward_of(const Args& a) {
  return {
      a.grad_in,
      a.grad_weight,
      a.grad_bias,
      a.grad_out,
      a.in,
      a.mean,
      a.rstd,
      a.weight};
}

}  // namespace

npu_status layer_norm_run(const npu_call& call) {
  const npu_layer_norm_args a = npu_layer_norm_unpack(&call);
  return normalise(forward_of(a), rows_of_axes(*a.in, a.attrs.axes));
}

npu_status layer_norm_grad_run(const npu_call& call) {
  const npu_layer_norm_grad_args a = npu_layer_norm_grad_unpack(&call);
  return normalise_grad(backward_of(a), rows_of_axes(*a.in, a.attrs.axes));
}

npu_status rms_norm_run(const npu_call& call) {
  const npu_rms_norm_args a = npu_rms_norm_unpack(&call);
  const double eps = a.attrs.eps;
  const std::int64_t length = rows_of_axes(*a.in, a.attrs.axes).length;
  if (a.in->dtype != NPU_F64) {
    return rms_rows(
        {a.out, a.rstd, nullptr, a.in, nullptr, a.weight, length, eps});
  }
  return normalise(
      {a.out, nullptr, a.rstd, a.in, a.weight, nullptr, eps, false},
      rows_of_axes(*a.in, a.attrs.axes));
}

npu_status rms_norm_grad_run(const npu_call& call) {
  const npu_rms_norm_grad_args a = npu_rms_norm_grad_unpack(&call);
  const std::int64_t length = rows_of_axes(*a.in, a.attrs.axes).length;
  if (a.in->dtype != NPU_F64) {
    return rms_grad_rows(
        {a.grad_in,
         a.grad_weight,
         a.grad_out,
         nullptr,
         a.in,
         a.rstd,
         a.weight,
         length});
  }
  return normalise_grad(
      {a.grad_in,
       a.grad_weight,
       nullptr,
       a.grad_out,
       a.in,
       nullptr,
       a.rstd,
       a.weight},
      rows_of_axes(*a.in, a.attrs.axes));
}

npu_status group_norm_run(const npu_call& call) {
  const npu_group_norm_args a = npu_group_norm_unpack(&call);
  return normalise(forward_of(a), rows_of_groups(*a.in, a.attrs.groups));
}

npu_status group_norm_grad_run(const npu_call& call) {
  const npu_group_norm_grad_args a = npu_group_norm_grad_unpack(&call);
  return normalise_grad(backward_of(a), rows_of_groups(*a.in, a.attrs.groups));
}

}  // namespace npu::host
