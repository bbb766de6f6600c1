// SPDX-License-Identifier: Apache-2.0
// Group abi: what the driver and its op table say of themselves. Version, sizes
// and required slots are checked before any test (kit.cpp).
#include <cstring>
#include <set>

#include "kit.h"

namespace npu::kit {
namespace {

TEST(abi, SaysVendorAndVersion) {
  EXPECT_NE(driver().vendor, nullptr) << "npu_driver.vendor is NULL";
  EXPECT_NE(driver().version, nullptr) << "npu_driver.version is NULL";
}

TEST(abi, StandardKindsHaveTheirSlots) {
  for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
    const npu_kind_info* kind = npu_kind_at(i);
    std::uint32_t slot = 0;
    const npu_status status = op_table().find(kind->name, &slot);
    if (status == NPU_OK) {
      EXPECT_EQ(slot, kind->slot) << kind->name;
    } else {
      EXPECT_EQ(status, NPU_E_UNSUPPORTED) << kind->name;
    }
  }
}

// Every declared kind and code: caps are sane and plan use is what the kind
// allows.
TEST(abi, CapabilitiesAreSane) {
  int seen = 0;
  for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
    const npu_kind_info* kind = npu_kind_at(i);
    for (std::uint32_t code = 0; code < kind->n_codes; ++code) {
      npu_op_caps caps;
      if (!declares(kind->slot, code, &caps)) {
        continue;
      }
      ++seen;
      SCOPED_TRACE(std::string(kind->name) + "." + kind->codes[code]);
      EXPECT_LE(caps.plan_use, most_plan_use(driver(), *kind));
      EXPECT_LE(caps.dtype_rule, NPU_DTYPES_ROWS);
      if (caps.dtype_rule == NPU_DTYPES_ROWS) {
        EXPECT_TRUE(caps.n_dtype_rows > 0 && caps.dtype_rows != nullptr)
            << "NPU_DTYPES_ROWS and no dtype_rows";
      }
      EXPECT_LE(caps.max_ndim, static_cast<std::uint32_t>(NPU_MAX_DIMS));
      constexpr std::uint64_t kAll = (std::uint64_t{1} << NPU_DTYPE_COUNT) - 2;
      if (kind->n_out > 0) {
        EXPECT_NE(caps.dtypes[0], 0u);
      }
      for (const std::uint64_t mask : caps.dtypes) {
        EXPECT_EQ(mask & ~kAll, 0u) << "a dtype that does not exist";
      }
    }
  }
  if (seen == 0) {
    NPU_NOT_DECLARED("any kind");
  }
}

TEST(abi, CapsRespectCallersSize) {
  NPU_NEEDS_KIND(NPU_KIND_COPY, 0);
  npu_op_caps caps;
  std::memset(&caps, 0x5A, sizeof(caps));
  caps.size = offsetof(npu_op_caps, alias_mask);
  NPU_ASSERT_OK(op_table().caps(NPU_KIND_COPY, 0, &caps));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&caps);
  for (std::size_t i = offsetof(npu_op_caps, alias_mask); i < sizeof(caps);
       ++i) {
    ASSERT_EQ(bytes[i], 0x5A) << "byte " << i << " beyond the caller's size";
  }
}

TEST(abi, UnknownInterfacesAreNull) {
  if (!driver().get_interface) {
    NPU_NOT_DECLARED("optional interfaces");
  }
  EXPECT_EQ(driver().get_interface("no such interface/9"), nullptr);
}

}  // namespace
}  // namespace npu::kit
