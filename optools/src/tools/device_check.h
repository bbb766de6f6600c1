// SPDX-License-Identifier: Apache-2.0
// Asks devices for the largest magnitude of tensors, an infinity or NaN where
// one is inside, without waiting for the answers. Small tensors, or copies of
// them, are kept for a while and asked about together: a question of its own
// costs a launch.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>
#include <utility>
#include <vector>

namespace optools {

// Is there a way to ask? Strided with memory of its own, not empty, floating or
// complex of a dtype that norms know.
bool device_checkable(const at::Tensor& t);

class DeviceCheck {
 public:
  struct Answer {
    uint64_t tag;
    double magnitude;
  };
  // Answers on their way to the host.
  class Answers {
   public:
    // Waits for them.
    std::vector<Answer> read();

   private:
    friend class DeviceCheck;
    struct Part {
      std::vector<uint64_t> tags;
      at::Tensor values;  // host, double
      std::optional<c10::Event> ready;
    };
    std::vector<Part> parts_;
  };

  // Call inside Quiet, with `alias` from alias_of(). `copies`: the memory may
  // not be kept, but a copy of what is in it may.
  void ask(const at::Tensor& t, at::Tensor alias, uint64_t tag, bool copies);
  // What ask() can keep without visible effects; undefined where the question
  // has to be asked at once, or of a copy. Touches reference counts, which may
  // take Python's lock: call it while holding none.
  static at::Tensor alias_of(const at::Tensor& t, bool copies);

  // Must be called before a kernel writes: asks what was still to be asked
  // about the old contents.
  void before_write(const at::Tensor& t);
  // Asks the open questions about memory of other owners, so that it is not
  // kept alive.
  void let_go();
  size_t unread() const {
    return unread_;
  }
  Answers take();

  // Memory no longer kept, to be let go of while holding no lock.
  std::vector<at::Tensor> spent() {
    return std::exchange(spent_, {});
  }

 private:
  // Questions of one dtype and device, about others' memory or about copies.
  struct Group {
    Group(
        c10::ScalarType type,
        c10::Device where,
        c10::Stream current,
        bool of_copies)
        : dtype(type), device(where), stream(current), copies(of_copies) {}
    c10::ScalarType dtype;
    c10::Device device;
    c10::Stream stream;  // of what is kept
    bool copies;
    at::Tensor room;  // where copies are
    size_t room_used = 0;
    std::vector<at::Tensor> kept;
    std::vector<const void*> kept_data;
    std::vector<uint64_t> kept_tags;
    size_t kept_bytes = 0;
    std::vector<at::Tensor> magnitudes;  // of one dimension each
    std::vector<uint64_t> tags;
    std::vector<c10::Stream> streams;  // of magnitudes
  };
  std::vector<Group> groups_;
  std::vector<at::Tensor> spent_;
  size_t unread_ = 0;

  Group& group(const at::Tensor& t, bool copies);
  void begin_on(Group& group, c10::Stream stream);
  void keep(Group& group, at::Tensor held, uint64_t tag);
  at::Tensor copy_into_room(const at::Tensor& t, c10::Stream stream);
  void flush(Group& group);
  void keep_answer(
      Group& group,
      const at::Tensor& magnitude,
      uint64_t tag,
      c10::Stream stream);
};

}  // namespace optools
