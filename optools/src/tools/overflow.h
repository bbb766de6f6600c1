// SPDX-License-Identifier: Apache-2.0
// Overflow check: the operator whose inputs were finite and whose results are
// not.
#pragma once

#include <cmath>
#include <deque>

#include "core/records.h"
#include "core/scan.h"
#include "tools/counted.h"
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
    uint32_t label = 0;     // of a parameter or buffer; see label_text()
    std::vector<int64_t> first = {};  // non-finite element, where known

    bool holds_nan() const {
      return statistics.count != 0 ? statistics.nan != 0
                                   : std::isnan(magnitude);
    }
  };
  struct Event {
    Record call;                  // without its entries
    bool first_bad;               // inputs were clean
    bool deliberate;              // an infinity was passed on purpose
    std::vector<Tensor> tensors;  // that hold infinities or NaN
    uint32_t site = 0;

    bool makes_nan() const;
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
  uint64_t checked() const;          // tensors looked at
  ReasonCounts::Sum unread() const;  // tensors that could not be read
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
  bool may_wait(const Call& call) const;
  void forget(Local& mine, const at::Tensor& t);
  Tensor measured(const at::Tensor& t, Tensor what) const;
  void note_unread(const Call& call, Local& mine, const at::Tensor& t);
  void report(const Call& call, Local& mine, Outcome& outcome);
  void keep(Event&& event, Local& mine);
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
  bool seen_first_ = false;        // an event with clean inputs
  bool seen_nan_ = false;          // an event with NaN in its results
  std::atomic<bool> full_{false};  // what comes now is only counted
};

}  // namespace optools
