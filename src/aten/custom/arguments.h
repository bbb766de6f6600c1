// SPDX-License-Identifier: Apache-2.0
// Arguments of an operator's boxed call, by name.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <vector>

namespace npu::custom {

class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : schema_(op.schema()),
        values_(torch::jit::last(stack, schema_.arguments().size())) {}
  const c10::IValue& operator[](const char* name) const {
    return values_[static_cast<std::size_t>(
        schema_.argumentIndexWithName(name).value())];
  }
  bool takes(const char* name) const {
    return schema_.argumentIndexWithName(name).has_value();
  }
  bool has(const char* name) const {
    return takes(name) && !(*this)[name].isNone();
  }
  at::Tensor tensor(const char* name) const {
    return (*this)[name].toTensor();
  }
  // Undefined where it is absent.
  at::Tensor maybe(const char* name) const {
    return has(name) ? tensor(name) : at::Tensor();
  }
  // Empty where it is absent.
  std::vector<std::int64_t> numbers(const char* name) const {
    return has(name) ? (*this)[name].toIntVector()
                     : std::vector<std::int64_t>();
  }

 private:
  const c10::FunctionSchema& schema_;
  at::ArrayRef<c10::IValue> values_;
};

}  // namespace npu::custom
