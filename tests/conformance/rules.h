// SPDX-License-Identifier: Apache-2.0
// The tables of rules, one per file of families.
#pragma once

#include <span>

#include "draw.h"

namespace npu::kit {

extern const std::span<const Rule> kMapRules;
extern const std::span<const Rule> kIndexRules;
extern const std::span<const Rule> kLayerRules;

}  // namespace npu::kit
