// SPDX-License-Identifier: Apache-2.0
// The table of slots has every function pointer of every table struct once, and
// what is made from it works: no null slot, layers that call what is below.
#include "driver/slots.h"

#include <set>
#include <string>

#include "driver/services.h"
#include "driver/test_call.h"

namespace npu {
namespace {

// Offsets of the rows whose slot lies in `table` of `tables`.
template <class Table>
std::multiset<std::size_t> offsets(DriverTables& tables, Table& table) {
  std::multiset<std::size_t> found;
  const auto* const begin = reinterpret_cast<const char*>(&table);
  for_each_slot([&](auto slot) {
    const auto* const at =
        reinterpret_cast<const char*>(&decltype(slot)::in(tables));
    if (at >= begin && at < begin + sizeof(table)) {
      found.insert(static_cast<std::size_t>(at - begin));
    }
  });
  return found;
}

// A table is its size, four bytes of nothing, and function pointers.
template <class Table>
std::multiset<std::size_t> all_functions() {
  std::multiset<std::size_t> all;
  for (std::size_t at = 8; at < sizeof(Table); at += sizeof(void (*)())) {
    all.insert(at);
  }
  return all;
}

TEST(Slots, AreEveryFunctionOfEveryTableOnce) {
  DriverTables t;
  EXPECT_EQ(offsets(t, t.device), all_functions<npu_device_table>());
  EXPECT_EQ(offsets(t, t.memory), all_functions<npu_memory_table>());
  EXPECT_EQ(offsets(t, t.stream), all_functions<npu_stream_table>());
  EXPECT_EQ(offsets(t, t.event), all_functions<npu_event_table>());
  EXPECT_EQ(offsets(t, t.op), all_functions<npu_op_table>());
  EXPECT_EQ(
      offsets(t, t.driver),
      (std::multiset<std::size_t>{
          offsetof(npu_driver, get_interface),
          offsetof(npu_driver, shutdown)}));
}

TEST(Slots, OfALoadedDriverAreNeverNull) {
  for (const char* name : {"tiny_short", "tiny_1_0", "tiny_1_1", "tiny"}) {
    const Driver& driver = *Driver::load(
        std::string(NPU_TEST_DRIVER_DIR "/libnpu_") + name + ".so");
    for_each_slot([&](auto slot) {
      EXPECT_NE(decltype(slot)::in(driver.tables()), nullptr)
          << name << " " << kSlotNames[slot.id];
    });
  }
}

// ---- op.prepare ----

class Prepare : public test::Tiny {
 protected:
  Prepare() : Tiny("tiny_extras") {}
  void SetUp() override {
    Tiny::SetUp();
    prepared_ = counter("tiny_prepared");
    *prepared_ = 0;
  }
  // One fill; `change` is applied to the call first.
  template <class Change>
  void fill(Change change, npu_dtype dtype = NPU_F32) {
    const test::Holder out({4}, {1}, dtype);
    npu_fill_attrs attrs{};
    Call call(NPU_KIND_FILL, 0, "aten::fill_");
    build::fill(call, out.tensor, attrs);
    change(call.frame());
    EXPECT_EQ(call.run(*driver_, stream_), NPU_OK);
  }
  int* prepared_ = nullptr;
};

TEST_F(Prepare, IsAskedOncePerKeyAheadOfTheRun) {
  for (int i = 0; i < 3; ++i) {
    fill([](npu_call&) {});
  }
  EXPECT_EQ(*prepared_, 1);
  EXPECT_EQ(*counter("tiny_prepared_slot"), int{NPU_KIND_FILL});
  fill([](npu_call& call) { call.compute_dtype = NPU_F64; });
  EXPECT_EQ(*prepared_, 2);
  fill([](npu_call&) {}, NPU_I64);
  EXPECT_EQ(*prepared_, 3);
}

TEST_F(Prepare, IsNotAskedForACallThatIsRecordedOrPlanned) {
  npu_call call{};
  const test::Holder out({4}, {1}, NPU_I64);
  call.size = sizeof(call);
  call.slot = NPU_KIND_FILL;
  call.n_out = 1;
  call.tensors = &out.tensor;
  call.flags = NPU_CALL_CAPTURE;
  EXPECT_EQ(driver_->run(stream_, call), NPU_OK);
  EXPECT_EQ(*prepared_, 0);
  call.flags = 0;
  EXPECT_EQ(driver_->run(stream_, call), NPU_OK);
  EXPECT_EQ(*prepared_, 1) << "a recorded call does not count as prepared";
  test::Gemm gemm(4);
  gemm.call.plan(*driver_, 0);
  EXPECT_EQ(gemm.call.run(*driver_, stream_), NPU_OK);
  EXPECT_EQ(*prepared_, 1) << "gemm is planned";
}

TEST_F(Prepare, ADriverWithoutItIsCalledDirectly) {
  const Driver& plain = *Driver::load(NPU_TEST_DRIVER_DIR "/libnpu_tiny.so");
  EXPECT_NE(plain.op().run, driver_->op().run);
  EXPECT_EQ(plain.op().prepare(0, nullptr), NPU_OK) << "the default";
}

}  // namespace
}  // namespace npu
