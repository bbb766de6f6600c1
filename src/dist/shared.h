// SPDX-License-Identifier: Apache-2.0
// What the lanes of a group share: Gloo, the board, and how the group failed.
#pragma once

#include <atomic>
#include <set>

#include "dist/process_group.h"

namespace npu::dist {

struct ProcessGroupHccl::Shared {
  int rank = 0;
  int size = 1;
  int global_rank = 0;  // in the whole job
  std::string group;    // for messages
  BackendPtr gloo;
  std::unique_ptr<Board> board;  // nullptr: ranks are on several machines
  // The driver's, when all ranks have the same; nullptr: Gloo does it all.
  const npu_comm_table* comm_table = nullptr;
  std::atomic<bool> aborted{false};

  // Waits until every rank is at this call and has said the same of it.
  void meet(const Job& job) const;
  // On a lane: everything of the job, and its end.
  void run(Job& job, bool meeting);

  // False once it is known that the driver's communicator is not to be had.
  bool may_use_driver() const {
    return !refused_.load();
  }
  // Ends what the driver has under way.
  void abort_driver();

  std::string failure() const;
  void fail(const std::string& why);

  void note(const c10::intrusive_ptr<HcclWork>& work);
  // Errors of earlier calls that no wait() could raise.
  void raise_unseen();
  std::vector<c10::intrusive_ptr<HcclWork>> pending() const;
  // Waits for what follows futures, at most so long.
  void drain_callbacks(double seconds);

 private:
  void meet_on_board(const Job& job) const;
  void meet_by_gloo(const Job& job) const;
  // Every rank sees the counts of all, so that all agree on what is wrong.
  void check_counts(
      const Job& job,
      const std::vector<std::vector<std::int64_t>>& of_ranks) const;
  // True when the driver has done it; false when Gloo is to.
  bool run_on_driver(Job& job);
  std::shared_ptr<Communicator> communicator(Job& job);
  // Ends a wait for the driver: throws when the group is aborted, the time is
  // over, or a rank's process has been gone for a while.
  Communicator::Watch watch_over(const Job& job) const;
  std::string explained(const Job& job, const std::string& error) const;
  std::string who_is_missing(std::uint64_t call) const;
  std::string who_is_gone() const;  // whatever call they are at
  bool somebody_ended() const;
  void finish(Job& job, std::exception_ptr error);
  // On a thread of its own: what follows a future may wait for another one.
  void call_back(const c10::intrusive_ptr<HcclWork>& work);

  mutable std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;
  std::atomic<bool> refused_{false};
  bool driver_works_ = false;  // on it, now
  std::string failure_;
  std::set<c10::intrusive_ptr<HcclWork>> pending_;
  std::vector<std::unique_ptr<Lane>> callbacks_;
  std::vector<c10::intrusive_ptr<HcclWork>> unseen_;
};

// Ranks want different things: an error of the call, not the end of the group.
struct Disagreement : c10::DistBackendError {
  using c10::DistBackendError::DistBackendError;
};
[[noreturn]] void throw_disagreement(const std::string& message);
// The exception torch.distributed documents.
[[noreturn]] void throw_backend_error(const std::string& message);
// Without it Gloo would wait for the group's own time-out.
Milliseconds time_left(std::chrono::steady_clock::time_point deadline);

}  // namespace npu::dist
