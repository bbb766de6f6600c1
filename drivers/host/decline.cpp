// SPDX-License-Identifier: Apache-2.0
// Which kernels and capabilities are removed: chosen by a hash of seed, kind
// and code.
#include "decline.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "host.h"
#include "npu/kinds.h"

namespace npu::host {
namespace {

struct Decline {
  unsigned percent = 0;
  unsigned long long seed = 0;
};
Decline decline;

std::uint64_t mix(std::uint64_t x) noexcept {
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

}  // namespace

npu_status read_decline() {
  const char* const value = std::getenv("NPU_HOST_DECLINE");
  if (value == nullptr || *value == '\0') {
    return NPU_OK;
  }
  Decline given;
  int used = 0;
  const int n =
      std::sscanf(value, "%3u,%llu%n", &given.percent, &given.seed, &used);
  if (n != 2 || value[used] != '\0' || given.percent > 100) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: NPU_HOST_DECLINE=%s is not allowed: expected "
        "<percent>,<seed>, such as 30,1.",
        value);
  }
  decline = given;
  return NPU_OK;
}

bool apply_decline(
    std::uint32_t slot, std::uint32_t code, npu_op_caps& caps) noexcept {
  const npu_kind_info* const kind = npu_kind_of(slot);
  if (decline.percent == 0 || slot == NPU_KIND_COPY || slot == NPU_KIND_FILL ||
      kind == nullptr || std::strcmp(kind->family, "random") == 0) {
    return true;
  }
  std::uint64_t dice =
      mix(mix(decline.seed) ^ (std::uint64_t{slot} << 32 | code));
  const auto toss = [&dice](unsigned percent) {
    dice = mix(dice);
    return dice % 100 < percent;
  };
  if (!toss(decline.percent)) {
    return true;
  }
  if (toss(25)) {
    return false;
  }
  constexpr std::uint32_t kFlags[] = {
      NPU_CAP_STRIDED_IN,
      NPU_CAP_STRIDED_OUT,
      NPU_CAP_ALIAS,
      NPU_CAP_HOST_SCALAR,
      NPU_CAP_INDEX64,
  };
  for (const std::uint32_t flag : kFlags) {
    if (toss(50)) {
      caps.flags &= ~flag;
    }
  }
  if (toss(50)) {
    caps.min_alignment = 64;
  }
  if (toss(50) && caps.dtype_rule == NPU_DTYPES_CAST) {
    caps.dtype_rule = NPU_DTYPES_SAME;
  }
  if (toss(50)) {
    for (std::uint64_t& dtypes : caps.dtypes) {
      dtypes &= ~(NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16));
    }
  }
  return true;
}

}  // namespace npu::host
