// SPDX-License-Identifier: Apache-2.0
// What plain references read a case with, and how they answer.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "case.h"

namespace npu::kit {

// A case whose operands are asked for by name.
class Asked {
 public:
  explicit Asked(const Case& value) : case_(value) {}
  const Operand& operator[](const std::string& name) const {
    return case_.operand(name);
  }
  bool has(const std::string& name) const {
    return (*this)[name].present();
  }
  double at(const std::string& name, std::int64_t i) const {
    return (*this)[name].values.at(static_cast<std::size_t>(i)).number.real();
  }
  // Element i of an optional operand, or what stands for it.
  double at(const std::string& name, std::int64_t i, double otherwise) const {
    return has(name) ? at(name, i) : otherwise;
  }
  std::int64_t whole(const std::string& name, std::int64_t i) const {
    return static_cast<std::int64_t>(at(name, i));
  }
  std::uint32_t code() const {
    return case_.code;
  }
  template <class Attrs>
  Attrs attrs() const {
    Attrs out;
    std::memcpy(&out, case_.attrs.data(), sizeof(out));
    return out;
  }

 private:
  const Case& case_;
};

inline void add_result(
    Outcome& out, const Operand& operand, const std::vector<double>& numbers) {
  std::vector<Value> values;
  for (const double number : numbers) {
    Value value{.number = number};
    value.integer = static_cast<std::int64_t>(number);
    value.is_integer = !is_floating(operand.dtype);
    values.push_back(value);
  }
  out.values.push_back(std::move(values));
  out.dtypes.push_back(operand.dtype);
}

// The same for an operand that may be absent.
inline void add_if(
    Outcome& out, const Operand& operand, const std::vector<double>& numbers) {
  if (operand.present()) {
    add_result(out, operand, numbers);
  }
}

// A kind and its reference.
struct Plain {
  const char* kind;
  Outcome (*answer)(const Case&);
};

}  // namespace npu::kit
