// SPDX-License-Identifier: Apache-2.0
// The environment of the host driver.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "decline.h"
#include "host.h"

namespace npu::host {
namespace {

npu_status refuse(const char* name, const char* value, const char* allowed) {
  return fail(
      NPU_E_INVALID,
      "npu: host driver: %s=%s is not valid. Allowed: %s.",
      name,
      value,
      allowed);
}

// Unset and empty are the same.
const char* get(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

npu_status integer(
    const char* name,
    std::int64_t least,
    std::int64_t most,
    std::int64_t& out) {
  const char* value = get(name);
  if (!value) {
    return NPU_OK;
  }
  char* end = nullptr;
  errno = 0;
  const long long number = std::strtoll(value, &end, 10);
  if (errno != 0 || *end != '\0' || number < least || number > most) {
    char allowed[64];
    std::snprintf(
        allowed,
        sizeof(allowed),
        "an integer from %lld to %lld",
        static_cast<long long>(least),
        static_cast<long long>(most));
    return refuse(name, value, allowed);
  }
  out = number;
  return NPU_OK;
}

// Index into `words`.
npu_status choice(
    const char* name, std::initializer_list<const char*> words, int& out) {
  const char* value = get(name);
  if (!value) {
    return NPU_OK;
  }
  std::string allowed;
  int index = 0;
  for (const char* word : words) {
    if (std::strcmp(word, value) == 0) {
      out = index;
      return NPU_OK;
    }
    allowed += (index++ ? ", " : "");
    allowed += word;
  }
  return refuse(name, value, allowed.c_str());
}

npu_status flag(const char* name, bool& out) {
  int index = out;
  const npu_status status = choice(name, {"0", "1"}, index);
  out = index == 1;
  return status;
}

// "512", "512K", "64M", "16G", "1T"; "B" or "iB" may follow.
npu_status bytes(const char* name, std::uint64_t& out) {
  const char* value = get(name);
  if (!value) {
    return NPU_OK;
  }
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(value, &end);
  const bool digits = std::isdigit(static_cast<unsigned char>(*value)) != 0 &&
                      errno == 0 && end != value;
  const char* units = "KMGT";
  const char* unit =
      digits && *end ? std::strchr(units, std::toupper(*end)) : nullptr;
  const double scale =
      unit ? static_cast<double>(1ull << (10 * (unit - units + 1))) : 1.0;
  const char* tail = unit ? end + 1 : end;
  const bool ends = *tail == '\0' || std::strcmp(tail, "B") == 0 ||
                    (unit && std::strcmp(tail, "iB") == 0);
  const double total = number * scale;
  if (!digits || !ends || !(total >= 1.0) || total >= 0x1p60) {
    return refuse(
        name, value, "a number of bytes, with K, M, G or T after it or not");
  }
  out = static_cast<std::uint64_t>(total);
  return NPU_OK;
}

// RAM of the machine, or the memory limit of this process's container.
std::uint64_t physical_memory() {
  std::uint64_t ram = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  for (const char* path :
       {"/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    if (std::FILE* file = std::fopen(path, "r")) {
      unsigned long long limit = 0;
      if (std::fscanf(file, "%llu", &limit) == 1 && limit > 0) {
        ram = std::min<std::uint64_t>(ram, limit);
      }
      std::fclose(file);
    }
  }
  return ram;
}

Isa best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") &&
      __builtin_cpu_supports("fma")) {
    const bool avx512 = __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    return avx512 ? Isa::kAvx512 : Isa::kAvx2;
  }
#endif
  return Isa::kBaseline;
}

npu_status read_isa(Isa& out) {
  const Isa best = best_isa();
  int index = static_cast<int>(best);
  if (npu_status status =
          choice("NPU_HOST_ISA", {"baseline", "avx2", "avx512"}, index)) {
    return status;
  }
  if (index > static_cast<int>(best)) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: NPU_HOST_ISA=%s, but this CPU has no such "
        "instructions. Leave it unset to use the best it has.",
        get("NPU_HOST_ISA"));
  }
  out = static_cast<Isa>(index);
  return NPU_OK;
}

}  // namespace

npu_status read_settings() {
  Settings s;
  std::int64_t devices = 1;
  int kernels = -1;  // the variable is not set
  int access = 0;
  npu_status status = integer("NPU_HOST_DEVICES", 1, 64, devices);
  s.capacity = std::min<std::uint64_t>(
      physical_memory() / 2 / static_cast<std::uint64_t>(devices),
      UINT64_C(64) << 30);
  // Stop at the first wrong value, so that its error text is kept.
  status = status ? status : bytes("NPU_HOST_MEMORY", s.capacity);
  status = status ? status : flag("NPU_HOST_ASYNC", s.async);
  status =
      status ? status : integer("NPU_HOST_DELAY_US", 0, 10'000'000, s.delay_us);
  status =
      status ? status : integer("NPU_HOST_QUEUE", 0, 1'000'000, s.queue_limit);
  status = status ? status : flag("NPU_HOST_PROTECT", s.protect);
  status = status ? status : flag("NPU_HOST_REDZONE", s.redzone);
  status =
      status ? status : choice("NPU_HOST_KERNELS", {"fast", "all"}, kernels);
  status =
      status
          ? status
          : choice("NPU_HOST_ACCESS", {"coherent", "explicit", "none"}, access);
  status = status ? status : read_isa(s.isa);
  status = status ? status : read_decline();
  if (status != NPU_OK) {
    return status;
  }
  s.devices = static_cast<std::int32_t>(devices);
  // Asynchronous streams need kernels that queue: PyTorch's CPU kernels drain
  // the stream at every call.
  s.all_kernels = kernels < 0 ? s.async : kernels == 1;
  constexpr std::uint32_t kAccess[] = {
      NPU_HOST_ACCESS_COHERENT, NPU_HOST_ACCESS_EXPLICIT, NPU_HOST_ACCESS_NONE};
  s.host_access = kAccess[access];
  if (s.protect && s.host_access == NPU_HOST_ACCESS_COHERENT) {
    s.host_access = NPU_HOST_ACCESS_EXPLICIT;
  }
  settings = s;
  return NPU_OK;
}

Isa isa() noexcept {
  return settings.isa;
}

}  // namespace npu::host
