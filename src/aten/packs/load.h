// SPDX-License-Identifier: Apache-2.0
// Operator packs in C++: loaded, checked, registered.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace npu::packs {

// One registration of a pack.
struct Row {
  std::string overload;  // "aten::add.Tensor"
  std::string key;       // "PrivateUse1"; "" for a schema
  std::string where;     // file:line of the YAML
};

struct Loaded {
  std::string name;
  std::string path;
  std::vector<Row> rows;
};

// Loads a pack and registers all of it, or throws Error and registers nothing.
const Loaded& load(const std::string& path);
// Packs loaded so far, in order.
std::vector<Loaded> loaded();

// Calls of packs' functions so far, by overload.
std::vector<std::pair<std::string, std::uint64_t>> calls();

// The kernel that packs replaced for `op` on npu; nullptr when none did. A
// pack that calls the built-in operator under its own must reach this one.
const c10::SafeKernelFunction* builtin_kernel(const c10::OperatorHandle& op);

}  // namespace npu::packs
