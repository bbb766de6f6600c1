// SPDX-License-Identifier: Apache-2.0
// comm/1 of the cuda driver on a stand-in of NCCL: what NCCL is asked for, and
// what goes wrong. The kit judges results on the same stand-in (cuda.kit).
#include <chrono>
#include <thread>

#include "stand_in_driver.h"

namespace stand_in_test {
namespace {

const npu_comm_table& table() {
  static const auto* const found = static_cast<const npu_comm_table*>(
      driver().get_interface(NPU_COMM_INTERFACE));
  EXPECT_NE(found, nullptr) << log_text;
  return *found;
}

std::string calls() {
  using Function = const char* (*)();
  static const auto asked = [] {
    void* const nccl = dlopen(NPU_STAND_INS "/libnccl.so.2", RTLD_NOW);
    return reinterpret_cast<Function>(dlsym(nccl, "stand_in_nccl_calls"));
  }();
  return asked();
}

npu_comm_config config_of(std::uint32_t limit) {
  npu_comm_config config{};
  config.size = sizeof(config);
  config.timeout_ms = limit;
  config.name = "testers";
  return config;
}

npu_status await(npu_comm comm) {
  npu_status status = NPU_NOT_READY;
  while ((status = table().state(comm)) == NPU_NOT_READY) {
    std::this_thread::yield();
  }
  return status;
}

// Ranks 0 to n-1 on devices of this process.
class Group {
 public:
  explicit Group(int n, std::uint32_t limit = 5000) {
    std::vector<char> id(table().id_bytes);
    EXPECT_EQ(table().make_id(id.data()), NPU_OK) << error_text;
    const npu_comm_config config = config_of(limit);
    comms.resize(static_cast<std::size_t>(n));
    EXPECT_EQ(table().group_begin(), NPU_OK);
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(
          table().init(
              id.data(), r, n, r, &config, &comms[static_cast<std::size_t>(r)]),
          NPU_OK)
          << error_text;
    }
    EXPECT_EQ(table().group_end(), NPU_OK) << error_text;
    for (int r = 0; r < n; ++r) {
      EXPECT_EQ(await(comm(r)), NPU_OK) << error_text;
      npu_stream stream = nullptr;
      EXPECT_EQ(driver().stream->create(r, 0, &stream), NPU_OK);
      streams.push_back(stream);
      void* memory = nullptr;
      EXPECT_EQ(driver().memory->alloc(r, 4096, &memory), NPU_OK);
      memories.push_back(memory);
    }
    calls();
  }
  ~Group() {
    for (npu_comm each : comms) {
      if (each != nullptr) {
        EXPECT_EQ(table().destroy(each), NPU_OK) << error_text;
      }
    }
    for (std::size_t r = 0; r < streams.size(); ++r) {
      EXPECT_EQ(driver().stream->destroy(streams[r]), NPU_OK);
      EXPECT_EQ(
          driver().memory->free(static_cast<npu_device>(r), memories[r]),
          NPU_OK);
    }
  }
  npu_comm comm(int rank) const {
    return comms[static_cast<std::size_t>(rank)];
  }
  npu_comm take(int rank) {
    return std::exchange(comms[static_cast<std::size_t>(rank)], nullptr);
  }
  npu_status all_reduce(
      int rank,
      npu_dtype dtype = NPU_F32,
      npu_reduction reduction = NPU_REDUCTION_SUM) {
    const auto r = static_cast<std::size_t>(rank);
    return table().all_reduce(
        comms[r], memories[r], memories[r], 4, dtype, reduction, streams[r]);
  }

  std::vector<npu_comm> comms;
  std::vector<npu_stream> streams;
  std::vector<void*> memories;
};

TEST(cuda_comm, NcclIsAskedForTheSameTypesAndReductions) {
  Group one(1);
  const struct {
    npu_dtype dtype;
    const char* name;
  } kTypes[] = {
      {NPU_U8, "uint8"},
      {NPU_I8, "int8"},
      {NPU_I32, "int32"},
      {NPU_U32, "uint32"},
      {NPU_I64, "int64"},
      {NPU_U64, "uint64"},
      {NPU_F16, "float16"},
      {NPU_BF16, "bfloat16"},
      {NPU_F32, "float32"},
      {NPU_F64, "float64"}};
  for (const auto& type : kTypes) {
    EXPECT_EQ(one.all_reduce(0, type.dtype), NPU_OK) << error_text;
    EXPECT_EQ(calls(), std::string("AllReduce 4 ") + type.name + " sum\n");
    const std::uint64_t all = table().dtypes | table().dtypes_per_hop;
    EXPECT_NE(all & NPU_DTYPE_BIT(type.dtype), 0u) << type.name;
  }
  const struct {
    npu_reduction reduction;
    const char* name;
  } kReductions[] = {
      {NPU_REDUCTION_SUM, "sum"},
      {NPU_REDUCTION_PRODUCT, "prod"},
      {NPU_REDUCTION_MIN, "min"},
      {NPU_REDUCTION_MAX, "max"},
      {NPU_REDUCTION_AVERAGE, "avg"}};
  for (const auto& op : kReductions) {
    EXPECT_EQ(one.all_reduce(0, NPU_F32, op.reduction), NPU_OK) << error_text;
    EXPECT_EQ(calls(), std::string("AllReduce 4 float32 ") + op.name + "\n");
  }
}

TEST(cuda_comm, WhatNcclCannotReduceIsDeclinedBeforeItIsAsked) {
  Group one(1);
  const std::pair<npu_dtype, npu_reduction> kRefused[] = {
      {NPU_C64, NPU_REDUCTION_SUM},
      {NPU_I16, NPU_REDUCTION_SUM},
      {NPU_I32, NPU_REDUCTION_AND},
      {NPU_I32, NPU_REDUCTION_AVERAGE}};
  for (const auto& [dtype, reduction] : kRefused) {
    EXPECT_EQ(one.all_reduce(0, dtype, reduction), NPU_E_UNSUPPORTED);
    EXPECT_TRUE(is_sentence(error_text)) << error_text;
  }
  EXPECT_EQ(calls(), "");
}

// Messages of odd bytes: what only moves takes every dtype.
TEST(cuda_comm, MovesAreBytes) {
  Group two(2);
  EXPECT_EQ(table().group_begin(), NPU_OK);
  for (int r = 0; r < 2; ++r) {
    const auto at = static_cast<std::size_t>(r);
    EXPECT_EQ(
        table().broadcast(
            two.comm(r),
            two.memories[at],
            two.memories[at],
            3,
            NPU_C128,
            1,
            two.streams[at]),
        NPU_OK);
  }
  EXPECT_EQ(calls(), "") << "NCCL is asked before the group ends";
  EXPECT_EQ(table().group_end(), NPU_OK) << error_text;
  EXPECT_EQ(calls(), "Broadcast 48 int8 1\nBroadcast 48 int8 1\n");
}

TEST(cuda_comm, GroupsNest) {
  Group two(2);
  EXPECT_EQ(table().group_begin(), NPU_OK);
  EXPECT_EQ(table().group_begin(), NPU_OK);
  EXPECT_EQ(two.all_reduce(0), NPU_OK);
  EXPECT_EQ(table().group_end(), NPU_OK);
  EXPECT_EQ(calls(), "");
  EXPECT_EQ(two.all_reduce(1), NPU_OK);
  EXPECT_EQ(table().group_end(), NPU_OK);
  EXPECT_EQ(calls(), "AllReduce 4 float32 sum\nAllReduce 4 float32 sum\n");
  EXPECT_EQ(table().group_end(), NPU_E_INVALID);
  EXPECT_TRUE(is_sentence(error_text)) << error_text;
}

TEST(cuda_comm, AGroupWithARefusedCallQueuesNothing) {
  Group two(2);
  EXPECT_EQ(table().group_begin(), NPU_OK);
  EXPECT_EQ(two.all_reduce(0), NPU_OK);
  EXPECT_EQ(two.all_reduce(1, NPU_C64), NPU_E_UNSUPPORTED);
  const std::string said = error_text;
  error_text.clear();
  EXPECT_EQ(table().group_end(), NPU_E_UNSUPPORTED);
  EXPECT_EQ(error_text, said);
  EXPECT_EQ(calls(), "");
  // The next group is a new one.
  EXPECT_EQ(table().group_begin(), NPU_OK);
  EXPECT_EQ(two.all_reduce(0), NPU_OK);
  EXPECT_EQ(two.all_reduce(1), NPU_OK);
  EXPECT_EQ(table().group_end(), NPU_OK) << error_text;
}

TEST(cuda_comm, ARankThatNeverComesIsATimeoutThatNamesGroupAndRank) {
  std::vector<char> id(table().id_bytes);
  ASSERT_EQ(table().make_id(id.data()), NPU_OK);
  const npu_comm_config config = config_of(60);
  npu_comm comm = nullptr;
  ASSERT_EQ(table().init(id.data(), 1, 3, 0, &config, &comm), NPU_OK);
  EXPECT_EQ(table().state(comm), NPU_NOT_READY);
  EXPECT_EQ(await(comm), NPU_E_TIMEOUT);
  EXPECT_TRUE(is_sentence(error_text)) << error_text;
  EXPECT_TRUE(has(error_text, "rank 1 of 3 of group 'testers'")) << error_text;
  EXPECT_TRUE(has(error_text, "60 ms")) << error_text;
  EXPECT_EQ(table().abort(comm), NPU_OK);
  EXPECT_EQ(table().state(comm), NPU_E_INVALID);
}

TEST(cuda_comm, TwoRanksOnOneGpuAreToldWhatNcclSays) {
  std::vector<char> id(table().id_bytes);
  ASSERT_EQ(table().make_id(id.data()), NPU_OK);
  const npu_comm_config config = config_of(5000);
  npu_comm comms[2] = {};
  ASSERT_EQ(table().group_begin(), NPU_OK);
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(table().init(id.data(), r, 2, 0, &config, &comms[r]), NPU_OK);
  }
  ASSERT_EQ(table().group_end(), NPU_OK);
  for (npu_comm comm : comms) {
    EXPECT_EQ(await(comm), NPU_E_INVALID);
    EXPECT_TRUE(has(error_text, "Duplicate GPU detected")) << error_text;
    EXPECT_TRUE(is_sentence(error_text)) << error_text;
    EXPECT_EQ(table().abort(comm), NPU_OK);
  }
}

TEST(cuda_comm, AFailureToJoinIsReportedAtOnce) {
  std::vector<char> id(table().id_bytes);
  ASSERT_EQ(table().make_id(id.data()), NPU_OK);
  const npu_comm_config config = config_of(60'000);
  npu_comm comms[2] = {};
  setenv("STAND_IN_NCCL_FAILS", "1", 1);
  ASSERT_EQ(table().group_begin(), NPU_OK);
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(table().init(id.data(), r, 2, r, &config, &comms[r]), NPU_OK);
  }
  EXPECT_EQ(table().group_end(), NPU_E_INTERNAL);
  npu_comm none = nullptr;
  EXPECT_EQ(table().init(id.data(), 0, 2, 0, &config, &none), NPU_E_INTERNAL);
  EXPECT_EQ(none, nullptr);
  unsetenv("STAND_IN_NCCL_FAILS");
  for (npu_comm comm : comms) {
    error_text.clear();
    EXPECT_EQ(table().state(comm), NPU_E_INTERNAL);
    EXPECT_TRUE(has(error_text, "Cuda failure 'out of memory'")) << error_text;
    EXPECT_TRUE(is_sentence(error_text)) << error_text;
    EXPECT_EQ(table().destroy(comm), NPU_OK);
  }
}

TEST(cuda_comm, ACommunicatorThatIsNotReadyTakesNoCalls) {
  std::vector<char> id(table().id_bytes);
  ASSERT_EQ(table().make_id(id.data()), NPU_OK);
  const npu_comm_config config = config_of(5000);
  npu_comm comm = nullptr;
  ASSERT_EQ(table().init(id.data(), 0, 2, 0, &config, &comm), NPU_OK);
  npu_stream stream = nullptr;
  ASSERT_EQ(driver().stream->create(0, 0, &stream), NPU_OK);
  char* memory = nullptr;
  ASSERT_EQ(
      driver().memory->alloc(0, 64, reinterpret_cast<void**>(&memory)), NPU_OK);
  EXPECT_EQ(
      table().all_reduce(
          comm, memory, memory, 1, NPU_F32, NPU_REDUCTION_SUM, stream),
      NPU_E_INVALID);
  EXPECT_TRUE(has(error_text, "before its state is NPU_OK")) << error_text;
  EXPECT_EQ(table().abort(comm), NPU_OK);
  EXPECT_EQ(driver().stream->destroy(stream), NPU_OK);
  EXPECT_EQ(driver().memory->free(0, memory), NPU_OK);
}

TEST(cuda_comm, AnAbortEndsACallThatAnotherThreadIsInside) {
  Group two(2, 60'000);
  // Rank 1 never comes: split waits for it.
  npu_status ended = NPU_OK;
  std::string said;
  std::thread inside([&] {
    npu_comm part = nullptr;
    const npu_comm_config config = config_of(60'000);
    ended = table().split(two.comm(0), 0, 0, &config, &part);
    said = error_text;
    EXPECT_EQ(part, nullptr);
  });
  while (!has(calls(), "Split")) {
    std::this_thread::yield();
  }
  EXPECT_EQ(table().abort(two.take(0)), NPU_OK);
  inside.join();
  EXPECT_EQ(ended, NPU_E_ASYNC);
  EXPECT_TRUE(has(said, "was aborted")) << said;
}

TEST(cuda_comm, APartOfAGroupKnowsItsRanks) {
  Group three(3);
  npu_comm parts[3] = {};
  const npu_comm_config config = config_of(5000);
  ASSERT_EQ(table().group_begin(), NPU_OK);
  for (int r = 0; r < 3; ++r) {
    ASSERT_EQ(
        table().split(three.comm(r), r == 1 ? 4 : 5, -r, &config, &parts[r]),
        NPU_OK);
  }
  ASSERT_EQ(table().group_end(), NPU_OK) << error_text;
  for (npu_comm part : parts) {
    ASSERT_EQ(await(part), NPU_OK) << error_text;
  }
  // Color 5 has two ranks: there is no root 2.
  EXPECT_EQ(
      table().broadcast(
          parts[0],
          three.memories[0],
          three.memories[0],
          4,
          NPU_U8,
          2,
          three.streams[0]),
      NPU_E_INVALID);
  EXPECT_TRUE(has(error_text, "rank 1 of 2")) << error_text;
  for (npu_comm part : parts) {
    EXPECT_EQ(table().destroy(part), NPU_OK) << error_text;
  }
}

TEST(cuda_comm, AStreamOfAnotherDeviceIsRefused) {
  Group two(2);
  EXPECT_EQ(
      table().all_reduce(
          two.comm(0),
          two.memories[0],
          two.memories[0],
          4,
          NPU_F32,
          NPU_REDUCTION_SUM,
          two.streams[1]),
      NPU_E_INVALID);
  EXPECT_TRUE(has(error_text, "another device")) << error_text;
}

// In a process of its own, for the library is opened once.
TEST(cuda_comm_DeathTest, WithoutNcclThereAreNoCommunicatorsAndASentence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto without = [](const char* variable, const char* value) {
    setenv(variable, value, 1);
    const bool none = driver().get_interface(NPU_COMM_INTERFACE) == nullptr;
    std::fprintf(stderr, "%d %s", none, log_text.c_str());
    std::exit(0);
  };
  EXPECT_EXIT(
      without("NPU_CUDA_LIBRARIES", "/no/such/folder"),
      ::testing::ExitedWithCode(0),
      "1 npu: cuda driver: no communicators: libnccl.so.2 is not to be found: "
      "pip install .*\\. Collectives go through the host\\.");
  EXPECT_EXIT(
      without("STAND_IN_NCCL_VERSION", "30102"),
      ::testing::ExitedWithCode(0),
      "1 npu: cuda driver: no communicators: libnccl.so.2 is NCCL 3.1.2, and "
      "the driver knows 2.18 and later versions of 2: pip install");
  EXPECT_EXIT(
      without("STAND_IN_NCCL_VERSION", "2804"),
      ::testing::ExitedWithCode(0),
      "libnccl.so.2 is NCCL 2.8.4, ");
}

}  // namespace
}  // namespace stand_in_test
