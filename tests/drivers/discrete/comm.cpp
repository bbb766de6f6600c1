// SPDX-License-Identifier: Apache-2.0
// comm/1 of the discrete driver, offered with NPU_DISCRETE_COMM=1: collectives
// as messages between worker threads, through memory that the ranks share.
//
//   NPU_DISCRETE_COMM_WITHOUT="broadcast reduce"   it declines these
//   NPU_DISCRETE_COMM_WRONG=sum|early|abort        for the kit: drops a term,
//                              does not wait for the stream, cannot be aborted
#include "npu/comm.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "channels.h"
#include "discrete.h"
#include "npu/validate.h"

namespace npu::discrete {
namespace {

using Clock = std::chrono::steady_clock;

bool wrong(const char* what) {
  const char* const asked = std::getenv("NPU_DISCRETE_COMM_WRONG");
  return asked != nullptr && std::strcmp(asked, what) == 0;
}

struct Comm {
  Id id;
  int rank = 0, size = 1;
  npu_device device = 0;
  Clock::time_point until;  // all have to be there
  std::shared_ptr<Channels> channels;
  std::atomic<bool> given_up{false};
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t queued = 0, done = 0;  // its work runs in the order of the calls
};
using CommPtr = std::shared_ptr<Comm>;

auto& all_mutex = *new std::mutex;
auto& all = *new std::map<uintptr_t, CommPtr>;  // threads outlive main

CommPtr find(npu_comm comm) {
  const std::lock_guard lock(all_mutex);
  const auto found = all.find(reinterpret_cast<uintptr_t>(comm));
  return found == all.end() ? nullptr : found->second;
}

npu_status gone() {
  return fail(NPU_E_INVALID, "no such communicator.");
}

// ---- what is queued ----

// Messages, and what is done with them once they are here.
struct Item {
  std::vector<Transfer> transfers;
  std::function<void()> finish;
};
struct Waiting {
  CommPtr comm;
  npu_stream stream;
  std::vector<Item> pieces;
};
thread_local int depth = 0;
thread_local std::vector<Waiting> waiting;  // of the group that is open
thread_local npu_status refused = NPU_OK;   // the first error in that group

// The same function; a group with an error in it queues nothing.
template <auto kFunction>
struct Noted;
template <class... Args, npu_status (*kFunction)(Args...)>
struct Noted<kFunction> {
  static npu_status call(Args... args) {
    const npu_status status = kFunction(args...);
    refused = depth > 0 && refused == NPU_OK ? status : refused;
    return status;
  }
};

void run(
    const CommPtr& comm,
    uint64_t turn,
    std::vector<Item>& pieces,
    std::string& failure) {
  {
    std::unique_lock lock(comm->mutex);
    comm->changed.wait(
        lock, [&] { return comm->done == turn || comm->given_up; });
  }
  std::vector<Transfer> transfers;
  for (const Item& piece : pieces) {
    transfers.insert(
        transfers.end(), piece.transfers.begin(), piece.transfers.end());
  }
  comm->channels->move(comm->rank, transfers, comm->given_up, failure);
  for (const Item& piece : pieces) {
    if (failure.empty() && piece.finish) {
      piece.finish();
    }
  }
  const std::lock_guard lock(comm->mutex);
  comm->done = turn + 1;
  comm->changed.notify_all();
}

npu_status queue_all(Waiting item) {
  uint64_t turn = 0;
  {
    const std::lock_guard lock(item.comm->mutex);
    turn = item.comm->queued++;
  }
  auto pieces = std::make_shared<std::vector<Item>>(std::move(item.pieces));
  Work work = [comm = item.comm, turn, pieces](std::string& failure) {
    run(comm, turn, *pieces, failure);
  };
  if (wrong("early")) {
    std::thread([work] {
      std::string failure;
      work(failure);
    }).detach();
    return NPU_OK;
  }
  return enqueue(item.stream, std::move(work));
}

npu_status queue(const CommPtr& comm, npu_stream stream, Item piece) {
  if (depth == 0) {
    return queue_all({comm, stream, {std::move(piece)}});
  }
  for (Waiting& item : waiting) {
    if (item.comm == comm) {
      item.pieces.push_back(std::move(piece));
      return item.stream == stream
                 ? npu_status{NPU_OK}
                 : fail(NPU_E_INVALID, "a group has one stream.");
    }
  }
  waiting.push_back({comm, stream, {std::move(piece)}});
  return NPU_OK;
}

npu_status group_begin() {
  ++depth;
  return NPU_OK;
}

npu_status group_end() {
  if (depth == 0) {
    return fail(NPU_E_INVALID, "group_end without group_begin.");
  }
  if (--depth > 0) {
    return NPU_OK;
  }
  std::vector<Waiting> items = std::exchange(waiting, {});
  npu_status status = std::exchange(refused, NPU_OK);
  if (status != NPU_OK) {
    return fail(status, "a call of the group was refused.");
  }
  for (Waiting& item : items) {
    const npu_status mine = queue_all(std::move(item));
    status = status ? status : mine;
  }
  return status;
}

// ---- checks ----

struct Call {
  const char* name;
  npu_comm comm;
  npu_stream stream;
  uint64_t count;
  npu_dtype dtype;
};

npu_status check_call(const Call& call, CommPtr& comm) {
  NPU_TRY(check(call.stream));
  comm = find(call.comm);
  if (comm == nullptr) {
    return gone();
  }
  const char* const without = std::getenv("NPU_DISCRETE_COMM_WITHOUT");
  const std::string list = " " + std::string(without ? without : "") + " ";
  if (list.find(" " + std::string(call.name) + " ") != std::string::npos) {
    return fail(NPU_E_UNSUPPORTED, "declines " + std::string(call.name) + ".");
  }
  if (device_of(call.stream) != comm->device) {
    return fail(NPU_E_INVALID, "the stream is of another device.");
  }
  return call.count > 0 && npu_dtype_bytes(call.dtype) > 0
             ? NPU_OK
             : fail(NPU_E_INVALID, "a collective of nothing.");
}

npu_status check_rank(const Comm& comm, int32_t rank) {
  return rank >= 0 && rank < comm.size
             ? NPU_OK
             : fail(NPU_E_INVALID, "no rank " + std::to_string(rank) + ".");
}

// ---- reductions ----

constexpr uint64_t kFloats = NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);
constexpr uint64_t kReduced = kFloats | NPU_DTYPE_BIT(NPU_U8) |
                              NPU_DTYPE_BIT(NPU_I32) | NPU_DTYPE_BIT(NPU_I64);
constexpr uint64_t kReductions =  // all but XOR
    (1u << NPU_REDUCTION_XOR) - 1;

npu_status check_reduction(npu_dtype dtype, npu_reduction reduction) {
  const bool bits =
      reduction == NPU_REDUCTION_AND || reduction == NPU_REDUCTION_OR;
  return (kReduced & NPU_DTYPE_BIT(dtype)) != 0 && reduction < 64 &&
                 (kReductions >> reduction & 1) != 0 &&
                 !(bits && (kFloats & NPU_DTYPE_BIT(dtype)) != 0)
             ? NPU_OK
             : fail(NPU_E_UNSUPPORTED, "does not reduce that.");
}

template <class T>
T combined(npu_reduction reduction, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Bits = std::make_unsigned_t<T>;  // which may overflow
    switch (reduction) {
      case NPU_REDUCTION_AND:
        return a & b;
      case NPU_REDUCTION_OR:
        return a | b;
      case NPU_REDUCTION_SUM:
      case NPU_REDUCTION_AVERAGE:
        return T(Bits(a) + Bits(b));
      case NPU_REDUCTION_PRODUCT:
        return T(Bits(a) * Bits(b));
      default:
        break;
    }
  }
  const auto nan = [](T x) { return x != x; };
  switch (reduction) {
    case NPU_REDUCTION_PRODUCT:
      return a * b;
    case NPU_REDUCTION_MIN:
      return nan(a) || a < b ? a : b;
    case NPU_REDUCTION_MAX:
      return nan(a) || a > b ? a : b;
    default:
      return a + b;
  }
}

template <class T>
void reduce_as(
    npu_reduction reduction,
    const std::vector<const char*>& parts,
    char* out,
    uint64_t count) {
  const size_t terms = parts.size() - (wrong("sum") && parts.size() > 1);
  for (uint64_t i = 0; i < count; ++i) {
    T value = reinterpret_cast<const T*>(parts[0])[i];
    for (size_t r = 1; r < terms; ++r) {
      value =
          combined(reduction, value, reinterpret_cast<const T*>(parts[r])[i]);
    }
    reinterpret_cast<T*>(out)[i] =
        reduction == NPU_REDUCTION_AVERAGE ? T(value / T(parts.size())) : value;
  }
}

void reduce_parts(
    npu_dtype dtype,
    npu_reduction reduction,
    const std::vector<const char*>& parts,
    char* out,
    uint64_t count) {
  switch (dtype) {
    case NPU_F32:
      return reduce_as<float>(reduction, parts, out, count);
    case NPU_F64:
      return reduce_as<double>(reduction, parts, out, count);
    case NPU_I32:
      return reduce_as<int32_t>(reduction, parts, out, count);
    case NPU_I64:
      return reduce_as<int64_t>(reduction, parts, out, count);
    default:
      return reduce_as<uint8_t>(reduction, parts, out, count);
  }
}

// `send` goes to ranks [to, to_end), each its own part when `parted`; what
// others send is reduced into `recv` where that is not null.
npu_status queue_reduction(
    const Call& call,
    npu_reduction reduction,
    const void* send,
    void* recv,
    int to,
    int to_end,
    bool parted) {
  CommPtr comm;
  NPU_TRY(check_call(call, comm));
  NPU_TRY(check_reduction(call.dtype, reduction));
  const uint64_t bytes = call.count * npu_dtype_bytes(call.dtype);
  NPU_TRY(check_range(
      comm->device, send, bytes * (parted ? uint64_t(comm->size) : 1)));
  char* const from = inside(send);
  const auto part = [=](int rank) {
    return from + (parted ? uint64_t(rank) * bytes : 0);
  };
  Item piece;
  for (int r = to; r < to_end; ++r) {
    if (r != comm->rank) {
      piece.transfers.push_back({true, r, part(r), bytes});
    }
  }
  if (recv != nullptr) {
    NPU_TRY(check_range(comm->device, recv, bytes));
    auto got =
        std::make_shared<std::vector<char>>(bytes * uint64_t(comm->size));
    std::vector<const char*> parts;
    for (int r = 0; r < comm->size; ++r) {
      char* const place = got->data() + bytes * uint64_t(r);
      parts.push_back(r == comm->rank ? part(r) : place);
      if (r != comm->rank) {
        piece.transfers.push_back({false, r, place, bytes});
      }
    }
    piece.finish = [=, out = inside(recv)] {
      static_cast<void>(got);
      reduce_parts(call.dtype, reduction, parts, out, call.count);
    };
  }
  return queue(comm, call.stream, std::move(piece));
}

npu_status all_reduce(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count,
    npu_dtype dtype,
    npu_reduction reduction,
    npu_stream stream) {
  NPU_TRY(check(send, recv));
  const CommPtr known = find(comm);
  return queue_reduction(
      {"all_reduce", comm, stream, count, dtype},
      reduction,
      send,
      recv,
      0,
      known ? known->size : 0,
      false);
}

npu_status reduce(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count,
    npu_dtype dtype,
    npu_reduction reduction,
    int32_t root,
    npu_stream stream) {
  NPU_TRY(check(send));
  const CommPtr known = find(comm);
  if (known == nullptr) {
    return gone();
  }
  NPU_TRY(check_rank(*known, root));
  const bool here = known->rank == root;
  NPU_TRY(here ? check(recv) : NPU_OK);
  return queue_reduction(
      {"reduce", comm, stream, count, dtype},
      reduction,
      send,
      here ? recv : nullptr,
      root,
      root + 1,
      false);
}

npu_status reduce_scatter(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count,
    npu_dtype dtype,
    npu_reduction reduction,
    npu_stream stream) {
  NPU_TRY(check(send, recv));
  const CommPtr known = find(comm);
  return queue_reduction(
      {"reduce_scatter", comm, stream, count, dtype},
      reduction,
      send,
      recv,
      0,
      known ? known->size : 0,
      true);
}

// ---- what only moves ----

// Bytes at `send` for and at `recv` from each rank; own ones are copied.
struct Parcel {
  const void* send;
  uint64_t to_send;
  void* recv;
  uint64_t to_recv;
};

npu_status queue_parcels(
    const CommPtr& comm,
    npu_stream stream,
    const std::vector<Parcel>& parcels) {
  Item piece;
  char *to = nullptr, *from = nullptr;
  uint64_t own = 0;
  for (int r = 0; r < comm->size; ++r) {
    const Parcel& parcel = parcels[size_t(r)];
    NPU_TRY(check_range(comm->device, parcel.send, parcel.to_send));
    NPU_TRY(check_range(comm->device, parcel.recv, parcel.to_recv));
    if (r == comm->rank) {
      to = inside(parcel.recv);
      from = inside(parcel.send);
      own = std::min(parcel.to_recv, parcel.to_send);
      continue;
    }
    if (parcel.to_send > 0) {
      piece.transfers.push_back({true, r, inside(parcel.send), parcel.to_send});
    }
    if (parcel.to_recv > 0) {
      piece.transfers.push_back(
          {false, r, inside(parcel.recv), parcel.to_recv});
    }
  }
  if (own > 0 && to != from) {
    piece.finish = [=] { std::memmove(to, from, own); };
  }
  return queue(comm, stream, std::move(piece));
}

npu_status broadcast(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count,
    npu_dtype dtype,
    int32_t root,
    npu_stream stream) {
  CommPtr known;
  NPU_TRY(check_call({"broadcast", comm, stream, count, dtype}, known));
  NPU_TRY(check_rank(*known, root));
  const uint64_t bytes = count * npu_dtype_bytes(dtype);
  const bool here = known->rank == root;
  NPU_TRY(check(recv, here ? send : recv));
  std::vector<Parcel> parcels(size_t(known->size), Parcel{send, 0, recv, 0});
  for (int r = 0; here && r < known->size; ++r) {
    parcels[size_t(r)] = {send, bytes, recv, r == root ? bytes : 0};
  }
  if (!here) {
    parcels[size_t(root)].to_recv = bytes;
  }
  return queue_parcels(known, stream, parcels);
}

npu_status all_gather(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count,
    npu_dtype dtype,
    npu_stream stream) {
  NPU_TRY(check(send, recv));
  CommPtr known;
  NPU_TRY(check_call({"all_gather", comm, stream, count, dtype}, known));
  const uint64_t bytes = count * npu_dtype_bytes(dtype);
  std::vector<Parcel> parcels;
  for (int r = 0; r < known->size; ++r) {
    parcels.push_back(
        {send, bytes, static_cast<char*>(recv) + uint64_t(r) * bytes, bytes});
  }
  return queue_parcels(known, stream, parcels);
}

npu_status all_to_all(
    npu_comm comm,
    const void* send,
    const uint64_t* send_counts,
    const uint64_t* send_offsets,
    void* recv,
    const uint64_t* recv_counts,
    const uint64_t* recv_offsets,
    npu_dtype dtype,
    npu_stream stream) {
  NPU_TRY(check(send_counts, send_offsets, recv_counts, recv_offsets));
  CommPtr known;
  NPU_TRY(check_call({"all_to_all", comm, stream, 1, dtype}, known));
  const uint64_t one = npu_dtype_bytes(dtype);
  std::vector<Parcel> parcels;
  for (int r = 0; r < known->size; ++r) {
    parcels.push_back(
        {static_cast<const char*>(send) + send_offsets[r] * one,
         send_counts[r] * one,
         static_cast<char*>(recv) + recv_offsets[r] * one,
         recv_counts[r] * one});
  }
  return queue_parcels(known, stream, parcels);
}

npu_status message(
    const Call& call, int32_t peer, const void* data, bool sends) {
  NPU_TRY(check(data));
  CommPtr known;
  NPU_TRY(check_call(call, known));
  NPU_TRY(check_rank(*known, peer));
  if (peer == known->rank) {
    return fail(NPU_E_INVALID, "a message to oneself.");
  }
  const uint64_t bytes = call.count * npu_dtype_bytes(call.dtype);
  std::vector<Parcel> parcels(size_t(known->size), Parcel{data, 0, nullptr, 0});
  parcels[size_t(peer)] = {
      data, sends ? bytes : 0, const_cast<void*>(data), sends ? 0 : bytes};
  return queue_parcels(known, call.stream, parcels);
}

npu_status send(
    npu_comm comm,
    const void* data,
    uint64_t count,
    npu_dtype dtype,
    int32_t peer,
    npu_stream stream) {
  return message({"send", comm, stream, count, dtype}, peer, data, true);
}

npu_status recv(
    npu_comm comm,
    void* data,
    uint64_t count,
    npu_dtype dtype,
    int32_t peer,
    npu_stream stream) {
  return message({"recv", comm, stream, count, dtype}, peer, data, false);
}

// ---- communicators ----

npu_status make_id(void* id) {
  NPU_TRY(check(id));
  Id made;
  if (!Channels::make(made)) {
    return fail(NPU_E_OUT_OF_MEMORY, "no memory for a communicator.");
  }
  std::memcpy(id, &made, sizeof(made));
  return NPU_OK;
}

npu_status init(
    const void* id,
    int32_t rank,
    int32_t n_ranks,
    npu_device device,
    const npu_comm_config* config,
    npu_comm* out) {
  NPU_TRY(check_device(device, id, out));
  if (n_ranks > kMostRanks) {
    return fail(NPU_E_UNSUPPORTED, "at most 8 ranks.");
  }
  auto made = std::make_shared<Comm>();
  std::memcpy(&made->id, id, sizeof(made->id));
  made->channels =
      rank >= 0 && rank < n_ranks ? Channels::open(made->id) : nullptr;
  if (made->channels == nullptr) {
    return fail(NPU_E_INVALID, "no such rank, or no group has this id.");
  }
  made->rank = rank;
  made->size = n_ranks;
  made->device = device;
  const uint32_t limit = config ? config->timeout_ms : 0;
  made->until = Clock::now() + std::chrono::milliseconds(limit ? limit : 60000);
  made->channels->join();
  const std::lock_guard lock(all_mutex);
  static uintptr_t next = 0;
  all[++next] = made;
  *out = reinterpret_cast<npu_comm>(next);
  return NPU_OK;
}

npu_status state(npu_comm comm) {
  const CommPtr known = find(comm);
  if (known == nullptr) {
    return gone();
  }
  if (known->channels->is_broken()) {
    return fail(NPU_E_ASYNC, "another rank gave up.");
  }
  if (known->channels->joined() >= known->size) {
    return NPU_OK;
  }
  return Clock::now() < known->until
             ? npu_status{NPU_NOT_READY}
             : fail(NPU_E_TIMEOUT, "some ranks did not come.");
}

npu_status end(npu_comm comm, bool at_once) {
  const CommPtr known = find(comm);
  if (known == nullptr) {
    return gone();
  }
  if (at_once && !wrong("abort")) {
    known->given_up = true;
    known->channels->break_all();
    const std::lock_guard lock(known->mutex);
    known->changed.notify_all();
  } else if (!at_once) {
    std::unique_lock lock(known->mutex);
    known->changed.wait(lock, [&] { return known->done == known->queued; });
  }
  forget(known->id);
  const std::lock_guard lock(all_mutex);
  all.erase(reinterpret_cast<uintptr_t>(comm));
  return NPU_OK;
}

// clang-format off
const npu_comm_table table = {
    sizeof(table), NPU_COMM_VERSION, sizeof(Id), 0, kReduced, kReductions,
    make_id, init, state,
    [](npu_comm comm) { return end(comm, true); },
    [](npu_comm comm) { return end(comm, false); },
    nullptr, group_begin, group_end,
    Noted<all_reduce>::call, Noted<reduce>::call, Noted<broadcast>::call,
    Noted<all_gather>::call, Noted<reduce_scatter>::call,
    Noted<all_to_all>::call, Noted<send>::call, Noted<recv>::call};
// clang-format on

}  // namespace

const void* comm_interface(const char* name) {
  const char* const asked = std::getenv("NPU_DISCRETE_COMM");
  const bool offered = asked != nullptr && std::strcmp(asked, "1") == 0;
  return offered && std::strcmp(name, NPU_COMM_INTERFACE) == 0 ? &table
                                                               : nullptr;
}

}  // namespace npu::discrete
