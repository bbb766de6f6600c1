// SPDX-License-Identifier: Apache-2.0
// Which rule belongs to a kind.
#include "rules.h"

#include <string>

namespace npu::kit {
namespace {

// Every operand has the same sizes; those that may be absent are, or are not.
void elementwise(Draw& d) {
  const Shape sizes = d.shape(0, 4);
  d.each_operand([&](const npu_operand_info& info) {
    if (info.optional) {
      d.maybe(info.name, sizes);
    } else {
      d.set(info.name, sizes);
    }
  });
}

}  // namespace

void (*find_rule(const char* kind))(Draw&) {
  for (const auto& table :
       {kMapRules,
        kOrderRules,
        kIndexRules,
        kGemmRules,
        kImageRules,
        kLayerRules,
        kLossRules,
        kFusedRules}) {
    for (const Rule& rule : table) {
      if (std::string(rule.kind) == kind) {
        return rule.make;
      }
    }
  }
  return elementwise;
}

const char* not_drawn(const npu_kind_info& kind) {
  const std::string family = kind.family;
  const std::string name = kind.name;
  if (family == "random") {
    return "tested by group random: its bits are fixed";
  }
  if (family == "spectral" || family == "linalg") {
    return "the host driver has no kernel to compare with";
  }
  if (name == "program" || name == "multi_program") {
    return "tested by group program";
  }
  if (name == "rnn" || name == "rnn_grad") {
    return "no rule draws its operands";
  }
  return nullptr;
}

}  // namespace npu::kit
