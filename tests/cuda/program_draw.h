// SPDX-License-Identifier: Apache-2.0
// Random programs with operands, for tests that run one frame in two ways.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "driver/call.h"
#include "npu/program.h"
#include "npu/validate.h"

namespace npu::cuda {

using Random = std::mt19937_64;
using Sizes = std::vector<std::int64_t>;

// Memory with a view of it.
struct Area {
  npu_dtype dtype = NPU_ABSENT;
  Sizes sizes;
  Sizes strides;
  std::vector<char> bytes;
  bool number = false;

  npu_tensor operand() {
    npu_tensor t{};
    t.data = t.storage = bytes.data();
    t.storage_bytes = bytes.size();
    t.dtype = dtype;
    t.numel = 1;
    if (number) {
      t.flags = NPU_TENSOR_HOST_SCALAR;
      return t;
    }
    bool contiguous = true;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      contiguous = contiguous && (sizes[d] == 1 || strides[d] == t.numel);
      t.numel *= sizes[d];
    }
    t.sizes = sizes.data();
    t.strides = strides.data();
    t.ndim = static_cast<std::uint16_t>(sizes.size());
    t.flags = contiguous ? NPU_TENSOR_CONTIGUOUS | NPU_TENSOR_DENSE : 0;
    return t;
  }
};

template <class T>
void fill_floats(std::vector<char>& bytes, Random& random) {
  const double odd[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, 65504, 1e-7};
  for (std::size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    const double draw = std::normal_distribution<>(0, 2)(random);
    const T value =
        static_cast<T>(random() % 11 == 0 ? odd[random() % 8] : draw);
    std::memcpy(bytes.data() + i, &value, sizeof(T));
  }
}
inline void fill(Area& area, Random& random) {
  if (area.dtype == NPU_F32) {
    fill_floats<float>(area.bytes, random);
  } else if (area.dtype == NPU_F64) {
    fill_floats<double>(area.bytes, random);
  } else if (area.dtype == NPU_F16 || area.dtype == NPU_BF16) {
    // Finite halves of any size below 4, both signs.
    const std::uint32_t most = area.dtype == NPU_F16 ? 0x4400 : 0x4080;
    for (std::size_t i = 0; i + 2 <= area.bytes.size(); i += 2) {
      const auto bits =
          static_cast<std::uint16_t>(random() % most | (random() % 2) << 15);
      std::memcpy(area.bytes.data() + i, &bits, 2);
    }
  } else {
    for (char& byte : area.bytes) {
      byte =
          static_cast<char>(area.dtype == NPU_BOOL ? random() % 2 : random());
    }
  }
}

// Contiguous, one element for all, expanded in part, or with holes.
inline Area draw_area(
    npu_dtype dtype, const Sizes& sizes, Random& random, bool out) {
  Area made{dtype, sizes, Sizes(sizes.size()), {}};
  const std::uint64_t kind = random() % 6;
  std::int64_t step = kind == 4 ? 2 : 1;
  std::int64_t reach = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    const bool expanded =
        !out && (kind == 5 || (kind == 3 && random() % 2 == 0));
    made.strides[d] = expanded ? 0 : step;
    reach += (sizes[d] - 1) * made.strides[d];
    step *= expanded ? 1 : sizes[d];
  }
  made.bytes.resize(static_cast<std::size_t>(reach) * npu_dtype_bytes(dtype));
  fill(made, random);
  return made;
}

struct Drawn {
  npu_program_attrs attrs{};
  std::uint32_t code = NPU_PROGRAM_MAP;
  std::vector<Area> outs;
  std::vector<Area> ins;

  void fill_call(npu::Call& call, std::vector<Area>& results) {
    for (std::size_t o = 0; o < NPU_PROGRAM_OUTPUTS; ++o) {
      call.add_output(o < results.size() ? results[o].operand() : npu_tensor{});
    }
    for (Area& in : ins) {
      call.add_input(in.operand());
    }
    attrs.size = sizeof(attrs);
    call.set_attrs(attrs);
  }
};

inline std::string text_of(const npu_program_attrs& attrs) {
  std::string text;
  for (std::uint32_t i = 0; i < attrs.n_ops; ++i) {
    const npu_program_op op = npu_program_at(attrs.ops, i);
    text += std::string(npu_kind_name(op.slot)) + "." +
            npu_code_name(op.slot, op.code) + " " + npu_dtype_name(op.dtype) +
            " (" + std::to_string(op.in[0]) + ", " + std::to_string(op.in[1]) +
            ", " + std::to_string(op.in[2]) + "); ";
  }
  return text;
}

}  // namespace npu::cuda
