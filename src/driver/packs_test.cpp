// SPDX-License-Identifier: Apache-2.0
// Operator packs: what is refused and in which words, and how rows are called.
#include "driver/services.h"
#include "driver/test_call.h"
#include "npu/pack.h"

namespace npu {
namespace {

using test::Holder;

std::string pack_path(const std::string& name) {
  return std::string(NPU_TEST_DRIVER_DIR) + "/libnpu_" + name + ".so";
}

struct DoubleAttrs {
  std::uint32_t size;
  float add;
};

class Packs : public test::Tiny {
 protected:
  std::string failure(const std::string& name) {
    return test::error_of([&] { driver_->add_pack(pack_path(name)); });
  }
  // The good pack, added once for all tests of this process.
  void* good() {
    if (driver_->find("acme.double/1") == 0) {
      EXPECT_TRUE(driver_->add_pack(pack_path("pack")));
    }
    return ::dlopen(
        pack_path("pack").c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  }
};

TEST_F(Packs, RowsAreFoundByNameAndRun) {
  void* const library = good();
  const std::uint32_t slot = driver_->find("acme.double/1");
  ASSERT_GE(slot, NPU_FIRST_PACK_SLOT);
  EXPECT_EQ(driver_->find("acme.none/1"), 0u);
  EXPECT_EQ(driver_->find("gemm"), NPU_KIND_GEMM);
  EXPECT_EQ(driver_->find("copy"), 0u) << "tiny has no copy";
  const auto* const seen =
      static_cast<const npu_driver* const*>(::dlsym(library, "pack_driver"));
  EXPECT_STREQ((*seen)->name, "tiny") << "services->find_driver";

  Holder out({2}, {1});
  Holder in({2}, {1});
  reinterpret_cast<float*>(in.data)[1] = 3;
  DoubleAttrs attrs{sizeof(DoubleAttrs), 0.5f};
  Call call(slot, 0, "acme::double");
  call.add_output(out.tensor);
  call.add_input(in.tensor);
  call.set_attrs(attrs);
  ASSERT_EQ(call.plan(*driver_, 0).answer, NPU_VERDICT_YES);
  ASSERT_EQ(call.run(*driver_, stream_), NPU_OK);
  EXPECT_EQ(reinterpret_cast<float*>(out.data)[1], 6.5f);
}

TEST_F(Packs, CapsAndAttributeSizesHold) {
  good();
  const std::uint32_t slot = driver_->find("acme.double/1");
  EXPECT_NE(driver_->caps(slot, 0), nullptr);
  EXPECT_EQ(driver_->caps(slot, 1), nullptr);
  Holder ints({2}, {1}, NPU_I64);
  Call wrong(slot, 0, "acme::double");
  wrong.add_output(ints.tensor);
  wrong.add_input(ints.tensor);
  EXPECT_EQ(wrong.plan(*driver_, 0).reason, NPU_REASON_DTYPE);
  Holder floats({2}, {1});
  Call bare(slot, 0, "acme::double");
  bare.add_output(floats.tensor);
  bare.add_input(floats.tensor);
  EXPECT_EQ(bare.run(*driver_, stream_), NPU_E_INVALID);
  EXPECT_HAS(
      std::string(host_services()->last_error()),
      "acme.double/1: the call has 0 bytes of attributes, the row takes 8");
  host_services()->set_error(nullptr);
}

TEST_F(Packs, PlansOfRowsAreCachedAndReleasedByTheRow) {
  void* const library = good();
  auto* const made = static_cast<int*>(::dlsym(library, "pack_plans_made"));
  auto* const released =
      static_cast<int*>(::dlsym(library, "pack_plans_released"));
  clear_plans();
  *made = *released = 0;
  for (int i = 0; i < 2; ++i) {
    Holder out({2}, {1});
    Call call(driver_->find("acme.planned/1"), 0, "acme::planned");
    call.add_output(out.tensor);
    ASSERT_EQ(call.plan(*driver_, 0).answer, NPU_VERDICT_YES);
    EXPECT_EQ(call.run(*driver_, stream_), NPU_OK);
  }
  EXPECT_EQ(*made, 1);
  clear_plans();
  EXPECT_EQ(*released, 1);
}

TEST_F(Packs, OfContract10AreTaken) {
  if (driver_->find("acme.old/1") == 0) {
    EXPECT_TRUE(driver_->add_pack(pack_path("pack_1_0")));
  }
  EXPECT_NE(driver_->find("acme.old/1"), 0u);
}

TEST_F(Packs, ForAnotherDriverAreNoError) {
  EXPECT_FALSE(driver_->add_pack(pack_path("pack_foreign")));
  EXPECT_STREQ(host_services()->last_error(), "");
}

TEST_F(Packs, BrokenOnesAreNamedWithTheReason) {
  const std::string path = pack_path("pack_major");
  EXPECT_EQ(
      failure("pack_major"),
      "npu: operator pack '" + path +
          "': built for contract 2.0, this host speaks 1.2. Rebuild the pack "
          "or install a matching opennpu.");
  EXPECT_HAS(failure("nowhere"), "no such file");
  EXPECT_HAS(
      failure("pack_no_entry"),
      "does not export 'npu_ops_entry', so it is no operator pack");
  EXPECT_HAS(
      failure("pack_fails"),
      "its entry failed: internal error (acme: "
      "no licence)");
  EXPECT_HAS(failure("pack_gives_null"), "gave no pack");
  EXPECT_HAS(failure("pack_no_run"), "'acme.norun/1' has no caps or no run");
  EXPECT_HAS(failure("pack_bad_name"), "row 0 is called 'Acme'");
  EXPECT_HAS(failure("pack_no_plan"), "'acme.noplan/1' has no plan");
  EXPECT_HAS(failure("pack_row_bytes"), "row_bytes is 8");
  EXPECT_HAS(failure("pack_no_rows"), "has no rows");
  EXPECT_HAS(failure("pack_twice"), "'acme.twice/1' is there twice");
  good();
  EXPECT_HAS(failure("pack"), "'acme.double/1' exists already");
  for (const char* name : {"acme.norun/1", "acme.noplan/1", "acme.twice/1"}) {
    EXPECT_EQ(driver_->find(name), 0u) << "nothing of a bad pack is used";
  }
  EXPECT_STREQ(host_services()->last_error(), "");
}

TEST_F(Packs, TheVariableLoadsTheGoodAndNamesTheBad) {
  Driver& driver = *Driver::load(NPU_TEST_DRIVER_DIR "/libnpu_tiny_extras.so");
  const std::string paths = pack_path("pack_major") + ":" + pack_path("pack");
  const test::ScopedEnv packs("NPU_OP_PACKS", paths.c_str());
  testing::internal::CaptureStderr();
  load_packs(driver);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_HAS(text, "libnpu_pack_major.so': built for contract 2.0");
  EXPECT_HAS(text, "The pack is left out.");
  EXPECT_EQ(text.find("libnpu_pack.so"), std::string::npos);
  EXPECT_NE(driver.find("acme.double/1"), 0u);
}

TEST_F(Packs, AnUnknownSlotIsDeclined) {
  Holder out({2}, {1});
  Call call(NPU_FIRST_PACK_SLOT + 900, 0, "acme::none");
  call.add_output(out.tensor);
  EXPECT_EQ(call.plan(*driver_, 0).reason, NPU_REASON_NO_KERNEL);
  EXPECT_EQ(call.run(*driver_, stream_), NPU_E_UNSUPPORTED);
  host_services()->set_error(nullptr);
}

}  // namespace
}  // namespace npu
