// SPDX-License-Identifier: Apache-2.0
#include "jit/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace npu::cuda::jit {
namespace {

// FIPS 180-4.
class Sha256 {
 public:
  void add(const std::string& text) {
    std::string all = text;
    all.push_back(static_cast<char>(0x80));
    while (all.size() % 64 != 56) {
      all.push_back('\0');
    }
    const std::uint64_t bits = std::uint64_t{text.size()} * 8;
    for (int shift = 56; shift >= 0; shift -= 8) {
      all.push_back(static_cast<char>(bits >> shift));
    }
    for (std::size_t at = 0; at < all.size(); at += 64) {
      block(all.data() + at);
    }
  }
  std::string text() const {
    std::string made;
    for (const std::uint32_t word : state_) {
      char digits[9];
      std::snprintf(digits, sizeof(digits), "%08x", word);
      made += digits;
    }
    return made;
  }

 private:
  static std::uint32_t turned(std::uint32_t x, int by) {
    return x >> by | x << (32 - by);
  }
  void block(const char* bytes) {
    static constexpr std::uint32_t kRounds[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
        0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
        0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
        0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
        0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
        0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
        0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
        0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    std::uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
      w[i] = 0;
      for (int k = 0; k < 4; ++k) {
        w[i] = w[i] << 8 | static_cast<unsigned char>(bytes[i * 4 + k]);
      }
    }
    for (int i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15];
      const std::uint32_t b = w[i - 2];
      w[i] = w[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[i - 7] +
             (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    std::array<std::uint32_t, 8> v = state_;
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t big =
          turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25);
      const std::uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
      const std::uint32_t t = v[7] + big + choice + kRounds[i] + w[i];
      const std::uint32_t small =
          turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22);
      const std::uint32_t most = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
      v = {t + small + most, v[0], v[1], v[2], v[3] + t, v[4], v[5], v[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) {
      state_[i] += v[i];
    }
  }

  std::array<std::uint32_t, 8> state_ = {
      0x6a09e667,
      0xbb67ae85,
      0x3c6ef372,
      0xa54ff53a,
      0x510e527f,
      0x9b05688c,
      0x1f83d9ab,
      0x5be0cd19};
};

// A file begins with this and the digest of what follows, so that what was cut
// short or changed is seen.
constexpr char kMark[] = "npu program 1\n";
constexpr std::size_t kMarkBytes = sizeof(kMark) - 1;
constexpr std::size_t kDigestBytes = 64;

std::string digest_of(const std::vector<char>& bytes) {
  return sha256(std::string(bytes.begin(), bytes.end()));
}

// The user owns it, and no other user may write it.
bool is_own(const struct stat& found) {
  return found.st_uid == geteuid() && (found.st_mode & 022) == 0;
}

std::vector<char> read_all(int file, std::size_t bytes) {
  std::vector<char> made(bytes);
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::read(file, made.data() + done, bytes - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return {};
    }
    done += static_cast<std::size_t>(n);
  }
  return made;
}

bool write_all(int file, const char* bytes, std::size_t n) {
  while (n > 0) {
    const ssize_t done = ::write(file, bytes, n);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      return false;
    }
    bytes += done;
    n -= static_cast<std::size_t>(done);
  }
  return true;
}

}  // namespace

std::string sha256(const std::string& text) {
  Sha256 made;
  made.add(text);
  return made.text();
}

std::string DiskCache::root() {
  const auto given = [](const char* value) -> std::string {
    return value != nullptr ? value : "";
  };
  if (const std::string own = given(std::getenv("NPU_CACHE")); !own.empty()) {
    return own;
  }
  if (const std::string cache = given(std::getenv("XDG_CACHE_HOME"));
      !cache.empty()) {
    return cache + "/opennpu";
  }
  const std::string home = given(std::getenv("HOME"));
  return home.empty() ? "" : home + "/.cache/opennpu";
}

DiskCache::DiskCache(
    std::string root, int architecture, const std::string& version)
    : root_(std::move(root)),
      folder_(
          root_ + "/cuda/sm_" + std::to_string(architecture) + "/" + version) {}

std::string DiskCache::path_of(const std::string& key) const {
  return folder_ + "/" + sha256(key) + ".cubin";
}

std::vector<char> DiskCache::find(const std::string& key) const {
  if (root_.empty()) {
    return {};
  }
  const std::string path = path_of(key);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) {
    return {};
  }
  std::vector<char> found;
  struct stat about {};
  if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && is_own(about) &&
      about.st_size > static_cast<off_t>(kMarkBytes + kDigestBytes)) {
    found = read_all(file, static_cast<std::size_t>(about.st_size));
  }
  ::close(file);
  constexpr std::size_t kHead = kMarkBytes + kDigestBytes;
  if (found.size() > kHead &&
      std::memcmp(found.data(), kMark, kMarkBytes) == 0) {
    const std::string digest(found.data() + kMarkBytes, kDigestBytes);
    std::vector<char> cubin(found.begin() + kHead, found.end());
    if (digest_of(cubin) == digest) {
      return cubin;
    }
  }
  ::unlink(path.c_str());
  return {};
}

bool DiskCache::make_folders(std::string& why) const {
  std::string path;
  for (std::size_t at = 0; at != std::string::npos;) {
    at = folder_.find('/', at + 1);
    path = folder_.substr(0, at);
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      why = "the folder " + path + " cannot be made: " + std::strerror(errno);
      return false;
    }
  }
  // From the root's cuda folder on they are the driver's own.
  struct stat about {};
  for (path = folder_; path.size() > root_.size();
       path.resize(path.rfind('/'))) {
    if (::lstat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) ||
        !is_own(about)) {
      why = "the folder " + path +
            " is another user's, or others may write it: name one of your own "
            "in NPU_CACHE";
      return false;
    }
  }
  return true;
}

bool DiskCache::keep(
    const std::string& key,
    const std::vector<char>& cubin,
    std::string& why) const {
  if (root_.empty()) {
    why = "there is no home folder: name one in NPU_CACHE";
    return false;
  }
  if (!make_folders(why)) {
    return false;
  }
  // Written under another name and renamed: readers see whole files.
  std::string apart = folder_ + "/.new-XXXXXX";
  const int file = ::mkstemp(apart.data());
  if (file < 0) {
    why = "nothing can be written to " + folder_ + ": " + std::strerror(errno);
    return false;
  }
  const std::string head = kMark + digest_of(cubin);
  const bool written = ::fchmod(file, 0600) == 0 &&
                       write_all(file, head.data(), head.size()) &&
                       write_all(file, cubin.data(), cubin.size());
  const int error = errno;
  const bool closed = ::close(file) == 0;
  if (!written || !closed ||
      ::rename(apart.c_str(), path_of(key).c_str()) != 0) {
    why = "nothing can be written to " + folder_ + ": " +
          std::strerror(written ? errno : error);
    ::unlink(apart.c_str());
    return false;
  }
  return true;
}

}  // namespace npu::cuda::jit
