// SPDX-License-Identifier: Apache-2.0
// The board: a memory file with a slot per rank.
#include "dist/board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <fstream>
#include <sstream>

namespace npu::dist {

namespace {

constexpr std::uint64_t kMagic = 0x6f70656e6e707533;  // also says the layout
constexpr std::uint64_t kKept = 16;                   // calls a slot remembers
constexpr std::size_t kTracks = 2;

// Fields of /proc/<pid>/stat after the name, which may hold anything.
struct Process {
  char state = 0;
  std::uint64_t started = 0;
};

std::optional<Process> process(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) {
    return std::nullopt;
  }
  const auto end = line.rfind(')');
  if (end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(line.substr(end + 1));
  Process found;
  fields >> found.state;
  std::string skipped;
  for (int i = 0; i < 18; ++i) {
    fields >> skipped;
  }
  fields >> found.started;
  return found;
}

std::string first_line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Processes that can see each other's /proc: one boot, one namespace of them.
std::string machine() {
  struct stat space {};
  ::stat("/proc/self/ns/pid", &space);
  return first_line_of("/proc/sys/kernel/random/boot_id") + ":" +
         std::to_string(space.st_ino);
}

void futex(
    const std::atomic<std::uint32_t>& word,
    int what,
    unsigned value,
    const timespec* most) {
  ::syscall(
      SYS_futex,
      reinterpret_cast<const std::uint32_t*>(&word),
      what,
      value,
      most,
      nullptr,
      0);
}

}  // namespace

struct Board::Slot {
  struct Entry {
    std::atomic<std::uint64_t> call;  // 0 while it is being written
    char text[Board::kText];
  };
  std::atomic<std::int64_t> pid;
  std::atomic<std::uint64_t> started;
  std::atomic<std::uint64_t> last;  // call it arrived at last
  Entry entries[kKept];
};

struct Board::Page {
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint32_t> changes;
  std::atomic<std::uint32_t> sleepers;
};

Board::Board(int descriptor, void* memory, std::size_t bytes, int size)
    : descriptor_(descriptor),
      page_(static_cast<Page*>(memory)),
      bytes_(bytes),
      size_(size) {}

Board::~Board() {
  ::munmap(page_, bytes_);
  ::close(descriptor_);
}

Board::Slot& Board::slot(Track track, int rank) const {
  static_assert(sizeof(Page) <= 64);
  const auto row =
      static_cast<std::size_t>(track) * static_cast<std::size_t>(size_) +
      static_cast<std::size_t>(rank);
  return reinterpret_cast<Slot*>(reinterpret_cast<char*>(page_) + 64)[row];
}

// A page, for each track a slot per rank, then the counts of the last calls of
// each slot.
std::size_t Board::bytes_for(int size) {
  const auto n = static_cast<std::size_t>(size);
  return 64 + kTracks * n *
                  (sizeof(Slot) + kKept * kCounts * n * sizeof(std::int64_t));
}

std::atomic<std::int64_t>* Board::counts_at(
    Track track, int rank, std::uint64_t call) const {
  static_assert(sizeof(Slot) % alignof(std::atomic<std::int64_t>) == 0);
  auto* const first = reinterpret_cast<std::atomic<std::int64_t>*>(
      &slot(Track::kQueued, size_));
  const auto slot_row =
      static_cast<std::size_t>(track) * static_cast<std::size_t>(size_) +
      static_cast<std::size_t>(rank);
  const auto row = slot_row * kKept + call % kKept;
  return first + row * kCounts * static_cast<std::size_t>(size_);
}

std::vector<std::int64_t> Board::counts(
    Track track, int rank, std::uint64_t call) const {
  const auto* const from = counts_at(track, rank, call);
  std::vector<std::int64_t> found(kCounts * static_cast<std::size_t>(size_));
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i] = from[i].load();
  }
  return found;
}

std::unique_ptr<Board> Board::map(int descriptor, int size) {
  const std::size_t bytes = bytes_for(size);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    ::close(descriptor);
    return nullptr;
  }
  return std::unique_ptr<Board>(new Board(descriptor, memory, bytes, size));
}

std::unique_ptr<Board> Board::make(int size) {
  const int descriptor = ::memfd_create("npu-group", MFD_CLOEXEC);
  if (descriptor < 0) {
    return nullptr;
  }
  if (::ftruncate(descriptor, static_cast<off_t>(bytes_for(size))) != 0) {
    ::close(descriptor);
    return nullptr;
  }
  std::unique_ptr<Board> board = map(descriptor, size);
  if (board != nullptr) {
    board->page_->magic.store(kMagic);
  }
  return board;
}

std::string Board::address() const {
  return machine() + " " + std::to_string(::getpid()) + " " +
         std::to_string(descriptor_);
}

std::unique_ptr<Board> Board::open(const std::string& address, int size) {
  std::istringstream words(address);
  std::string where, pid, number;
  words >> where >> pid >> number;
  if (where != machine()) {
    return nullptr;
  }
  const std::string path = "/proc/" + pid + "/fd/" + number;
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    return nullptr;
  }
  struct stat known {};
  if (::fstat(descriptor, &known) != 0 ||
      static_cast<std::size_t>(known.st_size) != bytes_for(size)) {
    ::close(descriptor);
    return nullptr;
  }
  std::unique_ptr<Board> board = map(descriptor, size);
  return board != nullptr && board->page_->magic.load() == kMagic
             ? std::move(board)
             : nullptr;
}

std::string Board::fitting(const std::string& text) {
  if (text.size() < kText) {
    return text;
  }
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  std::ostringstream end;
  end << " ... #" << std::hex << hash;
  return text.substr(0, kText - 1 - end.str().size()) + end.str();
}

void Board::join(int rank) {
  const auto self = process(::getpid());
  for (const auto track : {Track::kMet, Track::kQueued}) {
    Slot& mine = slot(track, rank);
    mine.started.store(self ? self->started : 0);
    mine.pid.store(::getpid());
  }
}

void Board::arrive(
    Track track,
    int rank,
    std::uint64_t call,
    const std::string& text,
    const std::vector<std::int64_t>& counts) {
  Slot& mine = slot(track, rank);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts_at(track, rank, call)[i].store(counts[i]);
  }
  Slot::Entry& entry = mine.entries[call % kKept];
  entry.call.store(0);
  const std::size_t n = std::min(text.size(), kText - 1);
  std::memcpy(entry.text, text.data(), n);
  entry.text[n] = 0;
  entry.call.store(call);
  mine.last.store(call);
  page_->changes.fetch_add(1);
  if (page_->sleepers.load() != 0) {
    futex(page_->changes, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

std::string Board::asked(int rank, std::uint64_t call) const {
  for (const auto track : {Track::kMet, Track::kQueued}) {
    const Slot::Entry& entry = slot(track, rank).entries[call % kKept];
    char text[kText];
    if (entry.call.load() == call) {
      std::memcpy(text, entry.text, kText);
      text[kText - 1] = 0;
      if (entry.call.load() == call) {  // and was not overwritten meanwhile
        return text;
      }
    }
  }
  return "";
}

Board::Peer Board::look(Track track, int rank, std::uint64_t call) const {
  const Slot& theirs = slot(track, rank);
  Peer peer;
  peer.pid = theirs.pid.load();
  peer.call = theirs.last.load();
  peer.here = peer.call >= call;
  const Slot::Entry& entry =
      theirs.entries[(peer.here ? call : peer.call) % kKept];
  char text[kText];
  std::memcpy(text, entry.text, kText);
  text[kText - 1] = 0;
  if (entry.call.load() == (peer.here ? call : peer.call)) {
    peer.text = text;
  }
  if (!peer.here && peer.pid != 0) {
    const auto found = process(peer.pid);
    peer.alive = found && found->state != 'Z' && found->state != 'X' &&
                 found->started == theirs.started.load();
    peer.stopped = found && (found->state == 'T' || found->state == 't');
  }
  return peer;
}

std::uint32_t Board::changes() const {
  return page_->changes.load();
}

void Board::wait(std::uint32_t seen, std::chrono::milliseconds most) const {
  const timespec limit{most.count() / 1000, (most.count() % 1000) * 1'000'000};
  page_->sleepers.fetch_add(1);
  futex(page_->changes, FUTEX_WAIT, seen, &limit);
  page_->sleepers.fetch_sub(1);
}

}  // namespace npu::dist
