// SPDX-License-Identifier: Apache-2.0
// Passes on small recordings, written by hand.
#include "graph/pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "driver/env.h"
#include "npu/kinds.h"

namespace npu::graph {
namespace {

constexpr std::uint64_t kBytes = 16;

// Addresses that stand for buffers: buffer i is at (i + 1) * 4096.
void* address(BufferId id) {
  return reinterpret_cast<void*>((std::uintptr_t{id} + 1) * 4096);
}
std::optional<Ref> resolve(const void* at, std::uint64_t) {
  const auto value = reinterpret_cast<std::uintptr_t>(at);
  return Ref{static_cast<BufferId>(value / 4096 - 1), value % 4096};
}

// A frame of whole buffers of four floats: out = f(in...).
Node frame(
    BufferId out,
    std::vector<BufferId> in,
    std::uint32_t slot = NPU_KIND_BINARY) {
  const std::int64_t sizes[] = {4};
  const std::int64_t strides[] = {1};
  std::vector<npu_tensor> tensors;
  in.insert(in.begin(), out);
  for (const BufferId id : in) {
    npu_tensor made{};
    made.data = made.storage = address(id);
    made.storage_bytes = kBytes;
    made.numel = 4;
    made.sizes = sizes;
    made.strides = strides;
    made.dtype = NPU_F32;
    made.ndim = 1;
    made.flags = NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
    tensors.push_back(made);
  }
  npu_call call{};
  call.size = sizeof(call);
  call.slot = slot;
  call.n_out = 1;
  call.n_in = static_cast<std::uint32_t>(tensors.size() - 1);
  call.tensors = tensors.data();
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

// multi_map over lists: entry i of `out` from entry i of `x`.
Node lists(std::vector<BufferId> out, std::vector<BufferId> x) {
  std::vector<void*> outs;
  std::vector<void*> xs;
  const std::vector<std::int64_t> numel(out.size(), 4);
  for (std::size_t i = 0; i < out.size(); ++i) {
    outs.push_back(address(out[i]));
    xs.push_back(address(x[i]));
  }
  std::array<npu_list, 2> both{};
  for (npu_list& list : both) {
    list.size = sizeof(npu_list);
    list.n = static_cast<std::uint32_t>(out.size());
    list.dtype = NPU_F32;
    list.numel = numel.data();
  }
  both[0].data = outs.data();
  both[1].data = xs.data();
  npu_call call{};
  call.size = sizeof(call);
  call.slot = NPU_KIND_MULTI_MAP;
  call.lists = both.data();
  call.n_lists = 2;
  return std::move(*FrameCopy::make(call, nullptr, resolve));
}

Node copy(BufferId to, BufferId from) {
  return BytesNode{false, 0, kBytes, {to, 0}, {from, 0}};
}
Node island(std::vector<BufferId> buffers) {
  return IslandNode{0, std::move(buffers)};
}

Graph graph(std::size_t buffers, std::vector<Node> nodes) {
  Graph made;
  for (std::size_t i = 0; i < buffers; ++i) {
    made.buffers.push_back({Buffer::kBound, kBytes});
  }
  made.nodes = std::move(nodes);
  return made;
}
// Buffers up to `n` come from outside the graph.
std::vector<bool> behind(std::size_t n, std::size_t all) {
  std::vector<bool> made(all, true);
  std::fill_n(made.begin(), n, false);
  return made;
}
std::size_t removed(const Graph& graph) {
  return static_cast<std::size_t>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) {
        return std::holds_alternative<Nothing>(n);
      }));
}
const npu_op_caps* with_alias(std::uint32_t, std::uint32_t) {
  static const npu_op_caps kCaps = [] {
    npu_op_caps made{};
    made.size = sizeof(made);
    made.flags = NPU_CAP_ALIAS;
    made.alias_mask = ~std::uint64_t{0};
    return made;
  }();
  return &kCaps;
}
const npu_op_caps* without_alias(std::uint32_t, std::uint32_t) {
  static const npu_op_caps kCaps{};
  return &kCaps;
}
PassContext context(std::size_t kept, std::size_t all, bool alias = true) {
  PassContext made;
  made.movable = behind(kept, all);
  made.aligned.assign(all, true);
  made.devices.assign(all, 0);
  made.caps = alias ? with_alias : without_alias;
  return made;
}
const Pass& pass(const std::string& name) {
  return *std::ranges::find_if(
      pass_registry(), [&](const Pass& row) { return row.name == name; });
}
std::vector<Moved> moved_by(
    const char* name, Graph& graph, std::size_t kept, bool alias) {
  const PassStats made =
      pass(name).run(graph, context(kept, graph.buffers.size(), alias));
  EXPECT_EQ(made.counts[0], made.moved.size());
  plan_memory(graph);
  EXPECT_EQ(verify(graph), "");
  return made.moved;
}
std::vector<Moved> without_copies(
    Graph& graph, std::size_t kept, bool alias = true) {
  return moved_by("copies", graph, kept, alias);
}
std::uint32_t remove_dead(Graph& graph, std::size_t kept) {
  return pass("dead").run(graph, context(kept, graph.buffers.size())).counts[0];
}

TEST(Dead, FramesWithoutReaders) {
  // 0, 1 are inputs; 2 is read by the island, 3 and 4 have no reader in the
  // end.
  std::vector<Node> nodes;
  nodes.push_back(frame(2, {0, 1}));
  nodes.push_back(frame(3, {0, 1}));
  nodes.push_back(frame(4, {3, 2}));
  nodes.push_back(frame(0, {1, 1}));
  nodes.push_back(island({2}));
  Graph g = graph(5, std::move(nodes));
  EXPECT_EQ(remove_dead(g, 2), 2u);
  EXPECT_FALSE(std::holds_alternative<Nothing>(g.nodes[0]));
  EXPECT_TRUE(std::holds_alternative<Nothing>(g.nodes[1]));
  EXPECT_TRUE(std::holds_alternative<Nothing>(g.nodes[2]));
  EXPECT_FALSE(std::holds_alternative<Nothing>(g.nodes[3]));
  EXPECT_EQ(remove_dead(g, 2), 0u);
}

TEST(Copies, AreComputedInPlace) {
  std::vector<Node> nodes;
  nodes.push_back(frame(2, {1, 1}));
  nodes.push_back(copy(0, 2));
  nodes.push_back(frame(1, {2, 2}));  // reads the value after the copy
  Graph g = graph(3, std::move(nodes));
  EXPECT_EQ(without_copies(g, 2).size(), 1u);
  EXPECT_EQ(removed(g), 1u);
  EXPECT_EQ(std::get<FrameCopy>(g.nodes[0]).uses()[0].ref.buffer, 0u);
  EXPECT_EQ(std::get<FrameCopy>(g.nodes[2]).uses()[2].ref.buffer, 0u);
}

TEST(Copies, StayWhereTheOldValueIsStillNeeded) {
  {  // read between
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {1, 1}));
    nodes.push_back(frame(3, {0, 0}));
    nodes.push_back(copy(0, 2));
    nodes.push_back(frame(1, {3, 3}));
    Graph g = graph(4, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 2).empty());
  }
  {  // read by the frame that makes the value, which may not alias
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {0, 1}));
    nodes.push_back(copy(0, 2));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 2).empty());
  }
  {  // written again while the copied value is still read
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {1, 1}));
    nodes.push_back(copy(0, 2));
    nodes.push_back(frame(0, {1, 1}));
    nodes.push_back(frame(1, {2, 2}));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 2).empty());
  }
  {  // an island looks at the value
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {1, 1}));
    nodes.push_back(island({2}));
    nodes.push_back(copy(0, 2));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 2).empty());
  }
  {  // the value is also used outside
    std::vector<Node> nodes;
    nodes.push_back(frame(2, {1, 1}));
    nodes.push_back(copy(0, 2));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(without_copies(g, 3).empty());
  }
}

TEST(Copies, OfListsEntryByEntry) {
  const auto make = [](std::vector<BufferId> x) {
    std::vector<Node> nodes;
    nodes.push_back(lists({2, 3}, std::move(x)));
    nodes.push_back(copy(0, 2));
    nodes.push_back(copy(1, 3));
    return graph(4, std::move(nodes));
  };
  Graph same = make({0, 1});
  EXPECT_EQ(without_copies(same, 2).size(), 2u);
  Graph crossed = make({1, 0});  // entry 0 is read after entry 1 is written
  EXPECT_TRUE(without_copies(crossed, 2).empty());
  Graph apart = make({0, 1});
  EXPECT_TRUE(without_copies(apart, 2, /*alias=*/false).empty());
}

std::vector<Moved> reused(Graph& graph, std::size_t kept, bool alias = true) {
  return moved_by("reuse", graph, kept, alias);
}
BufferId written(const Graph& graph, std::size_t node) {
  return std::get<FrameCopy>(graph.nodes[node]).uses()[0].ref.buffer;
}

TEST(Reuse, AChainOfListsWorksInItsLastBuffer) {
  // 0 -> 1 -> 2 -> 0: what a traced in-place chain becomes.
  std::vector<Node> nodes;
  nodes.push_back(lists({1}, {0}));
  nodes.push_back(lists({2}, {1}));
  nodes.push_back(lists({0}, {2}));
  Graph g = graph(3, std::move(nodes));
  Graph apart = g;
  EXPECT_EQ(reused(g, 1).size(), 2u);
  for (std::size_t n = 0; n < 3; ++n) {
    EXPECT_EQ(written(g, n), 0u);
  }
  EXPECT_TRUE(reused(apart, 1, /*alias=*/false).empty());
}

TEST(Reuse, NotWhereAValueIsStillNeeded) {
  {  // read behind
    std::vector<Node> nodes;
    nodes.push_back(lists({1}, {0}));
    nodes.push_back(lists({2}, {1}));
    nodes.push_back(lists({0}, {1}));
    nodes.push_back(island({2}));
    Graph g = graph(3, std::move(nodes));
    EXPECT_EQ(reused(g, 1).size(), 1u);  // 1 in 0, for its last reader
    EXPECT_EQ(written(g, 1), 2u);
  }
  {  // the old content of what is filled is read between
    std::vector<Node> nodes;
    nodes.push_back(lists({1}, {0}));
    nodes.push_back(lists({2}, {0}));
    nodes.push_back(lists({0}, {1}));
    nodes.push_back(island({2}));
    Graph g = graph(3, std::move(nodes));
    EXPECT_TRUE(reused(g, 1).empty());
  }
  {  // an island reads it
    std::vector<Node> nodes;
    nodes.push_back(lists({1}, {0}));
    nodes.push_back(island({1}));
    nodes.push_back(lists({0}, {1}));
    Graph g = graph(2, std::move(nodes));
    EXPECT_TRUE(reused(g, 1).empty());
  }
  {  // entries are crossed
    std::vector<Node> nodes;
    nodes.push_back(lists({2, 3}, {0, 1}));
    nodes.push_back(lists({0, 1}, {3, 2}));
    Graph g = graph(4, std::move(nodes));
    EXPECT_TRUE(reused(g, 2).empty());
  }
  {  // it comes from outside the graph
    std::vector<Node> nodes;
    nodes.push_back(lists({1}, {0}));
    nodes.push_back(lists({0}, {1}));
    Graph g = graph(2, std::move(nodes));
    EXPECT_TRUE(reused(g, 2).empty());
  }
}

// A computed value that is copied over an input, and a dead frame.
Graph with_a_copy() {
  std::vector<Node> nodes;
  nodes.push_back(frame(2, {1, 1}));
  nodes.push_back(copy(0, 2));
  nodes.push_back(frame(3, {1, 1}));
  return graph(4, std::move(nodes));
}

PassStats throws(Graph& graph, const PassContext&) {
  graph.nodes.clear();
  throw std::runtime_error("injected");
}
PassStats breaks(Graph& graph, const PassContext&) {
  graph.nodes.push_back(copy(77, 0));
  return {};
}

TEST(Passes, OneThatFailsIsLeftOutAndReportedOnce) {
  const Pass rows[] = {
      pass("copies"),
      {"test_throws", throws, {"", nullptr}, ""},
      {"test_breaks", breaks, {"", nullptr}, ""},
      pass("dead")};
  testing::internal::CaptureStderr();
  for (int turn = 0; turn < 2; ++turn) {
    Graph g = with_a_copy();
    const auto made = run_passes(g, context(2, 4), Switches::read(), rows);
    ASSERT_EQ(made.size(), 2u);
    EXPECT_STREQ(made[0].pass->name, "copies");
    EXPECT_EQ(made[0].stats.counts[0], 1u);
    EXPECT_STREQ(made[1].pass->name, "dead");
    EXPECT_EQ(made[1].stats.counts[0], 1u);
    EXPECT_EQ(g.nodes.size(), 3u);
    EXPECT_EQ(removed(g), 2u);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  const auto first = log.find("pass test_throws failed: injected");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("pass test_throws failed", first + 1), std::string::npos);
  EXPECT_NE(
      log.find("pass test_breaks failed: node 3: buffer 77 does not exist"),
      std::string::npos)
      << log;
}

TEST(Passes, HaveNamesCountersAndSentences) {
  std::vector<std::string> seen;
  for (const Pass& row : pass_registry()) {
    for (const char* const word : {row.name, row.counters[0], row.doc}) {
      EXPECT_FALSE(std::string(word).empty());
    }
    seen.emplace_back(row.name);
    seen.emplace_back(row.counters[0]);
    ::setenv("NPU_GRAPH_OFF", row.name, 1);
    EXPECT_FALSE(Switches::read().is_on(row.name));
    ::unsetenv("NPU_GRAPH_OFF");
    Graph empty;
    row.run(empty, context(0, 0));
  }
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
}

TEST(Passes, SwitchedOffDoNothing) {
  ::setenv("NPU_GRAPH_OFF", "copies", 1);
  Graph g = with_a_copy();
  const auto made = run_passes(g, context(2, 4), Switches::read());
  ::unsetenv("NPU_GRAPH_OFF");
  EXPECT_EQ(removed(g), 1u);
  EXPECT_TRUE(std::ranges::none_of(made, [](const PassRun& run) {
    return std::string(run.pass->name) == "copies";
  }));
}

TEST(Dump, WritesTheNodesBeforeAndAfterEachPass) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "npu_graph_dump";
  fs::remove_all(folder);
  ::setenv("NPU_GRAPH_DUMP", folder.c_str(), 1);
  Graph g = with_a_copy();
  run_passes(g, context(2, 4), Switches::read());
  ::unsetenv("NPU_GRAPH_DUMP");
  std::vector<std::string> names;
  std::string recorded;
  std::string last;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (names.back().ends_with(".0.recorded.txt")) {
      recorded = text;
    } else if (names.back().ends_with(".2.dead.txt")) {
      last = text;
    } else if (names.back().ends_with(".dot")) {
      EXPECT_TRUE(text.starts_with("digraph recording {"));
      EXPECT_TRUE(text.ends_with("}\n"));
    }
  }
  EXPECT_EQ(names.size(), 2 * (1 + pass_registry().size()));
  EXPECT_NE(recorded.find("0 frame binary"), std::string::npos) << recorded;
  EXPECT_NE(
      recorded.find("1 copy 16 bytes writes b0 reads b2"), std::string::npos)
      << recorded;
  EXPECT_NE(last.find("1 nothing"), std::string::npos) << last;
  EXPECT_NE(last.find("writes b0 reads b1"), std::string::npos) << last;
  fs::remove_all(folder);
}

TEST(Switches, AreWords) {
  ::setenv("NPU_GRAPH_OFF", "copies, dead", 1);
  EXPECT_FALSE(Switches::read().is_on("copies"));
  EXPECT_FALSE(Switches::read().is_on("dead"));
  EXPECT_TRUE(Switches::read().is_on("host_calls"));
  ::setenv("NPU_GRAPH_OFF", "copy", 1);
  EXPECT_ANY_THROW(Switches::read());
  ::unsetenv("NPU_GRAPH_OFF");
  EXPECT_TRUE(Switches::read().is_on("copies"));
}

}  // namespace
}  // namespace npu::graph
