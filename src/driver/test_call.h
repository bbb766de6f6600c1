// SPDX-License-Identifier: Apache-2.0
// For tests: the driver "tiny", tensors and a gemm call.
#pragma once

#include <dlfcn.h>

#include <vector>

#include "driver/build_call.h"
#include "driver/plan_cache.h"
#include "driver/test_env.h"

namespace npu::test {

// The test driver "tiny": fill for contiguous float32, gemm planned by shape.
class Tiny : public testing::Test {
 protected:
  explicit Tiny(const char* name = "tiny") : name_(name) {}
  void SetUp() override {
    driver_ = Driver::load(
        std::string(NPU_TEST_DRIVER_DIR) + "/libnpu_" + name_ + ".so");
    library_ =
        ::dlopen(driver_->path().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    clear_plans();
    made_ = counter("tiny_plans_made");
    released_ = counter("tiny_plans_released");
    *made_ = *released_ = 0;
    ASSERT_EQ(driver_->stream().create(0, 0, &stream_), NPU_OK);
  }
  void TearDown() override {
    driver_->stream().destroy(stream_);
    clear_plans();
  }
  int* counter(const char* name) {
    return static_cast<int*>(::dlsym(library_, name));
  }
  const char* const name_;

  Driver* driver_ = nullptr;
  void* library_ = nullptr;
  npu_stream stream_ = nullptr;
  int* made_ = nullptr;
  int* released_ = nullptr;
};

// A tensor with its own sizes and strides.
struct Holder {
  Holder(
      std::vector<std::int64_t> s,
      std::vector<std::int64_t> t,
      npu_dtype dtype = NPU_F32)
      : sizes(std::move(s)), strides(std::move(t)) {
    tensor.dtype = dtype;
    tensor.ndim = static_cast<std::uint16_t>(sizes.size());
    tensor.sizes = sizes.data();
    tensor.strides = strides.data();
    tensor.numel = 1;
    for (const auto size : sizes) {
      tensor.numel *= size;
    }
    tensor.data = tensor.storage = data;
    tensor.storage_bytes = sizeof(data);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  alignas(256) unsigned char data[4096] = {};
  npu_tensor tensor{};
};

// out = a @ b with square matrices of n rows.
struct Gemm {
  explicit Gemm(std::int64_t n)
      : out({n, n}, {n, 1}),
        a({n, n}, {n, 1}),
        b({n, n}, {1, n}),
        call(NPU_KIND_GEMM, 0, "aten::mm") {
    build::gemm(
        call, out.tensor, nullptr, a.tensor, b.tensor, nullptr, nullptr, attrs);
  }
  Holder out;
  Holder a;
  Holder b;
  npu_gemm_attrs attrs{};
  Call call;
};

}  // namespace npu::test
