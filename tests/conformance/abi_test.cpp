// SPDX-License-Identifier: Apache-2.0
// Group abi: version, sizes, required slots, what the op table says of itself.
#include <cstring>
#include <set>

#include "kit.h"

namespace npu::kit {
namespace {

TEST(abi, VersionAndName) {
  EXPECT_EQ(driver().abi >> 16, NPU_ABI_MAJOR);
  EXPECT_GE(driver().size, offsetof(npu_driver, get_interface));
  ASSERT_NE(driver().name, nullptr);
  EXPECT_GT(std::strlen(driver().name), 0u);
  EXPECT_NE(driver().vendor, nullptr);
  EXPECT_NE(driver().version, nullptr);
}

TEST(abi, TablesSayTheirSize) {
  EXPECT_GE(device_table().size, offsetof(npu_device_table, can_access_peer));
  EXPECT_GE(memory_table().size, offsetof(npu_memory_table, host_open));
  EXPECT_GE(stream_table().size, offsetof(npu_stream_table, priority_range));
  EXPECT_GE(event_table().size, offsetof(npu_event_table, native_handle));
  EXPECT_GE(op_table().size, offsetof(npu_op_table, release_plan));
}

TEST(abi, RequiredSlots) {
#define NPU_REQUIRED(table, slot) EXPECT_NE(table().slot, nullptr) << #slot
  NPU_REQUIRED(device_table, count);
  NPU_REQUIRED(device_table, open);
  NPU_REQUIRED(device_table, close);
  NPU_REQUIRED(device_table, properties);
  NPU_REQUIRED(device_table, synchronize);
  NPU_REQUIRED(device_table, memory_info);
  NPU_REQUIRED(memory_table, alloc);
  NPU_REQUIRED(memory_table, free);
  NPU_REQUIRED(memory_table, host_alloc);
  NPU_REQUIRED(memory_table, host_free);
  NPU_REQUIRED(memory_table, copy_to_device);
  NPU_REQUIRED(memory_table, copy_to_host);
  NPU_REQUIRED(memory_table, copy_on_device);
  NPU_REQUIRED(memory_table, set_bytes);
  NPU_REQUIRED(memory_table, pointer_info);
  NPU_REQUIRED(stream_table, create);
  NPU_REQUIRED(stream_table, destroy);
  NPU_REQUIRED(stream_table, synchronize);
  NPU_REQUIRED(stream_table, query);
  NPU_REQUIRED(stream_table, wait_event);
  NPU_REQUIRED(stream_table, host_call);
  NPU_REQUIRED(event_table, create);
  NPU_REQUIRED(event_table, destroy);
  NPU_REQUIRED(event_table, record);
  NPU_REQUIRED(event_table, query);
  NPU_REQUIRED(event_table, synchronize);
  NPU_REQUIRED(event_table, elapsed_ms);
  NPU_REQUIRED(op_table, find);
  NPU_REQUIRED(op_table, caps);
  NPU_REQUIRED(op_table, plan);
  NPU_REQUIRED(op_table, run);
#undef NPU_REQUIRED
  if (device_count() > 1) {
    EXPECT_NE(memory_table().copy_peer, nullptr);
  }
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
      EXPECT_LE(caps.plan_use, kind->plan_use);
      EXPECT_LE(caps.dtype_rule, NPU_DTYPES_FREE);
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
