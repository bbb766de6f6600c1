// SPDX-License-Identifier: Apache-2.0
// Reads the headers of an ELF file, then loads it.
#include "driver/library_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

#include "driver/status.h"

namespace npu {

namespace {

// The file in an error text.
struct File {
  const std::string& path;
  const char* what;

  [[noreturn]] void reject(const std::string& why) const {
    throw Error(
        NPU_E_INVALID, std::string("npu: ") + what + " '" + path + "': " + why);
  }
};

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#elif defined(__riscv)
constexpr Elf64_Half kMachine = EM_RISCV;
#else
constexpr Elf64_Half kMachine = EM_NONE;  // not checked
#endif

constexpr const char* kCut =
    "the file is cut short or damaged. Build or install it again.";

void check_header(const File& file, const Elf64_Ehdr& header) {
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    file.reject(
        "not a shared library (no ELF header). Give the path of a .so.");
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN) {
    file.reject("not a 64-bit shared library. Give the path of a .so.");
  }
  if (kMachine != EM_NONE && header.e_machine != kMachine) {
    file.reject(
        "built for another processor (ELF machine " +
        std::to_string(header.e_machine) + ", this one is " +
        std::to_string(kMachine) + "). Build it for this one.");
  }
}

}  // namespace

void check_library_file(const std::string& path, const char* what) {
  const File given{path, what};
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    given.reject(
        std::string("no such file (") + std::strerror(errno) +
        "). Check the path.");
  }
  if (!S_ISREG(info.st_mode)) {
    given.reject("not a file. Give the path of a .so.");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    given.reject("cannot be read. Check its permissions.");
  }
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  const bool whole = file.gcount() == sizeof(header);
  if (!whole && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
    given.reject(kCut);
  }
  check_header(given, header);
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > bytes ||
      bytes - header.e_phoff < header.e_phnum * sizeof(Elf64_Phdr)) {
    given.reject(kCut);
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  file.read(
      reinterpret_cast<char*>(segments.data()),
      static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr)));
  if (!file) {
    given.reject(kCut);
  }
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD &&
        (segment.p_offset > bytes ||
         bytes - segment.p_offset < segment.p_filesz)) {
      given.reject(kCut);
    }
  }
}

void* open_library(
    const std::string& path, const char* what, const char* entry) {
  check_library_file(path, what);
  // Local binding: two drivers may carry the same symbols. Never closed, not
  // even on failure: threads or exit handlers of the library may remain.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    File{path, what}.reject(
        std::string("cannot be loaded: ") + ::dlerror() +
        ". Check that its libraries are installed and on the loader's path.");
  }
  void* found = ::dlsym(library, entry);
  if (found == nullptr) {
    File{path, what}.reject(
        std::string("does not export '") + entry + "', so it is no " + what +
        ". See docs/driver-guide.md.");
  }
  return found;
}

std::string version_text(std::uint32_t abi) {
  return std::to_string(abi >> 16) + "." + std::to_string(abi & 0xffffu);
}

}  // namespace npu
