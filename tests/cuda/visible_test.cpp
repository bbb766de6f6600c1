// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES, as CUDA reads it.
#include "visible.h"

#include <gtest/gtest.h>

namespace npu::cuda {
namespace {

using List = std::vector<int>;
const std::vector<std::string> kThree = {
    "GPU-aa110000-0000", "GPU-aa220000-0000", "GPU-bb330000-0000"};

TEST(visible, AllWhereNothingIsSaid) {
  EXPECT_EQ(visible_devices(nullptr, kThree), (List{0, 1, 2}));
  EXPECT_EQ(visible_devices(nullptr, {}), List{});
}

TEST(visible, NumbersInTheirOrder) {
  EXPECT_EQ(visible_devices("1", kThree), List{1});
  EXPECT_EQ(visible_devices("2,0", kThree), (List{2, 0}));
  EXPECT_EQ(visible_devices(" 2 , 1 ", kThree), (List{2, 1}));
  EXPECT_EQ(visible_devices("+1", kThree), List{1});
}

TEST(visible, TheListEndsBeforeWhatNamesNothing) {
  EXPECT_EQ(visible_devices("", kThree), List{});
  EXPECT_EQ(visible_devices("-1", kThree), List{});
  EXPECT_EQ(visible_devices("0,-1,1", kThree), List{0});
  EXPECT_EQ(visible_devices("0,7,1", kThree), List{0});
  EXPECT_EQ(visible_devices("none", kThree), List{});
  EXPECT_EQ(visible_devices("1,,2", kThree), List{1});
  EXPECT_EQ(visible_devices("0,99999999999999999999", kThree), List{0});
}

TEST(visible, NamesAndTheirBeginnings) {
  EXPECT_EQ(visible_devices("GPU-bb330000-0000", kThree), List{2});
  EXPECT_EQ(visible_devices("GPU-bb,GPU-aa22", kThree), (List{2, 1}));
  EXPECT_EQ(visible_devices("GPU-aa", kThree), List{}) << "two begin so";
  EXPECT_EQ(visible_devices("GPU-cc", kThree), List{});
  EXPECT_EQ(visible_devices("0,GPU-bb", kThree), (List{0, 2}));
}

TEST(visible, OneTwiceIsNone) {
  EXPECT_EQ(visible_devices("1,1", kThree), List{});
  EXPECT_EQ(visible_devices("2,GPU-bb", kThree), List{});
}

}  // namespace
}  // namespace npu::cuda
