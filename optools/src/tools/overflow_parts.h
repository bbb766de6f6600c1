// SPDX-License-Identifier: Apache-2.0
// What the overflow check keeps: per thread, per call that asked a device, per
// round of questions.
#pragma once

#include <unordered_map>

#include "tools/counted.h"
#include "tools/overflow.h"
#include "tools/seen_contents.h"

namespace optools {

// A call that asked. Its questions may be of two rounds, and other threads' in
// between.
struct Overflow::AskedCall {
  Record call;
  Local* by;
  bool deliberate;
  struct Input {
    uint64_t question;
    uint8_t position;
    uint16_t item;
  };
  std::vector<Input> inputs;  // questions about what it read
};

struct Overflow::Local : ToolLocal {
  explicit Local(ThreadState& owner) : ToolLocal(owner), log(256 * 1024) {}
  RecordLog log;
  SeenContents seen;  // in host memory
  uint64_t checked = 0;
  ReasonCounts unread;  // tensors that could not be read
  // Arguments kept to be looked at should the results turn out bad.
  std::vector<std::pair<at::Tensor, Tensor>> kept;
  // Arguments the kernel writes and does not return.
  std::vector<std::pair<at::Tensor, Tensor>> written;
  bool deliberate = false;           // an infinity was passed on purpose
  std::shared_ptr<AskedCall> asked;  // the call, once it asks a device
  // Results on devices, to be asked about.
  std::vector<std::pair<at::Tensor, Tensor>> results;
  // The call before which another thread, or this one later, found the first
  // bad operator: its history is in our log, which only we may read.
  std::atomic<uint64_t> history_of{0};
  // What runs becomes part of a graph: a question would be asked at each
  // replay, and waiting is forbidden.
  bool recording = false;
  // Memory may not be kept after the call: copies of it may.
  bool copies = false;

  void forget_call() {
    kept.clear();
    written.clear();
    results.clear();
    asked.reset();
  }
  void begin_asking() {
    if (asked == nullptr) {
      asked = std::make_shared<AskedCall>(
          AskedCall{log.newest(), this, deliberate, {}});
    }
  }
  bool askable(const at::Tensor& t) const {
    return !recording && device_checkable(t);
  }
};

// Questions to devices whose answers are read at once; a question's tag is its
// place in `asked`.
struct Overflow::Round {
  struct Asked {
    std::shared_ptr<const AskedCall> call;
    Tensor what;
  };
  uint64_t first = 1;  // number of asked[0]
  std::vector<Asked> asked;
  DeviceCheck::Answers answers;

  uint64_t last() const {
    return first + asked.size() - 1;
  }
};

// What devices are asked: one for all threads, as a backward kernel reads what
// a forward kernel of another thread wrote, and an optimizer writes over what
// backward asked about.
struct Overflow::Devices {
  std::mutex mutex;
  SeenContents seen;
  DeviceCheck check;
  Round now;
  Round before;  // its answers are on their way
  // Questions answered with a non-finite.
  struct Bad {
    double magnitude;
    uint32_t label;
  };
  std::unordered_map<uint64_t, Bad> bad;

  // Call with the lock held, and `alias` made without it.
  void ask(
      Local& mine,
      const at::Tensor& t,
      at::Tensor alias,
      const Tensor& what,
      bool written);
};

}  // namespace optools
