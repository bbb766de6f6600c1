// Operators of the @name@ driver. One kernel to begin with: fill, in float32.
// Everything else falls back to the CPU until it is here.
#include <algorithm>
#include <cstring>

#include "@name@.h"

namespace @name@_driver {
namespace {

npu_status no_kernel() {
  return fail(NPU_E_UNSUPPORTED, "npu: @name@: there is no kernel for this call.");
}

// Which kinds there are. Slots and names: npu/kinds.h.
npu_status find(const char* name, uint32_t* slot) {
  *slot = npu_kind_find(name);
  return *slot == NPU_KIND_FILL ? NPU_OK : no_kernel();
}

// The capabilities of a kind: dtypes of each operand, layouts, plans.
npu_status caps(uint32_t slot, uint32_t code, npu_op_caps* out) {
  if (slot != NPU_KIND_FILL || code != 0) {
    return no_kernel();
  }
  npu_op_caps made{};
  made.size = std::min(out->size, uint32_t(sizeof(made)));
  made.flags = NPU_CAP_DETERMINISTIC | NPU_CAP_INDEX64;
  made.dtypes[0] = NPU_DTYPE_BIT(NPU_F32);
  made.plan_use = NPU_PLAN_NONE;  // caps say it all; plan is never asked
  std::memcpy(out, &made, made.size);
  return NPU_OK;
}

// For kinds with plans: can this call run, and with how much workspace?
npu_status plan(npu_device device, const npu_call* call, npu_verdict* verdict) {
  const bool mine = call->slot == NPU_KIND_FILL;
  verdict->answer = mine ? NPU_VERDICT_YES : NPU_VERDICT_NO;
  verdict->reason = mine ? NPU_REASON_NONE : NPU_REASON_NO_KERNEL;
  return check_device(device);
}

// Queues the call. An asynchronous driver copies the parts of the frame that it needs.
npu_status run(npu_stream stream, const npu_call* call) {
  if (npu_status status = check_given(stream, call)) {
    return status;
  }
  if (call->slot != NPU_KIND_FILL) {
    return no_kernel();
  }
  const npu_fill_args args = npu_fill_unpack(call);
  // SDK: launch your kernel on `stream` here.
  std::fill_n(
      static_cast<float*>(args.out->data),
      args.out->numel,
      float(args.attrs.value.re));
  return NPU_OK;
}

}  // namespace

npu_status read_settings() {
  return NPU_OK;  // environment variables of your own are checked here
}

const npu_op_table op_table = {
    sizeof(op_table), 0, find, caps, plan, run, nullptr, nullptr, nullptr,
    nullptr};

}  // namespace @name@_driver
