// SPDX-License-Identifier: Apache-2.0
// Compare. Around the kernel only copies are made: of inputs before it (it may
// write them), of results after it. The rest is the queue's.
#include "tools/compare.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/host_memory.h"
#include "core/names.h"
#include "core/scan.h"
#include "core/tensor_bytes.h"
#include "core/values.h"
#include "tools/snapshot.h"
#include "tools/tolerances.h"
#include "tools/view_check.h"

namespace optools {
// What is known of an operator before any call.
struct Compare::Profile {
  OperatorRule rule;
  const char* no_reference = nullptr;  // why there can be none
  // By return: the argument it is written into; -1 for a new tensor.
  std::vector<int> written_into;
  std::vector<bool> written;  // by argument
  bool writes;

  explicit Profile(const Operator& op);
  const char* obstacle(const Call& call) const;
};

Compare::Profile::Profile(const Operator& op)
    : rule(rule_of(op)),
      no_reference(optools::no_reference(op, rule)),
      written(op.written),
      writes(op.writes) {
  const auto& schema = op.handle.schema();
  for (const auto& result : schema.returns()) {
    int into = -1;
    const auto* alias = result.alias_info();
    for (size_t i = 0; alias != nullptr && i < op.arguments; ++i) {
      const auto* other = schema.arguments()[i].alias_info();
      if (other != nullptr && other->isWrite() && alias->isWrite() &&
          other->beforeSets() == alias->beforeSets()) {
        into = static_cast<int>(i);
      }
    }
    written_into.push_back(into);
  }
  // Which PyTorch's schema does not say.
  if (base_name(op).find("batch_norm") != std::string::npos) {
    for (size_t i = 0; i < op.arguments; ++i) {
      const auto& name = schema.arguments()[i].name();
      if (name == "running_mean" || name == "running_var") {
        written[i] = writes = true;
      }
    }
  }
}

const char* Compare::Profile::obstacle(const Call& call) const {
  if (rule.rule == Rule::kNotJudged) {
    return rule.why_not;
  }
  if (!call.op.is_view && no_reference != nullptr) {
    return no_reference;
  }
  const char* why = nullptr;
  for (const auto& value : call.inputs()) {
    each_tensor(value, [&](const at::Tensor& t) {
      if (why == nullptr) {
        why = call.op.is_view ? unreadable(t) : unreadable_now(t);
      }
      // Tensors that a compiler traces with are of a device, and of no values.
      if (why != nullptr && t.is_meta()) {
        why = "computes nothing: its tensors have no values";
      }
    });
  }
  return why;
}

namespace {

template <class List>
List in_call_order(List list) {
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
    return a.place.number < b.place.number;
  });
  return list;
}

CallPlace place_of(const Call& call) {
  return {
      call.op.index,
      call.phase,
      call.device,
      call.thread.id,
      call.number,
      call.step,
      0,
      call.origin};
}

}  // namespace

struct Compare::Local : ToolLocal {
  using ToolLocal::ToolLocal;
  std::unordered_map<uint32_t, Profile> profiles;
  std::unordered_set<uint64_t> classes;
  uint64_t calls = 0;
  // What needs no reference: skipped, or a view that passed.
  ReasonCounts counts;

  const Profile& profile(const Operator& op) {
    const auto it = profiles.find(op.index);
    return it != profiles.end() ? it->second
                                : profiles.emplace(op.index, op).first->second;
  }
};

struct Compare::Job {
  CallPlace place;
  HostCall call;
  const Profile* profile = nullptr;
  bool random = false;
  bool check_inputs = false;
  Copies copies;
  std::vector<c10::IValue> given;  // the call's own values
  std::vector<uint32_t> versions;  // of copies.pairs()
  size_t bytes = 0;
  const char* skip = nullptr;  // why not judged, found out after the call
  std::string raced;           // what other work did to an argument meanwhile

  void take_results(const Call& of, Copies& results);
  void check_arguments();
  void note_change(const at::Tensor& changed);
  bool is_written(const at::Tensor& argument) const;
  // Does the kernel change what it is only to read, in memory that no other
  // work knows?
  bool changes_alone(const Call& of) const;
  void tell_apart(const Call& of);
};

Compare::Compare(CompareOptions options)
    : options_(std::move(options)),
      sampling_(options_.every, options_.most_slowdown, options_.threads),
      queue_(options_.threads, options_.queue_bytes) {}

bool Compare::is_due(Local& mine, const Call& call) const {
  const bool fresh = mine.classes.insert(shape_class(call)).second;
  const uint64_t every = sampling_.every();
  return fresh || every <= 1 || ++mine.calls % every == 0;
}

std::unique_ptr<Compare::Job> Compare::before(
    Call& call, const char*& why_not) {
  auto& mine = local<Local>(call);
  const Profile& profile = mine.profile(call.op);
  why_not = profile.obstacle(call);
  if (why_not != nullptr) {
    return nullptr;
  }
  const size_t known = mine.classes.size();
  if (!is_due(mine, call)) {
    why_not = "not its turn: one in several is compared";
    return nullptr;
  }
  auto job = std::make_unique<Job>();
  job->place = place_of(call);
  job->profile = &profile;
  job->random = draws(call.op, call.inputs());
  job->check_inputs = mine.classes.size() != known;
  job->call.op = &call.op;
  job->call.rule = profile.rule;
  job->call.device = call.device;
  job->call.writes = profile.writes;
  job->given = call.inputs().vec();
  for (const auto& value : job->given) {
    job->call.inputs.push_back(map_tensors(value, [&](const at::Tensor& t) {
      return call.op.is_view ? geometry(t) : job->copies.of(t);
    }));
  }
  job->call.true_strides = job->copies.true_strides();
  for (const auto& [tensor, copy] : job->copies.pairs()) {
    job->versions.push_back(version_of(tensor));
  }
  return job;
}

void Compare::around(Call& call, Chain& chain) {
  std::unique_ptr<Job> job;
  const char* why_not = nullptr;
  const int64_t begun = now_ns();
  attempt([&] {
    Quiet quiet;
    at::AutoDispatchBelowADInplaceOrView below;
    job = before(call, why_not);
  });
  const int64_t called = now_ns();
  const auto count_skipped = [&] {
    if (why_not != nullptr) {
      attempt([&] {
        local<Local>(call).counts.add(
            call.op.index, why_not, now_ns() - called);
      });
    }
  };
  try {
    chain.run();
  } catch (...) {
    count_skipped();
    throw;
  }
  if (job == nullptr) {
    count_skipped();
    return;
  }
  const int64_t returned = now_ns();
  job->place.took_ns = returned - called;
  attempt([&] {
    Quiet quiet;
    at::AutoDispatchBelowADInplaceOrView below;
    after(call, *job);
    const int64_t looked = now_ns();
    if (call.op.is_view) {
      judge_view(call, *job);
    } else {
      submit(std::move(job));
    }
    sampling_.looked(
        call.number,
        returned - called,
        called - begun + looked - returned,
        now_ns() - looked);
  });
}

namespace {

// Which argument's memory a new tensor has; -1 for its own.
int shared_argument(
    const std::vector<c10::IValue>& given, const at::Tensor& result) {
  int found = -1;
  if (result.numel() == 0 || !result.has_storage() ||
      result.storage().nbytes() == 0) {
    return found;
  }
  for (size_t i = 0; i < given.size(); ++i) {
    each_tensor(given[i], [&](const at::Tensor& t) {
      if (t.is_alias_of(result)) {
        found = static_cast<int>(i);
      }
    });
  }
  return found;
}

HostResult host_result(
    Copies& copies, const at::Tensor& t, bool output, size_t position) {
  HostResult result;
  result.output = output;
  result.position = static_cast<uint8_t>(position);
  result.got = copies.of(t);
  result.dtype = t.scalar_type();
  result.strides = t.strides().vec();
  return result;
}

}  // namespace

// Results, and arguments that were written and are none of the results.
void Compare::Job::take_results(const Call& of, Copies& results) {
  const auto outputs = of.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int into = profile->written_into[i];
    uint16_t item = 0;
    if (outputs[i].isScalar()) {
      HostResult number;
      number.position = static_cast<uint8_t>(i);
      number.got = number_tensor(outputs[i]);
      number.dtype = number.got.scalar_type();
      call.results.push_back(std::move(number));
      continue;
    }
    each_tensor(outputs[i], [&](const at::Tensor& t) {
      if (unreadable_now(t) != nullptr) {
        return;
      }
      call.results.push_back(host_result(results, t, true, i));
      call.results.back().item = item++;
      if (into < 0) {
        call.results.back().shares = shared_argument(given, t);
      } else if (given[into].isTensor() && !given[into].toTensor().is_same(t)) {
        call.complaints.push_back(
            "returns another tensor than argument " +
            of.op.handle.schema().arguments()[into].name());
      }
    });
  }
  for (size_t i = 0; i < given.size(); ++i) {
    uint16_t item = 0;
    each_tensor(given[i], [&](const at::Tensor& t) {
      const size_t known = results.pairs().size();
      if (profile->written[i]) {
        HostResult result = host_result(results, t, false, i);
        result.item = item;
        if (results.pairs().size() != known) {
          call.results.push_back(std::move(result));
        }
      }
      ++item;
    });
  }
}

bool Compare::Job::is_written(const at::Tensor& argument) const {
  bool found = false;
  for (size_t i = 0; i < given.size(); ++i) {
    if (profile->written[i]) {
      each_tensor(given[i], [&](const at::Tensor& t) {
        found = found || t.is_alias_of(argument);
      });
    }
  }
  return found;
}

// What was only to be read has to be what it was. A device with streams may do
// other work meanwhile: there every call is looked at.
void Compare::Job::check_arguments() {
  const auto& pairs = copies.pairs();
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& [tensor, copy] = pairs[i];
    if (is_written(tensor)) {
      continue;
    }
    if (version_of(tensor) != versions[i]) {
      call.complaints.push_back(
          "raises the version of an argument it only reads");
    }
    const bool looks = check_inputs || place.device != c10::DeviceType::CPU;
    if (looks && !unchanged(tensor, copy)) {
      note_change(tensor);
    }
  }
}

void Compare::Job::note_change(const at::Tensor& changed) {
  call.writes = true;  // the CPU may as well
  for (size_t i = 0; i < given.size(); ++i) {
    uint16_t item = 0;
    each_tensor(given[i], [&](const at::Tensor& t) {
      if (t.is_same(changed)) {
        call.changed.emplace_back(i, item);
      }
      ++item;
    });
  }
}

bool Compare::Job::changes_alone(const Call& of) const {
  std::vector<std::pair<at::Tensor, at::Tensor>> read;  // ours, and its copy
  torch::jit::Stack stack;
  for (const auto& value : given) {
    stack.push_back(map_tensors(value, [&](const at::Tensor& t) {
      for (const auto& [tensor, copy] : copies.pairs()) {
        if (tensor.is_same(t)) {
          at::Tensor mine = copy.to(t.device());
          if (!is_written(tensor)) {
            read.emplace_back(mine, copy);
          }
          return mine;
        }
      }
      return t;
    }));
  }
  of.kernel.callBoxed(of.op.handle, of.keys, &stack);
  return std::any_of(read.begin(), read.end(), [](const auto& pair) {
    return !unchanged(pair.first, pair.second);
  });
}

// An argument changed that is only to be read: by this kernel, or by work of
// another stream that nothing orders.
void Compare::Job::tell_apart(const Call& of) {
  if (call.changed.empty() || place.device == c10::DeviceType::CPU || random ||
      changes_alone(of)) {
    return;
  }
  std::string names;
  for (const auto& [position, item] : call.changed) {
    const auto& name = of.op.handle.schema().arguments()[position].name();
    names += (names.empty() ? "" : ", ") + name;
  }
  raced = "the input changed while the kernel ran: other work wrote " + names +
          ", and nothing orders the two (a missing synchronization); the "
          "result was not judged";
}

void Compare::after(Call& call, Job& job) {
  job.place.origin = call.origin;
  if (call.op.is_view) {
    job.skip = check_view(job.call, job.given, call.outputs());
  } else {
    Copies results;
    job.take_results(call, results);
    job.check_arguments();
    job.tell_apart(call);
    job.bytes = job.copies.bytes() + results.bytes();
    if (job.call.results.empty() && call.op.returns != 0) {
      job.skip = kNoTensor;
    }
  }
  // The program's tensors are not kept alive.
  job.given.clear();
  job.copies = {};
}

// There is no reference to wait for.
void Compare::judge_view(Call& call, Job& job) {
  if (job.call.complaints.empty()) {
    const char* why = job.skip != nullptr ? job.skip : "";
    local<Local>(call).counts.add(call.op.index, why, job.place.took_ns);
  } else {
    judge(job);
  }
}

void Compare::submit(std::unique_ptr<Job> job) {
  const size_t bytes = job->bytes;
  std::shared_ptr<Job> shared(std::move(job));
  queue_.put(bytes, [this, shared] {
    attempt([&] {
      at::AutoDispatchBelowADInplaceOrView below;
      c10::AutoGradMode no_grad(false);
      const int64_t begun = now_ns();
      judge(*shared);
      sampling_.judged(now_ns() - begun);
    });
  });
}

void Compare::judge(Job& job) {
  // One call that cannot be judged is no reason to judge no others.
  try {
    note(job.place, judgement_of(job));
  } catch (const c10::Error& error) {
    note(job.place, skip_call(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    note(job.place, skip_call(error.what()));
  }
}

CallJudgement Compare::judgement_of(Job& job) const {
  if (job.skip != nullptr && job.call.complaints.empty()) {
    return skip_call(job.skip);
  }
  if (!job.raced.empty()) {
    CallJudgement raced;
    raced.verdict = Verdict::kWarn;
    raced.reason = job.raced;
    return raced;
  }
  if (job.random) {
    return judge_random(job.call);
  }
  const WantedTolerance wanted(
      options_.tolerances,
      base_name(*job.call.op),
      api_names().name(job.place.origin.api));
  return judge_call(job.call, &tolerance_of, &wanted);
}

void Compare::note(const CallPlace& place, CallJudgement&& judgement) {
  std::lock_guard lock(results_mutex_);
  auto& sum = sums_[place.op];
  ++sum.calls[static_cast<size_t>(judgement.verdict)];
  sum.ns += place.took_ns;
  if (judgement.verdict == Verdict::kSkip) {
    skips_[{place.op, judgement.reason}].add({1, place.took_ns});
    return;
  }
  for (const auto& [result, each] : judgement.each) {
    if (each.verdict != Verdict::kSkip && each.tally.e >= sum.worst) {
      sum.worst = each.tally.e;
      sum.worst_call = place.number;
    }
    if (rows_.size() < options_.row_limit) {
      rows_.push_back({place, result, each});
    } else {
      ++dropped_rows_;
    }
  }
  if (judgement.verdict != Verdict::kPass &&
      findings_.size() < options_.finding_limit) {
    findings_.push_back({place, std::move(judgement)});
  }
}

void Compare::finish() {
  queue_.drain();
  release_pool();
}

std::vector<Compare::Row> Compare::rows() const {
  std::lock_guard lock(results_mutex_);
  return in_call_order(rows_);
}

std::vector<Compare::Finding> Compare::findings() const {
  std::lock_guard lock(results_mutex_);
  return in_call_order(findings_);
}

ReasonCounts::Sum Compare::counted() const {
  ReasonCounts::Sum sum;
  for (auto* each : quiet_locals()) {
    static_cast<Local*>(each)->counts.add_to(sum);
  }
  return sum;
}

std::map<uint32_t, Compare::Sum> Compare::sums() const {
  const auto more = counted();
  std::lock_guard lock(results_mutex_);
  auto sums = sums_;
  for (const auto& [key, share] : more) {
    const auto verdict = key.second.empty() ? Verdict::kPass : Verdict::kSkip;
    auto& each = sums[key.first];
    each.calls[static_cast<size_t>(verdict)] += share.calls;
    each.ns += share.ns;
  }
  return sums;
}

ReasonCounts::Sum Compare::skips() const {
  auto sum = counted();
  std::erase_if(
      sum, [](const auto& each) { return each.first.second.empty(); });
  std::lock_guard lock(results_mutex_);
  for (const auto& [key, share] : skips_) {
    sum[key].add(share);
  }
  return sum;
}

uint64_t Compare::dropped_rows() const {
  std::lock_guard lock(results_mutex_);
  return dropped_rows_;
}

}  // namespace optools
