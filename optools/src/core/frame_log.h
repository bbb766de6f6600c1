// SPDX-License-Identifier: Apache-2.0
// An append-only file of checksummed frames. Whatever end a crash leaves, the
// frames before it are read; damage in the middle costs the frames it hit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace optools {

inline constexpr uint32_t kFrameMagic = 0x5246504F;  // "OPFR" in the file

struct FrameHead {
  uint32_t magic;
  uint32_t bytes;     // of the payload
  uint32_t checksum;  // zlib's CRC-32 of kind (one byte) and payload
  uint32_t kind;
};
inline constexpr uint32_t kMaxFrame = 256u << 20;

class FrameLog {
 public:
  // Creates the file, which must not exist.
  explicit FrameLog(const std::string& path);
  ~FrameLog();
  FrameLog(const FrameLog&) = delete;
  FrameLog& operator=(const FrameLog&) = delete;

  void append(uint8_t kind, std::string_view payload);
  // Hands everything to the operating system, which keeps it when the process
  // dies. Throws std::system_error; the file then ends with a whole frame.
  void flush();
  uint64_t bytes() const {
    return written_ + buffer_.size();
  }

 private:
  int file_;
  uint64_t written_ = 0;
  std::string path_;
  std::string buffer_;
};

// Writes all of it at `offset`; throws std::system_error naming the path.
void write_at(
    int file, std::string_view bytes, uint64_t offset, const std::string& path);

struct Frame {
  uint64_t offset;  // of the payload
  uint32_t bytes;
  uint8_t kind;
};
struct FrameProblem {
  uint64_t offset;
  std::string what;
};
struct FrameScan {
  std::vector<Frame> frames;
  std::vector<FrameProblem> problems;
};

// Every whole frame of a file, and what was wrong between them.
FrameScan scan_frames(std::string_view file);

}  // namespace optools
