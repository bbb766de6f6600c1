// SPDX-License-Identifier: Apache-2.0
// Operator packs: loads and checks them, and sends calls to their rows.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "driver/driver.h"
#include "driver/env.h"
#include "driver/library_file.h"
#include "driver/packs.h"
#include "driver/services.h"
#include "driver/status.h"
#include "driver/words.h"
#include "npu/kinds.h"

namespace npu {

namespace {

constexpr std::uint32_t kRowBytes10 = offsetof(npu_op_row, release_plan);

// "vendor.name/1".
bool is_row_name(std::string_view name) {
  const auto word = [](std::string_view text) {
    return !text.empty() &&
           text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") ==
               std::string_view::npos;
  };
  const auto dot = name.find('.');
  const auto slash = name.find('/');
  if (dot == std::string_view::npos || slash == std::string_view::npos ||
      slash < dot) {
    return false;
  }
  const std::string_view version = name.substr(slash + 1);
  return word(name.substr(0, dot)) &&
         word(name.substr(dot + 1, slash - dot - 1)) && !version.empty() &&
         version.find_first_not_of("0123456789") == std::string_view::npos;
}

// A pack that was opened, before its rows are used.
class Pack {
 public:
  Pack(const std::string& path, const char* driver) : path_(path) {
    const auto entry = reinterpret_cast<npu_ops_entry_fn>(
        open_library(path, "operator pack", NPU_OPS_ENTRY));
    host_services()->set_error(nullptr);
    const npu_status status = entry(NPU_ABI, host_services(), driver, &given_);
    if (status == NPU_E_UNSUPPORTED) {
      given_ = nullptr;
    } else if (status != NPU_OK) {
      reject(failure_text(status, "its entry failed"));
    } else if (given_ == nullptr) {
      reject("its entry answered ok but gave no pack. Fix the pack.");
    }
    host_services()->set_error(nullptr);
  }

  bool is_for_driver() const noexcept {
    return given_ != nullptr;
  }

  [[noreturn]] void reject(const std::string& why) const {
    throw Error(NPU_E_INVALID, "npu: operator pack '" + path_ + "': " + why);
  }

  // Copies of the rows, as this host knows them. Throws for the first that is
  // wrong.
  std::vector<npu_op_row> rows() const {
    check_head();
    std::vector<npu_op_row> result;
    for (std::uint32_t i = 0; i < given_->n_rows; ++i) {
      const auto* bytes = reinterpret_cast<const std::byte*>(given_->rows) +
                          std::size_t{i} * given_->row_bytes;
      npu_op_row row{};
      std::uint32_t size = 0;
      std::memcpy(&size, bytes, sizeof(size));
      if (size < kRowBytes10 || size > given_->row_bytes) {
        reject(
            "row " + std::to_string(i) + " says size " + std::to_string(size) +
            ", rows are " + std::to_string(given_->row_bytes) +
            " bytes apart. Set the field 'size'.");
      }
      std::memcpy(&row, bytes, std::min<std::size_t>(size, sizeof(row)));
      row.size = sizeof(row);
      check_row(row, i, result);
      result.push_back(row);
    }
    return result;
  }

 private:
  void check_head() const {
    if (given_->abi >> 16 != NPU_ABI_MAJOR) {
      reject(
          "built for contract " + version_text(given_->abi) +
          ", this host speaks " + version_text(NPU_ABI) +
          ". Rebuild the pack or install a matching opennpu.");
    }
    if (given_->size < sizeof(npu_op_pack)) {
      reject(
          "its npu_op_pack says size " + std::to_string(given_->size) +
          ", at least " + std::to_string(sizeof(npu_op_pack)) +
          " is needed. Set the field 'size'.");
    }
    if (given_->n_rows == 0 || given_->rows == nullptr) {
      reject("has no rows. Give it at least one operator.");
    }
    if (given_->row_bytes < kRowBytes10 ||
        given_->row_bytes % alignof(npu_op_row) != 0) {
      reject(
          "row_bytes is " + std::to_string(given_->row_bytes) +
          ". Set it to sizeof(npu_op_row).");
    }
  }

  void check_row(
      const npu_op_row& row,
      std::uint32_t i,
      const std::vector<npu_op_row>& before) const {
    const std::string name = row.name != nullptr ? row.name : "";
    if (!is_row_name(name)) {
      reject(
          "row " + std::to_string(i) + " is called '" + name +
          "'. Call it vendor.name/1, in lower case.");
    }
    if (row.caps == nullptr || row.run == nullptr) {
      reject("row '" + name + "' has no caps or no run. Fill them in.");
    }
    for (const npu_op_row& other : before) {
      if (name == other.name) {
        reject("row '" + name + "' is there twice.");
      }
    }
    npu_op_caps caps{};
    caps.size = given_->abi % 65536 == 0 ? offsetof(npu_op_caps, dtype_rows)
                                         : sizeof(caps);
    if (row.caps(0, &caps) != NPU_OK) {
      reject(
          failure_text(NPU_E_INVALID, ("caps of row '" + name + "'").c_str()));
    }
    if (caps.plan_use != NPU_PLAN_NONE && row.plan == nullptr) {
      reject(
          "row '" + name +
          "' has no plan, which its caps ask for. Fill it in, or say "
          "NPU_PLAN_NONE.");
    }
  }

  const std::string& path_;
  const npu_op_pack* given_ = nullptr;
};

}  // namespace

bool Driver::add_pack(const std::string& path) {
  if (forked_child()) {
    throw Error(
        NPU_E_SHUTDOWN,
        "npu: operator pack '" + path +
            "': cannot be loaded in a forked child. Use the 'spawn' start "
            "method.");
  }
  const Pack pack(path, name());
  if (!pack.is_for_driver()) {
    return false;
  }
  const std::vector<npu_op_row> rows = pack.rows();
  const std::lock_guard<std::mutex> lock(pack_mutex_);
  for (const npu_op_row& row : rows) {
    std::uint32_t slot = 0;
    const bool has =
        find_row(row.name) != 0 || tables_.op.find(row.name, &slot) == NPU_OK;
    host_services()->set_error(nullptr);
    if (has) {
      pack.reject(
          "row '" + std::string(row.name) + "' exists already in " +
          identity() + " or in another pack. Load one of them.");
    }
  }
  if (rows.size() > kMaxRows - n_rows_) {
    pack.reject(
        "more than " + std::to_string(kMaxRows) + " rows of packs in all.");
  }
  for (const npu_op_row& row : rows) {
    add_row(row);
  }
  if (log_enabled(NPU_LOG_INFO)) {
    log(NPU_LOG_INFO,
        "operator pack " + path + ": " + std::to_string(rows.size()) +
            " operators for " + identity());
  }
  return true;
}

void Driver::add_row(const npu_op_row& row) noexcept {
  const std::uint32_t n = n_rows_.load(std::memory_order_relaxed);
  rows_[n] = std::make_unique<const npu_op_row>(row);
  n_rows_.store(n + 1, std::memory_order_release);
}

const npu_op_row* Driver::row(std::uint32_t slot) const noexcept {
  const std::uint32_t n = n_rows_.load(std::memory_order_acquire);
  return slot >= NPU_FIRST_PACK_SLOT && slot - NPU_FIRST_PACK_SLOT < n
             ? rows_[slot - NPU_FIRST_PACK_SLOT].get()
             : nullptr;
}

std::uint32_t Driver::find_row(const char* name) const noexcept {
  const std::uint32_t n = n_rows_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (std::strcmp(rows_[i]->name, name) == 0) {
      return NPU_FIRST_PACK_SLOT + i;
    }
  }
  return 0;
}

std::uint32_t Driver::find(const char* name) const {
  if (const std::uint32_t standard = npu_kind_find(name); standard != 0) {
    return has_kind(standard) ? standard : 0;
  }
  if (const std::uint32_t slot = find_row(name); slot != 0) {
    return slot;
  }
  std::uint32_t slot = 0;
  const bool found = tables_.op.find(name, &slot) == NPU_OK &&
                     slot >= NPU_FIRST_VENDOR_SLOT &&
                     slot < NPU_FIRST_PACK_SLOT;
  host_services()->set_error(nullptr);
  return found ? slot : 0;
}

// ---- calls of rows ----

namespace {

npu_status no_row(std::uint32_t slot) {
  host_services()->set_error(
      ("no operator pack has slot " + std::to_string(slot)).c_str());
  return NPU_E_UNSUPPORTED;
}

// A row reads attr_bytes of attributes without looking.
npu_status check_attrs(const npu_op_row& row, const npu_call& call) {
  if (call.attr_bytes == row.attr_bytes) {
    return NPU_OK;
  }
  host_services()->set_error((std::string(row.name) + ": the call has " +
                              std::to_string(call.attr_bytes) +
                              " bytes of attributes, the row takes " +
                              std::to_string(row.attr_bytes))
                                 .c_str());
  return NPU_E_INVALID;
}

}  // namespace

npu_status Driver::plan(
    npu_device device, const npu_call& call, npu_verdict& verdict) const {
  if (call.slot < NPU_FIRST_PACK_SLOT) {
    return tables_.op.plan(device, &call, &verdict);
  }
  const npu_op_row* found = row(call.slot);
  if (found == nullptr || found->plan == nullptr) {
    return no_row(call.slot);
  }
  const npu_status status = check_attrs(*found, call);
  return status != NPU_OK ? status : found->plan(device, &call, &verdict);
}

npu_status Driver::run_row(npu_stream stream, const npu_call& call) const {
  const npu_op_row* found = row(call.slot);
  if (found == nullptr) {
    return no_row(call.slot);
  }
  if (const npu_status status = check_attrs(*found, call); status != NPU_OK) {
    return status;
  }
  // A kernel for the processor is a function that is done when it returns: what
  // it reads must have been written.
  if (calls_pack_kernels() && queues_work()) {
    if (const npu_status status = tables_.stream.synchronize(stream);
        status != NPU_OK) {
      return status;
    }
  }
  return run_kernel_of_pack(stream, *found, call);
}

void Driver::release_plan(std::uint32_t slot, void* plan) const noexcept {
  if (slot < NPU_FIRST_PACK_SLOT) {
    tables_.op.release_plan(plan);
  } else if (const npu_op_row* found = row(slot);
             found != nullptr && found->release_plan != nullptr) {
    found->release_plan(plan);
  }
}

namespace {

std::mutex& files_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}
std::vector<std::string>& installed_files() {
  static auto* const files = new std::vector<std::string>;
  return *files;
}

}  // namespace

void add_pack_file(const std::string& path) {
  const std::lock_guard<std::mutex> lock(files_mutex());
  installed_files().push_back(path);
}

void load_packs(Driver& driver) {
  std::vector<std::string> paths =
      split(env::text("NPU_OP_PACKS").value_or(""), ':');
  {
    const std::lock_guard<std::mutex> lock(files_mutex());
    paths.insert(
        paths.end(), installed_files().begin(), installed_files().end());
  }
  for (const std::string& path : paths) {
    try {
      if (!driver.add_pack(path) && log_enabled(NPU_LOG_INFO)) {
        log(NPU_LOG_INFO,
            "operator pack " + path + " has nothing for driver '" +
                driver.name() + "'");
      }
    } catch (const Error& error) {
      log(NPU_LOG_ERROR, std::string(error.what()) + " The pack is left out.");
    }
  }
}

}  // namespace npu
