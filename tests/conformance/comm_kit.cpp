// SPDX-License-Identifier: Apache-2.0
// What the tests of comm/1 share.
#include "comm_kit.h"

#include <chrono>
#include <thread>

#include "npu/validate.h"
#include "reference.h"

#include "driver/slots.h"

namespace npu::kit {

const npu_comm_table* comm_table() {
  // A copy: an older driver's table is shorter.
  static npu_comm_table whole;
  const auto* const given =
      driver().get_interface == nullptr
          ? nullptr
          : static_cast<const npu_comm_table*>(
                driver().get_interface(NPU_COMM_INTERFACE));
  if (given == nullptr) {
    return nullptr;
  }
  copy_struct(whole, given);
  return &whole;
}

npu_status join(const void* id, int n_ranks, std::vector<npu_comm>& out) {
  const npu_comm_table& table = *comm_table();
  npu_comm_config config{};
  config.size = sizeof(config);
  config.timeout_ms = 20'000;
  config.name = "kit";
  out.assign(static_cast<std::size_t>(n_ranks), nullptr);
  npu_status status = table.group_begin();
  for (int rank = 0; status == NPU_OK && rank < n_ranks; ++rank) {
    status = table.init(
        id, rank, n_ranks, rank, &config, &out[static_cast<std::size_t>(rank)]);
  }
  const npu_status ended = table.group_end();
  status = status ? status : ended;
  for (npu_comm comm : out) {
    while (status == NPU_OK || status == NPU_NOT_READY) {
      status = table.state(comm);
      if (status != NPU_NOT_READY) {
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return status;
}

Ranks::Ranks() {
  const npu_comm_table& table = *comm_table();
  const int n = std::min(device_count(), 4);
  std::vector<std::uint8_t> id(table.id_bytes);
  NPU_EXPECT_OK(table.make_id(id.data()));
  const npu_status status = join(id.data(), n, comms_);
  NPU_EXPECT_OK(status);
  ready_ = status == NPU_OK;
  for (int rank = 0; rank < n; ++rank) {
    streams_.push_back(std::make_unique<Stream>(rank));
  }
}

Ranks::~Ranks() {
  for (npu_comm comm : comms_) {
    if (comm != nullptr) {
      NPU_EXPECT_OK(comm_table()->destroy(comm));
    }
  }
}

void Ranks::synchronize() {
  for (const auto& stream : streams_) {
    stream->synchronize();
  }
}

npu_comm Ranks::take(int rank) {
  return std::exchange(comms_[static_cast<std::size_t>(rank)], nullptr);
}

std::vector<double> numbers(int rank, std::uint64_t count) {
  std::vector<double> made(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    made[i] = static_cast<double>(
        (i * 7 + static_cast<std::uint64_t>(rank) * 3) % 5 % 4);
  }
  return made;
}

Bytes as_bytes(const std::vector<double>& values, npu_dtype dtype) {
  const std::size_t one = npu_dtype_bytes(dtype);
  Bytes made(values.size() * one);
  for (std::size_t i = 0; i < values.size(); ++i) {
    Value value;
    value.number = values[i];
    value.integer = static_cast<std::int64_t>(values[i]);
    value.is_integer = !is_floating(dtype) && !is_complex(dtype);
    if (dtype == NPU_BOOL) {
      made[i] = values[i] > 1;
    } else {
      store(dtype, value, &made[i * one]);
    }
  }
  return made;
}

std::vector<double> as_doubles(const Bytes& bytes, npu_dtype dtype) {
  const std::size_t one = npu_dtype_bytes(dtype);
  std::vector<double> made;
  for (std::size_t i = 0; i + one <= bytes.size(); i += one) {
    const Value value = load(dtype, &bytes[i]);
    made.push_back(
        value.is_integer ? static_cast<double>(value.integer)
                         : value.number.real());
  }
  return made;
}

bool is_defined(npu_reduction reduction, npu_dtype dtype) {
  const bool whole = !is_floating(dtype) && !is_complex(dtype);
  switch (reduction) {
    case NPU_REDUCTION_AND:
    case NPU_REDUCTION_OR:
    case NPU_REDUCTION_XOR:
      return whole;
    case NPU_REDUCTION_SUM:
    case NPU_REDUCTION_PRODUCT:
    case NPU_REDUCTION_AVERAGE:
      return dtype != NPU_BOOL;
    default:
      return !is_complex(dtype);
  }
}

double reduced(
    npu_reduction reduction,
    npu_dtype dtype,
    const std::vector<double>& terms) {
  double value = terms[0];
  std::int64_t bits = static_cast<std::int64_t>(terms[0]);
  for (std::size_t r = 1; r < terms.size(); ++r) {
    const double term = terms[r];
    const auto more = static_cast<std::int64_t>(term);
    switch (reduction) {
      case NPU_REDUCTION_PRODUCT:
        value *= term;
        break;
      case NPU_REDUCTION_MIN:
        value = std::min(value, term);
        break;
      case NPU_REDUCTION_MAX:
        value = std::max(value, term);
        break;
      case NPU_REDUCTION_AND:
        bits &= more;
        break;
      case NPU_REDUCTION_OR:
        bits |= more;
        break;
      case NPU_REDUCTION_XOR:
        bits ^= more;
        break;
      default:
        value += term;
    }
  }
  if (reduction >= NPU_REDUCTION_AND) {
    return static_cast<double>(bits);
  }
  if (reduction == NPU_REDUCTION_AVERAGE) {
    value /= static_cast<double>(terms.size());
    value = is_floating(dtype) || is_complex(dtype) ? value : std::trunc(value);
  }
  return value;
}

std::vector<double> all_reduced(
    npu_reduction reduction, npu_dtype dtype, int ranks, std::uint64_t count) {
  std::vector<std::vector<double>> given;
  for (int rank = 0; rank < ranks; ++rank) {
    given.push_back(as_doubles(as_bytes(numbers(rank, count), dtype), dtype));
  }
  std::vector<double> made(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::vector<double> terms;
    for (const auto& values : given) {
      terms.push_back(values[i]);
    }
    made[i] = reduced(reduction, dtype, terms);
  }
  return made;
}

}  // namespace npu::kit
