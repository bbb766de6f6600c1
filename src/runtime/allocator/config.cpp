// SPDX-License-Identifier: Apache-2.0
// Parsing the allocator's options: one table row per option.
#include "runtime/allocator/config.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <optional>

#include "driver/status.h"

namespace npu::memory {
namespace {

struct Option {
  const char* name;
  const char* allowed;
  // False when the value is not one of those allowed.
  bool (*apply)(std::string_view value, Config& config);
};

std::optional<std::size_t> integer(std::string_view text) {
  if (text.empty() || text.size() > 12) {
    return std::nullopt;
  }
  std::size_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') {
      return std::nullopt;
    }
    value = value * 10 + static_cast<std::size_t>(c - '0');
  }
  return value;
}

std::optional<double> real(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || *end != '\0' || value != value) {
    return std::nullopt;
  }
  return value;
}

bool is_bool(std::string_view text, Config&) {
  return text == "True" || text == "False";
}

bool is_count(std::string_view text, Config&) {
  return integer(text).has_value();
}

bool megabytes(std::string_view text, std::size_t least, std::size_t& out) {
  const auto value = integer(text);
  if (!value || *value < least || *value > (kAbsurd / kMiB)) {
    return false;
  }
  out = *value * kMiB;
  return true;
}

bool max_split_size(std::string_view text, Config& config) {
  return megabytes(text, 21, config.max_split_size);
}

bool max_non_split_rounding(std::string_view text, Config& config) {
  return megabytes(text, 21, config.max_non_split_rounding);
}

bool large_segment(std::string_view text, Config& config) {
  return megabytes(text, 20, config.large_segment);
}

bool garbage_collection(std::string_view text, Config& config) {
  const auto value = real(text);
  if (!value || *value <= 0 || *value >= 1) {
    return false;
  }
  config.garbage_collection_threshold = *value;
  return true;
}

bool memory_fraction(std::string_view text, Config& config) {
  const auto value = real(text);
  if (!value || *value < 0 || *value > 1) {
    return false;
  }
  config.memory_fraction = *value;
  return true;
}

bool address_alignment(std::string_view text, Config&) {
  const auto value = integer(text);
  return value && *value <= 16;
}

bool page_size(std::string_view text, Config&) {
  return text == "1g";
}

std::optional<std::size_t> divisions(std::string_view text) {
  const auto value = integer(text);
  if (!value || (*value != 0 && !std::has_single_bit(*value))) {
    return std::nullopt;
  }
  return value;
}

// "256:1": 1 part below 256 MiB; the next pair goes on from there, ">:8" is
// for the rest. `from` is the interval this pair begins at.
bool roundup_pair(std::string_view pair, std::size_t& from, Config& config) {
  const std::size_t colon = pair.find(':');
  if (colon == std::string_view::npos) {
    return false;
  }
  const auto parts = divisions(pair.substr(colon + 1));
  const std::string_view bound = pair.substr(0, colon);
  const bool last = bound == ">";
  const std::size_t size = last ? 1 : integer(bound).value_or(0);
  if (!parts || !std::has_single_bit(size)) {
    return false;
  }
  for (std::size_t i = from; i < Config::kIntervals; ++i) {
    config.roundup_divisions[i] = *parts;
  }
  const auto log = static_cast<std::size_t>(std::countr_zero(size));
  from = last ? Config::kIntervals : std::min(log, Config::kIntervals);
  return true;
}

bool roundup(std::string_view text, Config& config) {
  if (const auto all = divisions(text)) {
    config.roundup_divisions.fill(*all);
  } else {
    if (text.size() < 3 || text.front() != '[' || text.back() != ']') {
      return false;
    }
    text = text.substr(1, text.size() - 2);
    std::size_t from = 0;
    while (!text.empty()) {
      const std::size_t comma = std::min(text.find(','), text.size());
      if (!roundup_pair(text.substr(0, comma), from, config)) {
        return false;
      }
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
  }
  config.roundup = false;
  for (std::size_t parts : config.roundup_divisions) {
    config.roundup = config.roundup || parts > 1;
  }
  return true;
}

constexpr const char* kTrueOrFalse = "True or False";
constexpr const char* kAnyMegabytes = "a whole number of MiB";

constexpr Option kOptions[] = {
    {"max_split_size_mb", "a whole number of MiB above 20", max_split_size},
    {"max_non_split_rounding_mb",
     "a whole number of MiB above 20",
     max_non_split_rounding},
    {"large_segment_size_mb",
     "a whole number of MiB from 20 on",
     large_segment},
    {"garbage_collection_threshold",
     "a number between 0 and 1, both excluded",
     garbage_collection},
    {"per_process_memory_fraction", "a number from 0 to 1", memory_fraction},
    {"roundup_power2_divisions",
     "a power of two, or a list such as [256:1,512:2,1024:4,>:8]",
     roundup},
    {"expandable_segments", kTrueOrFalse, is_bool},
    {"base_addr_aligned_kb", "a whole number from 0 to 16", address_alignment},
    {"page_size", "1g", page_size},
    {"segment_size_mb", kAnyMegabytes, is_count},
    {"multi_stream_lazy_reclaim", kTrueOrFalse, is_bool},
    {"release_lock_on_npumalloc", kTrueOrFalse, is_bool},
    {"throw_on_npumalloc_oom", kTrueOrFalse, is_bool},
    {"pinned_use_background_threads", kTrueOrFalse, is_bool},
    {"pin_memory_expandable_segments", kTrueOrFalse, is_bool},
    {"pinned_mem_register", kTrueOrFalse, is_bool},
    {"pinned_reserve_segment_size_mb", kAnyMegabytes, is_count},
    {"pinned_max_round_threshold_mb", kAnyMegabytes, is_count},
    {"pinned_max_cached_size_mb", kAnyMegabytes, is_count},
};

[[noreturn]] void refuse(std::string_view source, const std::string& what) {
  throw Error(NPU_E_INVALID, "npu: " + std::string(source) + ": " + what);
}

void apply(
    std::string_view key,
    std::string_view value,
    std::string_view source,
    Config& config) {
  std::string names;
  for (const Option& option : kOptions) {
    if (key == option.name) {
      if (!option.apply(value, config)) {
        refuse(
            source,
            "option " + std::string(key) + " has the value '" +
                std::string(value) + "'. Allowed: " + option.allowed + ".");
      }
      return;
    }
    names += names.empty() ? "" : ", ";
    names += option.name;
  }
  refuse(
      source,
      "unknown option '" + std::string(key) + "'. Allowed: " + names + ".");
}

// Where the "key:value" that begins `text` ends: a comma outside brackets.
std::size_t pair_end(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '[' ? 1 : text[i] == ']' ? -1 : 0;
    if (text[i] == ',' && depth <= 0) {
      return i;
    }
  }
  return text.size();
}

}  // namespace

std::size_t Config::segment_bytes(std::size_t rounded) const {
  if (is_small(rounded)) {
    return kSmallSegment;
  }
  if (rounded < kOwnSegment) {
    return large_segment;
  }
  return round_up(rounded, kSegmentRound);
}

std::size_t Config::rounded_power2(std::size_t plain) const {
  const std::size_t mib = plain / kMiB;
  const std::size_t interval =
      mib == 0 ? 0
               : std::min<std::size_t>(std::bit_width(mib) - 1, kIntervals - 1);
  const std::size_t parts = roundup_divisions[interval];
  if (parts <= 1 || plain <= kUnit * parts || plain >= kAbsurd) {
    return plain;
  }
  return round_up(plain, std::max(std::bit_floor(plain) / parts, kUnit));
}

void parse_config(std::string_view text, std::string_view source, Config& out) {
  Config config = out;
  std::string packed;
  for (char c : text) {
    if (c != ' ' && c != '\t') {
      packed += c;
    }
  }
  std::string_view rest = packed;
  while (!rest.empty()) {
    const std::size_t end = pair_end(rest);
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t colon = pair.find(':');
    if (colon == std::string_view::npos) {
      refuse(
          source,
          "'" + std::string(pair) +
              "' is not option:value. Write for example "
              "max_split_size_mb:128,garbage_collection_threshold:0.8.");
    }
    apply(pair.substr(0, colon), pair.substr(colon + 1), source, config);
  }
  out = config;
}

std::vector<std::string> config_keys() {
  std::vector<std::string> keys;
  for (const Option& option : kOptions) {
    keys.emplace_back(option.name);
  }
  return keys;
}

}  // namespace npu::memory
