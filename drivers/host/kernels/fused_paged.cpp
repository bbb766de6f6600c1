// SPDX-License-Identifier: Apache-2.0
// Kind paged_attention: one query row per sequence against a paged cache.
//
// Rows of the caches are converted one at a time: a cache is large, and a
// sequence reads little of it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/convert.h"
#include "kernels/fused.h"

namespace npu::host {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Rows of (blocks, block_size, heads, size) in float32.
class Pages {
 public:
  explicit Pages(const npu_tensor& cache)
      : cache_(cache),
        bytes_(static_cast<std::int64_t>(element_bytes(cache.dtype))),
        known_(conversion_.set(NPU_F32, cache.dtype, false)) {}
  bool known() const {
    return known_;
  }
  std::int64_t size() const {
    return cache_.sizes[3];
  }
  std::int64_t blocks() const {
    return cache_.sizes[0];
  }
  // In the cache itself where it can be read as it is, else in `buffer`.
  const float* row(
      std::int64_t block,
      std::int64_t at,
      std::int64_t head,
      float* buffer) const {
    const char* const from =
        static_cast<const char*>(cache_.data) +
        (block * cache_.strides[0] + at * cache_.strides[1] +
         head * cache_.strides[2]) *
            bytes_;
    if (cache_.dtype == NPU_F32 && cache_.strides[3] == 1) {
      return reinterpret_cast<const float*>(from);
    }
    conversion_.line(
        reinterpret_cast<char*>(buffer),
        sizeof(float),
        from,
        cache_.strides[3] * bytes_,
        size());
    return buffer;
  }

 private:
  const npu_tensor& cache_;
  const std::int64_t bytes_;
  Conversion conversion_;
  const bool known_;
};

struct Decoding {
  explicit Decoding(const npu_call& call)
      : args(npu_paged_attention_unpack(&call)),
        q(args.q),
        table(args.block_table),
        lengths(args.lengths),
        keys(*args.key_cache),
        values(*args.value_cache),
        heads(args.q->sizes[1]),
        kv_heads(args.key_cache->sizes[2]),
        group(heads / kv_heads) {}
  // The positions that sequence b sees.
  std::int64_t last(std::int64_t b) const {
    const std::int64_t room = args.block_table->sizes[1] * block();
    return std::clamp<std::int64_t>(lengths[b], 0, room);
  }
  std::int64_t first(std::int64_t b) const {
    return args.attrs.window > 0
               ? std::max<std::int64_t>(0, last(b) - args.attrs.window)
               : 0;
  }
  std::int64_t block() const {
    return args.key_cache->sizes[1];
  }
  // The block of a position; -1 where the table names none.
  std::int64_t page(std::int64_t b, std::int64_t position) const {
    const std::int64_t found =
        table[b * args.block_table->sizes[1] + position / block()];
    return found >= 0 && found < keys.blocks() ? found : -1;
  }
  double score(double raw) const {
    const double scaled = raw * args.attrs.scale;
    const double cap = args.attrs.softcap;
    return cap > 0 ? cap * std::tanh(scaled / cap) : scaled;
  }

  const npu_paged_attention_args args;
  const Loaded<float> q;
  const Loaded<std::int64_t> table;
  const Loaded<std::int64_t> lengths;
  const Pages keys;
  const Pages values;
  const std::int64_t heads;
  const std::int64_t kv_heads;
  const std::int64_t group;
};

// Scores of the query heads that share a head of the caches, (group, n).
void scores_of(
    const Decoding& d,
    std::int64_t b,
    std::int64_t kv,
    std::vector<double>& to) {
  const std::int64_t first = d.first(b);
  const std::int64_t n = d.last(b) - first;
  const std::int64_t size = d.keys.size();
  std::vector<float> buffer(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t page = d.page(b, first + i);
    const float* const key =
        page < 0 ? nullptr
                 : d.keys.row(page, (first + i) % d.block(), kv, buffer.data());
    for (std::int64_t g = 0; g < d.group; ++g) {
      const float* const q =
          d.q.data() + (b * d.heads + kv * d.group + g) * size;
      to[static_cast<std::size_t>(g * n + i)] =
          key == nullptr ? kNever
                         : d.score(fused_table().dot(q, nullptr, key, size));
    }
  }
}

// Scores become probabilities; returns their logsumexp.
double normalise(double* scores, std::int64_t n) {
  double most = kNever;
  for (std::int64_t i = 0; i < n; ++i) {
    most = scores[i] > most || scores[i] != scores[i] ? scores[i] : most;
  }
  if (most == kNever) {
    std::fill(scores, scores + n, 0.0);
    return kNever;
  }
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    scores[i] = std::exp(scores[i] - most);
    sum += scores[i];
  }
  std::transform(
      scores, scores + n, scores, [sum](double x) { return x / sum; });
  return most + std::log(sum);
}

}  // namespace

npu_status paged_attention_run(const npu_call& call) {
  const Decoding d(call);
  const Stored<float> out(d.args.out, Stored<float>::kZero);
  const Stored<float> lse(d.args.lse);
  npu_status status = loaded(d.q, d.table, d.lengths);
  if (status != NPU_OK || !d.keys.known() || !d.values.known()) {
    return status != NPU_OK ? status : NPU_E_UNSUPPORTED;
  }
  const std::int64_t size = d.values.size();
  const auto item = [&](std::int64_t at) {
    const std::int64_t b = at / d.kv_heads;
    const std::int64_t kv = at % d.kv_heads;
    const std::int64_t first = d.first(b);
    const std::int64_t n = d.last(b) - first;
    std::vector<double> p(static_cast<std::size_t>(d.group * n));
    scores_of(d, b, kv, p);
    const std::int64_t row = b * d.heads + kv * d.group;
    for (std::int64_t g = 0; g < d.group; ++g) {
      lse.set(row + g, normalise(p.data() + g * n, n));
    }
    std::vector<float> buffer(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t page = d.page(b, first + i);
      if (page < 0) {
        continue;
      }
      const float* const value =
          d.values.row(page, (first + i) % d.block(), kv, buffer.data());
      for (std::int64_t g = 0; g < d.group; ++g) {
        fused_table().add_scaled(
            out.data() + (row + g) * size,
            value,
            static_cast<float>(p[static_cast<std::size_t>(g * n + i)]),
            size);
      }
    }
  };
  const std::int64_t work = d.args.block_table->sizes[1] * d.block() * size * 2;
  status = for_each_item(d.args.q->sizes[0] * d.kv_heads, work, item);
  return finish(status, out, lse);
}

npu_status paged_attention_caps(std::uint32_t code, npu_op_caps& out) {
  narrow_caps(out);
  out.dtypes[5] = out.dtypes[6] = NPU_DTYPE_BIT(NPU_I32);
  // Packed queries, masks and scaled caches are left to others.
  std::fill(out.dtypes + 7, out.dtypes + 11, 0);
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

}  // namespace npu::host
