// SPDX-License-Identifier: Apache-2.0
// The rows of a profile about dtypes: "@dtypes", "@lacks", "@takes" and
// "@takes_at_least" (docs/profiles.md).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "aten/profile/profile.h"

namespace npu::profile {

// "float32"; empty for a bit that is no dtype.
const char* torch_name(unsigned dtype);

class DtypeTable {
 public:
  // What is wrong with the line; empty when it was read. `only_known`: its
  // operators have to be PyTorch's. `file`: rows of one file contradict each
  // other where they name an operator twice; those of another replace them.
  std::string read(const std::string& line, bool only_known, unsigned file);
  static bool reads(const std::string& key);

  bool empty() const noexcept {
    return rows_.empty();
  }
  // Nothing for an operator without a row.
  Dtypes find(const std::string& overload) const;

 private:
  struct Row {
    Dtypes dtypes;
    unsigned file;
  };

  std::string read_name(const std::string& words);
  std::string read_lack(const std::string& words);
  std::string read_row(
      const std::string& words, bool exact, bool only_known, unsigned file);
  std::string add_dtypes(const std::string& words, std::uint64_t& bits) const;
  const Row* row_of(const std::string& overload) const;

  std::unordered_map<std::string, std::uint64_t> names_;
  std::unordered_map<std::string, Row> rows_;
  std::uint64_t lacked_ = 0;
};

}  // namespace npu::profile
