// SPDX-License-Identifier: Apache-2.0
// Recordings as files.
#include "graph/dump.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <vector>

#include "driver/call.h"
#include "driver/env.h"
#include "driver/services.h"
#include "graph/uses.h"

namespace npu::graph {
namespace {

std::string title_of(const Node& node) {
  if (const auto* const frame = std::get_if<FrameCopy>(&node)) {
    return "frame " + describe(frame->frame());
  }
  if (const auto* const bytes = std::get_if<BytesNode>(&node)) {
    return (bytes->set ? "set " : "copy ") + std::to_string(bytes->bytes) +
           " bytes";
  }
  if (const auto* const island = std::get_if<IslandNode>(&node)) {
    return "island " + std::to_string(island->index);
  }
  return "nothing";
}

std::string place_of(const Ref& ref) {
  std::string made = "b" + std::to_string(ref.buffer);
  return ref.offset == 0 ? made : made + "+" + std::to_string(ref.offset);
}

std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char c : text) {
    made += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return made + "\"";
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) {
    log(3, "npu: graph: NPU_GRAPH_DUMP: cannot write " + path + ".");
  }
}

}  // namespace

std::string text_of(const Graph& graph) {
  std::string made;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    made += std::to_string(n) + " " + title_of(graph.nodes[n]);
    for (const Use& use : uses_of(graph.nodes[n])) {
      made += use.reads ? use.writes ? " changes " : " reads " : " writes ";
      made += place_of(use.ref);
    }
    made += "\n";
  }
  for (std::size_t b = 0; b < graph.buffers.size(); ++b) {
    made += "b" + std::to_string(b) + " " +
            std::to_string(graph.buffers[b].bytes) + " bytes " +
            (graph.buffers[b].kind == Buffer::kLocal ? "local" : "bound") +
            "\n";
  }
  return made;
}

std::string dot_of(const Graph& graph) {
  std::string made = "digraph recording {\n  node [shape=box];\n";
  std::map<BufferId, std::size_t> written;  // by which node last
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (std::holds_alternative<Nothing>(node)) {
      continue;
    }
    const std::string name = "n" + std::to_string(n);
    made += "  " + name +
            " [label=" + quoted(std::to_string(n) + " " + title_of(node)) +
            "];\n";
    const std::vector<Use> uses = uses_of(node);
    for (const Use& use : uses) {
      const std::string buffer = "b" + std::to_string(use.ref.buffer);
      if (!use.reads) {
        continue;
      }
      const auto from = written.find(use.ref.buffer);
      made += "  " +
              (from == written.end() ? buffer
                                     : "n" + std::to_string(from->second)) +
              " -> " + name + " [label=" + quoted(buffer) + "];\n";
    }
    for (const Use& use : uses) {
      if (use.writes) {
        written[use.ref.buffer] = n;
      }
    }
  }
  return made + "}\n";
}

Dump::Dump(const Graph& graph) {
  static std::atomic<std::uint32_t> recordings{0};
  const auto folder = env::text("NPU_GRAPH_DUMP");
  if (!folder || folder->empty()) {
    return;
  }
  std::error_code ignored;  // writing says what is wrong
  std::filesystem::create_directories(*folder, ignored);
  prefix_ = *folder + "/" + std::to_string(::getpid()) + "-" +
            std::to_string(++recordings) + ".";
  write(graph, "recorded");
}

void Dump::write(const Graph& graph, const char* pass) {
  if (prefix_.empty()) {
    return;
  }
  const std::string path = prefix_ + std::to_string(step_++) + "." + pass;
  write_file(path + ".txt", text_of(graph));
  write_file(path + ".dot", dot_of(graph));
}

}  // namespace npu::graph
