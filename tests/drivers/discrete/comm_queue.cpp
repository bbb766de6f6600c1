// SPDX-License-Identifier: Apache-2.0
// Communicators of the discrete driver, and how their work gets to streams.
#include "comm_queue.h"

#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "comm_values.h"

namespace npu::discrete {
namespace {

auto& all_mutex = *new std::mutex;
auto& all = *new std::map<uintptr_t, CommPtr>;  // threads outlive main

// With NPU_DISCRETE_COMM_WRONG=fails, under all_mutex.
auto& failing = *new std::set<npu_stream>;   // an operation of theirs fails
auto& reporting = *new std::set<npu_event>;  // the event behind it
const npu_event_table* events = nullptr;     // those of the driver

npu_status record_and_note(npu_event event, npu_stream stream) {
  const npu_status status = events->record(event, stream);
  const std::lock_guard lock(all_mutex);
  if (failing.erase(stream) != 0) {
    reporting.insert(event);
  }
  return status;
}

npu_status query_and_report(npu_event event) {
  const npu_status status = events->query(event);
  const std::lock_guard lock(all_mutex);
  return status == NPU_OK && reporting.erase(event) != 0
             ? fail(NPU_E_ASYNC, "comm/1: the link is broken.")
             : status;
}

struct Waiting {
  CommPtr comm;
  npu_stream stream;
  std::vector<Item> pieces;
};
thread_local int depth = 0;
thread_local std::vector<Waiting> waiting;  // of the group that is open
thread_local npu_status refused = NPU_OK;   // the first error in that group

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
  if (turn == 2 && wrong("fails")) {
    const std::lock_guard lock(all_mutex);
    failing.insert(item.stream);
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

}  // namespace

npu_comm keep(const CommPtr& comm) {
  static uintptr_t next = 0;
  const std::lock_guard lock(all_mutex);
  all[++next] = comm;
  return reinterpret_cast<npu_comm>(next);
}

CommPtr find(npu_comm comm) {
  const std::lock_guard lock(all_mutex);
  const auto found = all.find(reinterpret_cast<uintptr_t>(comm));
  return found == all.end() ? nullptr : found->second;
}

void drop(npu_comm comm) {
  const std::lock_guard lock(all_mutex);
  all.erase(reinterpret_cast<uintptr_t>(comm));
}

const npu_event_table* reporting_events(const npu_event_table* given) {
  if (!wrong("fails")) {
    return given;
  }
  static npu_event_table made = *given;
  events = given;
  made.record = record_and_note;
  made.query = query_and_report;
  return &made;
}

npu_status note(npu_status status) {
  refused = depth > 0 && refused == NPU_OK ? status : refused;
  return status;
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

}  // namespace npu::discrete
