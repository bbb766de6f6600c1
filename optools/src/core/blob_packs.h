// SPDX-License-Identifier: Apache-2.0
// Contents of tensors in safetensors files, each blob under its hash.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/blob_hash.h"
#include "core/direct_file.h"

namespace optools {

class BlobPacks {
 public:
  // Files pack-00000.safetensors, ... in `folder`; `.part` while one is open.
  BlobPacks(std::string folder, uint64_t pack_bytes);
  BlobPacks(const BlobPacks&) = delete;
  BlobPacks& operator=(const BlobPacks&) = delete;

  struct Place {
    uint32_t pack;
    uint64_t offset;  // in the file
  };
  // Throws std::system_error; the pack then holds the blobs before.
  Place write(const BlobHash& hash, std::string_view bytes);
  // Everything is in the file.
  void flush() {
    if (file_.is_open()) {
      file_.flush();
    }
  }
  // Whether so many bytes there, of the last write(), are all in the file: not,
  // where a flush or a later write failed in the middle of them.
  bool holds(const Place& place, size_t bytes) const {
    return place.pack + 1 != next_ || place.offset + bytes <= file_.written();
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

  void open();
  size_t max_entries() const;

  std::string folder_;
  uint64_t pack_bytes_;
  uint32_t next_ = 0;  // number of the next pack
  uint64_t total_ = 0;

  DirectFile file_;
  std::string path_;
  size_t head_ = 0;   // bytes reserved for the header
  uint64_t end_ = 0;  // of the data
  std::vector<Entry> entries_;
};

}  // namespace optools
