// SPDX-License-Identifier: Apache-2.0
// Regions against bytes one by one, and orders of streams against what they
// say.
#include "runtime/sanitizer/race_table.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace npu::sanitizer {
namespace {

using Sizes = std::vector<std::int64_t>;

const void* at(std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

std::set<std::uintptr_t> bytes_of(
    std::uintptr_t base,
    std::size_t item,
    const Sizes& sizes,
    const Sizes& strides) {
  std::set<std::uintptr_t> bytes;
  for (const std::int64_t size : sizes) {
    if (size == 0) {
      return bytes;
    }
  }
  Sizes index(sizes.size(), 0);
  for (;;) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      offset += index[d] * strides[d];
    }
    for (std::size_t b = 0; b < item; ++b) {
      bytes.insert(base + static_cast<std::uintptr_t>(offset) * item + b);
    }
    std::size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) {
      index[--d] = 0;
    }
    if (d == 0) {
      return bytes;
    }
  }
}

TEST(Region, MeetsWhereBytesAreShared) {
  std::mt19937 random(1);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  int met = 0;
  for (int round = 0; round < 20000; ++round) {
    std::uintptr_t base[2];
    Sizes sizes[2];
    Sizes strides[2];
    std::size_t item[2];
    for (int i = 0; i < 2; ++i) {
      base[i] = 1000 + static_cast<std::uintptr_t>(draw(0, 40));
      item[i] = std::size_t{1} << draw(0, 3);
      for (int d = draw(0, 3); d > 0; --d) {
        sizes[i].push_back(draw(0, 20) == 0 ? 0 : draw(1, 5));
        strides[i].push_back(draw(0, 9));
      }
    }
    const Region a(at(base[0]), item[0], sizes[0], strides[0]);
    const Region b(at(base[1]), item[1], sizes[1], strides[1]);
    const auto first = bytes_of(base[0], item[0], sizes[0], strides[0]);
    const auto second = bytes_of(base[1], item[1], sizes[1], strides[1]);
    bool shared = false;
    for (const std::uintptr_t byte : first) {
      shared = shared || second.contains(byte);
    }
    ASSERT_EQ(a.meets(b), shared) << round;
    ASSERT_EQ(b.meets(a), shared) << round;
    if (!first.empty()) {
      ASSERT_EQ(a.begin(), *first.begin()) << round;
      ASSERT_EQ(a.end(), *first.rbegin() + 1) << round;
    }
    if (a.covers(b) && !second.empty()) {
      for (const std::uintptr_t byte : second) {
        ASSERT_TRUE(first.contains(byte)) << round;
      }
    }
    met += shared ? 1 : 0;
  }
  EXPECT_GT(met, 2000);
  EXPECT_LT(met, 18000);
}

TEST(Region, TellsColumnsOfALargeMatrixApart) {
  const Sizes sizes{1 << 20, 4};
  const Sizes strides{8, 1};
  const Region left(at(4096), 4, sizes, strides);
  const Region right(at(4096 + 16), 4, sizes, strides);
  EXPECT_FALSE(left.meets(right));
  EXPECT_TRUE(left.meets(Region(at(4096 + 12), 4, sizes, strides)));
}

class Races : public testing::Test {
 protected:
  static constexpr StreamName kMain{0, 0};
  static constexpr StreamName kSide{0, 97};

  RaceTable::Point access(
      StreamName stream, std::uintptr_t data, std::size_t bytes, bool write) {
    const RaceTable::Point point = table.launch(stream);
    table.access(0, point, {Region(at(data), bytes), write}, found);
    return point;
  }
  void read(StreamName stream, std::uintptr_t data, std::size_t bytes = 64) {
    access(stream, data, bytes, false);
  }
  void write(StreamName stream, std::uintptr_t data, std::size_t bytes = 64) {
    access(stream, data, bytes, true);
  }
  std::size_t races() {
    return std::exchange(found, {}).size();
  }

  RaceTable table;
  std::vector<Race> found;
  int event = 0;
};

TEST_F(Races, AreFoundBetweenStreamsOnly) {
  write(kMain, 1000);
  read(kMain, 1000);
  EXPECT_EQ(races(), 0u);
  read(kSide, 1000);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].earlier.write);
  EXPECT_EQ(found[0].earlier.stream, kMain);
  EXPECT_EQ(found[0].later.stream, kSide);
}

TEST_F(Races, NeedAWriteAndCommonBytes) {
  read(kMain, 1000);
  read(kSide, 1000);
  write(kSide, 1064);
  EXPECT_EQ(races(), 0u);
  write(kMain, 1032);
  EXPECT_EQ(races(), 2u);  // the other stream's read and its write
}

TEST_F(Races, EndWithAnEventThatIsWaitedFor) {
  write(kMain, 1000);
  table.record(&event, kMain);
  write(kMain, 2000);
  table.wait(kSide, &event);
  read(kSide, 1000);
  EXPECT_EQ(races(), 0u);
  read(kSide, 2000);  // came after the record
  EXPECT_EQ(races(), 1u);
}

TEST_F(Races, EndWithOrderThatOtherStreamsPassOn) {
  const StreamName third{0, 98};
  int second = 0;
  write(kMain, 1000);
  table.record(&event, kMain);
  table.wait(kSide, &event);
  table.record(&second, kSide);
  table.wait(third, &second);
  write(third, 1000);
  EXPECT_EQ(races(), 0u);
}

TEST_F(Races, EndWhenTheHostHasWaited) {
  write(kMain, 1000);
  table.synchronize_stream(kMain);
  write(kSide, 1000);
  EXPECT_EQ(races(), 0u);
  table.record(&event, kSide);
  table.synchronize_event(&event);
  write(kMain, 1000);
  EXPECT_EQ(races(), 0u);
  table.synchronize_device(1);
  write(kSide, 1000);
  EXPECT_EQ(races(), 1u);
  write(kSide, 5000);
  table.synchronize_device(0);
  write(kMain, 5000);
  EXPECT_EQ(races(), 0u);
}

TEST_F(Races, AnEventRecordedAgainStandsForTheLaterPoint) {
  table.record(&event, kMain);
  write(kMain, 1000);
  table.wait(kSide, &event);
  read(kSide, 1000);
  EXPECT_EQ(races(), 1u);
  write(kMain, 3000);
  table.record(&event, kMain);
  table.wait(kSide, &event);
  read(kSide, 3000);
  EXPECT_EQ(races(), 0u);
}

TEST_F(Races, AreFoundInMemoryThatWasHandedOutAgain) {
  table.allocated(0, at(1000), 64, kMain, nullptr);
  write(kMain, 1000);
  table.record(&event, kMain);
  table.wait(kSide, &event);
  read(kSide, 1000);
  std::vector<MissingRecord> missing;
  table.freed(0, at(1000), missing);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].use.stream, kSide);
  EXPECT_EQ(missing[0].owner, kMain);
  table.allocated(0, at(1000), 64, kMain, nullptr);
  write(kMain, 1000);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].earlier.released);
}

TEST_F(Races, RecordStreamMakesReuseSafe) {
  table.allocated(0, at(1000), 64, kMain, nullptr);
  read(kSide, 1016, 8);
  table.use_recorded(0, at(1000), kSide);
  EXPECT_TRUE(table.missing_records().empty());
  std::vector<MissingRecord> missing;
  table.freed(0, at(1000), missing);
  EXPECT_TRUE(missing.empty());
  write(kMain, 1000);
  EXPECT_EQ(races(), 0u);
}

TEST_F(Races, HostCodeWaitsForCopiesOfPinnedMemory) {
  const RaceTable::Point point = table.launch(kMain);
  table.access(kHostMemory, point, {Region(at(1000), 64), false}, found);
  table.access_of_host({Region(at(1000), 64), false}, found);
  EXPECT_EQ(races(), 0u);  // two reads
  table.access_of_host({Region(at(1000), 64), true}, found);
  EXPECT_EQ(races(), 1u);
  const RaceTable::Point later = table.launch(kMain);
  table.access(kHostMemory, later, {Region(at(1000), 64), true}, found);
  table.synchronize_stream(kMain);
  table.access_of_host({Region(at(1000), 64), true}, found);
  EXPECT_EQ(races(), 0u);
}

TEST_F(Races, WorkOfAGroupIsOrderedByItsOwnEvent) {
  const StreamName group{0, kFirstGroupStream};
  write(kMain, 1000);
  table.record(&event, kMain);
  table.wait(group, &event);
  const RaceTable::Point point = access(group, 1000, 64, true);
  int work = 0;
  table.record_launch(&work, point);
  EXPECT_EQ(races(), 0u);
  int seen = 0;
  table.record(&seen, kMain);
  table.add_to_event(&seen, &work);
  table.wait(kSide, &seen);
  read(kSide, 1000);
  EXPECT_EQ(races(), 0u);
  write(kMain, 1000);  // the main stream did not wait
  EXPECT_EQ(races(), 2u);
}

TEST_F(Races, TheTableStaysSmall) {
  for (std::uintptr_t i = 0; i < 2 * RaceTable::kMostAccesses; ++i) {
    write(kMain, 64 * (i + 1), 32);
  }
  EXPECT_LE(table.size(), RaceTable::kMostAccesses);
  EXPECT_GT(table.size(), 0u);
  write(kSide, 64 * 2 * RaceTable::kMostAccesses, 32);
  EXPECT_EQ(races(), 1u);
}

}  // namespace
}  // namespace npu::sanitizer
