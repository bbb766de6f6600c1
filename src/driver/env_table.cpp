// SPDX-License-Identifier: Apache-2.0
// The environment variables, and the page made from them.
#include "driver/env_table.h"

#include <algorithm>
#include <array>

#include "driver/status.h"

namespace npu::env {

namespace {

constexpr const char* kFlagValues = "0, 1";

// clang-format off
constexpr Variable kTable[] = {
    // ---- the plugin's own ----
    {"NPU_DRIVER", Type::kText, Group::kCore, "auto, a name, or the path of a .so", "auto",
     "Which driver this process uses; auto: the one of PyTorch's accelerator where it finds a device, else host."},
    {"NPU_DRIVER_PATH", Type::kList, Group::kCore, "folders, separated by ':'", "none",
     "Where drivers are looked for by name, before the package's own folder."},
    {"NPU_OP_PACKS", Type::kList, Group::kCore, "paths of .so files, separated by ':'", "none",
     "Operator packs loaded after the driver; one that is wrong is left out with a message."},
    {"NPU_PACKS", Type::kFlag, Group::kCore, kFlagValues, "1",
     "0: operator packs that are installed are not loaded."},
    {"XDG_CACHE_HOME", Type::kText, Group::kCore, "a folder", "~/.cache",
     "The cache folder. Its subfolder opennpu/ keeps which operator packs loaded."},
    {"CMAKE_BUILD_PARALLEL_LEVEL", Type::kText, Group::kCore, "a number", "one per core",
     "How many files opennpu pack build compiles at a time."},
    {"NPU_DISABLE_KIND", Type::kList, Group::kCore, "names of kinds, separated by ','", "none",
     "Kinds the driver is not asked for, so that other rungs serve them."},
    {"NPU_GRAPH_OFF", Type::kList, Group::kCore, "host_calls, numbers, capture, names of passes, separated by ','", "none",
     "Parts of graph mode that are left out, to find the one that a difference comes from: docs/graph-mode.md."},
    {"NPU_GRAPH_DUMP", Type::kText, Group::kCore, "a folder", "none",
     "Where the nodes of recordings are written before and after each pass, as text and for Graphviz."},
    {"NPU_FALLBACK", Type::kChoice, Group::kCore, "warn, silent, error", "warn",
     "What happens when the CPU runs an operator that the profile or driver lacks."},
    {"NPU_PROFILE", Type::kText, Group::kCore, "a profile's name, the path of a file, or none",
     "the driver's own",
     "Which chip's operators and dtypes decide about warnings."},
    {"NPU_PROFILE_STRICT", Type::kFlag, Group::kCore, kFlagValues, "0",
     "Features that work here and raise on the profile's chip (channels_last, sparse operators, dtypes that it refuses) raise here too; unknown dtypes never do."},
    {"NPU_HALF_PRODUCTS", Type::kChoice, Group::kCore, "auto, cpu, float32", "auto",
     "How PyTorch's CPU kernels multiply halves: auto = in float32 where the CPU has no instructions for them, cpu = as they are, float32 = always so."},
    {"ONEDNN_MAX_CPU_ISA", Type::kText, Group::kCore, "a name of oneDNN's, such as AVX2", "all the CPU has",
     "oneDNN's own: instructions it does without. NPU_HALF_PRODUCTS=auto counts them as missing."},
    {"DNNL_MAX_CPU_ISA", Type::kText, Group::kCore, "a name of oneDNN's, such as AVX2", "all the CPU has",
     "Older name of ONEDNN_MAX_CPU_ISA."},
    {"NPU_NUM_THREADS", Type::kInteger, Group::kCore, "an integer from 1 to 1024", "the cores",
     "Threads of parallel work in programs without PyTorch, such as the conformance kit."},
    {"NPU_DEVICE_NAME", Type::kText, Group::kCore, "any text", "the profile's or the driver's",
     "The name torch.npu.get_device_name answers."},
    {"NPU_TOP", Type::kFlag, Group::kCore, kFlagValues, "1",
     "0: this process does not show in `opennpu top`."},
    {"NPU_TOP_FOLDER", Type::kText, Group::kCore, "a folder that only its owner can read and write",
     "/dev/shm/opennpu-<user number>",
     "Where processes put the page that `opennpu top` reads."},
    {"NPU_COLLECTIVES", Type::kChoice, Group::kCore, "driver, host", "driver",
     "host: collectives go through the host though the driver has communicators (comm/1)."},
    {"NPU_COLLECTIVES_HALVES", Type::kFlag, Group::kCore, kFlagValues, "1 on CUDA, else 0",
     "1: halves are summed as halves where the driver's communicator rounds at every hop: half "
     "the bytes, less exact. 0: in float32."},
    {"NPU_COLLECTIVES_CHECK", Type::kFlag, Group::kCore, kFlagValues, "0",
     "1: all ranks agree on a collective before a driver's communicator gets it; "
     "TORCH_DISTRIBUTED_DEBUG=DETAIL does the same."},
    {"TORCH_DEVICE_BACKEND_AUTOLOAD", Type::kFlag, Group::kCore, kFlagValues, "1",
     "PyTorch's own: 0 keeps `import torch` from loading the plugin."},
    // ---- drivers/host ----
    {"NPU_HOST_DEVICES", Type::kInteger, Group::kHostDriver, "an integer from 1 to 64", "1",
     "How many devices this computer is."},
    {"NPU_HOST_MEMORY", Type::kBytes, Group::kHostDriver, "bytes, such as 512M or 2G",
     "half of the RAM for all, at most 64G each",
     "Capacity of each device."},
    {"NPU_HOST_ASYNC", Type::kFlag, Group::kHostDriver, kFlagValues, "0",
     "Each stream is a worker thread with a real queue."},
    {"NPU_HOST_DELAY_US", Type::kInteger, Group::kHostDriver, "an integer from 0 to 10000000", "0",
     "With NPU_HOST_ASYNC, microseconds every queued item waits first."},
    {"NPU_HOST_QUEUE", Type::kInteger, Group::kHostDriver, "an integer from 0 to 1000000; 0 = any number",
     "1024", "With NPU_HOST_ASYNC, calls that may wait in a stream; a further call blocks until there is room."},
    {"NPU_HOST_PROTECT", Type::kFlag, Group::kHostDriver, kFlagValues, "0",
     "Device memory is inaccessible outside kernels and host_open."},
    {"NPU_HOST_REDZONE", Type::kFlag, Group::kHostDriver, kFlagValues, "0",
     "Bytes after each block are checked when it is freed."},
    {"NPU_HOST_DECLINE", Type::kText, Group::kHostDriver, "<percent>,<seed>", "none",
     "That share of kinds and codes is missing or lacks abilities, to exercise the lower rungs."},
    {"NPU_HOST_ACCESS", Type::kChoice, Group::kHostDriver, "coherent, explicit, none", "coherent",
     "What the driver says about host code touching device memory."},
    {"NPU_HOST_KERNELS", Type::kChoice, Group::kHostDriver, "fast, all",
     "fast; all with NPU_HOST_ASYNC",
     "Which of its kernels are used: those measured to be faster than PyTorch's, or all."},
    {"NPU_HOST_ISA", Type::kChoice, Group::kHostDriver, "baseline, avx2, avx512",
     "the best the CPU has",
     "Instruction set of the kernels."},
    // ---- drivers/null ----
    {"NPU_NULL_ACCEPT", Type::kFlag, Group::kNullDriver, kFlagValues, "0",
     "Every call is accepted and nothing computed, to measure the host side."},
    // ---- drivers/cuda ----
    {"NPU_CUDA_LIBRARIES", Type::kList, Group::kCudaDriver, "folders, separated by ':'", "none",
     "Where cuBLASLt, cuDNN, NVRTC, NCCL and CUPTI are looked for, after PyTorch's own copies."},
    {"NPU_CUDA_KERNELS", Type::kChoice, Group::kCudaDriver, "fast, all",
     "fast with a CUDA build of PyTorch, else all",
     "Which of its kernels are used: those measured to be as fast as PyTorch's, or all."},
    {"NPU_CUDA_TRY", Type::kList, Group::kCudaDriver, "all, program, rows, capture, comm, profiler, separated by ','",
     "none", "Parts of the driver to use although they have not run on a GPU yet."},
    {"NPU_CACHE", Type::kText, Group::kCudaDriver, "a folder",
     "opennpu in XDG_CACHE_HOME or ~/.cache",
     "Where programs that NVRTC compiled are kept, in cuda/."},
    {"CUDA_VISIBLE_DEVICES", Type::kText, Group::kCudaDriver, "numbers or UUIDs, separated by ','",
     "all", "Which GPUs the process sees, in this order, as CUDA reads it."},
    // ---- names of torch_npu and PyTorch that keep working ----
    {"ASCEND_RT_VISIBLE_DEVICES", Type::kText, Group::kAscend, "device numbers, separated by ','",
     "all", "Which devices the process sees, in this order."},
    {"ACL_OP_INIT_MODE", Type::kText, Group::kAscend, "0, 1, 2", "0",
     "When CANN initialises its compiler of operators. Changes nothing here; other values give torch_npu's warning."},
    {"ASCEND_GLOBAL_LOG_LEVEL", Type::kInteger, Group::kAscend, "an integer from 0 to 4", "3",
     "Lowest level logged: 0 debug, 1 info, 2 warning, 3 error, 4 nothing."},
    {"SLOG_PRINT_TO_STDOUT", Type::kFlag, Group::kAscend, kFlagValues, "0",
     "Log lines of all levels go to stdout; without it only errors, to stderr."},
    {"PYTORCH_NPU_ALLOC_CONF", Type::kText, Group::kAscend, "key:value pairs, separated by ','",
     "none", "Options of the caching allocator."},
    {"PYTORCH_ALLOC_CONF", Type::kText, Group::kAscend, "key:value pairs, separated by ','", "none",
     "PyTorch's shared name for the same, used when PYTORCH_NPU_ALLOC_CONF is unset."},
    {"PYTORCH_NO_NPU_MEMORY_CACHING", Type::kFlag, Group::kAscend, kFlagValues, "0",
     "Every allocation goes to the driver."},
    {"STREAMS_PER_DEVICE", Type::kChoice, Group::kAscend, "8, 32", "32",
     "Streams in each device's pool."},
    {"TORCH_NPU_FALLBACK_CPU_DISABLE", Type::kFlag, Group::kAscend, kFlagValues, "0",
     "Operators that would run on the CPU raise."},
    {"TORCH_NPU_COMPACT_ERROR_OUTPUT", Type::kFlag, Group::kAscend, kFlagValues, "0",
     "Errors are one line, without time, rank and code."},
    {"TORCH_NPU_WARNING_DISABLE", Type::kFlag, Group::kAscend, kFlagValues, "0",
     "Warnings of the plugin are not shown."},
    {"TORCH_NPU_DISABLED_WARNING", Type::kFlag, Group::kAscend, kFlagValues, "0",
     "Older name of TORCH_NPU_WARNING_DISABLE."},
    {"TORCH_NPU_DEVICE_CAPABILITY", Type::kText, Group::kAscend, "M.m, such as 9.0", "none",
     "What get_device_capability answers."},
    {"TORCH_NPU_USE_COMPATIBLE_IMPL", Type::kFlag, Group::kAscend, kFlagValues, "0",
     "What are_compatible_impl_enabled answers."},
    {"TORCH_NPU_SANITIZER", Type::kChoice, Group::kAscend, "0, 1, warn", "0",
     "The stream sanitizer: 1 raises at a data race between streams, warn prints it and goes on: docs/tools.md."},
    {"TORCH_TRANSFER_TO_NPU", Type::kFlag, Group::kAscend, kFlagValues, "0",
     "Importing torch_npu also imports torch_npu.contrib.transfer_to_npu."},
    {"TORCHAIR_CACHE_HOME", Type::kText, Group::kAscend, "a folder", ".torchair_cache",
     "Where torchair.inference.cache_compile keeps graphs."},
    {"RANK", Type::kText, Group::kAscend, "a number", "none",
     "The process's rank: shown in errors; only rank 0 warns."},
    {"TORCHELASTIC_RESTART_COUNT", Type::kText, Group::kAscend, "a number", "0",
     "Set by torchrun: keeps a restarted job from reading stale store keys."},
    {"GROUP_WORLD_SIZE", Type::kText, Group::kAscend, "a number", "none",
     "Set by torchrun: how many agents there are. With one, a restart gets a store of its own."},
    {"ASCEND_WORK_PATH", Type::kText, Group::kAscend, "a folder", "the current one",
     "Where torch_npu.profiler writes when no folder is named."},
    {"HCCL_EXEC_TIMEOUT", Type::kText, Group::kAscend, "seconds, from 1 to 2147483", "none",
     "How long a collective may take, where init_process_group and new_group name no timeout."},
    {"TORCH_HCCL_TRACE_BUFFER_SIZE", Type::kInteger, Group::kAscend, "an integer from 0 to 1000000; 0 = none", "2000",
     "How many collectives the flight recorder of a process keeps."},
    {"TORCH_HCCL_DUMP_ON_TIMEOUT", Type::kFlag, Group::kAscend, kFlagValues, "0",
     "1: a rank whose collective failed or timed out writes its flight record."},
    {"TORCH_HCCL_DEBUG_INFO_TEMP_FILE", Type::kText, Group::kAscend, "a path; the rank is appended",
     "/tmp/hccl_trace_rank_", "Where flight records are written."},
    // ---- torch_npu.testing ----
    {"SET_NPU_DEVICE", Type::kText, Group::kTesting, "a device, such as npu:1", "npu:0",
     "The device tests of torch_npu.testing use."},
    {"SEED", Type::kInteger, Group::kTesting, "an integer", "666",
     "Seed of torch_npu.testing's test cases."},
    {"DISABLED_TESTS_FILE", Type::kText, Group::kTesting, "the path of a JSON file", "none",
     "Tests that torch_npu.testing skips."},
    {"PERF_TEST_ENABLE", Type::kFlag, Group::kTesting, kFlagValues, "0",
     "torch_npu.testing compares times with a baseline."},
    {"PERF_BASELINE_FILE", Type::kText, Group::kTesting, "the path of a file", "none",
     "That baseline."},
};
// clang-format on

const char* type_name(Type type) {
  switch (type) {
    case Type::kFlag:
      return "flag";
    case Type::kInteger:
      return "integer";
    case Type::kBytes:
      return "bytes";
    case Type::kChoice:
      return "choice";
    case Type::kText:
      return "text";
    default:
      return "list";
  }
}

[[noreturn]] void refuse(std::string_view name, const std::string& what) {
  throw Error(
      NPU_E_INTERNAL,
      "npu: environment: " + std::string(name) + " " + what +
          ". Mend its row in src/driver/env_table.cpp.");
}

struct Section {
  Group group;
  const char* title;
};
constexpr std::array<Section, 6> kSections = {{
    {Group::kCore, "The plugin"},
    {Group::kHostDriver, "The host driver"},
    {Group::kNullDriver, "The null driver"},
    {Group::kCudaDriver, "The cuda driver"},
    {Group::kAscend, "Names of torch_npu and PyTorch"},
    {Group::kTesting, "torch_npu.testing"},
}};

}  // namespace

std::span<const Variable> table() noexcept {
  return kTable;
}

const Variable* find(std::string_view name) noexcept {
  const auto* const end = std::end(kTable);
  const auto* const found =
      std::find_if(std::begin(kTable), end, [name](const Variable& variable) {
        return name == variable.name;
      });
  return found != end ? found : nullptr;
}

void check_declared(
    std::string_view name, Type type, std::string_view allowed) {
  const Variable* const variable = find(name);
  if (variable == nullptr) {
    refuse(name, "is read but not declared");
  }
  // A list or a choice may be taken as text and parsed by its reader.
  const bool as_text = type == Type::kText;
  if (variable->type != type && !as_text) {
    refuse(
        name,
        std::string("is read as ") + type_name(type) + ", declared as " +
            type_name(variable->type));
  }
  if (!allowed.empty() && allowed != variable->allowed) {
    refuse(
        name,
        "allows '" + std::string(allowed) + "', declared are '" +
            variable->allowed + "'");
  }
}

std::string markdown() {
  std::string text;
  for (const Section& section : kSections) {
    text += std::string(text.empty() ? "" : "\n") + "## " + section.title +
            "\n\n| variable | allowed | default | meaning |\n"
            "|---|---|---|---|\n";
    for (const Variable& variable : kTable) {
      if (variable.group == section.group) {
        text += std::string("| `") + variable.name + "` | " + variable.allowed +
                " | " + variable.otherwise + " | " + variable.meaning + " |\n";
      }
    }
  }
  return text;
}

}  // namespace npu::env
