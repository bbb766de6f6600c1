// SPDX-License-Identifier: Apache-2.0
// An append-only file of checksummed frames.
#include "core/frame_log.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace optools {
namespace {

uint32_t frame_checksum(uint8_t kind, std::string_view payload) {
  const uLong start = crc32_z(0, &kind, 1);
  return static_cast<uint32_t>(crc32_z(
      start, reinterpret_cast<const Bytef*>(payload.data()), payload.size()));
}

constexpr const char* kBadChecksum =
    "a frame's checksum does not fit its bytes";

// Is there a whole frame here? `why` says what is wrong otherwise.
bool whole_frame(
    std::string_view file, size_t at, FrameHead& head, std::string& why) {
  if (file.size() - at < sizeof(head)) {
    why = "the file ends inside a frame's head";
    return false;
  }
  std::memcpy(&head, file.data() + at, sizeof(head));
  if (head.magic != kFrameMagic || head.kind > 255 || head.bytes > kMaxFrame) {
    why = "no frame begins here";
    return false;
  }
  if (file.size() - at - sizeof(head) < head.bytes) {
    why = "the file ends inside a frame";
    return false;
  }
  const auto payload = file.substr(at + sizeof(head), head.bytes);
  if (head.checksum !=
      frame_checksum(static_cast<uint8_t>(head.kind), payload)) {
    why = kBadChecksum;
    return false;
  }
  return true;
}

}  // namespace

void write_at(
    int file,
    std::string_view bytes,
    uint64_t offset,
    const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t done =
        ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0) {
      if (errno == EINTR) {
        continue;
      }
      throw std::system_error(
          errno, std::generic_category(), "writing " + path);
    }
    bytes.remove_prefix(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
}

FrameLog::FrameLog(const std::string& path)
    : file_(
          ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)),
      path_(path) {
  if (file_ < 0) {
    throw std::system_error(errno, std::generic_category(), "creating " + path);
  }
}

FrameLog::~FrameLog() {
  ::close(file_);
}

void FrameLog::append(uint8_t kind, std::string_view payload) {
  const FrameHead head{
      kFrameMagic,
      static_cast<uint32_t>(payload.size()),
      frame_checksum(kind, payload),
      kind};
  buffer_.append(reinterpret_cast<const char*>(&head), sizeof(head));
  buffer_.append(payload);
}

void FrameLog::flush() {
  if (buffer_.empty()) {
    return;
  }
  try {
    write_at(file_, buffer_, written_, path_);
  } catch (...) {
    // What does not fit is dropped: the file ends where it was whole.
    buffer_.clear();
    if (::ftruncate(file_, static_cast<off_t>(written_)) != 0) {
      // The reader finds the end by the checksums.
    }
    throw;
  }
  written_ += buffer_.size();
  buffer_.clear();
}

FrameScan scan_frames(std::string_view file) {
  FrameScan scan;
  constexpr char kMark[] = "OPFR";
  std::string why;
  // A file may hold heads of frames everywhere, each of which claims the rest
  // of it: what is checked in vain is bounded.
  size_t in_vain = 4 * file.size() + (size_t{16} << 20);
  for (size_t at = 0; at < file.size();) {
    FrameHead head;
    if (whole_frame(file, at, head, why)) {
      scan.frames.push_back(
          {at + sizeof(head), head.bytes, static_cast<uint8_t>(head.kind)});
      at += sizeof(head) + head.bytes;
      continue;
    }
    scan.problems.push_back({at, why});
    FrameHead tried;
    std::string nothing;
    bool found = false;
    while (!found) {
      at = file.find(kMark, at + 1, 4);
      if (at == std::string_view::npos) {
        return scan;
      }
      found = whole_frame(file, at, tried, nothing);
      const size_t checked =
          nothing == kBadChecksum ? tried.bytes : sizeof(tried);
      if (!found && checked > in_vain) {
        scan.problems.push_back(
            {at, "too much is damaged: the rest is not read"});
        return scan;
      }
      in_vain -= found ? 0 : checked;
    }
  }
  return scan;
}

}  // namespace optools
