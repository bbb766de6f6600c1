// SPDX-License-Identifier: Apache-2.0
// What the threads of a group share: how a call runs, what is under way, and
// how the group failed. Threads may outlive the process group; they own this.
//
// Note [Stream order]: a call that the driver's communicator takes is queued
// where it is made. The communicator's stream waits for the caller's stream;
// the operation follows; the Work holds an event behind it. No thread waits for
// the device. A watch thread looks at what is in flight a few times a second:
// it ends the group when the time is over, a process is gone, or the ranks turn
// out to have asked for different calls. Calls are queued by the group's lane
// instead while the communicator is being made, behind calls that go to Gloo,
// and when ranks have to agree first (NPU_COLLECTIVES_CHECK).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dist/arguments.h"
#include "dist/board.h"
#include "dist/communicator.h"
#include "dist/driver_plan.h"
#include "dist/flight_recorder.h"
#include "dist/lane.h"
#include "dist/transport.h"
#include "dist/work.h"
#include "profiler/watch.h"

namespace npu::dist {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using Milliseconds = std::chrono::milliseconds;
using Deadline = std::chrono::steady_clock::time_point;

// What messages say of a call, and what is known of it after it was queued.
struct CallNote {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  std::string text;          // "all_reduce SUM Float [4]"
  std::uint64_t number = 0;  // of a message: of the collective before it
  Milliseconds timeout{};
  Deadline deadline{};
  int partner = -1;          // of a send or receive; -1: any, or none
  std::uint64_t record = 0;  // in the flight recorder
  profiler::Asked asked{};
  // Of an all to all: bytes to each rank, then room for what each sends.
  std::vector<std::int64_t> counts{};

  bool is_message() const {
    return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
           type == c10d::OpType::RECVANYSOURCE;
  }
  std::string named() const;
  void count(Transport transport) const;
};

// One call, from the caller to its end.
struct Job {
  CallNote note;
  Arguments arguments;
  std::function<void(Job&)> on_gloo;
  // Empty: no driver's communicator can do it.
  std::function<DriverPlan(Arguments&)> on_driver{};
  c10::intrusive_ptr<HcclWork> work{};
  int tag = 0;                 // of a message
  bool driver_has_it = false;  // for messages of errors
};
using JobPtr = std::shared_ptr<Job>;

struct GroupState : std::enable_shared_from_this<GroupState> {
  int rank = 0;
  int size = 1;
  int global_rank = 0;  // in the whole job
  std::string group;    // for messages
  BackendPtr gloo;
  std::unique_ptr<Board> board;  // nullptr: ranks are on several machines
  StorePtr store;                // for words about failures, without a board
  // The driver's, when all ranks have the same; nullptr: Gloo does it all.
  const npu_comm_table* comm_table = nullptr;
  bool checks_calls = false;  // ranks agree before each call
  std::atomic<bool> aborted{false};

  // On a lane: all of the job, or until a communicator has it. `meeting`: a
  // collective, which all ranks are at.
  void run(const JobPtr& job, bool meeting);
  // On a lane of the pair: a message, through the pair's communicator; false
  // where there is none or the driver declines.
  bool run_message(Job& job);
  // On the caller's thread, when the lane is idle: true when the communicator
  // has it. Throws where the driver fails.
  bool queue_directly(Job& job);

  // False once it is known that the driver's communicator is not to be had.
  bool may_use_driver() const {
    return comm_table != nullptr && !refused_.load();
  }
  // Ends what the driver has under way; for good. The calls end with the
  // group's failure; without one, each says that it was aborted.
  void end_flights();

  std::string failure() const;
  void fail(const std::string& why);

  void note(const c10::intrusive_ptr<HcclWork>& work);
  // Errors of earlier calls that no wait() could raise.
  void raise_unseen();
  // Ends every call that is under way, with an error.
  void abort_works();
  // Waits for what the driver has in flight; false when the time is over.
  bool drain_driver(double seconds) const;
  // Waits for what follows futures, at most so long.
  void drain_callbacks(double seconds);

 private:
  // An operation that a communicator has queued. It holds no tensor of the
  // allocator's and no Work, whose tensors would live until the watch looks.
  struct Flight {
    CallNote note;
    std::shared_ptr<Communicator> communicator;
    ProgressPtr progress;
    std::vector<at::Tensor> foreign;  // see Arguments::release
    c10::DeviceIndex device = 0;
    std::uint64_t bytes = 0;
    profiler::Ticks begin = 0;
    bool urgent = false;  // host code waits for its end
  };
  // Communicators of this rank and another one; each direction has its own, so
  // that no message waits for one of the other direction.
  struct Pair {
    std::shared_ptr<Communicator> out;
    std::shared_ptr<Communicator> in;
    bool refused = false;
  };

  // Waits until every rank is at this call and has said the same of it.
  void meet(const Job& job) const;
  void meet_on_board(const Job& job) const;
  void meet_by_gloo(const Job& job) const;
  // Every rank sees the counts of all, so that all agree on what is wrong.
  // Empty where they fit.
  std::string mismatch_of_counts(
      const CallNote& note,
      const std::vector<std::vector<std::int64_t>>& of_ranks) const;

  // ---- on a driver's communicator
  std::shared_ptr<Communicator> communicator(const Job& job);
  std::shared_ptr<Communicator> existing_communicator() const;
  std::shared_ptr<Communicator> communicator_of_pair(const Job& job);
  Pair make_pair(const Job& job);
  bool queue(
      const std::shared_ptr<Communicator>& used, Job& job, bool from_lane);
  void take_off(Flight flight);
  // Ends a wait for the other ranks' drivers.
  Communicator::Watch watch_over(const CallNote& note) const;

  // ---- the watch
  // The front of the operations in flight on one communicator.
  struct Front {
    CallNote oldest;
    CallNote waiting;  // the oldest that has not ended, where `waits`
    std::shared_ptr<Communicator> communicator;
    std::vector<ProgressPtr> passed{};  // its stream is past these
    bool waits = false;
    std::string error{};  // of the call that waits
  };
  void watch();
  std::vector<Front> fronts() const;
  void land(const std::vector<Front>& fronts);
  // Why the group has to be given up; empty: all is well.
  std::string trouble(const CallNote& note);
  // The group has failed in a call on a communicator.
  void give_up(const CallNote& note, const std::string& message);
  void end(const Flight& flight);
  std::vector<std::shared_ptr<Communicator>> communicators() const;

  // ---- words about other ranks
  std::string explained(
      const CallNote& note, bool on_driver, const std::string& error) const;
  // Rank `other` asked for another call than `note`; empty: not known.
  std::string disagreement(const CallNote& note) const;
  std::string who_is_missing(std::uint64_t call, Board::Track track) const;
  // The ranks that told the store nothing of this call's failure.
  std::string who_is_silent(const CallNote& note) const;
  std::string who_is_gone() const;  // whatever call they are at
  bool somebody_ended() const;
  // One of the ranks that the call needs.
  bool has_ended(const CallNote& note) const;

  void finish(Job& job, std::exception_ptr error);
  // On a thread of its own: what follows a future may wait for another one.
  void call_back(const c10::intrusive_ptr<HcclWork>& work);

  mutable std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;
  std::map<int, Pair> pairs_;
  std::atomic<bool> refused_{false};
  std::string failure_;
  std::set<c10::intrusive_ptr<HcclWork>> pending_;
  std::vector<std::unique_ptr<Lane>> callbacks_;
  std::vector<ProgressPtr> unseen_;

  mutable std::mutex flights_mutex_;
  mutable std::condition_variable flights_changed_;
  std::deque<Flight> flights_;
  bool watching_ = false;
  mutable int drains_ = 0;  // threads that wait until nothing is in flight
  std::atomic<bool> given_up_{false};
  Lane watch_lane_{"npu-watch"};
  std::optional<Deadline>
      gone_since_;  // of the watch: a rank's process is gone
};

// Ranks want different things: an error of the call, not the end of the group.
struct Disagreement : c10::DistBackendError {
  using c10::DistBackendError::DistBackendError;
};
[[noreturn]] void throw_disagreement(const std::string& message);
// The exception torch.distributed documents.
[[noreturn]] void throw_backend_error(const std::string& message);
std::exception_ptr backend_error(const std::string& message);
// Without it Gloo would wait for the group's own time-out.
Milliseconds time_left(Deadline deadline);

}  // namespace npu::dist
