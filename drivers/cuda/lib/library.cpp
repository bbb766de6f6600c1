// SPDX-License-Identifier: Apache-2.0
#include "lib/library.h"

#include <dirent.h>
#include <dlfcn.h>

#include <cstdlib>
#include <vector>

namespace npu::cuda {
namespace {

void split(std::vector<std::string>& out, const char* text) {
  std::string rest = text ? text : "";
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    if (colon != 0) {
      out.push_back(rest.substr(0, colon));
    }
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
}

// nvidia/<package>/lib under the folder of packages that this library is
// installed in: site-packages/torch_npu/drivers/libnpu_cuda.so.
void packages(std::vector<std::string>& out) {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&packages), &self) == 0) {
    return;
  }
  std::string path = self.dli_fname;
  for (int up = 0; up < 3; ++up) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) {
      return;
    }
    path.resize(slash);
  }
  const std::string nvidia = path + "/nvidia";
  DIR* const folder = opendir(nvidia.c_str());
  if (!folder) {
    return;
  }
  while (const dirent* const entry = readdir(folder)) {
    if (entry->d_name[0] != '.') {
      out.push_back(nvidia + "/" + entry->d_name + "/lib");
    }
  }
  closedir(folder);
}

std::vector<std::string> folders() {
  std::vector<std::string> out;
  split(out, std::getenv("NPU_CUDA_LIBRARIES"));
  packages(out);
  return out;
}

}  // namespace

std::string library_folders() {
  std::string out;
  for (const std::string& folder : folders()) {
    out += (out.empty() ? "" : ":") + folder;
  }
  return out;
}

void* open_library(const char* soname, std::string& why) {
  constexpr int kMode = RTLD_NOW | RTLD_LOCAL;
  if (void* loaded = dlopen(soname, kMode | RTLD_NOLOAD)) {
    return loaded;
  }
  for (const std::string& folder : folders()) {
    if (void* found = dlopen((folder + "/" + soname).c_str(), kMode)) {
      return found;
    }
  }
  if (void* found = dlopen(soname, kMode)) {
    return found;
  }
  why = std::string(soname) +
        " is not to be found: pip install the nvidia package that has it, or "
        "name its folder in NPU_CUDA_LIBRARIES";
  return nullptr;
}

}  // namespace npu::cuda
