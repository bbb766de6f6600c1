// SPDX-License-Identifier: Apache-2.0
// Kinds margin and margin_grad: losses that ask for a margin between
// classes.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
//
// multi_margin       one target class t; every other class d adds
//                    weight[t] * max(0, margin - x[t] + x[d])^p / C.
// multilabel_margin  targets up to the first negative one; each pair of a
//                    target t and a class d that is none adds
//                    max(0, 1 - x[t] + x[d]) / C.
#include <vector>

#include "kernels/loss.h"

namespace npu::host {
namespace {

struct Shape {
  explicit Shape(const npu_tensor& in)
      : classes(in.ndim == 0 ? 1 : in.sizes[in.ndim - 1]),
        samples(in.numel / classes) {}
  std::int64_t classes;
  std::int64_t samples;
};

npu_status check_classes(
    const Loaded<std::int64_t>& target,
    std::int64_t n,
    std::int64_t least,
    std::int64_t classes) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (target[i] < least || target[i] >= classes) {
      return fail(
          NPU_E_INVALID,
          "npu: host driver: margin: target %lld is out of bounds: there are "
          "%lld classes.",
          static_cast<long long>(target[i]),
          static_cast<long long>(classes));
    }
  }
  return NPU_OK;
}

// What both kinds are given, the targets checked.
struct Margins {
  template <class Args>
  Margins(const Args& args, std::uint32_t code)
      : reduction(static_cast<Reduction>(args.attrs.reduction)),
        multilabel(code == NPU_MARGIN_MULTILABEL_MARGIN),
        shape(*args.in),
        margin(multilabel ? 1 : args.attrs.margin),
        square(!multilabel && args.attrs.p == 2),
        target(args.target),
        status(target.status()) {
    const std::int64_t least = multilabel ? -1 : 0;
    status = status ? status
                    : check_classes(
                          target, args.target->numel, least, shape.classes);
  }

  Reduction reduction;
  bool multilabel;
  Shape shape;
  double margin;
  bool square;
  Loaded<std::int64_t> target;
  npu_status status;
};

// pair(t, d, scale) for each pair that is compared in sample i.
template <class T, class Pair>
void for_each_pair(
    const Margins& given,
    std::int64_t i,
    const Loaded<T>& weight,
    const T* is_target,
    Pair pair) {
  const Shape& shape = given.shape;
  const std::int64_t* target = given.target.data();
  const double n = static_cast<double>(shape.classes);
  if (!given.multilabel) {
    for (std::int64_t d = 0; d < shape.classes; ++d) {
      if (d != target[i]) {
        pair(target[i], d, weight.at(target[i], 1) / n);
      }
    }
    return;
  }
  const std::int64_t* own = target + i * shape.classes;
  for (std::int64_t k = 0; k < shape.classes && own[k] >= 0; ++k) {
    for (std::int64_t d = 0; d < shape.classes; ++d) {
      if (is_target[i * shape.classes + d] == 0) {
        pair(own[k], d, 1 / n);
      }
    }
  }
}

}  // namespace

npu_status margin_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 5);
  out.dtypes[3] = NPU_DTYPE_BIT(NPU_I64);
  return code <= NPU_MARGIN_MULTILABEL_MARGIN ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status margin_grad_caps(std::uint32_t code, npu_op_caps& out) {
  float_caps(out, 6);
  out.dtypes[3] = NPU_DTYPE_BIT(NPU_I64);
  return code <= NPU_MARGIN_MULTILABEL_MARGIN ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status margin_run(const npu_call& call) {
  const npu_margin_args args = npu_margin_unpack(&call);
  const Margins given(args, call.code);
  const Shape& shape = given.shape;
  if (given.status != NPU_OK) {
    return given.status;
  }
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> in(args.in);
    const Loaded<T> weight(args.weight);
    const Stored<T> out(args.out);
    const Stored<T> saved(args.is_target);
    std::vector<T> is_target(static_cast<std::size_t>(args.in->numel));
    for (std::int64_t i = 0; given.multilabel && i < shape.samples; ++i) {
      const std::int64_t* own = given.target.data() + i * shape.classes;
      for (std::int64_t k = 0; k < shape.classes && own[k] >= 0; ++k) {
        is_target[static_cast<std::size_t>(i * shape.classes + own[k])] = 1;
      }
    }
    for (std::int64_t i = 0; i < args.in->numel; ++i) {
      saved.set(i, is_target[static_cast<std::size_t>(i)]);
    }
    double all = 0;
    for (std::int64_t i = 0; i < shape.samples; ++i) {
      const T* x = in.data() + i * shape.classes;
      double loss = 0;
      const auto pair = [&](std::int64_t t, std::int64_t d, double scale) {
        const double z = given.margin - x[t] + x[d];
        loss += z > 0 ? scale * (given.square ? z * z : z) : 0;
      };
      for_each_pair(given, i, weight, is_target.data(), pair);
      if (given.reduction == Reduction::kNone) {
        out.set(i, loss);
      }
      all += loss;
    }
    if (given.reduction != Reduction::kNone) {
      const bool mean = given.reduction == Reduction::kMean;
      out.set(0, mean ? all / static_cast<double>(shape.samples) : all);
    }
    return finish(NPU_OK, in, weight, out, saved);
  });
}

npu_status margin_grad_run(const npu_call& call) {
  const npu_margin_grad_args args = npu_margin_grad_unpack(&call);
  const Margins given(args, call.code);
  const Shape& shape = given.shape;
  if (given.status != NPU_OK) {
    return given.status;
  }
  return with_float(args.in->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> grad(args.grad_out);
    const Loaded<T> in(args.in);
    const Loaded<T> weight(args.weight);
    const Loaded<T> is_target(args.is_target);
    const Stored<T> out(args.grad_in);
    const bool mean = given.reduction == Reduction::kMean;
    const auto n = static_cast<double>(shape.samples);
    for (std::int64_t i = 0; i < shape.samples; ++i) {
      const T* x = in.data() + i * shape.classes;
      std::vector<double> slope(static_cast<std::size_t>(shape.classes));
      const auto pair = [&](std::int64_t t, std::int64_t d, double scale) {
        const double z = given.margin - x[t] + x[d];
        const double by = z > 0 ? scale * (given.square ? 2 * z : 1) : 0;
        slope[static_cast<std::size_t>(d)] += by;
        slope[static_cast<std::size_t>(t)] -= by;
      };
      for_each_pair(given, i, weight, is_target.data(), pair);
      const double g =
          grad[given.reduction == Reduction::kNone ? i : 0] / (mean ? n : 1);
      for (std::int64_t c = 0; c < shape.classes; ++c) {
        out.set(i * shape.classes + c, slope[static_cast<std::size_t>(c)] * g);
      }
    }
    return finish(NPU_OK, grad, in, weight, is_target, out);
  });
}

}  // namespace npu::host
