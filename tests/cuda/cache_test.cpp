// SPDX-License-Identifier: Apache-2.0
// Compiled programs on disk: what is found again, and what is not trusted.
#include "jit/cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace npu::cuda::jit {
namespace {

namespace fs = std::filesystem;

const std::vector<char> kCode{'c', 'u', 'b', 'i', 'n', '\0', '\n', '\x7f'};

class Cache : public testing::Test {
 protected:
  void SetUp() override {
    std::string made =
        (fs::temp_directory_path() / "npu_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  std::string root() const {
    return (folder_ / "kept").string();
  }
  DiskCache cache(int architecture = 90, const char* version = "13.0") const {
    return DiskCache(root(), architecture, version);
  }
  void keep(const std::string& key) const {
    std::string why;
    ASSERT_TRUE(cache().keep(key, kCode, why)) << why;
  }
  fs::path folder_;
};

TEST(Sha256, HasTheDigestsOfTheStandard) {
  EXPECT_EQ(
      sha256(""),
      "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(
      sha256("abc"),
      "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(
      sha256(std::string(1000000, 'a')),
      "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(Cache, WhatIsKeptIsFoundAgain) {
  EXPECT_TRUE(cache().find("a").empty());
  keep("a");
  EXPECT_EQ(cache().find("a"), kCode);
  EXPECT_TRUE(cache().find("b").empty());
  // Of another architecture or compiler: another file.
  EXPECT_TRUE(cache(80).find("a").empty());
  EXPECT_TRUE(cache(90, "13.1").find("a").empty());
  keep("a");  // once more
  EXPECT_EQ(cache().find("a"), kCode);
}

TEST_F(Cache, FilesAreTheUsersAlone) {
  keep("a");
  struct stat about {};
  const std::string path = cache().path_of("a");
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_EQ(path.find(root() + "/cuda/sm_90/13.0/"), 0u);
  EXPECT_EQ(fs::path(path).filename(), sha256("a") + ".cubin");
  for (fs::path at = fs::path(path).parent_path(); at != fs::path(root());
       at = at.parent_path()) {
    ASSERT_EQ(::stat(at.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0700u) << at;
  }
  // Nothing is left of the writing.
  int files = 0;
  for (const auto& each :
       fs::directory_iterator(fs::path(path).parent_path())) {
    static_cast<void>(each);
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(Cache, WhatWasChangedIsTakenAway) {
  const std::string path = cache().path_of("a");
  const auto spoil = [&](auto change) {
    keep("a");
    change();
    EXPECT_TRUE(cache().find("a").empty());
    EXPECT_FALSE(fs::exists(path));
  };
  spoil([&] { fs::resize_file(path, fs::file_size(path) - 1); });
  spoil([&] { fs::resize_file(path, 3); });
  spoil([&] { fs::resize_file(path, 0); });
  spoil([&] { std::ofstream(path) << std::string(500, 'x'); });
  spoil([&] {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('!');
  });
  spoil([&] {
    fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  });
  keep("a");
  EXPECT_EQ(cache().find("a"), kCode);
}

TEST_F(Cache, LinksAreNotFollowed) {
  keep("a");
  const std::string path = cache().path_of("a");
  fs::rename(path, folder_ / "elsewhere");
  fs::create_symlink(folder_ / "elsewhere", path);
  EXPECT_TRUE(cache().find("a").empty());
}

TEST_F(Cache, FoldersThatOthersMayWriteAreRefused) {
  keep("a");
  fs::permissions(
      root() + "/cuda", fs::perms::others_write, fs::perm_options::add);
  std::string why;
  EXPECT_FALSE(cache().keep("b", kCode, why));
  EXPECT_NE(why.find("NPU_CACHE"), std::string::npos) << why;
}

TEST_F(Cache, WithoutAFolderNothingIsKept) {
  std::ofstream(root()) << "a file";  // root may write anywhere else
  std::string why;
  EXPECT_FALSE(cache().keep("a", kCode, why));
  EXPECT_NE(why.find(root()), std::string::npos) << why;
  EXPECT_TRUE(cache().find("a").empty());
  EXPECT_FALSE(DiskCache("", 90, "13.0").keep("a", kCode, why));
  EXPECT_TRUE(DiskCache("", 90, "13.0").find("a").empty());
}

TEST(CacheRoot, IsTheVariablesThenTheHomes) {
  setenv("NPU_CACHE", "/one", 1);
  EXPECT_EQ(DiskCache::root(), "/one");
  setenv("NPU_CACHE", "", 1);
  setenv("XDG_CACHE_HOME", "/two", 1);
  EXPECT_EQ(DiskCache::root(), "/two/opennpu");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/three", 1);
  EXPECT_EQ(DiskCache::root(), "/three/.cache/opennpu");
}

}  // namespace
}  // namespace npu::cuda::jit
