// SPDX-License-Identifier: Apache-2.0
// A driver's communicator (comm/1) of one group.
#include "dist/communicator.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include "dist/checks.h"
#include "driver/env.h"
#include "driver/registry.h"
#include "driver/services.h"
#include "runtime/capabilities.h"
#include "runtime/device.h"
#include "runtime/external_stream.h"
#include "runtime/stream.h"

namespace npu::dist {
namespace {

using std::chrono::steady_clock;

const npu_comm_table* table_of_driver() {
  return active_driver().interface<npu_comm_table>();
}

// What the driver said last on this thread.
std::string words_of_driver(const char* what, npu_status status) {
  const char* const text = host_services()->last_error();
  std::string said = text != nullptr ? text : "";
  host_services()->set_error(nullptr);
  return std::string(what) + " answers " + std::to_string(status) +
         (said.empty() ? "." : ": " + said);
}

// Sleeps a little more each time: most operations are over at once, and a core
// may be what the others wait for.
class Pause {
 public:
  void operator()() {
    const int n = ++times_;
    if (n < 50) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(
          std::chrono::microseconds(std::min(20 * (n - 49), 500)));
    }
  }

 private:
  int times_ = 0;
};

}  // namespace

std::uint64_t Communicator::reduced_dtypes(const npu_comm_table& table) {
  // On CUDA as PyTorch's own collectives: NCCL sums halves as halves.
  static const bool halves =
      env::flag("NPU_COLLECTIVES_HALVES", platform() == Platform::kCuda);
  return table.dtypes | (halves ? table.dtypes_per_hop : 0);
}

std::string Communicator::offered() {
  if (env::choice("NPU_COLLECTIVES", {"driver", "host"}, 0) == 1) {
    return "";
  }
  const npu_comm_table* const table = table_of_driver();
  if (table == nullptr) {
    return "";
  }
  const npu_driver& driver = active_driver().table();
  std::ostringstream text;
  text << driver.name << " " << (driver.version ? driver.version : "") << " "
       << table->id_bytes << " " << std::hex << reduced_dtypes(*table) << " "
       << table->reductions;
  return text.str();
}

Communicator::Communicator(
    const npu_comm_table& table, c10::Stream stream, std::string group)
    : table_(table), stream_(stream), group_(std::move(group)) {}

npu_status Communicator::init(
    const Place& place, const void* id, std::uint32_t limit) {
  npu_comm_config config{};
  config.size = sizeof(config);
  config.timeout_ms = limit;
  config.name = group_.c_str();
  npu_comm made = nullptr;
  const npu_status status = table_.init(
      id, place.rank, place.size, driver_device(place.device), &config, &made);
  comm_.store(status == NPU_OK ? made : nullptr);
  return status;
}

void Communicator::wait_until_ready(const Watch& watch) const {
  Pause pause;
  npu_status status = NPU_NOT_READY;
  while ((status = table_.state(comm_.load())) == NPU_NOT_READY) {
    watch();
    pause();
  }
  TORCH_CHECK(status == NPU_OK, words_of_driver("comm/1 state", status));
}

std::shared_ptr<Communicator> Communicator::make(
    const Place& place,
    Agreement& agreement,
    steady_clock::time_point deadline,
    const Watch& watch) {
  const npu_comm_table& table = *table_of_driver();
  const auto stream = lend_stream(place.device);
  std::string wrong;
  // The id, behind a byte that says whether there is one.
  at::Tensor id =
      at::zeros({static_cast<int64_t>(table.id_bytes) + 1}, at::kByte);
  auto* const bytes = id.mutable_data_ptr<std::uint8_t>();
  if (place.rank == 0) {
    const npu_status status = table.make_id(bytes + 1);
    bytes[0] = status == NPU_OK;
    wrong = bytes[0] ? "" : words_of_driver("comm/1 make_id", status);
  }
  agreement.share(id);
  if (!stream) {
    wrong = "no stream is left for it.";
  } else if (bytes[0] == 0 && wrong.empty()) {
    wrong = "rank 0 could not make an id.";
  }
  std::shared_ptr<Communicator> made;
  if (wrong.empty()) {
    made.reset(new Communicator(table, *stream, place.group));
    const auto limit = static_cast<std::uint32_t>(
        std::min<std::int64_t>(time_left(deadline).count(), INT32_MAX));
    const npu_status status = made->init(place, bytes + 1, limit);
    wrong = status == NPU_OK ? "" : words_of_driver("comm/1 init", status);
  } else if (stream) {
    take_back_stream(*stream);
  }
  // First all have joined or none waits for the others.
  bool all = agreement.all_say(wrong.empty());
  if (all) {
    try {
      made->wait_until_ready(watch);
    } catch (const c10::Error& error) {
      made->abort();
      if (dynamic_cast<const c10::DistBackendError*>(&error) != nullptr) {
        throw;  // a rank is lost, or there is no time left
      }
      wrong = error.what_without_backtrace();
    }
    all = agreement.all_say(wrong.empty());
  }
  if (!all) {
    log(NPU_LOG_WARNING,
        "npu: hccl: group " + place.group +
            ": collectives go through the host, the driver's communicator is "
            "not used: " +
            (wrong.empty() ? "another rank has none." : wrong));
    if (made) {
      made->abort();
    }
    return nullptr;
  }
  return made;
}

Communicator::~Communicator() {
  // A driver that has shut down, or the parent's in a forked child, is not
  // asked any more.
  const npu_comm comm = comm_.exchange(nullptr);
  if (comm != nullptr && is_initialized() && table_.destroy(comm) != NPU_OK) {
    log(NPU_LOG_WARNING,
        "npu: hccl: " + words_of_driver("comm/1 destroy", NPU_E_INTERNAL));
  }
  if (!stuck_.load()) {
    take_back_stream(stream_);
  }
}

bool Communicator::queue(const std::function<npu_status(const Call&)>& work) {
  const std::unique_lock lock(mutex_);
  const npu_comm comm = comm_.load();
  TORCH_CHECK(comm != nullptr, "it was aborted.");
  const npu_status status = work({table_, comm, stream_handle(stream_)});
  if (status == NPU_E_UNSUPPORTED) {
    host_services()->set_error(nullptr);
    return false;
  }
  TORCH_CHECK(status == NPU_OK, words_of_driver("comm/1", status));
  return true;
}

void Communicator::check() const {
  {
    const std::unique_lock lock(mutex_, std::chrono::milliseconds(100));
    const npu_comm comm = comm_.load();
    TORCH_CHECK(comm != nullptr, "it was aborted.");
    // Without the lock the thread that queues is inside the driver; later then.
    const npu_status status = lock ? table_.state(comm) : NPU_OK;
    TORCH_CHECK(status == NPU_OK, words_of_driver("comm/1 state", status));
  }
  query_stream(stream_);
}

void Communicator::abort() noexcept {
  // A driver that is stuck while it queues has to bear an abort all the same.
  const std::unique_lock lock(mutex_, std::chrono::seconds(1));
  const npu_comm comm = comm_.exchange(nullptr);
  if (comm != nullptr && table_.abort(comm) != NPU_OK) {
    host_services()->set_error(nullptr);
  }
}

void Communicator::await_end() noexcept {
  const auto until = steady_clock::now() + std::chrono::seconds(2);
  while (steady_clock::now() < until) {
    try {
      if (query_stream(stream_)) {
        return;
      }
    } catch (const std::exception&) {
      continue;  // what it ended is reported once
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  stuck_.store(true);
  log(NPU_LOG_ERROR,
      "npu: hccl: group " + group_ +
          ": the driver did not end an operation that was aborted. Memory of "
          "it is kept.");
}

}  // namespace npu::dist
