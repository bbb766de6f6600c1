// SPDX-License-Identifier: Apache-2.0
// The verdict on a result.
#include "judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "plain.h"

namespace npu::kit {
namespace {

struct Precision {
  double roundoff;
  double tiny;  // the smallest number above zero
};

Precision precision(npu_dtype dtype) {
  switch (dtype) {
    case NPU_F16:
    case NPU_C32:
      return {0x1p-11, 0x1p-24};
    case NPU_BF16:
      return {0x1p-8, 0x1p-133};
    case NPU_F64:
    case NPU_C128:
      return {0x1p-53, 0x1p-1074};
    default:
      return {0x1p-24, 0x1p-149};
  }
}

double accumulator(npu_dtype dtype) {
  return dtype == NPU_F64 || dtype == NPU_C128 ? 0x1p-53 : 0x1p-24;
}

// What values are rounded to between two sums of a call.
double between(const npu_kind_info& kind, npu_dtype dtype) {
  const bool rounds = (kind.flags & NPU_KIND_ROUNDS_BETWEEN) != 0;
  return rounds ? std::max(precision(dtype).roundoff, accumulator(dtype))
                : accumulator(dtype);
}

bool is_exact(npu_dtype dtype) {
  return !is_floating(dtype) && !is_complex(dtype);
}

// change(number, operand, element) for every floating point number.
template <class Change>
Case changed(const Case& value, Change change) {
  Case out = value;
  std::size_t place = 0;
  const auto each = [&](Operand& operand) {
    if (operand.present() && !is_exact(operand.dtype)) {
      std::size_t element = 0;
      for (Value& v : operand.values) {
        v.number = change(v.number, place, element++);
      }
      ++place;
    }
  };
  for (Operand& operand : out.operands) {
    each(operand);
  }
  for (auto& list : out.lists) {
    for (Operand& operand : list) {
      each(operand);
    }
  }
  return out;
}

// The same with absolute values, integers too.
Case absolute(const Case& value) {
  Case out =
      changed(value, [](std::complex<double> x, std::size_t, std::size_t) {
        return std::complex<double>(std::abs(x.real()), std::abs(x.imag()));
      });
  for (Operand& operand : out.operands) {
    for (Value& v : operand.values) {
      if (v.is_integer && !v.is_unsigned && v.integer < 0) {
        v.integer = -v.integer;
        v.number = -v.number;
      }
    }
  }
  return out;
}

using Majorant = std::vector<std::vector<double>>;

Majorant sizes_of(const Outcome& outcome) {
  Majorant out;
  for (const auto& values : outcome.values) {
    out.emplace_back(values.size(), 0.0);
  }
  return out;
}

// What every result element may have lost to cancellation.
Majorant majorant(const Case& wide, const Outcome& reference, double least) {
  Majorant out = sizes_of(reference);
  // A little more than float64's roundoff, which its arithmetic would swallow.
  const double roundoff = std::max(least, 0x1p-40);
  if (wide.linear) {
    const Outcome positive = answer(absolute(wide));
    for (std::size_t i = 0; i < out.size() && positive.ok(); ++i) {
      for (std::size_t j = 0; j < out[i].size(); ++j) {
        out[i][j] = std::abs(positive.values[i][j].number);
      }
    }
    return out;
  }
  // Against each other: operands, neighbours; together; then at random.
  for (std::uint64_t seed = 0; seed < 7; ++seed) {
    std::mt19937_64 random(seed);
    const auto side = [&](std::size_t place, std::size_t element) -> double {
      const std::uint64_t odd = seed == 0   ? place
                                : seed == 1 ? element
                                : seed == 2 ? 1
                                            : random();
      return (odd & 1) != 0 ? 1 : -1;
    };
    const Outcome moved = answer(changed(
        wide, [&](std::complex<double> x, std::size_t place, std::size_t i) {
          return x * (1 + side(place, i) * roundoff);
        }));
    if (!moved.ok() || moved.values.size() != out.size()) {
      continue;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t n = std::min(out[i].size(), moved.values[i].size());
      for (std::size_t j = 0; j < n; ++j) {
        const double by =
            std::abs(moved.values[i][j].number - reference.values[i][j].number);
        if (std::isfinite(by)) {
          out[i][j] = std::max(out[i][j], by / roundoff);
        }
      }
    }
  }
  return out;
}

std::string number_text(npu_dtype dtype, const Value& value) {
  if (is_exact(dtype)) {
    return std::to_string(value.integer);
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%.9g", value.number.real());
  if (is_complex(dtype)) {
    std::snprintf(
        text,
        sizeof(text),
        "%.9g%+.9gi",
        value.number.real(),
        value.number.imag());
  }
  return text;
}

// What an elementwise kind was given at that element.
std::string inputs_text(const Case& value, std::size_t n, std::size_t j) {
  std::string out;
  for (const Operand& operand : value.operands) {
    if (operand.values.size() == n) {
      out += std::string(", ") + operand.info->name + " = " +
             number_text(operand.dtype, operand.values[j]);
    }
  }
  return out;
}

bool same_special(std::complex<double> a, std::complex<double> b) {
  const auto same = [](double x, double y) {
    return x == y || (std::isnan(x) && std::isnan(y));
  };
  return same(a.real(), b.real()) && same(a.imag(), b.imag());
}

bool finite(std::complex<double> x) {
  return std::isfinite(x.real()) && std::isfinite(x.imag());
}

}  // namespace

double error_units(
    npu_dtype dtype,
    std::complex<double> got,
    std::complex<double> reference,
    double majorant,
    std::int64_t terms,
    double between) {
  const Precision p = precision(dtype);
  std::uint8_t raw[16];
  store(dtype, Value{.number = reference}, raw);
  const std::complex<double> rounded = load(dtype, raw).number;
  if (!finite(got) || !finite(rounded)) {
    return same_special(got, rounded) ? 0
                                      : std::numeric_limits<double>::infinity();
  }
  const double size = std::abs(reference);
  const double allowed =
      2 * p.roundoff * size +
      std::max(accumulator(dtype), between) *
          (8 * majorant + 1.5 * std::sqrt(static_cast<double>(terms)) * size);
  return std::abs(got - reference) / std::max(allowed, p.tiny);
}

Judgement judge(const Case& value, const Outcome& got, std::string& skipped) {
  const Case wide = widened(value);
  const Outcome reference = answer(wide);
  if (!reference.ok()) {
    skipped =
        "the oracle has no answer: " + reference.reason + reference.broken;
    return {};
  }
  Judgement out;
  if (reference.values.size() != got.values.size() ||
      reference.total != got.total) {
    out.wrong = "total is " + std::to_string(got.total) + ", the oracle's " +
                std::to_string(reference.total);
    return out;
  }
  double roundoff = 0x1p-53;
  for (const npu_dtype dtype : got.dtypes) {
    roundoff = std::max(roundoff, is_exact(dtype) ? 0 : accumulator(dtype));
  }
  const Majorant bound = majorant(wide, reference, roundoff);
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const npu_dtype dtype = got.dtypes[i];
    for (std::size_t j = 0; j < got.values[i].size(); ++j) {
      const Value& mine = got.values[i][j];
      const Value& theirs = reference.values[i][j];
      const double e = is_exact(dtype)
                           ? (mine.integer == theirs.integer
                                  ? 0
                                  : std::numeric_limits<double>::infinity())
                           : error_units(
                                 dtype,
                                 mine.number,
                                 theirs.number,
                                 bound[i][j] + value.cancels,
                                 value.terms,
                                 between(*value.kind, dtype));
      if (e > out.worst) {
        out.worst = e;
        if (e > 1) {
          out.wrong = "result " + std::to_string(i) + ", element " +
                      std::to_string(j) + ": " + number_text(dtype, mine) +
                      ", the oracle says " + number_text(dtype, theirs) +
                      ", E = " + std::to_string(e) +
                      inputs_text(value, got.values[i].size(), j);
        }
      }
    }
  }
  return out;
}

}  // namespace npu::kit
