// SPDX-License-Identifier: Apache-2.0
// Streams, memory with sentinels, and call frames of the kit.
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "kit.h"

namespace npu::kit {
namespace {

constexpr std::uint64_t kSentinelBytes = 512;
constexpr std::uint8_t kSentinel = 0xC3;
constexpr std::uint8_t kFresh = 0xEE;

std::mutex stock_mutex;
std::map<npu_device, std::vector<npu_stream>> stock;

}  // namespace

Stream::Stream(npu_device device, std::int32_t priority) {
  NPU_EXPECT_OK(stream_table().create(device, priority, &stream_));
  EXPECT_NE(stream_, nullptr);
}

Stream::~Stream() {
  NPU_EXPECT_OK(stream_table().destroy(stream_));
}

void Stream::synchronize() const {
  NPU_EXPECT_OK(stream_table().synchronize(stream_));
}

StockStream::StockStream(npu_device device) : device_(device) {
  {
    const std::lock_guard lock(stock_mutex);
    std::vector<npu_stream>& idle = stock[device];
    if (!idle.empty()) {
      stream_ = idle.back();
      idle.pop_back();
      return;
    }
  }
  NPU_EXPECT_OK(stream_table().create(device, 0, &stream_));
}

StockStream::~StockStream() {
  const std::lock_guard lock(stock_mutex);
  stock[device_].push_back(stream_);
}

void StockStream::synchronize() const {
  NPU_EXPECT_OK(stream_table().synchronize(stream_));
}

void release_stock() {
  const std::lock_guard lock(stock_mutex);
  for (auto& [device, streams] : stock) {
    for (npu_stream stream : streams) {
      NPU_EXPECT_OK(stream_table().destroy(stream));
    }
  }
  stock.clear();
}

Event::Event(std::uint32_t flags, npu_device device) {
  NPU_EXPECT_OK(event_table().create(device, flags, &event_));
  EXPECT_NE(event_, nullptr);
}

Event::~Event() {
  NPU_EXPECT_OK(event_table().destroy(event_));
}

Buffer::Buffer(std::uint64_t bytes, npu_device device)
    : device_(device), bytes_(bytes), whole_(bytes + 2 * kSentinelBytes) {
  NPU_EXPECT_OK(memory_table().alloc(device, whole_, &base_));
  data_ = static_cast<std::uint8_t*>(base_) + kSentinelBytes;
  Bytes content(whole_, kSentinel);
  std::memset(content.data() + kSentinelBytes, kFresh, bytes);
  StockStream stream(device);
  NPU_EXPECT_OK(memory_table().copy_to_device(
      stream.get(), base_, content.data(), whole_));
  stream.synchronize();
}

Buffer::Buffer(const Bytes& content, npu_device device)
    : Buffer(content.size(), device) {
  put(content.data(), content.size());
}

Buffer::~Buffer() {
  check_sentinel(0, kSentinelBytes);
  check_sentinel(kSentinelBytes + bytes_, kSentinelBytes);
  NPU_EXPECT_OK(memory_table().free(device_, base_));
}

void Buffer::check_sentinel(std::uint64_t at, std::uint64_t bytes) const {
  Bytes found(bytes);
  read(static_cast<std::uint8_t*>(base_) + at, found.data(), bytes);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    if (found[i] != kSentinel) {
      ADD_FAILURE() << "a byte outside the buffer was written: "
                    << static_cast<std::int64_t>(at + i) -
                           static_cast<std::int64_t>(kSentinelBytes)
                    << " of " << bytes_;
      return;
    }
  }
}

void Buffer::put(const void* from, std::uint64_t bytes) {
  ASSERT_LE(bytes, bytes_);
  StockStream stream(device_);
  NPU_EXPECT_OK(
      memory_table().copy_to_device(stream.get(), data_, from, bytes));
  stream.synchronize();
}

void Buffer::read(const void* from, void* to, std::uint64_t bytes) const {
  StockStream stream(device_);
  NPU_EXPECT_OK(memory_table().copy_to_host(stream.get(), to, from, bytes));
  stream.synchronize();
}

Bytes Buffer::get() const {
  return get_as<std::uint8_t>();
}

std::int64_t View::numel() const {
  std::int64_t n = 1;
  for (const std::int64_t size : sizes) {
    n *= size;
  }
  return n;
}

bool View::contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (!strides.empty() && sizes[d] != 1 && strides[d] != expected) {
      return false;
    }
    expected *= sizes[d];
  }
  return true;
}

std::int64_t View::extent() const {
  if (strides.empty()) {
    return offset + numel();
  }
  std::int64_t last = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    last += (sizes[d] - 1) * strides[d];
  }
  return offset + last + 1;
}

View flat(npu_dtype dtype, std::int64_t n) {
  return {.dtype = dtype, .sizes = {n}, .strides = {}};
}

Frame::Frame(std::uint32_t slot, std::uint32_t code) {
  call_.size = frame_bytes(driver());
  call_.slot = slot;
  call_.code = code;
  call_.label = "conformance";
  tensors_.reserve(NPU_MAX_OPERANDS);
  shapes_.reserve(2 * NPU_MAX_OPERANDS);
}

void Frame::add(const Buffer& buffer, const View& view) {
  std::vector<std::int64_t> strides = view.strides;
  if (strides.empty()) {
    strides.resize(view.sizes.size());
    std::int64_t step = 1;
    for (std::size_t d = strides.size(); d-- > 0;) {
      strides[d] = step;
      step *= view.sizes[d];
    }
  }
  const std::uint64_t element = npu_dtype_bytes(view.dtype);
  npu_tensor tensor{};
  tensor.data = static_cast<std::uint8_t*>(buffer.data()) +
                static_cast<std::uint64_t>(view.offset) * element;
  tensor.storage = buffer.data();
  tensor.storage_bytes = buffer.bytes();
  tensor.numel = view.numel();
  tensor.dtype = view.dtype;
  tensor.ndim = static_cast<std::uint16_t>(view.sizes.size());
  tensor.flags = view.flags;
  if (view.contiguous()) {
    tensor.flags |= NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  }
  shapes_.push_back(view.sizes);
  tensor.sizes = shapes_.back().data();
  shapes_.push_back(std::move(strides));
  tensor.strides = shapes_.back().data();
  tensors_.push_back(tensor);
}

Frame& Frame::out(const Buffer& buffer, const View& view) {
  add(buffer, view);
  ++call_.n_out;
  return *this;
}

Frame& Frame::in(const Buffer& buffer, const View& view) {
  add(buffer, view);
  ++call_.n_in;
  return *this;
}

Frame& Frame::absent_out() {
  tensors_.push_back({});
  ++call_.n_out;
  return *this;
}

Frame& Frame::absent_in() {
  tensors_.push_back({});
  ++call_.n_in;
  return *this;
}

Frame& Frame::compute(npu_dtype dtype) {
  call_.compute_dtype = dtype;
  return *this;
}

Frame& Frame::number(npu_dtype dtype, const void* value) {
  npu_tensor tensor{};
  tensor.data = tensor.storage = const_cast<void*>(value);
  tensor.storage_bytes = npu_dtype_bytes(dtype);
  tensor.numel = 1;
  tensor.dtype = dtype;
  tensor.flags =
      NPU_TENSOR_HOST_SCALAR | NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE;
  tensors_.push_back(tensor);
  ++call_.n_in;
  return *this;
}

Frame& Frame::rng(const npu_rng& value) {
  call_.rng = value;
  return *this;
}

npu_call& Frame::call() {
  call_.tensors = tensors_.data();
  call_.attrs = attrs_.data();
  call_.attr_bytes = static_cast<std::uint32_t>(attrs_.size());
  return call_;
}

npu_status Frame::run(npu_stream stream) {
  char text[256] = "";
  EXPECT_EQ(npu_call_validate(&call(), text, sizeof(text)), NPU_OK)
      << "the kit built a wrong frame: " << text;
  npu_op_caps caps{};
  caps.size = sizeof(caps);
  std::unique_ptr<Buffer> workspace;
  if (op_table().caps(call_.slot, call_.code, &caps) == NPU_OK &&
      caps.plan_use != NPU_PLAN_NONE) {
    npu_verdict verdict{};
    verdict.size = sizeof(verdict);
    const npu_device device = tensors_.empty() ? 0 : tensors_[0].device;
    NPU_EXPECT_OK(op_table().plan(device, &call_, &verdict));
    if (verdict.answer != NPU_VERDICT_YES) {
      return NPU_E_UNSUPPORTED;
    }
    call_.plan = verdict.plan;
    if (verdict.workspace_bytes > 0) {
      workspace = std::make_unique<Buffer>(verdict.workspace_bytes, device);
      call_.workspace = workspace->data();
      call_.workspace_bytes = verdict.workspace_bytes;
    }
    if (verdict.host_workspace_bytes > 0) {
      NPU_EXPECT_OK(memory_table().host_alloc(
          verdict.host_workspace_bytes, &call_.host_workspace));
      call_.host_workspace_bytes = verdict.host_workspace_bytes;
    }
  }
  std::string broken;
  const npu_device first = tensors_.empty() ? 0 : tensors_[0].device;
  EXPECT_TRUE(prepare(first, call_, broken)) << broken;
  const npu_status status = run_unchecked(stream);
  if (call_.host_workspace != nullptr) {
    NPU_EXPECT_OK(memory_table().host_free(call_.host_workspace));
    call_.host_workspace = nullptr;
  }
  if (call_.plan && op_table().release_plan) {
    op_table().release_plan(call_.plan);
  }
  return status;
}

npu_status Frame::run_unchecked(npu_stream stream) {
  const npu_status queued = op_table().run(stream, &call());
  const npu_status done = stream_table().synchronize(stream);
  return queued != NPU_OK ? queued : done;
}

npu_status Frame::run() {
  StockStream stream;
  return run(stream.get());
}

}  // namespace npu::kit
