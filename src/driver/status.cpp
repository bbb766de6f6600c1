// SPDX-License-Identifier: Apache-2.0
// Names of status codes and decline reasons, and failures as exceptions.
#include "driver/status.h"

#include <array>

#include "driver/services.h"

namespace npu {

const char* status_name(npu_status status) noexcept {
  static constexpr std::array<const char*, 10> kNames = {
      "ok",
      "not ready",
      "invalid argument",
      "not supported",
      "out of memory",
      "earlier queued work failed",
      "device lost",
      "timed out",
      "shut down",
      "internal error"};
  const auto i = static_cast<std::size_t>(status);
  return status >= 0 && i < kNames.size() ? kNames[i] : "unknown status";
}

const char* reason_text(npu_reason reason) noexcept {
  static constexpr std::array<const char*, NPU_REASON_COUNT> kTexts = {
      "no reason given",
      "no kernel",
      "dtype not supported",
      "strides not supported",
      "too many dimensions",
      "size not supported",
      "needs 64-bit indexing",
      "alignment not supported",
      "output overlaps an input",
      "attribute value not supported",
      "storage format not supported",
      "math mode not supported",
      "no deterministic kernel",
      "not possible during graph capture",
      "needs too much workspace",
      "switched off by the user",
      "another way is faster",
      "not supported by this device generation",
      "arguments left to the CPU"};
  return reason < kTexts.size() ? kTexts[reason] : "unknown reason";
}

std::string failure_text(npu_status status, const char* what) {
  std::string text = "npu: ";
  text += what;
  text += ": ";
  text += status_name(status);
  if (status < NPU_OK || status > NPU_E_INTERNAL) {
    text += " " + std::to_string(status);
  }
  const char* said = host_services()->last_error();
  if (said != nullptr && *said != '\0') {
    text += " (";
    text += said;
    text += ")";
  }
  text += ".";
  return text;
}

void check(npu_status status, const char* what) {
  if (status == NPU_OK || status == NPU_NOT_READY) {
    return;
  }
  const std::string text = failure_text(status, what);
  host_services()->set_error(nullptr);
  throw Error(status, text);
}

}  // namespace npu
