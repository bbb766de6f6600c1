// SPDX-License-Identifier: Apache-2.0
// How a call runs on a lane: the meeting of the ranks, Gloo, and failures. What
// runs on a driver's communicator: flights.cpp.
#include "dist/group_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "driver/services.h"
#include "runtime/sanitizer/sanitizer.h"

namespace npu::dist {

using std::chrono::duration_cast;
using std::chrono::steady_clock;
using Track = Board::Track;

namespace {

constexpr const char* kNothingDone =
    " Nothing was computed, and the group can be used again.";

}  // namespace

std::exception_ptr backend_error(const std::string& message) {
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message));
}

void throw_backend_error(const std::string& message) {
  std::rethrow_exception(backend_error(message));
}

void throw_disagreement(const std::string& message) {
  throw Disagreement(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message);
}

Milliseconds time_left(Deadline deadline) {
  const auto left = duration_cast<Milliseconds>(deadline - steady_clock::now());
  return std::max(left, Milliseconds(1));
}

std::string CallNote::named() const {
  return "call " + std::to_string(number) + ", " + text;
}

void CallNote::count(Transport transport) const {
  if (type != c10d::OpType::BARRIER) {  // which moves nothing
    count_transport(text.substr(0, text.find(' ')), transport);
  }
}

std::string GroupState::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void GroupState::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = why;
  }
}

void GroupState::note(const c10::intrusive_ptr<HcclWork>& work) {
  const std::lock_guard lock(mutex_);
  pending_.insert(work);
}

void GroupState::abort_works() {
  std::vector<c10::intrusive_ptr<HcclWork>> works;
  {
    const std::lock_guard lock(mutex_);
    works.assign(pending_.begin(), pending_.end());
  }
  for (const auto& work : works) {
    work->abort();
  }
}

// ---- words about other ranks ----

std::string GroupState::who_is_missing(std::uint64_t call, Track track) const {
  std::string found;
  for (int other = 0; board && other < size; ++other) {
    const auto peer = board->look(track, other, call);
    if (other == rank || peer.here || !board->asked(other, call).empty()) {
      continue;
    }
    // Its last call may have been one of the other kind.
    const auto met = board->look(Track::kMet, other, call);
    const auto queued = board->look(Track::kQueued, other, call);
    const auto& last = met.call > queued.call ? met : queued;
    found += found.empty() ? "" : "; ";
    found += "rank " + std::to_string(other) + " (process " +
             std::to_string(peer.pid) + ") ";
    if (!peer.alive) {
      found += "has ended";
    } else if (peer.stopped) {
      found += "is stopped";
    } else {
      found += "has not come";
    }
    found += last.call == 0 ? ", before its first call"
                            : ", its last was call " +
                                  std::to_string(last.call) + ", " + last.text;
  }
  return found;
}

std::string GroupState::who_is_gone() const {
  std::string gone;
  for (int other = 0; board && other < size; ++other) {
    const auto peer = board->look(Track::kMet, other, ~std::uint64_t{0});
    if (other != rank && (!peer.alive || peer.stopped)) {
      gone += " Rank " + std::to_string(other) + " (process " +
              std::to_string(peer.pid) + ") " +
              (peer.alive ? "is stopped." : "has ended.");
    }
  }
  return gone;
}

bool GroupState::somebody_ended() const {
  for (int other = 0; board && other < size; ++other) {
    if (other != rank &&
        !board->look(Track::kMet, other, ~std::uint64_t{0}).alive) {
      return true;
    }
  }
  return false;
}

std::string GroupState::disagreement(const CallNote& note) const {
  if (!board || note.is_message()) {
    return "";
  }
  const std::string mine = Board::fitting(note.text);
  std::vector<std::vector<std::int64_t>> counts;
  for (int other = 0; other < size; ++other) {
    const std::string theirs = board->asked(other, note.number);
    if (!theirs.empty() && theirs != mine) {
      return "the ranks of group " + group + " disagree on call " +
             std::to_string(note.number) + ": rank " + std::to_string(rank) +
             " asked for " + mine + ", rank " + std::to_string(other) +
             " for " + theirs + ".";
    }
    if (!theirs.empty() && !note.counts.empty() &&
        board->look(Track::kQueued, other, note.number).here) {
      counts.push_back(board->counts(Track::kQueued, other, note.number));
    }
  }
  return counts.size() == static_cast<std::size_t>(size)
             ? mismatch_of_counts(note, counts)
             : "";
}

std::string GroupState::mismatch_of_counts(
    const CallNote& note,
    const std::vector<std::vector<std::int64_t>>& of_ranks) const {
  const auto n = static_cast<std::size_t>(size);
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      const std::int64_t sent = of_ranks[from][to];
      const std::int64_t room = of_ranks[to][n + from];
      if (sent != room) {
        return c10::str(
            "the ranks of group ",
            group,
            " disagree on ",
            note.named(),
            ": rank ",
            from,
            " sends ",
            sent,
            " bytes to rank ",
            to,
            ", which has room for ",
            room,
            ".");
      }
    }
  }
  return "";
}

// Each rank whose call fails says so in the store; the others are the reason.
std::string GroupState::who_is_silent(const CallNote& note) const {
  if (!store) {
    return "";
  }
  std::string found;
  try {
    const std::string key = "npu/failed/";
    store->set(key + std::to_string(rank), note.text);
    const auto until = steady_clock::now() + std::chrono::seconds(2);
    for (int other = 0; other < size; ++other) {
      const std::string theirs = key + std::to_string(other);
      while (!store->check({theirs}) && steady_clock::now() < until) {
        std::this_thread::sleep_for(Milliseconds(10));
      }
      const std::string who = " Rank " + std::to_string(other);
      if (!store->check({theirs})) {
        found += who +
                 " does not answer: it has ended, is stopped or has not "
                 "come.";
      } else if (const auto text = store->get_to_str(theirs);
                 text != note.text && !note.is_message()) {
        found += who + " asked for " + text + ".";
      }
    }
  } catch (const std::exception&) {
    found += " The store of the group does not answer: its process has ended.";
  }
  return found;
}

std::string GroupState::explained(
    const CallNote& note, bool on_driver, const std::string& error) const {
  // A process that ends closes its connections first and is gone a little
  // later.
  const auto until =
      std::min(note.deadline, steady_clock::now() + Milliseconds(500));
  std::string gone = who_is_gone();
  std::string differs = on_driver ? disagreement(note) : "";
  while (board && gone.empty() && differs.empty() &&
         steady_clock::now() < until) {
    std::this_thread::sleep_for(Milliseconds(5));
    gone = who_is_gone();
    differs = on_driver ? disagreement(note) : "";
  }
  constexpr const char* kOver =
      " The group cannot be used any more: destroy it and make a new one.";
  if (!differs.empty()) {
    return "hccl: " + differs + kOver +
           " NPU_COLLECTIVES_CHECK=1 finds such a call before it is queued.";
  }
  if (!board) {
    gone = who_is_silent(note);
  } else if (gone.empty() && on_driver && !note.is_message()) {
    const std::string missing = who_is_missing(note.number, Track::kQueued);
    gone = missing.empty() ? "" : " R" + missing.substr(1) + ".";
  }
  return "hccl: " + note.named() + " of group " + group + " failed on rank " +
         std::to_string(rank) + " of " + std::to_string(size) + "." + gone +
         (on_driver ? " The driver's communicator: " : " Gloo says: ") +
         error.substr(0, error.find('\n')) + kOver;
}

// ---- meeting ----

void GroupState::meet_on_board(const Job& job) const {
  const CallNote& note = job.note;
  const auto call = note.number;
  const std::string mine = Board::fitting(note.text);
  board->arrive(Track::kMet, rank, call, mine, note.counts);
  for (int other = 0; other < size;) {
    const auto seen = board->changes();
    const auto peer = board->look(Track::kMet, other, call);
    if (const std::string differs = disagreement(note); !differs.empty()) {
      throw_disagreement("hccl: " + differs + kNothingDone);
    }
    if (peer.here) {
      ++other;
      continue;
    }
    if (aborted.load() || lanes_are_ending()) {
      throw_backend_error("hccl: " + note.named() + " was aborted.");
    }
    if (!peer.alive) {
      throw_backend_error(
          "hccl: " + note.named() + " of group " + group +
          " cannot be done: " + who_is_missing(call, Track::kMet) + ".");
    }
    if (steady_clock::now() >= note.deadline) {
      throw_backend_error(
          "hccl: " + note.named() + " of group " + group + " timed out after " +
          std::to_string(note.timeout.count()) +
          " ms: " + who_is_missing(call, Track::kMet) + ".");
    }
    // Short: a process that dies does not wake the others.
    board->wait(seen, std::min(time_left(note.deadline), Milliseconds(50)));
  }
  if (note.counts.empty()) {
    return;
  }
  std::vector<std::vector<std::int64_t>> of_ranks;
  for (int other = 0; other < size; ++other) {
    of_ranks.push_back(board->counts(Track::kMet, other, call));
  }
  if (const auto differs = mismatch_of_counts(note, of_ranks);
      !differs.empty()) {
    throw_disagreement("hccl: " + differs + kNothingDone);
  }
}

// Ranks on several machines: the same through Gloo, one small message more.
void GroupState::meet_by_gloo(const Job& job) const {
  const CallNote& note = job.note;
  at::Tensor mine = at::zeros({Board::kText}, at::kByte);
  const std::string told = Board::fitting(note.text);
  std::memcpy(mine.data_ptr(), told.data(), told.size());
  at::Tensor all =
      at::zeros({size * static_cast<int64_t>(Board::kText)}, at::kByte);
  c10d::AllgatherOptions options;
  options.timeout = time_left(note.deadline);
  gloo->_allgather_base(all, mine, options)->wait();
  for (int other = 0; other < size; ++other) {
    const char* text = static_cast<const char*>(all.data_ptr()) +
                       static_cast<std::size_t>(other) * Board::kText;
    if (std::memcmp(text, mine.data_ptr(), Board::kText) != 0) {
      throw_disagreement(
          "hccl: the ranks of group " + group + " disagree on " + note.named() +
          ": rank " + std::to_string(other) + " asked for " + text + "." +
          kNothingDone);
    }
  }
  if (!note.counts.empty()) {
    const auto width = static_cast<int64_t>(note.counts.size());
    at::Tensor counts = at::from_blob(
        const_cast<std::int64_t*>(note.counts.data()), {width}, at::kLong);
    at::Tensor every = at::empty({size * width}, at::kLong);
    options.timeout = time_left(note.deadline);
    gloo->_allgather_base(every, counts, options)->wait();
    std::vector<std::vector<std::int64_t>> of_ranks;
    for (int other = 0; other < size; ++other) {
      const auto* const first = every.const_data_ptr<int64_t>() + other * width;
      of_ranks.emplace_back(first, first + width);
    }
    if (const auto differs = mismatch_of_counts(note, of_ranks);
        !differs.empty()) {
      throw_disagreement("hccl: " + differs + kNothingDone);
    }
  }
}

void GroupState::meet(const Job& job) const {
  if (size == 1) {
    return;
  }
  if (board) {
    meet_on_board(job);
  } else {
    meet_by_gloo(job);
  }
}

// ---- running ----

void GroupState::call_back(const c10::intrusive_ptr<HcclWork>& work) {
  const auto job = [work] {
    try {
      work->finish_future();
    } catch (const std::exception& error) {
      log(NPU_LOG_ERROR,
          std::string("npu: hccl: a callback failed: ") + error.what());
    }
  };
  const std::lock_guard lock(mutex_);
  for (const auto& lane : callbacks_) {
    if (lane->submit_if_idle(job)) {
      return;
    }
  }
  callbacks_.push_back(std::make_unique<Lane>("npu-then"));
  callbacks_.back()->submit(job);
}

void GroupState::drain_callbacks(double seconds) {
  std::vector<Lane*> lanes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& lane : callbacks_) {
      lanes.push_back(lane.get());  // which stay as long as the group
    }
  }
  for (const Lane* const lane : lanes) {
    lane->drain(seconds);
  }
}

void GroupState::finish(Job& job, std::exception_ptr error) {
  stop_if_ending();  // before anything is released
  const auto work = job.work;
  if (error != nullptr && work->about().stream_waits) {
    const std::lock_guard lock(mutex_);
    unseen_.push_back(work->progress());  // before any waiter goes on
  }
  if (work->progress()->finish(std::move(error))) {
    call_back(work);
  }
  const std::lock_guard lock(mutex_);
  pending_.erase(work);
}

void GroupState::raise_unseen() {
  std::vector<ProgressPtr> unseen;
  {
    const std::lock_guard lock(mutex_);
    unseen.swap(unseen_);
  }
  for (const auto& progress : unseen) {
    progress->rethrow_unless_told();
  }
}

void GroupState::run(const JobPtr& given, bool meeting) {
  const sanitizer::Quiet quiet;  // the caller said what it reads and writes
  Job& job = *given;
  const std::string dead = failure();
  if (!dead.empty() || aborted.load()) {
    finish(
        job,
        backend_error(dead.empty() ? "hccl: the group was aborted." : dead));
    return;
  }
  bool met = false;
  const profiler::Ticks begin =
      job.note.asked.heard ? c10::getApproximateTime() : profiler::Ticks{0};
  auto& recorder = FlightRecorder::of_process();
  try {
    const bool tries_driver = job.on_driver != nullptr && may_use_driver();
    if (tries_driver && meeting && (checks_calls || !existing_communicator())) {
      meet(job);
      met = true;
    }
    if (tries_driver) {
      job.driver_has_it = true;
      const auto used = communicator(job);
      if (used && queue(used, job, true)) {
        return;
      }
      job.driver_has_it = false;
    }
    if (job.note.type == c10d::OpType::BARRIER) {
      // It comes after what was asked for before it.
      while (!drain_driver(0.05)) {
        if (steady_clock::now() >= job.note.deadline) {
          throw_backend_error("earlier calls have not ended.");
        }
      }
      if (const std::string failed = failure(); !failed.empty()) {
        throw_backend_error(failed);
      }
    }
    job.arguments.await();
    if (meeting && !met) {
      meet(job);
    }
    met = true;
    const profiler::Ticks met_at =
        job.note.asked.heard ? c10::getApproximateTime() : profiler::Ticks{0};
    recorder.started(job.note.record, nullptr);
    job.arguments.fetch();
    job.on_gloo(job);
    job.arguments.store();
    const bool in_place = job.arguments.in_place();
    job.note.count(in_place ? Transport::kShared : Transport::kStaged);
    profiler::on_collective(
        job.note.asked,
        {.device = job.arguments.device(),
         .text = job.note.text,
         .bytes = job.arguments.bytes_of_this_rank(),
         .begin = begin,
         .met = met_at});
    recorder.completed(job.note.record);
    finish(job, nullptr);
  } catch (const Disagreement& error) {
    recorder.failed(job.note.record, error.what_without_backtrace());
    finish(job, std::current_exception());
  } catch (const std::exception& error) {
    std::string message = words_of(error);
    if (met || !board || job.driver_has_it) {
      message = explained(job.note, job.driver_has_it, message);
    }
    recorder.failed(job.note.record, message);
    fail(message);
    finish(job, backend_error(message));
    if (job.driver_has_it) {
      give_up(job.note, message);
    }
    recorder.write_after_failure(global_rank);
  }
}

}  // namespace npu::dist
