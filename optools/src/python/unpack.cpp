// SPDX-License-Identifier: Apache-2.0
// MessagePack -> Python values. The bytes are untrusted: every length is
// checked against what is there.
#include <bit>

#include "python/bindings.h"

namespace optools {
namespace {

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : left_(bytes) {}

  py::object value(int depth = 0) {
    if (depth > kMaxDepth) {
      throw py::value_error("values are nested too deeply");
    }
    const auto head = static_cast<uint8_t>(take(1)[0]);
    if (head < 0x80) {
      return py::int_(head);
    }
    if (head >= 0xE0) {
      return py::int_(static_cast<int8_t>(head));
    }
    if (head < 0x90) {
      return map(head & 15, depth);
    }
    if (head < 0xA0) {
      return array(head & 15, depth);
    }
    if (head < 0xC0) {
      return text(head & 31);
    }
    return long_form(head, depth);
  }
  // Of a map that begins with "number".
  uint64_t first_number() {
    const auto head = static_cast<uint8_t>(take(1)[0]);
    if (head == 0xDF) {
      take(4);
    } else if (head == 0xDE) {
      take(2);
    } else if (head < 0x81 || head > 0x8F) {
      return 0;
    }
    const py::object key = value();
    const py::object held = value();
    return py::isinstance<py::str>(key) &&
                   key.cast<std::string>() == "number" &&
                   py::isinstance<py::int_>(held)
               ? held.cast<uint64_t>()
               : 0;
  }
  bool done() const {
    return left_.empty();
  }

 private:
  std::string_view left_;

  std::string_view take(size_t count) {
    if (count > left_.size()) {
      throw py::value_error("a value ends too early");
    }
    const auto part = left_.substr(0, count);
    left_.remove_prefix(count);
    return part;
  }
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    for (const char c : take(bytes)) {
      value = value << 8 | static_cast<uint8_t>(c);
    }
    return value;
  }
  py::object text(size_t bytes) {
    const auto part = take(bytes);
    PyObject* made = PyUnicode_DecodeUTF8(
        part.data(), static_cast<Py_ssize_t>(part.size()), "replace");
    if (made == nullptr) {
      throw py::error_already_set();
    }
    return py::reinterpret_steal<py::object>(made);
  }
  py::object array(size_t count, int depth) {
    py::list out;
    for (size_t i = 0; i < count; ++i) {
      out.append(value(depth + 1));
    }
    return out;
  }
  py::object map(size_t count, int depth) {
    py::dict out;
    for (size_t i = 0; i < count; ++i) {
      const py::object key = value(depth + 1);
      if (!py::isinstance<py::str>(key) && !py::isinstance<py::int_>(key)) {
        throw py::value_error("a map's key is neither text nor a number");
      }
      out[key] = value(depth + 1);
    }
    return out;
  }
  py::object extension(size_t bytes, int depth) {
    const auto code = static_cast<int8_t>(take(1)[0]);
    Unpacker inner(take(bytes));
    py::object held = inner.value(depth + 1);
    if (!inner.done()) {
      throw py::value_error("an extension holds more than one value");
    }
    return py::make_tuple(static_cast<int>(code), held);
  }
  py::object real(uint64_t bits) {
    return py::float_(std::bit_cast<double>(bits));
  }

  py::object long_form(uint8_t head, int depth) {
    switch (head) {
      case 0xC0:
        return py::none();
      case 0xC2:
      case 0xC3:
        return py::bool_(head == 0xC3);
      case 0xC4:
      case 0xC5:
      case 0xC6: {
        const auto part = take(number(size_t{1} << (head - 0xC4)));
        return py::bytes(part.data(), part.size());
      }
      case 0xC7:
      case 0xC8:
      case 0xC9:
        return extension(number(size_t{1} << (head - 0xC7)), depth);
      case 0xCB:
        return real(number(8));
      case 0xCC:
      case 0xCD:
      case 0xCE:
      case 0xCF:
        return py::int_(number(size_t{1} << (head - 0xCC)));
      case 0xD0:
        return py::int_(static_cast<int8_t>(number(1)));
      case 0xD1:
        return py::int_(static_cast<int16_t>(number(2)));
      case 0xD2:
        return py::int_(static_cast<int32_t>(number(4)));
      case 0xD3:
        return py::int_(static_cast<int64_t>(number(8)));
      case 0xD9:
      case 0xDA:
      case 0xDB:
        return text(number(size_t{1} << (head - 0xD9)));
      case 0xDC:
        return array(number(2), depth);
      case 0xDD:
        return array(number(4), depth);
      case 0xDE:
        return map(number(2), depth);
      case 0xDF:
        return map(number(4), depth);
      default:
        throw py::value_error("a value of an unknown kind");
    }
  }
};

}  // namespace

py::object unpack_value(std::string_view bytes) {
  Unpacker unpacker(bytes);
  py::object value = unpacker.value();
  if (!unpacker.done()) {
    throw py::value_error("bytes are left after a value");
  }
  return value;
}

uint64_t record_number(std::string_view bytes) {
  try {
    return Unpacker(bytes).first_number();
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace optools
