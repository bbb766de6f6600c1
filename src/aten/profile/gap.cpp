// SPDX-License-Identifier: Apache-2.0
// What works here and fails on the device that the profile describes.
#include "aten/profile/gap.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>

#include "aten/profile/call_site.h"
#include "aten/profile/facts.h"
#include "aten/profile/policy.h"
#include "runtime/error.h"

namespace npu {
namespace {

struct Gaps {
  std::mutex mutex;
  std::map<std::string, Gap> rows;
};

Gaps& gaps() {
  static auto* const instance = new Gaps;
  return *instance;
}

const char* name_of(c10::MemoryFormat format) {
  return format == c10::MemoryFormat::ChannelsLast ? "channels_last"
                                                   : "channels_last_3d";
}

// The device has coalesce; making a sparse tensor and reading its parts
// computes nothing. Profiles list overloads of dense tensors.
bool sparse_works_there(std::string_view overload) {
  constexpr std::string_view kNames[] = {
      "_sparse_coo_tensor_with_dims",
      "_sparse_coo_tensor_with_dims_and_tensors",
      "_sparse_compressed_tensor_with_dims",
      "_sparse_csr_prod",
      "_sparse_csr_sum",
      "_coalesce",
      "_coalesced_",
      "_indices",
      "_nnz",
      "_values",
      "ccol_indices",
      "col_indices",
      "crow_indices",
      "dense_dim",
      "indices",
      "is_coalesced",
      "row_indices",
      "sparse_dim",
      "values"};
  overload.remove_prefix(std::min(overload.size(), overload.find("::") + 2));
  const std::string_view name = overload.substr(0, overload.find('.'));
  return std::find(std::begin(kNames), std::end(kNames), name) !=
         std::end(kNames);
}

}  // namespace

void count_gap(const std::string& feature) {
  Gaps& all = gaps();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Gap& gap = all.rows[feature];
  if (gap.calls++ == 0) {
    gap.feature = feature;
    gap.call_site = profile::current_call_site();
  }
}

void note_memory_format_slow(c10::MemoryFormat format) {
  static const bool refused = profile::refuses("channels_last");
  if (!refused) {
    return;
  }
  const std::string feature = std::string("memory_format=") + name_of(format);
  TORCH_CHECK(
      !profile::strict(),
      "npu: ",
      feature,
      " is not supported on ",
      profile::name(),
      ", whose tensors are contiguous. Leave it out, or unset "
      "NPU_PROFILE_STRICT, which asks for that device's errors.",
      ops_error(Code::kNotSupported));
  count_gap(feature);
}

void note_sparse(const std::string& overload) {
  static const bool refused = profile::refuses("sparse");
  if (!refused || sparse_works_there(overload)) {
    return;
  }
  TORCH_CHECK(
      !profile::strict(),
      "CAUTION: The operator '",
      overload,
      "' is not currently supported on the NPU backend.",
      ops_error(Code::kNotSupported));
  count_gap("sparse " + overload);
}

std::vector<Gap> gap_rows() {
  Gaps& all = gaps();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<Gap> rows;
  for (const auto& [feature, gap] : all.rows) {
    rows.push_back(gap);
  }
  return rows;
}

void gap_reset() {
  Gaps& all = gaps();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.rows.clear();
}

}  // namespace npu
