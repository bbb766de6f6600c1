// SPDX-License-Identifier: Apache-2.0
// Reads the rows of a profile about dtypes.
#include "aten/profile/dtype_table.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>
#include <unordered_set>

#include "npu/op.h"

namespace npu::profile {
namespace {

constexpr const char* kTorchNames[NPU_DTYPE_COUNT] = {
    "",
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2"};

constexpr std::uint64_t kAll = (NPU_DTYPE_BIT(NPU_DTYPE_COUNT) - 1) & ~1ull;

bool is_word(const std::string& word, const char* also) {
  return !word.empty() && std::ranges::all_of(word, [also](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' ||
           std::string_view(also).find(static_cast<char>(c)) !=
               std::string_view::npos;
  });
}

// "aten::add_" -> "aten::add", but not "aten::__iand__".
std::string without_underscore(std::string name) {
  if (name.ends_with('_') && !name.ends_with("__")) {
    name.pop_back();
  }
  return name;
}

bool is_operator(const std::string& name) {
  static const auto* const bases = [] {
    auto* const made = new std::unordered_set<std::string>;
    for (const auto& known : c10::Dispatcher::singleton().getAllOpNames()) {
      made->insert(known.name);
    }
    return made;
  }();
  const auto dot = name.find('.');
  return dot == std::string::npos
             ? bases->count(name) != 0
             : c10::Dispatcher::singleton()
                   .findSchema({name.substr(0, dot), name.substr(dot + 1)})
                   .has_value();
}

}  // namespace

const char* torch_name(unsigned dtype) {
  return dtype < NPU_DTYPE_COUNT ? kTorchNames[dtype] : "";
}

bool DtypeTable::reads(const std::string& key) {
  return key == "@dtypes" || key == "@lacks" || key == "@takes" ||
         key == "@takes_at_least";
}

std::string DtypeTable::read(
    const std::string& line, bool only_known, unsigned file) {
  const auto space = std::min(line.find(' '), line.size());
  const std::string key = line.substr(0, space);
  const std::string words = line.substr(space);
  if (key == "@dtypes") {
    return read_name(words);
  }
  if (key == "@lacks") {
    return read_lack(words);
  }
  return read_row(words, key == "@takes", only_known, file);
}

std::string DtypeTable::add_dtypes(
    const std::string& words, std::uint64_t& bits) const {
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    const auto known =
        std::find(std::next(kTorchNames), std::end(kTorchNames), word);
    const auto named = names_.find(word);
    if (known != std::end(kTorchNames)) {
      bits |= NPU_DTYPE_BIT(std::distance(std::begin(kTorchNames), known));
    } else if (named != names_.end()) {
      bits |= named->second;
    } else {
      return "no line of a profile: '" + word +
             "' is no dtype of PyTorch's, and no @dtypes line before names it";
    }
  }
  return bits == 0 ? "no line of a profile: it names no dtype" : "";
}

// "@dtypes floats = float16 bfloat16 float32".
std::string DtypeTable::read_name(const std::string& words) {
  const auto equals = words.find('=');
  std::istringstream stream(words.substr(0, equals));
  std::string name;
  std::string more;
  stream >> name >> more;
  if (equals == std::string::npos || !is_word(name, "") || !more.empty()) {
    return "no line of a profile: it is '@dtypes NAME = DTYPE...'";
  }
  std::uint64_t itself = 0;
  if (add_dtypes(name, itself).empty()) {
    return "no line of a profile: '" + name + "' has a meaning already";
  }
  std::uint64_t bits = 0;
  std::string wrong = add_dtypes(words.substr(equals + 1), bits);
  names_[name] = bits;
  return wrong;
}

// "@lacks bfloat16".
std::string DtypeTable::read_lack(const std::string& words) {
  return add_dtypes(words, lacked_);
}

// "@takes floats: mm bmm".
std::string DtypeTable::read_row(
    const std::string& words, bool exact, bool only_known, unsigned file) {
  const auto colon = words.find(": ");
  if (colon == std::string::npos) {
    return "no line of a profile: it is '@takes DTYPE...: OPERATOR...'";
  }
  Row row{{}, file};
  if (std::string wrong = add_dtypes(words.substr(0, colon), row.dtypes.native);
      !wrong.empty()) {
    return wrong;
  }
  row.dtypes.refused = exact ? kAll & ~row.dtypes.native : 0;
  std::istringstream stream(words.substr(colon + 1));
  bool any = false;
  for (std::string word; stream >> word; any = true) {
    if (!is_word(word, ":.")) {
      return "no line of a profile: '" + word + "' is no name of an operator";
    }
    const std::string name =
        word.find("::") == std::string::npos ? "aten::" + word : word;
    if (only_known && name.starts_with("aten::") && !is_operator(name)) {
      return "no line of a profile: '" + word + "' is no operator of PyTorch's";
    }
    const auto [known, is_new] = rows_.try_emplace(name, row);
    if (!is_new && known->second.file == file) {
      return "no line of a profile: '" + word + "' has a row already";
    }
    known->second = row;
  }
  return any ? "" : "no line of a profile: it names no operator";
}

// The overload's own row, else its operator's; an in-place form has its
// functional form's.
const DtypeTable::Row* DtypeTable::row_of(const std::string& overload) const {
  const auto dot = overload.find('.', overload.find("::"));
  const std::string base = overload.substr(0, dot);
  for (const std::string& name : {overload, base, without_underscore(base)}) {
    if (const auto found = rows_.find(name); found != rows_.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

Dtypes DtypeTable::find(const std::string& overload) const {
  const Row* const row = row_of(overload);
  Dtypes found = row != nullptr ? row->dtypes : Dtypes{};
  found.native &= ~lacked_;
  found.refused |= lacked_;
  return found;
}

}  // namespace npu::profile
