// SPDX-License-Identifier: Apache-2.0
// The library loads where there is no GPU, and says so. CUDA_VISIBLE_DEVICES
// hides one that is there.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "npu/kinds.h"
#include "npu/op.h"

namespace {

thread_local std::string error_text;

const npu_host_services kServices = {
    .size = sizeof(npu_host_services),
    .abi = NPU_ABI,
    .log_level = [] { return NPU_LOG_ERROR; },
    .log = [](std::int32_t, const char*) {},
    .set_error = [](const char* text) { error_text = text ? text : ""; },
    .last_error = [] { return error_text.c_str(); },
    .parallel_for =
        [](std::int64_t n, std::int64_t, npu_range_fn fn, void* context) {
          return fn(context, 0, n);
        },
    .range_push = [](const char*) {},
    .range_pop = [] {},
    .account = [](npu_device, std::int64_t, const char*) {},
    .stream_worker = [] {},
    .find_driver = nullptr,
    .torch_platform = [] { return NPU_PLATFORM_CUDA; },
};

const npu_driver& driver() {
  static const npu_driver* const loaded = [] {
    setenv("CUDA_VISIBLE_DEVICES", "no such GPU", 1);
    void* const library = dlopen(NPU_CUDA_DRIVER, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    const auto entry =
        reinterpret_cast<npu_driver_entry_fn>(dlsym(library, NPU_DRIVER_ENTRY));
    const npu_driver* out = nullptr;
    EXPECT_EQ(entry(NPU_ABI, &kServices, &out), NPU_OK);
    return out;
  }();
  return *loaded;
}

bool is_sentence(const std::string& text) {
  return !text.empty() && text.back() == '.' &&
         text.find('\n') == std::string::npos;
}

TEST(cuda_load, WithoutAGpuThereAreNoDevicesAndASentence) {
  std::int32_t count = -1;
  error_text.clear();
  ASSERT_EQ(driver().device->count(&count), NPU_OK);
  EXPECT_EQ(count, 0);
  EXPECT_TRUE(is_sentence(error_text)) << error_text;
  EXPECT_NE(error_text.find("no GPU"), std::string::npos) << error_text;
}

TEST(cuda_load, EveryEntryThenRefusesWithAReason) {
  const npu_driver& d = driver();
  void* memory = nullptr;
  npu_stream stream = nullptr;
  npu_event event = nullptr;
  std::uint64_t bytes = 0;
  npu_device_properties properties{};
  properties.size = sizeof(properties);
  const npu_status statuses[] = {
      d.device->open(0),
      d.device->properties(0, &properties),
      d.device->synchronize(0),
      d.device->memory_info(0, &bytes, &bytes),
      d.memory->alloc(0, 64, &memory),
      d.stream->create(0, 0, &stream),
      d.event->create(0, 0, &event),
      d.stream->synchronize(nullptr),
      d.event->synchronize(nullptr)};
  for (const npu_status status : statuses) {
    EXPECT_EQ(status, NPU_E_INVALID);
  }
  EXPECT_NE(error_text, "");
}

TEST(cuda_load, CapsNeedNoGpu) {
  npu_op_caps caps{};
  caps.size = sizeof(caps);
  EXPECT_EQ(driver().op->caps(NPU_KIND_COPY, 0, &caps), NPU_OK);
  EXPECT_EQ(driver().op->caps(NPU_KIND_BINARY, NPU_BINARY_ADD, &caps), NPU_OK);
  EXPECT_NE(caps.dtypes[0] & NPU_DTYPE_BIT(NPU_BF16), 0u);
  std::uint32_t slot = 0;
  EXPECT_EQ(driver().op->find("no such kind", &slot), NPU_E_UNSUPPORTED);
}

TEST(cuda_load, AnOrdinaryPointerIsUnknown) {
  int here = 0;
  npu_pointer_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(driver().memory->pointer_info(&here, &info), NPU_OK);
  EXPECT_EQ(info.kind, NPU_MEMORY_UNKNOWN);
  EXPECT_EQ(info.device, -1);
}

// What a kernel makes is known to the code that launches it: a formula of
// numbers is not taken for one of truth values.
TEST(cuda_load, OnlyTruthValuesAreStoredAsBools) {
  const auto stores_bools = [](std::uint32_t slot, std::uint32_t code) {
    npu_op_caps caps{};
    caps.size = sizeof(caps);
    EXPECT_EQ(driver().op->caps(slot, code, &caps), NPU_OK);
    return (caps.dtypes[0] & NPU_DTYPE_BIT(NPU_BOOL)) != 0;
  };
  EXPECT_TRUE(stores_bools(NPU_KIND_UNARY, NPU_UNARY_ISNAN));
  EXPECT_TRUE(stores_bools(NPU_KIND_COMPARE, NPU_COMPARE_LT));
  EXPECT_TRUE(stores_bools(NPU_KIND_TERNARY, NPU_TERNARY_ISCLOSE));
  EXPECT_FALSE(stores_bools(NPU_KIND_UNARY, NPU_UNARY_EXP));
  EXPECT_FALSE(stores_bools(NPU_KIND_UNARY, NPU_UNARY_FREXP));
  EXPECT_FALSE(stores_bools(NPU_KIND_BINARY, NPU_BINARY_SUB));
  EXPECT_FALSE(stores_bools(NPU_KIND_TERNARY, NPU_TERNARY_PRELU_GRAD));
}

// Every code of the map kinds that the driver has takes float32, as a call of
// PyTorch would bring it.
TEST(cuda_load, MapKindsTakeFloat32OrIntegers) {
  for (const std::uint32_t slot :
       {NPU_KIND_UNARY,
        NPU_KIND_UNARY_WITH,
        NPU_KIND_BINARY,
        NPU_KIND_COMPARE,
        NPU_KIND_TERNARY}) {
    const npu_kind_info& kind = *npu_kind_of(slot);
    int found = 0;
    for (std::uint32_t code = 0; code < kind.n_codes; ++code) {
      npu_op_caps caps{};
      caps.size = sizeof(caps);
      if (driver().op->caps(slot, code, &caps) != NPU_OK) {
        continue;
      }
      ++found;
      const std::uint64_t in = caps.dtypes[kind.n_out];
      EXPECT_NE(
          in & (NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_I32) |
                NPU_DTYPE_BIT(NPU_C64)),
          0u)
          << kind.name << "." << kind.codes[code];
    }
    EXPECT_GT(found, 0) << kind.name;
  }
}

// Where PyTorch has CUDA kernels, large calls of kinds that those compute
// faster are theirs.
TEST(cuda_load, LeavesSlowKindsToPyTorch) {
  const auto limit = [](std::uint32_t slot) {
    npu_op_caps caps{};
    caps.size = sizeof(caps);
    EXPECT_EQ(driver().op->caps(slot, 0, &caps), NPU_OK);
    return int{caps.numel_limit[NPU_BF16]};
  };
  EXPECT_EQ(limit(NPU_KIND_SOFTMAX), 16);
  EXPECT_EQ(limit(NPU_KIND_LAYER_NORM_GRAD), 16);
  EXPECT_EQ(limit(NPU_KIND_BINARY), 0);
}

}  // namespace
