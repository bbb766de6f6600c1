// SPDX-License-Identifier: Apache-2.0
// What the tests of comm/1 share: a rank per device in this process, and values
// of every dtype as doubles.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kit.h"
#include "npu/comm.h"

namespace npu::kit {

// Null when the driver has none.
const npu_comm_table* comm_table();
#define NPU_NEEDS_COMM()         \
  if (!npu::kit::comm_table()) { \
    NPU_NOT_DECLARED("comm/1");  \
  }
#define NPU_NEEDS_RANKS(n)                                            \
  NPU_NEEDS_COMM();                                                   \
  if (npu::kit::device_count() < (n)) {                               \
    GTEST_SKIP() << "needs " << (n) << " devices, one for each rank"; \
  }

// One communicator and one stream per device, at most four.
class Ranks {
 public:
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int size() const {
    return static_cast<int>(comms_.size());
  }
  bool ready() const {
    return ready_;
  }
  npu_comm comm(int rank) const {
    return comms_[static_cast<std::size_t>(rank)];
  }
  npu_stream stream(int rank) const {
    return streams_[static_cast<std::size_t>(rank)]->get();
  }
  // Calls it for each rank, as one; the status of the last group_end.
  template <class Function>
  npu_status all(Function&& call) {
    NPU_EXPECT_OK(comm_table()->group_begin());
    npu_status refused = NPU_OK;
    for (int rank = 0; rank < size(); ++rank) {
      const npu_status status = call(rank);
      refused = refused ? refused : status;
    }
    const npu_status ended = comm_table()->group_end();
    return refused ? refused : ended;
  }
  void synchronize();
  // It is gone: the destructor leaves it alone.
  npu_comm take(int rank);

 private:
  std::vector<npu_comm> comms_;
  std::vector<std::unique_ptr<Stream>> streams_;
  bool ready_ = false;
};

// Memory of each rank.
struct Memory {
  std::vector<std::unique_ptr<Buffer>> of;

  Memory(int ranks, std::uint64_t bytes) {
    for (int rank = 0; rank < ranks; ++rank) {
      of.push_back(std::make_unique<Buffer>(bytes, rank));
    }
  }
  void put(int rank, const Bytes& content) {
    at(rank).put(content.data(), content.size());
  }
  Buffer& at(int rank) {
    return *of[static_cast<std::size_t>(rank)];
  }
  char* data(int rank) {
    return static_cast<char*>(at(rank).data());
  }
};

// A new group's ranks, from one id. The status of init, or of state once it is
// no longer NPU_NOT_READY.
npu_status join(const void* id, int n_ranks, std::vector<npu_comm>& out);

// Small whole numbers, which every dtype holds.
std::vector<double> numbers(int rank, std::uint64_t count);
Bytes as_bytes(const std::vector<double>& values, npu_dtype dtype);
std::vector<double> as_doubles(const Bytes& bytes, npu_dtype dtype);
// By the definition, of what each rank gave for one element.
double reduced(
    npu_reduction reduction, npu_dtype dtype, const std::vector<double>& terms);
// What all ranks' numbers give, as `dtype` holds it.
std::vector<double> all_reduced(
    npu_reduction reduction, npu_dtype dtype, int ranks, std::uint64_t count);
bool is_defined(npu_reduction reduction, npu_dtype dtype);

}  // namespace npu::kit
