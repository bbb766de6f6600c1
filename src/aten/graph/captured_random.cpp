// SPDX-License-Identifier: Apache-2.0
// Random states of a capture.
#include "aten/graph/captured_random.h"

#include <algorithm>
#include <mutex>

namespace npu::graph {

CapturedRandom::State CapturedRandom::Followed::now() {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return {generator.current_seed(), generator.get_offset()};
}

void CapturedRandom::Followed::set(const State& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(state.seed);
  generator.set_offset(state.offset);
}

void CapturedRandom::Followed::set_again(const State& captured) {
  // A program sets back to states that it had; others are a seed of its own.
  if (captured.seed != first.seed || captured.offset < first.offset) {
    set(captured);
  } else {
    set(
        {replay_began.seed,
         replay_began.offset + captured.offset - first.offset});
  }
}

void CapturedRandom::follow(const at::Generator& generator) {
  const bool known = std::ranges::any_of(followed_, [&](const auto& followed) {
    return followed->generator == generator;
  });
  if (!known) {
    auto made = std::make_shared<Followed>();
    made->generator = generator;
    made->first = made->last = made->replay_began = made->now();
    followed_.push_back(std::move(made));
  }
}

std::vector<std::function<void()>> CapturedRandom::changes() {
  std::vector<std::function<void()>> found;
  for (const std::shared_ptr<Followed>& followed : followed_) {
    const State state = followed->now();
    if (state != followed->last) {
      found.emplace_back([followed, state] { followed->set_again(state); });
      followed->last = state;
    }
  }
  return found;
}

void CapturedRandom::note_call() {
  for (const std::shared_ptr<Followed>& followed : followed_) {
    followed->last = followed->now();
  }
}

void CapturedRandom::restore() {
  for (const std::shared_ptr<Followed>& followed : followed_) {
    followed->set(followed->first);
  }
}

void CapturedRandom::begin() {
  for (const std::shared_ptr<Followed>& followed : followed_) {
    followed->replay_began = followed->now();
  }
}

}  // namespace npu::graph
