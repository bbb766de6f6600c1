// SPDX-License-Identifier: Apache-2.0
// Names of Ascend's kernels and the operators they mean: a rule and a table.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace npu::named {

// A row of the table: a name the rule does not find, or whose arguments differ.
struct Renamed {
  std::string_view name;
  // "sum.dim_IntList": without an overload all of them are tried.
  std::string_view target;
  // What the operands are, in order, then attributes as "theirs:ours": "self
  // dim keep_dims:keepdim". Empty: in the operator's own order. "-" drops an
  // operand, "!name" ignores an attribute, "name=0" is a constant. What follows
  // an @ changes the value: operands.cpp. "@swap": the results are in the other
  // order; "@t0:name": operand 0 is transposed where the attribute says so.
  std::string_view arguments;
};

struct Meaning {
  std::string op;        // "aten::add"
  std::string overload;  // "*": any
  bool inplace = false;
  std::string_view arguments;
};

// No op: the name is unknown.
Meaning find_meaning(std::string_view name);

// Overloads of a meaning, out= forms left out.
std::vector<c10::OperatorHandle> overloads_of(const Meaning& meaning);

// Called with the bare name of an npu operator before its overloads are looked
// up: those are defined when first asked for.
void set_definer(std::function<void(const std::string&)> definer);

const std::vector<Renamed>& renamed();

}  // namespace npu::named
