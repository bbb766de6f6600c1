// SPDX-License-Identifier: Apache-2.0
// The file a page lies in.
#include "profiler/page_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "driver/env.h"
#include "driver/services.h"

namespace npu::profiler {
namespace {

constexpr const char* kSuffix = ".page";

std::string folder_name() {
  if (const auto given = env::text("NPU_TOP_FOLDER");
      given && !given->empty()) {
    return *given;
  }
  return "/dev/shm/opennpu-" + std::to_string(::geteuid());
}

// Others must not be able to put files there, or to read ours.
bool is_private_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return false;
  }
  struct stat about {};
  return ::lstat(folder.c_str(), &about) == 0 && S_ISDIR(about.st_mode) &&
         about.st_uid == ::geteuid() && (about.st_mode & 0077) == 0;
}

// Locks of fcntl belong to a process, not to a descriptor: a forked child does
// not hold them, and the system takes them off when the process ends.
bool lock(int fd, bool only_ask) {
  struct flock how {};
  how.l_type = F_WRLCK;
  how.l_whence = SEEK_SET;
  if (only_ask) {
    return ::fcntl(fd, F_GETLK, &how) == 0 && how.l_type == F_UNLCK;
  }
  return ::fcntl(fd, F_SETLK, &how) == 0;
}

// Pages of processes that were killed.
void remove_orphans(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(
      ::opendir(folder.c_str()), &::closedir);
  while (dir != nullptr) {
    const dirent* const entry = ::readdir(dir.get());
    if (entry == nullptr) {
      return;
    }
    const std::string name = entry->d_name;
    if (!name.ends_with(kSuffix)) {
      continue;
    }
    const std::string path = folder + "/" + name;
    const int fd =
        ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
      if (lock(fd, /*only_ask=*/true)) {
        ::unlink(path.c_str());
      }
      ::close(fd);
    }
  }
}

}  // namespace

bool PageFile::make(const std::string& folder) {
  const std::string name = std::to_string(::getpid());
  // Locked before it has the name that others look for.
  const std::string hidden = folder + "/." + name + ".new";
  ::unlink(hidden.c_str());
  fd_ = ::open(
      hidden.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd_ < 0) {
    return false;
  }
  path_ = folder + "/" + name + kSuffix;
  void* mapped = MAP_FAILED;
  if (lock(fd_, false) && ::ftruncate(fd_, sizeof(Page)) == 0) {
    mapped = ::mmap(
        nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  }
  if (mapped == MAP_FAILED || ::rename(hidden.c_str(), path_.c_str()) != 0) {
    ::unlink(hidden.c_str());
    ::close(fd_);
    fd_ = -1;
    return false;
  }
  page_ = static_cast<Page*>(mapped);
  pid_ = ::getpid();
  return true;
}

bool PageFile::open() {
  const std::string folder = folder_name();
  if (is_private_folder(folder)) {
    remove_orphans(folder);
    if (make(folder)) {
      return true;
    }
  }
  log(NPU_LOG_INFO,
      "npu: top: this process does not show in `opennpu top`: " + folder +
          " is no folder that only this user can read and write (" +
          std::strerror(errno) + "). NPU_TOP_FOLDER names another.");
  return false;
}

void PageFile::remove() noexcept {
  if (page_ != nullptr && pid_ == ::getpid()) {
    ::unlink(path_.c_str());
    page_ = nullptr;  // the mapping stays: the thread may be about to read it
  }
}

}  // namespace npu::profiler
