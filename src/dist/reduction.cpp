// SPDX-License-Identifier: Apache-2.0
// What a ReduceOp means for each dtype, in terms of what Gloo can do.
#include "dist/reduction.h"

#include <limits>

#include "runtime/dtype.h"

namespace npu::dist {
namespace {

using c10d::ReduceOp;

const char* name_of(const ReduceOp& op) {
  switch (op.op_) {
    case ReduceOp::SUM:
      return "SUM";
    case ReduceOp::AVG:
      return "AVG";
    case ReduceOp::PRODUCT:
      return "PRODUCT";
    case ReduceOp::MIN:
      return "MIN";
    case ReduceOp::MAX:
      return "MAX";
    case ReduceOp::BAND:
      return "BAND";
    case ReduceOp::BOR:
      return "BOR";
    case ReduceOp::BXOR:
      return "BXOR";
    case ReduceOp::PREMUL_SUM:
      return "PREMUL_SUM";
    default:
      return "?";
  }
}

at::ScalarType wide_dtype(at::ScalarType dtype) {
  if (c10::isReducedFloatingType(dtype)) {
    return at::kFloat;
  }
  switch (dtype) {
    case at::kBool:
      return at::kByte;
    case at::kShort:
    case at::kUInt16:
      return at::kInt;
    case at::kUInt32:
    case at::kUInt64:
      return at::kLong;
    default:
      return dtype;
  }
}

bool is_bitwise(const ReduceOp& op) {
  return op.op_ == ReduceOp::BAND || op.op_ == ReduceOp::BOR ||
         op.op_ == ReduceOp::BXOR;
}

void check(const ReduceOp& op, at::ScalarType dtype) {
  const bool whole = c10::isIntegralType(dtype, true);
  const bool complex = c10::isComplexType(dtype);
  const bool sums = op.op_ == ReduceOp::SUM || op.op_ == ReduceOp::AVG ||
                    op.op_ == ReduceOp::PREMUL_SUM;
  const bool fits = is_bitwise(op)       ? whole
                    : complex            ? sums
                    : dtype == at::kBool ? op.op_ != ReduceOp::AVG &&
                                               op.op_ != ReduceOp::PREMUL_SUM
                    : op.op_ == ReduceOp::PREMUL_SUM ? !whole
                                                     : true;
  TORCH_CHECK_VALUE(
      fits,
      "hccl: ReduceOp.",
      name_of(op),
      " is not defined for ",
      c10::toString(dtype),
      " tensors.");
}

}  // namespace

Reduction::Reduction(const ReduceOp& op, at::ScalarType dtype, int size)
    : op_(op), gloo_(op), dtype_(dtype), wide_(wide_dtype(dtype)), size_(size) {
  check(op, dtype);
  if (op.op_ == ReduceOp::AVG || op.op_ == ReduceOp::PREMUL_SUM) {
    gloo_ = ReduceOp(ReduceOp::SUM);
  }
  if (dtype == at::kBool && op.op_ == ReduceOp::SUM) {
    gloo_ = ReduceOp(ReduceOp::MAX);  // a sum of bytes could be 0 again
  }
  flipped_ = dtype == at::kUInt64 &&
             (op.op_ == ReduceOp::MIN || op.op_ == ReduceOp::MAX);
}

npu_reduction Reduction::of_driver() const {
  switch (gloo_.op_) {
    case ReduceOp::SUM:
      return NPU_REDUCTION_SUM;
    case ReduceOp::PRODUCT:
      return NPU_REDUCTION_PRODUCT;
    case ReduceOp::MIN:
      return NPU_REDUCTION_MIN;
    case ReduceOp::MAX:
      return NPU_REDUCTION_MAX;
    case ReduceOp::BAND:
      return NPU_REDUCTION_AND;
    case ReduceOp::BOR:
      return NPU_REDUCTION_OR;
    case ReduceOp::BXOR:
      return NPU_REDUCTION_XOR;
    default:
      return NPU_REDUCTION_COUNT;  // none
  }
}

std::optional<Reduction> Reduction::for_driver(
    std::uint64_t dtypes, std::uint64_t reductions) const {
  const auto takes = [&](at::ScalarType dtype) {
    return (dtypes & NPU_DTYPE_BIT(to_npu_dtype(dtype))) != 0;
  };
  Reduction made = *this;
  // An average is divided before it is rounded.
  const bool divides =
      op_.op_ == ReduceOp::AVG || op_.op_ == ReduceOp::PREMUL_SUM;
  if (c10::isReducedFloatingType(dtype_) && !divides && takes(dtype_)) {
    made.wide_ = dtype_;
  }
  made.split_ = c10::isComplexType(dtype_) && !takes(dtype_);
  const at::ScalarType reduced =
      made.split_ ? c10::toRealValueType(made.wide_) : made.wide_;
  const bool fits = dtype_ != at::kComplexHalf && takes(reduced) &&
                    (reductions >> made.of_driver() & 1) != 0;
  return fits ? std::optional(made) : std::nullopt;
}

std::string Reduction::name() const {
  return name_of(op_);
}

namespace {

// Bits of unsigned numbers divided as such: int64 would divide those from 2^63
// on as negative ones.
at::Tensor unsigned_quotient(const at::Tensor& bits, int64_t by) {
  const at::Tensor half = bits.bitwise_right_shift(1).bitwise_and(
      std::numeric_limits<int64_t>::max());
  const at::Tensor near = half.div(by, "trunc").mul(2);
  return near.add(bits.sub(near.mul(by)).ge(by));
}

}  // namespace

at::Tensor Reduction::prepared(const at::Tensor& host) const {
  at::Tensor made = host;
  if (dtype_ == at::kUInt64) {
    made = host.view(at::kLong);
    if (flipped_) {
      made = made.bitwise_xor(std::numeric_limits<int64_t>::min());
    }
  } else if (wide_ != dtype_) {
    made = host.to(wide_);
  }
  if (op_.op_ == ReduceOp::PREMUL_SUM) {
    const auto* factor = static_cast<const c10d::NCCLPreMulSumSupplement*>(
        op_.supplement_.get());
    made = factor->tensor_factor.defined()
               ? made.mul(factor->tensor_factor.to(made.options()))
               : made.mul(factor->double_factor);
  }
  return made;
}

void Reduction::finish(const at::Tensor& reduced, at::Tensor& host) const {
  at::Tensor made = reduced;
  if (op_.op_ == ReduceOp::AVG) {
    if (dtype_ == at::kUInt64 && size_ > 1) {
      made = unsigned_quotient(made, size_);
    } else if (c10::isIntegralType(dtype_, false)) {
      made = made.div(size_, "trunc");
    } else {
      made.div_(size_);
    }
  }
  if (dtype_ == at::kUInt64) {
    if (flipped_) {
      made = made.bitwise_xor(std::numeric_limits<int64_t>::min());
    }
    made = made.view(at::kUInt64);
  }
  if (!made.is_alias_of(host)) {
    host.copy_(made);
  }
}

}  // namespace npu::dist
