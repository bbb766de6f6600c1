// SPDX-License-Identifier: Apache-2.0
// Overflow check. Results are looked at after the kernel; what the kernel will
// overwrite, before it. In host memory that is one pass in place; elsewhere a
// question to the device that is read later, so nothing waits.
#include "tools/overflow.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/call_site.h"
#include "core/tensor_bytes.h"
#include "core/tensor_names.h"
#include "core/torch_compat.h"
#include "tools/overflow_parts.h"

namespace optools {
// Questions to devices before their answers are read.
constexpr size_t kRound = 2048;
// Bad answers remembered, to tell whether an input was bad.
constexpr size_t kMostBad = size_t{1} << 20;

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

Overflow::Overflow(size_t history, size_t limit)
    : history_(history), limit_(limit), devices_(std::make_unique<Devices>()) {}

Overflow::~Overflow() = default;

void Overflow::Devices::ask(
    Local& mine,
    const at::Tensor& t,
    at::Tensor alias,
    const Tensor& what,
    bool written) {
  check.ask(t, std::move(alias), now.asked.size(), mine.copies);
  now.asked.push_back({mine.asked, what});
  ++mine.checked;
  seen.put(t, written, now.last());
}

void Overflow::ask_before(
    Local& mine, const at::Tensor& t, const Tensor& what) {
  mine.begin_asking();
  auto& inputs = mine.asked->inputs;
  {
    std::lock_guard lock(devices_->mutex);
    if (const auto question = devices_->seen.find(t); question != 0) {
      inputs.push_back({question, what.position, what.item});
      return;
    }
  }
  at::Tensor alias = DeviceCheck::alias_of(t, mine.copies);
  Tensor named = what;
  named.label = tensor_label(t);
  std::lock_guard lock(devices_->mutex);
  devices_->ask(mine, t, std::move(alias), named, false);
  inputs.push_back({devices_->now.last(), what.position, what.item});
}

// All at once, so that they are of one round and one event.
void Overflow::ask_after(const Call& call, Local& mine) {
  if (mine.results.empty()) {
    return;
  }
  mine.begin_asking();
  std::vector<at::Tensor> aliases;
  for (const auto& [t, what] : mine.results) {
    aliases.push_back(DeviceCheck::alias_of(t, mine.copies));
  }
  std::lock_guard lock(devices_->mutex);
  for (size_t i = 0; i < aliases.size(); ++i) {
    const auto& [t, what] = mine.results[i];
    devices_->ask(mine, t, std::move(aliases[i]), what, call.op.writes);
  }
}

void Overflow::before_write(const Call& call) {
  const auto inputs = call.inputs();
  std::lock_guard lock(devices_->mutex);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (call.op.written[i]) {
      each_tensor(inputs[i], [&](const at::Tensor& t) {
        if (t.has_storage()) {
          devices_->check.before_write(t);
        }
      });
    }
  }
}

// Of a tensor in host memory that holds infinities or NaN.
Overflow::Tensor Overflow::measured(const at::Tensor& t, Tensor what) const {
  if (!full_.load(std::memory_order_relaxed)) {
    what.statistics = statistics(t);
    what.first = first_nonfinite(t);
    what.label = tensor_label(t);
  }
  return what;
}

void Overflow::look_before(Call& call, Local& mine, Outcome& outcome) {
  mine.forget_call();
  mine.deliberate = false;
  if (call.op.is_view || call.op.uninitialised) {
    return;  // reads nothing
  }
  const auto inputs = call.inputs();
  for (const auto& input : inputs) {
    mine.deliberate = mine.deliberate || nonfinite_scalar(input);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    uint16_t item = 0;
    each_tensor(inputs[i], [&](const at::Tensor& t) {
      const Tensor what{
          false, false, static_cast<uint8_t>(i), item++, {}, kNone};
      if (call.op.unreturned[i]) {
        mine.written.emplace_back(t, what);
      }
      if (!worth_a_look(t)) {
        return;
      }
      if (host_readable(t)) {
        if (!call.op.written[i]) {
          mine.kept.emplace_back(t, what);
        } else if (mine.seen.find(t) == 0) {
          ++mine.checked;
          if (any_nonfinite(t)) {
            outcome.dirty_inputs.push_back(measured(t, what));
          }
        }
      } else if (mine.askable(t)) {
        ask_before(mine, t, what);
      } else {
        note_unread(call, mine, t);
      }
    });
  }
  if (call.op.writes && call.device != c10::DeviceType::CPU &&
      !mine.recording) {
    before_write(call);
  }
}

void Overflow::look_after(Call& call, Local& mine, Outcome& outcome) {
  if (call.op.is_view) {
    return;
  }
  const auto outputs = call.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (static_cast<int>(i) == call.op.bookkeeping) {
      continue;
    }
    uint16_t item = 0;
    each_tensor(outputs[i], [&](const at::Tensor& t) {
      const Tensor what{
          true, false, static_cast<uint8_t>(i), item++, {}, kNone};
      if (call.op.uninitialised) {
        forget(mine, t);
      } else {
        look_at_result(call, mine, t, what, outcome);
      }
    });
  }
  for (auto& [t, what] : mine.written) {
    what.output = what.written = true;
    look_at_result(call, mine, t, what, outcome);
  }
  ask_after(call, mine);
}

void Overflow::look_at_result(
    Call& call,
    Local& mine,
    const at::Tensor& t,
    Tensor what,
    Outcome& outcome) {
  if (!worth_a_look(t)) {
    return;
  }
  if (host_readable(t)) {
    ++mine.checked;
    if (any_nonfinite(t)) {
      outcome.dirty_outputs.push_back(measured(t, what));
    } else if (call.op.writes) {
      mine.seen.put(t, true, kClean);
    }
  } else if (mine.askable(t)) {
    if (call.op.writes) {
      what.label = tensor_label(t);
    }
    mine.results.emplace_back(t, what);
  } else {
    note_unread(call, mine, t);
  }
}

// New memory may lie, and count its versions, where old memory did.
void Overflow::forget(Local& mine, const at::Tensor& t) {
  if (!worth_a_look(t)) {
    return;
  }
  if (host_readable(t)) {
    mine.seen.put(t, false, 0);
  } else if (device_checkable(t)) {
    std::lock_guard lock(devices_->mutex);
    devices_->seen.put(t, false, 0);
  }
}

void Overflow::around(Call& call, Chain& chain) {
  Local* mine = nullptr;
  Outcome outcome;
  const bool begun = attempt([&] {
    Quiet quiet;
    mine = &local<Local>(call);
    keep_history(*mine);
    mine->log.begin(call);
    mine->copies = !may_wait(call);
    mine->recording = call.device != c10::DeviceType::CPU &&
                      records_graph(current_device(call.device));
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
    mine->forget_call();
    throw;
  }
  attempt([&] {
    Quiet quiet;
    mine->log.add_outputs(call);
    look_after(call, *mine, outcome);
    if (!outcome.dirty_outputs.empty()) {
      for (auto& [tensor, what] : mine->kept) {
        if (any_nonfinite(tensor)) {
          outcome.dirty_inputs.push_back(measured(tensor, what));
        }
      }
      report(call, *mine, outcome);
    }
    mine->forget_call();
    if (call.device != c10::DeviceType::CPU && !mine->recording) {
      read_answers(kRound, may_wait(call));
    }
  });
}

// May memory be kept until a question about it is asked? Where every kernel
// that writes is seen, but not in backward: autograd adds gradients in place
// only while their memory has no other owner.
bool Overflow::may_wait(const Call& call) const {
  return call.phase != Phase::kBackward && selection.everything();
}

void Overflow::note_unread(const Call& call, Local& mine, const at::Tensor& t) {
  if (t.numel() != 0) {
    const char* why =
        mine.recording ? "a graph was being recorded" : unreadable(t);
    mine.unread.add(
        call.op.index, why != nullptr ? why : "of a dtype without a check");
  }
}

// Call with the lock held. The first of their kind are kept beyond the limit:
// they are the ones to be told.
void Overflow::keep(Event&& event, Local& mine) {
  const bool first = event.first_bad && !seen_first_;
  const bool nan = event.makes_nan() && !seen_nan_;
  if ((first || nan) && !seen_first_ && !seen_nan_) {
    mine.history_of = event.call.number;
  }
  seen_first_ = seen_first_ || first;
  seen_nan_ = seen_nan_ || nan;
  if (events_.size() < limit_ || first || nan) {
    events_.push_back(std::move(event));
  }
  full_ = events_.size() >= limit_ && (seen_first_ || seen_nan_);
}

void Overflow::report(const Call& call, Local& mine, Outcome& outcome) {
  ++total_;
  const bool first_bad = outcome.dirty_inputs.empty() && !mine.deliberate;
  Event event{
      mine.log.newest(),
      first_bad,
      mine.deliberate,
      std::move(outcome.dirty_inputs),
      call.origin.site};
  for (auto& tensor : outcome.dirty_outputs) {
    event.tensors.push_back(std::move(tensor));
  }
  std::lock_guard lock(mutex_);
  if (event.site == 0 && events_.size() < limit_) {
    event.site = call_site();
  }
  keep(std::move(event), mine);
}

bool Overflow::Event::makes_nan() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& each) {
    return each.output && each.holds_nan();
  });
}

void Overflow::keep_history(Local& mine) {
  if (mine.history_of.load(std::memory_order_relaxed) == 0) [[likely]] {
    return;
  }
  std::lock_guard lock(mutex_);
  for (const Record* record :
       mine.log.last(history_, mine.history_of.exchange(0))) {
    const auto* bytes = reinterpret_cast<const char*>(record);
    history_records_.emplace_back(bytes, bytes + record->bytes);
  }
}

// Reads the answers asked for a round ago, which are there, and asks for those
// of this round, once it has so many questions.
void Overflow::read_answers(size_t round, bool may_wait) {
  std::vector<at::Tensor> spent;
  std::lock_guard lock(devices_->mutex);
  auto& check = devices_->check;
  if (!may_wait) {
    check.let_go();
  }
  auto& now = devices_->now;
  if (check.unread() >= round) {
    judge(devices_->before);
    const auto next = now.first + now.asked.size();
    devices_->before = std::exchange(now, Round{});
    now.first = next;
    devices_->before.answers = check.take();
  }
  spent = check.spent();
}

void Overflow::judge(Round& round) {
  struct Dirty {
    const AskedCall* call;
    std::vector<Tensor> results;
  };
  std::map<uint64_t, Dirty> dirty;            // in the order of calls
  const auto answers = round.answers.read();  // waits: not under the lock
  std::lock_guard lock(mutex_);
  auto& bad = devices_->bad;
  const bool keeps = !full_;
  for (const auto& answer : answers) {
    if (std::isfinite(answer.magnitude)) {
      continue;
    }
    const auto& asked = round.asked[answer.tag];
    if (keeps && bad.size() < kMostBad) {
      bad[round.first + answer.tag] = {answer.magnitude, asked.what.label};
    }
    auto& found = dirty[asked.call->call.number];
    found.call = asked.call.get();
    if (asked.what.output) {
      found.results.push_back(asked.what);
      found.results.back().magnitude = answer.magnitude;
    }
  }
  for (auto& [number, found] : dirty) {
    if (found.results.empty()) {
      continue;
    }
    ++total_;
    if (!keeps) {
      continue;  // only counted
    }
    const auto& made = *found.call;
    Event event{made.call, false, made.deliberate, {}, made.call.site};
    for (const auto& input : made.inputs) {
      if (const auto at = bad.find(input.question); at != bad.end()) {
        Tensor what{false, false, input.position, input.item, {}, kNone};
        what.magnitude = at->second.magnitude;
        what.label = at->second.label;
        event.tensors.push_back(std::move(what));
      }
    }
    event.first_bad = event.tensors.empty() && !made.deliberate;
    for (auto& tensor : found.results) {
      event.tensors.push_back(std::move(tensor));
    }
    keep(std::move(event), *made.by);
  }
  round = {};
}

void Overflow::finish() {
  attempt([&] {
    Quiet quiet;
    read_answers(0, false);
    read_answers(0, false);  // of the round the first call began to read
    for (auto* each : quiet_locals()) {
      keep_history(static_cast<Local&>(*each));
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

ReasonCounts::Sum Overflow::unread() const {
  ReasonCounts::Sum sum;
  for (auto* each : quiet_locals()) {
    static_cast<Local*>(each)->unread.add_to(sum);
  }
  return sum;
}

}  // namespace optools
