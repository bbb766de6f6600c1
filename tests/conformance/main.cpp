// SPDX-License-Identifier: Apache-2.0
// npu_conformance --driver host|null|<path of .so> [GoogleTest's flags]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kit.h"
#include "report.h"

namespace {

constexpr int kSkipped = 77;  // for ctest: this machine cannot run it

// Why this machine cannot run with NPU_HOST_ISA as it is; nullptr: it can.
const char* missing_isa() {
  const char* isa = std::getenv("NPU_HOST_ISA");
  if (!isa) {
    return nullptr;
  }
#if defined(__x86_64__)
  if (std::strcmp(isa, "avx2") == 0 && !__builtin_cpu_supports("avx2")) {
    return "this CPU has no AVX2";
  }
  if (std::strcmp(isa, "avx512") == 0 &&
      !(__builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))) {
    return "this CPU has no AVX-512 (F, BW, DQ, VL)";
  }
  return nullptr;
#else
  return std::strcmp(isa, "baseline") == 0 ? nullptr : "not an x86-64 CPU";
#endif
}

// The value of "--driver x" or "--driver=x"; empty when absent.
std::string driver_argument(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--driver=", 9) == 0) {
      return argv[i] + 9;
    }
    if (std::strcmp(argv[i], "--driver") == 0 && i + 1 < argc) {
      return argv[i + 1];
    }
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string name = driver_argument(argc, argv);
  if (name.empty()) {
    std::fprintf(
        stderr, "usage: npu_conformance --driver host|null|<path of .so>\n");
    return 2;
  }
  if (GTEST_FLAG_GET(list_tests)) {
    return RUN_ALL_TESTS();
  }
  if (const char* why = missing_isa()) {
    std::printf("skipped: %s\n", why);
    return kSkipped;
  }
  const std::string error = npu::kit::load_driver(name);
  if (!error.empty()) {
    std::fprintf(stderr, "npu_conformance: %s\n", error.c_str());
    return 2;
  }
  npu::kit::install_report();
  return RUN_ALL_TESTS();
}
