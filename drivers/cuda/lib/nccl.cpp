// SPDX-License-Identifier: Apache-2.0
#include "lib/nccl.h"

#include "lib/library.h"

namespace npu::cuda::nccl {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kMajor = 2;
// The first with ncclCommSplit, and with all fields of Config.
constexpr int kOldest = 21800;

// Before 2.9 a version was major * 1000 + minor * 100 + patch.
std::string text_of(int version) {
  const bool old = version < 10000;
  return std::to_string(version / (old ? 1000 : 10000)) + "." +
         std::to_string(version / 100 % (old ? 10 : 100)) + "." +
         std::to_string(version % 100);
}

struct Opened {
  Api api;
  std::string why;

  Opened() {
    void* const library = open_library(kLibrary, why);
    if (!library) {
      return;
    }
    const auto take = [&](auto& function, const char* symbol) {
      function = load_function<decltype(function)>(library, symbol);
      if (!function && why.empty()) {
        why = std::string(kLibrary) + " has no " + symbol +
              ": pip install a newer nvidia-nccl-cu13";
      }
    };
    take(api.get_version, "ncclGetVersion");
    int version = 0;
    if (why.empty() && api.get_version(&version) != kSuccess) {
      why = std::string(kLibrary) + " does not say its version";
    }
    if (why.empty() && (version / 10000 != kMajor || version < kOldest)) {
      why = std::string(kLibrary) + " is NCCL " + text_of(version) +
            ", and the driver knows 2.18 and later versions of 2: pip install "
            "nvidia-nccl-cu13";
    }
    if (!why.empty()) {
      return;  // the rest of another version may mean something else
    }
    take(api.get_unique_id, "ncclGetUniqueId");
    take(api.init, "ncclCommInitRankConfig");
    take(api.split, "ncclCommSplit");
    take(api.count, "ncclCommCount");
    take(api.user_rank, "ncclCommUserRank");
    take(api.finalize, "ncclCommFinalize");
    take(api.destroy, "ncclCommDestroy");
    take(api.abort, "ncclCommAbort");
    take(api.async_error, "ncclCommGetAsyncError");
    take(api.error_string, "ncclGetErrorString");
    take(api.last_error, "ncclGetLastError");
    take(api.group_start, "ncclGroupStart");
    take(api.group_end, "ncclGroupEnd");
    take(api.all_reduce, "ncclAllReduce");
    take(api.reduce, "ncclReduce");
    take(api.broadcast, "ncclBroadcast");
    take(api.all_gather, "ncclAllGather");
    take(api.reduce_scatter, "ncclReduceScatter");
    take(api.send, "ncclSend");
    take(api.recv, "ncclRecv");
  }
};

const Opened& opened() {
  static const Opened one;
  return one;
}

}  // namespace

const Api* api() {
  return opened().why.empty() ? &opened().api : nullptr;
}

const std::string& why() {
  return opened().why;
}

}  // namespace npu::cuda::nccl
