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

struct Overload {
  const char* schema;  // without namespace
  bool implemented;
};

struct Operator {
  const char* ns;
  const char* name;
  const char* doc;
  const char* module;   // of torch_npu.ops; empty: not implemented
  const char* nearest;  // an implemented operator that is alike, or empty
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

// What C++ has for an overload, beside the composition in Python that serves
// every device: a static object for each, registered when the overload is
// defined.
struct Native {
  using Install = void (*)(torch::Library& library, const char* overload);
  Native(const char* overload, Install install);
  const char* overload;  // "npu_slice.out", namespace npu
  Install install;
  Native* next;
};

}  // namespace npu::custom
