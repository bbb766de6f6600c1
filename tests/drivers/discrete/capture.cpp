// SPDX-License-Identifier: Apache-2.0
// capture/1 of the discrete driver: work kept in the order it was queued, which
// is an order that all of its streams allow.
#include "npu/capture.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "optional.h"

using Items = std::vector<std::pair<uint64_t, npu::discrete::Work>>;

struct npu_graph_s {
  npu_device device = 0;
  std::shared_ptr<const Items> items;
};

struct npu_graph_exec_s {
  npu_device device = 0;
  std::mutex mutex;
  std::shared_ptr<const Items> items;  // launches keep the one they saw
};

namespace npu::discrete {
namespace {

std::atomic<uint64_t> captures{0};
std::atomic<uint64_t> launches{0};
std::atomic<uint64_t> updates{0};

const char* asked() {
  const char* const value = std::getenv("NPU_DISCRETE_CAPTURE");
  return value == nullptr ? "" : value;
}
bool is_broken() {
  return std::strcmp(asked(), "broken") == 0;
}
bool is_eager() {
  return std::strcmp(asked(), "eager") == 0;
}

npu_status begin(
    npu_device device, const npu_stream* streams, uint32_t n, uint64_t pool) {
  NPU_TRY(check_device(device, n == 0 ? nullptr : streams));
  const std::span all(streams, n);
  for (const npu_stream stream : all) {
    NPU_TRY(check(stream));
    if (device_of(stream) != device || captured_by(stream) != nullptr) {
      return fail(NPU_E_INVALID, "begin: a stream records, or is elsewhere.");
    }
  }
  auto* const made = new Captured;
  made->device = device;
  made->origin = streams[0];
  made->id = ++captures;
  made->pool = pool;
  made->runs_too = is_eager();
  made->streams.assign(all.begin(), all.end());
  for (const npu_stream stream : all) {
    set_captured(stream, made);
  }
  return NPU_OK;
}

npu_status join(npu_stream origin, npu_stream stream) {
  NPU_TRY(check(origin, stream));
  Captured* const captured = captured_by(origin);
  if (captured == nullptr || captured_by(stream) != nullptr ||
      device_of(stream) != captured->device) {
    return fail(NPU_E_INVALID, "join: not a capture, or not a stream for it.");
  }
  captured->streams.push_back(stream);
  set_captured(stream, captured);
  return NPU_OK;
}

npu_status end(npu_stream origin, npu_graph* out) {
  NPU_TRY(check(origin, out));
  *out = nullptr;
  Captured* const found = captured_by(origin);
  if (found == nullptr || found->origin != origin) {
    return fail(NPU_E_INVALID, "end: the stream began no capture.");
  }
  const std::unique_ptr<Captured> captured(found);
  for (const npu_stream stream : captured->streams) {
    set_captured(stream, nullptr);
  }
  if (captured->broken || is_broken()) {
    return fail(NPU_E_INVALID, "end: the capture was broken.");
  }
  *out = new npu_graph_s{
      captured->device,
      std::make_shared<const Items>(std::move(captured->items))};
  return NPU_OK;
}

npu_status status(npu_stream stream, npu_capture_info* out) {
  NPU_TRY(check(stream, out));
  npu_capture_info made{};
  made.size = std::min(out->size, uint32_t(sizeof(made)));
  if (const Captured* const captured = captured_by(stream)) {
    made.state = captured->broken ? NPU_CAPTURE_INVALID : NPU_CAPTURE_ACTIVE;
    made.id = captured->id;
    made.pool = captured->pool;
  }
  std::memcpy(out, &made, made.size);
  return NPU_OK;
}

npu_status instantiate(npu_graph graph, npu_graph_exec* out) {
  NPU_TRY(check(graph, out));
  *out = new npu_graph_exec_s;
  (*out)->device = graph->device;
  (*out)->items = graph->items;
  return NPU_OK;
}

npu_status launch(npu_graph_exec exec, npu_stream stream) {
  NPU_TRY(check(exec, stream));
  if (device_of(stream) != exec->device) {
    return fail(NPU_E_INVALID, "launch: the stream is of another device.");
  }
  const std::lock_guard lock(exec->mutex);
  ++launches;
  return enqueue(stream, [items = exec->items](std::string& failure) {
    for (const auto& [tag, work] : *items) {
      work(failure);
      if (!failure.empty()) {
        return;
      }
    }
  });
}

npu_status update(npu_graph_exec exec, npu_graph graph) {
  NPU_TRY(check(exec, graph));
  const std::lock_guard lock(exec->mutex);
  const auto tag = [](const auto& item) { return item.first; };
  if (exec->device != graph->device ||
      !std::ranges::equal(*exec->items, *graph->items, {}, tag, tag)) {
    return fail(NPU_E_UNSUPPORTED, "update: the graph has other nodes.");
  }
  ++updates;
  exec->items = graph->items;
  return NPU_OK;
}

template <class Object>
npu_status destroy(Object object) {
  NPU_TRY(check(object));
  delete object;
  return NPU_OK;
}

const npu_capture capture = {
    sizeof(capture),
    NPU_CAPTURE_VERSION,
    begin,
    join,
    end,
    status,
    instantiate,
    launch,
    update,
    destroy<npu_graph>,
    destroy<npu_graph_exec>};

}  // namespace

const void* capture_interface(const char* name) {
  const bool offered =
      std::strcmp(asked(), "1") == 0 || is_broken() || is_eager();
  return offered && std::strcmp(name, NPU_CAPTURE_INTERFACE) == 0 ? &capture
                                                                  : nullptr;
}

}  // namespace npu::discrete

// For tests: how often graphs were recorded, launched and updated.
extern "C" NPU_EXPORT void npu_discrete_graphs(uint64_t out[3]) {
  out[0] = npu::discrete::captures;
  out[1] = npu::discrete::launches;
  out[2] = npu::discrete::updates;
}
