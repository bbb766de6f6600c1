// SPDX-License-Identifier: Apache-2.0
// Time. Devices with events are asked for theirs: two events around the
// kernel from a pool, read when the pool is used up, so nothing waits per
// call. The host clock gives the launch.
#include "tools/timing.h"

#include <algorithm>

#include "core/records.h"
#include "core/torch_compat.h"

namespace optools {

struct Timing::Local : ToolLocal {
  using ToolLocal::ToolLocal;
  struct Pair {
    c10::Event begin;
    c10::Event end;
  };
  std::vector<Sample> samples;
  uint64_t dropped = 0;
  // Pairs are used in order; pair i belongs to samples[waiting[i]].
  std::vector<Pair> pool;
  std::vector<size_t> waiting;
  c10::Device pool_device{c10::DeviceType::CPU};
  bool no_clock = false;  // the backend has no events that tell time
};

namespace {

constexpr size_t kPool = 1024;

// Where the kernel runs: with its tensors, or where an argument says; kernels
// without either run on the current device.
c10::Device device_of_call(const Call& call) {
  std::optional<c10::Device> found;
  for (const auto& value : call.inputs()) {
    each_tensor(value, [&](const at::Tensor& t) {
      if (!found && t.device().type() == call.device) {
        found = t.device();
      }
    });
    if (!found && value.isDevice() && value.toDevice().type() == call.device &&
        value.toDevice().has_index()) {
      found = value.toDevice();
    }
    if (found) {
      return *found;
    }
  }
  return current_device(call.device);
}

}  // namespace

// Afterwards the pool has a pair of events of `device` that no sample waits
// for.
void Timing::make_room(Local& mine, c10::Device device) {
  if (mine.waiting.size() == kPool || mine.pool_device != device) {
    drain(mine);
  }
  if (mine.pool_device != device) {
    mine.pool.clear();
    mine.pool.reserve(kPool);
    mine.pool_device = device;
  }
  if (mine.waiting.size() == mine.pool.size()) {
    mine.pool.push_back(
        {c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT),
         c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT)});
  }
}

void Timing::around(Call& call, Chain& chain) {
  Local* mine = nullptr;
  Local::Pair* pair = nullptr;
  int64_t device_ns = -1;
  const bool begun = attempt([&] {
    mine = &local<Local>(call);
    if (mine->samples.size() >= limit_) {
      ++mine->dropped;
      mine = nullptr;
      return;
    }
    if (call.device == c10::DeviceType::CPU || mine->no_clock) {
      return;
    }
    if (call.op.is_view || call.op.uninitialised) {
      device_ns = 0;  // nothing runs there
      return;
    }
    make_room(*mine, device_of_call(call));
    pair = &mine->pool[mine->waiting.size()];
    pair->begin.record(current_stream(mine->pool_device));
  });
  if (!begun || mine == nullptr) {
    chain.run();
    return;
  }
  Sample sample{
      call.number,
      call.origin.api_call,
      call.origin.number,
      call.sequence,
      0,
      0,
      device_ns,
      call.op.index,
      call.origin.api,
      call.origin.module,
      call.origin.site,
      call.thread.id,
      static_cast<int32_t>(call.step),
      call.phase,
      false};
  sample.start_ns = now_ns();
  const auto end = [&] {
    sample.launch_ns = now_ns() - sample.start_ns;
    attempt([&] {
      if (pair != nullptr) {
        pair->end.record(current_stream(mine->pool_device));
        mine->waiting.push_back(mine->samples.size());
      }
      mine->samples.push_back(sample);
    });
  };
  try {
    chain.run();
  } catch (...) {
    sample.raised = true;
    end();
    throw;
  }
  end();
}

void Timing::drain(Local& mine) {
  if (mine.waiting.empty()) {
    return;
  }
  Quiet quiet;
  try {
    for (size_t i = 0; i < mine.waiting.size(); ++i) {
      const auto& pair = mine.pool[i];
      pair.end.synchronize();
      mine.samples[mine.waiting[i]].device_ns =
          static_cast<int64_t>(pair.begin.elapsedTime(pair.end) * 1e6);
    }
  } catch (const std::exception&) {
    mine.no_clock = true;  // the host clock has to do
  }
  mine.waiting.clear();
}

void Timing::finish() {
  attempt([&] {
    for (auto* each : quiet_locals()) {
      drain(static_cast<Local&>(*each));
    }
  });
}

std::vector<Timing::Sample> Timing::samples() const {
  std::vector<Sample> all;
  for (auto* each : quiet_locals()) {
    const auto& samples = static_cast<Local*>(each)->samples;
    all.insert(all.end(), samples.begin(), samples.end());
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.number < b.number;
  });
  return all;
}

uint64_t Timing::dropped() const {
  uint64_t sum = 0;
  for (auto* each : quiet_locals()) {
    sum += static_cast<Local*>(each)->dropped;
  }
  return sum;
}

}  // namespace optools
