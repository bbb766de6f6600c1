// SPDX-License-Identifier: Apache-2.0
// Operands of a named kernel as arguments of an operator.
#pragma once

#include <ATen/core/ivalue.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aten/packs/names.h"
#include "torch_npu/named_call.h"

namespace npu::named {

// By name where the table has names, else in order; attributes by name.
struct Operands {
  std::vector<c10::IValue> in_order;
  std::map<std::string, c10::IValue> by_name;
  bool swapped = false;  // the last two results
};

// Raises for unknown attributes.
Operands arrange(
    const std::string& name,
    const Meaning& meaning,
    std::vector<c10::IValue> inputs,
    const Attributes& attributes);

// `value` as an argument of that type; nullopt when it is none. `cost` grows
// with what had to be changed.
std::optional<c10::IValue> as_type(
    const c10::IValue& value, const c10::Type& type, int& cost);

}  // namespace npu::named
