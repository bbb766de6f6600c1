// SPDX-License-Identifier: Apache-2.0
// Group comm: what comm/1 promises beside its results. Order with streams,
// abort, destroy, errors, split.
#include <chrono>
#include <thread>

#include "comm_kit.h"

namespace npu::kit {
namespace {

// Its stream is held up: the collective takes what is there then, and what is
// queued behind it sees its result.
TEST(comm, IsOrderedWithItsStream) {
  NPU_NEEDS_COMM();
  const npu_comm_table& t = *comm_table();
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  constexpr std::uint64_t kBytes = 4096;
  Memory data(ranks.size(), kBytes);
  Memory seen(ranks.size(), kBytes);
  for (int round = 1; round <= 3; ++round) {
    for (int r = 0; r < ranks.size(); ++r) {
      NPU_ASSERT_OK(stream_table().host_call(
          ranks.stream(r),
          [](void*) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          },
          nullptr));
      NPU_ASSERT_OK(memory_table().set_bytes(
          ranks.stream(r), data.data(r), 16 * round + r, kBytes));
    }
    NPU_ASSERT_OK(ranks.all([&](int r) {
      return t.broadcast(
          ranks.comm(r),
          data.data(r),
          data.data(r),
          kBytes,
          NPU_U8,
          0,
          ranks.stream(r));
    }));
    for (int r = 0; r < ranks.size(); ++r) {
      NPU_ASSERT_OK(memory_table().copy_on_device(
          ranks.stream(r), seen.data(r), data.data(r), kBytes));
      NPU_ASSERT_OK(
          memory_table().set_bytes(ranks.stream(r), data.data(r), 1, kBytes));
    }
    ranks.synchronize();
    for (int r = 0; r < ranks.size(); ++r) {
      EXPECT_EQ(
          seen.at(r).get(),
          Bytes(kBytes, static_cast<std::uint8_t>(16 * round)))
          << "a collective is not in the order of its stream";
      EXPECT_EQ(data.at(r).get(), Bytes(kBytes, 1));
    }
  }
}

TEST(comm, AbortEndsAWaitAndTheStreamGoesOn) {
  NPU_NEEDS_RANKS(2);
  const npu_comm_table& t = *comm_table();
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  Memory data(ranks.size(), 4096);
  // The others never come.
  NPU_ASSERT_OK(t.broadcast(
      ranks.comm(0),
      data.data(0),
      data.data(0),
      4096,
      NPU_U8,
      1,
      ranks.stream(0)));
  EXPECT_EQ(stream_table().query(ranks.stream(0)), NPU_NOT_READY)
      << "over, although nothing was sent";
  clear_error();
  const npu_comm given_up = ranks.take(0);
  std::thread([&] { NPU_EXPECT_OK(t.abort(given_up)); }).join();
  for (int r = 1; r < ranks.size(); ++r) {
    NPU_EXPECT_OK(t.abort(ranks.take(r)));
  }
  const npu_status status = stream_table().synchronize(ranks.stream(0));
  EXPECT_TRUE(status == NPU_OK || status == NPU_E_ASYNC) << explain(status);
  clear_error();
  NPU_ASSERT_OK(
      memory_table().set_bytes(ranks.stream(0), data.data(0), 3, 4096));
  NPU_ASSERT_OK(stream_table().synchronize(ranks.stream(0)));
  EXPECT_EQ(data.at(0).get(), Bytes(4096, 3));
}

TEST(comm, DestroyFinishesTheWork) {
  NPU_NEEDS_COMM();
  const npu_comm_table& t = *comm_table();
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  Memory data(ranks.size(), 1 << 20);
  for (int r = 0; r < ranks.size(); ++r) {
    data.put(r, Bytes(1 << 20, static_cast<std::uint8_t>(r + 1)));
  }
  const int root = ranks.size() - 1;
  NPU_ASSERT_OK(ranks.all([&](int r) {
    return t.broadcast(
        ranks.comm(r),
        data.data(r),
        data.data(r),
        1 << 20,
        NPU_U8,
        root,
        ranks.stream(r));
  }));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks.size(); ++r) {
    threads.emplace_back(
        [&t, comm = ranks.take(r)] { NPU_EXPECT_OK(t.destroy(comm)); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ranks.synchronize();
  for (int r = 0; r < ranks.size(); ++r) {
    EXPECT_EQ(
        data.at(r).get(), Bytes(1 << 20, static_cast<std::uint8_t>(root + 1)));
  }
}

// Each error has a text, and nothing is queued.
TEST(comm, ErrorsAreReported) {
  NPU_NEEDS_COMM();
  const npu_comm_table& t = *comm_table();
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  Memory data(ranks.size(), 64);
  const Bytes before(64, 7);
  data.put(0, before);
  const auto refused = [&](npu_status status, const char* what) {
    EXPECT_TRUE(status == NPU_E_INVALID || status == NPU_E_UNSUPPORTED)
        << what << ": " << explain(status);
    EXPECT_NE(last_error(), "") << what << " is refused without a text";
    clear_error();
  };
  const npu_comm comm = ranks.comm(0);
  const npu_stream stream = ranks.stream(0);
  void* const p = data.data(0);
  clear_error();
  refused(
      t.broadcast(comm, p, p, 64, NPU_U8, ranks.size(), stream),
      "a root that is no rank");
  refused(
      t.all_reduce(comm, p, p, 8, NPU_F64, NPU_REDUCTION_COUNT, stream),
      "an unknown reduction");
  refused(
      t.all_reduce(comm, p, p, 64, NPU_DTYPE_COUNT, NPU_REDUCTION_SUM, stream),
      "an unknown dtype");
  refused(t.send(comm, p, 64, NPU_U8, -1, stream), "a peer that is no rank");
  std::vector<std::uint8_t> id(t.id_bytes);
  NPU_ASSERT_OK(t.make_id(id.data()));
  npu_comm none = nullptr;
  refused(t.init(id.data(), 2, 2, 0, nullptr, &none), "rank 2 of 2");
  NPU_EXPECT_OK(stream_table().synchronize(stream));
  EXPECT_EQ(data.at(0).get(), before);
  NPU_EXPECT_OK(t.state(comm));
}

TEST(comm, SplitMakesGroupsByColor) {
  NPU_NEEDS_RANKS(2);
  const npu_comm_table& t = *comm_table();
  if (t.split == nullptr) {
    NPU_NOT_DECLARED("split");
  }
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  std::vector<npu_comm> parts(static_cast<std::size_t>(ranks.size()));
  npu_comm_config config{};
  config.size = sizeof(config);
  // Rank 0 stays out, the others are one group.
  NPU_ASSERT_OK(ranks.all([&](int r) {
    return t.split(
        ranks.comm(r),
        r == 0 ? NPU_COMM_NO_COLOR : 1,
        -r,
        &config,
        &parts[static_cast<std::size_t>(r)]);
  }));
  EXPECT_EQ(parts[0], nullptr) << "a rank without a color got a communicator";
  for (std::size_t r = 1; r < parts.size(); ++r) {
    ASSERT_NE(parts[r], nullptr);
    npu_status status = NPU_NOT_READY;
    while ((status = t.state(parts[r])) == NPU_NOT_READY) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    NPU_ASSERT_OK(status);
    NPU_EXPECT_OK(t.destroy(parts[r]));
  }
}

}  // namespace
}  // namespace npu::kit
