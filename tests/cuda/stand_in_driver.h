// SPDX-License-Identifier: Apache-2.0
// The cuda driver on the stand-in of a machine with GPUs, as a host loads it.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "npu/comm.h"
#include "npu/op.h"

namespace stand_in_test {

inline thread_local std::string error_text;
inline std::string log_text;

inline const npu_host_services kServices = {
    .size = sizeof(npu_host_services),
    .abi = NPU_ABI,
    .log_level = [] { return NPU_LOG_WARNING; },
    .log = [](std::int32_t,
              const char* text) { log_text += std::string(text) + "\n"; },
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

// Opened once in a process; the environment is read then.
inline const npu_driver& driver() {
  static const npu_driver* const loaded = [] {
    setenv("NPU_CUDA_TRY", "comm,profiler", 1);
    setenv("NPU_CUDA_LIBRARIES", NPU_STAND_INS, 0);
    void* const library = dlopen(NPU_STAND_IN_DRIVER, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    const auto entry =
        reinterpret_cast<npu_driver_entry_fn>(dlsym(library, NPU_DRIVER_ENTRY));
    const npu_driver* out = nullptr;
    EXPECT_EQ(entry(NPU_ABI, &kServices, &out), NPU_OK);
    std::int32_t count = 0;
    EXPECT_EQ(out->device->count(&count), NPU_OK);
    for (npu_device device = 0; device < count; ++device) {
      EXPECT_EQ(out->device->open(device), NPU_OK) << error_text;
    }
    return out;
  }();
  return *loaded;
}

inline bool is_sentence(const std::string& text) {
  return !text.empty() && text.back() == '.' &&
         text.find('\n') == std::string::npos;
}
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace stand_in_test
