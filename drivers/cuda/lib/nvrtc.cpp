// SPDX-License-Identifier: Apache-2.0
#include "lib/nvrtc.h"

#include <dlfcn.h>

#include "lib/library.h"

namespace npu::cuda::nvrtc {
namespace {

constexpr const char* kLibrary = "libnvrtc.so.13";
constexpr int kMajor = 13;

using Status = int;
using Program = void*;

struct Opened {
  Status (*version_of)(int*, int*) = nullptr;
  Status (*create)(
      Program*,
      const char*,
      const char*,
      int,
      const char* const*,
      const char* const*) = nullptr;
  Status (*destroy)(Program*) = nullptr;
  Status (*compile)(Program, int, const char* const*) = nullptr;
  Status (*cubin_size)(Program, std::size_t*) = nullptr;
  Status (*cubin)(Program, char*) = nullptr;
  Status (*log_size)(Program, std::size_t*) = nullptr;
  Status (*log)(Program, char*) = nullptr;
  const char* (*error)(Status) = nullptr;
  std::string version;
  std::string why;

  Opened() {
    void* const library = open_library(kLibrary, why);
    if (!library) {
      return;
    }
    const auto take = [&](auto& function, const char* symbol) {
      function = load_function<decltype(function)>(library, symbol);
      if (!function && why.empty()) {
        why = std::string(kLibrary) + " has no " + symbol;
      }
    };
    take(version_of, "nvrtcVersion");
    take(create, "nvrtcCreateProgram");
    take(destroy, "nvrtcDestroyProgram");
    take(compile, "nvrtcCompileProgram");
    take(cubin_size, "nvrtcGetCUBINSize");
    take(cubin, "nvrtcGetCUBIN");
    take(log_size, "nvrtcGetProgramLogSize");
    take(log, "nvrtcGetProgramLog");
    take(error, "nvrtcGetErrorString");
    int major = 0;
    int minor = 0;
    if (why.empty() && version_of(&major, &minor) != 0) {
      why = std::string(kLibrary) + " does not say its version";
    }
    if (why.empty() && major != kMajor) {
      why = std::string(kLibrary) + " is NVRTC " + std::to_string(major) +
            ", and the driver knows 13: pip install nvidia-cuda-nvrtc";
    }
    if (why.empty()) {
      version = std::to_string(major) + "." + std::to_string(minor);
      open_builtins(library);
    }
  }

 private:
  // NVRTC looks for this file by name alone, which fails where it was opened by
  // a path: from then on it is there. It lies beside the library.
  void open_builtins(void* library) const {
    const std::string name = "libnvrtc-builtins.so." + version;
    Dl_info self{};
    if (dladdr(dlsym(library, "nvrtcVersion"), &self) != 0) {
      const std::string path = self.dli_fname;
      const std::size_t slash = path.rfind('/');
      if (slash != std::string::npos &&
          dlopen(
              (path.substr(0, slash + 1) + name).c_str(),
              RTLD_NOW | RTLD_LOCAL)) {
        return;
      }
    }
    std::string ignored;
    open_library(name.c_str(), ignored);
  }
};

const Opened& opened() {
  static const Opened one;
  return one;
}

}  // namespace

const std::string& why() {
  return opened().why;
}

const std::string& version() {
  return opened().version;
}

Compiled compile(
    const std::string& source,
    const std::vector<Include>& headers,
    int architecture) {
  const Opened& api = opened();
  Compiled made;
  if (!api.why.empty()) {
    made.why = api.why;
    return made;
  }
  std::vector<const char*> texts;
  std::vector<const char*> names;
  for (const Include& each : headers) {
    texts.push_back(each.text);
    names.push_back(each.name);
  }
  Program program = nullptr;
  Status status = api.create(
      &program,
      source.c_str(),
      "npu_program.cu",
      static_cast<int>(headers.size()),
      texts.data(),
      names.data());
  if (status == 0) {
    // As nvcc compiles the driver's own kernels: every step rounds.
    const std::string target =
        "--gpu-architecture=sm_" + std::to_string(architecture);
    const char* const options[] = {
        target.c_str(),
        "--std=c++20",
        "--fmad=false",
        "--prec-div=true",
        "--prec-sqrt=true",
        "--ftz=false",
        "--device-as-default-execution-space",
        "--no-source-include",
        "--disable-warnings"};
    status = api.compile(
        program, static_cast<int>(sizeof(options) / sizeof(*options)), options);
    std::size_t bytes = 0;
    if (status == 0 && api.cubin_size(program, &bytes) == 0 && bytes != 0) {
      made.cubin.resize(bytes);
      status = api.cubin(program, made.cubin.data());
    }
    if (status != 0) {
      made.cubin.clear();
      if (api.log_size(program, &bytes) == 0 && bytes > 1) {
        made.why.resize(bytes);
        api.log(program, made.why.data());
        made.why.resize(bytes - 1);
      }
    }
    api.destroy(&program);
  }
  if (made.cubin.empty() && made.why.empty()) {
    made.why = std::string("NVRTC answers: ") + api.error(status);
  }
  return made;
}

}  // namespace npu::cuda::nvrtc
