// SPDX-License-Identifier: Apache-2.0
// Every environment variable of the plugin and its drivers, declared once.
//
// A variable is added by a row in env_table.cpp. docs/environment.md is made
// from the table (markdown()); a test compares it with what the sources read.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace npu::env {

enum class Type { kFlag, kInteger, kBytes, kChoice, kText, kList };
// Whose it is; the page has one section for each.
enum class Group {
  kCore,
  kHostDriver,
  kNullDriver,
  kCudaDriver,
  kAscend,
  kTesting
};

struct Variable {
  const char* name;
  Type type;
  Group group;
  const char* allowed;    // "fast, all"; "an integer from 1 to 64"
  const char* otherwise;  // when it is unset, in words or as a value
  const char* meaning;    // one sentence
};

std::span<const Variable> table() noexcept;
// nullptr for a name that is not in the table.
const Variable* find(std::string_view name) noexcept;

// Throws Error (NPU_E_INTERNAL) for a name that is not in the table, one that
// is read as another type, or allowed values that the table words otherwise.
// The functions of env.h call it in debug builds.
void check_declared(
    std::string_view name, Type type, std::string_view allowed = "");

// The tables of docs/environment.md, a section per group.
std::string markdown();

}  // namespace npu::env
