// SPDX-License-Identifier: Apache-2.0
// Generated kinds: attribute structs, unpackers, look-up and the validator.
#include "npu/kinds.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "driver/build_call.h"
#include "driver/test_env.h"
#include "npu/validate.h"

extern "C" int npu_header_c11();
int npu_header_cxx17();

namespace npu {
namespace {

TEST(Headers, WorkFromStrictCAndCxx17) {
  EXPECT_EQ(npu_header_c11(), 1);
  EXPECT_EQ(npu_header_cxx17(), 1);
}

TEST(KindTable, SlotsAndNamesGoBothWays) {
  for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
    const npu_kind_info* kind = npu_kind_at(i);
    EXPECT_EQ(npu_kind_of(kind->slot), kind);
    EXPECT_EQ(npu_kind_find(kind->name), kind->slot);
    EXPECT_GE(kind->n_codes, 1u);
    EXPECT_LE(kind->n_out + kind->n_in, unsigned{NPU_MAX_OPERANDS});
    for (std::uint32_t a = 0; a < kind->n_attrs; ++a) {
      EXPECT_LE(kind->attrs[a].offset + kind->attrs[a].bytes, kind->attr_bytes);
      EXPECT_GE(kind->attrs[a].offset, sizeof(std::uint32_t));
    }
  }
  EXPECT_EQ(npu_kind_at(NPU_KIND_COUNT), nullptr);
  EXPECT_EQ(npu_kind_of(0), nullptr);
  EXPECT_EQ(npu_kind_of(NPU_KIND_LIMIT), nullptr);
  EXPECT_STREQ(npu_kind_name(9999), "?");
  EXPECT_STREQ(npu_code_name(NPU_KIND_RANDOM, NPU_RANDOM_GAMMA), "gamma");
  EXPECT_STREQ(npu_code_name(NPU_KIND_RANDOM, 99), "?");
}

TEST(AttrStructs, HaveTheSizeTheTableSays) {
  EXPECT_EQ(sizeof(npu_fill_attrs), npu_kind_of(NPU_KIND_FILL)->attr_bytes);
  EXPECT_EQ(offsetof(npu_fill_attrs, size), 0u);
  EXPECT_EQ(sizeof(npu_random_attrs), npu_kind_of(NPU_KIND_RANDOM)->attr_bytes);
  EXPECT_EQ(
      offsetof(npu_multinomial_attrs, replacement),
      npu_kind_of(NPU_KIND_MULTINOMIAL)->attrs[1].offset);
}

// A call that is right, to be broken one way at a time.
class Frame : public testing::Test {
 protected:
  Frame() : call_(NPU_KIND_DROPOUT, 0, "aten::native_dropout") {
    attrs_.p = 0.5;
    attrs_.scale = 2;
    npu_tensor mask = tensor(mask_data_, NPU_BOOL);
    build::dropout(
        call_, tensor(data_, NPU_F32), &mask, tensor(data_, NPU_F32), attrs_);
  }
  npu_tensor tensor(void* data, npu_dtype dtype) {
    npu_tensor t{};
    t.data = t.storage = data;
    t.storage_bytes = 6 * npu_dtype_bytes(dtype);
    t.numel = 6;
    t.sizes = sizes_;
    t.strides = strides_;
    t.dtype = dtype;
    t.ndim = 2;
    return t;
  }
  npu_tensor& operand(std::uint32_t i) {
    return const_cast<npu_tensor&>(call_.frame().tensors[i]);
  }
  std::string problem() {
    char text[200];
    const npu_status status =
        npu_call_validate(&call_.frame(), text, sizeof(text));
    EXPECT_EQ(status == NPU_OK, text[0] == '\0');
    return text;
  }

  float data_[6] = {};
  bool mask_data_[6] = {};
  std::int64_t sizes_[2] = {2, 3};
  std::int64_t strides_[2] = {3, 1};
  npu_dropout_attrs attrs_{};
  Call call_;
};

TEST_F(Frame, BuilderAndUnpackerAgree) {
  EXPECT_EQ(problem(), "");
  const npu_dropout_args args = npu_dropout_unpack(&call_.frame());
  EXPECT_EQ(args.out->dtype, NPU_F32);
  EXPECT_EQ(args.mask->dtype, NPU_BOOL);
  EXPECT_EQ(args.in->data, data_);
  EXPECT_EQ(args.attrs.scale, 2);
  EXPECT_EQ(args.attrs.size, sizeof(npu_dropout_attrs));
  EXPECT_NE(args.in->flags & NPU_TENSOR_CONTIGUOUS, 0u);
}

TEST_F(Frame, AbsentOptionalIsNull) {
  operand(1) = npu_tensor{};
  EXPECT_EQ(problem(), "");
  EXPECT_EQ(npu_dropout_unpack(&call_.frame()).mask, nullptr);
}

TEST_F(Frame, AnOlderCallersAttributesReadAsZeroBehind) {
  call_.frame().attr_bytes = offsetof(npu_dropout_attrs, scale);
  attrs_.size = call_.frame().attr_bytes;
  EXPECT_EQ(problem(), "");
  const npu_dropout_args args = npu_dropout_unpack(&call_.frame());
  EXPECT_EQ(args.attrs.p, 0.5);
  EXPECT_EQ(args.attrs.scale, 0);
}

TEST_F(Frame, WrongFramesAreNamed) {
  npu_call& frame = call_.frame();
  const npu_call good = frame;
  const auto expect = [&](const char* part) {
    EXPECT_HAS(problem(), part);
    frame = good;
  };
  frame.size = 8;
  expect("frame size is 8");
  frame.slot = 0;
  expect("slot 0 is unknown");
  frame.code = 1;
  expect("dropout (aten::native_dropout): code 1 is unknown, the kind has 1");
  frame.n_in = 0;
  expect("operand 'in' is missing");
  frame.n_in = 2;
  expect("2 outputs and 2 inputs given, the kind has 2 and 1");
  frame.n_out = 1;
  frame.n_in = 1;
  expect("1 outputs and 1 inputs given");
  frame.flags = NPU_CALL_COUNT;
  expect("flagged as count");
  frame.math_mode = 9;
  expect("math mode 9");
  frame.rng.offset = 6;
  expect("random offset 6 is not a multiple of 4");
  frame.attrs = nullptr;
  frame.attr_bytes = 0;
  expect("attributes say size 0");
  frame.tensors = nullptr;
  expect("operands are NULL");
}

TEST_F(Frame, WrongOperandsAreNamed) {
  const npu_tensor good = operand(2);
  const auto expect = [&](const char* part) {
    EXPECT_HAS(problem(), part);
    operand(2) = good;
  };
  operand(2).dtype = 99;
  expect("operand 'in' has unknown dtype 99");
  operand(2).ndim = 65;
  expect("operand 'in' has 65 dimensions");
  operand(2).sizes = nullptr;
  expect("operand 'in' has no sizes or strides");
  operand(2).numel = 7;
  expect("operand 'in' says numel 7, its sizes give 6");
  operand(2).data = nullptr;
  expect("operand 'in' has no data");
  operand(2).storage_bytes = 20;
  expect("operand 'in' reaches bytes 0 to 24 of a storage of 20");
  operand(2).flags |= NPU_TENSOR_HOST_SCALAR;
  expect("flagged as a host scalar but has 6 elements");
  operand(2).flags |= NPU_TENSOR_ALIAS;
  operand(2).alias_of = 5;
  expect("alias of output 5; there are 2");
  operand(1).dtype = NPU_F32;
  expect("operand 'mask' is f32, which this kind does not allow there");
}

TEST_F(Frame, NegativeSizesAndEmptyOutputsAreRefused) {
  sizes_[0] = -2;
  EXPECT_HAS(problem(), "operand 'out' has size -2 in dimension 0");
  sizes_[0] = 0;
  for (std::uint32_t i = 0; i < 3; ++i) {
    operand(i).numel = 0;
  }
  EXPECT_HAS(problem(), "output 'out' is empty");
}

TEST_F(Frame, NoRoomForTextIsFine) {
  call_.frame().size = 0;
  char tiny[4];
  EXPECT_EQ(npu_call_validate(&call_.frame(), tiny, 4), NPU_E_INVALID);
  EXPECT_LT(std::strlen(tiny), 4u);
  EXPECT_EQ(npu_call_validate(&call_.frame(), nullptr, 0), NPU_E_INVALID);
}

}  // namespace
}  // namespace npu
