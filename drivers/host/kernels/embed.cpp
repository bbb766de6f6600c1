// SPDX-License-Identifier: Apache-2.0
// embedding_grad, embedding_bag and its gradients, embedding_renorm.
//
// Reference kernels: right in every case, not fast. The host device runs
// PyTorch's CPU kernels instead, unless NPU_HOST_KERNELS=all.
#include <algorithm>
#include <cmath>

#include "kernels/index.h"

namespace npu::host {
namespace {

// How often each row is named, where gradients are scaled by it.
std::vector<std::int64_t> frequencies(
    const Indices& indices,
    std::int64_t n,
    std::int64_t rows,
    std::int64_t padding) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < n; ++i) {
    counts[static_cast<std::size_t>(indices[i])] += indices[i] != padding;
  }
  return counts;
}

// add(i) for every index whose row belongs to this thread: rows are shared
// out, so each is summed in the order of the indices.
template <class Add>
npu_status for_rows(
    std::int64_t rows,
    std::int64_t row_cost,
    const Indices& indices,
    std::int64_t n,
    Add add) {
  const std::int64_t work = n * row_cost / std::max<std::int64_t>(rows, 1) + 1;
  const auto body = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (indices[i] >= first && indices[i] < last) {
        add(i);
      }
    }
  };
  return parallel(rows, kGrain / work + 1, body);
}

// ---- embedding_grad ----

npu_status embedding_grad(const npu_call& call) {
  const npu_embedding_grad_args args = npu_embedding_grad_unpack(&call);
  const std::int64_t rows = args.grad_weight->sizes[0];
  const std::int64_t width = args.grad_weight->numel / rows;
  const std::int64_t n = args.indices->numel;
  const std::int64_t padding = args.attrs.padding_index;
  const Indices indices(*args.indices, rows, Negative::kRefused, 0);
  if (indices.status()) {
    return indices.status();
  }
  std::vector<std::int64_t> counts;
  if (args.attrs.scale_by_frequency) {
    counts = frequencies(indices, n, rows, padding);
  }
  return with_float(args.grad_weight->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Loaded<T> from(args.grad_out);
    const Stored<T> to(args.grad_weight, Stored<T>::kZero);
    if (const npu_status status = loaded(from, to)) {
      return status;
    }
    for_rows(rows, width, indices, n, [&](std::int64_t i) {
      if (indices[i] == padding) {
        return;
      }
      const T scale =
          counts.empty()
              ? T(1)
              : T(1) / static_cast<T>(
                           counts[static_cast<std::size_t>(indices[i])]);
      for (std::int64_t k = 0; k < width; ++k) {
        to[indices[i] * width + k] += from[i * width + k] * scale;
      }
    });
    return to.store();
  });
}

// ---- embedding_bag ----

// First index of each bag, and one entry more: the end of the last.
class Bags {
 public:
  Bags(const npu_embedding_bag_args& args, std::int64_t n_bags)
      : starts_(static_cast<std::size_t>(n_bags) + 1, args.indices->numel) {
    const Loaded<std::int64_t> offsets(args.offsets);
    status_ = offsets.status();
    const std::int64_t given =
        n_bags + (args.attrs.include_last_offset ? 1 : 0);
    std::copy(offsets.data(), offsets.data() + given, starts_.begin());
    if (!std::is_sorted(starts_.begin(), starts_.end()) || starts_[0] != 0 ||
        starts_.back() > args.indices->numel) {
      status_ = fail(
          NPU_E_INVALID,
          "embedding_bag: offsets must begin with 0, not decrease, and not "
          "exceed the number of indices, %lld",
          static_cast<long long>(args.indices->numel));
    }
  }
  npu_status status() const noexcept {
    return status_;
  }
  std::int64_t begin(std::int64_t bag) const noexcept {
    return starts_[static_cast<std::size_t>(bag)];
  }
  std::int64_t end(std::int64_t bag) const noexcept {
    return starts_[static_cast<std::size_t>(bag) + 1];
  }

 private:
  std::vector<std::int64_t> starts_;
  npu_status status_;
};

// What the backward needs to know of each bag and index.
struct BagNotes {
  Stored<std::int64_t> offset2bag;
  Stored<std::int64_t> bag_size;
  Stored<std::int64_t> max_indices;

  explicit BagNotes(const npu_embedding_bag_args& args)
      : offset2bag(args.offset2bag, Stored<std::int64_t>::kZero),
        bag_size(args.bag_size, Stored<std::int64_t>::kZero),
        max_indices(args.max_indices, Stored<std::int64_t>::kZero) {}
  npu_status store() const {
    for (const auto* note : {&offset2bag, &bag_size, &max_indices}) {
      if (*note) {
        if (const npu_status status = note->store()) {
          return status;
        }
      }
    }
    return NPU_OK;
  }
};

template <class T>
class BagForward {
 public:
  BagForward(
      const npu_embedding_bag_args& args,
      std::uint32_t code,
      const Indices& indices,
      const Bags& bags,
      const BagNotes& notes)
      : code_(code),
        padding_(args.attrs.padding_index),
        width_(args.out->sizes[1]),
        indices_(indices),
        bags_(bags),
        notes_(notes),
        weight_(args.weight),
        scale_(args.sample_weights),
        out_(args.out, Stored<T>::kZero) {}

  npu_status status() const {
    return loaded(weight_, scale_, out_);
  }
  npu_status store() const {
    return out_.store();
  }

  void bag(std::int64_t b) const {
    std::int64_t count = 0;
    for (std::int64_t i = bags_.begin(b); i < bags_.end(b); ++i) {
      if (notes_.offset2bag) {
        notes_.offset2bag[i] = b;
      }
      if (indices_[i] != padding_) {
        take(b, i, count++ == 0);
      }
    }
    if (notes_.bag_size) {
      notes_.bag_size[b] = count;
    }
    for (std::int64_t k = 0;
         code_ == NPU_EMBEDDING_BAG_MEAN && count > 0 && k < width_;
         ++k) {
      out_[b * width_ + k] /= static_cast<T>(count);
    }
  }

 private:
  void take(std::int64_t b, std::int64_t i, bool first) const {
    const T* const row = weight_.data() + indices_[i] * width_;
    T* const out = out_.data() + b * width_;
    const T scale = scale_ ? scale_[i] : T(1);
    for (std::int64_t k = 0; k < width_; ++k) {
      if (code_ != NPU_EMBEDDING_BAG_MAX) {
        out[k] += row[k] * scale;
      } else if (first || row[k] > out[k]) {
        out[k] = row[k];
        if (notes_.max_indices) {
          notes_.max_indices[b * width_ + k] = indices_[i];
        }
      }
    }
  }

  std::uint32_t code_;
  std::int64_t padding_;
  std::int64_t width_;
  const Indices& indices_;
  const Bags& bags_;
  const BagNotes& notes_;
  Loaded<T> weight_;
  Loaded<T> scale_;
  Stored<T> out_;
};

npu_status embedding_bag(const npu_call& call) {
  const npu_embedding_bag_args args = npu_embedding_bag_unpack(&call);
  const std::int64_t n_bags = args.out->sizes[0];
  const Indices indices(
      *args.indices, args.weight->sizes[0], Negative::kRefused, 0);
  const Bags bags(args, n_bags);
  if (const npu_status status = loaded(indices, bags)) {
    return status;
  }
  const BagNotes notes(args);
  return with_float(args.weight->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const BagForward<T> forward(args, call.code, indices, bags, notes);
    if (forward.status()) {
      return forward.status();
    }
    const std::int64_t work =
        args.indices->numel * args.out->sizes[1] / n_bags + 1;
    parallel(n_bags, kGrain / work + 1, [&](std::int64_t b, std::int64_t end) {
      for (; b < end; ++b) {
        forward.bag(b);
      }
    });
    const npu_status status = forward.store();
    return status ? status : notes.store();
  });
}

// ---- embedding_bag_grad ----

template <class T>
npu_status bag_grad_max(
    const npu_embedding_bag_grad_args& args, std::int64_t rows) {
  const std::int64_t width = args.grad->sizes[1];
  const Indices max_indices(*args.max_indices, rows, Negative::kRefused, 0);
  const Loaded<std::int64_t> bag_size(args.bag_size);
  const Loaded<T> from(args.grad_out);
  const Stored<T> to(args.grad, Stored<T>::kZero);
  if (const npu_status status = loaded(max_indices, bag_size, from, to)) {
    return status;
  }
  for (std::int64_t i = 0; i < args.grad_out->numel; ++i) {
    if (bag_size[i / width] > 0) {
      to[max_indices[i] * width + i % width] += from[i];
    }
  }
  return to.store();
}

template <class T>
npu_status bag_grad_sum(
    const npu_embedding_bag_grad_args& args,
    std::uint32_t code,
    const Indices& indices,
    const Indices& bags) {
  const std::int64_t rows = args.grad->sizes[0];
  const std::int64_t width = args.grad->sizes[1];
  const std::int64_t n = args.indices->numel;
  const std::int64_t padding = args.attrs.padding_index;
  const bool mean = code == NPU_EMBEDDING_BAG_GRAD_MEAN;
  const Loaded<std::int64_t> bag_size(args.bag_size);
  const Loaded<T> weights(args.sample_weights);
  const Loaded<T> from(args.grad_out);
  const Stored<T> to(args.grad, Stored<T>::kZero);
  if (const npu_status status = loaded(bag_size, weights, from, to)) {
    return status;
  }
  std::vector<std::int64_t> counts;
  if (args.attrs.scale_by_frequency) {
    counts = frequencies(indices, n, rows, padding);
  }
  for_rows(rows, width, indices, n, [&](std::int64_t i) {
    if (indices[i] == padding) {
      return;
    }
    T scale = weights ? weights[i] : T(1);
    if (!counts.empty()) {
      scale /= static_cast<T>(counts[static_cast<std::size_t>(indices[i])]);
    }
    if (mean && bag_size) {
      scale /= static_cast<T>(std::max<std::int64_t>(bag_size[bags[i]], 1));
    }
    for (std::int64_t k = 0; k < width; ++k) {
      to[indices[i] * width + k] += from[bags[i] * width + k] * scale;
    }
  });
  return to.store();
}

// One product per index: its row with its bag's gradient.
template <class T>
npu_status bag_grad_weights(
    const npu_embedding_bag_grad_args& args,
    const Indices& indices,
    const Indices& bags) {
  const std::int64_t width = args.weight->sizes[1];
  const Loaded<T> weight(args.weight);
  const Loaded<T> from(args.grad_out);
  const Stored<T> to(args.grad, Stored<T>::kZero);
  if (const npu_status status = loaded(weight, from, to)) {
    return status;
  }
  const auto body = [&](std::int64_t i, std::int64_t end) {
    for (; i < end; ++i) {
      if (indices[i] == args.attrs.padding_index) {
        continue;
      }
      double sum = 0;
      for (std::int64_t k = 0; k < width; ++k) {
        sum += double{from[bags[i] * width + k]} *
               double{weight[indices[i] * width + k]};
      }
      to[i] = static_cast<T>(sum);
    }
  };
  parallel(args.indices->numel, kGrain / (width + 1) + 1, body);
  return to.store();
}

npu_status embedding_bag_grad(const npu_call& call) {
  const npu_embedding_bag_grad_args args = npu_embedding_bag_grad_unpack(&call);
  const bool of_weights = call.code == NPU_EMBEDDING_BAG_GRAD_SAMPLE_WEIGHTS;
  const npu_tensor& table = of_weights ? *args.weight : *args.grad;
  const Indices indices(*args.indices, table.sizes[0], Negative::kRefused, 0);
  const Indices bags(
      *args.offset2bag, args.grad_out->sizes[0], Negative::kRefused, 0);
  if (const npu_status status = loaded(indices, bags)) {
    return status;
  }
  return with_float(args.grad->dtype, [&](auto type) {
    using T = decltype(type);
    if (of_weights) {
      return bag_grad_weights<T>(args, indices, bags);
    }
    return call.code == NPU_EMBEDDING_BAG_GRAD_MAX
               ? bag_grad_max<T>(args, table.sizes[0])
               : bag_grad_sum<T>(args, call.code, indices, bags);
  });
}

// ---- embedding_renorm ----

template <class T>
double norm_of(const T* row, std::int64_t width, double p) {
  double sum = 0;
  for (std::int64_t k = 0; k < width; ++k) {
    const double x = std::abs(double{row[k]});
    sum = std::isinf(p) ? std::max(sum, x)
          : p == 0      ? sum + (x != 0)
                        : sum + std::pow(x, p);
  }
  return std::isinf(p) || p == 0 ? sum : std::pow(sum, 1 / p);
}

npu_status embedding_renorm(const npu_call& call) {
  const npu_embedding_renorm_args args = npu_embedding_renorm_unpack(&call);
  const std::int64_t rows = args.weight->sizes[0];
  const std::int64_t width = args.weight->numel / rows;
  const Indices indices(*args.indices, rows, Negative::kRefused, 0);
  if (indices.status()) {
    return indices.status();
  }
  std::vector<std::int64_t> named(
      indices.data(), indices.data() + args.indices->numel);
  std::sort(named.begin(), named.end());
  named.erase(std::unique(named.begin(), named.end()), named.end());
  return with_float(args.weight->dtype, [&](auto type) -> npu_status {
    using T = decltype(type);
    const Stored<T> weight(args.weight, Stored<T>::kLoad);
    if (weight.status()) {
      return weight.status();
    }
    for (const std::int64_t r : named) {
      T* const row = weight.data() + r * width;
      const double norm = norm_of(row, width, args.attrs.norm_type);
      if (norm > args.attrs.max_norm) {
        const T scale = static_cast<T>(args.attrs.max_norm / (norm + 1e-7));
        std::transform(row, row + width, row, [=](T x) { return x * scale; });
      }
    }
    return weight.store();
  });
}

// ---- rows ----

npu_status embedding_grad_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {kFloatDtypes, kFloatDtypes, kIndexDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status embedding_bag_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(
      out,
      NPU_DTYPES_SAME,
      {kFloatDtypes,
       kIndexDtypes,
       kIndexDtypes,
       kIndexDtypes,
       kFloatDtypes,
       kIndexDtypes,
       kIndexDtypes,
       kFloatDtypes});
  return code < NPU_EMBEDDING_BAG_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status embedding_bag_grad_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(
      out,
      NPU_DTYPES_SAME,
      {kFloatDtypes,
       kFloatDtypes,
       kIndexDtypes,
       kIndexDtypes,
       kIndexDtypes,
       kIndexDtypes,
       kFloatDtypes,
       kFloatDtypes});
  return code < NPU_EMBEDDING_BAG_GRAD_CODES ? NPU_OK : NPU_E_UNSUPPORTED;
}

npu_status embedding_renorm_caps(std::uint32_t code, npu_op_caps& out) {
  plain_caps(out, NPU_DTYPES_SAME, {kFloatDtypes, kIndexDtypes});
  return code == 0 ? NPU_OK : NPU_E_UNSUPPORTED;
}

constexpr KernelRow kRows[] = {
    {NPU_KIND_EMBEDDING_GRAD, embedding_grad_caps, nullptr, embedding_grad},
    {NPU_KIND_EMBEDDING_BAG, embedding_bag_caps, nullptr, embedding_bag},
    {NPU_KIND_EMBEDDING_BAG_GRAD,
     embedding_bag_grad_caps,
     nullptr,
     embedding_bag_grad},
    {NPU_KIND_EMBEDDING_RENORM,
     embedding_renorm_caps,
     nullptr,
     embedding_renorm},
};

}  // namespace

const std::span<const KernelRow> kEmbedKernels = kRows;

}  // namespace npu::host
