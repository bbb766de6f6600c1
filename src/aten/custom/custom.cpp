// SPDX-License-Identifier: Apache-2.0
#include "aten/custom/custom.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/error.h"

namespace npu::custom {
namespace {

// "npu_add.out(Tensor ...) -> ..." to ("npu_add", "out").
c10::OperatorName name_of(const Operator& op, const Overload& overload) {
  const std::string_view schema = overload.schema;
  const std::string_view whole = schema.substr(0, schema.find('('));
  const std::size_t dot = whole.find('.');
  return {
      std::string(op.ns) + "::" + op.name,
      dot == std::string_view::npos ? "" : std::string(whole.substr(dot + 1))};
}

void refuse(const c10::OperatorHandle& handle, torch::jit::Stack* /*unused*/) {
  const std::string& whole = handle.schema().name();
  const std::size_t colons = whole.find("::");
  const Operator* const op =
      find(whole.substr(0, colons), whole.substr(colons + 2));
  std::string reason;
  std::string nearest;
  if (op != nullptr && *op->refused != '\0') {
    reason = std::string(": ") + op->refused;
  }
  if (op != nullptr && *op->nearest != '\0') {
    nearest =
        std::string(" The nearest that is: torch_npu.") + op->nearest + ".";
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      handle.operator_name(),
      " is known but not implemented",
      reason,
      ".",
      nearest,
      " What it computes: opennpu explain ",
      whole,
      ops_error(Code::kNotSupported));
}

// Registrations live as long as the process.
std::deque<torch::Library>& libraries() {
  static auto* const all = new std::deque<torch::Library>;
  return *all;
}

}  // namespace

const Operator* find(std::string_view ns, std::string_view name) {
  const auto key = std::make_pair(ns, name);
  const auto of = [](const Operator& op) {
    return std::make_pair(std::string_view(op.ns), std::string_view(op.name));
  };
  const auto all = operators();
  const auto at = std::ranges::lower_bound(all, key, {}, of);
  return at != all.end() && of(*at) == key ? &*at : nullptr;
}

bool define(const Operator& op) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (std::size_t i = 0; i < op.count; ++i) {
    if (dispatcher.findSchema(name_of(op, op.overloads[i])).has_value()) {
      return false;
    }
  }
  torch::Library& library = libraries().emplace_back(
      torch::Library::FRAGMENT, op.ns, std::nullopt, __FILE__, __LINE__);
  for (std::size_t i = 0; i < op.count; ++i) {
    const Overload& overload = op.overloads[i];
    library.def(overload.schema);
    const c10::OperatorName name = name_of(op, overload);
    const std::string whole =
        op.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
    if (overload.kernel != nullptr) {
      overload.kernel->install(library, whole.c_str());
    } else if (!overload.implemented) {
      library.impl(
          whole.c_str(),
          torch::dispatch(
              c10::DispatchKey::CompositeExplicitAutograd,
              torch::CppFunction::makeFromBoxedFunction<&refuse>()));
    }
  }
  return true;
}

}  // namespace npu::custom
