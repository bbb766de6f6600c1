// SPDX-License-Identifier: Apache-2.0
// One row of a float32 LSTM or GRU step, one table per instruction set.
//
// A row is one element of the batch; gate g of a row of n elements starts at
// g * n. Pointers to biases may be null.
#pragma once

#include <cstdint>

namespace npu::host {

struct LstmRow {
  const float* input;
  const float* hidden;
  const float* input_bias;
  const float* hidden_bias;
  const float* cx;
  float* hy;
  float* cy;
  float* saved;
};
struct LstmGradRow {
  const float* grad_hy;  // may be null, as may grad_cy
  const float* grad_cy;
  const float* cx;
  const float* cy;
  const float* saved;
  float* grad_gates;
  float* grad_cx;
};
struct GruRow {
  const float* input;
  const float* hidden;
  const float* input_bias;
  const float* hidden_bias;
  const float* hx;
  float* hy;
  float* saved;
};
struct GruGradRow {
  const float* grad_hy;
  const float* saved;
  float* grad_input;
  float* grad_hidden;
  float* grad_hx;
};

struct CellTable {
  void (*lstm)(const LstmRow& row, std::int64_t n);
  void (*lstm_grad)(const LstmGradRow& row, std::int64_t n);
  void (*gru)(const GruRow& row, std::int64_t n);
  void (*gru_grad)(const GruGradRow& row, std::int64_t n);
};

const CellTable& cell_table() noexcept;  // for the ISA in use

namespace isa_baseline {
extern const CellTable kCells;
}
namespace isa_avx2 {
extern const CellTable kCells;
}
namespace isa_avx512 {
extern const CellTable kCells;
}

}  // namespace npu::host
