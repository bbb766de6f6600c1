// SPDX-License-Identifier: Apache-2.0
// Ascend's kernels by name ("Add", "aclnnAdd"), run by the operators of PyTorch
// or npu that compute the same. The compatibility headers stand on this.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <utility>
#include <vector>

#define NPU_NAMED_EXPORT __attribute__((visibility("default")))

namespace npu::named {

using Attributes = std::vector<std::pair<std::string, c10::IValue>>;

// A kernel of OpCommand: operands by position, attributes by name; results are
// written to `outputs`. Raises ERR01004 for an unknown name, ERR01001 for
// operands that fit no overload.
NPU_NAMED_EXPORT void run(
    const std::string& name,
    std::vector<c10::IValue> inputs,
    const Attributes& attributes,
    const std::vector<at::Tensor>& outputs);

// A kernel of EXEC_NPU_CMD: inputs and attributes in order, then outputs, then
// numbers that only matter to Ascend.
NPU_NAMED_EXPORT void run_aclnn(
    const std::string& name, std::vector<c10::IValue> arguments);

// The operator that a name means, "aten::add"; "" when there is none.
NPU_NAMED_EXPORT std::string meaning(const std::string& name);

// A line of the log. `level`: 0 debug, 1 info, 2 warning, 3 error.
NPU_NAMED_EXPORT void log(
    int level, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 4, 5)));

// "\n[ERROR] ... ERR01001 OPS invalid parameter" of a module's number and a
// code's.
NPU_NAMED_EXPORT std::string error_line(int module, int code);

}  // namespace npu::named
