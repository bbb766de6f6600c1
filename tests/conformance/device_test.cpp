// SPDX-License-Identifier: Apache-2.0
// Group device: count, properties, memory, synchronize.
#include <cstring>

#include "kit.h"

namespace npu::kit {
namespace {

TEST(device, CountIsStable) {
  std::int32_t first = -1;
  std::int32_t second = -2;
  NPU_ASSERT_OK(device_table().count(&first));
  NPU_ASSERT_OK(device_table().count(&second));
  EXPECT_GE(first, 1);
  EXPECT_EQ(first, second);
}

TEST(device, PropertiesAreSane) {
  for (npu_device device = 0; device < device_count(); ++device) {
    const npu_device_properties p = properties(device);
    EXPECT_GT(std::strlen(p.name), 0u);
    EXPECT_NE(std::memchr(p.name, 0, sizeof(p.name)), nullptr);
    EXPECT_LE(p.host_access, NPU_HOST_ACCESS_EXPLICIT);
    EXPECT_GT(p.total_memory, 0u);
    EXPECT_GE(p.allocation_alignment, 64u);
    EXPECT_EQ(p.allocation_alignment & (p.allocation_alignment - 1), 0u)
        << "not a power of two";
    EXPECT_LE(p.needs_stream_lock, 1u);
    if (p.host_access == NPU_HOST_ACCESS_EXPLICIT) {
      EXPECT_NE(memory_table().host_open, nullptr);
      EXPECT_NE(memory_table().host_close, nullptr);
    }
  }
}

// A host side built against an older minor passes a smaller struct.
TEST(device, PropertiesRespectCallersSize) {
  npu_device_properties p{};
  std::memset(&p, 0x5A, sizeof(p));
  p.size = offsetof(npu_device_properties, total_memory);
  NPU_ASSERT_OK(device_table().properties(0, &p));
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&p);
  for (std::size_t i = p.size; i < sizeof(p); ++i) {
    ASSERT_EQ(bytes[i], 0x5A) << "byte " << i << " beyond the caller's size";
  }
}

TEST(device, UuidsDiffer) {
  for (npu_device a = 0; a < device_count(); ++a) {
    for (npu_device b = a + 1; b < device_count(); ++b) {
      const npu_device_properties pa = properties(a);
      const npu_device_properties pb = properties(b);
      EXPECT_NE(std::memcmp(pa.uuid, pb.uuid, sizeof(pa.uuid)), 0)
          << "devices " << a << " and " << b;
    }
  }
}

TEST(device, MemoryInfoFollowsAllocations) {
  std::uint64_t before = 0;
  std::uint64_t total = 0;
  NPU_ASSERT_OK(device_table().memory_info(0, &before, &total));
  EXPECT_LE(before, total);
  constexpr std::uint64_t kBytes = 4 << 20;
  void* ptr = nullptr;
  NPU_ASSERT_OK(memory_table().alloc(0, kBytes, &ptr));
  std::uint64_t during = 0;
  NPU_EXPECT_OK(device_table().memory_info(0, &during, &total));
  EXPECT_LE(during + kBytes, before);
  NPU_EXPECT_OK(memory_table().free(0, ptr));
  std::uint64_t after = 0;
  NPU_EXPECT_OK(device_table().memory_info(0, &after, &total));
  EXPECT_GE(after, during);
}

TEST(device, SynchronizeWaitsForAllStreams) {
  Stream one;
  Stream two;
  const std::vector<std::uint32_t> host(1 << 16, 7);
  Buffer a(host);
  Buffer b(host.size() * 4);
  Buffer c(host.size() * 4);
  NPU_ASSERT_OK(
      memory_table().copy_on_device(one.get(), b.data(), a.data(), a.bytes()));
  NPU_ASSERT_OK(
      memory_table().copy_on_device(two.get(), c.data(), a.data(), a.bytes()));
  NPU_ASSERT_OK(device_table().synchronize(0));
  EXPECT_EQ(stream_table().query(one.get()), NPU_OK);
  EXPECT_EQ(stream_table().query(two.get()), NPU_OK);
  EXPECT_EQ(b.get_as<std::uint32_t>(), host);
  EXPECT_EQ(c.get_as<std::uint32_t>(), host);
}

TEST(device, PeerAccessAnswers) {
  if (!device_table().can_access_peer) {
    NPU_NOT_DECLARED("can_access_peer");
  }
  for (npu_device a = 0; a < device_count(); ++a) {
    for (npu_device b = 0; b < device_count(); ++b) {
      std::int32_t yes = -1;
      NPU_EXPECT_OK(device_table().can_access_peer(a, b, &yes));
      EXPECT_TRUE(yes == 0 || yes == 1);
    }
  }
}

TEST(device, TrimIsHarmless) {
  if (!device_table().trim) {
    NPU_NOT_DECLARED("trim");
  }
  Buffer a(std::vector<std::uint8_t>(100, 42));
  NPU_EXPECT_OK(device_table().trim(0));
  EXPECT_EQ(a.get(), Bytes(100, 42));
}

}  // namespace
}  // namespace npu::kit
