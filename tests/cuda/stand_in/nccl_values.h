// SPDX-License-Identifier: Apache-2.0
// Elements of NCCL's types, by their numbers in its documentation, and their
// reductions: rounded after each term, as along a ring.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace stand_in {

struct Type {
  const char* name;
  std::size_t bytes;
};
inline const Type* type_of(int type) {
  static constexpr Type kTypes[] = {
      {"int8", 1},
      {"uint8", 1},
      {"int32", 4},
      {"uint32", 4},
      {"int64", 8},
      {"uint64", 8},
      {"float16", 2},
      {"float32", 4},
      {"float64", 8},
      {"bfloat16", 2}};
  return type >= 0 && type < 10 ? &kTypes[type] : nullptr;
}
inline const char* op_name(int op) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min", "avg"};
  return op >= 0 && op < 5 ? kNames[op] : nullptr;
}

struct Bfloat16 {
  std::uint16_t bits;
  Bfloat16() = default;
  explicit Bfloat16(float value) {
    std::uint32_t all = __builtin_bit_cast(std::uint32_t, value);
    bits =
        static_cast<std::uint16_t>((all + 0x7fffu + ((all >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    return __builtin_bit_cast(float, std::uint32_t{bits} << 16);
  }
};

template <class T, class Wide>
void reduce_as(
    int op,
    const std::vector<std::vector<char>>& from,
    std::vector<char>& out) {
  const std::size_t n = out.size() / sizeof(T);
  for (std::size_t i = 0; i < n; ++i) {
    T value;
    std::memcpy(&value, &from[0][i * sizeof(T)], sizeof(T));
    for (std::size_t r = 1; r < from.size(); ++r) {
      T next;
      std::memcpy(&next, &from[r][i * sizeof(T)], sizeof(T));
      const auto a = static_cast<Wide>(value);
      const auto b = static_cast<Wide>(next);
      value =
          T(op == 1   ? a * b
            : op == 2 ? std::max(a, b)
            : op == 3 ? std::min(a, b)
                      : a + b);
    }
    if (op == 4) {
      value = T(static_cast<Wide>(value) / static_cast<Wide>(from.size()));
    }
    std::memcpy(&out[i * sizeof(T)], &value, sizeof(T));
  }
}

inline std::vector<char> reduced(
    int type, int op, const std::vector<std::vector<char>>& from) {
  std::vector<char> out(from[0].size());
  switch (type) {
    case 0:
      reduce_as<std::int8_t, std::int32_t>(op, from, out);
      break;
    case 1:
      reduce_as<std::uint8_t, std::uint32_t>(op, from, out);
      break;
    case 2:
      reduce_as<std::int32_t, std::int64_t>(op, from, out);
      break;
    case 3:
      reduce_as<std::uint32_t, std::uint64_t>(op, from, out);
      break;
    case 4:
      reduce_as<std::int64_t, std::int64_t>(op, from, out);
      break;
    case 5:
      reduce_as<std::uint64_t, std::uint64_t>(op, from, out);
      break;
    case 6:
      reduce_as<_Float16, float>(op, from, out);
      break;
    case 7:
      reduce_as<float, float>(op, from, out);
      break;
    case 8:
      reduce_as<double, double>(op, from, out);
      break;
    default:
      reduce_as<Bfloat16, float>(op, from, out);
  }
  return out;
}

}  // namespace stand_in
