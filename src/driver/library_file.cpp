// SPDX-License-Identifier: Apache-2.0
// Reads the headers of an ELF file.
#include "driver/library_file.h"

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

[[noreturn]] void reject(const std::string& path, const std::string& what) {
  throw Error(NPU_E_INVALID, "npu: driver '" + path + "': " + what);
}

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

void check_header(const std::string& path, const Elf64_Ehdr& header) {
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    reject(
        path,
        "not a shared library (no ELF header). Give the path of a driver's "
        ".so.");
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN) {
    reject(
        path, "not a 64-bit shared library. Give the path of a driver's .so.");
  }
  if (kMachine != EM_NONE && header.e_machine != kMachine) {
    reject(
        path,
        "built for another processor (ELF machine " +
            std::to_string(header.e_machine) + ", this one is " +
            std::to_string(kMachine) + "). Build it for this one.");
  }
}

}  // namespace

void check_library_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    throw Error(
        NPU_E_INVALID,
        "npu: driver '" + path + "': no such file (" + std::strerror(errno) +
            "). Check NPU_DRIVER.");
  }
  if (!S_ISREG(info.st_mode)) {
    reject(path, "not a file. Give the path of a driver's .so.");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    reject(path, "cannot be read. Check its permissions.");
  }
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  const bool whole = file.gcount() == sizeof(header);
  if (!whole && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
    reject(path, kCut);
  }
  check_header(path, header);
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > bytes ||
      bytes - header.e_phoff < header.e_phnum * sizeof(Elf64_Phdr)) {
    reject(path, kCut);
  }
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  file.read(
      reinterpret_cast<char*>(segments.data()),
      static_cast<std::streamsize>(segments.size() * sizeof(Elf64_Phdr)));
  if (!file) {
    reject(path, kCut);
  }
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD &&
        (segment.p_offset > bytes ||
         bytes - segment.p_offset < segment.p_filesz)) {
      reject(path, kCut);
    }
  }
}

}  // namespace npu
