// SPDX-License-Identifier: Apache-2.0
// Calls with dtypes that the imitated device refuses, or of which its tables
// say nothing: counted, and the refused ones warned about or, with
// NPU_PROFILE_STRICT=1, raised as there. Calls whose dtypes it takes cost one
// load.
#pragma once

#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "npu/op.h"

namespace npu {

// Dtypes that no index and no mask has.
inline constexpr std::uint64_t kFloatingDtypes =
    ~(NPU_DTYPE_BIT(NPU_ABSENT) | NPU_DTYPE_BIT(NPU_BOOL) |
      NPU_DTYPE_BIT(NPU_U8) | NPU_DTYPE_BIT(NPU_I8) | NPU_DTYPE_BIT(NPU_I16) |
      NPU_DTYPE_BIT(NPU_I32) | NPU_DTYPE_BIT(NPU_I64) | NPU_DTYPE_BIT(NPU_U16) |
      NPU_DTYPE_BIT(NPU_U32) | NPU_DTYPE_BIT(NPU_U64));

// A call's judged dtypes: the first tensor's, and of the others those that are
// floating point or complex.
class JudgedDtypes {
 public:
  void see(npu_dtype dtype) noexcept {
    const std::uint64_t bit = NPU_DTYPE_BIT(dtype) & ~std::uint64_t{1};
    bits_ |= bits_ == 0 ? bit : bit & kFloatingDtypes;
  }
  std::uint64_t bits() const noexcept {
    return bits_;
  }

 private:
  std::uint64_t bits_ = 0;
};

struct DtypeRow;

// Of one overload, wherever its calls pass; several may stand for one operator.
class DtypeJudge {
 public:
  bool takes(std::uint64_t bits) const noexcept {
    return C10_LIKELY((bits & ~native_.load(std::memory_order_relaxed)) == 0);
  }
  // Before a call that takes() does not know: raises with NPU_PROFILE_STRICT=1
  // for what the device refuses. False when there is nothing to count.
  bool may_run(const char* overload, std::uint64_t bits);
  // That call has run.
  void count(std::uint64_t bits);

 private:
  const DtypeRow* find(const char* overload);

  std::atomic<std::uint64_t> native_{0};
  std::atomic<DtypeRow*> row_{nullptr};
};

// Calls of which the profile's tables say nothing.
struct UnknownDtype {
  std::string name;   // "aten::add"
  std::string dtype;  // "float64"
  std::uint64_t calls = 0;
  std::string call_site;
};
std::vector<UnknownDtype> unknown_dtypes();
void unknown_dtypes_reset();

}  // namespace npu
