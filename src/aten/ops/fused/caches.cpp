// SPDX-License-Identifier: Apache-2.0
// Rows of keys and values into and out of paged caches: one pass of copies
// where the device is this computer's processor. Other devices, other layouts
// and wrong numbers are left to the composition.
#include <algorithm>
#include <cstring>
#include <vector>

#include "aten/ops/fused/fused.h"
#include "attempts/atb.h"
#include "attempts/cache.h"
#include "runtime/capabilities.h"

namespace npu::fused {
namespace {

using Numbers = std::vector<std::int64_t>;

Numbers numbers_of(const at::Tensor& tensor) {
  const at::Tensor all = tensor.to(at::kLong).contiguous();
  const auto* const first = all.const_data_ptr<std::int64_t>();
  return {first, first + all.numel()};
}

// A cache (blocks, places, chunks, chunk): a token's row is all chunks of one
// place. 'PA_NZ' keeps (blocks, chunks, places, chunk).
struct Pages {
  Pages(const at::Tensor& cache, bool nz)
      : view(nz ? cache.transpose(1, 2) : cache) {}
  char* chunk(std::int64_t block, std::int64_t place, std::int64_t i) const {
    return static_cast<char*>(view.data_ptr()) +
           (block * view.stride(0) + place * view.stride(1) +
            i * view.stride(2)) *
               view.element_size();
  }
  std::int64_t chunks() const {
    return view.size(2);
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(view.size(3) * view.element_size());
  }
  at::Tensor view;
};

bool fits_pages(const at::Tensor& cache, const at::Tensor& rows) {
  return cache.dim() == 4 && cache.numel() > 0 && same_dtype(cache, rows) &&
         (cache.stride(3) == 1 || cache.size(3) == 1) && rows.dim() > 0 &&
         on_device(cache, rows);
}

bool fits_rows(const at::Tensor& rows, const Pages& pages) {
  return rows.numel() == rows.size(0) * pages.view.size(2) * pages.view.size(3);
}

void write(const at::Tensor& rows, const Pages& pages, const Numbers& slots) {
  const at::Tensor from = rows.contiguous();
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  const std::int64_t places = pages.view.size(1);
  for (const std::int64_t slot : slots) {
    for (std::int64_t i = 0; i < pages.chunks(); ++i) {
      if (slot >= 0) {
        std::memcpy(
            pages.chunk(slot / places, slot % places, i),
            source,
            pages.bytes());
      }
      source += pages.bytes();
    }
  }
}

template <bool kNz>
bool scatter_on_cpu(
    const at::Tensor& key,
    const at::Tensor& value,
    at::Tensor& key_cache,
    at::Tensor& value_cache,
    const at::Tensor& slots) {
  const Pages keys(key_cache, kNz);
  const Pages values(value_cache, kNz);
  const Numbers at = numbers_of(slots);
  for (const Pages* const pages : {&keys, &values}) {
    for (const std::int64_t slot : at) {
      if (slot >= pages->view.size(0) * pages->view.size(1)) {
        return false;
      }
    }
  }
  write(key, keys, at);
  write(value, values, at);
  return true;
}

// Runs as the CPU function of the operator, whose schema says what is written.
template <bool kNz>
npu_reason store(twin::Entry& entry, const Arguments& args, const char* slots) {
  at::Tensor key_cache = args.tensor("key_cache");
  at::Tensor value_cache = args.tensor("value_cache");
  const bool done = ladder::run_unboxed<
      bool,
      const at::Tensor&,
      const at::Tensor&,
      at::Tensor&,
      at::Tensor&,
      const at::Tensor&>(
      entry,
      NPU_REASON_NO_KERNEL,
      &scatter_on_cpu<kNz>,
      args.tensor("key"),
      args.tensor("value"),
      key_cache,
      value_cache,
      args.tensor(slots));
  return done ? NPU_REASON_NONE : kLeaveToCpu;
}

bool can_store(const Arguments& args, const char* slots, bool nz) {
  const at::Tensor key = args.tensor("key");
  const at::Tensor value = args.tensor("value");
  const at::Tensor key_cache = args.tensor("key_cache");
  const at::Tensor value_cache = args.tensor("value_cache");
  const at::Tensor at = args.tensor(slots);
  return host_code_is_native() && fits_pages(key_cache, key) &&
         fits_pages(value_cache, value) &&
         fits_rows(key, Pages(key_cache, nz)) &&
         fits_rows(value, Pages(value_cache, nz)) && is_index(at) &&
         on_device(at) && at.numel() == key.size(0) &&
         at.numel() == value.size(0);
}

}  // namespace

npu_reason scatter_pages(
    const Arguments& args, torch::jit::Stack& /*results*/) {
  const std::string mode =
      args.has("cache_mode") ? args["cache_mode"].toStringRef() : "";
  const bool nz = mode == "PA_NZ";
  if (!(nz || mode == "Norm") || !can_store(args, "slot_mapping", nz)) {
    return kLeaveToCpu;
  }
  static twin::Entry& entry =
      twin::entry_for(find_operator("npu::npu_scatter_pa_kv_cache"));
  return nz ? store<true>(entry, args, "slot_mapping")
            : store<false>(entry, args, "slot_mapping");
}

npu_reason reshape_and_cache(
    const Arguments& args, torch::jit::Stack& /*results*/) {
  if (!can_store(args, "slot_indices", false)) {
    return kLeaveToCpu;
  }
  static twin::Entry& entry =
      twin::entry_for(find_operator("atb::_npu_reshape_and_cache"));
  return store<false>(entry, args, "slot_indices");
}

// ---- out of a cache ----

namespace {

// Blocks that a sequence reads from, and how many rows.
struct Reader {
  const Numbers& table;
  std::int64_t columns;
  const Numbers& lengths;
  Numbers skipped;  // whole blocks at the start of each sequence

  void read(const at::Tensor& cache, at::Tensor& out) const {
    const std::int64_t places = cache.size(1);
    const std::size_t row =
        static_cast<std::size_t>(cache.stride(1) * cache.element_size());
    const auto* const from = static_cast<const char*>(cache.const_data_ptr());
    auto* to = static_cast<char*>(out.data_ptr());
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      for (std::int64_t i = 0; i < lengths[s]; ++i, to += row) {
        const std::int64_t column = i / places + skipped[s] / places;
        const std::int64_t block =
            column < columns ? table
                                   [s * static_cast<std::size_t>(columns) +
                                    static_cast<std::size_t>(column)]
                             : -1;
        if (block < 0 || block >= cache.size(0)) {
          std::memset(to, 0, row);
        } else {
          std::memcpy(
              to,
              from +
                  static_cast<std::size_t>(block * places + i % places) * row,
              row);
        }
      }
    }
    const auto* const end =
        static_cast<const char*>(out.const_data_ptr()) + out.nbytes();
    std::memset(to, 0, static_cast<std::size_t>(end - to));
  }
};

// Rows behind the last sequence are 0, and so are those of blocks that are not
// there. False where the results are too small or a number is negative.
bool gather_on_cpu(
    const at::Tensor& key_cache,
    const at::Tensor& value_cache,
    const at::Tensor& block_tables,
    const at::Tensor& seq_lens,
    at::Tensor& key,
    at::Tensor& value,
    const std::optional<at::Tensor>& seq_offset,
    bool cumulative) {
  const Numbers table = numbers_of(block_tables);
  Numbers lengths = numbers_of(seq_lens);
  if (cumulative) {
    for (std::size_t i = 0; i + 1 < lengths.size(); ++i) {
      lengths[i] = lengths[i + 1] - lengths[i];
    }
    lengths.pop_back();
  }
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0 || length > key.size(0) - total) {
      return false;
    }
    total += length;
  }
  const Numbers skipped = seq_offset.has_value() ? numbers_of(*seq_offset)
                                                 : Numbers(lengths.size(), 0);
  const bool negative = std::any_of(
      skipped.begin(), skipped.end(), [](std::int64_t n) { return n < 0; });
  if (negative || skipped.size() != lengths.size() ||
      static_cast<std::int64_t>(lengths.size()) != block_tables.size(0)) {
    return false;
  }
  const Reader reader{table, block_tables.size(1), lengths, skipped};
  reader.read(key_cache, key);
  reader.read(value_cache, value);
  return true;
}

bool can_gather(const Arguments& args) {
  const at::Tensor table = args.tensor("block_tables");
  const at::Tensor lengths = args.tensor("seq_lens");
  const at::Tensor key = args.tensor("key");
  const at::Tensor value = args.tensor("value");
  const auto fits_cache = [](const at::Tensor& cache, const at::Tensor& out) {
    return cache.dim() >= 3 && cache.numel() > 0 && cache.is_contiguous() &&
           out.is_contiguous() && same_dtype(cache, out) && out.dim() > 0 &&
           on_device(cache, out) &&
           out.numel() == out.size(0) * cache.stride(1);
  };
  const at::Tensor offset = args.maybe("seq_offset");
  return host_code_is_native() && fits_cache(args.tensor("key_cache"), key) &&
         fits_cache(args.tensor("value_cache"), value) &&
         key.size(0) == value.size(0) && table.dim() == 2 && is_index(table) &&
         lengths.dim() == 1 && lengths.numel() > 0 && is_index(lengths) &&
         on_device(table, lengths) &&
         (!offset.defined() || (is_index(offset) && on_device(offset)));
}

}  // namespace

npu_reason gather_pages(const Arguments& args, torch::jit::Stack& /*results*/) {
  if (!can_gather(args)) {
    return kLeaveToCpu;
  }
  static twin::Entry& entry =
      twin::entry_for(find_operator("npu::npu_gather_pa_kv_cache"));
  at::Tensor key = args.tensor("key");
  at::Tensor value = args.tensor("value");
  const bool done = ladder::run_unboxed<
      bool,
      const at::Tensor&,
      const at::Tensor&,
      const at::Tensor&,
      const at::Tensor&,
      at::Tensor&,
      at::Tensor&,
      const std::optional<at::Tensor>&,
      bool>(
      entry,
      NPU_REASON_NO_KERNEL,
      &gather_on_cpu,
      args.tensor("key_cache"),
      args.tensor("value_cache"),
      args.tensor("block_tables"),
      args.tensor("seq_lens"),
      key,
      value,
      args["seq_offset"].toOptional<at::Tensor>(),
      args["is_seq_lens_cumsum"].toBool());
  return done ? NPU_REASON_NONE : kLeaveToCpu;
}

}  // namespace npu::fused
