// SPDX-License-Identifier: Apache-2.0
// Kind dropout, and the family's table.
#include "kernels/dtype.h"
#include "kernels/random.h"

namespace npu::host {
namespace {

// Row of RandomIsa::dropout.
int dropout_row(npu_dtype dtype) {
  switch (dtype) {
    case NPU_F16:
      return 0;
    case NPU_BF16:
      return 1;
    case NPU_F32:
      return 2;
    default:
      return 3;
  }
}

npu_status check_dropout(const npu_call& call, const npu_dropout_args& args) {
  if (!has_dtype(args.in, kFloats) || args.out == nullptr ||
      args.out->dtype != args.in->dtype) {
    return fail(
        NPU_E_UNSUPPORTED,
        "npu: host driver: dropout: no kernel from %s to %s",
        dtype_name(args.in == nullptr ? NPU_ABSENT : args.in->dtype),
        dtype_name(args.out == nullptr ? NPU_ABSENT : args.out->dtype));
  }
  const bool mask_fits =
      args.mask == nullptr ||
      (args.mask->numel == args.in->numel &&
       (args.mask->dtype == NPU_BOOL || args.mask->dtype == NPU_U8));
  if (args.out->numel != args.in->numel || !mask_fits) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: dropout: output or mask does not fit an input of "
        "%lld elements",
        static_cast<long long>(args.in->numel));
  }
  return check_rng(call);
}

}  // namespace

npu_status dropout_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return fail(
        NPU_E_UNSUPPORTED, "npu: host driver: dropout: no code %u", code);
  }
  common_caps(out);
  out.flags |= NPU_CAP_ALIAS;
  out.alias_mask = 1;
  out.dtypes[0] = kFloats;
  out.dtypes[1] = NPU_DTYPE_BIT(NPU_BOOL) | NPU_DTYPE_BIT(NPU_U8);
  out.dtypes[2] = kFloats;
  return NPU_OK;
}

npu_status dropout_run(const npu_call& call) {
  const npu_dropout_args args = npu_dropout_unpack(&call);
  if (const npu_status status = check_dropout(call, args); status != NPU_OK) {
    return status;
  }
  const std::uint64_t limit = threshold(args.attrs.p);
  const bool none = limit > 0xffffffffu;
  const auto first = static_cast<std::uint32_t>(none ? 0 : limit);
  const double scale = none ? 0 : args.attrs.scale;
  const auto fn = random_isa().dropout[dropout_row(args.in->dtype)];
  const auto bytes = static_cast<std::int64_t>(element_bytes(args.in->dtype));
  const auto* in = static_cast<const std::uint8_t*>(args.in->data);
  auto* out = static_cast<std::uint8_t*>(args.out->data);
  auto* mask = args.mask == nullptr
                   ? nullptr
                   : static_cast<std::uint8_t*>(args.mask->data);
  return for_words(
      philox_stream(call.rng),
      args.in->numel,
      1,
      [&](std::int64_t begin, int count, const std::uint32_t* w) {
        fn(w,
           count,
           in + begin * bytes,
           first,
           scale,
           none ? 0 : 1,
           out + begin * bytes,
           mask == nullptr ? nullptr : mask + begin);
      });
}

namespace {

constexpr KernelRow kRows[] = {
    {NPU_KIND_RANDOM, random_caps, nullptr, random_run},
    {NPU_KIND_RANDPERM, randperm_caps, nullptr, randperm_run},
    {NPU_KIND_MULTINOMIAL, multinomial_caps, nullptr, multinomial_run},
    {NPU_KIND_DROPOUT, dropout_caps, nullptr, dropout_run},
};

}  // namespace

const std::span<const KernelRow> kRandomKernels = kRows;

}  // namespace npu::host
