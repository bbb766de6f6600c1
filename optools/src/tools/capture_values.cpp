// SPDX-License-Identifier: Apache-2.0
// A call's arguments and results as MessagePack.
#include "tools/capture_values.h"

#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <sstream>

#include "core/thread.h"

namespace optools {
namespace {

const c10::Type* element_of(const c10::Type* type) {
  if (type == nullptr) {
    return nullptr;
  }
  if (type->kind() == c10::TypeKind::OptionalType) {
    type = type->castRaw<c10::OptionalType>()->getElementType().get();
  }
  return type->kind() == c10::TypeKind::ListType
             ? type->castRaw<c10::ListType>()->getElementType().get()
             : nullptr;
}

template <class T>
std::string printed(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string lower(std::string text) {
  for (char& c : text) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return text;
}

std::string dtype_word(c10::ScalarType dtype) {
  return std::string(c10::getDtypeNames(dtype).first);
}

uint8_t tensor_flags(const at::Tensor& t) {
  const auto* impl = t.unsafeGetTensorImpl();
  return static_cast<uint8_t>(
      (t.requires_grad() ? kTensorRequiresGrad : 0) |
      (t.is_conj() ? kTensorConjugate : 0) |
      (t.is_neg() ? kTensorNegative : 0) |
      (impl->is_wrapped_number() ? kTensorWrappedNumber : 0));
}

void put_sizes(Packer& packer, c10::IntArrayRef sizes) {
  packer.array(sizes.size());
  for (const int64_t size : sizes) {
    packer.integer(size);
  }
}

}  // namespace

void CaptureValues::put_word(ValueCode code, std::string_view word) {
  const auto opened = packer.open_extension(static_cast<int8_t>(code));
  packer.text(word);
  packer.close_extension(opened);
}

void CaptureValues::put_integer(int64_t value, const c10::Type* type) {
  if (type != nullptr && type->kind() == c10::TypeKind::OptionalType) {
    type = type->castRaw<c10::OptionalType>()->getElementType().get();
  }
  const auto kind = type == nullptr ? c10::TypeKind::IntType : type->kind();
  if (kind == c10::TypeKind::ScalarTypeType) {
    put_word(
        ValueCode::kDtype, dtype_word(static_cast<c10::ScalarType>(value)));
  } else if (kind == c10::TypeKind::LayoutType) {
    put_word(
        ValueCode::kLayout, lower(printed(static_cast<c10::Layout>(value))));
  } else if (kind == c10::TypeKind::MemoryFormatType) {
    const auto format = static_cast<c10::MemoryFormat>(value);
    constexpr std::string_view kNames[] = {
        "contiguous_format",
        "preserve_format",
        "channels_last",
        "channels_last_3d"};
    const auto at = static_cast<size_t>(format);
    put_word(
        ValueCode::kMemoryFormat,
        at < std::size(kNames) ? kNames[at] : "unknown");
  } else {
    packer.integer(value);
  }
}

void CaptureValues::put_list(
    const c10::IValue& value, const c10::Type* type, const char* skip) {
  const c10::Type* inner = element_of(type);
  if (value.isTensorList()) {
    const auto list = value.toTensorList();
    packer.array(list.size());
    for (const at::Tensor& t : list) {
      put_tensor(t, skip);
    }
    return;
  }
  const auto list = value.toListRef();
  packer.array(list.size());
  for (const auto& item : list) {
    put(item, inner, skip);
  }
}

// Numbers, text, nothing. False for what is none of these.
bool CaptureValues::put_plain(const c10::IValue& value, const c10::Type* type) {
  if (value.isNone()) {
    packer.nil();
  } else if (value.isBool()) {
    packer.boolean(value.toBool());
  } else if (value.isInt()) {
    put_integer(value.toInt(), type);
  } else if (value.isDouble()) {
    packer.real(value.toDouble());
  } else if (value.isString()) {
    packer.text(value.toStringRef());
  } else if (value.isSymInt()) {
    packer.integer(value.toSymInt().guard_int(__FILE__, __LINE__));
  } else if (value.isSymFloat()) {
    packer.real(value.toSymFloat().guard_float(__FILE__, __LINE__));
  } else if (value.isSymBool()) {
    packer.boolean(value.toSymBool().guard_bool(__FILE__, __LINE__));
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    const auto opened =
        packer.open_extension(static_cast<int8_t>(ValueCode::kComplex));
    packer.array(2);
    packer.real(number.real());
    packer.real(number.imag());
    packer.close_extension(opened);
  } else if (value.isDevice()) {
    put_word(ValueCode::kDevice, value.toDevice().str());
  } else if (value.isGenerator()) {
    const auto generator = value.toGenerator();
    put_word(
        ValueCode::kGenerator,
        generator.defined() ? generator.device().str() : "");
  } else {
    return false;
  }
  return true;
}

void CaptureValues::put(
    const c10::IValue& value, const c10::Type* type, const char* skip) {
  if (value.isTensor()) {
    put_tensor(value.toTensor(), skip);
  } else if (put_plain(value, type)) {
    return;
  } else if (value.isList()) {
    put_list(value, type, skip);
  } else if (value.isTuple()) {
    const auto opened =
        packer.open_extension(static_cast<int8_t>(ValueCode::kTuple));
    const auto& items = value.toTupleRef().elements();
    packer.array(items.size());
    for (const auto& item : items) {
      put(item, nullptr, skip);
    }
    packer.close_extension(opened);
  } else if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    packer.map(dict.size());
    for (const auto& pair : dict) {
      put(pair.key(), nullptr, skip);
      put(pair.value(), nullptr, skip);
    }
  } else {
    put_word(ValueCode::kObject, value.type()->str());
  }
}

BlobHash CaptureValues::read(
    const at::Tensor& t, const DenseForm& form, size_t bytes) {
  const void* address = t.unsafeGetTensorImpl()->storage().data();
  address = static_cast<const char*>(address) +
            t.storage_offset() * static_cast<int64_t>(t.element_size());
  if (!form.packed) {
    for (const auto& seen : seen_) {
      if (seen.address == address && seen.bytes == bytes) {
        return seen.hash;
      }
    }
  }
  Quiet quiet;
  const TensorBytes contents(t, form);
  const BlobHash hash = hash_bytes(contents.view().data(), bytes);
  if (content_ == CaptureContent::kFull) {
    store_.add_blob(hash, contents.view());
  }
  if (!form.packed) {
    seen_.push_back({address, bytes, hash});
  }
  return hash;
}

std::string_view CaptureValues::device_word(c10::Device device) {
  if (device != device_) {
    device_ = device;
    device_name_ = device.str();
  }
  return device_name_;
}

// What a plain tensor's elements are and where.
void CaptureValues::put_geometry(const at::Tensor& t, uint32_t& pairs) {
  packer.key("s");
  put_sizes(packer, t.sizes());
  packer.key("t");
  put_sizes(packer, t.strides());
  pairs += 2;
  if (t.storage_offset() != 0) {
    packer.key("o");
    packer.integer(t.storage_offset());
    ++pairs;
  }
  if (t.has_storage()) {
    packer.key("a");
    packer.natural(
        reinterpret_cast<uint64_t>(t.unsafeGetTensorImpl()->storage().data()));
    ++pairs;
  }
}

const char* CaptureValues::put_content(
    const at::Tensor& t, const DenseForm& form, uint32_t& pairs) {
  if (content_ == CaptureContent::kNone) {
    return "not asked for";
  }
  if (form.elements == 0) {
    return nullptr;
  }
  const size_t bytes = static_cast<size_t>(form.elements) * t.element_size();
  if (max_bytes_ != 0 && bytes > max_bytes_) {
    return "larger than asked for";
  }
  if (const char* why = recorded(t)) {
    return why;
  }
  std::array<char, 16> hash;
  try {
    hash = read(t, form, bytes).bytes();
  } catch (const std::exception&) {  // a device that cannot copy this one
    return "could not be read";
  }
  packer.key("h");
  packer.binary({hash.data(), hash.size()});
  packer.key("n");
  packer.natural(bytes);
  pairs += 2;
  return nullptr;
}

void CaptureValues::put_tensor(const at::Tensor& t, const char* skip) {
  if (!t.defined()) {
    const auto opened =
        packer.open_extension(static_cast<int8_t>(ValueCode::kUndefined));
    packer.nil();
    packer.close_extension(opened);
    return;
  }
  const auto opened =
      packer.open_extension(static_cast<int8_t>(ValueCode::kTensor));
  const auto pairs_at = packer.open_map();
  uint32_t pairs = 3;
  const char* why = unreadable(t);
  packer.key("d");
  packer.text(dtype_word(t.scalar_type()));
  packer.key("v");
  packer.text(device_word(t.device()));
  uint8_t flags = tensor_flags(t);
  DenseForm form;
  if (t.layout() == c10::kStrided && !t.is_nested() &&
      !t.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    put_geometry(t, pairs);
    form = dense_form(t.sizes(), t.strides());
    flags |= form.packed ? kTensorPacked : 0;
    operand_bytes += t.numel() * t.element_size();
  }
  packer.key("f");
  packer.natural(flags);
  if (why == nullptr) {
    why = skip != nullptr ? skip : put_content(t, form, pairs);
  }
  if (t.layout() != c10::kStrided) {
    packer.key("l");
    packer.text(lower(printed(t.layout())));
    ++pairs;
  }
  if (why != nullptr) {
    packer.key("w");
    packer.text(why);
    ++pairs;
    if (why != kViewOnly) {
      ++unread[why];
    }
  }
  packer.close_map(pairs_at, pairs);
  packer.close_extension(opened);
}

}  // namespace optools
