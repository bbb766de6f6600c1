// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a communicator share: from each to each a channel
// that holds one piece of a message.
//
// The memory has no name in any file system: it goes with the last process
// that has it. The process that made it shows it to the others in /proc.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace npu::discrete {

inline constexpr int kMostRanks = 8;

struct Id {
  int64_t pid = 0;
  int64_t file = -1;
  uint64_t nonce = 0;  // file numbers are used again
};

// A message to or from another rank; `data` is as worker threads see it.
struct Transfer {
  bool sends = false;
  int peer = 0;
  char* data = nullptr;
  uint64_t left = 0;  // bytes
};

class Channels {
 public:
  static bool make(Id& id);
  // Null when the id names nothing that this process can open.
  static std::shared_ptr<Channels> open(const Id& id);
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  void join();
  int joined() const;
  // Ends all transfers of all ranks.
  void break_all();
  bool is_broken() const;
  // Moves all of them at the same time, those with one peer in order, until
  // they are done, something breaks, or `given_up`.
  void move(
      int rank,
      std::vector<Transfer>& transfers,
      const std::atomic<bool>& given_up,
      std::string& failure);

 private:
  struct Page;
  struct Channel;
  explicit Channels(void* memory) : page_(static_cast<Page*>(memory)) {}
  Channel& channel(int from, int to) const;
  bool move_piece(int rank, Transfer& transfer, std::string& failure);
  void wake();

  Page* page_;
};

// The maker's file, no longer needed when all have opened it.
void forget(const Id& id);

}  // namespace npu::discrete
