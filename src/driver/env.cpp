// SPDX-License-Identifier: Apache-2.0
// Reads environment variables and complains about wrong values.
#include "driver/env.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "driver/env_table.h"
#include "driver/status.h"

namespace npu::env {

namespace {

std::string& test_name() {
  static auto* name = new std::string;
  return *name;
}

void declared(
    [[maybe_unused]] const char* name,
    [[maybe_unused]] Type type,
    [[maybe_unused]] std::string_view allowed = "") {
#ifndef NDEBUG
  if (test_name() != name) {
    check_declared(name, type, allowed);
  }
#endif
}

std::optional<std::string> read(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return std::string(value);
}

[[noreturn]] void reject(
    const char* name, const std::string& value, const std::string& allowed) {
  throw Error(
      NPU_E_INVALID,
      std::string("npu: environment: ") + name + "='" + value +
          "' is not allowed. Allowed: " + allowed + ".");
}

// The factor of "", "K", "M", "G", "T", each with "B" or "iB" after; 0 = wrong.
std::uint64_t unit(std::string_view suffix) {
  std::string lower;
  for (const char c : suffix) {
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  std::string_view rest = lower;
  if (rest.empty() || rest == "b") {
    return 1;
  }
  constexpr std::string_view kLetters = "kmgt";
  const std::size_t power = kLetters.find(rest.front());
  rest.remove_prefix(1);
  if (power == std::string_view::npos ||
      (!rest.empty() && rest != "b" && rest != "ib")) {
    return 0;
  }
  return std::uint64_t{1} << (10 * (power + 1));
}

}  // namespace

void declare_for_test(const char* name) {
  test_name() = name;
}

std::optional<std::string> text(const char* name) {
  declared(name, Type::kText);
  return read(name);
}

bool flag(const char* name, bool otherwise) {
  declared(name, Type::kFlag, "0, 1");
  const auto value = read(name);
  if (!value) {
    return otherwise;
  }
  if (*value != "0" && *value != "1") {
    reject(name, *value, "0, 1");
  }
  return *value == "1";
}

std::int64_t integer(
    const char* name,
    std::int64_t least,
    std::int64_t most,
    std::int64_t otherwise) {
  const bool open = most == std::numeric_limits<std::int64_t>::max();
  const std::string allowed = "an integer from " + std::to_string(least) +
                              (open ? "" : " to " + std::to_string(most));
  declared(name, Type::kInteger, allowed);
  const auto value = read(name);
  if (!value) {
    return otherwise;
  }
  std::int64_t number = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc{} || stop != end || number < least || number > most) {
    reject(name, *value, allowed);
  }
  return number;
}

std::uint64_t bytes(const char* name, std::uint64_t otherwise) {
  declared(name, Type::kBytes);
  const auto value = read(name);
  if (!value) {
    return otherwise;
  }
  constexpr const char* kAllowed =
      "a number of bytes such as 512, 512K, 64M, 16G or 1T";
  std::uint64_t number = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc{}) {
    reject(name, *value, kAllowed);
  }
  const std::uint64_t factor =
      unit(std::string_view(stop, static_cast<std::size_t>(end - stop)));
  if (factor == 0 ||
      number > std::numeric_limits<std::uint64_t>::max() / factor) {
    reject(name, *value, kAllowed);
  }
  return number * factor;
}

std::size_t choice(
    const char* name,
    std::initializer_list<std::string_view> allowed,
    std::size_t otherwise) {
  std::string list;
  for (const std::string_view word : allowed) {
    list += (list.empty() ? "" : ", ") + std::string(word);
  }
  declared(name, Type::kChoice, list);
  const auto value = read(name);
  if (!value) {
    return otherwise;
  }
  std::size_t index = 0;
  for (const std::string_view word : allowed) {
    if (*value == word) {
      return index;
    }
    ++index;
  }
  reject(name, *value, list);
}

}  // namespace npu::env
