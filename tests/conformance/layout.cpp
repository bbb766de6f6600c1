// SPDX-License-Identifier: Apache-2.0
// Lays a Case out in memory, runs it, reads it back.
#include "case.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>

#include "block.h"
#include "crash.h"

namespace npu::kit {
namespace {

View view_of(const Operand& operand) {
  return {
      .dtype = operand.dtype,
      .sizes = operand.sizes,
      .strides = operand.strides,
      .offset = operand.offset};
}

// All elements side by side, in some order of dimensions.
bool is_dense(const Operand& operand) {
  std::int64_t reach = 1;
  for (std::size_t d = 0; d < operand.sizes.size(); ++d) {
    reach += (operand.sizes[d] - 1) * operand.strides[d];
    if (operand.strides[d] == 0 && operand.sizes[d] > 1) {
      return false;
    }
  }
  return reach == operand.numel();
}

// A list that is told by addresses and numbers alone: where sizes do not
// matter.
bool dense_list(const Case& value, const std::vector<Operand>& list) {
  if (std::string(value.kind->family) != "lists") {
    return false;
  }
  for (const Operand& each : list) {
    if (!each.present() || each.host_scalar || !view_of(each).contiguous()) {
      return false;
    }
  }
  return true;
}

class Layout {
 public:
  Layout(const Machine& machine, const Case& value)
      : machine_(machine), case_(value) {
    if (machine_.driver == &driver()) {
      stock_.emplace(machine_.device);
      stream_ = stock_->get();
    } else {
      // The oracle is never shut down, nor is its stream.
      static npu_stream only = nullptr;
      if (!only) {
        NPU_EXPECT_OK(machine_.driver->stream->create(0, 0, &only));
      }
      stream_ = only;
    }
  }
  ~Layout() {
    NPU_EXPECT_OK(machine_.driver->stream->synchronize(stream_));
    for (void* each : pinned_) {
      NPU_EXPECT_OK(machine_.driver->memory->host_free(each));
    }
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  Outcome run();

 private:
  struct Placed {
    const Operand* operand;
    Block* block;  // null: host scalar
  };

  void place(const Operand& operand, npu_tensor& tensor);
  npu_call frame(bool counting);
  std::uint32_t n_in() const;
  bool plan(npu_call& call, Outcome& out);
  void execute(npu_call& call, Outcome& out);
  void tune(npu_call& call, const npu_verdict& planned, Outcome& out);
  void* extra(std::uint64_t bytes);
  void* pinned(std::uint64_t bytes);
  void read_back(Outcome& out);
  std::int64_t read_total(Outcome& out);

  const Machine& machine_;
  Case case_;
  std::optional<StockStream> stock_;
  npu_stream stream_ = nullptr;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<Block>> extra_;
  std::vector<void*> pinned_;
  std::vector<std::unique_ptr<Bytes>> scalars_;
  std::vector<Placed> placed_;
  std::vector<npu_tensor> tensors_;
  std::vector<std::vector<npu_tensor>> list_tensors_;
  std::vector<std::vector<void*>> list_data_;
  std::vector<Shape> list_numel_;
  std::vector<npu_list> lists_;
  void* carry_ = nullptr;
  std::uint64_t carry_bytes_ = 0;
};

void Layout::place(const Operand& operand, npu_tensor& tensor) {
  tensor = npu_tensor{};
  if (!operand.present()) {
    return;
  }
  const View view = view_of(operand);
  const std::size_t element = npu_dtype_bytes(operand.dtype);
  tensor.device = machine_.device;
  tensor.numel = operand.numel();
  tensor.dtype = operand.dtype;
  tensor.ndim = static_cast<std::uint16_t>(operand.sizes.size());
  tensor.sizes = operand.sizes.data();
  tensor.strides = operand.strides.data();
  tensor.flags |= view.contiguous() ? NPU_TENSOR_CONTIGUOUS : 0;
  tensor.flags |= is_dense(operand) ? NPU_TENSOR_DENSE : 0;
  if (operand.host_scalar) {
    scalars_.push_back(std::make_unique<Bytes>(element));
    store(operand.dtype, operand.values.at(0), scalars_.back()->data());
    tensor.data = tensor.storage = scalars_.back()->data();
    tensor.storage_bytes = element;
    tensor.flags |= NPU_TENSOR_HOST_SCALAR;
    return;
  }
  Block* block = nullptr;
  if (operand.alias_of >= 0) {
    block = placed_.at(static_cast<std::size_t>(operand.alias_of)).block;
    tensor.flags |= NPU_TENSOR_ALIAS;
    tensor.alias_of = static_cast<std::uint16_t>(operand.alias_of);
  } else {
    const auto extent = static_cast<std::size_t>(view.extent());
    blocks_.push_back(
        std::make_unique<Block>(machine_, stream_, extent * element));
    block = blocks_.back().get();
  }
  for (std::size_t i = 0; i < operand.values.size(); ++i) {
    const auto at = element_offset(view, static_cast<std::int64_t>(i));
    store(
        operand.dtype,
        operand.values[i],
        block->image() + static_cast<std::size_t>(at) * element);
  }
  tensor.storage = block->data();
  tensor.storage_bytes = block->bytes();
  tensor.data = static_cast<std::uint8_t*>(block->data()) +
                static_cast<std::size_t>(operand.offset) * element;
  placed_.push_back({&operand, block});
}

// Inputs of later minors are not counted when absent: a driver built before
// them takes no more than it knows.
std::uint32_t Layout::n_in() const {
  std::uint32_t n = case_.kind->n_in;
  while (n > 0) {
    const std::uint32_t last = case_.kind->n_out + n - 1;
    if (case_.kind->operands[last].cap == 0 ||
        tensors_[last].dtype != NPU_ABSENT) {
      break;
    }
    --n;
  }
  return n;
}

npu_call Layout::frame(bool counting) {
  npu_call call{};
  call.size = frame_bytes(*machine_.driver);
  call.slot = case_.kind->slot;
  call.code = case_.code;
  call.flags = NPU_CALL_INDEX32 & machine_.driver->call_flags_known;
  call.flags |= counting ? NPU_CALL_COUNT : 0u;
  call.flags |= case_.benchmark ? NPU_CALL_BENCHMARK : 0u;
  call.workspace_limit = case_.workspace_limit;
  call.compute_dtype = case_.compute_dtype;
  call.deterministic = case_.deterministic ? 1 : 0;
  call.label = "conformance";
  call.n_out = case_.kind->n_out;
  call.n_in = n_in();
  call.tensors = tensors_.data();
  call.attrs = case_.attrs.empty() ? nullptr : case_.attrs.data();
  call.attr_bytes = static_cast<std::uint32_t>(case_.attrs.size());
  call.n_lists = static_cast<std::uint32_t>(lists_.size());
  call.lists = lists_.data();
  call.rng = case_.rng;
  call.carry = carry_;
  call.carry_bytes = carry_bytes_;
  return call;
}

void* Layout::extra(std::uint64_t bytes) {
  if (bytes == 0) {
    return nullptr;
  }
  extra_.push_back(std::make_unique<Block>(machine_, stream_, bytes));
  extra_.back()->upload();
  return extra_.back()->data();
}

void* Layout::pinned(std::uint64_t bytes) {
  void* out = nullptr;
  if (bytes > 0) {
    NPU_EXPECT_OK(machine_.driver->memory->host_alloc(bytes, &out));
    pinned_.push_back(out);
  }
  return out;
}

bool Layout::plan(npu_call& call, Outcome& out) {
  npu_op_caps caps{};
  caps.size = sizeof(caps);
  const npu_op_table& op = *machine_.driver->op;
  if (op.caps(call.slot, call.code, &caps) != NPU_OK) {
    out.declined = true;
    out.reason = "not declared";
    return false;
  }
  if (caps.plan_use > most_plan_use(*machine_.driver, *case_.kind)) {
    out.broken = "caps: plans depend on more than the kind allows";
  }
  if (caps.plan_use == NPU_PLAN_NONE) {
    return true;
  }
  npu_verdict first{};
  first.size = sizeof(first);
  npu_verdict second = first;
  const npu_status status = op.plan(machine_.device, &call, &first);
  if (status != NPU_OK || op.plan(machine_.device, &call, &second) != NPU_OK) {
    out.broken = "plan fails: " + explain(status);
    return false;
  }
  if (first.answer != second.answer || first.mask != second.mask ||
      first.workspace_bytes != second.workspace_bytes ||
      first.host_workspace_bytes != second.host_workspace_bytes ||
      first.carry_bytes != second.carry_bytes) {
    out.broken = "plan gives two answers to one question";
  }
  const bool moves = call.slot == NPU_KIND_COPY || call.slot == NPU_KIND_FILL;
  if (moves && first.answer > NPU_VERDICT_YES) {
    out.broken = "the plan of copy and fill says yes or no, nothing else";
  }
  if (second.plan && op.release_plan) {
    op.release_plan(second.plan);
  }
  if (first.answer != NPU_VERDICT_YES) {
    out.declined = true;
    out.verdict = first;
    out.reason = "plan answers " + std::to_string(first.answer) + ", reason " +
                 std::to_string(first.reason) + " " + first.detail;
    return false;
  }
  constexpr std::uint64_t kMostWorkspace = std::uint64_t{1} << 30;
  if (first.workspace_bytes > kMostWorkspace ||
      first.host_workspace_bytes > kMostWorkspace) {
    out.broken = "plan asks for a workspace of " +
                 std::to_string(std::max(
                     first.workspace_bytes, first.host_workspace_bytes)) +
                 " bytes for a call this small";
    return false;
  }
  if (first.workspace_bytes > npu_call_workspace_limit(&call)) {
    out.broken = "plan asks for a workspace of " +
                 std::to_string(first.workspace_bytes) +
                 " bytes, and workspace_limit says " +
                 std::to_string(npu_call_workspace_limit(&call));
    return false;
  }
  out.workspace_bytes = first.workspace_bytes;
  call.plan = first.plan;
  call.workspace = extra(first.workspace_bytes);
  call.workspace_bytes = first.workspace_bytes;
  call.host_workspace = pinned(first.host_workspace_bytes);
  call.host_workspace_bytes = first.host_workspace_bytes;
  if ((call.flags & NPU_CALL_COUNT) != 0) {
    carry_ = extra(first.carry_bytes);
    carry_bytes_ = first.carry_bytes;
    call.carry = carry_;
    call.carry_bytes = carry_bytes_;
  }
  if (case_.benchmark && op.tune != nullptr) {
    tune(call, first, out);
  }
  return true;
}

// What the host side does with a call flagged NPU_CALL_BENCHMARK.
void Layout::tune(npu_call& call, const npu_verdict& planned, Outcome& out) {
  const npu_op_table& op = *machine_.driver->op;
  npu_verdict kept = planned;
  const npu_status status = op.tune(stream_, &call, &kept);
  NPU_EXPECT_OK(machine_.driver->stream->synchronize(stream_));
  clear_error();
  if (status != NPU_OK) {
    return;  // the plan stays
  }
  if (kept.answer != NPU_VERDICT_YES) {
    out.broken = "tune takes back the plan's yes";
  }
  if (kept.workspace_bytes > planned.workspace_bytes) {
    out.broken = "tune wants a workspace of " +
                 std::to_string(kept.workspace_bytes) + " bytes, the plan " +
                 std::to_string(planned.workspace_bytes);
    kept.workspace_bytes = planned.workspace_bytes;
  }
  if (kept.plan != planned.plan && planned.plan && op.release_plan) {
    op.release_plan(planned.plan);
  }
  call.plan = kept.plan;
  call.workspace_bytes = kept.workspace_bytes;
}

void Layout::execute(npu_call& call, Outcome& out) {
  char text[256] = "";
  if (npu_call_validate(&call, text, sizeof(text)) != NPU_OK) {
    out.broken = std::string("the kit built a wrong frame: ") + text;
    return;
  }
  if (!plan(call, out) || (machine_.driver == &driver() &&
                           !prepare(machine_.device, call, out.broken))) {
    return;
  }
  NPU_EXPECT_OK(machine_.driver->stream->synchronize(stream_));
  const std::int64_t owned = accounted_bytes(machine_.driver);
  std::uint64_t free_before = 0;
  std::uint64_t free_after = 0;
  std::uint64_t total = 0;
  machine_.driver->device->memory_info(machine_.device, &free_before, &total);
  clear_error();
  out.queued = machine_.driver->op->run(stream_, &call);
  // The frame is the caller's again: queued work must have copied the numbers.
  for (const auto& scalar : scalars_) {
    std::fill(scalar->begin(), scalar->end(), std::uint8_t{0x5A});
  }
  machine_.driver->device->memory_info(machine_.device, &free_after, &total);
  out.done = machine_.driver->stream->synchronize(stream_);
  out.reason = last_error();
  if (free_before != free_after || owned != accounted_bytes(machine_.driver)) {
    out.broken = "run took memory: " +
                 std::to_string(
                     static_cast<std::int64_t>(free_before) -
                     static_cast<std::int64_t>(free_after)) +
                 " bytes of the device, " +
                 std::to_string(accounted_bytes(machine_.driver) - owned) +
                 " bytes of its own";
  }
  if (call.plan && machine_.driver->op->release_plan) {
    machine_.driver->op->release_plan(call.plan);
  }
}

Outcome Layout::run() {
  Outcome out;
  const bool pair = (case_.kind->flags & NPU_KIND_TWO_STEP) != 0;
  for (int step = 0; step < (pair ? 2 : 1) && out.broken.empty(); ++step) {
    const bool counting = pair && step == 0;
    blocks_.clear();
    placed_.clear();
    tensors_.assign(case_.operands.size(), npu_tensor{});
    placed_.reserve(256);
    for (std::size_t i = 0; i < case_.operands.size(); ++i) {
      const Operand& operand = case_.operands[i];
      const std::uint32_t mode = operand.info->mode;
      const bool other_call = (mode == NPU_MODE_COUNT && !counting && pair) ||
                              (mode == NPU_MODE_FILL && counting);
      if (other_call || !operand.present()) {
        // Outputs are found by number: an empty place for those not there.
        placed_.push_back({&operand, nullptr});
        continue;
      }
      place(operand, tensors_[i]);
      if (operand.host_scalar) {
        placed_.push_back({&operand, nullptr});
      }
    }
    for (npu_tensor& tensor : tensors_) {
      tensor.flags &= machine_.driver->tensor_flags_known;
    }
    list_tensors_.clear();
    list_data_.clear();
    list_numel_.clear();
    lists_.clear();
    for (const std::vector<Operand>& list : case_.lists) {
      std::vector<npu_tensor> tensors(list.size());
      std::vector<void*> data;
      Shape numel;
      npu_dtype dtype = NPU_ABSENT;
      for (std::size_t j = 0; j < list.size(); ++j) {
        place(list[j], tensors[j]);
        data.push_back(tensors[j].data);
        numel.push_back(tensors[j].numel);
        dtype = list[j].present() ? list[j].dtype : dtype;
      }
      list_tensors_.push_back(std::move(tensors));
      list_data_.push_back(std::move(data));
      list_numel_.push_back(std::move(numel));
      npu_list row{};
      row.size = sizeof(row);
      row.n = static_cast<std::uint32_t>(list.size());
      row.dtype = dtype;
      row.data = list_data_.back().data();
      row.numel = list_numel_.back().data();
      const bool numbers = !list.empty() && list.front().host_scalar;
      row.flags = numbers ? NPU_TENSOR_HOST_SCALAR : 0u;
      row.tensors = numbers || dense_list(case_, list)
                        ? nullptr
                        : list_tensors_.back().data();
      lists_.push_back(row);
    }
    for (const auto& block : blocks_) {
      block->upload();
    }
    npu_call call = frame(counting);
    execute(call, out);
    if (!out.broken.empty() || out.declined) {
      return out;
    }
    if (out.queued || out.done) {
      break;  // still nothing outside the outputs may have been written
    }
    if (counting) {
      out.total = read_total(out);
      if (!out.broken.empty() || out.total == 0) {
        return out;  // outputs are never empty: there is nothing to fill
      }
      case_.sized(case_, out.total);
    }
  }
  read_back(out);
  return out;
}

std::int64_t Layout::read_total(Outcome& out) {
  for (const Placed& place : placed_) {
    if (place.block && place.operand->info->mode == NPU_MODE_COUNT) {
      place.block->download();
      NPU_EXPECT_OK(machine_.driver->stream->synchronize(stream_));
      std::int64_t total = 0;
      std::memcpy(&total, place.block->result(), sizeof(total));
      if (total < 0 || total > 1000000) {
        out.broken = "count says " + std::to_string(total);
      }
      return total;
    }
  }
  return 0;
}

void Layout::read_back(Outcome& out) {
  for (const auto& block : blocks_) {
    block->download();
  }
  for (const auto& block : extra_) {
    block->download();
  }
  NPU_EXPECT_OK(machine_.driver->stream->synchronize(stream_));
  for (const auto& block : extra_) {
    if (block->changed(std::vector<bool>(block->bytes(), true)) >= 0) {
      out.broken = "a byte outside the workspace was written";
    }
  }
  for (const auto& block : blocks_) {
    std::vector<bool> written(block->bytes(), false);
    for (const Placed& place : placed_) {
      if (place.block != block.get() || !place.operand->is_output()) {
        continue;
      }
      const View view = view_of(*place.operand);
      const std::size_t element = npu_dtype_bytes(view.dtype);
      std::vector<Value> values;
      for (std::int64_t i = 0; i < view.numel(); ++i) {
        const auto at =
            static_cast<std::size_t>(element_offset(view, i)) * element;
        values.push_back(load(view.dtype, block->result() + at));
        std::fill_n(
            written.begin() + static_cast<std::ptrdiff_t>(at), element, true);
      }
      out.values.push_back(std::move(values));
      out.dtypes.push_back(view.dtype);
    }
    const std::int64_t at = block->changed(written);
    if (at >= 0) {
      out.broken = "byte " + std::to_string(at) + " of a memory of " +
                   std::to_string(block->bytes()) +
                   " was written, and is no element of an output";
    }
  }
}

}  // namespace

Outcome run_case(const Machine& machine, const Case& value) {
  if (machine.driver == &driver()) {
    note_case(value.text());
  }
  return Layout(machine, value).run();
}

}  // namespace npu::kit
