// SPDX-License-Identifier: Apache-2.0
// An elementwise call cut down to the few elements in doubt.
#include "judge/shrink.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <map>

#include "core/tool.h"
#include "core/values.h"

namespace optools {
namespace {

// Elements by item of the lists; one group (0) where there are no lists.
using Groups = std::map<uint16_t, at::Tensor>;

Groups groups_of(
    const HostCall& call, const std::vector<at::Tensor>& doubtful) {
  std::map<uint16_t, std::vector<at::Tensor>> parts;
  for (size_t i = 0; i < call.results.size(); ++i) {
    auto& part = parts[call.results[i].item];
    if (doubtful[i].defined()) {
      part.push_back(doubtful[i]);
    }
  }
  Groups groups;
  for (const auto& [item, part] : parts) {
    groups[item] = part.empty()
                       ? at::empty({0}, c10::ScalarType::Long)
                       : std::get<0>(at::_unique2(
                             part.size() == 1 ? part[0] : at::cat(part)));
  }
  return groups;
}

at::Tensor pick(
    const at::Tensor& t, c10::IntArrayRef sizes, const at::Tensor& elements) {
  if (t.unsafeGetTensorImpl()->is_wrapped_number() || t.dim() == 0) {
    return t;
  }
  return t.expand(sizes).reshape(-1).index_select(0, elements);
}

bool is_list(const c10::IValue& value) {
  return value.isTensorList() || value.isOptionalTensorList();
}

}  // namespace

std::optional<SmallCall> shrunk(
    const HostCall& call, const std::vector<at::Tensor>& doubtful) {
  if (!call.rule.pointwise || call.results.empty()) {
    return std::nullopt;
  }
  std::map<uint16_t, std::vector<int64_t>> shapes;
  for (const auto& result : call.results) {
    const auto [it, fresh] =
        shapes.try_emplace(result.item, result.got.sizes().vec());
    if (!fresh && it->second != result.got.sizes().vec()) {
      return std::nullopt;
    }
  }
  const Groups groups = groups_of(call, doubtful);
  SmallCall small{call, {}};
  bool lists = false;
  for (auto& value : small.call.inputs) {
    uint16_t item = 0;
    const bool list = is_list(value);
    lists = lists || list;
    bool fits = true;
    value = map_tensors(value, [&](const at::Tensor& t) {
      const uint16_t at = list ? item++ : 0;
      const auto group = groups.find(at);
      if (group == groups.end() ||
          !at::is_expandable_to(t.sizes(), shapes.at(at))) {
        fits = t.dim() == 0;
        return t;
      }
      return pick(t, shapes.at(at), group->second);
    });
    if (!fits) {
      return std::nullopt;
    }
  }
  if (!lists && groups.size() != 1) {
    return std::nullopt;
  }
  for (const auto& result : call.results) {
    small.elements.push_back(groups.at(result.item));
  }
  return small;
}

}  // namespace optools
