// SPDX-License-Identifier: Apache-2.0
// Overflow check. Results are looked at after the kernel; what the kernel will
// overwrite, before it. In host memory that is one pass in place; elsewhere a
// question to the device that is read later, so nothing waits.
#include "tools/overflow.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_set>

#include "core/call_site.h"

namespace optools {
// Asked in host memory, where the answer came at once: clean.
constexpr uint64_t kClean = ~uint64_t{0};

// Which contents were looked at already: (memory, version). A small table
// where newer entries displace older ones; a miss costs one more look.
class SeenContents {
 public:
  // The question asked about these contents; 0 for none.
  uint64_t find(const at::Tensor& t) const {
    const auto at = place(t);
    return entries_[at] == key(t, 0) ? questions_[at] : 0;
  }
  // `bumped`: autograd raises the version after the kernel wrote.
  void put(const at::Tensor& t, bool bumped, uint64_t question) {
    const auto at = place(t);
    entries_[at] = key(t, bumped ? 1 : 0);
    questions_[at] = question;
  }

 private:
  struct Entry {
    const void* storage = nullptr;
    int64_t offset = 0;
    int64_t elements = 0;
    uint32_t version = 0;
    bool operator==(const Entry&) const = default;
  };
  static constexpr size_t kEntries = 4096;
  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
  std::vector<uint64_t> questions_ = std::vector<uint64_t>(kEntries);

  static Entry key(const at::Tensor& t, uint32_t ahead) {
    auto* impl = t.unsafeGetTensorImpl();
    return {
        impl->unsafe_storage().unsafeGetStorageImpl(),
        t.storage_offset(),
        t.numel(),
        impl->is_inference()
            ? 0
            : impl->version_counter().current_version() + ahead};
  }
  static size_t place(const at::Tensor& t) {
    const auto* storage =
        t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    const auto mixed = reinterpret_cast<uintptr_t>(storage) / 16 +
                       static_cast<uintptr_t>(t.storage_offset()) * 31;
    return (mixed * 0x9E3779B97F4A7C15ull) >> 52;
  }
};

namespace {

bool worth_a_look(const at::Tensor& t) {
  return has_nonfinite(t.scalar_type()) && t.has_storage();
}

bool nonfinite_scalar(const c10::IValue& value) {
  if (value.isDouble()) {
    return !std::isfinite(value.toDouble());
  }
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return !std::isfinite(number.real()) || !std::isfinite(number.imag());
  }
  return false;
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

struct Overflow::Local : ToolLocal {
  explicit Local(ThreadState& owner) : ToolLocal(owner), log(256 * 1024) {}
  RecordLog log;
  SeenContents seen;
  DeviceCheck device;
  // Questions to the device; a question's tag is its place in `asked`.
  struct Asked {
    size_t call;  // place in `calls`
    Tensor what;
  };
  struct Pending {
    Record call;
    bool deliberate;
    std::vector<uint64_t> known;  // questions that were about its inputs
  };
  std::vector<Asked> asked;
  std::vector<Pending> calls;
  uint64_t first_question = 1;       // number of asked[0]
  std::unordered_set<uint64_t> bad;  // questions answered with a non-finite
  std::vector<uint64_t> known;
  uint64_t checked = 0;
  uint64_t unreadable = 0;
  // Arguments kept to be looked at should the results turn out bad.
  std::vector<std::pair<at::Tensor, Tensor>> kept;
  // Arguments it writes: what is not among the results is one of them.
  std::vector<std::pair<at::Tensor, Tensor>> written;
  bool deliberate = false;  // an infinity was passed on purpose
};

uint64_t Overflow::ask(
    const Call& call, Local& mine, const at::Tensor& t, const Tensor& what) {
  if (mine.calls.empty() || mine.calls.back().call.number != call.number) {
    mine.calls.push_back({mine.log.newest(), false, {}});
  }
  if (!mine.device.ask(t, mine.asked.size())) {
    ++mine.unreadable;
    return 0;
  }
  mine.asked.push_back({mine.calls.size() - 1, what});
  ++mine.checked;
  return mine.first_question + mine.asked.size() - 1;
}

void Overflow::look_before(Call& call, Local& mine, Outcome& outcome) {
  mine.kept.clear();
  mine.written.clear();
  mine.known.clear();
  mine.deliberate = false;
  const auto inputs = call.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    mine.deliberate = mine.deliberate || nonfinite_scalar(inputs[i]);
    uint16_t item = 0;
    each_tensor(inputs[i], [&](const at::Tensor& t) {
      const Tensor what{
          false, static_cast<uint8_t>(i), item++, {}, kNone, kNone};
      if (!worth_a_look(t)) {
        return;
      }
      if (call.op.written[i]) {
        mine.written.emplace_back(t, what);
        mine.written.back().second.output = true;
      }
      if (host_readable(t)) {
        if (!call.op.written[i]) {
          mine.kept.emplace_back(t, what);
        } else if (mine.seen.find(t) == 0) {
          ++mine.checked;
          if (any_nonfinite(t)) {
            outcome.dirty_inputs.push_back(what);
          }
        }
      } else if (!device_checkable(t)) {
        mine.unreadable += t.numel() != 0;
      } else if (const auto question = mine.seen.find(t); question != 0) {
        mine.known.push_back(question);
      } else {
        mine.seen.put(t, false, ask(call, mine, t, what));
      }
    });
  }
}

void Overflow::look_after(Call& call, Local& mine, Outcome& outcome) {
  if (call.op.is_view || call.op.uninitialised) {
    return;
  }
  const auto look = [&](const at::Tensor& t, Tensor what) {
    if (host_readable(t)) {
      ++mine.checked;
      if (any_nonfinite(t)) {
        what.statistics = statistics(t);
        outcome.dirty_outputs.push_back(what);
      } else if (call.op.writes) {
        mine.seen.put(t, true, kClean);
      }
    } else if (device_checkable(t)) {
      mine.seen.put(t, call.op.writes, ask(call, mine, t, what));
    } else {
      mine.unreadable += t.numel() != 0;
    }
  };
  const auto outputs = call.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    uint16_t item = 0;
    each_tensor(outputs[i], [&](const at::Tensor& t) {
      std::erase_if(mine.written, [&](const auto& pair) {
        return pair.first.is_same(t);
      });
      const Tensor what{
          true, static_cast<uint8_t>(i), item++, {}, kNone, kNone};
      if (worth_a_look(t)) {
        look(t, what);
      }
    });
  }
  for (const auto& [tensor, what] : mine.written) {
    look(tensor, what);
  }
}

void Overflow::around(Call& call, Chain& chain) {
  Local* mine = nullptr;
  Outcome outcome;
  const bool begun = attempt([&] {
    Quiet quiet;
    mine = &local<Local>(call);
    mine->log.begin(call);
    look_before(call, *mine, outcome);
  });
  if (!begun) {
    chain.run();
    return;
  }
  try {
    chain.run();
  } catch (...) {
    mine->log.raised();
    mine->kept.clear();
    mine->written.clear();
    throw;
  }
  attempt([&] {
    Quiet quiet;
    mine->log.add_outputs(call);
    look_after(call, *mine, outcome);
    if (!outcome.dirty_outputs.empty()) {
      for (auto& [tensor, what] : mine->kept) {
        if (any_nonfinite(tensor)) {
          outcome.dirty_inputs.push_back(what);
        }
      }
      report(call, *mine, outcome);
    }
    mine->kept.clear();
    mine->written.clear();
    if (!mine->calls.empty() && mine->calls.back().call.number == call.number) {
      mine->calls.back().deliberate = mine->deliberate;
      mine->calls.back().known = mine->known;
    }
    if (mine->device.half_full()) {
      drain(*mine);
    }
  });
}

void Overflow::report(const Call& call, Local& mine, Outcome& outcome) {
  ++total_;
  const bool first_bad = outcome.dirty_inputs.empty() && !mine.deliberate;
  std::lock_guard lock(mutex_);
  if (first_bad && !seen_first_) {
    seen_first_ = true;
    keep_history(mine, call.number);
  }
  if (events_.size() >= limit_) {
    return;
  }
  Event event{mine.log.newest(), first_bad, {}, call.origin.site};
  if (event.site == 0) {
    event.site = call_site();
  }
  event.tensors = std::move(outcome.dirty_inputs);
  for (auto& tensor : outcome.dirty_outputs) {
    event.tensors.push_back(tensor);
  }
  events_.push_back(std::move(event));
}

void Overflow::keep_history(Local& mine, uint64_t number) {
  for (const Record* record : mine.log.last(history_, number)) {
    const auto* bytes = reinterpret_cast<const char*>(record);
    history_records_.emplace_back(bytes, bytes + record->bytes);
  }
}

void Overflow::drain(Local& mine) {
  std::map<size_t, std::vector<Tensor>> dirty;  // in the order of calls
  for (const auto& answer : mine.device.take()) {
    if (!std::isfinite(answer.low) || !std::isfinite(answer.high)) {
      mine.bad.insert(mine.first_question + answer.tag);
      const auto& asked = mine.asked[answer.tag];
      Tensor what = asked.what;
      what.low = answer.low;
      what.high = answer.high;
      dirty[asked.call].push_back(what);
    }
  }
  std::lock_guard lock(mutex_);
  for (auto& [at, tensors] : dirty) {
    const auto is_output = [](const Tensor& t) { return t.output; };
    const auto outputs =
        std::count_if(tensors.begin(), tensors.end(), is_output);
    if (outputs == 0) {
      continue;
    }
    ++total_;
    const auto& call_made = mine.calls[at];
    const bool clean_inputs =
        outputs == std::ssize(tensors) && !call_made.deliberate &&
        std::none_of(
            call_made.known.begin(), call_made.known.end(), [&](auto question) {
              return mine.bad.contains(question);
            });
    if (clean_inputs && !seen_first_) {
      seen_first_ = true;
      keep_history(mine, call_made.call.number);
    }
    if (events_.size() < limit_) {
      const auto& call = mine.calls[at].call;
      events_.push_back({call, clean_inputs, std::move(tensors), call.site});
    }
  }
  mine.first_question += mine.asked.size();
  mine.asked.clear();
  mine.calls.clear();
}

void Overflow::finish() {
  attempt([&] {
    Quiet quiet;
    for (auto* each : quiet_locals()) {
      drain(static_cast<Local&>(*each));
    }
  });
}

std::vector<Overflow::Event> Overflow::events() const {
  std::lock_guard lock(mutex_);
  return {events_.begin(), events_.end()};
}

std::vector<std::vector<char>> Overflow::history() const {
  std::lock_guard lock(mutex_);
  return history_records_;
}

uint64_t Overflow::checked() const {
  uint64_t sum = 0;
  for (auto* each : quiet_locals()) {
    sum += static_cast<Local*>(each)->checked;
  }
  return sum;
}

uint64_t Overflow::unreadable() const {
  uint64_t sum = 0;
  for (auto* each : quiet_locals()) {
    sum += static_cast<Local*>(each)->unreadable;
  }
  return sum;
}

}  // namespace optools
