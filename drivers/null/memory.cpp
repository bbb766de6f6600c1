// SPDX-License-Identifier: Apache-2.0
// Memory of the null driver: ordinary memory, and a map of its allocations.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "null.h"

namespace npu::null {
namespace {

struct Block {
  uint64_t bytes;
  uint32_t kind;
};
std::mutex mutex;
auto& blocks = *new std::map<const char*, Block>;  // by address, never freed
std::atomic<uint64_t> used{0};

npu_status take(uint64_t bytes, uint32_t kind, void** out) {
  if (npu_status status = check_given(out)) {
    return status;
  }
  const std::lock_guard lock(mutex);
  const bool device = kind == NPU_MEMORY_DEVICE;
  if (device && bytes > total_memory() - used) {
    return fail(NPU_E_OUT_OF_MEMORY, "npu: null: device memory is full.");
  }
  void* ptr = nullptr;
  if (bytes == 0 || posix_memalign(&ptr, 512, bytes) != 0) {
    return fail(NPU_E_OUT_OF_MEMORY, "npu: null: no memory of that size.");
  }
  blocks[static_cast<char*>(ptr)] = {bytes, kind};
  used += device ? bytes : 0;
  *out = ptr;
  return NPU_OK;
}

npu_status give_back(void* ptr, uint32_t kind) {
  if (npu_status status = check_alive()) {
    return status;
  }
  const std::lock_guard lock(mutex);
  const auto block = blocks.find(static_cast<char*>(ptr));
  if (block == blocks.end() || block->second.kind != kind) {
    return fail(
        NPU_E_INVALID,
        "npu: null: free of a block that this driver did not allocate.");
  }
  used -= kind == NPU_MEMORY_DEVICE ? block->second.bytes : 0;
  blocks.erase(block);
  std::free(ptr);
  return NPU_OK;
}

// The block that holds an address, also an interior one; end() when none does.
auto find_block(const void* ptr) {
  auto block = blocks.upper_bound(static_cast<const char*>(ptr));
  return block != blocks.begin() &&
                 ptr < std::prev(block)->first + std::prev(block)->second.bytes
             ? std::prev(block)
             : blocks.end();
}

// NPU_OK when [ptr, ptr + bytes) is inside one block of device memory.
npu_status check_range(const void* ptr, uint64_t bytes) {
  const std::lock_guard lock(mutex);
  const auto block = find_block(ptr);
  const bool inside =
      block != blocks.end() && block->second.kind == NPU_MEMORY_DEVICE &&
      bytes <= block->second.bytes -
                   uint64_t(static_cast<const char*>(ptr) - block->first);
  return inside || bytes == 0
             ? NPU_OK
             : fail(NPU_E_INVALID, "npu: null: not in one block of memory.");
}

// Device and host memory are the same here: the directions differ only in which
// operand has to be device memory.
template <bool kToDevice, bool kFromDevice>
npu_status copy(npu_stream stream, void* dst, const void* src, uint64_t bytes) {
  npu_status status = kToDevice ? check_range(dst, bytes) : NPU_OK;
  status = status || !kFromDevice ? status : check_range(src, bytes);
  return status ? status
                : when_given(
                      [=] { std::memcpy(dst, src, bytes); }, stream, dst, src);
}

npu_status set_bytes(
    npu_stream stream, void* dst, int32_t value, uint64_t bytes) {
  const npu_status status = check_range(dst, bytes);
  return status ? status
                : when_given([=] { std::memset(dst, value, bytes); }, stream);
}

npu_status pointer_info(const void* ptr, npu_pointer_info* out) {
  if (npu_status status = check_given(out)) {
    return status;
  }
  const std::lock_guard lock(mutex);
  const auto block = find_block(ptr);
  const bool known = block != blocks.end();
  out->kind = known ? block->second.kind : NPU_MEMORY_UNKNOWN;
  out->device = out->kind == NPU_MEMORY_DEVICE ? 0 : -1;
  out->base = known ? const_cast<char*>(block->first) : nullptr;
  out->bytes = known ? block->second.bytes : 0;
  return NPU_OK;
}

}  // namespace

uint64_t total_memory() {
  static const uint64_t ram =
      uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGE_SIZE));
  return ram / 2;
}
uint64_t used_memory() {
  return used;
}

// clang-format off
const npu_memory_table memory_table = {
    sizeof(memory_table), 0,
    [](npu_device device, uint64_t bytes, void** out) {
      const npu_status status = check_device(device);
      return status ? status : take(bytes, NPU_MEMORY_DEVICE, out);
    },
    [](npu_device, void* ptr) { return give_back(ptr, NPU_MEMORY_DEVICE); },
    [](uint64_t bytes, void** out) { return take(bytes, NPU_MEMORY_HOST, out); },
    [](void* ptr) { return give_back(ptr, NPU_MEMORY_HOST); },
    copy<true, false>, copy<false, true>, copy<true, true>,
    nullptr, // copy_peer: there is one device
    set_bytes, pointer_info,
    nullptr, nullptr, // host_open, host_close: coherent
    nullptr, nullptr, nullptr}; // host_register, host_unregister, discard
// clang-format on

}  // namespace npu::null
