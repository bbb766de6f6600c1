// SPDX-License-Identifier: Apache-2.0
// Kinds randperm and multinomial: orders and choices. Their scratch is ordinary
// host memory.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/random.h"

namespace npu::host {
namespace {

struct Keyed {
  std::uint64_t key;
  std::int64_t index;

  bool operator<(const Keyed& other) const {
    return key != other.key ? key < other.key : index < other.index;
  }
};

// One double word, without a chunk around it.
std::uint64_t double_word(PhiloxStream stream, std::int64_t i) {
  const auto at = static_cast<std::uint64_t>(i);
  const PhiloxBlock block = philox(stream.seed, stream.block + at / 2, 0);
  const std::uint32_t* w = block.w + 2 * (at % 2);
  return w[0] | (std::uint64_t{w[1]} << 32);
}

// Up to 2^24 numbers are ordered as one word each: 40 bits of the key over 24
// bits of index.
constexpr int kIndexBits = 24;
constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;

using Places = std::array<std::size_t, 257>;

// Counts to first places.
void add_up(Places& places) {
  for (std::size_t b = 1; b < places.size(); ++b) {
    places[b] += places[b - 1];
  }
}

// Items that agree in their top 8 bits, few enough for the cache: two counting
// passes, then insertion, for keys are uniform and nearly in place by then.
void sort_bucket(std::span<std::uint64_t> items, std::uint64_t* scratch) {
  std::uint64_t* from = items.data();
  std::uint64_t* to = scratch;
  for (const int shift : {40, 48}) {
    Places places{};
    for (std::size_t i = 0; i < items.size(); ++i) {
      ++places[((from[i] >> shift) & 0xff) + 1];
    }
    add_up(places);
    for (std::size_t i = 0; i < items.size(); ++i) {
      to[places[(from[i] >> shift) & 0xff]++] = from[i];
    }
    std::swap(from, to);
  }
  for (std::size_t i = 1; i < items.size(); ++i) {
    const std::uint64_t item = items[i];
    std::size_t j = i;
    for (; j > 0 && item < items[j - 1]; --j) {
      items[j] = items[j - 1];
    }
    items[j] = item;
  }
}

// The few whose 40 bits agree are told apart by the whole key.
void settle_ties(PhiloxStream stream, std::span<std::uint64_t> items) {
  for (std::size_t i = 1; i < items.size(); ++i) {
    const auto full = [&](std::uint64_t item) {
      const auto index = static_cast<std::int64_t>(item & kIndexMask);
      return Keyed{double_word(stream, index), index};
    };
    for (std::size_t j = i;
         j > 0 && (items[j] >> kIndexBits) == (items[j - 1] >> kIndexBits) &&
         full(items[j]) < full(items[j - 1]);
         --j) {
      std::swap(items[j], items[j - 1]);
    }
  }
}

// index(i) is what comes at place begin + i.
template <class T, class Index>
void store_order(std::size_t begin, std::size_t n, Index index, void* out) {
  T* y = static_cast<T*>(out) + begin;
  for (std::size_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
      y[i] = T(static_cast<float>(index(i)));
    } else {
      y[i] = static_cast<T>(index(i));
    }
  }
}

template <class Index>
void store_order(
    std::size_t begin, std::size_t n, Index index, npu_dtype dtype, void* out) {
  switch (dtype) {
    case NPU_F16:
      return store_order<F16>(begin, n, index, out);
    case NPU_BF16:
      return store_order<BF16>(begin, n, index, out);
    case NPU_F32:
      return store_order<float>(begin, n, index, out);
    case NPU_F64:
      return store_order<double>(begin, n, index, out);
    default:
      break;
  }
  switch (element_bytes(dtype)) {
    case 1:
      return store_order<std::uint8_t>(begin, n, index, out);
    case 2:
      return store_order<std::uint16_t>(begin, n, index, out);
    case 4:
      return store_order<std::uint32_t>(begin, n, index, out);
    default:
      return store_order<std::uint64_t>(begin, n, index, out);
  }
}

// body(key, index) for every number, in order. Making the words twice is
// cheaper than keeping them.
template <class Body>
void for_keys(PhiloxStream stream, std::int64_t n, Body body) {
  constexpr std::int64_t kChunk = kChunkWords / 2;
  alignas(64) std::uint32_t w[kChunkWords];
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, n - begin);
    const auto block = static_cast<std::uint64_t>(begin / 2);
    random_isa().words({stream.seed, stream.block + block}, (count + 1) / 2, w);
    for (std::int64_t i = 0; i < count; ++i) {
      body(w[2 * i] | (std::uint64_t{w[2 * i + 1]} << 32), begin + i);
    }
  }
}

npu_status permute_packed(PhiloxStream stream, const npu_tensor& out) {
  const auto n = static_cast<std::size_t>(out.numel);
  Places ends{};
  for_keys(stream, out.numel, [&](std::uint64_t key, std::int64_t) {
    ++ends[(key >> 56) + 1];
  });
  add_up(ends);
  const Places begins = ends;
  const std::unique_ptr<std::uint64_t[]> items(new std::uint64_t[n]);
  for_keys(stream, out.numel, [&](std::uint64_t key, std::int64_t index) {
    items[ends[key >> 56]++] =
        (key & ~kIndexMask) | static_cast<std::uint64_t>(index);
  });
  std::size_t most = 0;
  for (std::size_t b = 0; b < 256; ++b) {
    most = std::max(most, begins[b + 1] - begins[b]);
  }
  return parallel(256, 16, [&](std::int64_t first, std::int64_t last) {
    const std::unique_ptr<std::uint64_t[]> scratch(new (std::nothrow)
                                                       std::uint64_t[most]);
    if (!scratch) {
      return fail(NPU_E_OUT_OF_MEMORY, "npu: host driver: randperm: no memory");
    }
    for (auto b = static_cast<std::size_t>(first);
         b < static_cast<std::size_t>(last);
         ++b) {
      const std::span<std::uint64_t> bucket(
          items.get() + begins[b], begins[b + 1] - begins[b]);
      sort_bucket(bucket, scratch.get());
      settle_ties(stream, bucket);
      store_order(
          begins[b],
          bucket.size(),
          [&](std::size_t i) { return bucket[i] & kIndexMask; },
          out.dtype,
          out.data);
    }
    return npu_status{NPU_OK};
  });
}

npu_status permute_keyed(PhiloxStream stream, const npu_tensor& out) {
  std::vector<Keyed> items(static_cast<std::size_t>(out.numel));
  const npu_status status = for_words(
      stream,
      out.numel,
      2,
      [&](std::int64_t begin, int count, const std::uint32_t* w) {
        Keyed* at = items.data() + begin;
        for (int i = 0; i < count; ++i) {
          at[i] = {w[2 * i] | (std::uint64_t{w[2 * i + 1]} << 32), begin + i};
        }
      });
  if (status == NPU_OK) {
    std::sort(items.begin(), items.end());
    store_order(
        0,
        items.size(),
        [&](std::size_t i) { return items[i].index; },
        out.dtype,
        out.data);
  }
  return status;
}

double weight_at(const npu_tensor& weights, std::int64_t i) {
  switch (weights.dtype) {
    case NPU_F16:
      return static_cast<const F16*>(weights.data)[i];
    case NPU_BF16:
      return static_cast<const BF16*>(weights.data)[i];
    case NPU_F32:
      return static_cast<const float*>(weights.data)[i];
    default:
      return static_cast<const double*>(weights.data)[i];
  }
}

struct Choice {
  PhiloxStream stream;
  const npu_tensor& weights;
  std::int64_t categories;
  std::int64_t samples;
  std::int64_t* out;

  // Double word i as a number in [0, 1), without a chunk around it.
  double unit(std::int64_t i) const {
    return static_cast<double>(double_word(stream, i) >> 11) * 0x1p-53;
  }

  npu_status with_replacement(std::int64_t row) const {
    std::vector<double> sums(static_cast<std::size_t>(categories));
    double sum = 0;
    std::size_t last = 0;
    for (std::size_t c = 0; c < sums.size(); ++c) {
      const double w =
          weight_at(weights, row * categories + static_cast<std::int64_t>(c));
      if (w > 0) {
        sum += w;
        last = c;
      }
      sums[c] = sum;
    }
    return parallel(
        samples, kGrain / 16, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t s = begin; s < end; ++s) {
            const double x = unit(row * samples + s) * sum;
            const auto it = std::upper_bound(sums.begin(), sums.end(), x);
            const auto c = static_cast<std::size_t>(it - sums.begin());
            out[row * samples + s] =
                static_cast<std::int64_t>(std::min(c, last));
          }
        });
  }

  void without_replacement(std::int64_t row) const {
    using Entry = std::pair<double, std::int64_t>;
    std::vector<Entry> keys(static_cast<std::size_t>(categories));
    for (std::int64_t c = 0; c < categories; ++c) {
      const double w = weight_at(weights, row * categories + c);
      const double e = -std::log1p(-unit(row * categories + c));
      keys[static_cast<std::size_t>(c)] = {
          w > 0 ? e / w : std::numeric_limits<double>::infinity(), c};
    }
    std::partial_sort(keys.begin(), keys.begin() + samples, keys.end());
    for (std::int64_t s = 0; s < samples; ++s) {
      out[row * samples + s] = keys[static_cast<std::size_t>(s)].second;
    }
  }
};

npu_status check_multinomial(
    const npu_call& call, const npu_multinomial_args& args) {
  if (!has_dtype(args.weights, kFloats) ||
      !has_dtype(args.out, NPU_DTYPE_BIT(NPU_I64))) {
    return fail(
        NPU_E_UNSUPPORTED,
        "npu: host driver: multinomial: takes float weights and an int64 "
        "output, not %s and %s",
        dtype_name(args.weights == nullptr ? NPU_ABSENT : args.weights->dtype),
        dtype_name(args.out == nullptr ? NPU_ABSENT : args.out->dtype));
  }
  const npu_tensor& weights = *args.weights;
  const std::int64_t samples = args.attrs.samples;
  const std::int64_t categories = weights.ndim == 1 || weights.ndim == 2
                                      ? weights.sizes[weights.ndim - 1]
                                      : 0;
  if (categories <= 0 || samples <= 0 ||
      args.out->numel != weights.numel / categories * samples ||
      (args.attrs.replacement == 0 && samples > categories)) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: multinomial: cannot take %lld samples from %lld "
        "categories into %lld "
        "elements",
        static_cast<long long>(samples),
        static_cast<long long>(categories),
        static_cast<long long>(args.out->numel));
  }
  return check_rng(call);
}

npu_status choose(const npu_call& call, const npu_multinomial_args& args) {
  const npu_tensor& weights = *args.weights;
  const std::int64_t categories = weights.sizes[weights.ndim - 1];
  const Choice choice{
      philox_stream(call.rng),
      weights,
      categories,
      args.attrs.samples,
      static_cast<std::int64_t*>(args.out->data)};
  const std::int64_t grain = std::max<std::int64_t>(
      1, kGrain / (4 * (categories + args.attrs.samples)));
  return parallel(
      weights.numel / categories,
      grain,
      [&](std::int64_t begin, std::int64_t end) -> npu_status {
        try {
          npu_status status = NPU_OK;
          for (std::int64_t row = begin; row < end && status == NPU_OK; ++row) {
            if (args.attrs.replacement != 0) {
              status = choice.with_replacement(row);
            } else {
              choice.without_replacement(row);
            }
          }
          return status;
        } catch (const std::bad_alloc&) {
          return fail(
              NPU_E_OUT_OF_MEMORY,
              "npu: host driver: multinomial: no host memory");
        }
      });
}

}  // namespace

npu_status randperm_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return fail(
        NPU_E_UNSUPPORTED, "npu: host driver: randperm: no code %u", code);
  }
  common_caps(out);
  out.dtypes[0] = kInts | kFloats;
  return NPU_OK;
}

npu_status randperm_run(const npu_call& call) {
  const npu_randperm_args args = npu_randperm_unpack(&call);
  if (!has_dtype(args.out, kInts | kFloats)) {
    return fail(
        NPU_E_UNSUPPORTED,
        "npu: host driver: randperm: no kernel for dtype %s",
        dtype_name(args.out == nullptr ? NPU_ABSENT : args.out->dtype));
  }
  if (args.attrs.n != args.out->numel) {
    return fail(
        NPU_E_INVALID,
        "npu: host driver: randperm: n = %lld does not fit an output of %lld "
        "elements",
        static_cast<long long>(args.attrs.n),
        static_cast<long long>(args.out->numel));
  }
  if (const npu_status status = check_rng(call); status != NPU_OK) {
    return status;
  }
  try {
    const PhiloxStream stream = philox_stream(call.rng);
    // A few are sorted faster with whole keys, too many do not fit the packing.
    const bool packed = args.out->numel > 1024 &&
                        args.out->numel <= std::int64_t{1} << kIndexBits;
    return packed ? permute_packed(stream, *args.out)
                  : permute_keyed(stream, *args.out);
  } catch (const std::bad_alloc&) {
    return fail(
        NPU_E_OUT_OF_MEMORY,
        "npu: host driver: randperm: no host memory to order %lld numbers",
        static_cast<long long>(args.out->numel));
  }
}

npu_status multinomial_caps(std::uint32_t code, npu_op_caps& out) {
  if (code != 0) {
    return fail(
        NPU_E_UNSUPPORTED, "npu: host driver: multinomial: no code %u", code);
  }
  common_caps(out);
  out.dtypes[0] = NPU_DTYPE_BIT(NPU_I64);
  out.dtypes[1] = kFloats;
  return NPU_OK;
}

npu_status multinomial_run(const npu_call& call) {
  const npu_multinomial_args args = npu_multinomial_unpack(&call);
  if (const npu_status status = check_multinomial(call, args);
      status != NPU_OK) {
    return status;
  }
  return choose(call, args);
}

}  // namespace npu::host
