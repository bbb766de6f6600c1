// SPDX-License-Identifier: Apache-2.0
// Lists of words in environment variables, and the nearest known word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace npu {

// Pieces between `separator`, without blanks around them; empty ones left out.
std::vector<std::string> split(std::string_view text, char separator);

std::string join(const std::vector<std::string>& words, const char* between);

// The word of `known` with the fewest edits from `word`, or "" when all are
// far.
std::string nearest(
    std::string_view word, const std::vector<std::string>& known);

}  // namespace npu
