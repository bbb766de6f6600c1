// SPDX-License-Identifier: Apache-2.0
// torch_npu's error codes, and driver failures as PyTorch exceptions.
#include "runtime/error.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "driver/env.h"
#include "driver/services.h"
#include "runtime/device.h"

namespace npu {
namespace {

constexpr char kCompact[] = "TORCH_NPU_COMPACT_ERROR_OUTPUT";
constexpr char kQuiet[] = "TORCH_NPU_WARNING_DISABLE";
constexpr char kQuietOld[] = "TORCH_NPU_DISABLED_WARNING";

const char* module_name(Module module) noexcept {
  switch (module) {
    case Module::kPta:
      return "PTA";
    case Module::kOps:
      return "OPS";
    case Module::kDist:
      return "DIST";
    case Module::kGraph:
      return "GRAPH";
    case Module::kProf:
      return "PROF";
  }
  return "UNKNOWN";
}

const char* code_text(Code code) noexcept {
  switch (code) {
    case Code::kSuccess:
      return "success";
    case Code::kParam:
      return "invalid parameter";
    case Code::kType:
      return "invalid type";
    case Code::kValue:
      return "invalid value";
    case Code::kPointer:
      return "invalid pointer";
    case Code::kInternal:
      return "internal error";
    case Code::kMemory:
      return "memory error";
    case Code::kNotSupported:
      return "feature not supported";
    case Code::kNotFound:
      return "resource not found";
    case Code::kUnavailable:
      return "resource unavailable";
    case Code::kSyscall:
      return "system call failed";
    case Code::kTimeout:
      return "timeout error";
    case Code::kPermission:
      return "permission error";
    case Code::kAcl:
      return "call acl api failed";
    case Code::kHccl:
      return "call hccl api failed";
    case Code::kGe:
      return "call ge api failed";
  }
  return "unknown error";
}

// For places that must not throw; check_error_environment() throws.
bool flag_or_off(const char* name) noexcept {
  try {
    return env::flag(name, false);
  } catch (const std::exception&) {
    return false;
  }
}

bool compact_errors() noexcept {
  static const bool value = flag_or_off(kCompact);
  return value;
}

}  // namespace

std::string error_line(Module module, Code code) {
  if (compact_errors()) {
    return {};
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char when[32];
  std::strftime(when, sizeof(when), "%Y-%m-%d-%H:%M:%S", &local);
  const char* const rank = std::getenv("RANK");
  char line[160];
  std::snprintf(
      line,
      sizeof(line),
      "\n[ERROR] %s (PID:%d, Device:%d, RankID:%.16s) ERR%02d%03d %s %s",
      when,
      static_cast<int>(getpid()),
      is_initialized() ? static_cast<int>(current_device()) : -1,
      rank != nullptr && *rank != '\0' ? rank : "-1",
      static_cast<int>(module),
      static_cast<int>(code),
      module_name(module),
      code_text(code));
  return line;
}

void raise_driver_error(npu_status status, const std::string& text) {
  switch (status) {
    case NPU_E_OUT_OF_MEMORY:
      TORCH_CHECK_WITH(OutOfMemoryError, false, text, pta_error(Code::kMemory));
      break;
    case NPU_E_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, text, pta_error(Code::kNotSupported));
      break;
    case NPU_E_INVALID:
      TORCH_CHECK_VALUE(false, text, pta_error(Code::kValue));
      break;
    case NPU_E_TIMEOUT:
      TORCH_CHECK(false, text, pta_error(Code::kTimeout));
      break;
    default:
      TORCH_CHECK(false, text, pta_error(Code::kAcl));
  }
  std::abort();  // not reached: each branch throws
}

void check_driver(npu_status status, const char* what) {
  if (status == NPU_OK) [[likely]] {
    return;
  }
  std::string text = "npu: ";
  text += what;
  text += ": ";
  text += status_name(status);
  const char* const words = host_services()->last_error();
  if (words != nullptr && *words != '\0') {
    text += ": ";
    text += words;
  }
  host_services()->set_error(nullptr);
  raise_driver_error(status, text);
}

void check_error_environment() {
  use_driver([] {
    env::flag(kCompact, false);
    env::flag(kQuiet, false);
    env::flag(kQuietOld, false);
  });
}

bool warnings_enabled() noexcept {
  static const bool enabled = [] {
    const char* const rank = std::getenv("RANK");
    const bool first =
        rank == nullptr || *rank == '\0' || std::strcmp(rank, "0") == 0;
    return first && !flag_or_off(kQuiet) && !flag_or_off(kQuietOld);
  }();
  return enabled;
}

void warn(
    const std::string& text, const char* function, const char* file, int line) {
  const c10::SourceLocation where{
      function, file, static_cast<std::uint32_t>(line)};
  c10::WarningHandler().process(
      c10::Warning(c10::UserWarning(), where, text, /*verbatim=*/false));
}

}  // namespace npu
