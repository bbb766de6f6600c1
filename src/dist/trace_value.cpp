// SPDX-License-Identifier: Apache-2.0
// A tree of plain values, written as JSON or as a pickle.
#include "dist/trace_value.h"

#include <cstdio>
#include <utility>

namespace npu::dist {
namespace {

template <class... F>
struct Cases : F... {
  using F::operator()...;
};
template <class... F>
Cases(F...) -> Cases<F...>;

void write_json_text(std::string& out, const std::string& text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  out += '"';
}

void write_little_endian(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>(value >> (8 * i));
  }
}

void write_pickle_text(std::string& out, const std::string& text) {
  out += 'X';  // BINUNICODE
  write_little_endian(out, text.size(), 4);
  out += text;
}

}  // namespace

std::string TraceValue::json() const {
  std::string out;
  write_json(out);
  return out;
}

std::string TraceValue::pickle() const {
  std::string out = "\x80\x02";  // PROTO 2
  write_pickle(out);
  out += '.';  // STOP
  return out;
}

void TraceValue::write_json(std::string& out) const {
  std::visit(
      Cases{
          [&](std::monostate) { out += "null"; },
          [&](bool value) { out += value ? "true" : "false"; },
          [&](std::int64_t value) { out += std::to_string(value); },
          [&](const std::string& value) { write_json_text(out, value); },
          [&](const List& values) {
            out += '[';
            const char* between = "";
            for (const auto& value : values) {
              out += std::exchange(between, ", ");
              value.write_json(out);
            }
            out += ']';
          },
          [&](const Dict& items) {
            out += '{';
            const char* between = "";
            for (const auto& [key, value] : items) {
              out += std::exchange(between, ", ");
              write_json_text(out, key);
              out += ": ";
              value.write_json(out);
            }
            out += '}';
          }},
      value_);
}

void TraceValue::write_pickle(std::string& out) const {
  std::visit(
      Cases{
          [&](std::monostate) { out += 'N'; },
          [&](bool value) { out += value ? '\x88' : '\x89'; },
          [&](std::int64_t value) {
            out += "\x8a\x08";  // LONG1 of eight bytes
            write_little_endian(out, static_cast<std::uint64_t>(value), 8);
          },
          [&](const std::string& value) { write_pickle_text(out, value); },
          [&](const List& values) {
            out += "](";  // EMPTY_LIST, MARK
            for (const auto& value : values) {
              value.write_pickle(out);
            }
            out += 'e';  // APPENDS
          },
          [&](const Dict& items) {
            out += "}(";  // EMPTY_DICT, MARK
            for (const auto& [key, value] : items) {
              write_pickle_text(out, key);
              value.write_pickle(out);
            }
            out += 'u';  // SETITEMS
          }},
      value_);
}

}  // namespace npu::dist
