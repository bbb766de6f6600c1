// SPDX-License-Identifier: Apache-2.0
// The generated tables of exported CPU functions.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace npu::ladder {

// A row of the generated tables: an operator and its exported CPU function.
struct UnboxedRow {
  using Function = void (*)();
  const char* name;  // "aten::add"
  const char* overload;
  Function function;
  c10::KernelFunction (*make)(const c10::OperatorHandle& op, Function function);
};
struct UnboxedRows {
  const UnboxedRow* rows;
  std::size_t n;
};
std::vector<UnboxedRows> unboxed_rows();

}  // namespace npu::ladder
