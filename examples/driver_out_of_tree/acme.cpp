// SPDX-License-Identifier: Apache-2.0
// A vendor's driver outside the tree: memory, streams, events and two kernels.
//
// The "hardware" is the CPU, so that the example runs anywhere. Where a real
// driver would call its SDK, look for the word SDK.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "npu/kinds.h"

namespace {

const npu_host_services* host = nullptr;
std::atomic<bool> alive{false};

npu_status fail(npu_status status, const char* text) {
  host->set_error(text);
  return status;
}

// Every entry point begins with this: no call works in a forked child.
npu_status ready() {
  return alive ? NPU_OK
               : fail(
                     NPU_E_SHUTDOWN,
                     "npu: acme: used after shutdown or in a forked child.");
}

template <class Body>
npu_status when_ready(Body body) {
  const npu_status status = ready();
  if (status == NPU_OK) {
    body();
  }
  return status;
}

npu_status check_device(npu_device device) {
  return device == 0 ? ready()
                     : fail(NPU_E_INVALID, "npu: acme: there is only npu:0.");
}

// ---- memory ----------------------------------------------------------------

constexpr uint64_t kCapacity = UINT64_C(4) << 30;
struct Block {
  uint64_t bytes;
  uint32_t kind;
};
std::mutex mutex;
std::map<const char*, Block>& blocks = *new std::map<const char*, Block>;
uint64_t used = 0;

npu_status take(uint64_t bytes, uint32_t kind, void** out) {
  if (npu_status status = ready()) {
    return status;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  const uint64_t charge = kind == NPU_MEMORY_DEVICE ? bytes : 0;
  void* ptr = nullptr;
  if (bytes == 0 || charge > kCapacity - used ||
      posix_memalign(&ptr, 256, bytes) != 0) {  // SDK: allocate
    return fail(NPU_E_OUT_OF_MEMORY, "npu: acme: device memory is full.");
  }
  blocks[static_cast<char*>(ptr)] = Block{bytes, kind};
  used += charge;
  *out = ptr;
  return NPU_OK;
}

npu_status give_back(void* ptr, uint32_t kind) {
  if (npu_status status = ready()) {
    return status;
  }
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

// SDK: these two would queue on the stream.
npu_status copy_bytes(npu_stream, void* dst, const void* src, uint64_t bytes) {
  return when_ready([=] { std::memcpy(dst, src, bytes); });
}
npu_status set_bytes(npu_stream, void* dst, int32_t value, uint64_t bytes) {
  return when_ready([=] { std::memset(dst, value, bytes); });
}

npu_status pointer_info(const void* ptr, npu_pointer_info* out) {
  out->kind = NPU_MEMORY_UNKNOWN;
  out->device = -1;
  out->base = nullptr;
  out->bytes = 0;
  const std::lock_guard<std::mutex> lock(mutex);
  auto next = blocks.upper_bound(static_cast<const char*>(ptr));
  if (next != blocks.begin()) {
    --next;
    if (static_cast<const char*>(ptr) < next->first + next->second.bytes) {
      out->kind = next->second.kind;
      out->device = out->kind == NPU_MEMORY_DEVICE ? 0 : -1;
      out->base = const_cast<char*>(next->first);
      out->bytes = next->second.bytes;
    }
  }
  return ready();
}

// ---- device ----------------------------------------------------------------

npu_status count(int32_t* out) {
  *out = 1;
  return ready();
}

npu_status properties(npu_device device, npu_device_properties* out) {
  npu_device_properties p = {};
  p.size = out->size < sizeof(p) ? out->size : sizeof(p);
  p.host_access = NPU_HOST_ACCESS_COHERENT;
  std::strcpy(p.name, "Acme One");
  std::strcpy(p.architecture, "acme1");
  p.total_memory = kCapacity;
  p.allocation_alignment = 256;
  p.allocation_granularity = 256;
  p.compute_units = 1;
  p.unified_address = 1;
  std::memcpy(out, &p, p.size);
  return check_device(device);
}

npu_status memory_info(npu_device device, uint64_t* free, uint64_t* total) {
  const std::lock_guard<std::mutex> lock(mutex);
  *total = kCapacity;
  *free = kCapacity - used;
  return check_device(device);
}

// ---- streams and events: work is done when a call returns
// --------------------

struct Event {
  uint32_t flags;
  std::atomic<int64_t> nanoseconds{0};  // 0 = never recorded
};
Event* of(npu_event event) {
  return reinterpret_cast<Event*>(event);
}

npu_status record(npu_event event, npu_stream) {
  of(event)->nanoseconds =
      std::chrono::steady_clock::now().time_since_epoch().count();
  return ready();
}
npu_status elapsed_ms(npu_event start, npu_event end, double* out) {
  if (!(of(start)->flags & of(end)->flags & NPU_EVENT_TIMING) ||
      of(start)->nanoseconds == 0 || of(end)->nanoseconds == 0) {
    return fail(NPU_E_INVALID, "npu: acme: needs two recorded timing events.");
  }
  *out = double(of(end)->nanoseconds - of(start)->nanoseconds) * 1e-6;
  return ready();
}

// ---- operators: contiguous float32 copy and fill; the rest falls back -----

bool known(uint32_t slot) {
  return slot == NPU_KIND_COPY || slot == NPU_KIND_FILL;
}
npu_status no_kernel() {
  return fail(NPU_E_UNSUPPORTED, "npu: acme: no such kernel.");
}

npu_status find(const char* name, uint32_t* slot) {
  *slot = npu_kind_find(name);
  return known(*slot) ? NPU_OK : no_kernel();
}

npu_status caps(uint32_t slot, uint32_t, npu_op_caps* out) {
  out->flags = NPU_CAP_INDEX64 | NPU_CAP_DETERMINISTIC;  // nothing strided
  out->dtype_rule = NPU_DTYPES_SAME;
  out->plan_use = NPU_PLAN_NONE;
  out->dtypes[0] = out->dtypes[1] = NPU_DTYPE_BIT(NPU_F32);
  return known(slot) ? NPU_OK : no_kernel();
}

npu_status plan(npu_device device, const npu_call* call, npu_verdict* verdict) {
  const bool yes = known(call->slot);
  verdict->answer = yes ? NPU_VERDICT_YES : NPU_VERDICT_NO;
  verdict->reason = yes ? NPU_REASON_NONE : NPU_REASON_NO_KERNEL;
  return check_device(device);
}

npu_status run(npu_stream, const npu_call* call) {
  if (npu_status status = ready()) {
    return status;
  }
  if (call->slot == NPU_KIND_COPY) {
    const npu_copy_args args = npu_copy_unpack(call);
    std::memcpy(args.out->data, args.in->data, sizeof(float) * args.out->numel);
    return NPU_OK;
  }
  if (call->slot == NPU_KIND_FILL) {
    const npu_fill_args args = npu_fill_unpack(call);
    float* out = static_cast<float*>(args.out->data);
    for (int64_t i = 0; i < args.out->numel; ++i) {  // SDK: launch a kernel
      out[i] = static_cast<float>(args.attrs.value.re);
    }
    return NPU_OK;
  }
  return no_kernel();
}

// ---- the tables -------------------------------------------------------------

npu_status idle(npu_stream) {
  return ready();
}
npu_status done(npu_event) {
  return ready();
}

// clang-format off
const npu_device_table device_table = {
    sizeof(npu_device_table), 0, count,
    check_device, check_device, // open, close
    properties, check_device, memory_info, nullptr, nullptr};

const npu_memory_table memory_table = {
    sizeof(npu_memory_table), 0,
    [](npu_device device, uint64_t bytes, void** out) {
      const npu_status status = check_device(device);
      return status ? status : take(bytes, NPU_MEMORY_DEVICE, out);
    },
    [](npu_device, void* ptr) { return give_back(ptr, NPU_MEMORY_DEVICE); },
    [](uint64_t bytes, void** out) { return take(bytes, NPU_MEMORY_HOST, out); },
    [](void* ptr) { return give_back(ptr, NPU_MEMORY_HOST); },
    copy_bytes, copy_bytes, copy_bytes, nullptr, // one device: no copy_peer
    set_bytes, pointer_info, nullptr, nullptr};

const npu_stream_table stream_table = {
    sizeof(npu_stream_table), 0,
    [](npu_device device, int32_t, npu_stream* out) { // SDK: make a stream
      *out = reinterpret_cast<npu_stream>(&alive);
      return check_device(device);
    },
    idle, idle, idle, // destroy, synchronize, query
    [](npu_stream, npu_event) { return ready(); },
    [](npu_stream, npu_host_fn fn, void* context) {
      return when_ready([=] { fn(context); });
    },
    nullptr, nullptr};

const npu_event_table event_table = {
    sizeof(npu_event_table), 0,
    [](npu_device device, uint32_t flags, npu_event* out) {
      *out = reinterpret_cast<npu_event>(new (std::nothrow) Event{flags});
      return check_device(device);
    },
    [](npu_event event) {
      delete of(event);
      return ready();
    },
    record, done, done, // query, synchronize
    elapsed_ms, nullptr};

const npu_op_table op_table = {
    sizeof(npu_op_table), 0, find, caps, plan, run, nullptr, nullptr};

const npu_driver driver = {
    sizeof(npu_driver), NPU_ABI, "acme", "Acme Chips", "1.0",
    NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE, 0, &device_table, &memory_table,
    &stream_table, &event_table, &op_table, nullptr,
    [] { alive = false; return npu_status(NPU_OK); }}; // shutdown
// clang-format on

}  // namespace

extern "C" NPU_EXPORT npu_status npu_driver_entry(
    uint32_t, const npu_host_services* services, const npu_driver** out) {
  host = services;
  alive = true;
  pthread_atfork(nullptr, nullptr, [] { alive = false; });
  *out = &driver;
  return NPU_OK;
}
