// SPDX-License-Identifier: Apache-2.0
// EXEC_NPU_CMD: a kernel of Ascend's operator interface by name.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "third_party/acl/inc/acl/acl.h"
#include "torch_npu/csrc/framework/OpCommand.h"
#include "torch_npu/named_call.h"

namespace at_npu::native {

struct TensorWrapper {
  at::Tensor tensor_;
  aclDataType dtype;
};

inline c10::IValue to_argument(const TensorWrapper& wrapper) {
  return wrapper.tensor_;
}
inline c10::IValue to_argument(const char* text) {
  return std::string(text);
}
template <class Value>
c10::IValue to_argument(const Value& value) {
  if constexpr (std::is_same_v<Value, at::Tensor>) {
    return value;  // before the list of one that it converts to
  } else if constexpr (std::is_same_v<Value, at::ScalarType>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value;
  } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (std::is_floating_point_v<Value>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_same_v<Value, std::nullopt_t>) {
    return c10::IValue();
  } else if constexpr (std::is_convertible_v<Value, at::IntArrayRef>) {
    return at::IntArrayRef(value).vec();
  } else if constexpr (std::is_convertible_v<Value, at::TensorList>) {
    return at::TensorList(value).vec();
  } else {
    return c10::IValue(value);
  }
}
template <class Value>
c10::IValue to_argument(const std::optional<Value>& value) {
  return value.has_value() ? to_argument(*value) : c10::IValue();
}

template <class... Arguments>
void exec_npu_cmd(const char* name, const Arguments&... arguments) {
  std::vector<c10::IValue> values;
  values.reserve(sizeof...(arguments));
  (values.push_back(to_argument(arguments)), ...);
  npu::named::run_aclnn(name, std::move(values));
}

}  // namespace at_npu::native

inline bool check_aclnn_kernel_available(const std::string& name) {
  return !npu::named::meaning(name).empty();
}

#define EXEC_NPU_CMD(aclnn_api, ...) \
  ::at_npu::native::exec_npu_cmd(#aclnn_api, __VA_ARGS__)
#define EXEC_NPU_NO_FORMAT_CHECK_CMD(aclnn_api, ...) \
  EXEC_NPU_CMD(aclnn_api, __VA_ARGS__)
#define EXEC_NPU_CMD_SYNC(aclnn_api, ...) EXEC_NPU_CMD(aclnn_api, __VA_ARGS__)
#define EXEC_NPU_CMD_EXT(aclnn_api, ...) EXEC_NPU_CMD(aclnn_api, __VA_ARGS__)
#define DO_COMPATIBILITY(aclnn_api, call)            \
  do {                                               \
    if (!check_aclnn_kernel_available(#aclnn_api)) { \
      return call;                                   \
    }                                                \
  } while (0)
