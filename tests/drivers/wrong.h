// SPDX-License-Identifier: Apache-2.0
// What the faulty driver does wrong, or differently, when told to: each is a
// mistake (or a right) of real drivers that the conformance kit has to catch
// (or bear).
//
//   NPU_FAULTY_WRONG=<word>
//     epilogue   gemm ignores its epilogue      beta       ... and its beta
//     optional   optional outputs but the first are never written
//     late       copies of bytes are over 20 us after the driver says so
//     swallow=<table>.<slot>   that slot never reports an asynchronous error
//     segv=<kind>, abort=<kind>   the kind's kernel ends the process
//     hang=<kind>, throw=<kind>   ... never returns, throws a C++ exception
//     number     host scalars are read as 0
//     no_wait    stream.wait_event does nothing
//     idle       stream.query says that all is done
//     inline     says NPU_DRIVER_INLINE, whatever its streams do
//     in_place   gemm forgets c when it is the output
//     program    registers are not rounded: the next operation sees float32
//     dense      takes dense inputs, and reads them as if contiguous
//     no_rows    gemm has rows of dtypes, and gives none
//     mixed      the second input is read in the dtype of the first
//     one_dtype  ... though it says NPU_CAP_ONE_INPUT_DTYPE
//     unconverted   integers beside halves are not converted to the half
//     unrounded  results are computed in the output's dtype
//     number_half   a number beside halves is infinite where float16 is
//     mixed_row  gemm of halves into float32, a row of its own, forgets alpha
//     nan        maximum takes the number where the other is none
//     tail       unary forgets the last of more than 256 elements
//     last_device   kernels of all devices but the first do nothing
//     limit      gemm wants its workspace, whatever the limit
//     tune       tune wants more workspace than the plan
//     platform   says platform "cpu"
//     lazy       has prepare, and takes memory in run
//     unprepared   prepare fails
//     scales     gemm uses alpha as it was when the call was planned
//     partials   gemm of float32 sums coarsely with NPU_MATH_HALF_PARTIALS
//     derivative   gemm forgets the epilogues that multiply by a derivative
//     narrow     says NPU_CAP_WIDE_STATISTICS and takes halves alone
//     unrepeatable   draws random numbers of its own, others each time
//     stuck      ... the same at every offset
//     mask       attention's own dropout does not look at seed and offset
//     copy_if    the plan of a strided copy wants contiguous operands
//     forgets=<kind>.<name>   an optional input or an attribute of the kind
//   Not wrong:
//     prepared   takes memory in prepare, and refuses to run without
//     own_random   draws random numbers of its own
//     own_mask   attention has a dropout mask of its own
//     rows       gemm takes float32 and float64, as rows
//     ndim=<n>   kernels take n dimensions at most, and say so
//     if_cast    kinds with plans want float32 where they are given halves
//     if_contiguous   ... and contiguous operands
//     no=<n>     ... and decline outputs of fewer than n elements
//     quiet_no   like no=1000, without a reason: that is wrong
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "npu/program.h"
#include "npu/validate.h"

struct Wrong {
  std::string word;
  std::string value;
  npu_scalar planned_alpha{};  // of the last gemm that was planned

  // "word" or "word=value"; false: there is no such word.
  bool set(const std::string& text) {
    const std::size_t equals = text.find('=');
    word = text.substr(0, equals);
    value = equals == std::string::npos ? "" : text.substr(equals + 1);
    for (const char* known : {"",
                              "epilogue",
                              "beta",
                              "optional",
                              "late",
                              "swallow",
                              "segv",
                              "abort",
                              "hang",
                              "throw",
                              "number",
                              "no_wait",
                              "no_rows",
                              "dense",
                              "rows",
                              "ndim",
                              "if_cast",
                              "if_contiguous",
                              "no",
                              "quiet_no",
                              "inline",
                              "in_place",
                              "program",
                              "short_rows",
                              "mixed",
                              "one_dtype",
                              "nan",
                              "tail",
                              "unconverted",
                              "limit",
                              "unrounded",
                              "tune",
                              "last_device",
                              "number_half",
                              "mixed_row",
                              "idle",
                              "platform",
                              "lazy",
                              "unprepared",
                              "scales",
                              "partials",
                              "derivative",
                              "narrow",
                              "unrepeatable",
                              "stuck",
                              "mask",
                              "copy_if",
                              "forgets",
                              "prepared",
                              "own_random",
                              "own_mask"}) {
      if (word == known) {
        return true;
      }
    }
    return false;
  }
  bool is(const char* name) const {
    return word == name;
  }
  // Kinds of two inputs, element by element.
  static bool is_pair(std::uint32_t slot) {
    return slot == NPU_KIND_BINARY || slot == NPU_KIND_COMPARE;
  }
  // Planners that answer anything but yes.
  bool plans() const {
    return is("if_cast") || is("if_contiguous") || is("no") || is("quiet_no") ||
           is("limit") || is("tune") || is("scales") || is("copy_if");
  }
  // Which kinds such a planner plans.
  bool plans(std::uint32_t slot) const {
    const bool moves = slot == NPU_KIND_COPY || slot == NPU_KIND_FILL;
    return plans() && (!moves || is("copy_if"));
  }
  bool draws_own() const {
    return is("own_random") || is("unrepeatable") || is("stuck");
  }
  std::int64_t number(std::int64_t otherwise) const {
    return value.empty() ? otherwise : std::atoll(value.c_str());
  }
  // Before a kernel runs that is not to return as it should.
  void misbehave(const char* kind) const {
    if (value != kind) {
      return;
    }
    if (is("segv")) {
      const volatile std::uintptr_t nowhere = 8;
      *reinterpret_cast<volatile int*>(nowhere) = 1;
    } else if (is("abort")) {
      std::abort();
    } else if (is("throw")) {
      throw std::runtime_error("faulty: thrown across the contract");
    }
    while (is("hang")) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
  void change_caps(std::uint32_t slot, npu_op_caps& caps) const {
    static const npu_dtype_row rows[] = {
        {{NPU_F32, 0, NPU_F32, NPU_F32}}, {{NPU_F64, 0, NPU_F64, NPU_F64}}};
    if (is("dense")) {
      caps.flags &= ~(NPU_CAP_STRIDED_IN | NPU_CAP_STRIDED_OUT);
      caps.flags |= NPU_CAP_DENSE_IN;
    }
    static const npu_dtype_row mixed[] = {
        {{NPU_F32, 0, NPU_F32, NPU_F32}}, {{NPU_F32, 0, NPU_BF16, NPU_BF16}}};
    if (slot == NPU_KIND_GEMM &&
        (is("rows") || is("no_rows") || is("mixed_row"))) {
      caps.dtype_rule = NPU_DTYPES_ROWS;
      caps.dtype_rows = is("rows") ? rows : is("mixed_row") ? mixed : nullptr;
      caps.n_dtype_rows = 2;
    }
    if (is("narrow") && slot == NPU_KIND_LAYER_NORM) {
      caps.flags |= NPU_CAP_WIDE_STATISTICS;
      caps.dtypes[1] = caps.dtypes[2] =
          NPU_DTYPE_BIT(NPU_F16) | NPU_DTYPE_BIT(NPU_BF16);
    }
    if ((is("mask") || is("own_mask")) && slot == NPU_KIND_ATTENTION) {
      caps.flags |= NPU_CAP_DROPOUT_RULE;
    }
    if (is("one_dtype") && is_pair(slot)) {
      caps.flags |= NPU_CAP_ONE_INPUT_DTYPE;
    }
  }
};

// A call that may be changed before it is forwarded.
class ChangedCall {
 public:
  explicit ChangedCall(const npu_call& given)
      : call_(given),
        tensors_(given.tensors, given.tensors + given.n_out + given.n_in) {
    call_.tensors = tensors_.data();
  }
  ChangedCall(const ChangedCall&) = delete;
  ChangedCall& operator=(const ChangedCall&) = delete;

  void apply(const Wrong& wrong) {
    if (call_.slot == NPU_KIND_GEMM &&
        (wrong.is("epilogue") || wrong.is("beta") || wrong.is("in_place") ||
         wrong.is("mixed_row") || wrong.is("scales") || wrong.is("partials") ||
         wrong.is("derivative"))) {
      const npu_gemm_args args = npu_gemm_unpack(&call_);
      gemm_ = args.attrs;
      if (wrong.is("epilogue")) {
        gemm_.epilogue = 0;
      } else if (wrong.is("scales")) {
        gemm_.alpha = wrong.planned_alpha;
      } else if (wrong.is("partials")) {
        const bool coarse = call_.math_mode == NPU_MATH_HALF_PARTIALS &&
                            args.a->dtype == NPU_F32;
        gemm_.alpha.re *= coarse ? 1 + 0x1p-9 : 1;
      } else if (wrong.is("derivative")) {
        const bool derives = args.aux != nullptr;
        gemm_.epilogue = derives ? 0 : gemm_.epilogue;
        call_.n_in -= derives ? 1 : 0;
      } else if (wrong.is("in_place")) {
        const bool inside =
            args.c != nullptr && (args.c->flags & NPU_TENSOR_ALIAS) != 0;
        gemm_.beta = inside ? npu_scalar{} : gemm_.beta;
      } else if (wrong.is("mixed_row")) {
        const bool mixed = args.a->dtype != args.out->dtype;
        gemm_.alpha = mixed ? npu_scalar{} : gemm_.alpha;
      } else {
        gemm_.beta.re = 1;
        gemm_.beta.i = 1;
      }
      call_.attrs = &gemm_;
      call_.attr_bytes = sizeof(gemm_);
    }
    if (call_.slot == NPU_KIND_PROGRAM && wrong.is("program")) {
      program_ = npu_program_unpack(&call_).attrs;
      for (std::uint32_t i = 0; i + 1 < program_.n_ops; ++i) {
        widen(i);
      }
      call_.attrs = &program_;
      call_.attr_bytes = sizeof(program_);
    }
    // The mean of a row is divided by nothing.
    if (call_.slot == NPU_KIND_PROGRAM && wrong.is("short_rows")) {
      program_ = npu_program_unpack(&call_).attrs;
      for (std::uint32_t i = 0; i < program_.n_ops; ++i) {
        npu_program_op op = npu_program_at(program_.ops, i);
        const bool mean =
            op.slot == NPU_KIND_REDUCE && op.code == NPU_REDUCE_MEAN;
        op.code = mean ? NPU_REDUCE_SUM : op.code;
        program_.ops[i] = npu_program_word(op);
      }
      call_.attrs = &program_;
      call_.attr_bytes = sizeof(program_);
    }
    for (std::size_t i = 0; wrong.is("dense") && i < tensors_.size(); ++i) {
      npu_tensor& each = tensors_[i];
      std::int64_t step = 1;
      strides_.emplace_back(each.ndim);
      for (std::uint32_t d = each.ndim; d-- > 0; step *= each.sizes[d]) {
        strides_.back()[d] = step;
      }
      each.strides = strides_.back().data();
    }
    if (wrong.draws_own()) {
      static std::atomic<std::uint64_t> draws{0};
      call_.rng.seed ^= 0x5bd1e995;
      call_.rng.seed += wrong.is("unrepeatable") ? ++draws : 0;
      call_.rng.offset = wrong.is("stuck") ? 0 : call_.rng.offset;
    }
    if (wrong.is("mask") && call_.slot == NPU_KIND_ATTENTION) {
      call_.rng = npu_rng{};
    }
    if (Wrong::is_pair(call_.slot)) {
      change_dtypes(wrong);
    }
    if (wrong.is("nan") && call_.slot == NPU_KIND_BINARY &&
        call_.code == NPU_BINARY_MAXIMUM) {
      call_.code = NPU_BINARY_FMAX;
    }
    if (wrong.is("tail") && call_.slot == NPU_KIND_UNARY &&
        tensors_[0].ndim == 1 && tensors_[0].numel > 256) {
      strides_.push_back({tensors_[0].numel - 1});
      for (npu_tensor& each : tensors_) {
        each.sizes = strides_.back().data();
        each.numel = each.dtype == NPU_ABSENT ? 0 : strides_.back()[0];
      }
    }
    static const double zero[2] = {0, 0};
    for (npu_tensor& each : tensors_) {
      const bool number = (each.flags & NPU_TENSOR_HOST_SCALAR) != 0;
      if (wrong.is("number") && number) {
        each.data = const_cast<double*>(zero);
      }
    }
    const npu_kind_info* kind = npu_kind_of(call_.slot);
    if (wrong.is("forgets") && kind != nullptr) {
      forget(wrong.value, *kind);
    }
    for (std::uint32_t i = 1; wrong.is("optional") && i < call_.n_out; ++i) {
      if (kind != nullptr && kind->operands[i].optional != 0) {
        tensors_[i] = npu_tensor{};
      }
    }
  }
  const npu_call* get() const {
    return &call_;
  }

 private:
  void forget(const std::string& name, const npu_kind_info& kind) {
    const auto is_named = [&](const char* part) {
      return name == std::string(kind.name) + "." + part;
    };
    for (std::uint32_t i = call_.n_out; i < tensors_.size(); ++i) {
      tensors_[i] =
          is_named(kind.operands[i].name) ? npu_tensor{} : tensors_[i];
    }
    const auto* const given = static_cast<const char*>(call_.attrs);
    attrs_.assign(given, given + call_.attr_bytes);
    for (std::uint32_t i = 0; i < kind.n_attrs; ++i) {
      const npu_attr_info& attr = kind.attrs[i];
      if (is_named(attr.name)) {
        std::fill_n(attrs_.begin() + attr.offset, attr.bytes, '\0');
      }
    }
    call_.attrs = attrs_.data();
  }
  static bool is_half(npu_dtype dtype) {
    return dtype == NPU_F16 || dtype == NPU_BF16;
  }
  static bool is_integer(npu_dtype dtype) {
    return dtype >= NPU_BOOL && dtype <= NPU_U64;
  }
  void change_dtypes(const Wrong& wrong) {
    const npu_tensor& x = tensors_[1];
    npu_tensor& y = tensors_[2];
    const bool number = (y.flags & NPU_TENSOR_HOST_SCALAR) != 0;
    const bool half = is_half(call_.compute_dtype);
    if ((wrong.is("mixed") || wrong.is("one_dtype")) && !number &&
        npu_dtype_bytes(x.dtype) <= npu_dtype_bytes(y.dtype)) {
      y.dtype = x.dtype;
    }
    if (wrong.is("unconverted") && half &&
        (is_integer(x.dtype) || is_integer(y.dtype))) {
      call_.compute_dtype = NPU_F32;
    }
    if (wrong.is("unrounded") && call_.compute_dtype != NPU_ABSENT) {
      call_.compute_dtype = tensors_[0].dtype;
    }
    if (wrong.is("number_half") && number && half && y.dtype == NPU_F32) {
      std::memcpy(&number_, y.data, sizeof(number_));
      const float limit = 65504;  // of float16
      number_ =
          number_ > limit ? std::numeric_limits<float>::infinity() : number_;
      y.data = &number_;
    }
  }
  // Register 12 + i, unless it is an output, in float32.
  void widen(std::uint32_t i) {
    npu_program_op op = npu_program_at(program_.ops, i);
    const bool is_output = std::count(
        program_.outs,
        program_.outs + NPU_PROGRAM_OUTPUTS,
        NPU_PROGRAM_INPUTS + i);
    if (!is_output && (op.dtype == NPU_F16 || op.dtype == NPU_BF16)) {
      op.dtype = NPU_F32;
      op.compute_dtype = NPU_F32;
      program_.ops[i] = npu_program_word(op);
    }
  }

  npu_call call_;
  std::vector<npu_tensor> tensors_;
  std::vector<char> attrs_;
  npu_program_attrs program_{};
  std::deque<std::vector<std::int64_t>> strides_;
  float number_ = 0;
  npu_gemm_attrs gemm_{};
};

// Does its work 20 us after it was asked to.
class LateWorker {
 public:
  void push(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { loop(); });
      thread_.detach();
    }
    queue_.push_back({Clock::now() + std::chrono::microseconds(20), work});
    ++pending_;
    changed_.notify_all();
  }
  // Memory that late work uses may go only then.
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return pending_ == 0; });
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Item {
    Clock::time_point due;
    std::function<void()> work;
  };

  void loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !queue_.empty(); });
      const Item item = queue_.front();
      queue_.pop_front();
      lock.unlock();
      while (Clock::now() < item.due) {
      }
      item.work();
      lock.lock();
      --pending_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  int pending_ = 0;
  std::thread thread_;
};

// What a picky planner says of a call that its kernels could do.
inline void change_verdict(
    const Wrong& wrong, const npu_call& call, npu_verdict& verdict) {
  if (verdict.answer != NPU_VERDICT_YES) {
    return;
  }
  if (wrong.is("copy_if") && call.slot == NPU_KIND_COPY &&
      (call.tensors[1].flags & NPU_TENSOR_CONTIGUOUS) == 0) {
    verdict.answer = NPU_VERDICT_IF_CONTIGUOUS;
    verdict.mask = 2;
    return;
  }
  if (wrong.is("limit") && call.slot == NPU_KIND_GEMM) {
    verdict.workspace_bytes += 4096;
  }
  std::uint64_t halves = 0;
  std::uint64_t strided = 0;
  for (std::uint32_t i = 0; i < call.n_out + call.n_in; ++i) {
    const npu_tensor& tensor = call.tensors[i];
    const bool half = tensor.dtype == NPU_F16 || tensor.dtype == NPU_BF16;
    halves |= half ? std::uint64_t{1} << i : 0;
    const bool contiguous = (tensor.flags & NPU_TENSOR_CONTIGUOUS) != 0;
    strided |=
        tensor.dtype != NPU_ABSENT && !contiguous ? std::uint64_t{1} << i : 0;
  }
  if (wrong.is("if_cast") && halves != 0) {
    verdict.answer = NPU_VERDICT_IF_CAST;
    verdict.mask = halves;
    verdict.cast_dtype = NPU_F32;
  } else if (wrong.is("if_contiguous") && strided != 0) {
    verdict.answer = NPU_VERDICT_IF_CONTIGUOUS;
    verdict.mask = strided;
  } else if (
      (wrong.is("no") || wrong.is("quiet_no")) && call.n_out > 0 &&
      call.tensors[0].numel < wrong.number(1000)) {
    verdict.answer = NPU_VERDICT_NO;
    verdict.reason = wrong.is("no") ? NPU_REASON_SIZE : NPU_REASON_NONE;
  }
}
