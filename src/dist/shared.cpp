// SPDX-License-Identifier: Apache-2.0
// What the lanes of a group share: the meeting of the ranks, and failures.
#include "dist/shared.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "driver/services.h"

namespace npu::dist {

using std::chrono::duration_cast;
using std::chrono::steady_clock;

namespace {

std::exception_ptr backend_error(const std::string& message) {
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message));
}

}  // namespace

void throw_backend_error(const std::string& message) {
  std::rethrow_exception(backend_error(message));
}

void throw_disagreement(const std::string& message) {
  throw Disagreement(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message);
}

Milliseconds time_left(steady_clock::time_point deadline) {
  const auto left = duration_cast<Milliseconds>(deadline - steady_clock::now());
  return std::max(left, Milliseconds(1));
}

std::string ProcessGroupHccl::Job::named() const {
  return "call " + std::to_string(work->about().number) + ", " + text;
}

void ProcessGroupHccl::Job::count(Way way) const {
  if (type != c10d::OpType::BARRIER) {  // which moves nothing
    count_way(text.substr(0, text.find(' ')), way);
  }
}

std::string ProcessGroupHccl::Shared::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ProcessGroupHccl::Shared::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) {
    failure_ = why;
  }
}

void ProcessGroupHccl::Shared::note(const c10::intrusive_ptr<HcclWork>& work) {
  const std::lock_guard lock(mutex_);
  pending_.insert(work);
}

std::vector<c10::intrusive_ptr<HcclWork>> ProcessGroupHccl::Shared::pending()
    const {
  const std::lock_guard lock(mutex_);
  return {pending_.begin(), pending_.end()};
}

// ---- meeting ----

std::string ProcessGroupHccl::Shared::who_is_missing(std::uint64_t call) const {
  std::string found;
  for (int other = 0; board && other < size; ++other) {
    const auto peer = board->look(other, call);
    if (other == rank || peer.here) {
      continue;
    }
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
    found += peer.call == 0 ? ", before its first call"
                            : ", its last was call " +
                                  std::to_string(peer.call) + ", " + peer.text;
  }
  return found;
}

void ProcessGroupHccl::Shared::meet_on_board(const Job& job) const {
  const auto call = job.work->about().number;
  const std::string mine = Board::fitting(job.text);
  board->arrive(rank, call, mine, job.counts);
  for (int other = 0; other < size;) {
    const auto seen = board->changes();
    const auto peer = board->look(other, call);
    if (peer.here) {
      if (!peer.text.empty() && peer.text != mine) {
        throw_disagreement(
            "hccl: the ranks of group " + group + " disagree on call " +
            std::to_string(call) + ": rank " + std::to_string(rank) +
            " asked for " + mine + ", rank " + std::to_string(other) + " for " +
            peer.text +
            ". Nothing was computed, and the group can be used again.");
      }
      ++other;
      continue;
    }
    if (aborted.load() || lanes_are_ending()) {
      throw_backend_error("hccl: " + job.named() + " was aborted.");
    }
    if (!peer.alive) {
      throw_backend_error(
          "hccl: " + job.named() + " of group " + group +
          " cannot be done: " + who_is_missing(call) + ".");
    }
    if (steady_clock::now() >= job.deadline) {
      throw_backend_error(
          "hccl: " + job.named() + " of group " + group + " timed out after " +
          std::to_string(job.timeout.count()) + " ms: " + who_is_missing(call) +
          ".");
    }
    // Short: a process that ends wakes nobody.
    board->wait(seen, std::min(time_left(job.deadline), Milliseconds(50)));
  }
  if (!job.counts.empty()) {
    std::vector<std::vector<std::int64_t>> of_ranks;
    for (int other = 0; other < size; ++other) {
      of_ranks.push_back(board->counts(other, call));
    }
    check_counts(job, of_ranks);
  }
}

void ProcessGroupHccl::Shared::check_counts(
    const Job& job,
    const std::vector<std::vector<std::int64_t>>& of_ranks) const {
  const auto n = static_cast<std::size_t>(size);
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      const std::int64_t sent = of_ranks[from][to];
      const std::int64_t room = of_ranks[to][n + from];
      if (sent != room) {
        throw_disagreement(c10::str(
            "hccl: the ranks of group ",
            group,
            " disagree on ",
            job.named(),
            ": rank ",
            from,
            " sends ",
            sent,
            " bytes to rank ",
            to,
            ", which has room for ",
            room,
            ". Nothing was computed, and the group can be used again."));
      }
    }
  }
}

// Ranks on several machines: the same through Gloo, one small message more.
void ProcessGroupHccl::Shared::meet_by_gloo(const Job& job) const {
  at::Tensor mine = at::zeros({Board::kText}, at::kByte);
  const std::string told = Board::fitting(job.text);
  std::memcpy(mine.data_ptr(), told.data(), told.size());
  at::Tensor all =
      at::zeros({size * static_cast<int64_t>(Board::kText)}, at::kByte);
  c10d::AllgatherOptions options;
  options.timeout = time_left(job.deadline);
  gloo->_allgather_base(all, mine, options)->wait();
  for (int other = 0; other < size; ++other) {
    const char* text = static_cast<const char*>(all.data_ptr()) +
                       static_cast<std::size_t>(other) * Board::kText;
    if (std::memcmp(text, mine.data_ptr(), Board::kText) != 0) {
      throw_disagreement(
          "hccl: the ranks of group " + group + " disagree on " + job.named() +
          ": rank " + std::to_string(other) + " asked for " + text +
          ". Nothing was computed, and the group can be used again.");
    }
  }
  if (!job.counts.empty()) {
    const auto width = static_cast<int64_t>(job.counts.size());
    at::Tensor counts = at::from_blob(
        const_cast<std::int64_t*>(job.counts.data()), {width}, at::kLong);
    at::Tensor every = at::empty({size * width}, at::kLong);
    options.timeout = time_left(job.deadline);
    gloo->_allgather_base(every, counts, options)->wait();
    std::vector<std::vector<std::int64_t>> of_ranks;
    for (int other = 0; other < size; ++other) {
      const auto* const first = every.const_data_ptr<int64_t>() + other * width;
      of_ranks.emplace_back(first, first + width);
    }
    check_counts(job, of_ranks);
  }
}

void ProcessGroupHccl::Shared::meet(const Job& job) const {
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

std::string ProcessGroupHccl::Shared::who_is_gone() const {
  std::string gone;
  for (int other = 0; board && other < size; ++other) {
    const auto peer = board->look(other, ~std::uint64_t{0});
    if (other != rank && (!peer.alive || peer.stopped)) {
      gone += " Rank " + std::to_string(other) + " (process " +
              std::to_string(peer.pid) + ") " +
              (peer.alive ? "is stopped." : "has ended.");
    }
  }
  return gone;
}

bool ProcessGroupHccl::Shared::somebody_ended() const {
  for (int other = 0; board && other < size; ++other) {
    if (other != rank && !board->look(other, ~std::uint64_t{0}).alive) {
      return true;
    }
  }
  return false;
}

std::string ProcessGroupHccl::Shared::explained(
    const Job& job, const std::string& error) const {
  // A process that ends closes its connections first and is gone a little
  // later.
  std::string gone = who_is_gone();
  const auto until = std::min(
      job.deadline, steady_clock::now() + std::chrono::milliseconds(500));
  while (board && gone.empty() && steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gone = who_is_gone();
  }
  return "hccl: " + job.named() + " of group " + group + " failed on rank " +
         std::to_string(rank) + " of " + std::to_string(size) + "." + gone +
         (job.driver_has_it ? " The driver's communicator: " : " Gloo says: ") +
         error.substr(0, error.find('\n')) +
         " The group cannot be used any more: destroy it and make a new one.";
}

void ProcessGroupHccl::Shared::call_back(
    const c10::intrusive_ptr<HcclWork>& work) {
  const auto job = [work] {
    try {
      work->finish_futures();
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

void ProcessGroupHccl::Shared::drain_callbacks(double seconds) {
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

void ProcessGroupHccl::Shared::finish(Job& job, std::exception_ptr error) {
  stop_if_ending();  // before anything is released
  const auto work = job.work;
  if (error != nullptr && work->about().stream_waits) {
    const std::lock_guard lock(mutex_);
    unseen_.push_back(work);  // before anybody goes on
  }
  if (work->finish_waiting(std::move(error))) {
    call_back(work);
  }
  const std::lock_guard lock(mutex_);
  pending_.erase(work);
}

void ProcessGroupHccl::Shared::raise_unseen() {
  std::vector<c10::intrusive_ptr<HcclWork>> unseen;
  {
    const std::lock_guard lock(mutex_);
    unseen.swap(unseen_);
  }
  for (const auto& work : unseen) {
    work->raise_unseen();
  }
}

void ProcessGroupHccl::Shared::run(Job& job, bool meeting) {
  const std::string dead = failure();
  if (!dead.empty() || aborted.load()) {
    finish(
        job,
        backend_error(dead.empty() ? "hccl: the group was aborted." : dead));
    return;
  }
  bool met = false;
  const profiler::Ticks begin =
      job.asked.heard ? c10::getApproximateTime() : profiler::Ticks{0};
  auto& recorder = FlightRecorder::of_process();
  try {
    job.arguments.await();
    if (meeting) {
      meet(job);
    }
    met = true;
    const profiler::Ticks met_at =
        job.asked.heard ? c10::getApproximateTime() : profiler::Ticks{0};
    recorder.started(job.record);
    if (!run_on_driver(job)) {
      job.arguments.fetch();
      job.body(job);
      job.arguments.store();
      const bool in_place = job.arguments.in_place();
      job.count(in_place ? Way::kShared : Way::kStaged);
    }
    profiler::on_collective(
        job.asked,
        {.device = job.arguments.device(),
         .text = job.text,
         .bytes = job.arguments.bytes_of_this_rank(),
         .begin = begin,
         .met = met_at});
    recorder.completed(job.record);
    finish(job, nullptr);
  } catch (const Disagreement& error) {
    recorder.failed(job.record, error.what_without_backtrace());
    finish(job, std::current_exception());
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const c10::Error*>(&error);
    std::string message =
        known != nullptr ? known->what_without_backtrace() : error.what();
    if (met) {
      message = explained(job, message);
    }
    recorder.failed(job.record, message);
    fail(message);
    finish(job, backend_error(message));
    recorder.write_after_failure(global_rank);
  }
}

}  // namespace npu::dist
