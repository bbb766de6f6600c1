// SPDX-License-Identifier: Apache-2.0
// Group comm: comm/1, a rank per device of this process. With one device each
// collective is of one rank.
#include "comm_kit.h"
#include "npu/validate.h"
#include "reference.h"

namespace npu::kit {
namespace {

constexpr std::uint64_t kCounts[] = {1, 7, 1000, 40'003};

// As close as one rounding to the dtype and a sum of a few floats can be.
void expect_close(
    const std::vector<double>& got,
    const std::vector<double>& wanted,
    npu_dtype dtype,
    const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool close = is_floating(dtype) ? ulps(dtype, got[i], wanted[i]) <= 1
                                          : got[i] == wanted[i];
    ASSERT_TRUE(close) << what << ": element " << i << " is " << got[i]
                       << ", expected " << wanted[i];
  }
}

TEST(comm, TableIsWhole) {
  NPU_NEEDS_COMM();
  const npu_comm_table& t = *comm_table();
  EXPECT_EQ(t.version, NPU_COMM_VERSION);
  EXPECT_GE(
      static_cast<const npu_comm_table*>(
          driver().get_interface(NPU_COMM_INTERFACE))
          ->size,
      offsetof(npu_comm_table, dtypes_per_hop));
  EXPECT_EQ(t.dtypes & t.dtypes_per_hop, 0u)
      << "a dtype is rounded once or at every hop, not both";
  EXPECT_GT(t.id_bytes, 0u);
  EXPECT_EQ(t.reductions >> NPU_REDUCTION_COUNT, 0u) << "unknown reductions";
  EXPECT_TRUE(
      t.make_id && t.init && t.state && t.abort && t.destroy && t.group_begin &&
      t.group_end && t.all_reduce && t.reduce && t.broadcast && t.all_gather &&
      t.reduce_scatter && t.send && t.recv)
      << "a required function is missing";
}

TEST(comm, ReductionsAreRight) {
  NPU_NEEDS_COMM();
  const npu_comm_table& t = *comm_table();
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  int judged = 0;
  for (npu_dtype dtype = 1; dtype < NPU_DTYPE_COUNT; ++dtype) {
    for (npu_reduction op = 0; op < NPU_REDUCTION_COUNT; ++op) {
      if (!has(t.dtypes, dtype) || (t.reductions >> op & 1) == 0 ||
          !is_defined(op, dtype)) {
        continue;
      }
      for (const std::uint64_t count : kCounts) {
        for (const bool in_place : {false, true}) {
          const std::uint64_t bytes = count * npu_dtype_bytes(dtype);
          Memory from(ranks.size(), bytes);
          Memory to(ranks.size(), bytes);
          for (int r = 0; r < ranks.size(); ++r) {
            from.put(r, as_bytes(numbers(r, count), dtype));
          }
          Memory& out = in_place ? from : to;
          const npu_status status = ranks.all([&](int r) {
            return t.all_reduce(
                ranks.comm(r),
                from.data(r),
                out.data(r),
                count,
                dtype,
                op,
                ranks.stream(r));
          });
          if (status == NPU_E_UNSUPPORTED) {
            continue;  // a driver's right
          }
          NPU_ASSERT_OK(status);
          ranks.synchronize();
          const auto wanted = all_reduced(op, dtype, ranks.size(), count);
          for (int r = 0; r < ranks.size(); ++r) {
            expect_close(
                as_doubles(out.at(r).get(), dtype),
                wanted,
                dtype,
                "all_reduce, reduction " + std::to_string(op) + ", dtype " +
                    std::to_string(dtype) +
                    (in_place ? ", in place, rank " : ", rank ") +
                    std::to_string(r));
          }
          ++judged;
        }
      }
    }
  }
  EXPECT_TRUE(judged > 0 || t.dtypes == 0)
      << "every reduction that the table declares was declined";
}

// 256 + 0.75 + ...: with a rounding at each term bfloat16 never leaves 256.
TEST(comm, HalvesAreRoundedOnce) {
  NPU_NEEDS_RANKS(3);
  const npu_comm_table& t = *comm_table();
  if (!has(t.dtypes, NPU_BF16)) {
    NPU_NOT_DECLARED("sums of bfloat16");
  }
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  Memory data(ranks.size(), 2 * 64);
  for (int r = 0; r < ranks.size(); ++r) {
    data.put(
        r, as_bytes(std::vector<double>(64, r == 0 ? 256 : 0.75), NPU_BF16));
  }
  NPU_ASSERT_OK(ranks.all([&](int r) {
    return t.all_reduce(
        ranks.comm(r),
        data.data(r),
        data.data(r),
        64,
        NPU_BF16,
        NPU_REDUCTION_SUM,
        ranks.stream(r));
  }));
  ranks.synchronize();
  EXPECT_EQ(
      data.at(0).get(),
      as_bytes(
          std::vector<double>(64, 256 + 0.75 * (ranks.size() - 1)), NPU_BF16));
}

TEST(comm, ReduceWritesOnTheRootAlone) {
  NPU_NEEDS_COMM();
  const npu_comm_table& t = *comm_table();
  if (!has(t.dtypes, NPU_F32)) {
    NPU_NOT_DECLARED("sums of float32");
  }
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  constexpr std::uint64_t kCount = 999;
  for (int root = 0; root < ranks.size(); ++root) {
    Memory from(ranks.size(), kCount * 4);
    Memory to(ranks.size(), kCount * 4);
    const Bytes before(kCount * 4, 0x5a);
    for (int r = 0; r < ranks.size(); ++r) {
      from.put(r, as_bytes(numbers(r, kCount), NPU_F32));
      to.put(r, before);
    }
    NPU_ASSERT_OK(ranks.all([&](int r) {
      return t.reduce(
          ranks.comm(r),
          from.data(r),
          r == root ? to.data(r) : nullptr,
          kCount,
          NPU_F32,
          NPU_REDUCTION_SUM,
          root,
          ranks.stream(r));
    }));
    ranks.synchronize();
    for (int r = 0; r < ranks.size(); ++r) {
      EXPECT_EQ(from.at(r).get(), as_bytes(numbers(r, kCount), NPU_F32))
          << "reduce changed its input";
      if (r != root) {
        EXPECT_EQ(to.at(r).get(), before) << "written on rank " << r;
      }
    }
    expect_close(
        as_doubles(to.at(root).get(), NPU_F32),
        all_reduced(NPU_REDUCTION_SUM, NPU_F32, ranks.size(), kCount),
        NPU_F32,
        "reduce");
  }
}

TEST(comm, BroadcastTakesEveryDtype) {
  NPU_NEEDS_COMM();
  const npu_comm_table& t = *comm_table();
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  for (npu_dtype dtype = 1; dtype < NPU_DTYPE_COUNT; ++dtype) {
    const std::uint64_t bytes = 77 * npu_dtype_bytes(dtype);
    const int root = dtype % ranks.size();
    Memory data(ranks.size(), bytes);
    for (int r = 0; r < ranks.size(); ++r) {
      data.put(r, Bytes(bytes, static_cast<std::uint8_t>(r + 1)));
    }
    NPU_ASSERT_OK(ranks.all([&](int r) {
      return t.broadcast(
          ranks.comm(r),
          data.data(r),
          data.data(r),
          77,
          dtype,
          root,
          ranks.stream(r));
    }));
    ranks.synchronize();
    for (int r = 0; r < ranks.size(); ++r) {
      EXPECT_EQ(
          data.at(r).get(), Bytes(bytes, static_cast<std::uint8_t>(root + 1)));
    }
  }
}

TEST(comm, GatherAndScatterInPlaceAndNot) {
  NPU_NEEDS_COMM();
  const npu_comm_table& t = *comm_table();
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  const int n = ranks.size();
  for (const std::uint64_t count : kCounts) {
    const std::uint64_t bytes = count * 4;
    for (const bool in_place : {false, true}) {
      Memory part(n, bytes);
      Memory whole(n, bytes * static_cast<std::uint64_t>(n));
      Bytes wanted;
      for (int r = 0; r < n; ++r) {
        const Bytes mine = as_bytes(numbers(r, count), NPU_F32);
        wanted.insert(wanted.end(), mine.begin(), mine.end());
        part.put(r, mine);
        if (in_place) {
          Bytes all(bytes * static_cast<std::uint64_t>(n), 9);
          std::copy(
              mine.begin(),
              mine.end(),
              all.begin() + static_cast<std::ptrdiff_t>(bytes) * r);
          whole.put(r, all);
        }
      }
      const auto own = [&](int r) {
        return whole.data(r) + bytes * static_cast<std::uint64_t>(r);
      };
      NPU_ASSERT_OK(ranks.all([&](int r) {
        return t.all_gather(
            ranks.comm(r),
            in_place ? own(r) : part.data(r),
            whole.data(r),
            count,
            NPU_F32,
            ranks.stream(r));
      }));
      ranks.synchronize();
      for (int r = 0; r < n; ++r) {
        EXPECT_EQ(whole.at(r).get(), wanted) << "all_gather on rank " << r;
      }
      if (!has(t.dtypes, NPU_F32)) {
        continue;
      }
      // All have the same now: each part becomes n times itself.
      NPU_ASSERT_OK(ranks.all([&](int r) {
        return t.reduce_scatter(
            ranks.comm(r),
            whole.data(r),
            in_place ? own(r) : part.data(r),
            count,
            NPU_F32,
            NPU_REDUCTION_SUM,
            ranks.stream(r));
      }));
      ranks.synchronize();
      for (int r = 0; r < n; ++r) {
        std::vector<double> sums = numbers(r, count);
        for (double& x : sums) {
          x *= n;
        }
        Bytes got = in_place ? whole.at(r).get() : part.at(r).get();
        if (in_place) {
          const auto first = static_cast<std::ptrdiff_t>(bytes) * r;
          got = Bytes(
              got.begin() + first,
              got.begin() + first + static_cast<std::ptrdiff_t>(bytes));
        }
        expect_close(as_doubles(got, NPU_F32), sums, NPU_F32, "reduce_scatter");
      }
    }
  }
}

// Rank r sends r + s + 1 elements to rank s; some of them nothing.
std::uint64_t parcel(int from, int to) {
  return from == 0 && to == 1 ? 0 : static_cast<std::uint64_t>(from + to + 1);
}

class Exchange {
 public:
  explicit Exchange(Ranks& ranks)
      : ranks_(ranks), from_(ranks.size(), 64 * 8), to_(ranks.size(), 64 * 8) {
    for (int r = 0; r < ranks_.size(); ++r) {
      std::vector<double> values(64);
      for (int s = 0; s < ranks_.size(); ++s) {
        for (std::uint64_t i = 0; i < 16; ++i) {
          values[offset(s) + i] = 100.0 * r + 10.0 * s + 1;
        }
      }
      from_.put(r, as_bytes(values, NPU_F64));
      to_.put(r, as_bytes(std::vector<double>(64, -1), NPU_F64));
    }
  }
  static std::uint64_t offset(int rank) {
    return 16 * static_cast<std::uint64_t>(rank);
  }
  char* sent(int rank, int to) {
    return from_.data(rank) + 8 * offset(to);
  }
  char* place(int rank, int from) {
    return to_.data(rank) + 8 * offset(from);
  }
  Memory& from() {
    return from_;
  }
  Memory& to() {
    return to_;
  }
  void check(bool own, const char* what) {
    ranks_.synchronize();
    for (int r = 0; r < ranks_.size(); ++r) {
      const auto got = as_doubles(to_.at(r).get(), NPU_F64);
      for (int s = 0; s < ranks_.size(); ++s) {
        for (std::uint64_t i = 0; i < 16; ++i) {
          const bool written = i < parcel(s, r) && (own || s != r);
          ASSERT_EQ(got[offset(s) + i], written ? 100.0 * s + 10.0 * r + 1 : -1)
              << what << ": rank " << r << ", from rank " << s;
        }
      }
    }
  }

 private:
  Ranks& ranks_;
  Memory from_;
  Memory to_;
};

TEST(comm, AllToAllWithDifferentCounts) {
  NPU_NEEDS_COMM();
  const npu_comm_table& t = *comm_table();
  if (t.all_to_all == nullptr) {
    NPU_NOT_DECLARED("all_to_all");
  }
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  Exchange exchange(ranks);
  const npu_status status = ranks.all([&](int r) {
    std::vector<std::uint64_t> out, in, at;
    for (int s = 0; s < ranks.size(); ++s) {
      out.push_back(parcel(r, s));
      in.push_back(parcel(s, r));
      at.push_back(Exchange::offset(s));
    }
    const npu_status queued = t.all_to_all(
        ranks.comm(r),
        exchange.from().data(r),
        out.data(),
        at.data(),
        exchange.to().data(r),
        in.data(),
        at.data(),
        NPU_F64,
        ranks.stream(r));
    // They were read; later writes do not matter.
    std::fill(out.begin(), out.end(), 1'000'000);
    std::fill(at.begin(), at.end(), 1'000'000);
    return queued;
  });
  NPU_ASSERT_OK(status);
  exchange.check(true, "all_to_all");
}

TEST(comm, MessagesOfAGroupDoNotBlockEachOther) {
  NPU_NEEDS_RANKS(2);
  const npu_comm_table& t = *comm_table();
  Ranks ranks;
  ASSERT_TRUE(ranks.ready());
  Exchange exchange(ranks);
  const auto move = [&](auto function, int rank, auto* at, auto n, int peer) {
    return n == 0 ? npu_status{NPU_OK}
                  : function(
                        ranks.comm(rank),
                        at,
                        n,
                        NPU_F64,
                        peer,
                        ranks.stream(rank));
  };
  NPU_ASSERT_OK(ranks.all([&](int r) {
    npu_status status = NPU_OK;
    for (int s = 0; s < ranks.size() && status == NPU_OK; ++s) {
      if (s != r) {
        status = move(t.send, r, exchange.sent(r, s), parcel(r, s), s);
        status = status != NPU_OK
                     ? status
                     : move(t.recv, r, exchange.place(r, s), parcel(s, r), s);
      }
    }
    return status;
  }));
  exchange.check(false, "send and recv");
}

}  // namespace
}  // namespace npu::kit
