// SPDX-License-Identifier: Apache-2.0
// A tree of plain values, written as JSON or as a pickle.
//
// PyTorch's fr_trace reads pickles. A record of a hanging program is written
// without Python, whose lock may be held by whoever hangs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace npu::dist {

class TraceValue {
 public:
  using List = std::vector<TraceValue>;
  using Dict = std::vector<std::pair<std::string, TraceValue>>;

  TraceValue(bool value) : value_(value) {}
  TraceValue(std::int64_t value) : value_(value) {}
  TraceValue(std::string value) : value_(std::move(value)) {}
  TraceValue(const char* value) : value_(std::string(value)) {}
  TraceValue(List value) : value_(std::move(value)) {}
  TraceValue(Dict value) : value_(std::move(value)) {}
  static TraceValue none() {
    return TraceValue();
  }

  std::string json() const;
  // Protocol 2, of built-in types only: loading it runs nothing.
  std::string pickle() const;

 private:
  TraceValue() = default;
  void write_json(std::string& out) const;
  void write_pickle(std::string& out) const;

  std::variant<std::monostate, bool, std::int64_t, std::string, List, Dict>
      value_;
};

}  // namespace npu::dist
