// SPDX-License-Identifier: Apache-2.0
// Compare: every result against the CPU's float64 answer to the same inputs,
// worked out behind the program's back.
#pragma once

#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "core/records.h"
#include "core/tool.h"
#include "core/work_queue.h"
#include "judge/host_call.h"
#include "tools/compare_sampling.h"
#include "tools/counted.h"
#include "tools/tolerances.h"

namespace optools {

struct CompareOptions {
  int threads = 1;
  size_t queue_bytes = size_t{64} << 20;
  // Every call; or, above 1, the first of each operator, dtype and class of
  // shapes, and one in so many. 0: as many as keep the program within
  // `most_slowdown` times its own time.
  uint64_t every = 1;
  double most_slowdown = 10;
  size_t row_limit = 100000;
  size_t finding_limit = 1000;
  Tolerances tolerances;
};

// Where a call was, for reports.
struct CallPlace {
  uint32_t op = 0;
  Phase phase = Phase::kForward;
  c10::DeviceType device = c10::DeviceType::CPU;
  uint32_t thread = 0;
  uint64_t number = 0;
  int64_t step = 0;
  int64_t took_ns = 0;  // the host's time in the kernel
  Origin origin;
};

class Compare : public Tool {
 public:
  struct Row {  // a result
    CallPlace place;
    std::string result;
    Judgement judgement;
  };
  struct Finding {  // a call that did not pass
    CallPlace place;
    CallJudgement judgement;
  };
  struct Sum {                        // of an operator
    std::array<uint64_t, 5> calls{};  // by Verdict
    double worst = 0;                 // E
    uint64_t worst_call = 0;
    int64_t ns = 0;  // the host's time in its calls
  };

  explicit Compare(CompareOptions options);

  void around(Call& call, Chain& chain) override;
  void finish() override;
  // Until every call so far is judged.
  void wait() {
    queue_.wait();
  }

  std::vector<Row> rows() const;
  std::vector<Finding> findings() const;
  std::map<uint32_t, Sum> sums() const;
  ReasonCounts::Sum skips() const;
  uint64_t dropped_rows() const;
  Sampling::Costs costs() const {
    return sampling_.costs();
  }

 private:
  struct Local;
  struct Profile;
  struct Job;

  // Null, with the reason, where the call is not to be judged.
  std::unique_ptr<Job> before(Call& call, const char*& why_not);
  void after(Call& call, Job& job);
  void submit(std::unique_ptr<Job> job);
  void judge(Job& job);
  CallJudgement judgement_of(Job& job) const;
  void note(const CallPlace& place, CallJudgement&& judgement);
  void judge_view(Call& call, Job& job);
  ReasonCounts::Sum counted() const;
  bool is_due(Local& mine, const Call& call) const;

  const CompareOptions options_;
  Sampling sampling_;
  mutable std::mutex results_mutex_;
  std::vector<Row> rows_;
  uint64_t dropped_rows_ = 0;
  std::vector<Finding> findings_;
  std::map<uint32_t, Sum> sums_;
  ReasonCounts::Sum skips_;
  WorkQueue queue_;  // last: ends before what its jobs use
};

}  // namespace optools
