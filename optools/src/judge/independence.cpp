// SPDX-License-Identifier: Apache-2.0
// Are the numbers of a sample independent of each other?
#include "judge/independence.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <unordered_map>
#include <vector>

namespace optools {
namespace {

constexpr int64_t kMost = 1 << 20;  // elements looked at
constexpr int64_t kLeast = 128;     // below, nothing can be said
// Chance of a false alarm of one lag is 2 exp(-kUnlikely); there are at most
// 60 of them.
constexpr double kUnlikely = 27;
constexpr double kBits = 80;  // of a stretch that does not occur twice

std::vector<double> numbers(const at::Tensor& t) {
  const at::Tensor values =
      t.reshape(-1)
          .narrow(0, 0, std::min<int64_t>(t.numel(), kMost))
          .to(c10::ScalarType::Double)
          .contiguous();
  const auto* data = values.const_data_ptr<double>();
  return {data, data + values.numel()};
}

struct Ranks {
  std::vector<double> centred;  // equal values share their mean rank
  double variance = 0;
  double largest = 0;  // of the centred ones
  double equal_pairs = 0;
  // Chance that two elements are equal, from how many are.
  double collision = 0;
};

Ranks ranks_of(const std::vector<double>& values) {
  const auto count = values.size();
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return values[a] < values[b];
  });
  Ranks found;
  found.centred.resize(count);
  const double middle = (static_cast<double>(count) - 1) / 2;
  for (size_t first = 0; first < count;) {
    size_t last = first + 1;
    while (last < count && values[order[last]] == values[order[first]]) {
      ++last;
    }
    const double rank = static_cast<double>(first + last - 1) / 2 - middle;
    const auto same = static_cast<double>(last - first);
    for (size_t i = first; i < last; ++i) {
      found.centred[order[i]] = rank;
    }
    found.variance += same * rank * rank;
    found.largest = std::max(found.largest, std::fabs(rank));
    found.equal_pairs += same * (same - 1) / 2;
    first = last;
  }
  found.variance /= static_cast<double>(count);
  const double pairs =
      static_cast<double>(count) * (static_cast<double>(count) - 1) / 2;
  found.collision = found.equal_pairs / pairs;
  return found;
}

std::set<int64_t> lags(const at::Tensor& t, int64_t count) {
  std::set<int64_t> found;
  for (int64_t lag = 1; lag <= 8; ++lag) {
    found.insert(lag);
  }
  for (int64_t lag = 16; lag < count; lag *= 2) {
    found.insert(lag);
  }
  int64_t inner = 1;
  for (int64_t d = t.dim() - 1; d > 0; --d) {
    inner *= t.size(d);
    found.insert(inner);
  }
  found.insert(count / 2);
  found.insert((count + 1) / 2);
  std::erase_if(found, [&](int64_t lag) { return lag >= count; });
  return found;
}

// Bernstein's bound on the exponent of the chance of so large a sum, whose
// terms are at most `term` standard deviations of it.
double unlikely(double deviations, double term) {
  return deviations * deviations / 2 / (1 + term * deviations / 3);
}

std::string correlated(const at::Tensor& t, const Ranks& ranks) {
  const auto& r = ranks.centred;
  const auto count = static_cast<int64_t>(r.size());
  if (ranks.variance == 0) {
    return {};
  }
  for (const int64_t lag : lags(t, count)) {
    double sum = 0;
    for (int64_t i = 0; i + lag < count; ++i) {
      sum += r[i] * r[i + lag];
    }
    const double pairs = static_cast<double>(count - lag);
    const double deviation = ranks.variance * std::sqrt(pairs);
    const double term = ranks.largest * ranks.largest / deviation;
    if (unlikely(std::fabs(sum) / deviation, term) > kUnlikely) {
      return "elements " + std::to_string(lag) +
             " apart are correlated (ranks: " +
             std::to_string(sum / ranks.variance / pairs) + ")";
    }
  }
  return {};
}

uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value == 0 ? 0.0 : value);
}

// Hashes every stretch of that length, and looks for it among those that begin
// at multiples of the length: a repetition of twice the length holds one.
std::string repeated(const std::vector<double>& values, double collision) {
  const double bits = collision > 0 ? -std::log2(collision) : kBits;
  if (bits < 1e-3) {
    return {};  // nearly all are equal, and may be
  }
  const auto length =
      std::max<int64_t>(4, static_cast<int64_t>(std::ceil(kBits / bits)));
  const auto count = static_cast<int64_t>(values.size());
  if (2 * length > count) {
    return {};
  }
  constexpr uint64_t kBase = 0x9E3779B97F4A7C15ull;
  const auto term = [&](int64_t i) {
    return (bits_of(values[i]) ^ 0x5851F42D4C957F2Dull) * 0xD6E8FEB86659FD93ull;
  };
  uint64_t leading = 1;
  for (int64_t i = 1; i < length; ++i) {
    leading *= kBase;
  }
  std::vector<uint64_t> hashes(count - length + 1);
  uint64_t hash = 0;
  for (int64_t i = 0; i < count; ++i) {
    hash = hash * kBase + term(i);
    if (i + 1 >= length) {
      hashes[i + 1 - length] = hash;
      hash -= leading * term(i + 1 - length);
    }
  }
  std::unordered_map<uint64_t, int64_t> known;
  for (int64_t i = 0; i + length <= count; i += length) {
    known.emplace(hashes[i], i);
  }
  for (int64_t i = 0; i + length <= count; ++i) {
    const auto it = known.find(hashes[i]);
    if (it != known.end() && it->second != i &&
        std::equal(
            values.begin() + i,
            values.begin() + i + length,
            values.begin() + it->second)) {
      return std::to_string(length) + " elements from " + std::to_string(i) +
             " on are those from " + std::to_string(it->second) + " on";
    }
  }
  return {};
}

}  // namespace

std::string dependence(const at::Tensor& sample, const at::Tensor& reference) {
  if (sample.numel() < kLeast || sample.is_complex()) {
    return {};
  }
  const auto values = numbers(sample);
  if (std::any_of(values.begin(), values.end(), [](double v) {
        return std::isnan(v);
      })) {
    return {};  // which the distribution shows
  }
  const Ranks ranks = ranks_of(values);
  std::string found = correlated(sample, ranks);
  if (found.empty() && reference.defined() &&
      reference.numel() == sample.numel()) {
    const Ranks theirs = ranks_of(numbers(reference));
    if (ranks.equal_pairs > 8 * theirs.equal_pairs + 64) {
      return std::to_string(static_cast<int64_t>(ranks.equal_pairs)) +
             " pairs of elements are equal; in a sample of the CPU's " +
             std::to_string(static_cast<int64_t>(theirs.equal_pairs));
    }
    return repeated(values, std::max(ranks.collision, theirs.collision));
  }
  return found.empty() ? repeated(values, ranks.collision) : found;
}

}  // namespace optools
