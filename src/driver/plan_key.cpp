// SPDX-License-Identifier: Apache-2.0
// Writes plan keys.
#include "driver/plan_key.h"

#include <cstring>
#include <string_view>

#include "npu/kinds.h"

namespace npu {

namespace {

constexpr double kOther = 2;  // a number that is neither 0 nor 1

class KeyWriter {
 public:
  explicit KeyWriter(std::string& key) : key_(key) {
    key_.clear();
  }
  template <class T>
  void put(const T& value) {
    put(&value, sizeof(value));
  }
  void put(const void* data, std::size_t bytes) {
    key_.append(static_cast<const char*>(data), bytes);
  }

 private:
  std::string& key_;
};

std::uint8_t alignment_class(const void* data) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return static_cast<std::uint8_t>(
      (address % 256 == 0)  ? 3
      : (address % 64 == 0) ? 2
      : (address % 16 == 0) ? 1
                            : 0);
}

void put_tensor(KeyWriter& key, const npu_tensor& tensor, bool by_shape) {
  key.put(tensor.dtype);
  if (tensor.dtype == NPU_ABSENT) {
    return;
  }
  key.put(tensor.flags);
  key.put(tensor.format);
  key.put(tensor.alias_of);
  if (by_shape) {
    key.put(tensor.ndim);
    key.put(tensor.sizes, tensor.ndim * sizeof(std::int64_t));
    key.put(tensor.strides, tensor.ndim * sizeof(std::int64_t));
    key.put(alignment_class(tensor.data));
  }
}

void put_list(KeyWriter& key, const npu_list& list, bool by_shape) {
  key.put(list.n);
  key.put(list.dtype);
  key.put(list.flags);
  for (std::uint32_t i = 0; by_shape && i < list.n; ++i) {
    if (list.tensors != nullptr) {
      put_tensor(key, list.tensors[i], true);
    } else {
      key.put(list.numel[i]);
      key.put(alignment_class(list.data[i]));
    }
  }
}

double number_of(const npu_attr_info& attr, const char* bytes) {
  if (std::string_view(attr.type) == "scalar") {
    npu_scalar scalar;
    std::memcpy(&scalar, bytes, sizeof(scalar));
    return scalar.im == 0 ? scalar.re : kOther;
  }
  if (std::string_view(attr.type) == "i64") {
    std::int64_t value = 0;
    std::memcpy(&value, bytes, sizeof(value));
    return static_cast<double>(value);
  }
  double value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Kernels that skip or simplify a term do so for 0 and 1.
std::uint8_t class_of(const npu_attr_info& attr, const char* bytes) {
  const double value = number_of(attr, bytes);
  return value == 0 ? 0 : value == 1 ? 1 : 2;
}

// Attributes marked `key` or `class`; a vendor's own kind is not known here, so
// all of it.
void put_attrs(KeyWriter& key, const npu_call& call) {
  const npu_kind_info* kind = npu_kind_of(call.slot);
  if (kind == nullptr) {
    key.put(call.attrs, call.attr_bytes);
    return;
  }
  const auto* attrs = static_cast<const char*>(call.attrs);
  for (std::uint32_t i = 0; i < kind->n_attrs; ++i) {
    const npu_attr_info& attr = kind->attrs[i];
    if (attr.key == 0 || attr.offset + attr.bytes > call.attr_bytes) {
      continue;
    }
    if (attr.key == NPU_KEY_CLASS) {
      key.put(class_of(attr, attrs + attr.offset));
    } else {
      key.put(attrs + attr.offset, attr.bytes);
    }
  }
}

}  // namespace

void write_plan_key(
    std::string& text,
    const Driver& driver,
    npu_device device,
    const npu_call& call,
    bool by_shape) {
  KeyWriter key(text);
  key.put(&driver);
  key.put(device);
  key.put(call.slot);
  key.put(call.code);
  key.put(call.flags);
  key.put(call.math_mode);
  key.put(call.compute_dtype);
  key.put(call.deterministic);
  key.put(call.workspace_limit);
  key.put(call.n_out);
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    put_tensor(key, call.tensors[i], by_shape);
  }
  for (std::uint32_t i = 0; i < call.n_lists; ++i) {
    put_list(key, call.lists[i], by_shape);
  }
  put_attrs(key, call);
}

}  // namespace npu
