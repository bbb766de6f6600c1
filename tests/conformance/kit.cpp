// SPDX-License-Identifier: Apache-2.0
// Loading of the driver under test, and the services the kit gives it.
#include "kit.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "driver/slots.h"

namespace npu::kit {
namespace {

const npu_driver* loaded = nullptr;
const npu_driver* reference = nullptr;
std::string fork_problem;
std::atomic<std::int64_t> subject_bytes{0};
std::atomic<std::int64_t> reference_bytes{0};
std::atomic<int> threads{1};
thread_local std::string error_text;
thread_local bool inside_parallel = false;

npu_status parallel_for(
    std::int64_t n, std::int64_t grain, npu_range_fn fn, void* context) {
  const std::int64_t least = grain > 0 ? grain : 1;
  const std::int64_t pieces =
      std::min<std::int64_t>(threads.load(), (n + least - 1) / least);
  if (inside_parallel || pieces <= 1) {
    return n > 0 ? fn(context, 0, n) : NPU_OK;
  }
  std::atomic<npu_status> result{NPU_OK};
  const auto work = [&](std::int64_t piece) {
    inside_parallel = true;
    const std::int64_t begin = n * piece / pieces;
    const std::int64_t end = n * (piece + 1) / pieces;
    const npu_status status = fn(context, begin, end);
    npu_status none = NPU_OK;
    if (status != NPU_OK) {
      result.compare_exchange_strong(none, status);
    }
    inside_parallel = false;
  };
  std::vector<std::thread> helpers;
  for (std::int64_t piece = 1; piece < pieces; ++piece) {
    helpers.emplace_back(work, piece);
  }
  work(0);
  for (std::thread& helper : helpers) {
    helper.join();
  }
  return result.load();
}

template <std::atomic<std::int64_t>* kBytes>
constexpr npu_host_services make_services() {
  return {
      .size = sizeof(npu_host_services),
      .abi = NPU_ABI,
      .log_level = [] { return static_cast<std::int32_t>(NPU_LOG_ERROR); },
      .log =
          [](std::int32_t, const char* text) {
            std::fprintf(stderr, "driver: %s\n", text);
          },
      .set_error = [](const char* text) { error_text = text ? text : ""; },
      .last_error = [] { return error_text.c_str(); },
      .parallel_for = parallel_for,
      .range_push = [](const char*) {},
      .range_pop = [] {},
      .account = [](npu_device,
                    std::int64_t bytes,
                    const char*) { kBytes->fetch_add(bytes); },
      .stream_worker = [] { inside_parallel = true; },
      .find_driver = nullptr,
  };
}

const npu_host_services kServices = make_services<&subject_bytes>();
const npu_host_services kReferenceServices = make_services<&reference_bytes>();

// Where a driver called by name may lie, in order.
std::vector<std::string> candidates(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return {name};
  }
  const std::string file = "/libnpu_" + name + ".so";
  std::vector<std::string> out;
  const char* path = std::getenv("NPU_DRIVER_PATH");
  std::string rest = path ? path : "";
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    out.push_back(rest.substr(0, colon) + file);
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
  }
  // Installed, the drivers lie beside the kit; in the tree, where it says.
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof(self));
  if (n > 0) {
    const std::string path_of_kit(self, static_cast<std::size_t>(n));
    const std::string folder = path_of_kit.substr(0, path_of_kit.rfind('/'));
    out.push_back(folder + "/../drivers" + file);
  }
  out.push_back(NPU_KIT_DRIVER_DIR + file);
  return out;
}

}  // namespace

namespace {

// What keeps every test from running; the same as the plugin's loader refuses.
std::string wrong_with(const npu_driver& given) {
  if (given.abi >> 16 != NPU_ABI_MAJOR) {
    return "is built for contract " + std::to_string(given.abi >> 16) +
           ".x, the kit judges " + std::to_string(NPU_ABI_MAJOR) + ".x";
  }
  if (given.size < offsetof(npu_driver, get_interface)) {
    return "its npu_driver says size " + std::to_string(given.size) +
           ", at least " + std::to_string(offsetof(npu_driver, get_interface)) +
           " is needed";
  }
  if (!given.name || !*given.name) {
    return "has no name";
  }
  return "";
}

// Copies of the tables, as long as the kit knows them: what lies behind the end
// of an older driver's tables is null. Says which required slots are missing.
std::string copy_tables(const npu_driver& given, DriverTables& tables) {
  std::string missing;
  const auto copy = [&](auto& mine, const auto* table, const char* name) {
    if (!table || table->size < sizeof(void*)) {
      missing += std::string(" ") + name + " (the whole table, or its size)";
    } else {
      copy_struct(mine, table);
    }
  };
  copy_struct(tables.driver, &given);
  copy(tables.device, given.device, "device");
  copy(tables.memory, given.memory, "memory");
  copy(tables.stream, given.stream, "stream");
  copy(tables.event, given.event, "event");
  copy(tables.op, given.op, "op");
  for_each_slot([&, whole = missing.empty()](auto slot) {
    using S = decltype(slot);
    if (whole && S::required && S::in(tables) == nullptr) {
      missing += std::string(" ") + kSlotNames[S::id];
    }
  });
  tables.driver.device = &tables.device;
  tables.driver.memory = &tables.memory;
  tables.driver.stream = &tables.stream;
  tables.driver.event = &tables.event;
  tables.driver.op = &tables.op;
  return missing.empty() ? "" : "required slots are missing:" + missing;
}

// The same for what depends on the devices.
std::string wrong_with_device(const npu_driver& given, npu_device device) {
  npu_device_properties properties{};
  properties.size = sizeof(properties);
  const npu_status status = given.device->properties(device, &properties);
  if (status != NPU_OK) {
    return "properties: " + explain(status);
  }
  if (properties.host_access > NPU_HOST_ACCESS_EXPLICIT) {
    return "host_access is " + std::to_string(properties.host_access) +
           ", which is no NPU_HOST_ACCESS_*";
  }
  const npu_memory_table& memory = *given.memory;
  const bool opens = memory.size > offsetof(npu_memory_table, host_close) &&
                     memory.host_open && memory.host_close;
  return properties.host_access == NPU_HOST_ACCESS_EXPLICIT && !opens
             ? "required slots are missing: memory.host_open "
               "memory.host_close (host access is explicit)"
             : "";
}

// A process that only asked what there is has a child that uses the devices.
std::string wrong_with_early_child(const npu_driver& given) {
  npu_device_properties properties{};
  properties.size = sizeof(properties);
  given.device->properties(0, &properties);
  const pid_t child = fork();
  if (child == 0) {
    void* ptr = nullptr;
    const bool works = given.device->open(0) == NPU_OK &&
                       given.memory->alloc(0, 64, &ptr) == NPU_OK;
    _exit(works ? 0 : 1);
  }
  int result = -1;
  const bool ended = child > 0 && waitpid(child, &result, 0) == child;
  return ended && WIFEXITED(result) && WEXITSTATUS(result) == 0
             ? ""
             : "a child forked after count and properties, before open, cannot "
               "open the device";
}

// Opens the library and its devices.
std::string open_driver(
    const std::string& name,
    const npu_host_services& services,
    const npu_driver*& out) {
  void* library = nullptr;
  std::string tried;
  for (const std::string& path : candidates(name)) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library) {
      break;
    }
    tried += std::string("\n  ") + dlerror();
  }
  if (!library) {
    return "cannot open driver '" + name + "':" + tried;
  }
  auto entry =
      reinterpret_cast<npu_driver_entry_fn>(dlsym(library, NPU_DRIVER_ENTRY));
  if (!entry) {
    return "driver '" + name + "' exports no " NPU_DRIVER_ENTRY;
  }
  const npu_status status = entry(NPU_ABI, &services, &out);
  if (status != NPU_OK) {
    return "driver '" + name + "' does not start: " + explain(status);
  }
  if (!out) {
    return "driver '" + name +
           "': " NPU_DRIVER_ENTRY " answered NPU_OK and left *out NULL";
  }
  std::string wrong = wrong_with(*out);
  if (wrong.empty()) {
    auto* const tables = new DriverTables;  // for ever, as the driver
    wrong = copy_tables(*out, *tables);
    out = &tables->driver;
  }
  if (!wrong.empty()) {
    return "driver '" + name + "': " + wrong;
  }
  std::int32_t count = 0;
  out->device->count(&count);
  if (&out == &loaded) {
    fork_problem = wrong_with_early_child(*out);
  }
  for (npu_device device = 0; device < count; ++device) {
    const std::string missing = wrong_with_device(*out, device);
    if (!missing.empty()) {
      return "device " + std::to_string(device) + ": " + missing;
    }
    const npu_status opened = out->device->open(device);
    if (opened != NPU_OK) {
      return "device " + std::to_string(device) + ": " + explain(opened);
    }
  }
  if (count > 1 && !out->memory->copy_peer) {
    return "driver '" + name +
           "': required slots are missing: memory.copy_peer (there are " +
           std::to_string(count) + " devices)";
  }
  return count > 0 ? "" : "driver '" + name + "' has no device";
}

}  // namespace

std::string load_driver(const std::string& name) {
  return open_driver(name, kServices, loaded);
}

const npu_driver* reference_driver() {
  if (!reference && std::string(loaded->name) == "host") {
    reference = loaded;
  }
  if (!reference) {
    const std::string error =
        open_driver("host", kReferenceServices, reference);
    EXPECT_EQ(error, "") << "the oracle is the host driver";
  }
  return reference;
}

std::int64_t accounted_bytes(const npu_driver* driver) {
  return driver == loaded ? subject_bytes.load() : reference_bytes.load();
}

const npu_driver& driver() {
  return *loaded;
}

const std::string& wrong_with_forked_child() {
  return fork_problem;
}

int device_count() {
  std::int32_t count = 0;
  return driver().device->count(&count) == NPU_OK ? count : 0;
}

npu_device_properties properties(npu_device device) {
  npu_device_properties out{};
  out.size = sizeof(out);
  NPU_EXPECT_OK(device_table().properties(device, &out));
  return out;
}

bool declares(std::uint32_t slot, std::uint32_t code, npu_op_caps* caps) {
  npu_op_caps local{};
  npu_op_caps& out = caps ? *caps : local;
  out = npu_op_caps{};
  out.size = sizeof(out);
  std::uint32_t found = 0;
  return op_table().find(npu_kind_name(slot), &found) == NPU_OK &&
         found == slot && op_table().caps(slot, code, &out) == NPU_OK;
}

bool prepare(npu_device device, const npu_call& call, std::string& broken) {
  const npu_op_table& op = op_table();
  npu_op_caps caps{};
  caps.size = sizeof(caps);
  if (op.prepare == nullptr || op.caps(call.slot, call.code, &caps) != NPU_OK ||
      caps.plan_use != NPU_PLAN_NONE) {
    return true;
  }
  const npu_status status = op.prepare(device, &call);
  if (status != NPU_OK && status != NPU_E_UNSUPPORTED) {
    broken = "prepare fails: " + explain(status);
  }
  clear_error();
  return broken.empty();
}

std::uint32_t frame_bytes(const npu_driver& driver) {
  return (driver.abi & 0xffff) == 0 ? NPU_CALL_BYTES_1_0 : sizeof(npu_call);
}

std::uint32_t most_plan_use(
    const npu_driver& driver, const npu_kind_info& kind) {
  const std::uint32_t minor = driver.abi & 0xffff;
  return minor == 0   ? kind.plan_use_1_0
         : minor == 1 ? kind.plan_use_1_1
                      : kind.plan_use;
}

std::uint64_t taken_dtypes(
    const npu_kind_info& kind, const npu_op_caps& caps, std::size_t place) {
  const std::uint64_t kinds = kind.operands[place].dtypes;
  const std::uint64_t own = place < NPU_MAX_OPERANDS ? caps.dtypes[place] : 0;
  const std::uint64_t any = kinds != 0 ? kinds : ~UINT64_C(0);
  if (own != 0) {
    return own & any;
  }
  return kinds != 0 || caps.dtype_rule == NPU_DTYPES_FREE ? any
                                                          : caps.dtypes[0];
}

const npu_host_services* services() {
  return &kServices;
}

void set_threads(int n) {
  threads.store(n);
}

std::string last_error() {
  return error_text;
}

void clear_error() {
  error_text.clear();
}

std::string explain(npu_status status) {
  static constexpr const char* kNames[] = {
      "ok",
      "not ready",
      "invalid",
      "unsupported",
      "out of memory",
      "earlier work failed",
      "device lost",
      "timeout",
      "shutdown",
      "internal"};
  const bool known = status >= 0 && status <= NPU_E_INTERNAL;
  return std::to_string(status) + " (" + (known ? kNames[status] : "unknown") +
         ") " + error_text;
}

}  // namespace npu::kit
