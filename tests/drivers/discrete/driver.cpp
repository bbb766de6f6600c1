// SPDX-License-Identifier: Apache-2.0
// The discrete driver's kernels and tables. `run` refuses calls that break a
// promise of the host side (docs/driver-guide.md), so that tests see it.
#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "npu/profiler.h"
#include "npu/validate.h"
#include "optional.h"

namespace npu::discrete {
namespace {

// ---- kernels: what a worker thread does, made from a call ----

float* floats(const npu_tensor* tensor) {
  return tensor ? reinterpret_cast<float*>(inside(tensor->data)) : nullptr;
}

Work copy(const npu_call& call) {
  const npu_tensor &out = call.tensors[0], &in = call.tensors[1];
  const std::vector<int64_t> sizes(out.sizes, out.sizes + out.ndim);
  const std::vector<int64_t> to(out.strides, out.strides + out.ndim);
  const std::vector<int64_t> from(in.strides, in.strides + in.ndim);
  const auto bytes = int64_t(npu_dtype_bytes(out.dtype));
  char *const target = inside(out.data), *const source = inside(in.data);
  return [=, n = out.numel](std::string&) {
    for (int64_t i = 0; i < n; ++i) {
      int64_t at = 0, of = 0, rest = i;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
        at += rest % sizes[d] * to[d];
        of += rest % sizes[d] * from[d];
      }
      std::memcpy(target + at * bytes, source + of * bytes, size_t(bytes));
    }
  };
}

Work fill(const npu_call& call) {
  const auto value = float(npu_fill_unpack(&call).attrs.value.re);
  float* const out = floats(&call.tensors[0]);
  return [=, n = call.tensors[0].numel](std::string&) {
    std::fill_n(out, n, value);
  };
}

Work add(const npu_call& call) {
  const npu_tensor* const t = call.tensors;
  const npu_scalar given = npu_binary_unpack(&call).attrs.a;
  const float a = given.kind == NPU_SCALAR_NONE ? 1 : float(given.re);
  float *const out = floats(t), *const x = floats(t + 1), *y = floats(t + 2);
  return [=, n = t->numel](std::string&) {
    std::transform(
        x, x + n, y, out, [=](float p, float q) { return p + a * q; });
  };
}

Work take(const npu_call& call) {
  const npu_tensor* const t = call.tensors;
  float *const out = floats(t), *const in = floats(t + 1);
  const auto* index = reinterpret_cast<int64_t*>(inside(t[2].data));
  return [=, n = t->numel, size = t[1].numel](std::string& failure) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = index[i] < 0 ? index[i] + size : index[i];
      if (at < 0 || at >= size) {
        failure = "index out of range: " + std::to_string(index[i]);
        return;
      }
      out[i] = in[at];
    }
  };
}

// Lies in the host workspace, which has to live until the work is done.
struct Sizes {
  int64_t rows, m, n, k;
};
Work gemm(const npu_call& call) {
  const npu_gemm_args args = npu_gemm_unpack(&call);
  auto* const sizes = static_cast<Sizes*>(call.host_workspace);
  const int64_t* const a_sizes = args.a->sizes + args.a->ndim - 2;
  const int64_t inner = a_sizes[1];
  *sizes = {
      args.a->numel / inner,
      a_sizes[0],
      args.b->sizes[args.b->ndim - 1],
      inner};
  auto* const sums = reinterpret_cast<double*>(inside(call.workspace));
  float *const out = floats(args.out), *const a = floats(args.a);
  float *const b = floats(args.b), *const c = floats(args.c);
  const double alpha = args.attrs.alpha.re, beta = args.attrs.beta.re;
  return [=, bias = floats(args.bias)](std::string&) {
    const auto [rows, m, n, k] = *sizes;
    for (int64_t i = 0; i < rows * n; ++i) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += double(a[i / n * k + l]) * b[(i / n / m * k + l) * n + i % n];
      }
      sums[i] = sum * alpha + (c && beta != 0 ? beta * c[i] : 0);
      out[i] = float(sums[i] + (bias ? bias[i % n] : 0));
    }
  };
}

struct Kernel {
  uint32_t slot, flags, max_ndim, min_alignment;
  uint64_t dtypes;
  Work (*make)(const npu_call& call);
};
constexpr uint32_t kStrided = NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT;
constexpr uint64_t kAll = (UINT64_C(1) << NPU_DTYPE_COUNT) - 2;
constexpr uint64_t kF32 = NPU_DTYPE_BIT(NPU_F32);
constexpr uint64_t kI64 = NPU_DTYPE_BIT(NPU_I64);
const Kernel kKernels[] = {
    {NPU_KIND_COPY, kStrided, 6, 0, kAll, copy},
    {NPU_KIND_FILL, 0, 0, 0, kF32, fill},
    {NPU_KIND_BINARY, NPU_CAP_ALIAS, 0, 64, kF32, add},
    {NPU_KIND_TAKE, 0, 0, 0, kF32, take},
    {NPU_KIND_GEMM, 0, 3, 0, kF32, gemm},
};

// ---- the op table: code 0 of these kinds ----

const Kernel* kernel_of(uint32_t slot, uint32_t code) {
  for (const Kernel& kernel : kKernels) {
    if (kernel.slot == slot && code == 0) {
      return &kernel;
    }
  }
  fail(NPU_E_UNSUPPORTED, "has no such kernel.");
  return nullptr;
}

npu_status find(const char* name, uint32_t* slot) {
  return kernel_of(*slot = npu_kind_find(name), 0) ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status caps(uint32_t slot, uint32_t code, npu_op_caps* out) {
  const Kernel* const kernel = kernel_of(slot, code);
  if (kernel == nullptr) {
    return NPU_E_UNSUPPORTED;
  }
  npu_op_caps made{};
  made.size = std::min(out->size, uint32_t(sizeof(made)));
  made.flags = kernel->flags | NPU_CAP_DETERMINISTIC | NPU_CAP_INDEX64;
  // take fails in its own words, which a graph would repeat too late.
  made.flags |= slot == NPU_KIND_TAKE ? 0 : NPU_CAP_CAPTURE;
  made.plan_use = slot == NPU_KIND_GEMM ? NPU_PLAN_BY_SHAPE : NPU_PLAN_NONE;
  made.max_ndim = kernel->max_ndim;
  made.min_alignment = kernel->min_alignment;
  made.alias_mask = (kernel->flags & NPU_CAP_ALIAS) != 0 ? 3 : 0;
  std::fill_n(made.dtypes, 6, kernel->dtypes);
  if (slot == NPU_KIND_TAKE) {
    made.dtype_rule = NPU_DTYPES_FREE;
    made.dtypes[2] = kI64;
  }
  std::memcpy(out, &made, made.size);
  return NPU_OK;
}

npu_status plan(npu_device device, const npu_call* call, npu_verdict* verdict) {
  NPU_TRY(check_device(device, call, verdict));
  if (kernel_of(call->slot, call->code) == nullptr) {
    return NPU_E_UNSUPPORTED;
  }
  verdict->answer = NPU_VERDICT_YES;
  if (call->slot == NPU_KIND_GEMM) {
    const npu_gemm_args args = npu_gemm_unpack(call);
    const bool plain = args.attrs.epilogue == 0 && args.pre == nullptr;
    const uint64_t bytes = sizeof(double) * size_t(args.out->numel);
    verdict->reason = !plain ? NPU_REASON_ATTRIBUTE
                      : bytes > npu_call_workspace_limit(call)
                          ? NPU_REASON_WORKSPACE
                          : NPU_REASON_NONE;
    verdict->answer =
        verdict->reason == NPU_REASON_NONE ? NPU_VERDICT_YES : NPU_VERDICT_NO;
    verdict->workspace_bytes = bytes;
    verdict->host_workspace_bytes = sizeof(Sizes);
  }
  return NPU_OK;
}

// True when an operand is what caps promised: no other reaches a kernel.
bool as_promised(const Kernel& kernel, npu_device device, const npu_tensor& t) {
  const uint64_t index = kernel.slot == NPU_KIND_TAKE ? kI64 : 0;
  return ((kernel.dtypes | index) & NPU_DTYPE_BIT(t.dtype)) != 0 &&
         ((kernel.flags & NPU_CAP_STRIDED_IN) != 0 ||
          (t.flags & NPU_TENSOR_CONTIGUOUS) != 0) &&
         (kernel.max_ndim == 0 || t.ndim <= kernel.max_ndim) &&
         (kernel.min_alignment == 0 ||
          uintptr_t(t.data) % kernel.min_alignment == 0) &&
         check_range(device, t.data, npu_dtype_bytes(t.dtype)) == NPU_OK;
}

npu_status run(npu_stream stream, const npu_call* call) {
  NPU_TRY(check(stream, call));
  const Kernel* const kernel = kernel_of(call->slot, call->code);
  if (kernel == nullptr) {
    return NPU_E_UNSUPPORTED;
  }
  for (uint32_t i = 0; i < call->n_out + call->n_in; ++i) {
    if (call->tensors[i].dtype != NPU_ABSENT &&
        !as_promised(*kernel, device_of(stream), call->tensors[i])) {
      return fail(
          NPU_E_INVALID, "operand " + std::to_string(i) + " outside its caps.");
    }
  }
  return enqueue(
      stream,
      recorded(
          stream,
          {NPU_RECORD_KERNEL, call->correlation, 0},
          kernel->make(*call)),
      call->slot + 2u);
}

// ---- device and driver ----

npu_status properties(npu_device device, npu_device_properties* out) {
  NPU_TRY(check_device(device, out));
  npu_device_properties p{};
  p.size = std::min(out->size, uint32_t(sizeof(p)));
  p.host_access = NPU_HOST_ACCESS_NONE;
  std::snprintf(p.name, sizeof(p.name), "Discrete device");
  p.uuid[0] = uint8_t(device + 1);
  p.total_memory = kCapacity;
  p.allocation_alignment = p.allocation_granularity = 4096;
  p.compute_units = p.unified_address = 1;
  std::memcpy(out, &p, p.size);
  return NPU_OK;
}

npu_status memory_info(npu_device device, uint64_t* free, uint64_t* total) {
  NPU_TRY(check_device(device, free, total));
  *total = kCapacity;
  *free = kCapacity - used_memory(device);
  return NPU_OK;
}

// clang-format off
const npu_device_table device_table = {
    sizeof(device_table), 0,
    [](int32_t* out) { return check(out) ? check(out) : (*out = kDevices, NPU_OK); },
    [](npu_device device) { opened = true; return check_device(device); },
    check_device<>, // close
    properties, drain_device, memory_info, nullptr, nullptr};

const npu_op_table op_table = {
    sizeof(op_table), 0, find, caps, plan, run, nullptr, nullptr, nullptr,
    nullptr};

npu_driver driver = {
    sizeof(driver), NPU_ABI, "discrete", "OpenNPU tests", "0.1",
    NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE | NPU_TENSOR_ALIAS, NPU_CALL_INDEX32 | NPU_CALL_CAPTURE,
    &device_table, &memory_table, &stream_table, &event_table, &op_table,
    optional_interface,
    [] { alive = false; return npu_status{NPU_OK}; },
    0, 0, nullptr, nullptr}; // flags; no chip and no platform
// clang-format on

}  // namespace
}  // namespace npu::discrete

extern "C" NPU_EXPORT npu_status npu_driver_entry(
    uint32_t abi, const npu_host_services* services, const npu_driver** out) {
  using namespace npu::discrete;
  npu::discrete::services = services;
  NPU_TRY(borrow_host_kernels(abi, services, &driver));
  if (const char* delay = std::getenv("NPU_DISCRETE_DELAY_US")) {
    delay_us = std::atoi(delay);
  }
  alive = true;
  pthread_atfork(nullptr, nullptr, [] { alive = alive && !opened; });
  *out = with_platform(driver);
  return NPU_OK;
}
