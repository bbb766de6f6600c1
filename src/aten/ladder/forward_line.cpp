// SPDX-License-Identifier: Apache-2.0
// Where the forward call was that a backward operator belongs to.
#include "aten/ladder/forward_line.h"

#include <torch/csrc/autograd/function.h>

#include <cctype>
#include <mutex>
#include <string_view>

#include "aten/twin/entry.h"

namespace npu::ladder {
namespace {

std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c != '_') {
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return letters;
}

// "MultiMarginLossBackward0" -> "multimarginloss". Nodes of Python functions
// have no number behind.
std::string operator_of_node(std::string_view node) {
  constexpr std::string_view kBackward = "Backward";
  const auto at = node.rfind(kBackward);
  if (at == std::string_view::npos || at + kBackward.size() >= node.size()) {
    return {};
  }
  return letters_of(node.substr(0, at));
}

// "aten::multi_margin_loss.out" -> "multi_margin_loss".
std::string_view base_of(std::string_view label) {
  const auto colon = label.find("::");
  label = colon == std::string_view::npos ? label : label.substr(colon + 2);
  return label.substr(0, label.find('.'));
}

}  // namespace

std::string forward_call_site() {
  const auto node = torch::autograd::get_current_node();
  const std::string wanted =
      node != nullptr ? operator_of_node(node->name()) : std::string();
  std::string site;
  if (wanted.empty()) {
    return site;
  }
  twin::for_each_entry([&](twin::Entry& entry) {
    if (site.empty() && letters_of(base_of(entry.label)) == wanted) {
      const std::lock_guard<std::mutex> lock(entry.mutex);
      site = entry.call_site;
    }
  });
  return site;
}

}  // namespace npu::ladder
