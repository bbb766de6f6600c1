// SPDX-License-Identifier: Apache-2.0
// What declared capabilities say about a call.
#include "driver/verdict.h"
#include "driver/services.h"
#include "driver/test_call.h"

namespace npu {
namespace {

using test::Gemm;
using test::Holder;

// One call with one input, against capabilities made up for the case.
class Caps : public testing::Test {
 protected:
  Caps() : x_({2, 3}, {3, 1}), y_({2, 3}, {3, 1}) {
    caps_.size = sizeof(caps_);
    caps_.dtypes[0] = NPU_DTYPE_BIT(NPU_F32);
    driver_.tensor_flags_known = ~0u;
    driver_.call_flags_known = ~0u;
  }
  npu_verdict verdict() {
    Call call(NPU_KIND_UNARY, NPU_UNARY_EXP, "aten::exp");
    build::unary(call, x_.tensor, nullptr, y_.tensor);
    call.frame().deterministic = deterministic_;
    call.frame().flags = flags_;
    return verdict_of_caps(caps_, driver_, call.frame());
  }
  Holder x_;
  Holder y_;
  npu_op_caps caps_{};
  npu_driver driver_{};
  std::uint32_t deterministic_ = 0;
  std::uint32_t flags_ = 0;
};

TEST_F(Caps, DeterministicAndCapture) {
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  deterministic_ = 1;
  EXPECT_EQ(verdict().reason, NPU_REASON_DETERMINISTIC);
  caps_.flags |= NPU_CAP_DETERMINISTIC;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  flags_ = NPU_CALL_CAPTURE;
  EXPECT_EQ(verdict().reason, NPU_REASON_CAPTURE);
  caps_.flags |= NPU_CAP_CAPTURE;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, Dimensions) {
  caps_.max_ndim = 1;
  EXPECT_EQ(verdict().reason, NPU_REASON_NDIM);
  caps_.max_ndim = 2;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, SizesAnotherRungServesFaster) {
  caps_.numel_limit[NPU_F32] = 2;
  EXPECT_EQ(verdict().reason, NPU_REASON_SLOWER) << "6 elements > 2^2";
  caps_.numel_limit[NPU_F32] = 3;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  caps_.numel_limit[NPU_F32] = NPU_NEVER_ASK;
  EXPECT_EQ(verdict().reason, NPU_REASON_SLOWER);
  x_.tensor.dtype = NPU_F64;
  caps_.numel_limit[NPU_F32] = 0;
  caps_.numel_limit[NPU_F64] = NPU_NEVER_ASK;
  EXPECT_NE(verdict().reason, NPU_REASON_SLOWER) << "the input's dtype decides";
}

TEST_F(Caps, ListsCountAsOneOperand) {
  const std::int64_t numel[] = {3, 3};
  Call call(NPU_KIND_CAT, 0, "aten::cat");
  npu_list list{};
  list.n = 2;
  list.dtype = NPU_F32;
  list.numel = numel;
  call.add_list(list);
  caps_.numel_limit[NPU_F32] = 2;
  EXPECT_EQ(
      verdict_of_caps(caps_, driver_, call.frame()).reason, NPU_REASON_SLOWER);
}

// A mask of 0 is that of dtypes[0], for lists too, unless the kind limits the
// operand.
TEST_F(Caps, MasksOfZero) {
  const std::int64_t numel[] = {3};
  const auto answer = [&](npu_dtype dtype) {
    Call call(NPU_KIND_MULTI_MAP, 0, "aten::_foreach_exp");
    npu_list list{};
    list.n = 1;
    list.dtype = NPU_F32;
    list.numel = numel;
    call.add_list(list);
    list.dtype = dtype;
    call.add_list(list);
    return verdict_of_caps(caps_, driver_, call.frame());
  };
  EXPECT_EQ(answer(NPU_F32).answer, NPU_VERDICT_YES);
  EXPECT_EQ(answer(NPU_I64).reason, NPU_REASON_DTYPE);
  caps_.dtype_rule = NPU_DTYPES_FREE;
  EXPECT_EQ(answer(NPU_I64).answer, NPU_VERDICT_YES);
  Holder index({2, 3}, {3, 1});
  index.tensor.dtype = NPU_I64;
  for (const std::uint32_t rule :
       {NPU_DTYPES_SAME, NPU_DTYPES_CAST, NPU_DTYPES_FREE}) {
    caps_.dtype_rule = rule;
    Call call(NPU_KIND_GATHER, 0, "aten::gather");
    npu_gather_attrs attrs{};
    build::gather(call, x_.tensor, y_.tensor, index.tensor, attrs);
    EXPECT_EQ(
        verdict_of_caps(caps_, driver_, call.frame()).answer, NPU_VERDICT_YES)
        << "rule " << rule << ": indices are int64, dtypes[0] is float32";
  }
}

TEST_F(Caps, Alignment) {
  caps_.min_alignment = 64;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  y_.tensor.data = y_.data + 4;
  const npu_verdict v = verdict();
  EXPECT_EQ(v.answer, NPU_VERDICT_IF_ALIGNED);
  EXPECT_EQ(v.alignment, 64);
  EXPECT_EQ(v.mask, 4u);  // tensors: out, out2 (absent), in
}

TEST_F(Caps, WideIndexing) {
  y_.strides = {std::int64_t{1} << 31, 1};
  EXPECT_FALSE(fits_index32(y_.tensor));
  EXPECT_EQ(verdict().reason, NPU_REASON_INDEX_WIDTH);
  caps_.flags |= NPU_CAP_INDEX64 | NPU_CAP_STRIDED_IN;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, AliasesConjAndHostScalarsAreCopiedUnlessTaken) {
  y_.tensor.flags = NPU_TENSOR_ALIAS;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_IF_CONTIGUOUS);
  caps_.flags |= NPU_CAP_ALIAS;
  EXPECT_EQ(verdict().mask, 4u) << "the mask does not name the input yet";
  caps_.alias_mask = 1;  // the first input
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  driver_.tensor_flags_known = ~std::uint32_t{NPU_TENSOR_ALIAS};
  EXPECT_EQ(verdict().mask, 4u);
  driver_.tensor_flags_known = ~std::uint32_t{NPU_TENSOR_CONJ};
  y_.tensor.flags = NPU_TENSOR_CONJ;
  EXPECT_EQ(verdict().mask, 4u);
  driver_.tensor_flags_known = ~0u;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  y_.tensor.flags = NPU_TENSOR_HOST_SCALAR;
  EXPECT_EQ(verdict().mask, 4u);
  caps_.flags |= NPU_CAP_HOST_SCALAR;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, DtypeRules) {
  y_.tensor.dtype = NPU_I32;
  EXPECT_EQ(verdict().reason, NPU_REASON_DTYPE) << "same: f32 and i32 differ";
  caps_.dtype_rule = NPU_DTYPES_CAST;
  EXPECT_EQ(verdict().reason, NPU_REASON_DTYPE);
  caps_.dtypes[2] = NPU_DTYPE_BIT(NPU_I32);
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  caps_.dtype_rule = NPU_DTYPES_FREE;
  caps_.dtypes[2] = 0;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(Caps, InputsOfOneDtype) {
  caps_.dtype_rule = NPU_DTYPES_CAST;
  caps_.dtypes[0] = ~UINT64_C(0);
  caps_.flags |= NPU_CAP_ONE_INPUT_DTYPE | NPU_CAP_HOST_SCALAR;
  Holder out({2, 3}, {3, 1});
  out.tensor.dtype = NPU_F64;  // outputs may differ
  const auto answer = [&] {
    npu_binary_attrs attrs{};
    Call call(NPU_KIND_BINARY, NPU_BINARY_ADD, "aten::add");
    build::binary(call, out.tensor, x_.tensor, y_.tensor, attrs);
    return verdict_of_caps(caps_, driver_, call.frame());
  };
  EXPECT_EQ(answer().answer, NPU_VERDICT_YES);
  y_.tensor.dtype = NPU_BF16;
  EXPECT_EQ(answer().answer, NPU_VERDICT_NO);
  EXPECT_EQ(answer().reason, NPU_REASON_DTYPE);
  y_.tensor.flags = NPU_TENSOR_HOST_SCALAR;
  EXPECT_EQ(answer().answer, NPU_VERDICT_YES);
  y_.tensor.flags = 0;
  y_.tensor.dtype = NPU_BOOL;
  EXPECT_EQ(answer().answer, NPU_VERDICT_YES);
}

// An input's own mask counts, though the output's would allow the dtype.
TEST_F(Caps, EveryOperandsMaskCountsWithTheSameDtype) {
  caps_.dtypes[0] = NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_I64);
  x_.tensor.dtype = y_.tensor.dtype = NPU_I64;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  caps_.dtypes[2] = NPU_DTYPE_BIT(NPU_F32);
  EXPECT_EQ(verdict().reason, NPU_REASON_DTYPE);
}

TEST_F(Caps, CountCallsMustBeKnown) {
  flags_ = NPU_CALL_COUNT;
  driver_.call_flags_known = 0;
  EXPECT_EQ(verdict().reason, NPU_REASON_NO_KERNEL);
}

// ---- contiguity and reach ----

TEST(Layout, Contiguous) {
  EXPECT_TRUE(is_contiguous(Holder({}, {}).tensor));
  EXPECT_TRUE(is_contiguous(Holder({2, 3}, {3, 1}).tensor));
  EXPECT_TRUE(is_contiguous(Holder({2, 1, 3}, {3, 77, 1}).tensor));
  EXPECT_TRUE(is_contiguous(Holder({0, 3}, {5, 5}).tensor));
  EXPECT_FALSE(is_contiguous(Holder({2, 3}, {1, 2}).tensor));
  EXPECT_FALSE(is_contiguous(Holder({2, 3}, {0, 1}).tensor));
}

TEST(Layout, Index32IsInBytes) {
  constexpr std::int64_t kEdge = (std::int64_t{1} << 31) / 4;
  EXPECT_TRUE(fits_index32(Holder({kEdge - 1}, {1}).tensor));
  EXPECT_FALSE(fits_index32(Holder({kEdge}, {1}).tensor));
  EXPECT_TRUE(fits_index32(Holder({kEdge}, {1}, NPU_I8).tensor));
  EXPECT_FALSE(fits_index32(Holder({2}, {INT64_MAX}).tensor));
  EXPECT_TRUE(fits_index32(Holder({1000}, {0}).tensor));
}

TEST(Layout, DenseInAnyOrder) {
  EXPECT_TRUE(is_dense(Holder({2, 3}, {1, 2}).tensor));
  EXPECT_TRUE(is_dense(Holder({2, 3, 4}, {3, 1, 6}).tensor));
  EXPECT_TRUE(is_dense(Holder({2, 1, 3}, {1, 99, 2}).tensor));
  EXPECT_TRUE(is_dense(Holder({}, {}).tensor));
  EXPECT_FALSE(is_dense(Holder({2, 3}, {4, 1}).tensor)) << "a gap";
  EXPECT_FALSE(is_dense(Holder({2, 3}, {0, 1}).tensor)) << "expanded";
  EXPECT_FALSE(is_dense(Holder({2, 3}, {1, 1}).tensor)) << "overlapping";
}

TEST(Layout, ChannelsLast) {
  EXPECT_TRUE(is_channels_last(Holder({2, 3, 4, 5}, {60, 1, 15, 3}).tensor));
  EXPECT_TRUE(is_channels_last(Holder({2, 3, 4}, {12, 1, 3}).tensor));
  EXPECT_TRUE(is_channels_last(Holder({1, 3, 4, 5}, {7, 1, 15, 3}).tensor));
  EXPECT_FALSE(is_channels_last(Holder({2, 3, 4, 5}, {60, 20, 5, 1}).tensor));
  EXPECT_FALSE(is_channels_last(Holder({2, 3, 4, 5}, {60, 1, 3, 12}).tensor))
      << "spatial dimensions swapped";
  EXPECT_FALSE(is_channels_last(Holder({4, 5}, {1, 4}).tensor));
}

TEST(Layout, InnerStride1) {
  EXPECT_TRUE(has_inner_stride_1(Holder({2, 3}, {100, 1}).tensor));
  EXPECT_TRUE(has_inner_stride_1(Holder({2, 1}, {100, 9}).tensor));
  EXPECT_FALSE(has_inner_stride_1(Holder({2, 3}, {1, 2}).tensor));
}

// Only what fits none of the declared layouts is copied.
TEST_F(Caps, LayoutsAddUp) {
  y_.strides = {1, 2};  // dense, transposed
  EXPECT_EQ(verdict().mask, 4u);
  caps_.flags = NPU_CAP_DENSE_OUT;
  EXPECT_EQ(verdict().mask, 4u) << "an ability of outputs";
  caps_.flags = NPU_CAP_DENSE_IN;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  x_.strides = {1, 2};
  EXPECT_EQ(verdict().mask, 1u) << "an ability of inputs";
  caps_.flags = NPU_CAP_DENSE_IN | NPU_CAP_DENSE_OUT;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  y_.strides = {50, 1};  // rows apart
  EXPECT_EQ(verdict().mask, 4u);
  caps_.flags |= NPU_CAP_INNER_STRIDE_1;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  y_.strides = {50, 2};
  EXPECT_EQ(verdict().mask, 4u);
}

TEST_F(Caps, ChannelsLastIsTakenAsItLies) {
  const Holder out({2, 3, 4, 5}, {60, 20, 5, 1});
  const Holder in({2, 3, 4, 5}, {60, 1, 15, 3});
  const auto ask = [&] {
    Call call(NPU_KIND_UNARY, NPU_UNARY_EXP, "aten::exp");
    build::unary(call, out.tensor, nullptr, in.tensor);
    return verdict_of_caps(caps_, driver_, call.frame());
  };
  EXPECT_EQ(ask().mask, 4u);
  caps_.flags = NPU_CAP_CHANNELS_LAST;
  EXPECT_EQ(ask().answer, NPU_VERDICT_YES);
}

// out, out2 (absent), in
TEST_F(Caps, DtypeCombinations) {
  const npu_dtype_row rows[] = {
      {{NPU_F32, NPU_ABSENT, NPU_F32}},
      {{NPU_F16, NPU_ABSENT, NPU_F16}},
      {{NPU_F32, NPU_ABSENT, NPU_BF16}},
  };
  caps_.dtype_rule = NPU_DTYPES_ROWS;
  caps_.dtype_rows = rows;
  caps_.n_dtype_rows = 3;
  const auto ask = [&](npu_dtype out, npu_dtype in) {
    x_.tensor.dtype = out;
    y_.tensor.dtype = in;
    return verdict();
  };
  EXPECT_EQ(ask(NPU_F32, NPU_F32).answer, NPU_VERDICT_YES);
  EXPECT_EQ(ask(NPU_F16, NPU_F16).answer, NPU_VERDICT_YES);
  EXPECT_EQ(ask(NPU_F32, NPU_BF16).answer, NPU_VERDICT_YES);
  const npu_verdict both = ask(NPU_BF16, NPU_BF16);
  EXPECT_EQ(both.answer, NPU_VERDICT_IF_CAST);
  EXPECT_EQ(both.cast_dtype, NPU_F32);
  EXPECT_EQ(both.mask, 1u) << "the input may stay as it is";
  EXPECT_EQ(ask(NPU_F32, NPU_F16).mask, 4u);
  const npu_verdict no = ask(NPU_F32, NPU_I64);
  EXPECT_EQ(no.answer, NPU_VERDICT_NO);
  EXPECT_EQ(no.reason, NPU_REASON_DTYPE);
  EXPECT_STREQ(no.detail, "this mix of dtypes");
}

TEST_F(Caps, AnAttributeTheKernelDoesNotKnowIsADecline) {
  const Holder image({1, 1, 2, 2}, {4, 4, 2, 1});
  npu_conv_attrs attrs{};
  const auto ask = [&] {
    Call call(NPU_KIND_CONV, 0, "aten::convolution");
    build::conv(call, image.tensor, image.tensor, image.tensor, nullptr, attrs);
    return verdict_of_caps(caps_, driver_, call.frame());
  };
  EXPECT_EQ(ask().answer, NPU_VERDICT_YES);
  attrs.epilogue = NPU_CONV_EPILOGUE_RELU;
  EXPECT_EQ(ask().reason, NPU_REASON_ATTRIBUTE);
  EXPECT_STREQ(ask().detail, "epilogue");
  caps_.flags |= NPU_CAP_EPILOGUE;
  EXPECT_EQ(ask().answer, NPU_VERDICT_YES);

  Gemm gemm(4);
  gemm.attrs.bias_gradient = NPU_GEMM_BIAS_GRADIENT_A;
  caps_.flags = NPU_CAP_STRIDED_IN;
  EXPECT_STREQ(
      verdict_of_caps(caps_, driver_, gemm.call.frame()).detail,
      "bias_gradient");
  caps_.flags |= NPU_CAP_BIAS_GRADIENT;
  EXPECT_EQ(
      verdict_of_caps(caps_, driver_, gemm.call.frame()).answer,
      NPU_VERDICT_YES);
}

TEST_F(Caps, ALaterValueOfAnAttributeIsADecline) {
  caps_.flags = NPU_CAP_STRIDED_IN;
  Gemm gemm(4);
  const auto ask = [&](std::uint32_t epilogue) {
    gemm.attrs.epilogue = epilogue;
    return verdict_of_caps(caps_, driver_, gemm.call.frame());
  };
  EXPECT_EQ(ask(NPU_GEMM_EPILOGUE_SILU).answer, NPU_VERDICT_YES);
  EXPECT_EQ(ask(NPU_GEMM_EPILOGUE_RELU_GRAD).reason, NPU_REASON_ATTRIBUTE);
  EXPECT_STREQ(ask(NPU_GEMM_EPILOGUE_GELU_TANH_GRAD).detail, "epilogue");
  caps_.flags |= NPU_CAP_EPILOGUE_GRAD;
  EXPECT_EQ(ask(NPU_GEMM_EPILOGUE_RELU_GRAD).answer, NPU_VERDICT_YES);
}

TEST_F(Caps, AnOperandTheKernelDoesNotKnowIsADecline) {
  caps_.flags = NPU_CAP_STRIDED_IN;
  const Gemm plain(4);
  EXPECT_EQ(plain.call.frame().n_in, 4u) << "as a driver of 1.1 knows it";
  Gemm of(4);
  Call call(NPU_KIND_GEMM, 0, "aten::mm");
  build::gemm_with_aux(
      call,
      of.out.tensor,
      nullptr,
      of.a.tensor,
      of.b.tensor,
      nullptr,
      nullptr,
      &of.out.tensor,
      of.attrs);
  EXPECT_EQ(call.frame().n_in, 5u);
  const npu_verdict no = verdict_of_caps(caps_, driver_, call.frame());
  EXPECT_EQ(no.reason, NPU_REASON_ATTRIBUTE);
  EXPECT_STREQ(no.detail, "aux");
  caps_.flags |= NPU_CAP_EPILOGUE_GRAD;
  EXPECT_EQ(
      verdict_of_caps(caps_, driver_, call.frame()).answer, NPU_VERDICT_YES);
}

// ---- lists ----

// multi_map of two tensors: lists out, x, (y, z absent), scalars.
class ListCaps : public Caps {
 protected:
  ListCaps() {
    caps_.dtypes[0] = caps_.dtypes[1] = NPU_DTYPE_BIT(NPU_F32);
  }
  npu_verdict verdict() {
    void* data[] = {x_.data, y_.data};
    void* input[] = {x_.data + offset_, y_.data};
    const std::int64_t numel[] = {6, 6};
    const std::int64_t ones[] = {1, 1};
    const npu_tensor tensors[] = {x_.tensor, y_.tensor};
    Call call(NPU_KIND_MULTI_MAP, NPU_MULTI_MAP_BINARY, "aten::_foreach_mul");
    npu_list out{sizeof(npu_list), 2, NPU_F32, 0, 0, data, numel, nullptr};
    npu_list in{sizeof(npu_list), 2, NPU_F32, 0, 0, input, numel, nullptr};
    in.tensors = strided_ ? tensors : nullptr;
    npu_list scalars{
        sizeof(npu_list), 2, NPU_F32, 0, scalar_flags_, data, ones, nullptr};
    npu_multi_map_attrs attrs{};
    build::multi_map(call, out, in, nullptr, nullptr, &scalars, attrs);
    return verdict_of_caps(caps_, driver_, call.frame());
  }
  std::ptrdiff_t offset_ = 0;
  bool strided_ = false;
  std::uint32_t scalar_flags_ = 0;
};

TEST_F(ListCaps, HostScalarsNeedTheCapability) {
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  scalar_flags_ = NPU_TENSOR_HOST_SCALAR;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_IF_CONTIGUOUS);
  EXPECT_EQ(verdict().mask, 16u) << "lists follow the operands: out, x, y, z";
  caps_.flags |= NPU_CAP_HOST_SCALAR;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
}

TEST_F(ListCaps, EntriesAreAligned) {
  caps_.min_alignment = 64;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  offset_ = 4;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_IF_ALIGNED);
  EXPECT_EQ(verdict().mask, 2u);
  EXPECT_EQ(verdict().alignment, 64);
}

TEST_F(ListCaps, EntriesHaveALayoutTheKernelTakes) {
  strided_ = true;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  y_.strides = {1, 2};
  EXPECT_EQ(verdict().answer, NPU_VERDICT_IF_CONTIGUOUS);
  EXPECT_EQ(verdict().mask, 2u);
  caps_.flags = NPU_CAP_DENSE_IN;
  EXPECT_EQ(verdict().answer, NPU_VERDICT_YES);
  caps_.max_ndim = 1;
  EXPECT_EQ(verdict().reason, NPU_REASON_NDIM);
}

TEST_F(ListCaps, IndexWidthCountsEntries) {
  const std::int64_t numel[] = {6, std::int64_t{1} << 30};
  npu_list list{};
  list.n = 2;
  list.dtype = NPU_F32;
  list.numel = numel;
  EXPECT_FALSE(fits_index32(list));
  list.dtype = NPU_I8;
  EXPECT_TRUE(fits_index32(list));
}

}  // namespace
}  // namespace npu
