// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime of a machine that has no GPU, by its documentation: the
// functions that the driver calls.
#include "machine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

// Never destroyed: threads of streams outlive main().
#define NPU_LASTING(type, name, ...)               \
  type& name() {                                   \
    static auto* const one = new type __VA_ARGS__; \
    return *one;                                   \
  }

struct CUstream_st {
  int device = 0;
  std::uint32_t number = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  std::uint64_t given = 0;
  std::uint64_t done = 0;
  bool ended = false;
  std::thread thread;
};

struct CUevent_st {
  int device = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;  // times
  std::uint64_t passed = 0;
  std::uint64_t at_ns = 0;
};

namespace stand_in {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int current = 0;

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

// ---- streams ----

NPU_LASTING(std::mutex, streams_mutex)
NPU_LASTING(std::set<CUstream_st*>, streams)

void work_off(CUstream_st& stream) {
  std::unique_lock lock(stream.mutex);
  while (true) {
    stream.changed.wait(
        lock, [&] { return stream.ended || !stream.queue.empty(); });
    if (stream.queue.empty()) {
      return;
    }
    const std::function<void()> work = std::move(stream.queue.front());
    stream.queue.pop_front();
    lock.unlock();
    work();
    lock.lock();
    ++stream.done;
    stream.changed.notify_all();
  }
}

cudaStream_t new_stream(int device) {
  static std::atomic<std::uint32_t> numbers{6};
  auto* const stream = new CUstream_st;
  stream->device = device;
  stream->number = ++numbers;
  stream->thread = std::thread([stream] { work_off(*stream); });
  const std::lock_guard lock(streams_mutex());
  streams().insert(stream);
  return stream;
}

// The stream itself, or the default one of the current device.
CUstream_st& real(cudaStream_t stream) {
  static std::mutex mutex;
  static auto* const defaults = new std::map<int, cudaStream_t>;
  if (stream != nullptr) {
    return *stream;
  }
  const std::lock_guard lock(mutex);
  cudaStream_t& made = (*defaults)[current];
  if (made == nullptr) {
    made = new_stream(current);
  }
  return *made;
}

void push(CUstream_st& stream, std::function<void()> work) {
  const std::lock_guard lock(stream.mutex);
  stream.queue.push_back(std::move(work));
  ++stream.given;
  stream.changed.notify_all();
}

void wait_for(CUstream_st& stream) {
  std::unique_lock lock(stream.mutex);
  const std::uint64_t until = stream.given;
  stream.changed.wait(lock, [&] { return stream.done >= until; });
}

std::vector<CUstream_st*> streams_of(int device) {
  std::vector<CUstream_st*> out;
  const std::lock_guard lock(streams_mutex());
  for (CUstream_st* const each : streams()) {
    if (each->device == device) {
      out.push_back(each);
    }
  }
  return out;
}

// ---- memory ----

struct Block {
  std::size_t bytes = 0;
  int device = -1;  // -1: pinned
  bool registered = false;
};
NPU_LASTING(std::mutex, blocks_mutex)
using Blocks = std::map<const char*, Block>;
NPU_LASTING(Blocks, blocks)

bool find(const void* ptr, Block& out) {
  const std::lock_guard lock(blocks_mutex());
  auto next = blocks().upper_bound(static_cast<const char*>(ptr));
  if (next == blocks().begin()) {
    return false;
  }
  --next;
  out = next->second;
  return static_cast<const char*>(ptr) < next->first + next->second.bytes;
}

constexpr std::size_t kCapacity = std::size_t{1} << 32;

// With the lock held.
std::size_t left_on(int device) {
  std::size_t left = kCapacity;
  for (const auto& [base, block] : blocks()) {
    left -= block.device == device ? std::min(block.bytes, left) : 0;
  }
  return left;
}

cudaError_t take(void** out, std::size_t bytes, int device) {
  const std::lock_guard lock(blocks_mutex());
  if (device >= 0 && bytes > left_on(device)) {
    return answer(cudaErrorMemoryAllocation);
  }
  *out = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (*out == nullptr) {
    return answer(cudaErrorMemoryAllocation);
  }
  blocks()[static_cast<char*>(*out)] = {bytes, device, false};
  return cudaSuccess;
}

cudaError_t give_back(void* ptr, bool registered) {
  {
    const std::lock_guard lock(blocks_mutex());
    const auto found = blocks().find(static_cast<char*>(ptr));
    if (found == blocks().end() || found->second.registered != registered) {
      return answer(cudaErrorInvalidValue);
    }
    blocks().erase(found);
  }
  if (!registered) {
    std::free(ptr);
  }
  return cudaSuccess;
}

// ---- kernels ----

struct Kernel {
  std::string name;
};
NPU_LASTING(std::mutex, kernels_mutex)
using Kernels = std::map<const void*, Kernel>;
NPU_LASTING(Kernels, kernels)

Work work_of(Sort sort, std::uint64_t bytes, std::function<void()> run) {
  Work work;
  work.sort = sort;
  work.bytes = bytes;
  work.run = std::move(run);
  return work;
}

Watcher& watcher() {
  static auto* const one = new Watcher;
  return *one;
}
NPU_LASTING(std::mutex, watcher_mutex)

}  // namespace

int gpus() {
  const char* const text = std::getenv("STAND_IN_GPUS");
  return text != nullptr ? std::atoi(text) : 4;
}

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count());
}

void watch(const Watcher& asked) {
  const std::lock_guard lock(watcher_mutex());
  watcher() = asked;
}

int device_of(cudaStream_t stream) {
  return real(stream).device;
}
std::uint32_t number_of(cudaStream_t stream) {
  return real(stream).number;
}

cudaError_t queue(cudaStream_t to, Work work) {
  static std::atomic<std::uint32_t> calls{0};
  CUstream_st& stream = real(to);
  work.device = stream.device;
  work.stream = stream.number;
  work.correlation = ++calls;
  Watcher seen;
  {
    const std::lock_guard lock(watcher_mutex());
    seen = watcher();
  }
  work.watched = seen.call != nullptr && seen.call(work);
  push(stream, [work, seen]() mutable {
    work.begin_ns = now_ns();
    if (work.run) {
      work.run();
    }
    work.end_ns = now_ns();
    if (work.watched) {
      seen.done(work);
    }
  });
  return cudaSuccess;
}

}  // namespace stand_in

using namespace stand_in;

extern "C" {

// ---- devices ----

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= gpus()) {
    return answer(cudaErrorInvalidDevice);
  }
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  *out = cudaDeviceProp{};
  std::snprintf(out->name, sizeof(out->name), "Stand-in %d", device);
  out->uuid.bytes[0] = static_cast<char>(device + 1);
  out->totalGlobalMem = kCapacity;
  out->multiProcessorCount = 4;
  out->major = 9;
  out->sharedMemPerBlockOptin = 1 << 16;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1000;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  for (CUstream_st* const each : streams_of(current)) {
    wait_for(*each);
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total) {
  const std::lock_guard lock(blocks_mutex());
  *left = left_on(current);
  *total = kCapacity;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = gpus();
  return cudaSuccess;
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "an error of the stand-in";
}
cudaError_t cudaGetDriverEntryPointByVersion(
    const char*,
    void** function,
    unsigned,
    unsigned long long,
    cudaDriverEntryPointQueryResult* found) {
  *function = nullptr;
  *found = cudaDriverEntryPointSymbolNotFound;
  return answer(cudaErrorSymbolNotFound);
}

// ---- memory ----

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  return take(out, bytes, current);
}
cudaError_t cudaFree(void* ptr) {
  if (ptr == nullptr) {
    return cudaSuccess;
  }
  Block block;
  if (find(ptr, block) && block.device >= 0) {
    for (CUstream_st* const each : streams_of(block.device)) {
      wait_for(*each);
    }
  }
  return give_back(ptr, false);
}
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  return take(out, bytes, -1);
}
cudaError_t cudaFreeHost(void* ptr) {
  return give_back(ptr, false);
}
cudaError_t cudaHostRegister(void* ptr, std::size_t bytes, unsigned) {
  const std::lock_guard lock(blocks_mutex());
  blocks()[static_cast<char*>(ptr)] = {bytes, -1, true};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* ptr) {
  return give_back(ptr, true);
}
cudaError_t cudaPointerGetAttributes(
    cudaPointerAttributes* out, const void* ptr) {
  *out = cudaPointerAttributes{};
  Block block;
  const bool known = find(ptr, block);
  out->type = !known             ? cudaMemoryTypeUnregistered
              : block.device < 0 ? cudaMemoryTypeHost
                                 : cudaMemoryTypeDevice;
  out->device = std::max(block.device, 0);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void* dst,
    const void* src,
    std::size_t bytes,
    cudaMemcpyKind kind,
    cudaStream_t stream) {
  Block block;
  Work work = work_of(Sort::kCopy, bytes, nullptr);
  if (kind == cudaMemcpyHostToDevice && !find(src, block)) {
    // Ordinary memory has been read when the call returns.
    auto copy = std::make_shared<std::vector<char>>(
        static_cast<const char*>(src), static_cast<const char*>(src) + bytes);
    work.run = [=] { std::memcpy(dst, copy->data(), bytes); };
  } else {
    work.run = [=] { std::memmove(dst, src, bytes); };
  }
  const cudaError_t error = queue(stream, std::move(work));
  if (kind == cudaMemcpyDeviceToHost && !find(dst, block)) {
    wait_for(real(stream));
  }
  return error;
}
cudaError_t cudaMemcpyPeerAsync(
    void* dst,
    int,
    const void* src,
    int,
    std::size_t bytes,
    cudaStream_t stream) {
  return queue(stream, work_of(Sort::kPeerCopy, bytes, [=] {
                 std::memmove(dst, src, bytes);
               }));
}
cudaError_t cudaMemsetAsync(
    void* dst, int value, std::size_t bytes, cudaStream_t stream) {
  return queue(stream, work_of(Sort::kSet, bytes, [=] {
                 std::memset(dst, value, bytes);
               }));
}

// ---- streams and events ----

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) {
  *out = new_stream(current);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(streams_mutex());
    streams().erase(stream);
  }
  {
    const std::lock_guard lock(stream->mutex);
    stream->ended = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  wait_for(real(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CUstream_st& asked = real(stream);
  const std::lock_guard lock(asked.mutex);
  return asked.done == asked.given ? cudaSuccess : answer(cudaErrorNotReady);
}
cudaError_t cudaLaunchHostFunc(
    cudaStream_t stream, cudaHostFn_t function, void* context) {
  push(real(stream), [=] { function(context); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) {
  *out = new CUevent_st;
  (*out)->device = current;
  return cudaSuccess;
}
// Streams that still have it go on: it is kept.
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  std::uint64_t mine = 0;
  {
    const std::lock_guard lock(event->mutex);
    mine = ++event->recorded;
  }
  push(real(stream), [=] {
    const std::lock_guard lock(event->mutex);
    event->passed = std::max(event->passed, mine);
    event->at_ns = now_ns();
    event->changed.notify_all();
  });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(event->mutex);
  return event->passed == event->recorded ? cudaSuccess
                                          : answer(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::unique_lock lock(event->mutex);
  const std::uint64_t until = event->recorded;
  event->changed.wait(lock, [&] { return event->passed >= until; });
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(
    cudaStream_t stream, cudaEvent_t event, unsigned) {
  std::uint64_t until = 0;
  {
    const std::lock_guard lock(event->mutex);
    until = event->recorded;
  }
  push(real(stream), [=] {
    std::unique_lock lock(event->mutex);
    event->changed.wait(lock, [&] { return event->passed >= until; });
  });
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (cudaEventQuery(from) != cudaSuccess ||
      cudaEventQuery(to) != cudaSuccess) {
    return answer(cudaErrorNotReady);
  }
  *ms = static_cast<float>(
      static_cast<double>(to->at_ns) / 1e6 -
      static_cast<double>(from->at_ns) / 1e6);
  return cudaSuccess;
}

// ---- kernels: known by name, and computing nothing ----

void** __cudaRegisterFatBinary(void*) {
  static void* one = nullptr;
  return &one;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(
    void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(
    void**,
    const char* host_function,
    char*,
    const char* name,
    int,
    uint3*,
    uint3*,
    dim3*,
    dim3*,
    int*) {
  const std::lock_guard lock(kernels_mutex());
  kernels()[host_function].name = name;
}
unsigned __cudaPushCallConfiguration(
    dim3, dim3, std::size_t, struct CUstream_st*) {
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) {
  return answer(cudaErrorInvalidConfiguration);  // no <<<>>> in the driver
}
cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* function) {
  *out = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(
    const void* function,
    dim3,
    dim3,
    void**,
    std::size_t,
    cudaStream_t stream) {
  Work work = work_of(Sort::kKernel, 0, nullptr);
  {
    const std::lock_guard lock(kernels_mutex());
    const auto found = kernels().find(function);
    if (found == kernels().end()) {
      return answer(cudaErrorInvalidDeviceFunction);
    }
    work.name = found->second.name;
  }
  return queue(stream, std::move(work));
}
cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel,
    dim3 grid,
    dim3 block,
    void** arguments,
    std::size_t shared,
    cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void*, int, std::size_t, unsigned) {
  *blocks = 1;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  *out = cudaFuncAttributes{};
  return cudaSuccess;
}

// ---- what the stand-in has not: modules and graphs ----

cudaError_t cudaLibraryLoadData(
    cudaLibrary_t*,
    const void*,
    cudaJitOption*,
    void**,
    unsigned,
    cudaLibraryOption*,
    void**,
    unsigned) {
  return answer(cudaErrorNotSupported);
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t*, cudaLibrary_t, const char*) {
  return answer(cudaErrorNotSupported);
}
cudaError_t cudaStreamIsCapturing(
    cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return answer(cudaErrorNotSupported);
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) {
  return answer(cudaErrorNotSupported);
}
cudaError_t cudaGraphInstantiate(
    cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return answer(cudaErrorNotSupported);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return answer(cudaErrorNotSupported);
}
cudaError_t cudaGraphExecUpdate(
    cudaGraphExec_t, cudaGraph_t, cudaGraphExecUpdateResultInfo*) {
  return answer(cudaErrorNotSupported);
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return cudaSuccess;
}

}  // extern "C"
