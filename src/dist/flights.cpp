// SPDX-License-Identifier: Apache-2.0
// Calls on a driver's communicator: how the group gets one, how a call is
// queued there, and the watch over what is in flight. Note [Stream order] in
// group_state.h.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <set>

#include "dist/checks.h"
#include "dist/group_state.h"
#include "driver/services.h"
#include "runtime/external_stream.h"
#include "runtime/sanitizer/sanitizer.h"
#include "runtime/stream.h"

namespace npu::dist {

using std::chrono::steady_clock;

namespace {

// A rank may have left after its part of the call: what it sent is still on its
// way here.
constexpr auto kGrace = Milliseconds(500);
constexpr auto kTick = Milliseconds(20);  // of the watch
constexpr auto kShortTick = std::chrono::microseconds(200);
// No message of a program has this tag.
constexpr int kPairTag = 1 << 30;

// The group's own operators on the caller's thread: no mode, autograd or
// autocast of the program sees them.
struct OwnOperators {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  c10::impl::ExcludeDispatchKeyGuard no_modes{c10::DispatchKeySet(
      {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

class AgreementOfAll : public Communicator::Agreement {
 public:
  AgreementOfAll(c10d::Backend& gloo, Deadline deadline)
      : gloo_(gloo), deadline_(deadline) {}

  void share(at::Tensor& bytes) override {
    gloo_broadcast(gloo_, bytes, 0, deadline_);
  }
  bool all_say(bool mine) override {
    auto options = options_for<c10d::AllreduceOptions>(deadline_);
    options.reduceOp = c10d::ReduceOp(c10d::ReduceOp::MIN);
    Tensors one{at::full({1}, mine ? 1 : 0, at::kByte)};
    gloo_.allreduce(one, options)->wait();
    return one[0].item<std::uint8_t>() != 0;
  }

 private:
  c10d::Backend& gloo_;
  const Deadline deadline_;
};

class AgreementOfTwo : public Communicator::Agreement {
 public:
  AgreementOfTwo(
      c10d::Backend& gloo, int partner, bool first, Deadline deadline)
      : gloo_(gloo), partner_(partner), first_(first), deadline_(deadline) {}

  void share(at::Tensor& bytes) override {
    Tensors one{bytes};
    (first_ ? gloo_.send(one, partner_, kPairTag)
            : gloo_.recv(one, partner_, kPairTag))
        ->wait(time_left(deadline_));
  }
  bool all_say(bool mine) override {
    Tensors own{at::full({1}, mine ? 1 : 0, at::kByte)};
    Tensors other{at::full({1}, 0, at::kByte)};
    const auto sent = gloo_.send(own, partner_, kPairTag);
    gloo_.recv(other, partner_, kPairTag)->wait(time_left(deadline_));
    sent->wait(time_left(deadline_));
    return mine && other[0].item<std::uint8_t>() != 0;
  }

 private:
  c10d::Backend& gloo_;
  const int partner_;
  const bool first_;
  const Deadline deadline_;
};

}  // namespace

// ---- communicators ----

Communicator::Watch GroupState::watch_over(const CallNote& note) const {
  struct Seen {
    Deadline next = steady_clock::now() + kTick;
    std::optional<Deadline> gone;
  };
  return [this, &note, seen = Seen{}]() mutable {
    if (aborted.load() || lanes_are_ending()) {
      throw_backend_error("was aborted.");
    }
    const auto now = steady_clock::now();
    if (now >= note.deadline) {
      throw_backend_error(
          "timed out after " + std::to_string(note.timeout.count()) + " ms.");
    }
    if (now < seen.next) {
      return;
    }
    seen.next = now + kTick;
    if (!somebody_ended()) {
      seen.gone.reset();
    } else if (!seen.gone) {
      seen.gone = now;
    } else if (now - *seen.gone > kGrace) {
      throw_backend_error("a rank has ended.");
    }
  };
}

std::shared_ptr<Communicator> GroupState::existing_communicator() const {
  const std::lock_guard lock(mutex_);
  return communicator_;
}

// Made at the first call that it could serve: all ranks are at it. It stays on
// the device of that call; tensors of other devices are copied there.
std::shared_ptr<Communicator> GroupState::communicator(const Job& job) {
  if (const auto known = existing_communicator(); known || refused_.load()) {
    return known;
  }
  AgreementOfAll agreement(*gloo, job.note.deadline);
  auto made = Communicator::make(
      {rank, size, job.arguments.device(), group},
      agreement,
      job.note.deadline,
      watch_over(job.note));
  const std::lock_guard lock(mutex_);
  refused_.store(made == nullptr);
  communicator_ = std::move(made);
  return communicator_;
}

GroupState::Pair GroupState::make_pair(const Job& job) {
  const int partner = job.note.partner;
  Pair pair;
  for (const bool upwards : {true, false}) {
    const bool out = upwards == (rank < partner);
    AgreementOfTwo agreement(*gloo, partner, out, job.note.deadline);
    (out ? pair.out : pair.in) = Communicator::make(
        {out ? 0 : 1, 2, job.arguments.device(), group},
        agreement,
        job.note.deadline,
        watch_over(job.note));
  }
  pair.refused = !pair.out || !pair.in;
  return pair;
}

// Both ranks are at their first message to or from each other.
std::shared_ptr<Communicator> GroupState::communicator_of_pair(const Job& job) {
  std::unique_lock lock(mutex_);
  auto found = pairs_.find(job.note.partner);
  if (found == pairs_.end()) {
    lock.unlock();
    Pair made = make_pair(job);
    lock.lock();
    found = pairs_.emplace(job.note.partner, std::move(made)).first;
  }
  const Pair& pair = found->second;
  return pair.refused                          ? nullptr
         : job.note.type == c10d::OpType::SEND ? pair.out
                                               : pair.in;
}

std::vector<std::shared_ptr<Communicator>> GroupState::communicators() const {
  std::vector<std::shared_ptr<Communicator>> found;
  const std::lock_guard lock(flights_mutex_);
  for (const Flight& flight : flights_) {
    if (std::find(found.begin(), found.end(), flight.communicator) ==
        found.end()) {
      found.push_back(flight.communicator);
    }
  }
  return found;
}

// ---- queueing ----

bool GroupState::queue(
    const std::shared_ptr<Communicator>& used, Job& job, bool from_lane) {
  const OwnOperators own;
  const sanitizer::Quiet quiet;
  const c10::Stream stream = used->stream();
  // Copies from another device: the program's own stream there is not held up.
  std::optional<c10::StreamGuard> there;
  if (job.arguments.device() != stream.device_index()) {
    there.emplace(copy_stream(job.arguments.device()));
  }
  const c10::StreamGuard here(stream);
  job.arguments.place(stream);
  const DriverPlan plan = job.on_driver(job.arguments);
  if (board && !job.note.is_message()) {
    board->arrive(
        Board::Track::kQueued,
        rank,
        job.note.number,
        Board::fitting(job.note.text),
        job.note.counts);
  }
  job.driver_has_it = true;
  if (!plan.steps.empty() && !used->queue([&](const Communicator::Call& call) {
        return queue_plan(call, plan);
      })) {
    job.driver_has_it = false;
    return false;
  }
  if (plan.after) {
    plan.after();
  }
  job.arguments.put_back();
  Flight flight;
  flight.bytes = job.arguments.bytes_of_this_rank();
  flight.foreign = job.arguments.release(stream);
  flight.note = job.note;
  flight.communicator = used;
  flight.progress = job.work->progress();
  flight.device = job.arguments.device();
  flight.begin =
      job.note.asked.heard ? c10::getApproximateTime() : profiler::Ticks{0};
  flight.urgent = from_lane || job.note.asked.heard;
  flight.progress->queue_behind(stream);
  FlightRecorder::of_process().started(job.note.record, flight.progress);
  job.note.count(Transport::kDriver);
  if (job.note.partner >= 0) {
    job.work->set_source(job.note.partner);
  }
  take_off(std::move(flight));
  if (from_lane) {
    call_back(job.work);
    const std::lock_guard lock(mutex_);
    pending_.erase(job.work);
  } else {
    job.work->finish_future();
  }
  return true;
}

bool GroupState::queue_directly(Job& job) {
  std::shared_ptr<Communicator> used;
  if (!job.note.is_message()) {
    used = existing_communicator();
  } else {
    const std::lock_guard lock(mutex_);
    const auto found = pairs_.find(job.note.partner);
    if (found != pairs_.end()) {
      used = job.note.type == c10d::OpType::SEND ? found->second.out
                                                 : found->second.in;
      used = found->second.refused ? nullptr : used;
    }
  }
  if (!used) {
    return false;
  }
  try {
    return queue(used, job, false);
  } catch (const std::exception& error) {
    const std::string why = words_of(error);
    FlightRecorder::of_process().failed(job.note.record, why);
    give_up(job.note, explained(job.note, true, why));
    if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
      throw;
    }
    throw_backend_error(failure());
  }
}

bool GroupState::run_message(Job& job) {
  if (!failure().empty() || aborted.load()) {
    return false;  // run() says so
  }
  try {
    const auto used = communicator_of_pair(job);
    return used && queue(used, job, true);
  } catch (const std::exception& error) {
    give_up(job.note, explained(job.note, true, words_of(error)));
    return false;
  }
}

void GroupState::take_off(Flight flight) {
  std::unique_lock lock(flights_mutex_);
  if (given_up_.load()) {
    // Another thread ended the group while the driver got this call.
    lock.unlock();
    end(flight);
    flight.communicator->abort();
    flight.communicator->await_end();
    return;
  }
  flights_.push_back(std::move(flight));
  if (!watching_) {
    watching_ = true;
    watch_lane_.submit([state = shared_from_this()] { state->watch(); });
  } else if (flights_.back().urgent) {
    flights_changed_.notify_all();
  }
}

bool GroupState::drain_driver(double seconds) const {
  std::unique_lock lock(flights_mutex_);
  ++drains_;
  flights_changed_.notify_all();
  const bool empty = flights_changed_.wait_for(
      lock, std::chrono::duration<double>(seconds), [&] {
        return flights_.empty();
      });
  --drains_;
  return empty;
}

// ---- the watch ----

bool GroupState::has_ended(const CallNote& note) const {
  if (!board) {
    return false;
  }
  return note.is_message()
             ? !board->look(Board::Track::kMet, note.partner, ~std::uint64_t{0})
                    .alive
             : somebody_ended();
}

std::string GroupState::trouble(const CallNote& note) {
  const auto now = steady_clock::now();
  if (now >= note.deadline) {
    return "timed out after " + std::to_string(note.timeout.count()) + " ms.";
  }
  if (!disagreement(note).empty()) {
    return "the ranks disagree.";
  }
  if (!has_ended(note)) {
    gone_since_.reset();
  } else if (!gone_since_) {
    gone_since_ = now;
  } else if (now - *gone_since_ > kGrace) {
    return "a rank has ended.";
  }
  return "";
}

std::vector<GroupState::Front> GroupState::fronts() const {
  std::vector<Front> found;
  const std::lock_guard lock(flights_mutex_);
  for (const Flight& flight : flights_) {
    const auto same = [&](const Front& front) {
      return front.communicator == flight.communicator;
    };
    auto front = std::find_if(found.begin(), found.end(), same);
    if (front == found.end()) {
      front = found.insert(
          found.end(), {flight.note, flight.note, flight.communicator, {}, {}});
    } else if (front->waits) {
      continue;
    }
    // The first that waits is the one to be explained.
    front->waits = !flight.progress->is_done();
    front->error = flight.progress->device_error();
    if (front->waits) {
      front->waiting = flight.note;
    } else {
      front->passed.push_back(flight.progress);
    }
  }
  return found;
}

void GroupState::land(const std::vector<Front>& fronts) {
  std::set<ProgressPtr> passed;
  for (const Front& front : fronts) {
    passed.insert(front.passed.begin(), front.passed.end());
  }
  std::vector<Flight> landed;  // ended without the lock
  {
    const std::lock_guard lock(flights_mutex_);
    for (auto at = flights_.begin(); at != flights_.end();) {
      if (passed.count(at->progress) == 0) {
        ++at;
        continue;
      }
      landed.push_back(std::move(*at));
      at = flights_.erase(at);
    }
  }
  for (const Flight& flight : landed) {
    // Calls that differ may fit each other by chance.
    if (!disagreement(flight.note).empty()) {
      const std::string why = explained(flight.note, true, "");
      flight.progress->finish(backend_error(why));
      give_up(flight.note, why);
      continue;
    }
    flight.progress->finish(nullptr);
    FlightRecorder::of_process().completed(flight.note.record);
    profiler::on_collective(
        flight.note.asked,
        {.device = flight.device,
         .text = flight.note.text,
         .bytes = flight.bytes,
         .begin = flight.begin,
         .met = flight.begin});
  }
}

void GroupState::watch() {
  auto next_look = steady_clock::now() + kTick;
  while (true) {
    stop_if_ending();
    const bool looks = steady_clock::now() >= next_look;
    next_look = looks ? steady_clock::now() + kTick : next_look;
    std::string why;
    CallNote blamed;
    try {
      const auto found = fronts();
      for (const Front& front : found) {
        if (given_up_.load()) {
          break;
        }
        blamed = front.oldest;
        if (looks || !front.passed.empty()) {
          front.communicator->check();
        }
        blamed = front.waiting;
        why = front.error;
        if (why.empty() && looks && front.waits) {
          why = trouble(front.waiting);
        }
        if (!why.empty()) {
          break;
        }
      }
      if (why.empty() && !given_up_.load()) {
        land(found);
      }
    } catch (const std::exception& error) {
      why = words_of(error);
    }
    if (!why.empty() && !given_up_.load()) {
      give_up(blamed, explained(blamed, true, why));
    }
    std::unique_lock lock(flights_mutex_);
    flights_changed_.notify_all();
    if (flights_.empty()) {
      watching_ = false;
      return;
    }
    const bool urgent =
        drains_ != 0 ||
        std::any_of(flights_.begin(), flights_.end(), [](const Flight& flight) {
          return flight.urgent;
        });
    urgent ? flights_changed_.wait_for(lock, kShortTick)
           : flights_changed_.wait_for(lock, kTick);
  }
}

void GroupState::give_up(const CallNote& note, const std::string& message) {
  fail(message);
  end_flights();
  log(NPU_LOG_ERROR, "npu: " + message);
  FlightRecorder::of_process().failed(note.record, message);
  FlightRecorder::of_process().write_after_failure(global_rank);
}

void GroupState::end(const Flight& flight) {
  const std::string known = failure();
  const std::string message =
      known.empty() ? "hccl: " + flight.note.text + " was aborted." : known;
  FlightRecorder::of_process().failed(flight.note.record, message);
  flight.progress->finish(backend_error(message));
}

void GroupState::end_flights() {
  if (given_up_.exchange(true)) {
    return;  // another thread does it
  }
  const auto used = communicators();
  {
    const std::lock_guard lock(flights_mutex_);
    for (const Flight& flight : flights_) {
      end(flight);
    }
  }
  for (const auto& each : used) {
    each->abort();
  }
  for (const auto& each : used) {
    each->await_end();
  }
  std::deque<Flight> ended;
  const std::lock_guard lock(flights_mutex_);
  ended.swap(flights_);
  flights_changed_.notify_all();
}

}  // namespace npu::dist
