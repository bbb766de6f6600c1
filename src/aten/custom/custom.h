// SPDX-License-Identifier: Apache-2.0
// Operators with schemas of Ascend's own (namespaces npu and atb). Their table
// is generated from ops/npu/*.yaml; an operator is defined when it is first
// asked for, because reading 400 schemas costs more than the rest of the
// import.
#pragma once

#include <torch/library.h>

#include <cstddef>
#include <span>
#include <string_view>

namespace npu::custom {

// What the row of an overload says beside its schema: a kernel of the device
// and a gradient (gradient.h). The composition in Python serves every device.
struct Kernel {
  void (*install)(torch::Library& library, const char* overload);
  const char* needs;  // the operator that the gradient calls, or null
};

struct Overload {
  const char* schema;  // without namespace
  bool implemented;
  const Kernel* kernel;  // null: the composition is all there is
};

struct Operator {
  const char* ns;
  const char* name;
  const char* doc;
  const char* module;   // of torch_npu.ops; empty: not implemented
  const char* nearest;  // an implemented operator that is alike, or empty
  const char* refused;  // why it will not be implemented, or empty
  const Overload* overloads;
  std::size_t count;
};

// In order of namespace and name.
std::span<const Operator> operators();
// Null where Ascend has no such operator.
const Operator* find(std::string_view ns, std::string_view name);
// Defines the overloads; those without an implementation refuse with ERR01007.
// False, and nothing is changed, where the name is already defined by others.
bool define(const Operator& op);

}  // namespace npu::custom
