// SPDX-License-Identifier: Apache-2.0
// Contents of tensors in safetensors files, each blob under its hash.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/blob_hash.h"

namespace optools {

class BlobPacks {
 public:
  // Files pack-00000.safetensors, ... in `folder`; `.part` while one is open.
  BlobPacks(std::string folder, uint64_t pack_bytes);
  ~BlobPacks();
  BlobPacks(const BlobPacks&) = delete;
  BlobPacks& operator=(const BlobPacks&) = delete;

  struct Place {
    uint32_t pack;
    uint64_t offset;  // in the file
  };
  // Throws std::system_error; the pack then holds the blobs before.
  Place write(const BlobHash& hash, std::string_view bytes);
  // Hands everything to the operating system.
  void flush();
  // Whether so many bytes there, of the last write(), are all in the file: not,
  // where a flush or a later write failed in the middle of them.
  bool holds(const Place& place, size_t bytes) const {
    return place.pack + 1 != next_ || place.offset + bytes <= head_ + written_;
  }
  // Makes the open pack a safetensors file. No more is written to it.
  void close();

  uint64_t bytes() const {
    return total_;
  }
  uint32_t packs() const {
    return next_;
  }

 private:
  struct Entry {
    BlobHash hash;
    uint64_t begin;
    uint64_t end;
  };
  static constexpr size_t kBuffer = 1 << 20;

  void open();
  void append(std::string_view bytes);
  size_t max_entries() const;

  std::string folder_;
  uint64_t pack_bytes_;
  uint32_t next_ = 0;  // number of the next pack
  uint64_t total_ = 0;

  int file_ = -1;
  std::string path_;
  size_t head_ = 0;       // bytes reserved for the header
  uint64_t end_ = 0;      // of the data, buffered data included
  uint64_t written_ = 0;  // of it in the file
  std::string buffer_;
  std::vector<Entry> entries_;
};

}  // namespace optools
