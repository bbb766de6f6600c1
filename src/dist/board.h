// SPDX-License-Identifier: Apache-2.0
// Shared memory in which the ranks of a group on one machine write which call
// they are at.
//
// Gloo ends the process when ranks bring different sizes to one collective, and
// names no rank when one is missing. So ranks meet here before a call goes to
// Gloo. A call on a driver's communicator is noted here without waiting; the
// notes say which rank is missing when such a call does not end.
//
// The memory has no name in any file system, so nothing is left behind however
// the processes end: rank 0 makes it, the others open it through /proc.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace npu::dist {

class Board {
 public:
  static constexpr std::size_t kText = 240;
  static constexpr std::size_t kCounts = 2;
  // Calls of both kinds are numbered together, but may arrive out of order.
  enum class Track : unsigned { kMet, kQueued };
  // What of a text fits: all of it, or its beginning and a number that differs
  // where the rest does.
  static std::string fitting(const std::string& text);

  // On rank 0; nullptr when the system refuses.
  static std::unique_ptr<Board> make(int size);
  // What others need to open it.
  std::string address() const;
  // nullptr on another machine, or where /proc does not show the process.
  static std::unique_ptr<Board> open(const std::string& address, int size);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Once per rank, before anything else: which process it is.
  void join(int rank);
  // Says that `rank` is at call number `call`, which is `text` (fitting), and
  // what it alone knows of it: none, or kCounts numbers per rank. One thread of
  // a rank at a time for each track.
  void arrive(
      Track track,
      int rank,
      std::uint64_t call,
      const std::string& text,
      const std::vector<std::int64_t>& counts);

  struct Peer {
    bool here = false;       // at that call, or past it, on this track
    bool alive = true;       // its process runs
    bool stopped = false;    // by SIGSTOP or a debugger
    std::uint64_t call = 0;  // where it is; 0: nowhere yet
    // Of `call` where it is here, else of where it is; empty when overwritten.
    std::string text;
    std::int64_t pid = 0;
  };
  Peer look(Track track, int rank, std::uint64_t call) const;
  // What `rank` asked for as this call, on either track; empty when it has not
  // come to it, or when kKept later calls have overwritten it.
  std::string asked(int rank, std::uint64_t call) const;
  // Valid once the rank is there, for the next kKept - 1 calls.
  std::vector<std::int64_t> counts(
      Track track, int rank, std::uint64_t call) const;
  // Sleeps until a rank arrives somewhere, at most so long.
  void wait(std::uint32_t seen, std::chrono::milliseconds most) const;
  // A number that changes when a rank arrives.
  std::uint32_t changes() const;

 private:
  struct Slot;
  struct Page;
  Board(int descriptor, void* memory, std::size_t bytes, int size);
  // Takes the descriptor: closed where it cannot be mapped.
  static std::unique_ptr<Board> map(int descriptor, int size);
  Slot& slot(Track track, int rank) const;
  std::atomic<std::int64_t>* counts_at(
      Track track, int rank, std::uint64_t call) const;
  static std::size_t bytes_for(int size);

  int descriptor_;
  Page* page_;
  std::size_t bytes_;
  int size_;
};

}  // namespace npu::dist
