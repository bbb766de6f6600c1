// SPDX-License-Identifier: Apache-2.0
// Interface comm/1 on NCCL: collectives and messages.
#include "comm.h"

#include <utility>

#include "communicator.h"
#include "npu/validate.h"

namespace npu::cuda {
namespace {

// Halves are rounded at every hop of NCCL's rings and trees.
constexpr std::uint64_t kPerHop =
    NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16);

int reduced_type(npu_dtype dtype) {
  switch (dtype) {
    case NPU_U8:
      return nccl::kUint8;
    case NPU_I8:
      return nccl::kInt8;
    case NPU_I32:
      return nccl::kInt32;
    case NPU_U32:
      return nccl::kUint32;
    case NPU_I64:
      return nccl::kInt64;
    case NPU_U64:
      return nccl::kUint64;
    case NPU_F16:
      return nccl::kFloat16;
    case NPU_BF16:
      return nccl::kBfloat16;
    case NPU_F32:
      return nccl::kFloat32;
    case NPU_F64:
      return nccl::kFloat64;
    default:
      return -1;
  }
}

constexpr std::uint64_t kIntegers =
    NPU_DTYPE_BIT(NPU_U8) | NPU_DTYPE_BIT(NPU_I8) | NPU_DTYPE_BIT(NPU_I32) |
    NPU_DTYPE_BIT(NPU_U32) | NPU_DTYPE_BIT(NPU_I64) | NPU_DTYPE_BIT(NPU_U64);
constexpr std::uint64_t kReduced =
    kIntegers | NPU_DTYPE_BIT(NPU_F32) | NPU_DTYPE_BIT(NPU_F64);

int reduction_of(npu_reduction reduction) {
  switch (reduction) {
    case NPU_REDUCTION_SUM:
      return nccl::kSum;
    case NPU_REDUCTION_PRODUCT:
      return nccl::kProduct;
    case NPU_REDUCTION_MIN:
      return nccl::kMin;
    case NPU_REDUCTION_MAX:
      return nccl::kMax;
    case NPU_REDUCTION_AVERAGE:
      return nccl::kAverage;
    default:
      return -1;
  }
}

constexpr std::uint64_t kReductions =
    1u << NPU_REDUCTION_SUM | 1u << NPU_REDUCTION_PRODUCT |
    1u << NPU_REDUCTION_MIN | 1u << NPU_REDUCTION_MAX |
    1u << NPU_REDUCTION_AVERAGE;

struct Reduced {
  int type = -1;
  int reduction = -1;
};

npu_status check_reduction(
    npu_dtype dtype, npu_reduction reduction, Reduced& out) {
  out = {reduced_type(dtype), reduction_of(reduction)};
  // NCCL's averages of integers are rounded differently from version to
  // version.
  const bool known =
      out.type >= 0 && out.reduction >= 0 &&
      !(out.reduction == nccl::kAverage && (kIntegers & NPU_DTYPE_BIT(dtype)));
  return known ? NPU_OK
               : fail(
                     NPU_E_UNSUPPORTED,
                     "npu: cuda driver: NCCL has no reduction %u of %s.",
                     reduction,
                     dtype < NPU_DTYPE_COUNT ? npu_dtype_name(dtype)
                                             : "an unknown dtype");
}

struct Call {
  const char* what;
  npu_comm comm;
  npu_stream stream;
  std::uint64_t count;
  npu_dtype dtype;
};

npu_status check_rank(const Comm& comm, std::int32_t rank) {
  const std::string why =
      "there is no rank " + std::to_string(rank) + " in the group";
  return rank >= 0 && rank < comm.size
             ? NPU_OK
             : failed(comm, NPU_E_INVALID, why.c_str());
}

npu_status check_call(const Call& call, const Stream& on, CommPtr& comm) {
  comm = find(call.comm);
  if (comm == nullptr) {
    return no_comm();
  }
  {
    const std::lock_guard lock(comm->mutex);
    const npu_status status = comm->ready ? npu_status{NPU_OK} : refresh(*comm);
    if (status != NPU_OK) {
      return status != NPU_NOT_READY
                 ? status
                 : failed(
                       *comm,
                       NPU_E_INVALID,
                       "it is used before its state is NPU_OK");
    }
  }
  if (on.device != comm->device) {
    return failed(*comm, NPU_E_INVALID, "the stream is one of another device");
  }
  return call.count > 0 && call.dtype != NPU_ABSENT &&
                 call.dtype < NPU_DTYPE_COUNT
             ? NPU_OK
             : failed(
                   *comm,
                   NPU_E_INVALID,
                   "nothing is to be sent, or elements of an unknown dtype");
}

template <class Give>
npu_status queue_job(const char* what, const CommPtr& comm, Give&& give) {
  return hand_over(
      {what, comm, std::forward<Give>(give), /*makes=*/false, nullptr});
}

// Checks, then queues what `body(comm, stream)` returns; it may refuse first.
template <class Body>
npu_status queue_call(const Call& call, bool arguments_given, Body&& body) {
  return refuse_group(
      queue(call.stream, arguments_given, [&](Stream& on) -> npu_status {
        CommPtr comm;
        if (npu_status status = check_call(call, on, comm)) {
          return status;
        }
        return body(comm, on.handle);
      }));
}

npu_status all_reduce(
    npu_comm comm,
    const void* send,
    void* recv,
    std::uint64_t count,
    npu_dtype dtype,
    npu_reduction reduction,
    npu_stream stream) {
  return queue_call(
      {"all_reduce", comm, stream, count, dtype},
      given(send, recv),
      [&](const CommPtr& to, cudaStream_t on) -> npu_status {
        Reduced as;
        if (npu_status status = check_reduction(dtype, reduction, as)) {
          return status;
        }
        return queue_job("all_reduce", to, [=](const nccl::Api& api, Comm& c) {
          return api.all_reduce(
              send, recv, count, as.type, as.reduction, c.handle, on);
        });
      });
}

npu_status reduce(
    npu_comm comm,
    const void* send,
    void* recv,
    std::uint64_t count,
    npu_dtype dtype,
    npu_reduction reduction,
    std::int32_t root,
    npu_stream stream) {
  return queue_call(
      {"reduce", comm, stream, count, dtype},
      given(send),
      [&](const CommPtr& to, cudaStream_t on) -> npu_status {
        Reduced as;
        npu_status status = check_rank(*to, root);
        status = status ? status : check_reduction(dtype, reduction, as);
        if (status == NPU_OK && to->rank == root && recv == nullptr) {
          status = null_argument();
        }
        return status ? status
                      : queue_job(
                            "reduce", to, [=](const nccl::Api& api, Comm& c) {
                              return api.reduce(
                                  send,
                                  recv,
                                  count,
                                  as.type,
                                  as.reduction,
                                  root,
                                  c.handle,
                                  on);
                            });
      });
}

// What only moves is bytes.
npu_status broadcast(
    npu_comm comm,
    const void* send,
    void* recv,
    std::uint64_t count,
    npu_dtype dtype,
    std::int32_t root,
    npu_stream stream) {
  return queue_call(
      {"broadcast", comm, stream, count, dtype},
      given(recv),
      [&](const CommPtr& to, cudaStream_t on) -> npu_status {
        npu_status status = check_rank(*to, root);
        if (status == NPU_OK && to->rank == root && send == nullptr) {
          status = null_argument();
        }
        const std::uint64_t bytes = count * npu_dtype_bytes(dtype);
        return status
                   ? status
                   : queue_job(
                         "broadcast", to, [=](const nccl::Api& api, Comm& c) {
                           return api.broadcast(
                               send,
                               recv,
                               bytes,
                               nccl::kInt8,
                               root,
                               c.handle,
                               on);
                         });
      });
}

npu_status all_gather(
    npu_comm comm,
    const void* send,
    void* recv,
    std::uint64_t count,
    npu_dtype dtype,
    npu_stream stream) {
  return queue_call(
      {"all_gather", comm, stream, count, dtype},
      given(send, recv),
      [&](const CommPtr& to, cudaStream_t on) {
        const std::uint64_t bytes = count * npu_dtype_bytes(dtype);
        return queue_job("all_gather", to, [=](const nccl::Api& api, Comm& c) {
          return api.all_gather(send, recv, bytes, nccl::kInt8, c.handle, on);
        });
      });
}

npu_status reduce_scatter(
    npu_comm comm,
    const void* send,
    void* recv,
    std::uint64_t count,
    npu_dtype dtype,
    npu_reduction reduction,
    npu_stream stream) {
  return queue_call(
      {"reduce_scatter", comm, stream, count, dtype},
      given(send, recv),
      [&](const CommPtr& to, cudaStream_t on) -> npu_status {
        Reduced as;
        if (npu_status status = check_reduction(dtype, reduction, as)) {
          return status;
        }
        return queue_job(
            "reduce_scatter", to, [=](const nccl::Api& api, Comm& c) {
              return api.reduce_scatter(
                  send, recv, count, as.type, as.reduction, c.handle, on);
            });
      });
}

// A message for each rank, this one included; NCCL has no counts that differ.
npu_status all_to_all(
    npu_comm comm,
    const void* send,
    const std::uint64_t* send_counts,
    const std::uint64_t* send_offsets,
    void* recv,
    const std::uint64_t* recv_counts,
    const std::uint64_t* recv_offsets,
    npu_dtype dtype,
    npu_stream stream) {
  return queue_call(
      {"all_to_all", comm, stream, 1, dtype},
      given(send_counts, send_offsets, recv_counts, recv_offsets),
      [&](const CommPtr& to, cudaStream_t on) {
        struct Part {
          const char* from;
          char* to;
          std::uint64_t sent;
          std::uint64_t received;
        };
        const std::uint64_t one = npu_dtype_bytes(dtype);
        std::vector<Part> parts;
        for (int r = 0; r < to->size; ++r) {
          parts.push_back(
              {static_cast<const char*>(send) + send_offsets[r] * one,
               static_cast<char*>(recv) + recv_offsets[r] * one,
               send_counts[r] * one,
               recv_counts[r] * one});
        }
        return queue_job(
            "all_to_all",
            to,
            [parts = std::move(parts), on](const nccl::Api& api, Comm& c) {
              nccl::Result result = nccl::kSuccess;
              for (int r = 0; r < c.size; ++r) {
                const Part& part = parts[static_cast<std::size_t>(r)];
                if (is_fine(result) && part.sent > 0) {
                  result = api.send(
                      part.from, part.sent, nccl::kInt8, r, c.handle, on);
                }
                if (is_fine(result) && part.received > 0) {
                  result = api.recv(
                      part.to, part.received, nccl::kInt8, r, c.handle, on);
                }
              }
              return result;
            });
      });
}

npu_status check_peer(const Comm& comm, std::int32_t peer) {
  const npu_status status = check_rank(comm, peer);
  return status ? status
         : peer == comm.rank
             ? failed(
                   comm,
                   NPU_E_INVALID,
                   "a message goes to another rank, not to this "
                   "one")
             : NPU_OK;
}

npu_status send(
    npu_comm comm,
    const void* data,
    std::uint64_t count,
    npu_dtype dtype,
    std::int32_t peer,
    npu_stream stream) {
  return queue_call(
      {"send", comm, stream, count, dtype},
      given(data),
      [&](const CommPtr& to, cudaStream_t on) -> npu_status {
        if (npu_status status = check_peer(*to, peer)) {
          return status;
        }
        const std::uint64_t bytes = count * npu_dtype_bytes(dtype);
        return queue_job("send", to, [=](const nccl::Api& api, Comm& c) {
          return api.send(data, bytes, nccl::kInt8, peer, c.handle, on);
        });
      });
}

npu_status recv(
    npu_comm comm,
    void* data,
    std::uint64_t count,
    npu_dtype dtype,
    std::int32_t peer,
    npu_stream stream) {
  return queue_call(
      {"recv", comm, stream, count, dtype},
      given(data),
      [&](const CommPtr& to, cudaStream_t on) -> npu_status {
        if (npu_status status = check_peer(*to, peer)) {
          return status;
        }
        const std::uint64_t bytes = count * npu_dtype_bytes(dtype);
        return queue_job("recv", to, [=](const nccl::Api& api, Comm& c) {
          return api.recv(data, bytes, nccl::kInt8, peer, c.handle, on);
        });
      });
}

constexpr npu_comm_table kTable = {
    .size = sizeof(npu_comm_table),
    .version = NPU_COMM_VERSION,
    .id_bytes = nccl::kIdBytes,
    .reserved = 0,
    .dtypes = kReduced,
    .reductions = kReductions,
    .make_id = make_id,
    .init = init,
    .state = comm_state,
    .abort = abort_comm,
    .destroy = destroy_comm,
    .split = split,
    .group_begin = group_begin,
    .group_end = group_end,
    .all_reduce = all_reduce,
    .reduce = reduce,
    .broadcast = broadcast,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_to_all = all_to_all,
    .send = send,
    .recv = recv,
    .dtypes_per_hop = kPerHop,
};

}  // namespace

const npu_comm_table* comm_interface() noexcept {
  if (nccl::api() != nullptr) {
    return &kTable;
  }
  static const bool told = [] {
    warn(
        "no communicators: " + nccl::why() +
        ". Collectives go through the host.");
    return true;
  }();
  static_cast<void>(told);
  return nullptr;
}

}  // namespace npu::cuda
