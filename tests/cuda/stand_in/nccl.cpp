// SPDX-License-Identifier: Apache-2.0
// NCCL without GPUs, by "NVIDIA NCCL documentation" (API, group calls,
// communicator creation, fault tolerance): ranks are devices of one process,
// and a collective is computed by the rank that comes last. Non-blocking
// communicators stay ncclInProgress for a while after each call, as the real
// ones may.
#include "nccl.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "machine.h"
#include "nccl_values.h"

extern "C" {

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};
struct ncclComm;
using ncclComm_t = ncclComm*;
using ncclDataType_t = int;
using ncclRedOp_t = int;

}  // extern "C"

namespace {

using stand_in::op_name;
using stand_in::reduced;
using stand_in::type_of;

using Clock = std::chrono::steady_clock;
constexpr std::chrono::microseconds kBackground{300};

std::mutex mutex;  // of everything here
// Never destroyed: streams may wait at exit.
std::condition_variable& changed = *new std::condition_variable;

[[noreturn]] void wrong(const std::string& what) {
  std::fprintf(stderr, "stand-in NCCL: %s\n", what.c_str());
  std::abort();
}

std::string& calls() {
  static auto* const text = new std::string;
  return *text;
}
void note(const std::string& line) {
  calls() += line + "\n";
}

thread_local std::string last_error;
ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  last_error = why;
  return result;
}

// ---- ranks that have met, or will ----

struct Part {  // of one rank, in one collective
  const char* send = nullptr;
  char* recv = nullptr;
  int rank = 0;
};
struct Collective {
  std::string what;  // equal on all ranks
  std::vector<Part> parts;
  bool done = false;
};
struct Message {
  std::vector<char> bytes;
  bool taken = false;
};
using MessagePtr = std::shared_ptr<Message>;

struct Clique {
  int size = 0;
  std::vector<ncclComm_t> ranks;
  std::map<std::uint64_t, Collective> collectives;
  std::map<std::pair<int, int>, std::vector<MessagePtr>> messages;
  // A split under way: color and key by rank.
  struct Wish {
    int color;
    int key;
    ncclComm_t* out;
  };
  std::map<int, Wish> wishes;
};
using CliquePtr = std::shared_ptr<Clique>;

}  // namespace

struct ncclComm {
  CliquePtr clique;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  bool joined = false;  // all ranks had come
  bool splitting = false;
  bool aborted = false;
  bool finalizing = false;
  bool gone = false;
  ncclResult_t error = ncclSuccess;
  std::string error_text;
  Clock::time_point busy_until{};
  std::uint64_t collectives = 0;
  std::uint64_t queued = 0;
  std::uint64_t done = 0;
};

namespace {

std::map<std::string, CliquePtr>& cliques() {
  static auto* const all = new std::map<std::string, CliquePtr>;
  return *all;
}

ncclResult_t progress(ncclComm& comm) {
  if (comm.error != ncclSuccess) {
    last_error = comm.error_text;
    return comm.error;
  }
  if (!comm.joined) {
    const auto n = std::count_if(
        comm.clique->ranks.begin(), comm.clique->ranks.end(), [](auto* rank) {
          return rank != nullptr;
        });
    comm.joined = n == comm.clique->size;
    if (comm.joined) {
      comm.busy_until = Clock::now() + kBackground;
    }
  }
  if (!comm.joined || comm.splitting || Clock::now() < comm.busy_until) {
    return ncclInProgress;
  }
  return comm.finalizing && comm.done < comm.queued ? ncclInProgress
                                                    : ncclSuccess;
}

// A call that is only allowed once the last one is over.
void needs_idle(ncclComm* comm, const char* what) {
  if (comm == nullptr || comm->gone) {
    wrong(std::string(what) + " about a communicator that is gone");
  }
  const ncclResult_t now = progress(*comm);
  if (now == ncclInProgress) {
    wrong(std::string(what) + " while the communicator is ncclInProgress");
  }
  if (comm->finalizing) {
    wrong(std::string(what) + " after ncclCommFinalize");
  }
}

ncclResult_t under_way(ncclComm& comm) {
  comm.busy_until = Clock::now() + kBackground;
  return comm.blocking ? ncclSuccess : ncclInProgress;
}

// ---- groups ----

struct Call {
  enum What {
    kAllReduce,
    kReduce,
    kBroadcast,
    kAllGather,
    kReduceScatter,
    kSend,
    kRecv
  } what;
  const void* send;
  void* recv;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;  // or peer
  ncclComm_t comm;
  cudaStream_t stream;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Call> calls;
  std::vector<ncclComm_t> made;
};
thread_local Group group;

std::string text_of(const Call& call) {
  static constexpr const char* kNames[] = {
      "AllReduce",
      "Reduce",
      "Broadcast",
      "AllGather",
      "ReduceScatter",
      "Send",
      "Recv"};
  std::string text = std::string(kNames[call.what]) + " " +
                     std::to_string(call.count) + " " +
                     type_of(call.type)->name;
  const bool reduces = call.what == Call::kAllReduce ||
                       call.what == Call::kReduce ||
                       call.what == Call::kReduceScatter;
  text += reduces ? std::string(" ") + op_name(call.op) : "";
  const bool rooted = call.what == Call::kReduce ||
                      call.what == Call::kBroadcast ||
                      call.what == Call::kSend || call.what == Call::kRecv;
  return rooted ? text + " " + std::to_string(call.root) : text;
}

// With the lock held; the rank that came last computes for all.
void compute(const Call& call, const Collective& all) {
  const std::size_t bytes = call.count * type_of(call.type)->bytes;
  const std::size_t n = all.parts.size();
  const bool scatters = call.what == Call::kReduceScatter;
  std::vector<std::vector<char>> from(n);
  for (const Part& part : all.parts) {
    auto& mine = from[static_cast<std::size_t>(part.rank)];
    if (part.send != nullptr) {
      mine.assign(part.send, part.send + bytes * (scatters ? n : 1));
    }
  }
  std::vector<char> sum;
  if (call.what == Call::kAllReduce || call.what == Call::kReduce || scatters) {
    sum = reduced(call.type, call.op, from);
  }
  for (const Part& part : all.parts) {
    const auto rank = static_cast<std::size_t>(part.rank);
    switch (call.what) {
      case Call::kAllReduce:
        std::memcpy(part.recv, sum.data(), bytes);
        break;
      case Call::kReduce:
        if (part.rank == call.root) {
          std::memcpy(part.recv, sum.data(), bytes);
        }
        break;
      case Call::kBroadcast:
        std::memcpy(
            part.recv, from[static_cast<std::size_t>(call.root)].data(), bytes);
        break;
      case Call::kAllGather:
        for (std::size_t r = 0; r < n; ++r) {
          std::memcpy(part.recv + r * bytes, from[r].data(), bytes);
        }
        break;
      default:
        std::memcpy(part.recv, sum.data() + rank * bytes, bytes);
    }
  }
}

void run_collective(const Call& call, std::uint64_t number) {
  std::unique_lock lock(mutex);
  ncclComm& comm = *call.comm;
  Clique& clique = *comm.clique;
  Collective& all = clique.collectives[number];
  const std::string what = text_of(call);
  if (all.what.empty()) {
    all.what = what;
  } else if (all.what != what) {
    wrong("ranks call " + all.what + " and " + what + " as one collective");
  }
  const bool root_reads =
      call.what == Call::kBroadcast && comm.rank != call.root;
  all.parts.push_back(
      {root_reads ? nullptr : static_cast<const char*>(call.send),
       static_cast<char*>(call.recv),
       comm.rank});
  if (static_cast<int>(all.parts.size()) == clique.size) {
    compute(call, all);
    all.done = true;
    changed.notify_all();
  }
  changed.wait(lock, [&] { return all.done || comm.aborted; });
}

// Messages of one group go on together: none waits for another to be over.
void run_messages(const std::vector<Call>& all) {
  std::unique_lock lock(mutex);
  std::vector<MessagePtr> sent;
  for (const Call& call : all) {
    if (call.what == Call::kSend) {
      const auto* const from = static_cast<const char*>(call.send);
      auto made = std::make_shared<Message>();
      made->bytes.assign(from, from + call.count * type_of(call.type)->bytes);
      call.comm->clique->messages[{call.comm->rank, call.root}].push_back(made);
      sent.push_back(made);
    }
  }
  changed.notify_all();
  for (const Call& call : all) {
    if (call.what != Call::kRecv) {
      continue;
    }
    auto& queue = call.comm->clique->messages[{call.root, call.comm->rank}];
    changed.wait(lock, [&] { return !queue.empty() || call.comm->aborted; });
    if (call.comm->aborted) {
      return;
    }
    const MessagePtr got = queue.front();
    queue.erase(queue.begin());
    if (got->bytes.size() != call.count * type_of(call.type)->bytes) {
      wrong("a message is received with another count than it was sent");
    }
    std::memcpy(call.recv, got->bytes.data(), got->bytes.size());
    got->taken = true;
    changed.notify_all();
  }
  ncclComm& comm = *all.front().comm;
  changed.wait(lock, [&] {
    return comm.aborted || std::all_of(sent.begin(), sent.end(), [](auto& m) {
             return m->taken;
           });
  });
}

void queue_work(const Call& call, std::function<void()> run) {
  ncclComm* const comm = call.comm;
  ++comm->queued;
  stand_in::Work work;
  work.sort = stand_in::Sort::kKernel;
  work.name = "ncclDevKernel_" + text_of(call).substr(0, 3);
  work.run = [comm, run = std::move(run)] {
    run();
    const std::lock_guard lock(mutex);
    ++comm->done;
    changed.notify_all();
  };
  stand_in::queue(call.stream, std::move(work));
}

ncclResult_t launch(const std::vector<Call>& all) {
  bool blocking = true;
  std::map<ncclComm_t, std::vector<Call>> messages;
  for (const Call& call : all) {
    blocking = blocking && call.comm->blocking;
    if (call.what == Call::kSend || call.what == Call::kRecv) {
      messages[call.comm].push_back(call);
    } else {
      const std::uint64_t number = call.comm->collectives++;
      queue_work(call, [=] { run_collective(call, number); });
    }
  }
  for (const auto& [comm, of_comm] : messages) {
    queue_work(of_comm.front(), [of_comm] { run_messages(of_comm); });
  }
  for (const Call& call : all) {
    under_way(*call.comm);
  }
  return blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t take(const Call& call) {
  const std::lock_guard lock(mutex);
  needs_idle(call.comm, "a collective");
  const auto refuse_call = [](const std::string& why) {
    group.error = ncclInvalidArgument;
    return refuse(ncclInvalidArgument, why);
  };
  if (call.comm->error != ncclSuccess) {
    group.error = call.comm->error;
    return refuse(call.comm->error, call.comm->error_text);
  }
  if (type_of(call.type) == nullptr || op_name(call.op) == nullptr ||
      call.count == 0) {
    return refuse_call("a type, reduction or count that there is not");
  }
  if (call.root < 0 || call.root >= call.comm->clique->size) {
    return refuse_call("a root or peer that is no rank");
  }
  if (stand_in::device_of(call.stream) != call.comm->device) {
    return refuse_call("the stream is one of another device");
  }
  if (!group.made.empty()) {
    wrong("a collective and ncclCommInitRank in one group");
  }
  note(text_of(call));
  if (group.depth > 0) {
    group.calls.push_back(call);
    return ncclSuccess;
  }
  return launch({call});
}

// With the lock held: every rank of the parent has said its color.
void make_parts(Clique& parent) {
  std::map<int, std::vector<std::pair<std::pair<int, int>, int>>> colors;
  for (const auto& [rank, wish] : parent.wishes) {
    if (wish.color != -1) {
      colors[wish.color].push_back({{wish.key, rank}, rank});
    }
  }
  for (auto& [color, members] : colors) {
    std::sort(members.begin(), members.end());
    auto clique = std::make_shared<Clique>();
    clique->size = static_cast<int>(members.size());
    int place = 0;
    for (const auto& [key, rank] : members) {
      auto* const made = new ncclComm;
      made->clique = clique;
      made->rank = place++;
      made->device = parent.ranks[static_cast<std::size_t>(rank)]->device;
      made->blocking = parent.ranks[static_cast<std::size_t>(rank)]->blocking;
      clique->ranks.push_back(made);
      *parent.wishes[rank].out = made;
    }
  }
  for (const auto& [rank, wish] : parent.wishes) {
    parent.ranks[static_cast<std::size_t>(rank)]->splitting = false;
    if (wish.color == -1) {
      *wish.out = nullptr;
    }
  }
  parent.wishes.clear();
}

}  // namespace

extern "C" {

const char* stand_in_nccl_calls() {
  static auto* const said = new std::string;
  const std::lock_guard lock(mutex);
  *said = std::move(calls());
  calls().clear();
  return said->c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  const char* const text = std::getenv("STAND_IN_NCCL_VERSION");
  *version = text != nullptr ? std::atoi(text) : 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  *id = {};
  std::snprintf(id->internal, sizeof(id->internal), "stand-in %d", ++made);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* out,
    int n_ranks,
    ncclUniqueId id,
    int rank,
    ncclConfig_t* config) {
  const std::lock_guard lock(mutex);
  if (config == nullptr || config->size < sizeof(ncclConfig_t) ||
      config->magic != 0xcafebeef || config->version < 21400) {
    return refuse(
        ncclInvalidArgument,
        "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  }
  if (!group.calls.empty()) {
    wrong("a collective and ncclCommInitRank in one group");
  }
  if (rank < 0 || rank >= n_ranks) {
    return refuse(ncclInvalidArgument, "Invalid rank requested");
  }
  if (std::getenv("STAND_IN_NCCL_FAILS") != nullptr) {
    *out = nullptr;
    group.error = group.depth > 0 ? ncclUnhandledCudaError : ncclSuccess;
    return refuse(ncclUnhandledCudaError, "Cuda failure 'out of\nmemory'");
  }
  CliquePtr& clique = cliques()[id.internal];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->size = n_ranks;
    clique->ranks.resize(static_cast<std::size_t>(n_ranks));
  }
  auto* const made = new ncclComm;
  made->clique = clique;
  made->rank = rank;
  made->blocking = config->blocking == INT_MIN || config->blocking != 0;
  cudaGetDevice(&made->device);
  for (ncclComm_t other : clique->ranks) {
    if (other != nullptr && other->device == made->device) {
      for (ncclComm_t each : {other, made}) {
        each->error = ncclInvalidUsage;
        each->error_text = "Duplicate GPU detected : rank " +
                           std::to_string(other->rank) + " and rank " +
                           std::to_string(rank) + " both on CUDA device " +
                           std::to_string(made->device) + ".\n";
      }
    }
  }
  clique->ranks[static_cast<std::size_t>(rank)] = made;
  note(
      "Init " + std::to_string(rank) + " of " + std::to_string(n_ranks) +
      (made->blocking ? " blocking" : ""));
  if (group.depth > 0) {
    group.made.push_back(made);
  }
  *out = made;
  return made->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommSplit(
    ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t*) {
  const std::lock_guard lock(mutex);
  needs_idle(comm, "ncclCommSplit");
  *out = nullptr;
  note("Split " + std::to_string(color) + " " + std::to_string(key));
  comm->splitting = true;
  comm->clique->wishes[comm->rank] = {color, key, out};
  if (static_cast<int>(comm->clique->wishes.size()) == comm->clique->size) {
    // Handles are written later, by a thread of NCCL's.
    std::thread([clique = comm->clique] {
      std::this_thread::sleep_for(kBackground);
      const std::lock_guard in_thread(mutex);
      make_parts(*clique);
    }).detach();
  }
  return ncclInProgress;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const std::lock_guard lock(mutex);
  needs_idle(comm, "ncclCommCount");
  *count = comm->clique->size;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const std::lock_guard lock(mutex);
  needs_idle(comm, "ncclCommUserRank");
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const std::lock_guard lock(mutex);
  if (comm == nullptr || comm->gone) {
    wrong("ncclCommGetAsyncError about a communicator that is gone");
  }
  *error = progress(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  needs_idle(comm, "ncclCommFinalize");
  note("Finalize");
  comm->finalizing = true;
  return under_way(*comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  if (comm == nullptr || comm->gone || !comm->finalizing ||
      progress(*comm) != ncclSuccess) {
    wrong("ncclCommDestroy of one that is not finalized");
  }
  note("Destroy");
  comm->gone = true;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  if (comm == nullptr || comm->gone) {
    wrong("ncclCommAbort of a communicator that is gone");
  }
  note("Abort");
  comm->aborted = true;
  comm->gone = true;
  changed.notify_all();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidArgument ? "invalid argument"
         : result == ncclInvalidUsage  ? "invalid usage"
         : result == ncclRemoteError   ? "remote process exited"
                                       : "an error of the stand-in";
}
const char* ncclGetLastError(ncclComm_t) {
  return last_error.c_str();
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) {
    return refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
  }
  if (--group.depth > 0) {
    return ncclSuccess;
  }
  const Group all = std::exchange(group, Group{});
  if (all.error != ncclSuccess) {
    return all.error;
  }
  const std::lock_guard lock(mutex);
  ncclResult_t result = all.calls.empty() ? ncclSuccess : launch(all.calls);
  for (ncclComm_t made : all.made) {
    result = made->blocking ? result : ncclInProgress;
  }
  return result;
}

ncclResult_t ncclAllReduce(
    const void* send,
    void* recv,
    std::size_t count,
    ncclDataType_t type,
    ncclRedOp_t op,
    ncclComm_t comm,
    cudaStream_t stream) {
  return take({Call::kAllReduce, send, recv, count, type, op, 0, comm, stream});
}
ncclResult_t ncclReduce(
    const void* send,
    void* recv,
    std::size_t count,
    ncclDataType_t type,
    ncclRedOp_t op,
    int root,
    ncclComm_t comm,
    cudaStream_t stream) {
  return take({Call::kReduce, send, recv, count, type, op, root, comm, stream});
}
ncclResult_t ncclBroadcast(
    const void* send,
    void* recv,
    std::size_t count,
    ncclDataType_t type,
    int root,
    ncclComm_t comm,
    cudaStream_t stream) {
  return take(
      {Call::kBroadcast, send, recv, count, type, 0, root, comm, stream});
}
ncclResult_t ncclAllGather(
    const void* send,
    void* recv,
    std::size_t count,
    ncclDataType_t type,
    ncclComm_t comm,
    cudaStream_t stream) {
  return take({Call::kAllGather, send, recv, count, type, 0, 0, comm, stream});
}
ncclResult_t ncclReduceScatter(
    const void* send,
    void* recv,
    std::size_t count,
    ncclDataType_t type,
    ncclRedOp_t op,
    ncclComm_t comm,
    cudaStream_t stream) {
  return take(
      {Call::kReduceScatter, send, recv, count, type, op, 0, comm, stream});
}
ncclResult_t ncclSend(
    const void* send,
    std::size_t count,
    ncclDataType_t type,
    int peer,
    ncclComm_t comm,
    cudaStream_t stream) {
  return take({Call::kSend, send, nullptr, count, type, 0, peer, comm, stream});
}
ncclResult_t ncclRecv(
    void* recv,
    std::size_t count,
    ncclDataType_t type,
    int peer,
    ncclComm_t comm,
    cudaStream_t stream) {
  return take({Call::kRecv, nullptr, recv, count, type, 0, peer, comm, stream});
}

}  // extern "C"
