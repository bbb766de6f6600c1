// SPDX-License-Identifier: Apache-2.0
// Machine code of programs on disk:
// <folder>/cuda/<sm>/<nvrtc>/<sha256 of the source>.cubin. Without a folder
// that is one's own nothing is kept.
#pragma once

#include <string>
#include <vector>

namespace npu::cuda::jit {

// Of text, 64 hexadecimal digits.
std::string sha256(const std::string& text);

class DiskCache {
 public:
  // $NPU_CACHE, else $XDG_CACHE_HOME/opennpu, else ~/.cache/opennpu; empty:
  // there is none.
  static std::string root();

  // `key` is all that the machine code depends on beside architecture and
  // version.
  DiskCache(std::string root, int architecture, const std::string& version);

  // Empty: not there, or not to be trusted: it is another user's, others may
  // write it, or it is not what was written. Such a file is taken away.
  std::vector<char> find(const std::string& key) const;
  // False, and `why` (one sentence without its point): it cannot be kept.
  bool keep(
      const std::string& key,
      const std::vector<char>& cubin,
      std::string& why) const;

  std::string path_of(const std::string& key) const;

 private:
  bool make_folders(std::string& why) const;

  std::string root_;
  std::string folder_;
};

}  // namespace npu::cuda::jit
