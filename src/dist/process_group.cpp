// SPDX-License-Identifier: Apache-2.0
// The process group: how it starts, how a job gets to a lane, how it ends.
#include "dist/process_group.h"

#include <ATen/record_function.h>

#include <algorithm>

#include "dist/shared.h"
#include "driver/registry.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace npu::dist {
namespace {

ProcessGroupHccl::GlooFactory& gloo_factory() {
  static auto* made = new ProcessGroupHccl::GlooFactory;
  return *made;
}

// Rank 0 makes the board; all use it or none, since both sides of a meeting
// must be the same.
std::unique_ptr<Board> shared_board(const StorePtr& store, int rank, int size) {
  if (size == 1) {
    return nullptr;
  }
  std::unique_ptr<Board> board;
  if (rank == 0) {
    board = Board::make(size);
    store->set("npu/board", board ? board->address() : std::string("none"));
  } else {
    board = Board::open(store->get_to_str("npu/board"), size);
  }
  if (board) {
    board->join(rank);
  }
  const auto opened = store->add("npu/board/opened", board ? 1 : 0);
  const auto asked = store->add("npu/board/asked", 1);
  if (asked == size) {
    // The last one sees how many have it.
    const auto all = store->add("npu/board/opened", 0);
    store->set(
        "npu/board/all", all == size ? std::string("yes") : std::string("no"));
  }
  static_cast<void>(opened);
  return store->get_to_str("npu/board/all") == "yes" ? std::move(board)
                                                     : nullptr;
}

// Whether all ranks have communicators of one kind. Comes before the board,
// whose making every rank waits for.
std::string offer_communicator(const StorePtr& store, int size) {
  std::string offered = size > 1 ? Communicator::offered() : "";
  if (!offered.empty()) {
    store->add("npu/comm/" + offered, 1);
  }
  return offered;
}

}  // namespace

void ProcessGroupHccl::set_gloo_factory(GlooFactory factory) {
  gloo_factory() = std::move(factory);
}

ProcessGroupHccl::ProcessGroupHccl(
    const StorePtr& store, int rank, int size, OptionsPtr options)
    : Backend(rank, size),
      options_(std::move(options)),
      shared_(std::make_shared<Shared>()),
      collectives_(std::make_unique<Lane>("npu-collective")) {
  TORCH_CHECK(
      gloo_factory() != nullptr,
      "hccl: import torch_npu.distributed before a process group is made.");
  shared_->rank = rank;
  shared_->size = size;
  const auto& ranks = options_->global_ranks_in_group;
  shared_->global_rank =
      ranks.empty() ? rank
                    : static_cast<int>(ranks[static_cast<std::size_t>(rank)]);
  shared_->group = options_->group_name.empty() ? std::string("default")
                                                : options_->group_name;
  shared_->gloo = gloo_factory()(store, rank, size, options_);
  const std::string offered = offer_communicator(store, size);
  shared_->board = shared_board(store, rank, size);
  if (!offered.empty() && store->add("npu/comm/" + offered, 0) == size) {
    shared_->comm_table = active_driver().interface<npu_comm_table>();
  }
}

ProcessGroupHccl::~ProcessGroupHccl() = default;

ProcessGroupHccl::JobPtr ProcessGroupHccl::job(
    c10d::OpType type,
    std::string text,
    const at::Tensor& example,
    Milliseconds timeout) const {
  TORCH_CHECK_VALUE(
      example.device().type() == kDeviceType,
      "hccl: ",
      text,
      " got a tensor on ",
      example.device(),
      "; this backend moves npu tensors. For cpu tensors make the group with "
      "backend \"cpu:gloo,npu:hccl\".");
  const auto limit = options_->op_timeout != 0
                         ? Milliseconds(options_->op_timeout * 1000)
                         : options_->timeout;
  return std::make_shared<Job>(
      Job{type,
          std::move(text),
          Arguments(example.device().index()),
          {},
          timeout > Milliseconds(0) ? timeout : limit,
          nullptr,
          {},
          nullptr});
}

std::optional<Reduction> ProcessGroupHccl::on_driver(
    const Reduction& reduction) const {
  const npu_comm_table* const table = shared_->comm_table;
  return table == nullptr
             ? std::nullopt
             : reduction.for_driver(table->dtypes, table->reductions);
}

std::optional<std::vector<Reduction>> ProcessGroupHccl::all_on_driver(
    const std::vector<Reduction>& reductions) const {
  std::vector<Reduction> found;
  for (const auto& reduction : reductions) {
    const auto native = on_driver(reduction);
    if (!native) {
      return std::nullopt;
    }
    found.push_back(*native);
  }
  return found;
}

WorkPtr ProcessGroupHccl::start_on(
    Lane& lane, const JobPtr& job, Tensors outputs, bool meet) {
  TORCH_CHECK_WITH(
      DistBackendError,
      !lanes_are_ending(),
      "hccl: ",
      job->text,
      " was asked for while Python ends.");
  TORCH_CHECK_WITH(
      DistBackendError,
      !shared_->aborted.load(),
      "hccl: ",
      job->text,
      " was asked of a group that was aborted or "
      "destroyed. Make a new one with init_process_group or new_group.");
  shared_->raise_unseen();
  const std::string dead = shared_->failure();
  if (!dead.empty()) {
    throw_backend_error(dead);
  }
  job->asked = profiler::ask_for_collective();
  auto flight = flight_call(*job);
  if (shared_->comm_table == nullptr) {
    job->on_driver = nullptr;
  } else if (job->on_driver && shared_->may_use_driver()) {
    job->arguments.keep_on_device();
  }
  job->arguments.queue();
  HcclWork::About about;
  about.rank = rank_;
  about.type = job->type;
  about.text = job->text;
  about.device = job->arguments.device();
  // After a barrier the host itself goes on.
  about.stream_waits =
      !active_driver().runs_inline() && job->type != c10d::OpType::BARRIER;
  const std::lock_guard lock(mutex_);
  about.number = meet ? ++calls_ : calls_;
  flight.number = meet ? calls_ : ++messages_;
  flight.matched = meet ? calls_ : ++messages_with_[flight.group.uid];
  job->record = FlightRecorder::of_process().scheduled(std::move(flight));
  job->work =
      c10::make_intrusive<HcclWork>(std::move(about), std::move(outputs));
  job->deadline = std::chrono::steady_clock::now() + job->timeout;
  shared_->note(job->work);
  lane.submit([shared = shared_, job, meet] { shared->run(*job, meet); });
  if (coalescing_) {
    coalesced_.push_back(job->work);
  }
  return job->work;
}

WorkPtr ProcessGroupHccl::start(const JobPtr& job, Tensors outputs) {
  return start_on(*collectives_, job, std::move(outputs), true);
}

Lane& ProcessGroupHccl::lane_of(const std::string& key) {
  const std::lock_guard lock(mutex_);
  auto& lane = lanes_[key];
  if (!lane) {
    lane = std::make_unique<Lane>("npu-" + key);
  }
  return *lane;
}

// ---- coalescing ----

namespace {

// Done when each of several is.
class AllOf : public c10d::Work {
 public:
  explicit AllOf(std::vector<WorkPtr> works) : works_(std::move(works)) {}
  bool isCompleted() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) {
      return work->isCompleted();
    });
  }
  bool isSuccess() const override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) {
      return work->isSuccess();
    });
  }
  bool wait(Milliseconds timeout) override {
    for (const auto& work : works_) {
      work->wait(timeout);
    }
    return true;
  }
  void synchronize() override {
    for (const auto& work : works_) {
      work->synchronize();
    }
  }

 private:
  std::vector<WorkPtr> works_;
};

}  // namespace

void ProcessGroupHccl::startCoalescing() {
  const std::lock_guard lock(mutex_);
  coalescing_ = true;
  coalesced_.clear();
}

WorkPtr ProcessGroupHccl::endCoalescing() {
  const std::lock_guard lock(mutex_);
  coalescing_ = false;
  return c10::make_intrusive<AllOf>(std::move(coalesced_));
}

// ---- the group ----

BackendPtr ProcessGroupHccl::split(
    const StorePtr& store,
    const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto at = std::find(ranks.begin(), ranks.end(), rank_);
  if (at == ranks.end()) {
    return nullptr;
  }
  auto own = c10::make_intrusive<Options>(options_->backend, options->timeout);
  own->group_name = options->group_name;
  own->group_desc = options->group_desc;
  own->global_ranks_in_group = options->global_ranks_in_group;
  own->op_timeout = options_->op_timeout;
  return c10::make_intrusive<ProcessGroupHccl>(
      store,
      static_cast<int>(at - ranks.begin()),
      static_cast<int>(ranks.size()),
      own);
}

void ProcessGroupHccl::setTimeout(Milliseconds timeout) {
  options_->timeout = timeout;
  shared_->gloo->setTimeout(timeout);
}

std::uint64_t ProcessGroupHccl::getSequenceNumberForGroup() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void ProcessGroupHccl::setGroupUid(const std::string& uid) {
  Backend::setGroupUid(uid);
  shared_->gloo->setGroupUid(uid);
}

void ProcessGroupHccl::abort() {
  shared_->aborted.store(true);
  shared_->abort_driver();
  for (const auto& work : shared_->pending()) {
    work->abort();
  }
}

void ProcessGroupHccl::waitForPendingWorks() {
  const double limit = std::chrono::duration<double>(options_->timeout).count();
  collectives_->drain(limit);
  const std::lock_guard lock(mutex_);
  for (const auto& [key, lane] : lanes_) {
    lane->drain(limit);
  }
  shared_->drain_callbacks(limit);
}

void ProcessGroupHccl::shutdown() {
  if (shared_->failure().empty() && !shared_->aborted.load()) {
    waitForPendingWorks();
  }
  abort();
}

}  // namespace npu::dist
