// SPDX-License-Identifier: Apache-2.0
// As in stream_lock.cpp each watched driver gets functions of its own, made
// from a template by number.
#include "driver/write_watch.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "driver/services.h"
#include "npu/validate.h"

namespace npu {

namespace {

std::atomic<WriteListener*> write_listener{nullptr};
std::atomic<bool> distrusted{false};

void report(npu_stream stream, const void* ptr, std::uint64_t bytes) noexcept {
  WriteListener* const listener =
      write_listener.load(std::memory_order_acquire);
  if (listener != nullptr && ptr != nullptr && bytes != 0) {
    listener->on_write(stream, ptr, bytes);
  }
}

// From the lowest byte to the highest one, whatever the signs of the strides.
void report_tensor(npu_stream stream, const npu_tensor& tensor) noexcept {
  if (tensor.dtype == NPU_ABSENT || tensor.numel == 0 ||
      (tensor.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
    return;
  }
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (std::uint32_t d = 0; d < tensor.ndim; ++d) {
    const std::int64_t reach = (tensor.sizes[d] - 1) * tensor.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  const auto item = static_cast<std::int64_t>(npu_dtype_bytes(tensor.dtype));
  report(
      stream,
      static_cast<const char*>(tensor.data) + low * item,
      static_cast<std::uint64_t>((high - low + 1) * item));
}

void report_list(npu_stream stream, const npu_list& list) noexcept {
  if ((list.flags & NPU_TENSOR_HOST_SCALAR) != 0) {
    return;
  }
  for (std::uint32_t i = 0; i < list.n; ++i) {
    if (list.tensors != nullptr) {
      report_tensor(stream, list.tensors[i]);
    } else {
      report(
          stream,
          list.data[i],
          static_cast<std::uint64_t>(list.numel[i]) *
              npu_dtype_bytes(list.dtype));
    }
  }
}

// One of the functions made for each watched driver, to know it by.
std::atomic<decltype(npu_memory_table::copy_to_device)> watched_slots[4];

// The slots as they were.
struct Unwatched {
  npu_memory_table memory{};
  npu_stream_table stream{};
  npu_op_table op{};
};

template <int N>
Unwatched& unwatched() {
  static auto* const tables = new Unwatched;
  return *tables;
}

template <int N>
void watch_memory(npu_memory_table& memory) {
  memory.copy_to_device =
      [](npu_stream s, void* dst, const void* src, uint64_t n) {
        const npu_status status =
            unwatched<N>().memory.copy_to_device(s, dst, src, n);
        report(s, dst, n);
        return status;
      };
  memory.copy_on_device =
      [](npu_stream s, void* dst, const void* src, uint64_t n) {
        const npu_status status =
            unwatched<N>().memory.copy_on_device(s, dst, src, n);
        report(s, dst, n);
        return status;
      };
  memory.copy_peer = [](npu_stream s,
                        npu_device dst_device,
                        void* dst,
                        npu_device src_device,
                        const void* src,
                        uint64_t n) {
    const npu_status status =
        unwatched<N>().memory.copy_peer(s, dst_device, dst, src_device, src, n);
    report(s, dst, n);
    return status;
  };
  memory.set_bytes = [](npu_stream s, void* dst, int32_t value, uint64_t n) {
    const npu_status status = unwatched<N>().memory.set_bytes(s, dst, value, n);
    report(s, dst, n);
    return status;
  };
  if (memory.discard != nullptr) {
    memory.discard = [](npu_stream s, void* ptr, uint64_t n) {
      const npu_status status = unwatched<N>().memory.discard(s, ptr, n);
      report(s, ptr, n);
      return status;
    };
  }
}

template <int N>
void watch(
    npu_memory_table& memory, npu_stream_table& stream, npu_op_table& op) {
  unwatched<N>() = {memory, stream, op};
  watch_memory<N>(memory);
  stream.destroy = [](npu_stream s) {
    if (WriteListener* const listener =
            write_listener.load(std::memory_order_acquire)) {
      listener->on_stream_end(s);
    }
    return unwatched<N>().stream.destroy(s);
  };
  op.run = [](npu_stream s, const npu_call* call) {
    const npu_status status = unwatched<N>().op.run(s, call);
    report_frame(s, *call);
    return status;
  };
  op.tune = [](npu_stream s, const npu_call* call, npu_verdict* verdict) {
    const npu_status status = unwatched<N>().op.tune(s, call, verdict);
    report_frame(s, *call);
    return status;
  };
}

bool wants_watch(const npu_device_table& device) {
  int32_t count = 0;
  if (device.count(&count) != NPU_OK) {
    count = 0;
  }
  bool hidden = false;
  bool distinct = true;
  for (npu_device i = 0; i < count; ++i) {
    npu_device_properties properties{};
    properties.size = sizeof(properties);
    if (device.properties(i, &properties) == NPU_OK) {
      hidden = hidden || properties.host_access == NPU_HOST_ACCESS_NONE;
      distinct = distinct && (count == 1 || properties.unified_address != 0);
    }
  }
  host_services()->set_error(nullptr);
  return hidden && distinct;
}

}  // namespace

void set_write_listener(WriteListener* listener) noexcept {
  write_listener.store(listener, std::memory_order_release);
}

void distrust_write_watch(const char* why) noexcept {
  if (distrusted.exchange(true)) {
    return;
  }
  if (WriteListener* const listener =
          write_listener.load(std::memory_order_acquire)) {
    listener->on_distrust(why);
  }
}

bool write_watch_distrusted() noexcept {
  return distrusted.load(std::memory_order_acquire);
}

void report_frame(npu_stream stream, const npu_call& call) noexcept {
  const npu_kind_info* const kind = npu_kind_of(call.slot);
  const std::uint32_t written =
      kind != nullptr ? call.n_out : call.n_out + call.n_in;
  for (std::uint32_t i = 0; i < written; ++i) {
    report_tensor(stream, call.tensors[i]);
  }
  for (std::uint32_t i = 0; i < call.n_lists; ++i) {
    const bool is_known = kind != nullptr && i < kind->n_lists;
    if (!is_known ||
        kind->operands[kind->n_out + kind->n_in + i].mode != NPU_MODE_IN) {
      report_list(stream, call.lists[i]);
    }
  }
  report(stream, call.workspace, call.workspace_bytes);
  report(stream, call.carry, call.carry_bytes);
}

void watch_writes_if_needed(
    const npu_device_table& device,
    npu_memory_table& memory,
    npu_stream_table& stream,
    npu_op_table& op) {
  static constexpr decltype(&watch<0>) kWatches[] = {
      &watch<0>, &watch<1>, &watch<2>, &watch<3>};
  static std::atomic<std::size_t> used{0};
  if (!wants_watch(device)) {
    return;
  }
  // Of more drivers than that nobody keeps copies.
  const std::size_t number = used++;
  if (number < std::size(kWatches)) {
    kWatches[number](memory, stream, op);
    watched_slots[number].store(memory.copy_to_device);
  }
}

bool writes_are_watched(const npu_memory_table& memory) noexcept {
  return std::any_of(
      std::begin(watched_slots),
      std::end(watched_slots),
      [&](const auto& slot) { return slot.load() == memory.copy_to_device; });
}

}  // namespace npu
