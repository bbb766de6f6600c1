// SPDX-License-Identifier: Apache-2.0
// What the tests of the conformance kit share: the driver under test, memory
// with sentinels, streams, call frames.
//
// New here? A test is TEST(Group, WhatMustHold); groups are listed in
// report.cpp. Take memory with
// Buffer (it checks the bytes around it), build calls with Frame, and begin
// with NPU_NEEDS_KIND when the driver may lack the kind. Device memory is never
// touched directly: the driver may forbid it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "npu/kinds.h"
#include "npu/op.h"
#include "npu/validate.h"

namespace npu::kit {

// ---- the driver ----

// Opens the library called `name` (host, null, a path). An empty string, or
// what is wrong.
std::string load_driver(const std::string& name);

const npu_driver& driver();
// What a child found that was forked before any device was opened; "": nothing.
const std::string& wrong_with_forked_child();
// The host driver, whose kernels are the oracle; null when it cannot be opened.
const npu_driver* reference_driver();
// What a driver reported through services.account.
std::int64_t accounted_bytes(const npu_driver* driver);
inline const npu_device_table& device_table() {
  return *driver().device;
}
inline const npu_memory_table& memory_table() {
  return *driver().memory;
}
inline const npu_stream_table& stream_table() {
  return *driver().stream;
}
inline const npu_event_table& event_table() {
  return *driver().event;
}
inline const npu_op_table& op_table() {
  return *driver().op;
}
int device_count();
npu_device_properties properties(npu_device device = 0);

// Asks the driver under test to prepare a call of a kind that is not planned,
// as the host side does. False and what is wrong when it fails.
bool prepare(npu_device device, const npu_call& call, std::string& broken);
// The most a driver of its minor may let the kind's plans depend on.
std::uint32_t most_plan_use(
    const npu_driver& driver, const npu_kind_info& kind);

// The size a frame says to a driver: what it was built to take.
std::uint32_t frame_bytes(const npu_driver& driver);

// True when the driver's op table knows kind and code; fills caps.
bool declares(
    std::uint32_t slot, std::uint32_t code = 0, npu_op_caps* caps = nullptr);
// The dtypes that caps take for an operand or list of the kind, by place: a
// mask of 0 has the meaning that npu_op_caps.dtypes gives it.
std::uint64_t taken_dtypes(
    const npu_kind_info& kind, const npu_op_caps& caps, std::size_t place);
inline bool has(std::uint64_t mask, npu_dtype dtype) {
  return (mask & NPU_DTYPE_BIT(dtype)) != 0;
}

// ---- the services the kit gives it ----

const npu_host_services* services();
// Threads of parallel_for; 1 at the start of every test.
void set_threads(int n);
std::string last_error();
void clear_error();

// "3 (declined): random: no kernel ..." for messages.
std::string explain(npu_status status);

#define NPU_EXPECT_OK(expression)                                  \
  do {                                                             \
    const npu_status npu_kit_status_ = (expression);               \
    EXPECT_EQ(npu_kit_status_, NPU_OK)                             \
        << #expression ": " << npu::kit::explain(npu_kit_status_); \
  } while (0)
#define NPU_ASSERT_OK(expression)                                  \
  do {                                                             \
    const npu_status npu_kit_status_ = (expression);               \
    ASSERT_EQ(npu_kit_status_, NPU_OK)                             \
        << #expression ": " << npu::kit::explain(npu_kit_status_); \
  } while (0)

// Words the report looks for: such a test did not fail and did not pass.
inline constexpr const char* kNotDeclared = "not declared: ";
#define NPU_NOT_DECLARED(what) GTEST_SKIP() << npu::kit::kNotDeclared << what
#define NPU_NEEDS_CONTRACT_RANDOM()                            \
  if ((npu::kit::driver().flags & NPU_DRIVER_OWN_RANDOM) != 0) \
  NPU_NOT_DECLARED("the contract's random numbers")
#define NPU_NEEDS_KIND(slot, code)                  \
  if (!npu::kit::declares(slot, code)) {            \
    NPU_NOT_DECLARED(                               \
        "kind " << npu_kind_name(slot) << ", code " \
                << npu_code_name(slot, code));      \
  }

// ---- streams and memory ----

class Stream {
 public:
  explicit Stream(npu_device device = 0, std::int32_t priority = 0);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  npu_stream get() const {
    return stream_;
  }
  void synchronize() const;

 private:
  npu_stream stream_ = nullptr;
};

// A stream from the kit's own stock: a new one per copy would cost a thread in
// some drivers.
class StockStream {
 public:
  explicit StockStream(npu_device device = 0);
  ~StockStream();
  StockStream(const StockStream&) = delete;
  StockStream& operator=(const StockStream&) = delete;
  npu_stream get() const {
    return stream_;
  }
  void synchronize() const;

 private:
  npu_device device_;
  npu_stream stream_ = nullptr;
};
// Destroys the stock; streams must be gone before devices are closed.
void release_stock();

class Event {
 public:
  explicit Event(std::uint32_t flags = 0, npu_device device = 0);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  npu_event get() const {
    return event_;
  }

 private:
  npu_event event_ = nullptr;
};

using Bytes = std::vector<std::uint8_t>;

// Device memory between two sentinels, which are checked when it goes.
class Buffer {
 public:
  explicit Buffer(std::uint64_t bytes, npu_device device = 0);
  explicit Buffer(const Bytes& content, npu_device device = 0);
  template <class T>
  explicit Buffer(const std::vector<T>& content, npu_device device = 0)
      : Buffer(content.size() * sizeof(T), device) {
    put(content.data(), content.size() * sizeof(T));
  }
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const {
    return data_;
  }
  void* base() const {
    return base_;
  }
  std::uint64_t bytes() const {
    return bytes_;
  }
  void put(const void* from, std::uint64_t bytes);
  Bytes get() const;
  template <class T>
  std::vector<T> get_as() const {
    std::vector<T> out(bytes_ / sizeof(T));
    read(data_, out.data(), out.size() * sizeof(T));
    return out;
  }

 private:
  void read(const void* from, void* to, std::uint64_t bytes) const;
  void check_sentinel(std::uint64_t at, std::uint64_t bytes) const;

  npu_device device_ = 0;
  void* base_ = nullptr;
  void* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t whole_ = 0;
};

// ---- calls ----

// A view of a buffer: sizes, strides and offset in elements.
struct View {
  npu_dtype dtype = NPU_F32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // empty: contiguous
  std::int64_t offset = 0;
  std::uint32_t flags = 0;

  std::int64_t numel() const;
  bool contiguous() const;
  // Elements a buffer needs for it.
  std::int64_t extent() const;
};
View flat(npu_dtype dtype, std::int64_t n);

// A call of one kind. Operands are added in the kind's order, outputs first.
class Frame {
 public:
  explicit Frame(std::uint32_t slot, std::uint32_t code = 0);
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  Frame& out(const Buffer& buffer, const View& view);
  Frame& in(const Buffer& buffer, const View& view);
  Frame& absent_out();
  Frame& absent_in();
  template <class Attrs>
  Frame& attrs(Attrs value) {
    value.size = sizeof(value);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
    attrs_.assign(bytes, bytes + sizeof(value));
    return *this;
  }
  // A number in host memory as the next input.
  Frame& number(npu_dtype dtype, const void* value);
  Frame& compute(npu_dtype dtype);
  Frame& rng(const npu_rng& value);

  npu_call& call();
  // Checks the frame itself, asks plan where the kind uses plans, runs,
  // synchronizes.
  npu_status run(npu_stream stream);
  npu_status run();
  // Runs and synchronizes, nothing else: for frames that are wrong on purpose.
  npu_status run_unchecked(npu_stream stream);

 private:
  void add(const Buffer& buffer, const View& view);

  npu_call call_{};
  std::vector<npu_tensor> tensors_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<std::uint8_t> attrs_;
};

}  // namespace npu::kit
