// SPDX-License-Identifier: Apache-2.0
// A kernel of the pack for the host driver: guide.double/1, float32.
#include <cstdint>

#include "npu/op.h"
#include "npu/pack.h"

namespace {

npu_status caps(uint32_t code, npu_op_caps* out) {
  if (code != 0) {
    return NPU_E_UNSUPPORTED;
  }
  out->dtypes[0] = NPU_DTYPE_BIT(NPU_F32);
  return NPU_OK;
}

npu_status run(npu_stream, const npu_call* call) {
  const npu_tensor& out = call->tensors[0];
  const float* const from = static_cast<const float*>(call->tensors[1].data);
  float* const to = static_cast<float*>(out.data);
  for (int64_t i = 0; i < out.numel; ++i) {
    to[i] = 2 * from[i];
  }
  return NPU_OK;
}

const npu_op_row kRows[] = {
    {sizeof(npu_op_row), 0, "guide.double/1", caps, nullptr, run, nullptr}};
const npu_op_pack kPack = {
    sizeof(npu_op_pack), NPU_ABI, "guide", sizeof(npu_op_row), 1, kRows};

}  // namespace

extern "C" __attribute__((visibility("default"))) npu_status npu_ops_entry(
    uint32_t, const npu_host_services*, const char*, const npu_op_pack** out) {
  *out = &kPack;
  return NPU_OK;
}
