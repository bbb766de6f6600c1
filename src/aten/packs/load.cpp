// SPDX-License-Identifier: Apache-2.0
#include "aten/packs/load.h"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "driver/library_file.h"
#include "driver/services.h"
#include "driver/status.h"
#include "torch_npu/pack.h"

// Of one pack: libraries by namespace and key, and what was asked of them.
struct npu::pack::Registrar::State {
  std::map<std::pair<std::string, c10::DispatchKey>, torch::Library> libraries;
  std::vector<npu::packs::Row> rows;

  torch::Library& fragment(const char* ns) {
    return find_or_make(torch::Library::FRAGMENT, ns, std::nullopt);
  }
  torch::Library& implementations(const char* ns, c10::DispatchKey dispatch) {
    return find_or_make(torch::Library::IMPL, ns, dispatch);
  }

 private:
  torch::Library& find_or_make(
      torch::Library::Kind kind,
      const char* ns,
      std::optional<c10::DispatchKey> dispatch) {
    const auto key = std::make_pair(
        std::string(ns), dispatch.value_or(c10::DispatchKey::Undefined));
    const auto at = libraries.find(key);
    return at != libraries.end()
               ? at->second
               : libraries
                     .emplace(
                         key,
                         torch::Library(kind, ns, dispatch, __FILE__, __LINE__))
                     .first->second;
  }
};

namespace npu::packs {
namespace {

struct All {
  std::mutex mutex;
  std::deque<Loaded> loaded;
  // Registrations of packs live as long as the process.
  std::deque<std::unique_ptr<pack::Registrar::State>> kept;
  std::unordered_map<const c10::OperatorName*, c10::SafeKernelFunction>
      builtins;
};

All& all() {
  static auto* const state = new All;
  return *state;
}

// PyTorch warns that a kernel is overridden, which is what packs are for.
class WithoutOverrideWarning : public c10::WarningHandler {
 public:
  WithoutOverrideWarning() : before_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~WithoutOverrideWarning() override {
    c10::WarningUtils::set_warning_handler(before_);
  }
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("Overriding a previously registered kernel") ==
        std::string::npos) {
      before_->process(warning);
    }
  }

 private:
  c10::WarningHandler* before_;
};

[[noreturn]] void reject(const std::string& path, const std::string& why) {
  throw Error(NPU_E_INVALID, "npu: operator pack '" + path + "': " + why);
}

// "2.13.0" and "2.13.1+cpu" are of one series.
std::string series(std::string_view version) {
  const std::size_t dot = version.find('.');
  return std::string(
      version.substr(0, version.find_first_not_of("0123456789", dot + 1)));
}

const npu_torch_pack& checked(const std::string& path) {
  using Entry = const npu_torch_pack* (*)();
  const auto entry = reinterpret_cast<Entry>(
      open_library(path, "operator pack", NPU_TORCH_PACK_ENTRY));
  const npu_torch_pack* const pack = entry();
  if (pack == nullptr || pack->size < sizeof(npu_torch_pack) ||
      pack->add == nullptr) {
    reject(path, "its entry gives no pack. Build it with opennpu pack build.");
  }
  if (pack->abi != NPU_TORCH_PACK_ABI) {
    reject(
        path,
        "built for version " + std::to_string(pack->abi) +
            " of the pack interface, this opennpu has version " +
            std::to_string(NPU_TORCH_PACK_ABI) +
            ". Build it again with opennpu pack build.");
  }
  if (series(pack->torch_version) != series(TORCH_VERSION)) {
    reject(
        path,
        std::string("built for torch ") + pack->torch_version +
            ", this is torch " + TORCH_VERSION +
            ". Build it again with opennpu pack build.");
  }
  return *pack;
}

// The first sentence of an exception of PyTorch's.
std::string brief(const char* what) {
  const std::string text = what;
  return text.substr(0, text.find('\n'));
}

// What a pack is about to replace, kept for those who want it.
void keep_builtin(const c10::OperatorHandle& op) {
  const std::lock_guard<std::mutex> lock(all().mutex);
  if (!all().builtins.contains(&op.operator_name())) {
    all().builtins.emplace(
        &op.operator_name(),
        op.getComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1));
  }
}

c10::OperatorName name_in(const char* ns, const std::string& overload) {
  const std::size_t dot = overload.find('.');
  return {
      std::string(ns) + "::" + overload.substr(0, dot),
      dot == std::string::npos ? "" : overload.substr(dot + 1)};
}

}  // namespace

const Loaded& load(const std::string& path) {
  const npu_torch_pack& pack = checked(path);
  pack::Registrar registrar;
  try {
    const WithoutOverrideWarning quiet;
    pack.add(registrar);
  } catch (const Error& error) {
    reject(path, error.what());
  } catch (const std::exception& error) {
    reject(path, brief(error.what()));
  }
  const std::lock_guard<std::mutex> lock(all().mutex);
  Loaded& made = all().loaded.emplace_back();
  made.name = pack.name;
  made.path = path;
  made.rows = registrar.state->rows;
  all().kept.push_back(std::move(registrar.state));
  return made;
}

std::vector<Loaded> loaded() {
  const std::lock_guard<std::mutex> lock(all().mutex);
  return {all().loaded.begin(), all().loaded.end()};
}

const c10::SafeKernelFunction* builtin_kernel(const c10::OperatorHandle& op) {
  const std::lock_guard<std::mutex> lock(all().mutex);
  const auto at = all().builtins.find(&op.operator_name());
  return at == all().builtins.end() ? nullptr : &at->second;
}

}  // namespace npu::packs

namespace npu::pack {

struct CallNotes {
  std::mutex mutex;
  std::deque<const CallNote*> notes;

  static CallNotes& all() {
    static auto* const made = new CallNotes;
    return *made;
  }
  static std::uint64_t calls_of(const CallNote& note) {
    return note.calls_.load(std::memory_order_relaxed);
  }
  static const char* overload_of(const CallNote& note) {
    return note.overload_;
  }
};

CallNote::CallNote(const char* overload) : overload_(overload) {
  const std::lock_guard<std::mutex> lock(CallNotes::all().mutex);
  CallNotes::all().notes.push_back(this);
}

void CallNote::operator()() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  if (log_enabled(NPU_LOG_DEBUG)) {
    log(NPU_LOG_DEBUG, std::string("operator pack: ") + overload_);
  }
}

Registrar::Registrar() : state(std::make_unique<State>()) {}
Registrar::~Registrar() = default;

void Registrar::define(const char* ns, const char* schema, const char* where) {
  const std::string text = schema;
  const c10::OperatorName name =
      packs::name_in(ns, text.substr(0, text.find('(')));
  const auto found = c10::Dispatcher::singleton().findSchema(name);
  state->rows.push_back({c10::toString(name), "", where});
  if (!found) {
    state->fragment(ns).def(schema);
    return;
  }
  const c10::FunctionSchema asked =
      torch::jit::parseSchema(std::string(ns) + "::" + text);
  if (c10::toString(asked) != c10::toString(found->schema())) {
    throw Error(
        NPU_E_INVALID,
        std::string(where) + ": operator " + c10::toString(name) +
            " exists with another schema: " + c10::toString(found->schema()) +
            ". Load the pack before it is first used, or call the operator "
            "otherwise.");
  }
}

void Registrar::implement(
    const char* ns,
    const char* overload,
    c10::DispatchKey key,
    torch::CppFunction&& kernel,
    const char* where) {
  const c10::OperatorName name = packs::name_in(ns, overload);
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op) {
    throw Error(
        NPU_E_INVALID,
        std::string(where) + ": this PyTorch has no operator " +
            c10::toString(name) + ". Build the pack again.");
  }
  if (key == c10::DispatchKey::PrivateUse1 && std::strcmp(ns, "aten") == 0) {
    packs::keep_builtin(*op);
  }
  try {
    state->implementations(ns, key).impl(overload, std::move(kernel));
  } catch (const std::exception& error) {
    throw Error(
        NPU_E_INVALID,
        std::string(where) + ": " + c10::toString(name) + ": " +
            packs::brief(error.what()));
  }
  state->rows.push_back({c10::toString(name), c10::toString(key), where});
}

}  // namespace npu::pack

namespace npu::packs {

std::vector<std::pair<std::string, std::uint64_t>> calls() {
  using pack::CallNotes;
  const std::lock_guard<std::mutex> lock(CallNotes::all().mutex);
  std::vector<std::pair<std::string, std::uint64_t>> result;
  for (const pack::CallNote* const note : CallNotes::all().notes) {
    result.emplace_back(
        CallNotes::overload_of(*note), CallNotes::calls_of(*note));
  }
  return result;
}

}  // namespace npu::packs
