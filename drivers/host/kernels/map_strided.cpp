// SPDX-License-Identifier: Apache-2.0
// Elementwise calls that are not one line: broadcast, strided, of other dtypes.
#include <algorithm>
#include <cstring>

#include "kernels/cast.h"
#include "kernels/map_call.h"

namespace npu::host {
namespace {

constexpr std::int64_t kChunk = 512;  // elements; buffers stay in the L1 cache

// ---- lines without conversion ----

// Copies of one element, for an input that is the same all along a line.
void repeat(char* to, const char* element, std::size_t bytes, std::int64_t n) {
  const auto fill = [&]<class T>(T value) {
    std::memcpy(&value, element, sizeof(value));
    std::fill_n(reinterpret_cast<T*>(to), n, value);
  };
  switch (bytes) {
    case 1:
      return fill(std::uint8_t{});
    case 4:
      return fill(std::uint32_t{});
    case 8:
      return fill(std::uint64_t{});
    default:
      for (std::int64_t i = 0; i < n; ++i) {
        std::memcpy(to + static_cast<std::size_t>(i) * bytes, element, bytes);
      }
  }
}

// Calls whose operands need no conversion: along the last dimension each is
// contiguous, or constant (broadcast, or a host scalar).
class LineMap {
 public:
  // False: not such a call, or one whose lines are too long to be what threads
  // share.
  bool set(const MapCall& map) {
    constexpr std::int64_t kLongestShared = kGrain / 8;
    const npu_tensor& out = *map.operands[0];
    map_ = &map;
    numel_ = out.numel;
    ndim_ = out.ndim;
    sizes_ = out.sizes;
    if (ndim_ == 0 || numel_ == 0 ||
        (numel_ > kGrain && sizes_[ndim_ - 1] > kLongestShared)) {
      return false;
    }
    for (int i = 0; i < map.count(); ++i) {
      if (!map.operands[i] || !set_operand(i, *map.operands[i])) {
        return false;
      }
    }
    return true;
  }

  npu_status run() {
    const std::int64_t inner = sizes_[ndim_ - 1];
    if (numel_ <= kGrain) {
      return run_lines(numel_ / inner);
    }
    return parallel(
        numel_ / inner,
        kGrain / inner,
        [this](std::int64_t begin, std::int64_t end) {
          LineMap mine = *this;
          mine.go_to(begin);
          return mine.run_lines(end - begin);
        });
  }

 private:
  npu_status run_lines(std::int64_t lines) {
    alignas(64) char buffers[kMaxOperands][kChunk * 16];
    const std::int64_t inner = sizes_[ndim_ - 1];
    const std::int64_t chunk = std::min(inner, any_constant_ ? kChunk : inner);
    for (std::int64_t line = 0; line < lines; ++line) {
      for (int i = map_->n_out; i < map_->count(); ++i) {
        if (constant_[i] && (line == 0 || strides_[i])) {
          repeat(buffers[i], data_[i], bytes_[i], chunk);
        }
      }
      for (std::int64_t begin = 0; begin < inner; begin += chunk) {
        if (npu_status status =
                run_line(buffers, begin, std::min(chunk, inner - begin))) {
          return status;
        }
      }
      advance();
    }
    return NPU_OK;
  }

  bool set_operand(int i, const npu_tensor& t) {
    const bool scalar = (t.flags & NPU_TENSOR_HOST_SCALAR) != 0;
    const std::int64_t stride = scalar            ? 0
                                : t.ndim == ndim_ ? t.strides[ndim_ - 1]
                                                  : -1;
    data_[i] = static_cast<char*>(t.data);
    bytes_[i] = element_bytes(t.dtype);
    strides_[i] = scalar ? nullptr : t.strides;
    constant_[i] = stride == 0 && i >= map_->n_out;
    any_constant_ = any_constant_ || constant_[i];
    return t.dtype == map_->units[i] &&
           (t.flags & (NPU_TENSOR_CONJ | NPU_TENSOR_NEG)) == 0 &&
           (stride == 1 || constant_[i] || (sizes_[ndim_ - 1] == 1 && !scalar));
  }

  npu_status run_line(
      char (*buffers)[kChunk * 16], std::int64_t begin, std::int64_t n) const {
    MapLine line;
    line.scalars = map_->scalars;
    for (int i = 0; i < map_->count(); ++i) {
      char* const data =
          constant_[i]
              ? buffers[i]
              : data_[i] + begin * static_cast<std::int64_t>(bytes_[i]);
      if (i < map_->n_out) {
        line.out[i] = data;
      } else {
        line.in[i - map_->n_out] = data;
      }
    }
    return map_->fn(line, n);
  }

  // Along one dimension.
  void move(int d, std::int64_t steps) {
    for (int i = 0; i < map_->count(); ++i) {
      if (strides_[i]) {
        data_[i] +=
            steps * strides_[i][d] * static_cast<std::int64_t>(bytes_[i]);
      }
    }
  }
  // To the beginning of a line, from that of the first.
  void go_to(std::int64_t line) {
    for (int d = ndim_ - 2; d >= 0; --d) {
      at_[d] = line % sizes_[d];
      line /= sizes_[d];
      move(d, at_[d]);
    }
  }
  // To the beginning of the next line.
  void advance() {
    for (int d = ndim_ - 2; d >= 0; --d) {
      const bool carry = ++at_[d] == sizes_[d];
      move(d, carry ? 1 - sizes_[d] : 1);
      if (!carry) {
        return;
      }
      at_[d] = 0;
    }
  }

  const MapCall* map_ = nullptr;
  std::int64_t numel_ = 0;
  int ndim_ = 0;
  const std::int64_t* sizes_ = nullptr;
  bool any_constant_ = false;
  std::int64_t at_[NPU_MAX_DIMS] = {};
  char* data_[kMaxOperands];
  std::size_t bytes_[kMaxOperands];
  const std::int64_t* strides_[kMaxOperands];  // null: a number
  bool constant_[kMaxOperands];
};

// ---- conversion of one operand ----

// Between an operand and `unit`, the dtype the line computes with.
class Port {
 public:
  // False when there is no such conversion.
  bool set(const npu_tensor& tensor, npu_dtype unit, bool is_input) {
    const bool scalar = (tensor.flags & NPU_TENSOR_HOST_SCALAR) != 0;
    data_ = static_cast<char*>(tensor.data);
    bytes_ = static_cast<std::int64_t>(element_bytes(tensor.dtype));
    unit_bytes_ = static_cast<std::int64_t>(element_bytes(unit));
    strides_ = scalar ? nullptr : tensor.strides;
    ndim_ = scalar ? 0 : tensor.ndim;
    return is_input ? cast_.set(
                          unit,
                          tensor.dtype,
                          (tensor.flags & NPU_TENSOR_NEG) != 0,
                          (tensor.flags & NPU_TENSOR_CONJ) != 0)
                    : cast_.set(tensor.dtype, unit);
  }

  // Numbers are rounded to `narrow` on their way in or out.
  bool set_rounding(npu_dtype unit, npu_dtype narrow) {
    rounds_ = narrow != NPU_ABSENT;
    thin_bytes_ = static_cast<std::int64_t>(element_bytes(narrow));
    return !rounds_ || (narrow_.set(narrow, unit) && widen_.set(unit, narrow));
  }
  void round(char* units, std::int64_t n) const {
    if (!rounds_) {
      return;
    }
    alignas(64) char thin[kChunk * 8];
    narrow_.line(thin, thin_bytes_, units, unit_bytes_, n);
    widen_.line(units, unit_bytes_, thin, thin_bytes_, n);
  }

  bool is_constant() const {
    return std::all_of(
        strides_, strides_ + ndim_, [](std::int64_t s) { return s == 0; });
  }
  std::int64_t stride(int d) const {  // in bytes
    return d < ndim_ ? strides_[d] * bytes_ : 0;
  }
  // The elements themselves, when they are contiguous and need no conversion.
  char* direct(std::int64_t offset, std::int64_t stride) const {
    return cast_.is_copy() && !rounds_ && stride == bytes_ ? data_ + offset
                                                           : nullptr;
  }
  void load(char* to, std::int64_t offset, std::int64_t stride, std::int64_t n)
      const {
    cast_.line(to, unit_bytes_, data_ + offset, stride, n);
    round(to, n);
  }
  void store(
      const char* from,
      std::int64_t offset,
      std::int64_t stride,
      std::int64_t n) const {
    cast_.line(data_ + offset, stride, from, unit_bytes_, n);
  }

 private:
  char* data_ = nullptr;
  const std::int64_t* strides_ = nullptr;
  int ndim_ = 0;
  bool rounds_ = false;
  std::int64_t bytes_ = 0;
  std::int64_t unit_bytes_ = 0;
  std::int64_t thin_bytes_ = 0;
  Cast cast_;
  Cast narrow_;
  Cast widen_;
};

// ---- all others ----

// A place in n dimensions, with the byte offset of every operand.
struct Place {
  std::int64_t at[NPU_MAX_DIMS + 1];
  std::int64_t offset[kMaxOperands];
};

class StridedMap {
 public:
  explicit StridedMap(const MapCall& map) : map_(map) {}

  npu_status run() {
    const npu_tensor& out = *map_.operands[0];
    for (int i = 0; i < map_.count(); ++i) {
      if (!map_.operands[i]) {
        continue;  // a second output that is not wanted
      }
      const npu_tensor& t = *map_.operands[i];
      const bool scalar = (t.flags & NPU_TENSOR_HOST_SCALAR) != 0;
      if ((!scalar && t.ndim != out.ndim) ||
          !ports_[i].set(t, map_.units[i], i >= map_.n_out) ||
          !ports_[i].set_rounding(map_.units[i], map_.rounds_to[i])) {
        return fail(
            NPU_E_UNSUPPORTED,
            "npu: host driver: operand %d is %s with %d dimensions, the "
            "output has %d.",
            i,
            dtype_name(t.dtype),
            t.ndim,
            out.ndim);
      }
    }
    ndim_ = out.ndim;
    sizes_ = out.sizes;
    const std::int64_t one = 1;
    if (ndim_ == 0) {
      sizes_ = &one;
      ndim_ = 1;
    }
    return parallel(
        out.numel, kGrain, [&](std::int64_t begin, std::int64_t end) {
          return run_range(begin, end);
        });
  }

 private:
  npu_status run_range(std::int64_t begin, std::int64_t end) const {
    alignas(64) char buffers[kMaxOperands][kChunk * 16];
    bool constant[kMaxOperands];
    for (int i = 0; i < map_.count(); ++i) {
      constant[i] = i >= map_.n_out && ports_[i].is_constant();
      if (constant[i]) {
        ports_[i].load(buffers[i], 0, 0, std::min(kChunk, end - begin));
      }
    }
    Place place = find(begin);
    const int inner = ndim_ - 1;
    while (begin < end) {
      const std::int64_t n =
          std::min({sizes_[inner] - place.at[inner], end - begin, kChunk});
      if (npu_status status = run_chunk(place, n, buffers, constant)) {
        return status;
      }
      advance(place, n);
      begin += n;
    }
    return NPU_OK;
  }

  npu_status run_chunk(
      const Place& place,
      std::int64_t n,
      char (*buffers)[kChunk * 16],
      const bool* constant) const {
    const int inner = ndim_ - 1;
    MapLine line{};
    line.scalars = map_.scalars;
    char* out[2] = {};
    for (int i = 0; i < map_.n_out; ++i) {
      out[i] = ports_[i].direct(place.offset[i], ports_[i].stride(inner));
      line.out[i] = out[i] ? out[i] : buffers[i];
    }
    for (int i = map_.n_out; i < map_.count(); ++i) {
      const std::int64_t stride = ports_[i].stride(inner);
      char* in =
          constant[i] ? buffers[i] : ports_[i].direct(place.offset[i], stride);
      if (!in) {
        in = buffers[i];
        ports_[i].load(in, place.offset[i], stride, n);
      }
      line.in[i - map_.n_out] = in;
    }
    if (npu_status status = map_.fn(line, n)) {
      return status;
    }
    for (int i = 0; i < map_.n_out; ++i) {
      if (!out[i] && map_.operands[i]) {
        ports_[i].round(buffers[i], n);
        ports_[i].store(
            buffers[i], place.offset[i], ports_[i].stride(inner), n);
      }
    }
    return NPU_OK;
  }

  Place find(std::int64_t index) const {
    Place place{};
    for (int d = ndim_ - 1; d >= 0; --d) {
      const std::int64_t at = index % sizes_[d];
      index /= sizes_[d];
      move(place, d, at);
    }
    return place;
  }

  void advance(Place& place, std::int64_t n) const {
    int d = ndim_ - 1;
    move(place, d, n);
    while (d > 0 && place.at[d] == sizes_[d]) {
      move(place, d, -sizes_[d]);
      move(place, --d, 1);
    }
  }

  void move(Place& place, int d, std::int64_t n) const {
    place.at[d] += n;
    for (int i = 0; i < map_.count(); ++i) {
      place.offset[i] += n * ports_[i].stride(d);
    }
  }

  const MapCall& map_;
  Port ports_[kMaxOperands]{};
  int ndim_ = 0;
  const std::int64_t* sizes_ = nullptr;
};

}  // namespace

npu_status run_strided(const MapCall& map) {
  LineMap lines;
  return !map.rounds() && lines.set(map) ? lines.run() : StridedMap(map).run();
}

}  // namespace npu::host
