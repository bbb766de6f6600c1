// SPDX-License-Identifier: Apache-2.0
// Overflow check. Results are looked at after the kernel; what the kernel will
// overwrite, before it. In host memory that is one pass in place; elsewhere a
// question to the device that is read later, so nothing waits.
#include "tools/overflow.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_set>

#include "core/call_site.h"
#include "core/torch_compat.h"
#include "tools/seen_contents.h"

namespace optools {

// Questions to devices before their answers are read.
constexpr size_t kRound = 2048;

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

// A call that asked. Its questions may be of two rounds, and other threads' in
// between.
struct Overflow::AskedCall {
  Record call;
  Local* by;
  bool deliberate;
  std::vector<uint64_t> inputs;  // questions about what it read
};

struct Overflow::Local : ToolLocal {
  explicit Local(ThreadState& owner) : ToolLocal(owner), log(256 * 1024) {}
  RecordLog log;
  SeenContents seen;  // in host memory
  uint64_t checked = 0;
  uint64_t unreadable = 0;
  // Arguments kept to be looked at should the results turn out bad.
  std::vector<std::pair<at::Tensor, Tensor>> kept;
  // Arguments the kernel writes and does not return.
  std::vector<std::pair<at::Tensor, Tensor>> written;
  bool deliberate = false;           // an infinity was passed on purpose
  std::shared_ptr<AskedCall> asked;  // the call, once it asks a device
  // Results on devices, to be asked about.
  std::vector<std::pair<at::Tensor, Tensor>> results;
  // The call before which another thread, or this one later, found the first
  // bad operator: its history is in our log, which only we may read.
  std::atomic<uint64_t> history_of{0};
  // What runs becomes part of a graph: a question would be asked at each
  // replay, and waiting is forbidden.
  bool recording = false;

  void forget_call() {
    kept.clear();
    written.clear();
    results.clear();
    asked.reset();
  }
  void begin_asking() {
    if (asked == nullptr) {
      asked = std::make_shared<AskedCall>(
          AskedCall{log.newest(), this, deliberate, {}});
    }
  }
  bool askable(const at::Tensor& t) const {
    return !recording && device_checkable(t);
  }
};

// Questions to devices whose answers are read at once; a question's tag is its
// place in `asked`.
struct Overflow::Round {
  struct Asked {
    std::shared_ptr<const AskedCall> call;
    Tensor what;
  };
  uint64_t first = 1;  // number of asked[0]
  std::vector<Asked> asked;
  DeviceCheck::Answers answers;

  uint64_t last() const {
    return first + asked.size() - 1;
  }
};

// What devices are asked: one for all threads, as a backward kernel reads what
// a forward kernel of another thread wrote, and an optimizer writes over what
// backward asked about.
struct Overflow::Devices {
  std::mutex mutex;
  SeenContents seen;
  DeviceCheck check;
  Round now;
  Round before;                      // its answers are on their way
  std::unordered_set<uint64_t> bad;  // questions answered with a non-finite

  // Call with the lock held, and `alias` made without it.
  void ask(
      Local& mine,
      const at::Tensor& t,
      at::Tensor alias,
      const Tensor& what,
      bool written);
};

Overflow::Overflow(size_t history, size_t limit)
    : history_(history), limit_(limit), devices_(std::make_unique<Devices>()) {}

Overflow::~Overflow() = default;

void Overflow::Devices::ask(
    Local& mine,
    const at::Tensor& t,
    at::Tensor alias,
    const Tensor& what,
    bool written) {
  check.ask(t, std::move(alias), now.asked.size());
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
      inputs.push_back(question);
      return;
    }
  }
  at::Tensor alias = DeviceCheck::alias_of(t);
  std::lock_guard lock(devices_->mutex);
  devices_->ask(mine, t, std::move(alias), what, false);
  inputs.push_back(devices_->now.last());
}

// All at once, so that they are of one round and one event.
void Overflow::ask_after(const Call& call, Local& mine) {
  if (mine.results.empty()) {
    return;
  }
  mine.begin_asking();
  std::vector<at::Tensor> aliases;
  for (const auto& [t, what] : mine.results) {
    aliases.push_back(DeviceCheck::alias_of(t));
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
            outcome.dirty_inputs.push_back(what);
          }
        }
      } else if (mine.askable(t)) {
        ask_before(mine, t, what);
      } else {
        mine.unreadable += t.numel() != 0;
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
      what.statistics = statistics(t);
      outcome.dirty_outputs.push_back(what);
    } else if (call.op.writes) {
      mine.seen.put(t, true, kClean);
    }
  } else if (mine.askable(t)) {
    mine.results.emplace_back(t, what);
  } else {
    mine.unreadable += t.numel() != 0;
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
          outcome.dirty_inputs.push_back(what);
        }
      }
      report(call, *mine, outcome);
    }
    mine->forget_call();
    if (call.device != c10::DeviceType::CPU && !mine->recording) {
      // Questions can wait where every kernel that writes is seen, but not in
      // backward: autograd adds gradients in place only while nobody else has
      // their memory.
      const bool may_wait =
          call.phase != Phase::kBackward && selection.everything();
      read_answers(kRound, may_wait);
    }
  });
}

void Overflow::report(const Call& call, Local& mine, Outcome& outcome) {
  ++total_;
  const bool first_bad = outcome.dirty_inputs.empty() && !mine.deliberate;
  std::lock_guard lock(mutex_);
  if (first_bad && !seen_first_) {
    seen_first_ = true;
    mine.history_of = call.number;
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
    check.flush();
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
    std::vector<Tensor> tensors;
    bool in_results = false;
  };
  std::map<uint64_t, Dirty> dirty;            // in the order of calls
  const auto answers = round.answers.read();  // waits: not under the lock
  std::lock_guard lock(mutex_);
  const bool keeps = events_.size() < limit_;  // else they are only counted
  for (const auto& answer : answers) {
    if (std::isfinite(answer.magnitude)) {
      continue;
    }
    if (keeps) {
      devices_->bad.insert(round.first + answer.tag);
    }
    const auto& asked = round.asked[answer.tag];
    auto& found = dirty[asked.call->call.number];
    found.call = asked.call.get();
    found.tensors.push_back(asked.what);
    found.tensors.back().magnitude = answer.magnitude;
    found.in_results = found.in_results || asked.what.output;
  }
  for (auto& [number, found] : dirty) {
    if (!found.in_results) {
      continue;
    }
    ++total_;
    const auto& made = *found.call;
    const auto is_bad = [&](uint64_t question) {
      return devices_->bad.contains(question);
    };
    const bool clean_inputs =
        !made.deliberate &&
        std::none_of(made.inputs.begin(), made.inputs.end(), is_bad);
    if (clean_inputs && keeps && !seen_first_) {
      seen_first_ = true;
      made.by->history_of = number;
    }
    if (events_.size() < limit_) {
      events_.push_back(
          {made.call, clean_inputs, std::move(found.tensors), made.call.site});
    }
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

uint64_t Overflow::unreadable() const {
  uint64_t sum = 0;
  for (auto* each : quiet_locals()) {
    sum += static_cast<Local*>(each)->unreadable;
  }
  return sum;
}

}  // namespace optools
