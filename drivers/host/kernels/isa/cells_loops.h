// SPDX-License-Identifier: Apache-2.0
// Body of cells_<isa>.cpp, which define NPU_ISA. Calls nothing that the linker
// could share with code for another instruction set.
#include "kernels/isa/cells.h"
#include "shared/random_math.h"

#define NPU_CELL_FN [[gnu::always_inline]] inline

namespace npu::host {
namespace {

NPU_CELL_FN float sigmoid_of(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}

// A polynomial where 1 - 2 / (e^2x + 1) would lose digits.
NPU_CELL_FN float tanh_of(float x) {
  const float z = x * x;
  float p = -0.005710217636078596f;
  p = p * z + 0.02064412832260132f;
  p = p * z + -0.05374139919877052f;
  p = p * z + 0.13331463932991028f;
  p = p * z + -0.3333328366279602f;
  const float near = x + x * (z * p);
  const float far = 1.0f - 2.0f / (exp_f32(2.0f * x) + 1.0f);
  return x < 0.625f && x > -0.625f ? near : far;
}

// Derivatives, computed from the results.
NPU_CELL_FN float sigmoid_slope(float y) {
  return y * (1.0f - y);
}
NPU_CELL_FN float tanh_slope(float y) {
  return 1.0f - y * y;
}

// Element `at` of the gates, with its bias.
template <bool kBiased>
NPU_CELL_FN float part(const float* gates, const float* bias, std::int64_t at) {
  if constexpr (kBiased) {
    return gates[at] + bias[at];
  } else {
    return gates[at];
  }
}

// Outputs never share memory with inputs here.
template <bool kBiased>
void lstm_loop(const LstmRow r, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t j = 0; j < n; ++j) {
    const float in = sigmoid_of(
        part<kBiased>(r.input, r.input_bias, j) +
        part<kBiased>(r.hidden, r.hidden_bias, j));
    const float forget = sigmoid_of(
        part<kBiased>(r.input, r.input_bias, n + j) +
        part<kBiased>(r.hidden, r.hidden_bias, n + j));
    const float fresh = tanh_of(
        part<kBiased>(r.input, r.input_bias, 2 * n + j) +
        part<kBiased>(r.hidden, r.hidden_bias, 2 * n + j));
    const float out = sigmoid_of(
        part<kBiased>(r.input, r.input_bias, 3 * n + j) +
        part<kBiased>(r.hidden, r.hidden_bias, 3 * n + j));
    const float c = forget * r.cx[j] + in * fresh;
    r.cy[j] = c;
    r.hy[j] = out * tanh_of(c);
    r.saved[j] = in;
    r.saved[n + j] = forget;
    r.saved[2 * n + j] = fresh;
    r.saved[3 * n + j] = out;
  }
}

void lstm(const LstmRow& row, std::int64_t n) {
  return row.input_bias != nullptr ? lstm_loop<true>(row, n)
                                   : lstm_loop<false>(row, n);
}

void lstm_grad(const LstmGradRow& row, std::int64_t n) {
  const LstmGradRow r = row;
  const bool has_hy = r.grad_hy != nullptr;
  const bool has_cy = r.grad_cy != nullptr;
  const float* const grad_hy = has_hy ? r.grad_hy : r.cx;
  const float* const grad_cy = has_cy ? r.grad_cy : r.cx;
#pragma GCC ivdep
  for (std::int64_t j = 0; j < n; ++j) {
    const float in = r.saved[j];
    const float forget = r.saved[n + j];
    const float fresh = r.saved[2 * n + j];
    const float out = r.saved[3 * n + j];
    const float c = tanh_of(r.cy[j]);
    const float dh = has_hy ? grad_hy[j] : 0.0f;
    const float from_cy = has_cy ? grad_cy[j] : 0.0f;
    const float dc = from_cy + dh * out * tanh_slope(c);
    r.grad_gates[j] = dc * fresh * sigmoid_slope(in);
    r.grad_gates[n + j] = dc * r.cx[j] * sigmoid_slope(forget);
    r.grad_gates[2 * n + j] = dc * in * tanh_slope(fresh);
    r.grad_gates[3 * n + j] = dh * c * sigmoid_slope(out);
    r.grad_cx[j] = dc * forget;
  }
}

template <bool kBiased>
void gru_loop(const GruRow r, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t j = 0; j < n; ++j) {
    const float reset = sigmoid_of(
        part<kBiased>(r.input, r.input_bias, j) +
        part<kBiased>(r.hidden, r.hidden_bias, j));
    const float update = sigmoid_of(
        part<kBiased>(r.input, r.input_bias, n + j) +
        part<kBiased>(r.hidden, r.hidden_bias, n + j));
    const float inner = part<kBiased>(r.hidden, r.hidden_bias, 2 * n + j);
    const float fresh = tanh_of(
        part<kBiased>(r.input, r.input_bias, 2 * n + j) + reset * inner);
    const float hx = r.hx[j];
    r.hy[j] = fresh + update * (hx - fresh);
    r.saved[j] = reset;
    r.saved[n + j] = update;
    r.saved[2 * n + j] = fresh;
    r.saved[3 * n + j] = hx;
    r.saved[4 * n + j] = inner;
  }
}

void gru(const GruRow& row, std::int64_t n) {
  return row.input_bias != nullptr ? gru_loop<true>(row, n)
                                   : gru_loop<false>(row, n);
}

void gru_grad(const GruGradRow& row, std::int64_t n) {
  const GruGradRow r = row;
#pragma GCC ivdep
  for (std::int64_t j = 0; j < n; ++j) {
    const float reset = r.saved[j];
    const float update = r.saved[n + j];
    const float fresh = r.saved[2 * n + j];
    const float hx = r.saved[3 * n + j];
    const float inner = r.saved[4 * n + j];
    const float g = r.grad_hy[j];
    const float dfresh = g * (1.0f - update) * tanh_slope(fresh);
    const float dupdate = g * (hx - fresh) * sigmoid_slope(update);
    const float dreset = dfresh * inner * sigmoid_slope(reset);
    r.grad_input[j] = r.grad_hidden[j] = dreset;
    r.grad_input[n + j] = r.grad_hidden[n + j] = dupdate;
    r.grad_input[2 * n + j] = dfresh;
    r.grad_hidden[2 * n + j] = dfresh * reset;
    r.grad_hx[j] = g * update;
  }
}

}  // namespace

namespace NPU_ISA {
extern const CellTable kCells = {lstm, lstm_grad, gru, gru_grad};
}

}  // namespace npu::host
