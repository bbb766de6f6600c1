// SPDX-License-Identifier: Apache-2.0
// npu_conformance --driver host|null|<path of .so> [--kind gemm] [--cases 3]
//                 [--seed n] [--json file] [--seconds 120] [GoogleTest's flags]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "crash.h"
#include "kinds_test.h"
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

// The value of "--name x" or "--name=x"; empty when absent.
std::string argument(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    const std::string given = argv[i];
    if (given.starts_with(name + "=")) {
      return given.substr(name.size() + 1);
    }
    if (given == name && i + 1 < argc) {
      return argv[i + 1];
    }
  }
  return "";
}

std::uint64_t number(const std::string& text, std::uint64_t otherwise) {
  return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  using namespace npu::kit;
  const std::string name = argument(argc, argv, "--driver");
  const std::string kind = argument(argc, argv, "--kind");
  if (name.empty()) {
    std::fprintf(
        stderr,
        "usage: npu_conformance --driver host|null|<path of .so> "
        "[--kind gemm] [--cases 3] [--seed n] [--json file] "
        "[--seconds 120]\n");
    return 2;
  }
  options().cases =
      static_cast<int>(number(argument(argc, argv, "--cases"), 3));
  options().seed = number(argument(argc, argv, "--seed"), 0);
  options().json = argument(argc, argv, "--json");
  if (options().seed != 0) {
    options().cases = 1;
  }
  if (!kind.empty()) {
    if (npu_kind_find(kind.c_str()) == 0) {
      std::fprintf(
          stderr, "npu_conformance: there is no kind '%s'\n", kind.c_str());
      return 2;
    }
    GTEST_FLAG_SET(filter, "kind." + kind + ":index_errors." + kind);
  }
  register_kind_tests();
  if (GTEST_FLAG_GET(list_tests)) {
    return RUN_ALL_TESTS();
  }
  if (const char* why = missing_isa()) {
    std::printf("skipped: %s\n", why);
    return kSkipped;
  }
  // The host driver's kernels are the oracle, those too that it does not use by
  // default.
  setenv("NPU_HOST_KERNELS", "all", 0);
  install_crash_report(
      static_cast<unsigned>(number(argument(argc, argv, "--seconds"), 120)));
  note_test("(none: the driver was being loaded)");
  const std::string error = load_driver(name);
  if (!error.empty()) {
    std::fprintf(stderr, "npu_conformance: %s\n", error.c_str());
    return 2;
  }
  install_report();
  const int result = RUN_ALL_TESTS();
  note_test("(none: the driver is being shut down)");
  return result;
}
