// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a communicator share.
#include "channels.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>

namespace npu::discrete {
namespace {

constexpr uint64_t kPiece = 1 << 16;

auto& files_mutex = *new std::mutex;
auto& files = *new std::map<uint64_t, int>;  // made here, by nonce

}  // namespace

struct Channels::Page {
  std::atomic<uint64_t> nonce;
  std::atomic<uint32_t> joined;
  std::atomic<uint32_t> changes;
  std::atomic<uint32_t> broken;
};

struct Channels::Channel {
  alignas(64) std::atomic<uint64_t> bytes;  // 0: empty
  char data[kPiece];
};

namespace {
constexpr uint64_t kBytes =
    64 + uint64_t(kMostRanks) * kMostRanks * (kPiece + 64);
}

bool Channels::make(Id& id) {
  static std::atomic<uint64_t> made{0};
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int file = memfd_create("npu_discrete_comm", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, off_t(kBytes)) != 0) {
    close(file);
    return false;
  }
  id.pid = getpid();
  id.file = file;
  id.nonce = uint64_t(now.tv_nsec) << 32 ^ uint64_t(now.tv_sec) << 12 ^
             uint64_t(getpid()) << 44 ^ ++made;
  const std::lock_guard lock(files_mutex);
  files[id.nonce] = file;
  return pwrite(file, &id.nonce, sizeof(id.nonce), 0) == sizeof(id.nonce);
}

void forget(const Id& id) {
  const std::lock_guard lock(files_mutex);
  if (const auto found = files.find(id.nonce); found != files.end()) {
    close(found->second);
    files.erase(found);
  }
}

std::shared_ptr<Channels> Channels::open(const Id& id) {
  const std::string path =
      "/proc/" + std::to_string(id.pid) + "/fd/" + std::to_string(id.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  uint64_t nonce = 0;
  const bool known = file >= 0 &&
                     pread(file, &nonce, sizeof(nonce), 0) == sizeof(nonce) &&
                     nonce == id.nonce;
  void* const memory =
      known ? mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
            : MAP_FAILED;
  close(file);
  return memory == MAP_FAILED ? nullptr
                              : std::shared_ptr<Channels>(new Channels(memory));
}

Channels::~Channels() {
  munmap(page_, kBytes);
}

void Channels::join() {
  page_->joined.fetch_add(1);
}

int Channels::joined() const {
  return int(page_->joined.load());
}

void Channels::break_all() {
  page_->broken.store(1);
  wake();
}

bool Channels::is_broken() const {
  return page_->broken.load() != 0;
}

Channels::Channel& Channels::channel(int from, int to) const {
  static_assert(sizeof(Page) <= 64);
  static_assert(sizeof(Channel) == kPiece + 64);
  auto* const first =
      reinterpret_cast<Channel*>(reinterpret_cast<char*>(page_) + 64);
  return first[from * kMostRanks + to];
}

void Channels::wake() {
  page_->changes.fetch_add(1);
  syscall(SYS_futex, &page_->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Channels::move_piece(int rank, Transfer& transfer, std::string& failure) {
  Channel& used = transfer.sends ? channel(rank, transfer.peer)
                                 : channel(transfer.peer, rank);
  const uint64_t waiting = used.bytes.load();
  if (transfer.sends == (waiting != 0)) {
    return false;
  }
  const uint64_t n = transfer.sends ? std::min(transfer.left, kPiece) : waiting;
  if (n > transfer.left) {
    failure = "rank " + std::to_string(transfer.peer) + " sent too much.";
    return false;
  }
  std::memcpy(
      transfer.sends ? used.data : transfer.data,
      transfer.sends ? transfer.data : used.data,
      n);
  used.bytes.store(transfer.sends ? n : 0);
  transfer.data += n;
  transfer.left -= n;
  return true;
}

void Channels::move(
    int rank,
    std::vector<Transfer>& transfers,
    const std::atomic<bool>& given_up,
    std::string& failure) {
  while (failure.empty()) {
    const uint32_t seen = page_->changes.load();
    bool moved = false, left = false;
    bool busy[2][kMostRanks] = {};
    for (Transfer& transfer : transfers) {
      bool& taken = busy[transfer.sends ? 1 : 0][transfer.peer];
      if (transfer.left == 0 || taken) {
        continue;
      }
      left = taken = true;
      moved = move_piece(rank, transfer, failure) || moved;
    }
    if (moved) {
      wake();
    }
    if (!left) {
      return;
    }
    if (given_up || is_broken()) {
      failure = "a collective was ended: the communicator was given up.";
    } else if (!moved) {
      const timespec most{0, 2'000'000};
      syscall(SYS_futex, &page_->changes, FUTEX_WAIT, seen, &most, nullptr, 0);
    }
  }
}

}  // namespace npu::discrete
