// SPDX-License-Identifier: Apache-2.0
// The fault-injecting driver itself: tests built on it must be able to fail.
#include <dlfcn.h>

#include "driver/driver.h"
#include "driver/services.h"
#include "driver/slots.h"
#include "driver/test_env.h"
#include "npu/kinds.h"

namespace npu {
namespace {

using test::ScopedEnv;

constexpr const char* kPath = NPU_TEST_DRIVER_DIR "/libnpu_faulty.so";

class Faulty : public testing::Test {
 protected:
  void SetUp() override {
    const ScopedEnv base(
        "NPU_FAULTY_BASE", NPU_TEST_DRIVER_DIR "/libnpu_tiny.so");
    driver_ = Driver::load(kPath);
    void* library = ::dlopen(kPath, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    ASSERT_NE(library, nullptr);
    arm_ = reinterpret_cast<npu_status (*)(const char*)>(
        ::dlsym(library, "npu_faulty_arm"));
    live_ = reinterpret_cast<int64_t (*)(const char*)>(
        ::dlsym(library, "npu_faulty_live"));
    fired_ =
        reinterpret_cast<int64_t (*)()>(::dlsym(library, "npu_faulty_fired"));
    slot_ = reinterpret_cast<const char* (*)(int32_t)>(
        ::dlsym(library, "npu_faulty_slot"));
  }
  void TearDown() override {
    arm_("");
    host_services()->set_error(nullptr);
  }

  Driver* driver_ = nullptr;
  npu_status (*arm_)(const char*) = nullptr;
  int64_t (*live_)(const char*) = nullptr;
  int64_t (*fired_)() = nullptr;
  const char* (*slot_)(int32_t) = nullptr;
};

TEST_F(Faulty, ForwardsWhenNothingIsArmed) {
  EXPECT_STREQ(driver_->name(), "faulty");
  EXPECT_TRUE(driver_->has_kind(NPU_KIND_FILL));
  int32_t count = 0;
  EXPECT_EQ(driver_->device().count(&count), NPU_OK);
  EXPECT_EQ(count, 1);
  EXPECT_NE(
      Driver::load(NPU_TEST_DRIVER_DIR "/libnpu_tiny.so")->device().count,
      driver_->device().count);
}

TEST_F(Faulty, FailsTheNthCallOnceAndDoesNothingThen) {
  const int64_t live = live_("memory");
  const int64_t fired = fired_();
  ASSERT_EQ(arm_("memory.alloc:3:out_of_memory"), NPU_OK);
  void* blocks[4] = {};
  EXPECT_EQ(driver_->memory().alloc(0, 8, &blocks[0]), NPU_OK);
  EXPECT_EQ(driver_->memory().alloc(0, 8, &blocks[1]), NPU_OK);
  EXPECT_EQ(driver_->memory().alloc(0, 8, &blocks[2]), NPU_E_OUT_OF_MEMORY);
  EXPECT_STREQ(
      host_services()->last_error(), "faulty: memory.alloc fails, as asked");
  EXPECT_EQ(blocks[2], nullptr);
  EXPECT_EQ(driver_->memory().alloc(0, 8, &blocks[3]), NPU_OK);
  EXPECT_EQ(live_("memory"), live + 3);
  EXPECT_EQ(fired_(), fired + 1);
  for (void* block : {blocks[0], blocks[1], blocks[3]}) {
    EXPECT_EQ(driver_->memory().free(0, block), NPU_OK);
  }
  EXPECT_EQ(live_("memory"), live);
}

TEST_F(Faulty, EverySlotCanBeArmed) {
  int n = 0;
  for (; slot_(n) != nullptr; ++n) {
    EXPECT_EQ(arm_((std::string(slot_(n)) + ":1").c_str()), NPU_OK);
  }
  int expected = 0;
  for_each_slot(
      [&](auto slot) { expected += decltype(slot)::fallible ? 1 : 0; });
  EXPECT_EQ(n, expected);
  EXPECT_GE(n, 31);
}

TEST_F(Faulty, WrongSpecsAreRefused) {
  for (const char* bad :
       {"memory.aloc:1",
        "memory.alloc:0",
        "memory.alloc:x",
        "memory.alloc:1:sad",
        "memory.alloc:1:internal:2",
        "op.release_plan:1",  // cannot fail
        "alloc"}) {
    EXPECT_EQ(arm_(bad), NPU_E_INVALID) << bad;
    EXPECT_HAS(
        std::string(host_services()->last_error()),
        "Allowed: <table>.<slot>:<call>[:<status>]");
  }
}

}  // namespace
}  // namespace npu
