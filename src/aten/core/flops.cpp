// SPDX-License-Identifier: Apache-2.0
// Counts floating point operations with PyTorch's own observers of calls.
#include "aten/core/flops.h"

#include <ATen/core/Tensor.h>
// Keep first: the next header needs at::Tensor.
#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace npu::flops {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;
using Formula = std::int64_t (*)(Inputs);

std::int64_t product(at::IntArrayRef sizes) {
  std::int64_t all = 1;
  for (const std::int64_t size : sizes) {
    all *= size;
  }
  return all;
}

at::IntArrayRef sizes_of(Inputs inputs, std::size_t i) {
  return inputs[i].toTensor().sizes();
}

// [.., m, k] times [.., k, n], beginning at argument kFirst.
template <std::size_t kFirst>
std::int64_t matrix_product(Inputs inputs) {
  return 2 * product(sizes_of(inputs, kFirst)) *
         sizes_of(inputs, kFirst + 1).back();
}

// x [.., k] times weight [n, k].
std::int64_t linear(Inputs inputs) {
  return 2 * product(sizes_of(inputs, 0)) * sizes_of(inputs, 1)[0];
}

// Each place of the output (of the input, when transposed) meets the whole
// weight once.
std::int64_t convolve(
    std::int64_t batch, at::IntArrayRef places, at::IntArrayRef weight) {
  return 2 * batch * product(places) * product(weight);
}

std::int64_t convolution(Inputs inputs) {
  const at::IntArrayRef x = sizes_of(inputs, 0);
  const at::IntArrayRef weight = sizes_of(inputs, 1);
  const bool unbatched = x.size() == weight.size() - 1;
  const std::int64_t batch = unbatched ? 1 : x[0];
  const at::IntArrayRef space = x.slice(unbatched ? 1 : 2);
  if (inputs[6].toBool()) {
    return convolve(batch, space, weight);
  }
  const auto stride = inputs[3].toIntVector();
  const auto padding = inputs[4].toIntVector();
  const auto dilation = inputs[5].toIntVector();
  const auto at = [](const std::vector<std::int64_t>& list, std::size_t i) {
    return list.size() == 1 ? list[0] : list.at(i);
  };
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < space.size(); ++i) {
    const std::int64_t reach = at(dilation, i) * (weight[i + 2] - 1) + 1;
    out.push_back((space[i] + 2 * at(padding, i) - reach) / at(stride, i) + 1);
  }
  return convolve(batch, out, weight);
}

std::int64_t convolution_backward(Inputs inputs) {
  const bool transposed = inputs[7].toBool();
  const at::IntArrayRef met = sizes_of(inputs, transposed ? 1 : 0);
  const std::int64_t one = convolve(met[0], met.slice(2), sizes_of(inputs, 2));
  const auto mask = inputs[10].toBoolList();
  return one * ((mask.get(0) ? 1 : 0) + (mask.get(1) ? 1 : 0));
}

// q [b, h, s, d], k [b, h, t, d], v [b, h, t, e]: q k^T and scores times v.
std::int64_t attend(Inputs inputs, std::size_t q) {
  const at::IntArrayRef query = sizes_of(inputs, q);
  const at::IntArrayRef value = sizes_of(inputs, q + 2);
  const std::int64_t scores = product(query.slice(0, 3)) * value[2];
  return 2 * scores * (query[3] + value[3]);
}

std::int64_t attention(Inputs inputs) {
  return attend(inputs, 0);
}

// Scores again, and the gradients of v, scores, q and k: five products for two.
std::int64_t attention_backward(Inputs inputs) {
  return attend(inputs, 1) / 2 * 5;
}

Formula formula_of(std::string_view name) {
  static const auto& all = *new std::unordered_map<std::string_view, Formula>{
      {"aten::mm", &matrix_product<0>},
      {"aten::bmm", &matrix_product<0>},
      {"aten::addmm", &matrix_product<1>},
      {"aten::baddbmm", &matrix_product<1>},
      {"aten::linear", &linear},
      {"aten::convolution", &convolution},
      {"aten::_convolution", &convolution},
      {"aten::convolution_overrideable", &convolution},
      {"aten::convolution_backward", &convolution_backward},
      {"aten::convolution_backward_overrideable", &convolution_backward},
      {"aten::_scaled_dot_product_fused_attention_overrideable", &attention},
      {"aten::_scaled_dot_product_fused_attention_overrideable_backward",
       &attention_backward},
      {"aten::_scaled_dot_product_flash_attention", &attention},
      {"aten::_scaled_dot_product_flash_attention_backward",
       &attention_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", &attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       &attention_backward}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

std::mutex mutex;
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
std::atomic<std::int64_t> recorded{0};
std::atomic<std::int64_t> traversed{0};
std::atomic<bool> paused{false};
// Calls inside a counted one are part of it.
thread_local int inside = 0;

struct Inside final : at::ObserverContext {
  Inside() {
    ++inside;
  }
  ~Inside() override {
    --inside;
  }
};

std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& call) {
  const Formula formula = formula_of(call.name());
  if (formula == nullptr || inside != 0) {
    return nullptr;
  }
  std::int64_t count = 0;
  try {
    count = formula(call.inputs());
  } catch (const std::exception&) {
    return nullptr;  // the call itself says what is wrong with its arguments
  }
  traversed.fetch_add(count, std::memory_order_relaxed);
  if (!paused.load(std::memory_order_relaxed)) {
    recorded.fetch_add(count, std::memory_order_relaxed);
  }
  return std::make_unique<Inside>();
}

}  // namespace

void start() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    return;
  }
  recorded.store(0);
  traversed.store(0);
  paused.store(false);
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&observe).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION}));
}

void stop() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (handle != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
}

void pause() {
  paused.store(true);
}

void resume() {
  paused.store(false);
}

Counts counts() {
  return {recorded.load(), traversed.load()};
}

}  // namespace npu::flops
