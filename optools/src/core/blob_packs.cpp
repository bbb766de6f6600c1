// SPDX-License-Identifier: Apache-2.0
// Packs. The header of a safetensors file comes first and lists everything in
// it; room for it is reserved when the pack is opened and filled when it is
// closed. Until then the record log alone knows where blobs are.
#include "core/blob_packs.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "core/frame_log.h"

namespace optools {
namespace {

// Small captures stay small: the first header has room for some 400 blobs.
constexpr size_t kFirstHead = 64 * 1024;
constexpr size_t kLargestHead = 1024 * 1024;
// "<32 digits>":{"dtype":"U8","shape":[n],"data_offsets":[a,b]}, with numbers
// of up to 20 digits.
constexpr size_t kEntryBytes = 160;
constexpr char kMetadata[] =
    R"({"__metadata__":{"format":"op_tools capture 2"})";

}  // namespace

BlobPacks::BlobPacks(std::string folder, uint64_t pack_bytes)
    : folder_(std::move(folder)), pack_bytes_(pack_bytes) {}

size_t BlobPacks::max_entries() const {
  return (head_ - sizeof(kMetadata) - 16) / kEntryBytes;
}

void BlobPacks::open() {
  char name[32];
  std::snprintf(name, sizeof(name), "/pack-%05u", next_);
  path_ = folder_ + name;
  const std::string part = path_ + ".part";
  file_.open(part);
  head_ = std::min(kFirstHead << std::min(next_, 16u), kLargestHead);
  ++next_;
  entries_.clear();
  end_ = 0;
  // Written, not skipped: closing must not need room on a full disk.
  std::string head(head_ - 8, ' ');
  std::memcpy(head.data(), "{}", 2);
  const uint64_t length = head.size();
  head.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
  try {
    file_.append(head);
    file_.flush();
  } catch (...) {
    ::unlink(part.c_str());
    ::close(file_.finish());
    throw;
  }
}

BlobPacks::Place BlobPacks::write(
    const BlobHash& hash, std::string_view bytes) {
  if (file_.is_open() && (entries_.size() >= max_entries() ||
                          (end_ != 0 && end_ + bytes.size() > pack_bytes_))) {
    flush();  // throws where close() would drop what has no room
    close();
  }
  if (!file_.is_open()) {
    open();
  }
  const Place place{next_ - 1, head_ + end_};
  file_.append(bytes);
  entries_.push_back({hash, end_, end_ + bytes.size()});
  end_ += bytes.size();
  total_ += bytes.size();
  return place;
}

void BlobPacks::close() {
  if (!file_.is_open()) {
    return;
  }
  const int file = file_.finish();
  const uint64_t written = file_.written() - head_;
  while (!entries_.empty() && entries_.back().end > written) {
    entries_.pop_back();
  }
  const uint64_t data = entries_.empty() ? 0 : entries_.back().end;
  std::string head = kMetadata;
  for (const auto& entry : entries_) {
    head += ",\"" + entry.hash.hex() + R"(":{"dtype":"U8","shape":[)" +
            std::to_string(entry.end - entry.begin) + R"(],"data_offsets":[)" +
            std::to_string(entry.begin) + "," + std::to_string(entry.end) +
            "]}";
  }
  head += "}";
  head.resize(head_ - 8, ' ');
  const std::string part = path_ + ".part";
  try {
    write_at(file, head, 8, part);
  } catch (...) {
    ::close(file);
    throw;
  }
  const bool cut = ::ftruncate(file, static_cast<off_t>(head_ + data)) == 0;
  ::close(file);
  if (!cut || ::rename(part.c_str(), (path_ + ".safetensors").c_str()) != 0) {
    throw std::system_error(errno, std::generic_category(), "closing " + part);
  }
}

}  // namespace optools
