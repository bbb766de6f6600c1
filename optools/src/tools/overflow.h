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
    bool output;       // contents after the call
    bool written;      // of an argument that is no result
    uint8_t position;  // of the result or the argument
    uint16_t item;
    Statistics statistics;  // count == 0 where the device kept no more
    double magnitude;       // the largest, where a device was asked
  };
  struct Event {
    Record call;     // without its entries
    bool first_bad;  // inputs were clean
    std::vector<Tensor> tensors;
    uint32_t site = 0;
  };

  // `history`: how many calls before the first event are kept. `limit`: events
  // kept; more are only counted.
  Overflow(size_t history, size_t limit);
  ~Overflow() override;

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
  struct AskedCall;
  struct Devices;
  struct Round;
  struct Outcome {
    std::vector<Tensor> dirty_inputs;
    std::vector<Tensor> dirty_outputs;
  };
  void look_before(Call& call, Local& mine, Outcome& outcome);
  void look_after(Call& call, Local& mine, Outcome& outcome);
  void look_at_result(
      Call& call,
      Local& mine,
      const at::Tensor& t,
      Tensor what,
      Outcome& outcome);
  void ask_before(Local& mine, const at::Tensor& t, const Tensor& what);
  void ask_after(const Call& call, Local& mine);
  void before_write(const Call& call);
  void forget(Local& mine, const at::Tensor& t);
  void report(const Call& call, Local& mine, Outcome& outcome);
  void keep_history(Local& mine);
  void read_answers(size_t round, bool may_wait);
  void judge(Round& round);

  const size_t history_;
  const size_t limit_;
  mutable std::mutex mutex_;
  std::deque<Event> events_;
  std::atomic<uint64_t> total_{0};
  std::vector<std::vector<char>> history_records_;
  std::unique_ptr<Devices> devices_;
  bool seen_first_ = false;
};

}  // namespace optools
