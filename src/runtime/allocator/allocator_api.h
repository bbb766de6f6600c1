// SPDX-License-Identifier: Apache-2.0
// Everything torch.npu.memory shows and sets; src/python binds it as it is.
//
// Plain data (DeviceStats, SegmentInfo, TraceEntry) is in stats.h and trace.h.
// Unless said otherwise, functions throw c10 errors, take no GIL and may be
// called from any thread; `device` is an index, -1 the current device.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/allocator/stats.h"
#include "runtime/allocator/trace.h"

namespace npu::memory {

// ---- numbers ---------------------------------------------------------------

// All zero for a device nothing was allocated on.
DeviceStats device_stats(c10::DeviceIndex device);
void reset_accumulated_stats(c10::DeviceIndex device);
void reset_peak_stats(c10::DeviceIndex device);
// {free, total} as the driver sees them.
std::pair<std::size_t, std::size_t> memory_info(c10::DeviceIndex device);

// ---- control ---------------------------------------------------------------

// Gives unused segments of every device back to the driver.
void empty_cache();
// ValueError unless 0 <= fraction <= 1.
void set_memory_fraction(double fraction, c10::DeviceIndex device);
double memory_fraction(c10::DeviceIndex device);
// The options of PYTORCH_NPU_ALLOC_CONF at run time; ValueError for bad ones.
void set_settings(const std::string& text);

// caching_allocator_alloc / _delete: a block without a tensor. The second
// throws ValueError for an address that is no live block's.
void* caching_alloc(
    std::size_t bytes, c10::DeviceIndex device, StreamId stream);
void caching_delete(void* ptr);

// ---- snapshots and history ----

// Segments of all devices with their blocks, by device and address. A Context
// is what `gather` returned when the block was made (or null).
std::vector<SegmentInfo> snapshot();
// One list per device index, oldest entry first.
std::vector<std::vector<TraceEntry>> history(bool clear);
// Keeps the last `max_entries` events of each device; 0 stops. `gather` runs
// without locks on the allocating thread; it may be null.
void record_history(std::size_t max_entries, Record when, ContextFn gather);

}  // namespace npu::memory
