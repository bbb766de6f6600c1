// SPDX-License-Identifier: Apache-2.0
// A program with its recordings: the first call of new sizes records, later
// ones replay. Whatever cannot be replayed runs as the program says.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "aten/graph/recording.h"
#include "aten/graph/traced_graph.h"

namespace npu::graph {

class Replayer {
 public:
  // Keeps at most `limit` recordings, the ones used last. 0: never records.
  Replayer(std::shared_ptr<const TracedGraph> program, std::size_t limit);

  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs);

  struct Counts {
    std::uint64_t recorded = 0;
    std::uint64_t replayed = 0;
    std::uint64_t eager = 0;  // ran as the program says
    std::uint64_t left = 0;   // replays that ended so
    std::uint64_t evicted = 0;
    Recording::Counts last;  // of the recording used last
  };
  Counts counts() const;

 private:
  std::shared_ptr<Recording> find(const std::vector<c10::IValue>& inputs);
  void keep(std::shared_ptr<Recording> recording);
  std::vector<c10::IValue> run_program(std::vector<c10::IValue> inputs);
  void check_writes(const std::vector<c10::IValue>& inputs) const;

  const std::shared_ptr<const TracedGraph> program_;
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Recording>> recordings_;  // used last first
  std::atomic<std::uint64_t> recorded_{0};
  std::atomic<std::uint64_t> replayed_{0};
  std::atomic<std::uint64_t> eager_{0};
  std::atomic<std::uint64_t> evicted_{0};
};

}  // namespace npu::graph
