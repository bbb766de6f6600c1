// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: device memory, its counters and its trace of allocations.
#include <chrono>
#include <cstdint>

#include "python/bindings.h"
#include "python/call_site.h"
#include "python/index.h"
#include "python/stat_dict.h"
#include "runtime/allocator/allocator.h"
#include "runtime/allocator/allocator_api.h"
#include "runtime/device.h"

namespace py = pybind11;

namespace npu {
namespace {

py::dict pools_dict(const memory::StatArray& array) {
  py::dict out;
  out["all"] = stat_dict(array[0]);
  out["small_pool"] = stat_dict(array[1]);
  out["large_pool"] = stat_dict(array[2]);
  return out;
}

// torch.cuda's names, which tools know.
py::dict memory_stats(int device) {
  const memory::DeviceStats s = memory::device_stats(index_of(device));
  py::dict out;
  out["allocation"] = pools_dict(s.allocation);
  out["segment"] = pools_dict(s.segment);
  out["active"] = pools_dict(s.active);
  out["inactive_split"] = pools_dict(s.inactive_split);
  out["allocated_bytes"] = pools_dict(s.allocated_bytes);
  out["reserved_bytes"] = pools_dict(s.reserved_bytes);
  out["active_bytes"] = pools_dict(s.active_bytes);
  out["inactive_split_bytes"] = pools_dict(s.inactive_split_bytes);
  out["requested_bytes"] = pools_dict(s.requested_bytes);
  out["oversize_allocations"] = stat_dict(s.oversize_allocations);
  out["oversize_segments"] = stat_dict(s.oversize_segments);
  out["num_alloc_retries"] = s.num_alloc_retries;
  out["num_ooms"] = s.num_ooms;
  out["num_sync_all_streams"] = s.num_sync_all_streams;
  out["num_device_alloc"] = s.num_device_alloc;
  out["num_device_free"] = s.num_device_free;
  out["max_split_size"] = s.max_split_size;
  return out;
}

// A context is the Python stack of the allocation, kept as plain text so that
// it may be dropped without the GIL.
memory::Context gather_frames() {
  return std::make_shared<std::vector<PythonFrame>>(python_frames());
}

py::list frames_list(const memory::Context& context) {
  py::list out;
  if (context != nullptr) {
    for (const auto& frame :
         *static_cast<const std::vector<PythonFrame>*>(context.get())) {
      py::dict entry;
      entry["filename"] = frame.file;
      entry["line"] = frame.line;
      entry["name"] = frame.function;
      out.append(std::move(entry));
    }
  }
  return out;
}

py::list blocks_list(const memory::SegmentInfo& segment) {
  py::list out;
  for (const auto& block : segment.blocks) {
    py::dict entry;
    entry["address"] = block.address;
    entry["size"] = block.size;
    entry["requested_size"] = block.requested_size;
    entry["state"] = block.state;
    entry["frames"] = frames_list(block.context);
    out.append(std::move(entry));
  }
  return out;
}

py::list segments_list() {
  py::list out;
  for (const auto& segment : memory::snapshot()) {
    py::dict entry;
    entry["device"] = segment.device;
    entry["address"] = segment.address;
    entry["total_size"] = segment.total_size;
    entry["allocated_size"] = segment.allocated_size;
    entry["active_size"] = segment.active_size;
    entry["requested_size"] = segment.requested_size;
    entry["stream"] = segment.stream;
    entry["segment_type"] = segment.is_large ? "large" : "small";
    entry["segment_pool_id"] =
        py::make_tuple(segment.pool.first, segment.pool.second);
    entry["is_expandable"] = false;
    entry["frames"] = frames_list(segment.context);
    entry["blocks"] = blocks_list(segment);
    out.append(std::move(entry));
  }
  return out;
}

py::list traces_list() {
  py::list out;
  for (const auto& entries : memory::history(false)) {
    py::list device;
    for (const auto& e : entries) {
      py::dict entry;
      const bool oom = e.action == memory::Action::kOutOfMemory;
      entry["action"] = memory::action_name(e.action);
      entry[oom ? "device_free" : "addr"] = e.address;
      entry["size"] = e.size;
      entry["stream"] = e.stream;
      entry["time_us"] = e.time_us;
      entry["frames"] = frames_list(e.context);
      device.append(std::move(entry));
    }
    out.append(std::move(device));
  }
  return out;
}

py::dict memory_snapshot() {
  py::dict out;
  out["segments"] = segments_list();
  out["device_traces"] = traces_list();
  out["allocator_settings"] = py::dict();
  out["external_annotations"] = py::list();
  return out;
}

// `when`: 0 never, 1 state, 2 alloc, 3 all. No entries: recording stops.
void record_history(std::size_t max_entries, int when, bool clear) {
  if (clear) {
    memory::history(true);
  }
  const auto record = static_cast<memory::Record>(when);
  memory::record_history(
      max_entries,
      record,
      record == memory::Record::kNever ? memory::ContextFn{}
                                       : memory::ContextFn{gather_frames});
}

double time_allocate_free(std::size_t bytes, std::int64_t count) {
  const c10::DeviceIndex device = current_device();
  allocate(bytes, device).clear();  // warm
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < count; ++i) {
    allocate(bytes, device).clear();
  }
  const std::chrono::duration<double, std::nano> taken =
      std::chrono::steady_clock::now() - start;
  return taken.count() / static_cast<double>(count);
}

}  // namespace

void bind_memory(py::module_& m) {
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  m.def("_memory_stats", &memory_stats);
  m.def(
      "_reset_peak_memory_stats",
      [](int device) { memory::reset_peak_stats(index_of(device)); },
      no_gil);
  m.def(
      "_reset_accumulated_memory_stats",
      [](int device) { memory::reset_accumulated_stats(index_of(device)); },
      no_gil);
  m.def("_empty_cache", &memory::empty_cache, no_gil);
  m.def(
      "_set_memory_fraction",
      [](double fraction, int device) {
        memory::set_memory_fraction(fraction, index_of(device));
      },
      no_gil);
  m.def("_get_memory_fraction", [](int device) {
    return memory::memory_fraction(index_of(device));
  });
  m.def("_set_allocator_settings", &memory::set_settings, no_gil);
  m.def(
      "_allocate_raw",
      [](std::size_t bytes, int device, std::int64_t stream) {
        return reinterpret_cast<std::uintptr_t>(
            memory::caching_alloc(bytes, index_of(device), stream));
      },
      no_gil);
  m.def(
      "_free_raw",
      [](std::uintptr_t ptr) {
        memory::caching_delete(reinterpret_cast<void*>(ptr));
      },
      no_gil);
  m.def("_memory_snapshot", &memory_snapshot);
  m.def("_record_memory_history", &record_history, no_gil);
  m.def("_time_allocate_free", &time_allocate_free, no_gil);
}

}  // namespace npu
