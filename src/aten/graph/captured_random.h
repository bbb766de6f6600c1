// SPDX-License-Identifier: Apache-2.0
// Random states of a capture: where the program sets one, a replay sets it too.
//
// Draws of a replay are reserved in the order of the program, so most need no
// help. A checkpoint sets the state back before it computes again: a replay
// does the same, relative to where the generator was when the replay began. A
// seed set inside the capture is taken as it is.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace npu::graph {

class CapturedRandom {
 public:
  void follow(const at::Generator& generator);
  // One function of a replay for each generator whose state was set since the
  // last note_call().
  std::vector<std::function<void()>> changes();
  void note_call();
  // Where every generator was when it was followed first.
  void restore();
  // Before the first step of a replay.
  void begin();

 private:
  struct State {
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;
    bool operator==(const State&) const = default;
  };
  struct Followed {
    at::Generator generator;
    State first;
    State last;
    State replay_began;

    State now();
    void set(const State& state);
    void set_again(const State& captured);
  };

  std::vector<std::shared_ptr<Followed>> followed_;
};

}  // namespace npu::graph
