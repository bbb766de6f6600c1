// SPDX-License-Identifier: Apache-2.0
#include "visible.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace npu::cuda {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  const auto last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// A number as CUDA reads it: what follows its digits does not matter. -1: none.
int number_of(const std::string& word) {
  const std::size_t at = word.starts_with("+") ? 1 : 0;
  if (at >= word.size() ||
      !std::isdigit(static_cast<unsigned char>(word[at]))) {
    return -1;
  }
  const unsigned long value = std::strtoul(word.c_str() + at, nullptr, 10);
  return value > 4096 ? -1 : static_cast<int>(value);
}

// The one GPU whose name begins so; -1: none, or several.
int named(const std::string& word, const std::vector<std::string>& uuids) {
  int found = -1;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (uuids[i].starts_with(word)) {
      if (found >= 0) {
        return -1;
      }
      found = static_cast<int>(i);
    }
  }
  return found;
}

}  // namespace

std::vector<int> visible_devices(
    const char* text, const std::vector<std::string>& uuids) {
  std::vector<int> out;
  const int n = static_cast<int>(uuids.size());
  if (!text) {
    for (int i = 0; i < n; ++i) {
      out.push_back(i);
    }
    return out;
  }
  std::string rest = text;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string::npos;
    const std::string word = trimmed(rest.substr(0, comma));
    rest = more ? rest.substr(comma + 1) : "";
    const int index =
        word.starts_with("GPU-") ? named(word, uuids) : number_of(word);
    if (index < 0 || index >= n) {
      break;
    }
    if (std::find(out.begin(), out.end(), index) != out.end()) {
      return {};
    }
    out.push_back(index);
  }
  return out;
}

}  // namespace npu::cuda
