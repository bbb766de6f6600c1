// SPDX-License-Identifier: Apache-2.0
#include "aten/packs/operands.h"

#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "runtime/error.h"

namespace npu::named {
namespace {

// Attribute names of Ascend's that mean the same everywhere.
const std::map<std::string, std::string>& synonyms() {
  static const auto* const made = new std::map<std::string, std::string>{
      {"keep_dims", "keepdim"},
      {"axis", "dim"},
      {"axes", "dim"},
      {"dimension", "dim"},
      {"concat_dim", "dim"},
      {"epsilon", "eps"},
      {"shift", "shifts"},
      {"T", ""},
      {"N", ""},
      {"data_format", ""},
      {"use_locking", ""}};
  return *made;
}

// aclDataType to c10::ScalarType, for what PyTorch has.
std::int64_t from_acl_dtype(std::int64_t acl) {
  static constexpr std::pair<std::int64_t, c10::ScalarType> kPairs[] = {
      {0, c10::kFloat},
      {1, c10::kHalf},
      {2, c10::kChar},
      {3, c10::kInt},
      {4, c10::kByte},
      {6, c10::kShort},
      {9, c10::kLong},
      {11, c10::kDouble},
      {12, c10::kBool},
      {16, c10::kComplexFloat},
      {27, c10::kBFloat16}};
  for (const auto& [number, type] : kPairs) {
    if (number == acl) {
      return static_cast<std::int64_t>(type);
    }
  }
  TORCH_CHECK(
      false,
      "Cast: dst_type ",
      acl,
      " is no aclDataType known here.",
      ops_error(Code::kType));
}

std::vector<std::int64_t> ints_of(const c10::IValue& value) {
  if (value.isInt()) {
    return {value.toInt()};
  }
  if (value.isTensor()) {
    const at::Tensor host =
        value.toTensor().to(c10::kCPU, c10::kLong).contiguous();
    const auto* const data = host.const_data_ptr<std::int64_t>();
    return {data, data + host.numel()};
  }
  TORCH_CHECK(
      value.isIntList(),
      "expected integers, found ",
      value.tagKind(),
      ".",
      ops_error(Code::kType));
  return value.toIntVector();
}

c10::IValue changed(const c10::IValue& value, const std::string& how) {
  if (how.empty()) {
    return value;
  }
  if (how == "acl_dtype") {
    return from_acl_dtype(value.toInt());
  }
  if (how == "rounding") {
    return value.toInt() == 1   ? c10::IValue("trunc")
           : value.toInt() == 2 ? c10::IValue("floor")
                                : c10::IValue();
  }
  if (how == "reduction") {
    const std::string text = value.toStringRef();
    return std::int64_t{text == "none" ? 0 : text == "mean" ? 1 : 2};
  }
  const std::vector<std::int64_t> numbers = ints_of(value);
  std::vector<std::int64_t> result;
  if (how == "one") {
    TORCH_CHECK(
        numbers.size() == 1,
        "one dimension is allowed, found ",
        numbers.size(),
        ".",
        ops_error(Code::kParam));
    return numbers.front();
  }
  if (how == "tail") {  // of N, C, H, W
    result.assign(
        numbers.begin() +
            static_cast<std::ptrdiff_t>(numbers.size() > 3 ? 2 : 0),
        numbers.end());
  } else if (how == "pads") {  // before and after each dimension
    for (std::size_t i = 0; i + 1 < numbers.size(); i += 2) {
      TORCH_CHECK(
          numbers[i] == numbers[i + 1],
          "pads before and after differ.",
          ops_error(Code::kNotSupported));
      result.push_back(numbers[i]);
    }
  } else if (how == "pairs") {  // the last dimension first, for PyTorch
    for (std::size_t i = numbers.size(); i >= 2; i -= 2) {
      result.push_back(numbers[i - 2]);
      result.push_back(numbers[i - 1]);
    }
  }
  return result;
}

// "theirs:ours@how" or "ours@how".
struct Word {
  std::string theirs, ours, how;

  explicit Word(const std::string& text) {
    const std::size_t at = text.find('@');
    how = at == std::string::npos ? "" : text.substr(at + 1);
    const std::string names = text.substr(0, at);
    const std::size_t colon = names.find(':');
    ours = colon == std::string::npos ? names : names.substr(colon + 1);
    theirs = colon == std::string::npos ? "" : names.substr(0, colon);
  }
};

const c10::IValue* attribute(
    const Attributes& attributes, const std::string& name) {
  for (const auto& [key, value] : attributes) {
    if (key == name) {
      return &value;
    }
  }
  return nullptr;
}

// Fills `result` by the table's words; returns attributes that were spoken of.
std::vector<std::string> by_table(
    std::string_view words,
    std::vector<c10::IValue>& inputs,
    const Attributes& attributes,
    Operands& result) {
  std::vector<std::string> spoken;
  std::istringstream stream{std::string(words)};
  std::size_t next = 0;
  for (std::string word; stream >> word;) {
    if (word == "@swap") {
      result.swapped = true;
    } else if (word[0] == '@') {  // @t0:attribute
      spoken.push_back(word.substr(4));
      const c10::IValue* const on = attribute(attributes, spoken.back());
      const std::size_t which = word[2] - '0';
      if (on != nullptr && on->toBool() && which < inputs.size()) {
        const std::string& name = which == 0 ? "self" : "other";
        result.by_name[name] = inputs[which].toTensor().transpose(-1, -2);
      }
    } else if (word[0] == '!') {
      spoken.push_back(word.substr(1));
    } else if (word == "-") {
      ++next;
    } else if (const std::size_t is = word.find('='); is != std::string::npos) {
      result.by_name[word.substr(0, is)] =
          static_cast<std::int64_t>(std::atoi(word.c_str() + is + 1));
    } else if (const Word w(word); w.theirs.empty()) {
      if (next < inputs.size()) {
        result.by_name[w.ours] =
            inputs[next].isNone() ? inputs[next] : changed(inputs[next], w.how);
      }
      ++next;
    } else {
      spoken.push_back(w.theirs);
      if (const auto* const given = attribute(attributes, w.theirs)) {
        result.by_name[w.ours] = changed(*given, w.how);
      }
    }
  }
  inputs.erase(
      inputs.begin(),
      inputs.begin() +
          static_cast<std::ptrdiff_t>(std::min(next, inputs.size())));
  return spoken;
}

c10::IValue wrapped_number(const c10::Scalar& number) {
  at::Tensor tensor = at::scalar_tensor(
      number,
      at::TensorOptions(
          number.isFloatingPoint() ? c10::kDouble
          : number.isBoolean()     ? c10::kBool
          : number.isComplex()     ? c10::kComplexDouble
                                   : c10::kLong));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

std::optional<c10::IValue> as_list(
    const c10::IValue& value, const c10::Type& element, int& cost) {
  switch (element.kind()) {
    case c10::TypeKind::TensorType:
      return value.isTensorList() ? std::optional(value) : std::nullopt;
    case c10::TypeKind::OptionalType: {
      if (!value.isTensorList()) {
        return std::nullopt;
      }
      c10::List<std::optional<at::Tensor>> list;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
      }
      return c10::IValue(list);
    }
    case c10::TypeKind::IntType:
      if (value.isIntList()) {
        return value;
      }
      if (value.isInt() ||
          (value.isTensor() && value.toTensor().defined() &&
           value.toTensor().dim() <= 1 &&
           c10::isIntegralType(value.toTensor().scalar_type(), false))) {
        ++cost;
        return c10::IValue(ints_of(value));
      }
      return std::nullopt;
    case c10::TypeKind::FloatType:
      return value.isDoubleList() ? std::optional(value) : std::nullopt;
    case c10::TypeKind::BoolType:
      return value.isBoolList() ? std::optional(value) : std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

Operands arrange(
    const std::string& name,
    const Meaning& meaning,
    std::vector<c10::IValue> inputs,
    const Attributes& attributes) {
  Operands result;
  const std::vector<std::string> spoken =
      by_table(meaning.arguments, inputs, attributes, result);
  TORCH_CHECK(
      meaning.arguments.empty() || inputs.empty(),
      name,
      " has ",
      inputs.size(),
      " operands more than it takes.",
      ops_error(Code::kParam));
  for (const auto& [key, value] : attributes) {
    if (std::find(spoken.begin(), spoken.end(), key) == spoken.end()) {
      const auto at = synonyms().find(key);
      const std::string ours = at == synonyms().end() ? key : at->second;
      if (!ours.empty()) {
        result.by_name[ours] = value;
      }
    }
  }
  result.in_order = std::move(inputs);
  return result;
}

std::optional<c10::IValue> as_type(
    const c10::IValue& value, const c10::Type& type, int& cost) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) {
        return c10::IValue();
      }
      return as_type(
          value, *type.expectRef<c10::OptionalType>().getElementType(), cost);
    case c10::TypeKind::TensorType:
      if (value.isTensor()) {
        return value.toTensor().defined() ? std::optional(value) : std::nullopt;
      }
      if (value.isScalar()) {
        cost += 2;
        return wrapped_number(value.toScalar());
      }
      return std::nullopt;
    case c10::TypeKind::NumberType:
      if (value.isTensor() && value.toTensor().defined() &&
          value.toTensor().numel() == 1) {
        cost += 3;
        return c10::IValue(value.toTensor().item());
      }
      return value.isScalar() ? std::optional(value) : std::nullopt;
    case c10::TypeKind::IntType:
      if (value.isInt()) {
        return value;
      }
      if (value.isBool()) {
        ++cost;
        return c10::IValue(static_cast<std::int64_t>(value.toBool()));
      }
      if (value.isTensor() && value.toTensor().defined() &&
          value.toTensor().numel() == 1 &&
          c10::isIntegralType(value.toTensor().scalar_type(), false)) {
        cost += 3;
        return c10::IValue(ints_of(value).front());
      }
      return std::nullopt;
    case c10::TypeKind::FloatType:
      if (value.isInt()) {
        ++cost;
        return c10::IValue(static_cast<double>(value.toInt()));
      }
      return value.isDouble() ? std::optional(value) : std::nullopt;
    case c10::TypeKind::BoolType:
      if (value.isInt() && (value.toInt() == 0 || value.toInt() == 1)) {
        ++cost;
        return c10::IValue(value.toInt() == 1);
      }
      return value.isBool() ? std::optional(value) : std::nullopt;
    case c10::TypeKind::StringType:
      return value.isString() ? std::optional(value) : std::nullopt;
    case c10::TypeKind::ListType:
      return as_list(
          value, *type.expectRef<c10::ListType>().getElementType(), cost);
    default:
      return std::nullopt;
  }
}

}  // namespace npu::named
