// SPDX-License-Identifier: Apache-2.0
// The process group: how it starts, how a job gets to a lane, how it ends.
#include "dist/process_group.h"

#include <torch/csrc/distributed/c10d/debug.h>

#include <algorithm>

#include "driver/env.h"
#include "driver/registry.h"
#include "runtime/capture_state.h"
#include "runtime/device.h"
#include "runtime/sanitizer/sanitizer.h"
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
      state_(std::make_shared<GroupState>()),
      collectives_(std::make_shared<Lane>("npu-collective")) {
  TORCH_CHECK(
      gloo_factory() != nullptr,
      "hccl: import torch_npu.distributed before a process group is made.");
  state_->rank = rank;
  state_->size = size;
  const auto& ranks = options_->global_ranks_in_group;
  state_->global_rank =
      ranks.empty() ? rank
                    : static_cast<int>(ranks[static_cast<std::size_t>(rank)]);
  state_->group = options_->group_name.empty() ? std::string("default")
                                               : options_->group_name;
  state_->gloo = gloo_factory()(store, rank, size, options_);
  const std::string offered = offer_communicator(store, size);
  state_->board = shared_board(store, rank, size);
  // PyTorch's switch, or ours.
  state_->checks_calls = env::flag("NPU_COLLECTIVES_CHECK", false) ||
                         c10d::debug_level() == c10d::DebugLevel::Detail;
  if (size > 1 && !state_->board) {
    state_->store = store->clone();  // a blocked caller holds up its own only
  }
  if (!offered.empty() && store->add("npu/comm/" + offered, 0) == size) {
    state_->comm_table = active_driver().interface<npu_comm_table>();
  }
}

ProcessGroupHccl::~ProcessGroupHccl() = default;

JobPtr ProcessGroupHccl::job(
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
  auto made = std::make_shared<Job>(
      Job{{}, Arguments(example.device().index()), nullptr});
  made->note.type = type;
  made->note.text = std::move(text);
  made->note.timeout = timeout > Milliseconds(0) ? timeout : limit;
  return made;
}

std::optional<Reduction> ProcessGroupHccl::on_driver(
    const Reduction& reduction) const {
  const npu_comm_table* const table = state_->comm_table;
  return table == nullptr
             ? std::nullopt
             : reduction.for_driver(
                   Communicator::reduced_dtypes(*table), table->reductions);
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

void ProcessGroupHccl::check_usable(const Job& job) const {
  TORCH_CHECK_WITH(
      DistBackendError,
      !lanes_are_ending(),
      "hccl: ",
      job.note.text,
      " was asked for while Python ends.");
  TORCH_CHECK_WITH(
      DistBackendError,
      !state_->aborted.load(),
      "hccl: ",
      job.note.text,
      " was asked of a group that was aborted or "
      "destroyed. Make a new one with init_process_group or new_group.");
  refuse_in_capture(
      current_stream(job.arguments.device()), "a call of torch.distributed");
  state_->raise_unseen();
  const std::string dead = state_->failure();
  if (!dead.empty()) {
    throw_backend_error(dead);
  }
}

namespace {

void show_to_sanitizer(const Job& job) {
  const std::vector<at::Tensor> inputs = job.arguments.inputs();
  const std::vector<at::Tensor> outputs = job.arguments.outputs();
  std::vector<sanitizer::Operand> operands;
  for (const at::Tensor& tensor : inputs) {
    operands.push_back({&tensor, false, "an input"});
  }
  for (const at::Tensor& tensor : outputs) {
    operands.push_back({&tensor, true, "an output"});
  }
  sanitizer::on_group_work(
      job.work->progress().get(),
      "hccl: " + job.note.text,
      job.arguments.device(),
      operands);
}

}  // namespace

WorkPtr ProcessGroupHccl::start_on(
    const LanePtr& lane,
    const JobPtr& job,
    Tensors outputs,
    std::function<void()> run) {
  check_usable(*job);
  CallNote& note = job->note;
  note.asked = profiler::ask_for_collective();
  auto flight = flight_call(*job);
  if (job->on_driver) {
    job->arguments.keep_on_device();
  }
  job->arguments.queue();
  HcclWork::About about;
  about.rank = rank_;
  about.type = note.type;
  about.text = note.text;
  about.device = job->arguments.device();
  // After a barrier the host itself goes on.
  about.stream_waits =
      streams_wait_for_host() && note.type != c10d::OpType::BARRIER;
  const std::lock_guard lock(mutex_);
  const bool message = note.is_message();
  note.number = about.number = message ? calls_ : ++calls_;
  flight.number = message ? ++messages_ : calls_;
  flight.matched = message ? ++messages_with_[flight.group.uid] : calls_;
  note.record = FlightRecorder::of_process().scheduled(std::move(flight));
  note.deadline = std::chrono::steady_clock::now() + note.timeout;
  job->work =
      c10::make_intrusive<HcclWork>(std::move(about), std::move(outputs));
  if (sanitizer::finds_races()) {
    show_to_sanitizer(*job);
  }
  const bool queued = job->on_driver && !state_->checks_calls &&
                      lane->is_idle() && state_->queue_directly(*job);
  if (!queued) {
    state_->note(job->work);
    lane->submit(std::move(run));
  }
  if (coalescing_) {
    coalesced_.push_back(job->work);
  }
  return job->work;
}

WorkPtr ProcessGroupHccl::start(const JobPtr& job, Tensors outputs) {
  if (!state_->may_use_driver()) {
    job->on_driver = nullptr;
  }
  return start_on(collectives_, job, std::move(outputs), [state = state_, job] {
    state->run(job, true);
  });
}

WorkPtr ProcessGroupHccl::start_message(
    const JobPtr& job, const at::Tensor& tensor) {
  const int partner = job->note.partner;
  const bool sends = job->note.type == c10d::OpType::SEND;
  const LanePtr on_gloo =
      lane_of(c10::str(sends ? "s" : "r", partner, ".", job->tag));
  const auto run = [state = state_, job] { state->run(job, false); };
  // Communicators know no tags.
  if (!messages_use_driver() || job->tag != 0 || partner < 0) {
    job->on_driver = nullptr;
    return start_on(on_gloo, job, {tensor}, run);
  }
  return start_on(
      lane_of(c10::str("p", partner)),
      job,
      {tensor},
      [state = state_, job, on_gloo, run] {
        if (!state->run_message(*job)) {
          on_gloo->submit(run);
        }
      });
}

ProcessGroupHccl::LanePtr ProcessGroupHccl::lane_of(const std::string& key) {
  const std::lock_guard lock(mutex_);
  auto& lane = lanes_[key];
  if (!lane) {
    lane = std::make_shared<Lane>("npu-" + key);
  }
  return lane;
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
  state_->gloo->setTimeout(timeout);
}

std::uint64_t ProcessGroupHccl::getSequenceNumberForGroup() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void ProcessGroupHccl::setGroupUid(const std::string& uid) {
  Backend::setGroupUid(uid);
  state_->gloo->setGroupUid(uid);
}

void ProcessGroupHccl::abort() {
  state_->aborted.store(true);
  state_->end_flights();
  state_->abort_works();
}

void ProcessGroupHccl::waitForPendingWorks() {
  const double limit = std::chrono::duration<double>(options_->timeout).count();
  collectives_->drain(limit);
  std::vector<LanePtr> lanes;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, lane] : lanes_) {
      lanes.push_back(lane);
    }
  }
  // Lanes of pairs ("p1") give what a driver declines to the others.
  std::stable_partition(lanes.begin(), lanes.end(), [&](const LanePtr& lane) {
    return lane->name().starts_with("npu-p");
  });
  for (const auto& lane : lanes) {
    lane->drain(limit);
  }
  state_->drain_driver(limit);
  state_->drain_callbacks(limit);
}

void ProcessGroupHccl::shutdown() {
  if (state_->failure().empty() && !state_->aborted.load()) {
    waitForPendingWorks();
  }
  abort();
}

// ---- the flight recorder ----
//
// PyTorch's reader compares the entries of all ranks that have one group and
// one number, and expects of each collective what NCCL's recorder writes: lists
// of tensors as one tensor, and the tensor of a broadcast as input and output
// on every rank.

namespace {

using c10d::OpType;
using Operands = FlightRecorder::Operands;

Operands operands_of(const Tensors& tensors) {
  Operands found;
  for (const auto& tensor : tensors) {
    found.sizes.push_back(tensor.sizes().vec());
    found.dtypes.emplace_back(c10::toString(tensor.scalar_type()));
  }
  return found;
}

bool have_one_size(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
    return tensor.sizes() == tensors[0].sizes();
  });
}

// A list as the tensor it would fill: [ranks, sizes...], or its elements.
Operands joined(const Tensors& tensors) {
  Operands found = operands_of({tensors[0]});
  if (have_one_size(tensors)) {
    auto& sizes = found.sizes[0];
    sizes.insert(sizes.begin(), static_cast<std::int64_t>(tensors.size()));
    return found;
  }
  std::int64_t all = 0;
  for (const auto& tensor : tensors) {
    all += tensor.numel();
  }
  found.sizes[0] = {all};
  return found;
}

// The names fr_trace knows.
std::string name_of(OpType type) {
  switch (type) {
    case OpType::BROADCAST:
      return "broadcast";
    case OpType::ALLREDUCE:
      return "all_reduce";
    case OpType::ALLREDUCE_COALESCED:
      return "allreduce_coalesced";
    case OpType::REDUCE:
      return "reduce";
    case OpType::ALLGATHER:
      return "all_gather";
    case OpType::_ALLGATHER_BASE:
      return "_all_gather_base";
    case OpType::GATHER:
      return "gather";
    case OpType::SCATTER:
      return "scatter";
    case OpType::REDUCE_SCATTER:
      return "reduce_scatter";
    case OpType::_REDUCE_SCATTER_BASE:
      return "_reduce_scatter_base";
    case OpType::ALLTOALL_BASE:
    case OpType::ALLTOALL:
      return "all_to_all";
    default:
      return "barrier";
  }
}

// Lists of several sizes: each rank has another input, so the entry says the
// whole, under the name NCCL's recorder has for such a call.
void describe_list(
    const Tensors& list,
    const char* uneven,
    Operands& mine,
    Operands& other,
    std::string& name) {
  mine = joined(list);
  if (!have_one_size(list)) {
    other = mine;
    name = uneven;
  }
}

}  // namespace

FlightRecorder::Group ProcessGroupHccl::flight_group() const {
  FlightRecorder::Group group;
  group.uid = pg_uid_.empty() ? state_->group : pg_uid_;
  group.description = pg_desc_.empty() ? "undefined" : pg_desc_;
  group.ranks = options_->global_ranks_in_group;
  for (int rank = 0; group.ranks.size() < std::size_t(size_); ++rank) {
    group.ranks.push_back(static_cast<std::uint64_t>(rank));
  }
  return group;
}

// A message is a call of two ranks: in the group's own entries the reader would
// miss all others.
void ProcessGroupHccl::describe_message(
    const Job& job, FlightRecorder::Call& call) const {
  call.point_to_point = true;
  const bool sends = job.note.type == OpType::SEND;
  const auto ranks = std::move(call.group.ranks);
  if (job.note.partner < 0) {  // the first to come has no peer to compare with
    call.group.uid += c10::str("/any ", rank_);
    call.group.ranks = {ranks[static_cast<std::size_t>(rank_)]};
    call.name = "recv 0<-0";
    return;
  }
  const int lower = std::min(rank_, job.note.partner);
  const int upper = std::max(rank_, job.note.partner);
  const auto here = rank_ == lower ? 0 : 1;
  call.name = sends ? c10::str("send ", here, "->", 1 - here)
                    : c10::str("recv ", here, "<-", 1 - here);
  const bool upwards = sends == (here == 0);
  call.group.uid += c10::str(upwards ? "/up " : "/down ", lower, "-", upper);
  if (job.tag != 0) {
    call.group.uid += c10::str(" tag ", job.tag);
  }
  call.group.ranks = {
      ranks[static_cast<std::size_t>(lower)],
      ranks[static_cast<std::size_t>(upper)]};
}

FlightRecorder::Call ProcessGroupHccl::flight_call(const Job& job) const {
  FlightRecorder::Call call;
  if (!FlightRecorder::of_process().on()) {
    return call;
  }
  call.group = flight_group();
  call.name = name_of(job.note.type);
  const Tensors inputs = job.arguments.inputs();
  const Tensors outputs = job.arguments.outputs();
  call.inputs = operands_of(inputs);
  call.outputs = operands_of(outputs);
  switch (job.note.type) {
    case OpType::BROADCAST:
    case OpType::REDUCE:  // one tensor, which only some ranks read or write
      call.inputs = call.outputs = inputs.empty() ? call.outputs : call.inputs;
      break;
    case OpType::ALLGATHER:
      describe_list(
          outputs, "_broadcast_oop", call.outputs, call.inputs, call.name);
      break;
    case OpType::REDUCE_SCATTER:
      describe_list(
          inputs, "_reduce_oop", call.inputs, call.outputs, call.name);
      break;
    case OpType::ALLTOALL:
      call.inputs = joined(inputs);
      call.outputs = joined(outputs);
      break;
    case OpType::SEND:
    case OpType::RECV:
    case OpType::RECVANYSOURCE:
      describe_message(job, call);
      break;
    default:
      break;
  }
  call.timeout = job.note.timeout;
  call.stack = FlightRecorder::stack_here();
  return call;
}

}  // namespace npu::dist
