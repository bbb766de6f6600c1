// SPDX-License-Identifier: Apache-2.0
#include "capture.h"

#include <algorithm>
#include <map>
#include <memory>

namespace npu::cuda {
namespace {

using Boxes = std::vector<std::shared_ptr<npu_mailbox>>;

// Kernels that were recorded leave their errors in the mailbox of the stream
// they were recorded on: it lives as long as they can be launched.
struct Graph {
  npu_device device;
  cudaGraph_t handle;
  Boxes boxes;
};
struct Exec {
  npu_device device;
  cudaGraphExec_t handle;
  Boxes boxes;
};

struct Capture {
  std::uint64_t id;
  std::uint64_t pool;
  std::vector<Stream*> streams;  // the origin first
};

std::mutex mutex;
std::map<Stream*, std::shared_ptr<Capture>>& captures() {
  static auto* const all = new std::map<Stream*, std::shared_ptr<Capture>>;
  return *all;
}
std::shared_ptr<Capture> capture_of(Stream& stream) {
  const std::lock_guard lock(mutex);
  const auto found = captures().find(&stream);
  return found == captures().end() ? nullptr : found->second;
}

Graph* graph_of(npu_graph graph) {
  return reinterpret_cast<Graph*>(graph);
}
Exec* exec_of(npu_graph_exec exec) {
  return reinterpret_cast<Exec*>(exec);
}

// `after` waits for what `before` has been given so far.
cudaError_t follow(Stream& after, Stream& before) {
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (error != cudaSuccess) {
    return error;
  }
  error = cudaEventRecord(event, before.handle);
  error = error != cudaSuccess ? error
                               : cudaStreamWaitEvent(after.handle, event, 0);
  cudaEventDestroy(event);
  return error;
}

// The capture's streams run again; the graph, or null where it was broken.
cudaError_t finish(const Capture& capture, cudaGraph_t* out) {
  Stream& origin = *capture.streams[0];
  cudaError_t error = cudaSuccess;
  for (std::size_t i = 1; i < capture.streams.size(); ++i) {
    const cudaError_t met = follow(origin, *capture.streams[i]);
    error = error != cudaSuccess ? error : met;
  }
  *out = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(origin.handle, out);
  error = error != cudaSuccess ? error : ended;
  if (error != cudaSuccess) {
    cudaGetLastError();  // clears the error
    if (*out != nullptr) {
      cudaGraphDestroy(*out);
      *out = nullptr;
    }
  }
  const std::lock_guard lock(mutex);
  for (Stream* const each : capture.streams) {
    captures().erase(each);
  }
  return error;
}

npu_status begin(
    npu_device device,
    const npu_stream* streams,
    std::uint32_t n_streams,
    std::uint64_t pool) {
  return entry(given(streams) && n_streams > 0, [&]() -> npu_status {
    if (npu_status status = check_open(device)) {
      return status;
    }
    auto made = std::make_shared<Capture>();
    for (std::uint32_t i = 0; i < n_streams; ++i) {
      if (streams[i] == nullptr) {
        return null_argument();
      }
      Stream& stream = *stream_of(streams[i]);
      if (stream.device != device || capture_of(stream) != nullptr ||
          std::ranges::find(made->streams, &stream) != made->streams.end()) {
        return fail(
            NPU_E_INVALID,
            stream.device != device
                ? "npu: cuda driver: a stream of another device cannot be part "
                  "of the capture."
                : "npu: cuda driver: the stream records already: end that "
                  "capture first.");
      }
      made->streams.push_back(&stream);
    }
    const OnDevice on(device);
    // Other threads go on as they are, whatever they call.
    NPU_CUDA(
        cudaStreamBeginCapture(
            made->streams[0]->handle, cudaStreamCaptureModeRelaxed),
        "beginning a capture");
    static std::atomic<std::uint64_t> captures_begun{0};
    made->id = ++captures_begun;
    made->pool = pool;
    {
      const std::lock_guard lock(mutex);
      for (Stream* const each : made->streams) {
        captures()[each] = made;
      }
    }
    for (std::size_t i = 1; i < made->streams.size(); ++i) {
      if (const cudaError_t error =
              follow(*made->streams[i], *made->streams[0]);
          error != cudaSuccess) {
        cudaGraph_t dropped = nullptr;
        if (finish(*made, &dropped) == cudaSuccess) {
          cudaGraphDestroy(dropped);
        }
        return cuda_status(error, "joining a stream to a capture");
      }
    }
    return NPU_OK;
  });
}

npu_status join(npu_stream origin, npu_stream stream) {
  return entry(given(origin, stream), [&]() -> npu_status {
    Stream& first = *stream_of(origin);
    Stream& joins = *stream_of(stream);
    const std::shared_ptr<Capture> capture = capture_of(first);
    if (capture == nullptr || capture->streams[0] != &first ||
        capture_of(joins) != nullptr || joins.device != first.device) {
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: a stream joins the capture that its origin began, "
          "on the same device, and once.");
    }
    const OnDevice on(first.device);
    NPU_CUDA(follow(joins, first), "joining a stream to a capture");
    const std::lock_guard lock(mutex);
    capture->streams.push_back(&joins);
    captures()[&joins] = capture;
    return NPU_OK;
  });
}

npu_status end(npu_stream origin, npu_graph* out) {
  return entry(given(origin, out), [&]() -> npu_status {
    *out = nullptr;
    Stream& first = *stream_of(origin);
    const std::shared_ptr<Capture> capture = capture_of(first);
    if (capture == nullptr || capture->streams[0] != &first) {
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: the stream began no capture that could end.");
    }
    const OnDevice on(first.device);
    auto made = std::make_unique<Graph>();
    made->device = first.device;
    for (Stream* const each : capture->streams) {
      made->boxes.push_back(each->box);
    }
    const cudaError_t error = finish(*capture, &made->handle);
    if (error != cudaSuccess) {
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: the capture was broken by something that cannot "
          "be recorded (%s): leave it out of the capture.",
          cudaGetErrorString(error));
    }
    *out = reinterpret_cast<npu_graph>(made.release());
    return NPU_OK;
  });
}

npu_status status(npu_stream stream, npu_capture_info* out) {
  return entry(given(stream, out), [&]() -> npu_status {
    Stream& asked = *stream_of(stream);
    npu_capture_info info{};
    info.size = out->size;
    if (const std::shared_ptr<Capture> capture = capture_of(asked)) {
      const OnDevice on(asked.device);
      cudaStreamCaptureStatus now = cudaStreamCaptureStatusNone;
      NPU_CUDA(
          cudaStreamIsCapturing(asked.handle, &now), "asking for a capture");
      info.state = now == cudaStreamCaptureStatusActive ? NPU_CAPTURE_ACTIVE
                                                        : NPU_CAPTURE_INVALID;
      info.id = capture->id;
      info.pool = capture->pool;
    }
    std::copy_n(
        reinterpret_cast<const char*>(&info),
        std::min<std::size_t>(out->size, sizeof(info)),
        reinterpret_cast<char*>(out));
    return NPU_OK;
  });
}

npu_status instantiate(npu_graph graph, npu_graph_exec* out) {
  return entry(given(graph, out), [&]() -> npu_status {
    *out = nullptr;
    const Graph& from = *graph_of(graph);
    const OnDevice on(from.device);
    auto made = std::make_unique<Exec>(Exec{from.device, nullptr, from.boxes});
    NPU_CUDA(
        cudaGraphInstantiate(&made->handle, from.handle, 0),
        "instantiating a graph");
    *out = reinterpret_cast<npu_graph_exec>(made.release());
    return NPU_OK;
  });
}

npu_status launch(npu_graph_exec exec, npu_stream stream) {
  return queue(stream, given(exec), [&](Stream& to) -> npu_status {
    const Exec& what = *exec_of(exec);
    if (what.device != to.device) {
      return fail(
          NPU_E_INVALID,
          "npu: cuda driver: the graph is one of device %d, the stream of "
          "device %d.",
          what.device,
          to.device);
    }
    watch(to, what.boxes);
    return cuda_status(
        cudaGraphLaunch(what.handle, to.handle), "launching a graph");
  });
}

npu_status update(npu_graph_exec exec, npu_graph graph) {
  return entry(given(exec, graph), [&]() -> npu_status {
    Exec& to = *exec_of(exec);
    const Graph& from = *graph_of(graph);
    const OnDevice on(to.device);
    cudaGraphExecUpdateResultInfo about{};
    const cudaError_t error =
        cudaGraphExecUpdate(to.handle, from.handle, &about);
    if (error == cudaErrorGraphExecUpdateFailure) {
      cudaGetLastError();
      return fail(
          NPU_E_UNSUPPORTED,
          "npu: cuda driver: the graphs differ in more than pointers and "
          "numbers.");
    }
    NPU_CUDA(error, "updating a graph");
    // Launches that are queued keep the old ones.
    to.boxes.insert(to.boxes.end(), from.boxes.begin(), from.boxes.end());
    constexpr std::size_t kMost = 64;
    if (to.boxes.size() > kMost) {
      to.boxes.erase(to.boxes.begin(), to.boxes.end() - kMost);
    }
    return NPU_OK;
  });
}

npu_status destroy_graph(npu_graph graph) {
  return entry([&]() -> npu_status {
    if (graph == nullptr) {
      return null_argument();
    }
    const std::unique_ptr<Graph> gone(graph_of(graph));
    const OnDevice on(gone->device);
    return cuda_status(cudaGraphDestroy(gone->handle), "destroying a graph");
  });
}

// CUDA lets launches that are queued finish; the streams they are queued on
// hold the mailboxes.
npu_status destroy_exec(npu_graph_exec exec) {
  return entry([&]() -> npu_status {
    if (exec == nullptr) {
      return null_argument();
    }
    const std::unique_ptr<Exec> gone(exec_of(exec));
    const OnDevice on(gone->device);
    return cuda_status(
        cudaGraphExecDestroy(gone->handle), "destroying a graph");
  });
}

}  // namespace

void leave_capture(Stream& stream) noexcept {
  if (const std::shared_ptr<Capture> capture = capture_of(stream)) {
    const OnDevice on(stream.device);
    cudaGraph_t dropped = nullptr;
    if (finish(*capture, &dropped) == cudaSuccess) {
      cudaGraphDestroy(dropped);
    }
  }
}

const npu_capture capture_table = {
    .size = sizeof(npu_capture),
    .version = NPU_CAPTURE_VERSION,
    .begin = begin,
    .join = join,
    .end = end,
    .status = status,
    .instantiate = instantiate,
    .launch = launch,
    .update = update,
    .destroy_graph = destroy_graph,
    .destroy_exec = destroy_exec,
};

}  // namespace npu::cuda
