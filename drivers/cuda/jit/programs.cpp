// SPDX-License-Identifier: Apache-2.0
#include "jit/programs.h"

#include <map>
#include <memory>
#include <mutex>

#include "jit/cache.h"
#include "lib/nvrtc.h"

namespace npu::cuda::jit {
namespace {

// What was made for one device. A source that NVRTC refuses is remembered too.
struct Made {
  std::unique_ptr<Kernel> kernel;
  std::string why;
};

std::vector<nvrtc::Include> headers() {
  std::vector<nvrtc::Include> made;
  for (const Header& each : kHeaders) {
    made.push_back({each.name, each.text});
  }
  return made;
}

// All that machine code depends on: the source and what it includes.
std::string key_of(const std::string& source) {
  static const std::string included = [] {
    std::string all;
    for (const Header& each : kHeaders) {
      all += std::string(each.name) + "\n" + each.text;
    }
    return sha256(all);
  }();
  return included + "\n" + source;
}

bool load(Made& made, const std::vector<char>& cubin) {
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  if (cudaLibraryLoadData(
          &library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0) !=
          cudaSuccess ||
      cudaLibraryGetKernel(&kernel, library, "npu_program") != cudaSuccess) {
    // Asked for once more, so that no later call is told of it.
    cudaGetLastError();
    return false;
  }
  // Loads it now: a run takes no memory.
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  made.kernel->handle = kernel;
  return true;
}

void warn_once(const std::string& why) {
  static std::once_flag once;
  std::call_once(
      once, [&] { warn("compiled programs are not kept: " + why + "."); });
}

void make(Made& made, npu_device device, const Problem& problem) {
  Source source = make_source(problem.spec);
  if (source.text.empty()) {
    made.why = source.why;
    return;
  }
  if (!nvrtc::why().empty()) {
    made.why = nvrtc::why();
    return;
  }
  const cudaDeviceProp& about = device_at(device).properties;
  const int architecture = about.major * 10 + about.minor;
  const DiskCache disk(DiskCache::root(), architecture, nvrtc::version());
  const std::string key = key_of(source.text);
  made.kernel = std::make_unique<Kernel>(Kernel{nullptr, source.numbers});
  const OnDevice on(device);
  const std::vector<char> kept = disk.find(key);
  if (!kept.empty() && load(made, kept)) {
    return;
  }
  const nvrtc::Compiled compiled =
      nvrtc::compile(source.text, headers(), architecture);
  if (compiled.cubin.empty() || !load(made, compiled.cubin)) {
    made.kernel.reset();
    made.why = compiled.cubin.empty()
                   ? "NVRTC refuses it: " + compiled.why.substr(0, 160)
                   : "CUDA does not load the code that NVRTC compiled";
    return;
  }
  std::string why;
  if (!disk.keep(key, compiled.cubin, why)) {
    warn_once(why);
  }
}

}  // namespace

const Kernel* kernel_of(
    npu_device device, const Problem& problem, std::string& why) {
  static std::mutex mutex;
  static auto* const all = new std::map<std::string, Made>;
  const Source source = make_source(problem.spec);
  if (source.text.empty()) {
    why = source.why;
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  const auto [at, is_new] =
      all->try_emplace(std::to_string(device) + "\n" + source.text);
  if (is_new) {
    make(at->second, device, problem);
  }
  why = at->second.why;
  return at->second.kernel.get();
}

}  // namespace npu::cuda::jit
