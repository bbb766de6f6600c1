// SPDX-License-Identifier: Apache-2.0
// Where in the user's program a call was made, as a number. The core knows no
// Python: the binding lends it a finder.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace optools {

using SiteFinder = uint32_t (*)();
inline std::atomic<SiteFinder> g_site_finder{nullptr};

// 0 where the thread runs no Python.
inline uint32_t call_site() {
  const SiteFinder find = g_site_finder.load(std::memory_order_relaxed);
  return find == nullptr ? 0 : find();
}

inline std::atomic<SiteFinder> g_node_site_finder{nullptr};

// The line of Python that the running node of autograd executes, of a custom
// Function's backward or a hook; 0 for a node without Python of the user's.
inline uint32_t node_site() {
  const SiteFinder find = g_node_site_finder.load(std::memory_order_relaxed);
  return find == nullptr ? 0 : find();
}

// Whether the thread runs the forward of a custom Function.
inline std::atomic<bool (*)()> g_function_finder{nullptr};

inline bool in_custom_function() {
  const auto find = g_function_finder.load(std::memory_order_relaxed);
  return find != nullptr && find();
}

using SiteDescriber = std::string (*)(uint32_t);
inline std::atomic<SiteDescriber> g_site_describer{nullptr};

// "file:line function"; takes Python's lock.
inline std::string site_text(uint32_t site) {
  const SiteDescriber describe =
      g_site_describer.load(std::memory_order_relaxed);
  return describe == nullptr ? std::string() : describe(site);
}

}  // namespace optools
