// SPDX-License-Identifier: Apache-2.0
// Bounds for results whose elements are not made one by one.
#include "judge/wholes.h"

#include <ATen/ops/maximum.h>

#include <algorithm>

#include "judge/movement.h"

namespace optools {
namespace {

size_t place_of(const HostCall& call, const char* name) {
  const auto& arguments = call.op->handle.schema().arguments();
  size_t at = 0;
  while (at < arguments.size() && arguments[at].name() != name) {
    ++at;
  }
  return at;
}

// A row of theta times (x, y, 1), none of which is larger than 1.
std::vector<at::Tensor> of_affine_grid(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  const at::Tensor theta = call.inputs[0].toTensor();
  const auto& reference = references[0];
  std::vector<int64_t> sizes(reference.dim(), 1);
  sizes.front() = theta.size(0);
  sizes.back() = theta.size(1);
  const at::Tensor m =
      theta.to(c10::ScalarType::Double).abs().sum(-1).reshape(sizes);
  return {m.expand(reference.sizes())};
}

// The last dimensions of a result that are of one transform or matrix.
std::vector<int64_t> dims_of(const HostCall& call, const at::Tensor& result) {
  const size_t at = place_of(call, "dim");
  if (at < call.inputs.size() && call.inputs[at].isIntList()) {
    return call.inputs[at].toIntVector();
  }
  const int64_t batch = std::max<int64_t>(
      call.inputs[0].isTensor() ? call.inputs[0].toTensor().dim() - 2 : 0, 0);
  std::vector<int64_t> dims;
  for (int64_t d = batch; d < result.dim(); ++d) {
    dims.push_back(d);
  }
  return dims;
}

bool is_transform(const HostCall& call) {
  return call.op->id.name.find("::_fft_") != std::string::npos;
}

}  // namespace

std::vector<at::Tensor> of_grid(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  if (references.size() == 1 && references[0].defined() &&
      place_of(call, "theta") == 0) {
    return of_affine_grid(call, references);
  }
  auto found = by_movement(call, references);
  const size_t at = place_of(call, "grid");
  if (at >= call.inputs.size() || !call.inputs[at].isTensor()) {
    return found;
  }
  const double step = step_of(call);
  const int64_t dims = call.inputs[at].toTensor().size(-1);
  for (int64_t d = 0; d < dims; ++d) {
    std::vector<at::Tensor> largest(references.size());
    for (const double sign : {1.0, -1.0}) {
      auto inputs = widened(call, c10::ScalarType::Double);
      const at::Tensor grid = inputs[at].toTensor().clone();
      at::Tensor line = grid.select(-1, d);
      line.add_(line.abs().add(1), sign * step);
      inputs[at] = grid;
      add_moves(call, inputs, references, step, largest);
    }
    for (size_t i = 0; i < references.size(); ++i) {
      if (largest[i].defined()) {
        found[i] = found[i].defined() ? found[i].add(largest[i]) : largest[i];
      }
    }
  }
  return found;
}

std::vector<at::Tensor> of_whole(
    const HostCall& call, const std::vector<at::Tensor>& references) {
  std::vector<at::Tensor> found(references.size());
  if (!is_transform(call)) {  // which moves as much as its argument does
    found = by_movement(call, references);
  }
  for (size_t i = 0; i < references.size(); ++i) {
    const auto& reference = references[i];
    if (!reference.defined() || !is_number(reference) ||
        reference.numel() == 0) {
      continue;
    }
    const at::Tensor size = reference.abs();
    const at::Tensor m =
        found[i].defined() ? at::maximum(found[i], size) : size;
    const auto dims = dims_of(call, reference);
    found[i] = dims.empty() ? m : m.amax(dims, true).expand(reference.sizes());
  }
  return found;
}

}  // namespace optools
