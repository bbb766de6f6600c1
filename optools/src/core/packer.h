// SPDX-License-Identifier: Apache-2.0
// Writes values as MessagePack (msgpack.org), the language of a capture's
// record log.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace optools {

class Packer {
 public:
  void clear() {
    size_ = 0;
  }
  std::string_view bytes() const {
    return {bytes_.get(), size_};
  }
  std::string take() {
    std::string all(bytes());
    clear();
    return all;
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
    append(value);
  }
  // A text known when this is compiled: a map's key.
  template <size_t size>
  void key(const char (&word)[size]) {
    static_assert(size > 1 && size <= 32);
    char* to = room(size);
    to[0] = static_cast<char>(0xA0 | (size - 1));
    std::memcpy(to + 1, word, size - 1);
    size_ += size;
  }
  void binary(std::string_view value) {
    if (value.size() < 256) {
      byte(0xC4);
      byte(static_cast<uint8_t>(value.size()));
    } else {
      byte(0xC6);
      big_endian(static_cast<uint32_t>(value.size()));
    }
    append(value);
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
    return size_ - 4;
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
    return size_;
  }
  void close_extension(size_t opened) {
    patch(opened - 5, static_cast<uint32_t>(size_ - opened));
  }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;

  // Where `count` more bytes can be put; the caller adds what it put to size_.
  char* room(size_t count) {
    if (size_ + count > capacity_) [[unlikely]] {
      grow(count);
    }
    return bytes_.get() + size_;
  }
  void grow(size_t count) {
    capacity_ = std::max<size_t>(4096, 2 * (size_ + count));
    std::unique_ptr<char[]> larger(new char[capacity_]);
    if (size_ != 0) {
      std::memcpy(larger.get(), bytes_.get(), size_);
    }
    bytes_ = std::move(larger);
  }
  void append(std::string_view value) {
    char* to = room(value.size());
    if (!value.empty()) {
      std::memcpy(to, value.data(), value.size());
    }
    size_ += value.size();
  }
  void byte(uint8_t value) {
    *room(1) = static_cast<char>(value);
    ++size_;
  }
  template <class T>
  void big_endian(T value) {
    char* to = room(sizeof(T));
    for (size_t i = 0; i < sizeof(T); ++i) {
      to[i] = static_cast<char>(value >> (8 * (sizeof(T) - 1 - i)));
    }
    size_ += sizeof(T);
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
