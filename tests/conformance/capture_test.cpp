// SPDX-License-Identifier: Apache-2.0
// Group capture: interface capture/1, for drivers that have it.
#include "npu/capture.h"

#include "kit.h"

namespace npu::kit {
namespace {

constexpr std::uint64_t kBytes = 4096;

class capture : public ::testing::Test {
 protected:
  void SetUp() override {
    const void* const found =
        driver().get_interface == nullptr
            ? nullptr
            : driver().get_interface(NPU_CAPTURE_INTERFACE);
    if (found == nullptr) {
      NPU_NOT_DECLARED(NPU_CAPTURE_INTERFACE);
    }
    table_ = static_cast<const npu_capture*>(found);
    ASSERT_GE(table_->size, sizeof(npu_capture));
    ASSERT_EQ(table_->version, NPU_CAPTURE_VERSION);
  }
  void TearDown() override {
    for (const npu_graph_exec exec : execs_) {
      NPU_EXPECT_OK(table_->destroy_exec(exec));
    }
  }

  void begin(const Stream& stream, std::uint64_t pool = 0) {
    const npu_stream origin = stream.get();
    NPU_ASSERT_OK(table_->begin(0, &origin, 1, pool));
  }
  npu_graph end(const Stream& stream) {
    npu_graph graph = nullptr;
    NPU_EXPECT_OK(table_->end(stream.get(), &graph));
    EXPECT_NE(graph, nullptr);
    return graph;
  }
  npu_graph_exec instantiate(npu_graph graph) {
    npu_graph_exec exec = nullptr;
    NPU_EXPECT_OK(table_->instantiate(graph, &exec));
    execs_.push_back(exec);
    return exec;
  }
  void launch(npu_graph_exec exec, const Stream& stream) {
    NPU_ASSERT_OK(table_->launch(exec, stream.get()));
  }
  npu_capture_info info(const Stream& stream) {
    npu_capture_info made{};
    made.size = sizeof(made);
    NPU_EXPECT_OK(table_->status(stream.get(), &made));
    return made;
  }
  static void set(const Stream& stream, const Buffer& to, int value) {
    NPU_ASSERT_OK(
        memory_table().set_bytes(stream.get(), to.data(), value, kBytes));
  }
  static void copy(const Stream& stream, const Buffer& to, const Buffer& from) {
    NPU_ASSERT_OK(memory_table().copy_on_device(
        stream.get(), to.data(), from.data(), kBytes));
  }
  // The byte that all of a buffer is; -1 when it is not one.
  static int value(const Stream& stream, const Buffer& buffer) {
    stream.synchronize();
    const Bytes all = buffer.get();
    return std::all_of(
               all.begin(), all.end(), [&](auto b) { return b == all[0]; })
               ? all[0]
               : -1;
  }

  const npu_capture* table_ = nullptr;
  std::vector<npu_graph_exec> execs_;
};

TEST_F(capture, NothingRunsBeforeALaunch) {
  Stream stream;
  Buffer a(kBytes);
  set(stream, a, 1);
  stream.synchronize();
  begin(stream);
  set(stream, a, 2);
  const npu_graph graph = end(stream);
  const npu_graph_exec exec = instantiate(graph);
  EXPECT_EQ(value(stream, a), 1);
  launch(exec, stream);
  EXPECT_EQ(value(stream, a), 2);
  NPU_EXPECT_OK(table_->destroy_graph(graph));
}

TEST_F(capture, EveryLaunchRunsAllOfItInOrder) {
  Stream stream;
  Buffer from(kBytes);
  Buffer through(kBytes);
  Buffer to(kBytes);
  begin(stream);
  copy(stream, through, from);
  copy(stream, to, through);
  set(stream, through, 99);
  const npu_graph graph = end(stream);
  const npu_graph_exec exec = instantiate(graph);
  NPU_EXPECT_OK(table_->destroy_graph(graph));  // the exec outlives it
  for (const int number : {3, 7, 250}) {
    set(stream, from, number);
    launch(exec, stream);
    set(stream, from, 0);  // after it on the stream
    EXPECT_EQ(value(stream, to), number);
    EXPECT_EQ(value(stream, through), 99);
  }
}

TEST_F(capture, KernelsAreRecorded) {
  npu_op_caps caps{};
  caps.size = sizeof(caps);
  if (!declares(NPU_KIND_FILL, 0, &caps) ||
      (caps.flags & NPU_CAP_CAPTURE) == 0 ||
      (driver().call_flags_known & NPU_CALL_CAPTURE) == 0) {
    GTEST_SKIP() << "fill is not declared to be capture-safe";
  }
  Stream stream;
  Buffer out(std::vector<float>(64, 1.0f));
  npu_fill_attrs attrs{};
  attrs.value = {.kind = NPU_SCALAR_FLOAT, .re = 2.5};
  Frame frame(NPU_KIND_FILL);
  frame.out(out, flat(NPU_F32, 64)).attrs(attrs);
  begin(stream);
  frame.call().flags |= NPU_CALL_CAPTURE;
  NPU_EXPECT_OK(op_table().run(stream.get(), &frame.call()));
  const npu_graph graph = end(stream);
  const npu_graph_exec exec = instantiate(graph);
  NPU_EXPECT_OK(table_->destroy_graph(graph));
  stream.synchronize();
  EXPECT_EQ(out.get_as<float>(), std::vector<float>(64, 1.0f));
  launch(exec, stream);
  stream.synchronize();
  EXPECT_EQ(out.get_as<float>(), std::vector<float>(64, 2.5f));
}

TEST_F(capture, StatusSaysWhatTheStreamDoes) {
  Stream stream;
  Stream other;
  EXPECT_EQ(info(stream).state, NPU_CAPTURE_NONE);
  begin(stream, 17);
  const npu_capture_info first = info(stream);
  EXPECT_EQ(first.state, NPU_CAPTURE_ACTIVE);
  EXPECT_NE(first.id, 0u);
  EXPECT_EQ(first.pool, 17u);
  EXPECT_EQ(info(other).state, NPU_CAPTURE_NONE);
  NPU_EXPECT_OK(table_->destroy_graph(end(stream)));
  EXPECT_EQ(info(stream).state, NPU_CAPTURE_NONE);
  begin(stream);
  EXPECT_NE(info(stream).id, first.id) << "ids are never used twice";
  NPU_EXPECT_OK(table_->destroy_graph(end(stream)));
}

TEST_F(capture, AStreamRecordsOnce) {
  Stream stream;
  begin(stream);
  const npu_stream origin = stream.get();
  EXPECT_EQ(table_->begin(0, &origin, 1, 0), NPU_E_INVALID);
  EXPECT_EQ(info(stream).state, NPU_CAPTURE_ACTIVE);
  NPU_EXPECT_OK(table_->destroy_graph(end(stream)));
}

TEST_F(capture, OtherStreamsRunMeanwhile) {
  Stream stream;
  Stream other;
  Buffer a(kBytes);
  Buffer b(kBytes);
  set(stream, a, 1);
  stream.synchronize();
  begin(stream);
  set(stream, a, 2);
  set(other, b, 5);
  EXPECT_EQ(value(other, b), 5);
  NPU_EXPECT_OK(table_->destroy_graph(end(stream)));
  EXPECT_EQ(value(stream, a), 1) << "a graph that was never launched ran";
}

TEST_F(capture, WaitingBreaksIt) {
  Stream stream;
  Buffer a(kBytes);
  begin(stream);
  set(stream, a, 2);
  EXPECT_NE(stream_table().synchronize(stream.get()), NPU_OK);
  EXPECT_EQ(info(stream).state, NPU_CAPTURE_INVALID);
  npu_graph graph = reinterpret_cast<npu_graph>(&graph);
  EXPECT_EQ(table_->end(stream.get(), &graph), NPU_E_INVALID);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(info(stream).state, NPU_CAPTURE_NONE);
  clear_error();
  set(stream, a, 4);  // the stream runs again
  EXPECT_EQ(value(stream, a), 4);
}

TEST_F(capture, EndNeedsABegin) {
  Stream stream;
  npu_graph graph = nullptr;
  EXPECT_EQ(table_->end(stream.get(), &graph), NPU_E_INVALID);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(capture, JoinedStreamsArePartOfIt) {
  Stream stream;
  Stream second;
  Buffer a(kBytes);
  Buffer b(kBytes);
  set(stream, a, 0);
  set(stream, b, 0);
  stream.synchronize();
  begin(stream);
  set(stream, a, 6);
  NPU_ASSERT_OK(table_->join(stream.get(), second.get()));
  EXPECT_EQ(info(second).state, NPU_CAPTURE_ACTIVE);
  copy(second, b, a);  // waits for what the origin has recorded
  const npu_graph graph = end(stream);
  EXPECT_EQ(info(second).state, NPU_CAPTURE_NONE);
  const npu_graph_exec exec = instantiate(graph);
  NPU_EXPECT_OK(table_->destroy_graph(graph));
  EXPECT_EQ(value(stream, b), 0);
  launch(exec, stream);
  EXPECT_EQ(value(stream, b), 6);
}

TEST_F(capture, UpdateTakesOtherPointersOrDeclines) {
  Stream stream;
  Buffer from(kBytes);
  Buffer a(kBytes);
  Buffer b(kBytes);
  npu_graph graphs[2];
  for (const Buffer* const to : {&a, &b}) {
    begin(stream);
    copy(stream, *to, from);
    graphs[to == &b] = end(stream);
  }
  const npu_graph_exec exec = instantiate(graphs[0]);
  set(stream, from, 1);
  set(stream, a, 0);
  set(stream, b, 0);
  launch(exec, stream);  // keeps what it was
  const npu_status status = table_->update(exec, graphs[1]);
  EXPECT_TRUE(status == NPU_OK || status == NPU_E_UNSUPPORTED)
      << explain(status);
  set(stream, from, 2);
  launch(exec, stream);
  const bool updated = status == NPU_OK;
  EXPECT_EQ(value(stream, a), updated ? 1 : 2);
  EXPECT_EQ(value(stream, b), updated ? 2 : 0);
  for (const npu_graph graph : graphs) {
    NPU_EXPECT_OK(table_->destroy_graph(graph));
  }
}

TEST_F(capture, UpdateWithOtherNodesIsRightOrDeclined) {
  Stream stream;
  Buffer a(kBytes);
  Buffer b(kBytes);
  begin(stream);
  set(stream, a, 1);
  const npu_graph one = end(stream);
  begin(stream);
  set(stream, a, 2);
  copy(stream, b, a);
  const npu_graph two = end(stream);
  const npu_graph_exec exec = instantiate(one);
  set(stream, a, 0);
  set(stream, b, 0);
  const npu_status status = table_->update(exec, two);
  launch(exec, stream);
  EXPECT_EQ(value(stream, a), status == NPU_OK ? 2 : 1);
  EXPECT_EQ(value(stream, b), status == NPU_OK ? 2 : 0);
  NPU_EXPECT_OK(table_->destroy_graph(one));
  NPU_EXPECT_OK(table_->destroy_graph(two));
}

TEST_F(capture, TwoInstancesOfOneGraph) {
  Stream stream;
  Buffer from(kBytes);
  Buffer to(kBytes);
  begin(stream);
  copy(stream, to, from);
  const npu_graph graph = end(stream);
  const npu_graph_exec first = instantiate(graph);
  const npu_graph_exec second = instantiate(graph);
  NPU_EXPECT_OK(table_->destroy_graph(graph));
  int number = 10;
  for (const npu_graph_exec exec : {first, second, first}) {
    set(stream, from, ++number);
    launch(exec, stream);
    EXPECT_EQ(value(stream, to), number);
  }
}

}  // namespace
}  // namespace npu::kit
