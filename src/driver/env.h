// SPDX-License-Identifier: Apache-2.0
// Environment variables, read one way: a wrong value is an Error
// (NPU_E_INVALID) that names the variable, its value and what is allowed. Every
// variable has a row in env_table.cpp; debug builds refuse one that has none.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace npu::env {

// Unset and empty are the same: absent.
std::optional<std::string> text(const char* name);

// A name for a test, which needs no row; "" takes it back.
void declare_for_test(const char* name);

// "0" or "1".
bool flag(const char* name, bool otherwise);

std::int64_t integer(
    const char* name,
    std::int64_t least,
    std::int64_t most,
    std::int64_t otherwise);

// "512", "512K", "64M", "16G", "1T" (powers of 1024; a trailing "B" or "iB" is
// fine).
std::uint64_t bytes(const char* name, std::uint64_t otherwise);

// Index into `allowed`.
std::size_t choice(
    const char* name,
    std::initializer_list<std::string_view> allowed,
    std::size_t otherwise);

}  // namespace npu::env
