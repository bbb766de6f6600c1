// SPDX-License-Identifier: Apache-2.0
// Overflow check: the operator whose inputs were finite and whose results are
// not.
#pragma once

#include <deque>

#include "core/records.h"
#include "core/scan.h"
#include "tools/device_check.h"

namespace optools {

class Overflow : public Tool {
 public:
  struct Tensor {
    bool output;
    uint8_t position;
    uint16_t item;
    Statistics statistics;  // count == 0 where the device kept no more
    double low, high;       // of the whole tensor, non-finite included
  };
  struct Event {
    Record call;     // without its entries
    bool first_bad;  // inputs were clean
    std::vector<Tensor> tensors;
    uint32_t site = 0;
  };

  // `history`: how many calls before the first event are kept. `limit`: events
  // kept; more are only counted.
  Overflow(size_t history, size_t limit) : history_(history), limit_(limit) {}

  void around(Call& call, Chain& chain) override;
  void finish() override;

  std::vector<Event> events() const;
  uint64_t total() const {
    return total_;
  }
  uint64_t checked() const;     // tensors looked at
  uint64_t unreadable() const;  // tensors of a kind nobody can look at
  std::vector<std::vector<char>> history() const;

 private:
  struct Local;
  struct Outcome {
    std::vector<Tensor> dirty_inputs;
    std::vector<Tensor> dirty_outputs;
  };
  void look_before(Call& call, Local& mine, Outcome& outcome);
  void look_after(Call& call, Local& mine, Outcome& outcome);
  uint64_t ask(
      const Call& call, Local& mine, const at::Tensor& t, const Tensor& what);
  void report(const Call& call, Local& mine, Outcome& outcome);
  void keep_history(Local& mine, uint64_t number);
  void drain(Local& mine);

  const size_t history_;
  const size_t limit_;
  mutable std::mutex mutex_;
  std::deque<Event> events_;
  std::atomic<uint64_t> total_{0};
  std::vector<std::vector<char>> history_records_;
  bool seen_first_ = false;
};

}  // namespace optools
