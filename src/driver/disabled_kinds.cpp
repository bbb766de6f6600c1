// SPDX-License-Identifier: Apache-2.0
// NPU_DISABLE_KIND: kinds the user switched off.
#include "driver/driver.h"
#include "driver/env.h"
#include "driver/status.h"
#include "driver/words.h"
#include "npu/kinds.h"

namespace npu {

std::vector<std::uint32_t> disabled_kinds() {
  std::vector<std::uint32_t> slots;
  const auto value = env::text("NPU_DISABLE_KIND");
  if (!value) {
    return slots;
  }
  for (const std::string& word : split(*value, ',')) {
    const std::uint32_t slot = npu_kind_find(word.c_str());
    if (slot == 0) {
      std::vector<std::string> known;
      for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
        known.emplace_back(npu_kind_at(i)->name);
      }
      const std::string close = nearest(word, known);
      throw Error(
          NPU_E_INVALID,
          "npu: environment: NPU_DISABLE_KIND names '" + word +
              "', which is no kind" +
              (close.empty() ? "" : " (did you mean '" + close + "'?)") +
              ". Allowed, comma separated: " + join(known, ", ") + ".");
    }
    slots.push_back(slot);
  }
  return slots;
}

}  // namespace npu
