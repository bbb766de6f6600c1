// SPDX-License-Identifier: Apache-2.0
// Bounds for linear and cubic resampling of images.
#include "judge/resampled.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/maximum.h>

#include <string>

#include "judge/movement.h"

namespace optools {
namespace {

using c10::ScalarType;

constexpr int64_t kFirstSpatial = 2;  // after batch and channels

// Each element becomes the largest within `reach` of it along `dim`.
at::Tensor dilated(const at::Tensor& t, int64_t dim, int64_t reach) {
  at::Tensor largest = t.clone();
  for (int64_t by = 1; by <= reach && by < t.size(dim); ++by) {
    const int64_t left = t.size(dim) - by;
    at::Tensor low = largest.narrow(dim, 0, left);
    low.copy_(at::maximum(low, t.narrow(dim, by, left)));
    at::Tensor high = largest.narrow(dim, by, left);
    high.copy_(at::maximum(high, t.narrow(dim, 0, left)));
  }
  return largest;
}

at::Tensor dilated(at::Tensor t, int64_t reach) {
  for (int64_t dim = kFirstSpatial; dim < t.dim(); ++dim) {
    t = dilated(t, dim, reach);
  }
  return t;
}

// Places of `count` elements along an axis of `size`: to within a pixel,
// whatever the corners mean.
at::Tensor places(int64_t count, int64_t size) {
  return at::arange(count, ScalarType::Double).mul_(size).div_(count);
}

// Times 1 plus the place, summed over the axes.
at::Tensor by_place(at::Tensor bound, at::IntArrayRef input) {
  at::Tensor weight;
  for (int64_t dim = kFirstSpatial; dim < bound.dim(); ++dim) {
    std::vector<int64_t> shape(bound.dim(), 1);
    shape[dim] = bound.size(dim);
    const at::Tensor along = places(bound.size(dim), input[dim]).view(shape);
    weight = weight.defined() ? weight.add(along) : along.add(1);
  }
  return bound.mul_(weight);
}

at::Tensor first_tensor(const HostCall& call) {
  return call.inputs[0].toTensor().to(ScalarType::Double).abs();
}

at::Tensor nearest(at::Tensor t, at::IntArrayRef sizes) {
  for (int64_t dim = kFirstSpatial; dim < t.dim(); ++dim) {
    const auto index = places(sizes[dim], t.size(dim)).to(ScalarType::Long);
    t = t.index_select(dim, index);
  }
  return t;
}

}  // namespace

std::vector<at::Tensor> of_resampled(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  const std::string name = base_name(*call.op);
  const bool cubic = name.find("cubic") != std::string::npos;
  // Cubic weights reach one pixel further and sum to at most 1.4 per axis.
  const int64_t reach = cubic ? 3 : 2;
  const double weights = cubic ? 2 : 1;
  std::vector<at::Tensor> found(references.size());
  if (references.size() != 1 || !references[0].defined() ||
      references[0].numel() == 0) {
    return found;
  }
  const at::Tensor& reference = references[0];
  at::Tensor bound;
  if (name.find("_backward") == std::string::npos) {
    const at::Tensor image = first_tensor(call);
    bound = nearest(dilated(image, reach), reference.sizes());
    bound = by_place(bound, image.sizes());
  } else {
    auto inputs = widened(call);
    inputs[0] = first_tensor(call);
    const auto outputs = run_on_host(*call.op, inputs);
    bound = corresponding(call.results[0], inputs, outputs).abs();
    bound = dilated(bound, reach);
    // Gradients of a pixel may be added one by one in the dtype of the result.
    const auto dtype = call.results[0].dtype;
    const at::Tensor added =
        bound.mul(unit_roundoff(dtype) / accumulator_roundoff(dtype));
    bound = by_place(bound, reference.sizes()).add_(added);
  }
  found[0] = fitting(bound.mul_(weights), reference);
  return found;
}

}  // namespace optools
