// SPDX-License-Identifier: Apache-2.0
// What this CPU, oneDNN and the user's settings make of products of halves.
#include "aten/twin/half_products.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "driver/env.h"
#include "driver/status.h"
#include "runtime/error.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace npu::twin {
namespace {

using c10::ScalarType;

enum class Choice { kAuto, kCpu, kFloat32 };

// Instructions for products of one half type.
struct Unit {
  const char* name;
  bool in_cpu;
  bool allowed;  // by oneDNN's limit
};

struct Settings {
  Choice choice;
  std::string limit;  // oneDNN's, in capitals; empty without one
  Unit bfloat16;
  Unit float16;
};

#if defined(__x86_64__)
constexpr const char* kNames[] = {"avx512_bf16", "avx512_fp16"};
bool has_bfloat16() {
  return __builtin_cpu_supports("avx512bf16") != 0;
}
bool has_float16() {
  return __builtin_cpu_supports("avx512fp16") != 0;
}
#elif defined(__aarch64__) && defined(__linux__)
constexpr const char* kNames[] = {"bf16", "fphp and asimdhp"};
bool has_bfloat16() {
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16
  return (getauxval(AT_HWCAP2) & kBf16) != 0;
}
bool has_float16() {
  constexpr unsigned long kHalf = 1ul << 9 | 1ul << 10;  // FPHP, ASIMDHP
  return (getauxval(AT_HWCAP) & kHalf) == kHalf;
}
#else
constexpr const char* kNames[] = {"known bfloat16 unit", "known float16 unit"};
bool has_bfloat16() {
  return false;
}
bool has_float16() {
  return false;
}
#endif

// oneDNN's names of instruction sets without them; others have them, or are
// unknown to oneDNN, which then ignores the variable.
bool allows_bfloat16(std::string_view limit) {
  static constexpr std::array<std::string_view, 7> kWithout = {
      "SSE41",
      "AVX",
      "AVX2",
      "AVX2_VNNI",
      "AVX2_VNNI_2",
      "AVX512_CORE",
      "AVX512_CORE_VNNI"};
  return std::ranges::find(kWithout, limit) == kWithout.end();
}
bool allows_float16(std::string_view limit) {
  return allows_bfloat16(limit) && limit != "AVX512_CORE_BF16";
}

std::string read_limit() {
  std::string limit = env::text("ONEDNN_MAX_CPU_ISA")
                          .value_or(env::text("DNNL_MAX_CPU_ISA").value_or(""));
  for (char& c : limit) {
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return limit;
}

Settings read_settings() {
  try {
    const auto choice = static_cast<Choice>(
        env::choice("NPU_HALF_PRODUCTS", {"auto", "cpu", "float32"}, 0));
    std::string limit = read_limit();
    const Unit bfloat16{kNames[0], has_bfloat16(), allows_bfloat16(limit)};
    const Unit float16{kNames[1], has_float16(), allows_float16(limit)};
    return {choice, std::move(limit), bfloat16, float16};
  } catch (const Error& error) {
    TORCH_CHECK(false, error.what(), pta_error(Code::kValue));
  }
}

// oneDNN reads its variable once, too.
const Settings& settings() {
  static const Settings read = read_settings();
  return read;
}

const Unit& unit_of(ScalarType half) {
  return half == ScalarType::BFloat16 ? settings().bfloat16
                                      : settings().float16;
}

// The kernels that use such instructions are oneDNN's.
bool uses_onednn() {
  return at::globalContext().userEnabledMkldnn();
}

}  // namespace

bool multiplied_in_float32(ScalarType half) {
  switch (settings().choice) {
    case Choice::kCpu:
      return false;
    case Choice::kFloat32:
      return true;
    case Choice::kAuto:
      break;
  }
  const Unit& unit = unit_of(half);
  return !(unit.in_cpu && unit.allowed && uses_onednn());
}

std::string why_multiplied_so(ScalarType half) {
  if (settings().choice != Choice::kAuto) {
    return settings().choice == Choice::kCpu ? "NPU_HALF_PRODUCTS=cpu"
                                             : "NPU_HALF_PRODUCTS=float32";
  }
  const Unit& unit = unit_of(half);
  const std::string name = unit.name;
  if (!unit.in_cpu) {
    return "the CPU has no " + name;
  }
  if (!unit.allowed) {
    return "oneDNN is limited to " + settings().limit + ", without " + name;
  }
  return uses_onednn() ? "the CPU has " + name
                       : "torch.backends.mkldnn is off, which uses " + name;
}

bool outweigh_casts(c10::IntArrayRef a, c10::IntArrayRef b) {
  // Measured with PyTorch 2.13 for both half types, all layouts, with and
  // without AVX-512: below, the casts take longer than they save. A product
  // with few rows reads its other matrix once, so that a cast doubles its time.
  constexpr std::int64_t kLeastSide = 4;
  constexpr double kLeastProducts = 1 << 14;
  if (a.size() < 2 || b.size() < 2) {
    return false;
  }
  const std::int64_t sides[] = {a[a.size() - 2], a.back(), b.back()};
  double products = a.size() > 2 ? static_cast<double>(a[0]) : 1.0;
  for (const std::int64_t side : sides) {
    products *= static_cast<double>(side);
  }
  return *std::ranges::min_element(sides) >= kLeastSide &&
         products >= kLeastProducts;
}

}  // namespace npu::twin
