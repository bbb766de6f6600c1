// SPDX-License-Identifier: Apache-2.0
// A kernel of Ascend's by name, with operands and attributes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "third_party/acl/inc/acl/acl.h"
#include "torch_npu/csrc/framework/utils/Shared.h"
#include "torch_npu/named_call.h"

namespace at_npu::native {

class NPU_NAMED_EXPORT OpCommand {
 public:
  OpCommand() = default;
  OpCommand(const OpCommand&) = delete;
  OpCommand& operator=(const OpCommand&) = delete;

  OpCommand& Name(const std::string& name);
  OpCommand& Input();  // an absent one
  OpCommand& Input(
      const at::Tensor& input,
      const std::string& descName = "",
      const std::optional<aclFormat>& sensitiveFormat = std::nullopt,
      const std::string& realData = "");
  OpCommand& InputWithoutContiguous(
      const at::Tensor& input,
      const std::string& descName = "",
      const std::string& realData = "");
  OpCommand& Inputs(const at::TensorList& tensors);
  OpCommand& Input(
      const at::Scalar& input,
      at::ScalarType type,
      CompileType compileType = CompileType::MEMORY_HOST_COMPILE_DEPENDENT);
  OpCommand& Input(
      const at::IntArrayRef& dimListRef,
      at::ScalarType toType = at::kLong,
      CompileType compileType = CompileType::MEMORY_HOST_COMPILE_DEPENDENT,
      const std::string& realDtype = "",
      const std::string& descName = "");
  OpCommand& Input(
      const c10::ArrayRef<double>& dimListRef,
      at::IntArrayRef realShape,
      at::ScalarType toType = at::kDouble,
      CompileType compileType = CompileType::MEMORY_HOST_COMPILE_DEPENDENT,
      const std::string& realDtype = "");
  OpCommand& Output(
      at::Tensor& output,
      const std::string& descName = "",
      const std::optional<aclFormat>& sensitiveFormat = std::nullopt,
      const std::string& realType = "");

  template <class Value>
  OpCommand& Attr(const std::string& name, const Value& value) {
    return add_attribute(name, to_value(value));
  }
  template <class Value>
  OpCommand& Attr(const std::string& name, const Value& value, bool condition) {
    return condition ? Attr(name, value) : *this;
  }
  template <class Result>
  OpCommand& Expect(const Result& /*unused*/) {
    return *this;
  }
  OpCommand& Sync();
  OpCommand& SetCustomHandler(std::function<int()> handler);
  void Run();

  static void RunOpApi(
      const std::string& name, std::function<int()> handler, bool sync = false);
  static void RunOpApiV2(
      const std::string& name,
      const std::function<int()>& handler,
      bool sync = false);

 private:
  template <class Value>
  static c10::IValue to_value(const Value& value) {
    if constexpr (std::is_same_v<Value, at::ScalarType>) {
      return static_cast<std::int64_t>(value);
    } else if constexpr (std::is_same_v<Value, bool>) {
      return value;
    } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
      return static_cast<std::int64_t>(value);
    } else if constexpr (std::is_floating_point_v<Value>) {
      return static_cast<double>(value);
    } else if constexpr (std::is_convertible_v<Value, std::string>) {
      return std::string(value);
    } else if constexpr (std::is_same_v<Value, at::Scalar>) {
      return c10::IValue(value);
    } else if constexpr (std::is_convertible_v<Value, at::IntArrayRef>) {
      return at::IntArrayRef(value).vec();
    } else if constexpr (std::is_convertible_v<Value, c10::ArrayRef<double>>) {
      return c10::ArrayRef<double>(value).vec();
    } else if constexpr (std::is_convertible_v<Value, c10::ArrayRef<float>>) {
      const c10::ArrayRef<float> list(value);
      return std::vector<double>(list.begin(), list.end());
    } else {
      return c10::IValue(value);
    }
  }
  OpCommand& add_attribute(const std::string& name, c10::IValue value);

  std::string name_;
  std::vector<c10::IValue> inputs_;
  npu::named::Attributes attributes_;
  std::vector<at::Tensor> outputs_;
  std::function<int()> handler_;
  bool sync_ = false;
};

}  // namespace at_npu::native
