// SPDX-License-Identifier: Apache-2.0
// comm/1 of the discrete driver, offered with NPU_DISCRETE_COMM=1: collectives
// as messages between worker threads, through memory that the ranks share.
//
//   NPU_DISCRETE_COMM_WITHOUT="broadcast reduce"   it declines these
//   NPU_DISCRETE_COMM_HALVES=1   it sums bfloat16 too, rounded at every hop
//   NPU_DISCRETE_COMM_WRONG=sum|early|abort|hop    for the kit: drops a term,
//                              does not wait for the stream, cannot be aborted,
//                              says that what is rounded once is rounded per
//                              hop
//   NPU_DISCRETE_COMM_WRONG=fails   the third operation fails on the device,
//                              which events and streams report
#include "npu/comm.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "comm_queue.h"
#include "comm_values.h"
#include "npu/validate.h"
#include "optional.h"

namespace npu::discrete {
namespace {

npu_status gone() {
  return fail(NPU_E_INVALID, "no such communicator.");
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

// all_reduce, and reduce_scatter where every rank keeps its part.
template <bool kScatters>
npu_status reduce_for_all(
    npu_comm comm,
    const void* send,
    void* recv,
    uint64_t count,
    npu_dtype dtype,
    npu_reduction reduction,
    npu_stream stream) {
  NPU_TRY(check(send, recv));
  const CommPtr known = find(comm);
  const char* const name = kScatters ? "reduce_scatter" : "all_reduce";
  return queue_reduction(
      {name, comm, stream, count, dtype},
      reduction,
      send,
      recv,
      0,
      known ? known->size : 0,
      kScatters);
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
  *out = keep(made);
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
  drop(comm);
  return NPU_OK;
}

// clang-format off
const npu_comm_table table = {
    sizeof(table), NPU_COMM_VERSION, sizeof(Id), 0, kReduced, kReductions,
    make_id, init, state,
    [](npu_comm comm) { return end(comm, true); },
    [](npu_comm comm) { return end(comm, false); },
    nullptr, group_begin, group_end,
    Noted<reduce_for_all<false>>::call, Noted<reduce>::call, Noted<broadcast>::call,
    Noted<all_gather>::call, Noted<reduce_for_all<true>>::call,
    Noted<all_to_all>::call, Noted<send>::call, Noted<recv>::call, 0};
// clang-format on

}  // namespace

const void* comm_interface(const char* name) {
  const char* const asked = std::getenv("NPU_DISCRETE_COMM");
  const bool offered = asked != nullptr && std::strcmp(asked, "1") == 0;
  static npu_comm_table given = table;
  given.dtypes_per_hop = wrong("hop") ? table.dtypes : dtypes_per_hop();
  return offered && std::strcmp(name, NPU_COMM_INTERFACE) == 0 ? &given
                                                               : nullptr;
}

}  // namespace npu::discrete
