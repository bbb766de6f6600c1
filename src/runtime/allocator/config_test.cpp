// SPDX-License-Identifier: Apache-2.0
// Options: what is accepted, what is refused and with which words.
#include "runtime/allocator/config.h"

#include <gtest/gtest.h>

#include "driver/status.h"

namespace npu::memory {
namespace {

Config parsed(const char* text) {
  Config config;
  parse_config(text, "VARIABLE", config);
  return config;
}

std::string refusal(const char* text) {
  Config config;
  try {
    parse_config(text, "VARIABLE", config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), NPU_E_INVALID);
    EXPECT_EQ(config, Config{}) << "changed by a refused text: " << text;
    return error.what();
  }
  return "accepted";
}

TEST(Config, EmptyTextChangesNothing) {
  EXPECT_EQ(parsed(""), Config{});
}

TEST(Config, ReadsEveryOptionWithAnEffect) {
  const Config config = parsed(
      "max_split_size_mb:128, garbage_collection_threshold:0.8,"
      "max_non_split_rounding_mb:64,large_segment_size_mb:40,"
      "per_process_memory_fraction:0.5,roundup_power2_divisions:4");
  EXPECT_EQ(config.max_split_size, 128 * kMiB);
  EXPECT_EQ(config.garbage_collection_threshold, 0.8);
  EXPECT_EQ(config.max_non_split_rounding, 64 * kMiB);
  EXPECT_EQ(config.large_segment, 40 * kMiB);
  EXPECT_EQ(config.memory_fraction, 0.5);
  EXPECT_EQ(config.roundup_divisions[0], 4u);
}

TEST(Config, AcceptsWhatHasNoEffectHere) {
  EXPECT_EQ(
      parsed("expandable_segments:True,base_addr_aligned_kb:16,page_size:1g,"
             "segment_size_mb:20,multi_stream_lazy_reclaim:False,"
             "release_lock_on_npumalloc:True,throw_on_npumalloc_oom:True,"
             "pinned_use_background_threads:True,"
             "pin_memory_expandable_segments:False,pinned_mem_register:True,"
             "pinned_reserve_segment_size_mb:0,"
             "pinned_max_round_threshold_mb:8,pinned_max_cached_size_mb:64"),
      Config{});
}

TEST(Config, RefusalsNameTheOptionTheValueAndWhatIsAllowed) {
  EXPECT_EQ(
      refusal("max_split_size_mb:20"),
      "npu: VARIABLE: option max_split_size_mb has the value '20'. Allowed: a "
      "whole number of MiB above 20.");
  const std::string unknown = refusal("max_split_size:20");
  EXPECT_NE(unknown.find("unknown option 'max_split_size'"), std::string::npos);
  EXPECT_NE(unknown.find("page_size"), std::string::npos);
}

TEST(Config, RefusesBadValues) {
  for (const char* text :
       {"max_split_size_mb:x",
        "max_split_size_mb:",
        "max_split_size_mb",
        "max_split_size_mb:-1",
        "max_split_size_mb:99999999999999999999",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1",
        "garbage_collection_threshold:nan",
        "per_process_memory_fraction:1.1",
        "expandable_segments:1",
        "base_addr_aligned_kb:17",
        "page_size:2m",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[",
        "roundup_power2_divisions:[]",
        "roundup_power2_divisions:[256]",
        "roundup_power2_divisions:[100:2]",
        "large_segment_size_mb:19",
        "pinned_max_cached_size_mb:1.5",
        ",",
        ":"}) {
    EXPECT_NE(refusal(text), "accepted") << text;
  }
}

TEST(Config, RoundsToUnits) {
  const Config config;
  EXPECT_EQ(config.rounded(1), 512u);
  EXPECT_EQ(config.rounded(512), 512u);
  EXPECT_EQ(config.rounded(513), 1024u);
}

TEST(Config, RoundsToPartsOfAPowerOfTwo) {
  const Config config = parsed("roundup_power2_divisions:4");
  // Between 1024 and 2048 KiB the steps are 256 KiB.
  EXPECT_EQ(config.rounded(1200 * kKiB), 1280 * kKiB);
  EXPECT_EQ(config.rounded(1280 * kKiB), 1280 * kKiB);
  EXPECT_EQ(config.rounded(2000 * kKiB), 2048 * kKiB);
  EXPECT_EQ(config.rounded(600), 1024u);
}

TEST(Config, DivisionsByInterval) {
  const Config config =
      parsed("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
  EXPECT_EQ(config.rounded(100 * kMiB + 1), 100 * kMiB + 512);
  EXPECT_EQ(config.rounded(300 * kMiB), 384 * kMiB);
  EXPECT_EQ(config.rounded(600 * kMiB), 640 * kMiB);
  EXPECT_EQ(config.rounded(1100 * kMiB), 1152 * kMiB);
}

TEST(Config, SegmentSizes) {
  const Config config;
  EXPECT_EQ(config.segment_bytes(512), 2 * kMiB);
  EXPECT_EQ(config.segment_bytes(kMiB), 2 * kMiB);
  EXPECT_EQ(config.segment_bytes(kMiB + 512), 20 * kMiB);
  EXPECT_EQ(config.segment_bytes(11 * kMiB), 12 * kMiB);
}

}  // namespace
}  // namespace npu::memory
