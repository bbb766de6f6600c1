// SPDX-License-Identifier: Apache-2.0
// The file a page lies in: made, locked, and removed when the process ends.
#pragma once

#include <string>

#include "profiler/page.h"

namespace npu::profiler {

class PageFile {
 public:
  // Makes and maps the file. False, with a line in the log, when there is no
  // folder that only this user can write.
  bool open();
  // Of the process that opened it; a forked child leaves the file alone.
  void remove() noexcept;

  Page* page() const noexcept {
    return page_;
  }
  const std::string& path() const noexcept {
    return path_;
  }

 private:
  bool make(const std::string& folder);

  std::string path_;
  Page* page_ = nullptr;
  int fd_ = -1;
  int pid_ = 0;
};

}  // namespace npu::profiler
