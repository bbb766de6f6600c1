// SPDX-License-Identifier: Apache-2.0
// Capture. Arguments are read before the kernel runs, so that what it
// overwrites is what it was; results after. Reading is done by the thread that
// calls (the memory may change as soon as it goes on), writing by the store's.
#include "tools/capture.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <algorithm>
#include <deque>
#include <sstream>

#include "core/call_site.h"
#include "core/engine.h"
#include "core/host_memory.h"
#include "core/records.h"
#include "core/torch_compat.h"
#include "tools/collective.h"

namespace optools {

// What a table of names has been told about, by number.
class ToldNames {
 public:
  // True the first time.
  bool first(uint32_t number) {
    if (number >= told_.size()) {
      told_.resize(number + 256);
    }
    const bool fresh = !told_[number];
    told_[number] = true;
    return fresh;
  }

 private:
  std::vector<bool> told_;
};

namespace {

constexpr const char* kOut = "an out argument";
constexpr const char* kUninitialised = "uninitialised";
constexpr const char* kAsynchronous = "asynchronous";
constexpr const char* kChanged = "changed before the collective was seen done";

CaptureStore::Frame definition(
    std::string_view table,
    uint32_t number,
    std::string_view text,
    std::string_view more) {
  Packer packer;
  packer.array(4);
  packer.text(table);
  packer.natural(number);
  packer.text(text);
  packer.text(more);
  return {FrameKind::kDefinition, packer.take()};
}

// Where a random call draws: its tensors' device, the one it was told, or the
// thread's current one.
c10::Device drawing_device(const Call& call) {
  if (call.device == c10::DeviceType::CPU) {
    return c10::Device(call.device);
  }
  c10::Device found(call.device);
  for (const auto& value : call.inputs()) {
    each_tensor(value, [&](const at::Tensor& t) {
      found = t.device().type() == call.device ? t.device() : found;
    });
    if (value.isDevice() && value.toDevice().type() == call.device) {
      found = value.toDevice();
    }
  }
  return found.has_index() ? found : current_device(call.device);
}

}  // namespace

// A collective that is not done yet.
struct Capture::Pending {
  uint64_t number;
  int64_t step;
  CollectiveWork work;
  std::vector<c10::IValue> inputs;
  std::vector<uint32_t> versions;
};

struct Capture::Local : ToolLocal {
  explicit Local(ThreadState& owner) : ToolLocal(owner) {}
  std::unique_ptr<CaptureValues> values;
  size_t map_at = 0;
  uint32_t pairs = 0;
  std::vector<c10::IValue> inputs;  // of operators that write
  std::vector<CaptureStore::Frame> frames;
  std::deque<Pending> pending;
  ToldNames ops, apis, modules, sites;

  template <size_t size>
  void key(const char (&name)[size]) {
    values->packer.key(name);
    ++pairs;
  }
  template <size_t size>
  void number(const char (&name)[size], int64_t value) {
    key(name);
    values->packer.integer(value);
  }
};

Capture::Capture(
    const std::string& folder,
    const std::map<std::string, std::string>& head,
    const CaptureOptions& options)
    : options_(options), store_(new CaptureStore(folder, options.limits)) {
  Packer packer;
  packer.map(head.size());
  for (const auto& [name, value] : head) {
    packer.text(name);
    packer.text(value);
  }
  store_->add_record({{FrameKind::kHead, packer.take()}}, -1);
  store_->drain();
}

bool Capture::admits(const Call& call) {
  if (!store_->open()) {
    return false;
  }
  return options_.max_calls == 0 ||
         calls_.add(call.op.index) < options_.max_calls;
}

// The frames that say what this record's numbers mean, where this thread has
// not said so before.
void Capture::define(const Call& call, Local& mine) {
  const auto& origin = call.origin;
  if (mine.ops.first(call.op.index)) {
    std::ostringstream schema;
    schema << call.op.handle.schema();
    mine.frames.push_back(
        definition("op", call.op.index, call.op.name, schema.str()));
  }
  if (origin.api != 0 && mine.apis.first(origin.api)) {
    mine.frames.push_back(
        definition("api", origin.api, api_names().name(origin.api), ""));
  }
  if (origin.module != 0 && mine.modules.first(origin.module)) {
    mine.frames.push_back(definition(
        "module", origin.module, module_names().name(origin.module), ""));
  }
  if (origin.site != 0 && mine.sites.first(origin.site)) {
    mine.frames.push_back(
        definition("site", origin.site, site_text(origin.site), ""));
  }
}

void Capture::begin(Call& call, Local& mine) {
  if (!mine.values) {
    mine.values = std::make_unique<CaptureValues>(
        *store_, options_.content, options_.max_tensor_bytes);
  }
  if (!mine.pending.empty()) {
    take_late(mine, false);
  }
  mine.frames.clear();
  mine.inputs.clear();
  mine.pairs = 0;
  define(call, mine);
  auto& values = *mine.values;
  values.forget();
  values.packer.clear();
  mine.map_at = values.packer.open_map();
  mine.number("number", static_cast<int64_t>(call.number));
  mine.number("op", call.op.index);
  mine.number("phase", static_cast<int64_t>(call.phase));
  mine.number("step", call.step);
  mine.number("thread", call.thread.id);
  if (call.sequence >= 0) {
    mine.number("sequence", call.sequence);
    mine.number("sequence_thread", static_cast<int64_t>(call.sequence_thread));
  }
  if (call.origin.number != 0) {
    mine.number("forward", static_cast<int64_t>(call.origin.number));
  }
  if (call.origin.api != 0) {
    mine.number("api", call.origin.api);
    mine.number("api_call", static_cast<int64_t>(call.origin.api_call));
  }
  if (call.origin.module != 0) {
    mine.number("module", call.origin.module);
  }
  if (call.origin.site != 0) {
    mine.number("site", call.origin.site);
  }
  mine.number("start", now_ns());
  if (call.op.random) {
    put_random(call, mine);
  }
  const auto& schema = call.op.handle.schema().arguments();
  const auto inputs = call.inputs();
  mine.key("args");
  values.packer.array(inputs.size());
  const char* skip = only_views(call.op) ? kViewOnly : nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values.put(
        inputs[i],
        schema[i].real_type().get(),
        schema[i].is_out() ? kOut : skip);
  }
  if (call.op.writes || call.op.collective) {
    mine.inputs = inputs.vec();
    values.forget();  // the kernel will change some of it
  }
}

// The state of the generator a random operator is about to use: with it the
// call can be repeated exactly.
void Capture::put_random(Call& call, Local& mine) {
  at::Generator generator;
  for (const auto& value : call.inputs()) {
    if (value.isGenerator() && value.toGenerator().defined()) {
      generator = value.toGenerator();
    }
  }
  Quiet quiet;
  try {
    if (!generator.defined()) {
      generator = at::globalContext().defaultGenerator(drawing_device(call));
    }
    const std::lock_guard lock(generator.mutex());
    const at::Tensor state = generator.get_state();
    mine.key("rng");
    mine.values->put_tensor(state, nullptr);
  } catch (const c10::Error&) {
    // A device whose generator gives no state: the call is recorded without.
  }
}

void Capture::put_outputs(Call& call, Local& mine, const char* skip) {
  mine.key("out");
  const auto outputs = call.outputs();
  mine.values->packer.array(outputs.size());
  for (const auto& value : outputs) {
    mine.values->put(value, nullptr, skip);
  }
}

// Arguments the kernel wrote, unless they are results as well.
void Capture::put_after(Call& call, Local& mine) {
  std::vector<const at::TensorImpl*> returned;
  for (const auto& value : call.outputs()) {
    each_tensor(value, [&](const at::Tensor& t) {
      returned.push_back(t.unsafeGetTensorImpl());
    });
  }
  std::vector<size_t> places;
  for (size_t i = 0; i < mine.inputs.size(); ++i) {
    bool missing = false;
    each_tensor(mine.inputs[i], [&](const at::Tensor& t) {
      missing = missing || std::find(
                               returned.begin(),
                               returned.end(),
                               t.unsafeGetTensorImpl()) == returned.end();
    });
    if (call.op.written[i] && missing) {
      places.push_back(i);
    }
  }
  if (places.empty()) {
    return;
  }
  mine.key("after");
  mine.values->packer.map(places.size());
  for (const size_t i : places) {
    mine.values->packer.natural(i);
    mine.values->put(mine.inputs[i], nullptr, nullptr);
  }
}

void Capture::end(Call& call, Local& mine, const char* error) {
  mine.number("end", now_ns());
  if (error != nullptr) {
    mine.key("raised");
    mine.values->packer.text(error);
  } else {
    const CollectiveWork work(call);
    const char* skip = call.op.uninitialised ? kUninitialised : nullptr;
    skip = only_views(call.op) ? kViewOnly : skip;
    if (work.defined()) {
      Pending late{call.number, call.step, work, mine.inputs, {}};
      if (waits_at_once(call, mine.inputs)) {
        work.wait();
      }
      for (const auto& value : late.inputs) {  // waiting may have copied
        each_tensor(value, [&](const at::Tensor& t) {
          late.versions.push_back(version_of(t));
        });
      }
      mine.pending.push_back(std::move(late));
      skip = kAsynchronous;
    }
    put_outputs(call, mine, skip);
    if (!work.defined() && call.op.writes) {
      put_after(call, mine);
    }
  }
  auto& packer = mine.values->packer;
  packer.close_map(mine.map_at, mine.pairs);
  mine.frames.push_back({FrameKind::kRecord, std::string(packer.bytes())});
  mine.inputs.clear();
  store_->add_record(mine.frames, call.step);
  if (!mine.pending.empty()) {
    take_late(mine, false);
  }
}

// Collectives that are done by now: what their tensors hold, unless other work
// wrote to them in between.
void Capture::take_late(Local& mine, bool last) {
  auto& values = *mine.values;
  while (!mine.pending.empty()) {
    auto& late = mine.pending.front();
    const bool done = late.work.completed();
    if (!done && !last) {
      return;
    }
    values.forget();
    values.packer.clear();
    values.packer.map(2);
    values.packer.text("number");
    values.packer.natural(late.number);
    values.packer.text("after");
    size_t count = 0;
    for (const auto& value : late.inputs) {
      count += holds_tensor(value);
    }
    values.packer.map(count);
    size_t tensor = 0;
    for (size_t i = 0; i < late.inputs.size(); ++i) {
      bool same = true;
      each_tensor(late.inputs[i], [&](const at::Tensor& t) {
        same = same && version_of(t) == late.versions[tensor++];
      });
      if (holds_tensor(late.inputs[i])) {
        values.packer.natural(i);
        values.put(
            late.inputs[i],
            nullptr,
            !done ? kAsynchronous : (same ? nullptr : kChanged));
      }
    }
    store_->add_record({{FrameKind::kLate, values.packer.take()}}, late.step);
    mine.pending.pop_front();
  }
}

void Capture::around(Call& call, Chain& chain) {
  Local* mine = nullptr;
  bool begun = false;
  attempt([&] {
    if (admits(call)) {
      mine = &local<Local>(call);
      begin(call, *mine);
      begun = true;
    }
  });
  if (!begun) {
    chain.run();
    return;
  }
  try {
    chain.run();
  } catch (const std::exception& error) {
    const char* text = error.what();
    attempt([&] { end(call, *mine, *text != 0 ? text : "an exception"); });
    throw;
  } catch (...) {
    attempt([&] { end(call, *mine, "an exception"); });
    throw;
  }
  attempt([&] { end(call, *mine, nullptr); });
}

std::map<std::string, uint64_t> Capture::unread() const {
  std::map<std::string, uint64_t> sum;
  for (auto* each : quiet_locals()) {
    const auto& values = static_cast<Local*>(each)->values;
    if (values) {
      for (const auto& [why, count] : values->unread) {
        sum[std::string(why)] += count;
      }
    }
  }
  return sum;
}

uint64_t Capture::operand_bytes() const {
  uint64_t sum = 0;
  for (auto* each : quiet_locals()) {
    const auto& values = static_cast<Local*>(each)->values;
    sum += values ? values->operand_bytes : 0;
  }
  return sum;
}

void Capture::finish() {
  attempt([&] {
    Quiet quiet;
    for (auto* each : quiet_locals()) {
      auto& mine = static_cast<Local&>(*each);
      if (mine.values) {
        take_late(mine, true);
      }
    }
  });
  store_->drain();
  const auto totals = store_->totals();
  const auto counts = unread();
  Packer packer;
  packer.map(6);
  packer.text("records");
  packer.natural(totals.records);
  packer.text("refused");
  packer.natural(totals.refused);
  packer.text("operand_bytes");
  packer.natural(operand_bytes());
  packer.text("blob_bytes");
  packer.natural(totals.blob_bytes);
  packer.text("unread");
  packer.map(counts.size());
  for (const auto& [why, count] : counts) {
    packer.text(why);
    packer.natural(count);
  }
  packer.text("why");
  packer.text(store_->why_closed());
  store_->close(packer.take());
  release_pool();
}

}  // namespace optools
