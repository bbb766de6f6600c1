// SPDX-License-Identifier: Apache-2.0
#include "lib/cupti.h"

#include "lib/library.h"

namespace npu::cuda::cupti {
namespace {

constexpr const char* kLibrary = "libcupti.so.13";
constexpr std::uint32_t kMajor = 13;

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
        why = std::string(kLibrary) + " has no " + symbol;
      }
    };
    take(api.get_version, "cuptiGetVersion");
    std::uint32_t version = 0;
    if (why.empty() && api.get_version(&version) != kSuccess) {
      why = std::string(kLibrary) + " does not say its version";
    }
    if (why.empty() && version / 10000 != kMajor) {
      why = std::string(kLibrary) + " is CUPTI " +
            std::to_string(version / 10000) +
            ", and the driver knows 13: pip install nvidia-cuda-cupti";
    }
    if (!why.empty()) {
      return;
    }
    take(api.result_string, "cuptiGetResultString");
    take(api.timestamp, "cuptiGetTimestamp");
    take(api.subscribe, "cuptiSubscribe");
    take(api.unsubscribe, "cuptiUnsubscribe");
    take(api.register_callbacks, "cuptiActivityRegisterCallbacks");
    take(api.enable, "cuptiActivityEnable");
    take(api.disable, "cuptiActivityDisable");
    take(api.flush_all, "cuptiActivityFlushAll");
    take(api.next_record, "cuptiActivityGetNextRecord");
    take(api.dropped, "cuptiActivityGetNumDroppedRecords");
    take(api.push, "cuptiActivityPushExternalCorrelationId");
    take(api.pop, "cuptiActivityPopExternalCorrelationId");
    take(api.stream_id, "cuptiGetStreamIdEx");
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

}  // namespace npu::cuda::cupti
