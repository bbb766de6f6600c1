// SPDX-License-Identifier: Apache-2.0
// Indices of selected values: any of several equal ones may be chosen, except
// where PyTorch documents which.
#include "judge/selected.h"

#include <optional>

namespace optools {
namespace {

using c10::ScalarType;

bool is_true(const HostCall& call, const char* name) {
  const auto* value = argument_named(call, name);
  return value != nullptr && value->isBool() && value->toBool();
}

// The dimension values are selected along: -1 after flattening, which pools do
// with their window's dimensions and argmax without a dim with all.
struct Line {
  at::Tensor values;
  at::Tensor got;
  at::Tensor expected;
  int64_t dim;
};

std::optional<Line> line_of(
    const HostCall& call, const at::Tensor& got, const at::Tensor& expected) {
  const auto* self = &call.inputs[0];
  if (!self->isTensor() || !self->toTensor().defined()) {
    return std::nullopt;
  }
  const at::Tensor x = self->toTensor();
  const std::string name = base_name(*call.op);
  const auto pool = name.find("pool");
  if (pool != std::string::npos) {
    const int64_t window = name[pool + 4] == '3' ? 3 : 2;
    if (x.dim() < window || got.dim() != x.dim()) {
      return std::nullopt;
    }
    return Line{
        x.flatten(-window),
        got.flatten(-window),
        expected.flatten(-window),
        -1};
  }
  const auto* dim = argument_named(call, "dim");
  if (dim == nullptr || dim->isNone()) {
    // max() of everything has no indices; argmax() has one into the flat x.
    return Line{x.flatten(), got.reshape(-1), expected.reshape(-1), 0};
  }
  if (!dim->isInt() || x.dim() == 0) {
    return std::nullopt;
  }
  const int64_t along = dim->toInt();
  const bool dropped = got.dim() < x.dim();
  return Line{
      x,
      dropped ? got.unsqueeze(along) : got,
      dropped ? expected.unsqueeze(along) : expected,
      along};
}

bool each_once(const at::Tensor& indices, int64_t dim) {
  const auto count = indices.size(dim);
  if (count < 2) {
    return true;
  }
  const at::Tensor sorted = std::get<0>(indices.sort(dim));
  return !sorted.narrow(dim, 1, count - 1)
              .eq(sorted.narrow(dim, 0, count - 1))
              .any()
              .item()
              .toBool();
}

// "the indices of the first maximal value are returned"
bool takes_the_first(const std::string& name) {
  return name == "argmax" || name == "argmin" || name == "max" || name == "min";
}

}  // namespace

bool valid_selection(
    const HostCall& call,
    const HostResult& result,
    const at::Tensor& reference) {
  if (result.dtype != ScalarType::Long || is_true(call, "stable") ||
      takes_the_first(base_name(*call.op))) {
    return false;
  }
  const auto line = line_of(call, result.got, reference);
  if (!line) {
    return false;
  }
  const auto& [x, got, expected, dim] = *line;
  const int64_t size = x.size(dim);
  if (got.lt(0).any().item().toBool() || got.ge(size).any().item().toBool()) {
    return false;
  }
  const at::Tensor chosen = x.gather(dim, got);
  const at::Tensor wanted = x.gather(dim, expected);
  if (judge_equal(chosen, wanted, {}).verdict != Verdict::kPass) {
    return false;
  }
  const std::string name = base_name(*call.op);
  const bool once = name == "sort" || name == "argsort" || name == "topk";
  return !once || each_once(got, dim);
}

}  // namespace optools
