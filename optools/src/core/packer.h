// SPDX-License-Identifier: Apache-2.0
// Writes values as MessagePack (msgpack.org), the language of a capture's
// record log.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace optools {

class Packer {
 public:
  void clear() {
    bytes_.clear();
  }
  const std::string& bytes() const {
    return bytes_;
  }
  std::string take() {
    return std::move(bytes_);
  }

  void nil() {
    byte(0xC0);
  }
  void boolean(bool value) {
    byte(value ? 0xC3 : 0xC2);
  }
  void integer(int64_t value) {
    if (value >= 0) {
      natural(static_cast<uint64_t>(value));
    } else if (value >= -32) {
      byte(static_cast<uint8_t>(value));
    } else if (value >= INT32_MIN) {
      byte(0xD2);
      big_endian(static_cast<uint32_t>(value));
    } else {
      byte(0xD3);
      big_endian(static_cast<uint64_t>(value));
    }
  }
  void natural(uint64_t value) {
    if (value < 128) {
      byte(static_cast<uint8_t>(value));
    } else if (value <= UINT16_MAX) {
      byte(0xCD);
      big_endian(static_cast<uint16_t>(value));
    } else if (value <= UINT32_MAX) {
      byte(0xCE);
      big_endian(static_cast<uint32_t>(value));
    } else {
      byte(0xCF);
      big_endian(value);
    }
  }
  void real(double value) {
    byte(0xCB);
    big_endian(std::bit_cast<uint64_t>(value));
  }
  void text(std::string_view value) {
    if (value.size() < 32) {
      byte(static_cast<uint8_t>(0xA0 | value.size()));
    } else {
      byte(0xDB);
      big_endian(static_cast<uint32_t>(value.size()));
    }
    bytes_.append(value);
  }
  void binary(std::string_view value) {
    byte(0xC6);
    big_endian(static_cast<uint32_t>(value.size()));
    bytes_.append(value);
  }
  void array(size_t count) {
    group(count, 0x90, 0xDD);
  }
  void map(size_t pairs) {
    group(pairs, 0x80, 0xDF);
  }
  // A map whose pairs are counted as they come: close_map() with what
  // open_map() returned.
  size_t open_map() {
    byte(0xDF);
    big_endian(uint32_t{0});
    return bytes_.size() - 4;
  }
  void close_map(size_t opened, uint32_t pairs) {
    patch(opened, pairs);
  }

  // An extension value around what is packed until close(): its length is not
  // known before.
  size_t open_extension(int8_t code) {
    byte(0xC9);
    big_endian(uint32_t{0});
    byte(static_cast<uint8_t>(code));
    return bytes_.size();
  }
  void close_extension(size_t opened) {
    patch(opened - 5, static_cast<uint32_t>(bytes_.size() - opened));
  }

 private:
  std::string bytes_;

  void byte(uint8_t value) {
    bytes_ += static_cast<char>(value);
  }
  template <class T>
  void big_endian(T value) {
    for (int shift = 8 * (int{sizeof(T)} - 1); shift >= 0; shift -= 8) {
      byte(static_cast<uint8_t>(value >> shift));
    }
  }
  void group(size_t count, uint8_t small, uint8_t large) {
    if (count < 16) {
      byte(static_cast<uint8_t>(small | count));
    } else {
      byte(large);
      big_endian(static_cast<uint32_t>(count));
    }
  }
  void patch(size_t at, uint32_t value) {
    for (size_t i = 0; i < 4; ++i) {
      bytes_[at + i] = static_cast<char>(value >> (8 * (3 - i)));
    }
  }
};

}  // namespace optools
