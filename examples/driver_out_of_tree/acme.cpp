// SPDX-License-Identifier: Apache-2.0
// A vendor's driver outside the tree: memory, streams, events and two kernels.
//
// The "hardware" is the CPU, so that the example runs anywhere. Where a real
// driver would call its SDK, look for the word SDK.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "npu/kinds.h"

struct npu_stream_s {};  // SDK: its stream
struct npu_event_s {
  uint32_t flags;
  std::atomic<int64_t> nanoseconds{0};  // 0 = never recorded
};

namespace {

const npu_host_services* host = nullptr;
std::atomic<bool> opened{false};
std::atomic<bool> alive{false};  // not after shutdown or a fork once opened

npu_status fail(npu_status status, const char* text) {
  host->set_error(text);
  return status;
}

// Every entry point goes through here: `given` are the pointers it needs.
template <class Body, class... Given>
npu_status entry(Body body, Given... given) {
  if (!alive) {
    return fail(
        NPU_E_SHUTDOWN, "npu: acme: used after shutdown or in a forked child.");
  }
  if (!(... && (given != nullptr))) {
    return fail(NPU_E_INVALID, "npu: acme: an argument is null.");
  }
  return body();
}

npu_status check_device(npu_device device) {
  return device == 0 && alive ? NPU_OK : entry([] {
    return fail(NPU_E_INVALID, "npu: acme: no such device.");
  });
}

// ---- memory ----------------------------------------------------------------

constexpr uint64_t kCapacity = UINT64_C(4) << 30;
struct Block {
  uint64_t bytes;
  uint32_t kind;
};
std::mutex mutex;
auto& blocks = *new std::map<const char*, Block>;
uint64_t used = 0;

npu_status take(uint64_t bytes, uint32_t kind, void** out) {
  const std::lock_guard<std::mutex> lock(mutex);
  const uint64_t charge = kind == NPU_MEMORY_DEVICE ? bytes : 0;
  if (bytes == 0 || charge > kCapacity - used ||
      posix_memalign(out, 256, bytes) != 0) {  // SDK: allocate
    return fail(NPU_E_OUT_OF_MEMORY, "npu: acme: no memory of that size.");
  }
  blocks[static_cast<char*>(*out)] = Block{bytes, kind};
  used += charge;
  return NPU_OK;
}

npu_status give_back(void* ptr, uint32_t kind) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = blocks.find(static_cast<char*>(ptr));
  if (found == blocks.end() || found->second.kind != kind) {
    return fail(NPU_E_INVALID, "npu: acme: free of memory it did not give.");
  }
  used -= kind == NPU_MEMORY_DEVICE ? found->second.bytes : 0;
  blocks.erase(found);
  std::free(ptr);  // SDK: free
  return NPU_OK;
}

npu_status pointer_info(const void* ptr, npu_pointer_info* out) {
  const auto body = [=] {
    const std::lock_guard<std::mutex> lock(mutex);
    const char* address = static_cast<const char*>(ptr);
    auto found = blocks.upper_bound(address);
    const bool known = found != blocks.begin() &&
                       address < (--found)->first + found->second.bytes;
    out->kind = known ? found->second.kind : NPU_MEMORY_UNKNOWN;
    out->device = out->kind == NPU_MEMORY_DEVICE ? 0 : -1;
    out->base = known ? const_cast<char*>(found->first) : nullptr;
    out->bytes = known ? found->second.bytes : 0;
    return NPU_OK;
  };
  return entry(body, out);
}

npu_status check_range(const void* ptr, uint64_t bytes) {
  npu_pointer_info info = {};
  pointer_info(ptr, &info);
  const auto offset =
      static_cast<const char*>(ptr) - static_cast<char*>(info.base);
  return info.kind == NPU_MEMORY_DEVICE && bytes <= info.bytes - offset
             ? NPU_OK
             : fail(NPU_E_INVALID, "npu: acme: not in one block of memory.");
}

// Which ends have to be device memory is all that differs here.
template <bool kToDevice, bool kFromDevice>
npu_status copy(npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  const auto body = [=] {
    npu_status status = kToDevice ? check_range(dst, bytes) : NPU_OK;
    status = status || !kFromDevice ? status : check_range(src, bytes);
    if (status == NPU_OK) {
      std::memcpy(dst, src, bytes);  // SDK: queue a copy
    }
    return status;
  };
  return entry(body, stream, dst, src);
}

npu_status set(npu_stream stream, void* dst, int32_t value, uint64_t bytes) {
  const auto body = [=] {
    const npu_status status = check_range(dst, bytes);
    return status ? status : (std::memset(dst, value, bytes), NPU_OK);  // SDK
  };
  return entry(body, stream, dst);
}

// ---- device ----------------------------------------------------------------

npu_status properties(npu_device device, npu_device_properties* out) {
  const auto body = [=] {
    npu_device_properties p = {};
    p.size = std::min<uint32_t>(out->size, sizeof(p));
    p.host_access = NPU_HOST_ACCESS_COHERENT;
    std::strcpy(p.name, "Acme One");
    std::strcpy(p.architecture, "acme1");
    p.total_memory = kCapacity;
    p.allocation_alignment = p.allocation_granularity = 256;
    p.compute_units = 1;
    p.unified_address = 1;
    std::memcpy(out, &p, p.size);
    return check_device(device);
  };
  return entry(body, out);
}

npu_status memory_info(npu_device device, uint64_t* free, uint64_t* total) {
  const auto body = [=] {
    const std::lock_guard<std::mutex> lock(mutex);
    *total = kCapacity;
    *free = kCapacity - used;
    return check_device(device);
  };
  return entry(body, free, total);
}

// ---- events ----------------------------------------------------------------

npu_status record(npu_event event, npu_stream stream) {
  const auto body = [=] {
    event->nanoseconds =
        std::chrono::steady_clock::now().time_since_epoch().count();
    return NPU_OK;
  };
  return entry(body, event, stream);
}

npu_status elapsed_ms(npu_event start, npu_event end, double* out) {
  const auto body = [=]() -> npu_status {
    if (!(start->flags & end->flags & NPU_EVENT_TIMING) ||
        start->nanoseconds == 0 || end->nanoseconds == 0) {
      return fail(NPU_E_INVALID, "npu: acme: needs recorded timing events.");
    }
    *out = double(end->nanoseconds - start->nanoseconds) * 1e-6;
    return NPU_OK;
  };
  return entry(body, start, end, out);
}

// ---- operators: contiguous float32 copy and fill; the rest falls back
// --------

npu_status check_kind(uint32_t slot) {
  return slot == NPU_KIND_COPY || slot == NPU_KIND_FILL
             ? NPU_OK
             : fail(NPU_E_UNSUPPORTED, "npu: acme: no such kernel.");
}

npu_status find(const char* name, uint32_t* slot) {
  *slot = npu_kind_find(name);
  return check_kind(*slot);
}

npu_status caps(uint32_t slot, uint32_t, npu_op_caps* out) {
  npu_op_caps caps = {};
  caps.size = std::min<uint32_t>(out->size, sizeof(caps));
  caps.flags = NPU_CAP_INDEX64 | NPU_CAP_DETERMINISTIC;  // nothing strided
  caps.dtype_rule = NPU_DTYPES_SAME;
  caps.plan_use = NPU_PLAN_NONE;
  caps.dtypes[0] = caps.dtypes[1] = NPU_DTYPE_BIT(NPU_F32);
  std::memcpy(out, &caps, caps.size);
  return check_kind(slot);
}

npu_status plan(npu_device device, const npu_call* call, npu_verdict* verdict) {
  const bool yes = check_kind(call->slot) == NPU_OK;
  verdict->answer = yes ? NPU_VERDICT_YES : NPU_VERDICT_NO;
  verdict->reason = yes ? NPU_REASON_NONE : NPU_REASON_NO_KERNEL;
  return check_device(device);
}

npu_status run_kernel(const npu_call* call) {  // SDK: launch a kernel
  if (call->slot == NPU_KIND_COPY) {
    const npu_copy_args args = npu_copy_unpack(call);
    std::memcpy(args.out->data, args.in->data, sizeof(float) * args.out->numel);
  } else if (call->slot == NPU_KIND_FILL) {
    const npu_fill_args args = npu_fill_unpack(call);
    const float value = static_cast<float>(args.attrs.value.re);
    std::fill_n(static_cast<float*>(args.out->data), args.out->numel, value);
  }
  return check_kind(call->slot);
}

// ---- the tables -------------------------------------------------------------

// clang-format off
const npu_device_table device_table = {
    sizeof(npu_device_table), 0,
    [](int32_t* out) { return entry([=] { *out = 1; return NPU_OK; }, out); },
    [](npu_device device) { opened = true; return check_device(device); },
    check_device /* close */, properties, check_device, memory_info, nullptr, nullptr};

const npu_memory_table memory_table = {
    sizeof(npu_memory_table), 0,
    [](npu_device device, uint64_t bytes, void** out) {
      return device ? check_device(device) : entry([=] { return take(bytes, NPU_MEMORY_DEVICE, out); }, out);
    },
    [](npu_device, void* ptr) { return entry([=] { return give_back(ptr, NPU_MEMORY_DEVICE); }); },
    [](uint64_t bytes, void** out) { return entry([=] { return take(bytes, NPU_MEMORY_HOST, out); }, out); },
    [](void* ptr) { return entry([=] { return give_back(ptr, NPU_MEMORY_HOST); }); },
    copy<true, false>, copy<false, true>, copy<true, true>,
    nullptr, set, pointer_info, nullptr, nullptr}; // one device: no copy_peer

const npu_stream_table stream_table = {
    sizeof(npu_stream_table), 0,
    [](npu_device device, int32_t, npu_stream* out) {
      return device ? check_device(device) : entry([=] { *out = new npu_stream_s; return NPU_OK; }, out);
    },
    [](npu_stream s) { return entry([=] { delete s; return NPU_OK; }, s); },
    [](npu_stream s) { return entry([] { return NPU_OK; }, s); }, // synchronize
    [](npu_stream s) { return entry([] { return NPU_OK; }, s); }, // query
    [](npu_stream s, npu_event e) { return entry([] { return NPU_OK; }, s, e); }, // wait
    [](npu_stream s, npu_host_fn fn, void* context) {
      return entry([=] { fn(context); return NPU_OK; }, s, fn);
    },
    nullptr, nullptr};

const npu_event_table event_table = {
    sizeof(npu_event_table), 0,
    [](npu_device device, uint32_t flags, npu_event* out) {
      return device ? check_device(device) : entry([=] { *out = new npu_event_s{flags}; return NPU_OK; }, out);
    },
    [](npu_event e) { return entry([=] { delete e; return NPU_OK; }, e); },
    record,
    [](npu_event e) { return entry([] { return NPU_OK; }, e); }, // query
    [](npu_event e) { return entry([] { return NPU_OK; }, e); }, // synchronize
    elapsed_ms, nullptr};

const npu_op_table op_table = {
    sizeof(npu_op_table), 0, find, caps, plan,
    [](npu_stream s, const npu_call* call) { return entry([=] { return run_kernel(call); }, s, call); },
    nullptr, nullptr};

const npu_driver driver = {
    sizeof(npu_driver), NPU_ABI, "acme", "Acme Chips", "1.0",
    NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE, 0, &device_table, &memory_table,
    &stream_table, &event_table, &op_table, nullptr,
    [] { alive = false; return NPU_OK; }}; // shutdown
// clang-format on

}  // namespace

extern "C" NPU_EXPORT npu_status npu_driver_entry(
    uint32_t, const npu_host_services* services, const npu_driver** out) {
  host = services;
  alive = true;
  pthread_atfork(nullptr, nullptr, [] { alive = alive && !opened; });
  *out = &driver;
  return NPU_OK;
}
