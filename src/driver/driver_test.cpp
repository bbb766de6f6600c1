// SPDX-License-Identifier: Apache-2.0
// Loading: what is refused and in which words, and what is filled in.
#include "driver/driver.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "driver/services.h"
#include "driver/test_env.h"
#include "npu/kinds.h"

namespace npu {
namespace {

using test::error_of;
namespace fs = std::filesystem;

std::string driver_path(const std::string& name) {
  return std::string(NPU_TEST_DRIVER_DIR) + "/libnpu_" + name + ".so";
}

std::string failure(const std::string& path) {
  return error_of([&] { Driver::load(path); });
}

std::string driver_failure_of(const std::string& name) {
  return failure(driver_path(name));
}

// A file in a folder of its own that goes away with the test.
class Files : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           ("npu_driver_test_" + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override {
    fs::remove_all(dir_);
  }
  std::string write(const std::string& name, const std::string& bytes) {
    const fs::path path = dir_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  fs::path dir_;
};

TEST(Load, AGoodDriver) {
  Driver* driver = Driver::load(driver_path("tiny"));
  EXPECT_STREQ(driver->name(), "tiny");
  EXPECT_EQ(driver->path(), fs::canonical(driver_path("tiny")).string());
  EXPECT_TRUE(driver->has_kind(NPU_KIND_FILL));
  EXPECT_FALSE(driver->has_kind(NPU_KIND_COPY));
  EXPECT_FALSE(driver->has_kind(100000));
  EXPECT_STREQ(host_services()->last_error(), "");
}

TEST(Load, TwiceIsTheSameDriver) {
  EXPECT_EQ(
      Driver::load(driver_path("tiny")),
      Driver::load(
          std::string(NPU_TEST_DRIVER_DIR) + "/../" +
          fs::path(NPU_TEST_DRIVER_DIR).filename().string() +
          "/libnpu_tiny.so"));
}

TEST(Load, NoSuchFile) {
  EXPECT_HAS(failure("/nowhere/libnpu_x.so"), "'/nowhere/libnpu_x.so'");
  EXPECT_HAS(failure("/nowhere/libnpu_x.so"), "no such file");
}

TEST(Load, NoEntrySymbol) {
  EXPECT_HAS(
      driver_failure_of("tiny_no_entry"),
      "does not export 'npu_driver_entry', so it is no driver");
}

TEST(Load, WrongMajorVersion) {
  EXPECT_HAS(
      driver_failure_of("tiny_major"),
      "built for contract 2.1, this host speaks 1.2. Rebuild the driver");
}

TEST(Load, ANewerMinorIsTaken) {
  EXPECT_EQ(driver_failure_of("tiny_newer"), "");
}

TEST(Platform, IsTheDriversOwnWord) {
  const Driver& cuda = *Driver::load(driver_path("tiny_cuda"));
  EXPECT_STREQ(cuda.platform(), "cuda");
  EXPECT_TRUE(cuda.has_platform(NPU_PLATFORM_CUDA));
  EXPECT_FALSE(cuda.has_platform(NPU_PLATFORM_CPU));
  EXPECT_FALSE(cuda.device_is_cpu());
  const Driver& none = *Driver::load(driver_path("tiny"));
  EXPECT_EQ(none.platform(), nullptr);
  EXPECT_FALSE(none.has_platform(NPU_PLATFORM_CPU));
}

TEST(Platform, OneThatContradictsTheFlagIsRefused) {
  EXPECT_HAS(
      driver_failure_of("tiny_platforms"),
      "says platform 'cuda' and the flag NPU_DRIVER_DEVICE_IS_CPU. Take the "
      "flag away");
}

TEST(Load, EveryMissingSlotIsNamed) {
  EXPECT_HAS(
      driver_failure_of("tiny_no_slots"),
      "driver 'tiny' 0.1: required slots are missing: stream.host_call, "
      "event.query.");
  EXPECT_HAS(
      driver_failure_of("tiny_no_table"),
      "required slots are missing: event (the whole table, or its 'size').");
}

TEST(Load, SlotsThatDependOnTheDevices) {
  EXPECT_HAS(
      driver_failure_of("tiny_two"), "memory.copy_peer (there are 2 devices)");
  EXPECT_HAS(
      driver_failure_of("tiny_explicit"),
      "memory.host_open and memory.host_close (npu:0 has explicit host "
      "access)");
}

TEST(Load, NoSizeAndNoName) {
  EXPECT_HAS(driver_failure_of("tiny_no_size"), "npu_driver says size 0");
  EXPECT_HAS(driver_failure_of("tiny_no_name"), "has no name");
}

TEST(Load, ItsOwnInitialisationFails) {
  const std::string text = driver_failure_of("tiny_init_fails");
  EXPECT_HAS(text, "failed to initialise: device lost (no card in slot 3).");
  EXPECT_HAS(text, "libnpu_tiny_init_fails.so");
  EXPECT_STREQ(host_services()->last_error(), "");
  EXPECT_HAS(driver_failure_of("tiny_gives_null"), "gave no driver");
}

TEST(Load, AStandardKindHasItsFixedSlot) {
  EXPECT_HAS(
      driver_failure_of("tiny_wrong_slot"),
      "gives slot 77 to kind 'fill', the contract fixes 2");
}

// Reading a row through NULL would end the process at the first matmul.
TEST(Load, RowsOfDtypesHaveToBeThere) {
  EXPECT_HAS(
      driver_failure_of("tiny_no_rows"),
      "kind 'gemm': its caps say NPU_DTYPES_ROWS, 2 rows, and dtype_rows is "
      "NULL");
}

// On the stack, what follows would be the caller's.
TEST(Load, CapsStayInsideWhatTheyAreGiven) {
  EXPECT_HAS(
      driver_failure_of("tiny_long_caps"),
      "wrote past the end of the struct it was given. Write no more than "
      "out->size "
      "bytes, here " +
          std::to_string(sizeof(npu_op_caps)));
}

TEST_F(Files, ATextFileIsNoDriver) {
  EXPECT_HAS(
      failure(write(
          "notes.so",
          "this is only text, and long enough to be "
          "mistaken for a header by length alone")),
      "not a shared library (no ELF header)");
  EXPECT_HAS(failure(write("short.so", "x")), "not a shared library");
  EXPECT_HAS(failure(write("empty.so", "")), "not a shared library");
  EXPECT_HAS(failure(dir_.string()), "not a file");
}

TEST_F(Files, ACutFileIsRefusedAtAnyLength) {
  const std::string whole = read(driver_path("tiny"));
  ASSERT_GT(whole.size(), 8192u);
  for (const std::size_t length :
       {std::size_t{4},
        std::size_t{63},
        std::size_t{64},
        std::size_t{200},
        std::size_t{4096},
        whole.size() / 2}) {
    EXPECT_HAS(failure(write("cut.so", whole.substr(0, length))), "cut short")
        << length << " bytes of " << whole.size();
  }
}

TEST_F(Files, AnotherProcessorsLibraryIsRefused) {
  std::string bytes = read(driver_path("tiny"));
  bytes[18] = 0x08;  // e_machine: MIPS
  bytes[19] = 0;
  EXPECT_HAS(failure(write("mips.so", bytes)), "another processor");
}

TEST_F(Files, AnUnreadableFileIsNamed) {
  const std::string path = write("secret.so", "x");
  fs::permissions(path, fs::perms::none);
  if (::access(path.c_str(), R_OK) == 0) {
    GTEST_SKIP() << "root reads everything";
  }
  EXPECT_HAS(failure(path), "cannot be read");
}

TEST(Defaults, OptionalSlotsAreNeverNull) {
  const Driver& driver = *Driver::load(driver_path("tiny_short"));
  int32_t least = 5;
  int32_t greatest = 5;
  EXPECT_EQ(driver.stream().priority_range(0, &least, &greatest), NPU_OK);
  EXPECT_EQ(least, 0);
  EXPECT_EQ(greatest, 0);
  const auto handle = reinterpret_cast<npu_stream>(&least);
  EXPECT_EQ(driver.stream().native_handle(handle), &least);
  const auto event = reinterpret_cast<npu_event>(&least);
  EXPECT_EQ(driver.event().native_handle(event), &least);
  int32_t yes = 1;
  EXPECT_EQ(driver.device().can_access_peer(0, 0, &yes), NPU_OK);
  EXPECT_EQ(yes, 0);
  EXPECT_EQ(driver.device().trim(0), NPU_OK);
  EXPECT_EQ(driver.op().warm(0, NPU_KIND_FILL), NPU_OK);
  EXPECT_EQ(driver.table().get_interface("capture/1"), nullptr);
  EXPECT_EQ(driver.table().shutdown(), NPU_OK);
  EXPECT_EQ(driver.memory().host_open(&yes, 4, NPU_ACCESS_READ), NPU_OK);
  EXPECT_EQ(
      driver.memory().copy_peer(nullptr, 0, nullptr, 1, nullptr, 0),
      NPU_E_UNSUPPORTED);
  host_services()->set_error(nullptr);
}

TEST(Kinds, DisabledOnesAreValidated) {
  {
    const test::ScopedEnv none("NPU_DISABLE_KIND", nullptr);
    EXPECT_TRUE(disabled_kinds().empty());
  }
  {
    const test::ScopedEnv two("NPU_DISABLE_KIND", "copy, random");
    EXPECT_EQ(
        disabled_kinds(),
        (std::vector<std::uint32_t>{NPU_KIND_COPY, NPU_KIND_RANDOM}));
  }
  const test::ScopedEnv bad("NPU_DISABLE_KIND", "copy,rndom");
  const std::string text = error_of([] { disabled_kinds(); });
  EXPECT_HAS(text, "NPU_DISABLE_KIND names 'rndom', which is no kind");
  EXPECT_HAS(text, "(did you mean 'random'?)");
  EXPECT_HAS(text, "Allowed, comma separated: copy, fill,");
}

TEST(StreamLock, OneCallAtATimePerStream) {
  const Driver& driver = *Driver::load(driver_path("tiny_lock"));
  void* library =
      ::dlopen(driver.path().c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto* overlap = static_cast<int*>(::dlsym(library, "tiny_overlap"));
  npu_stream stream = nullptr;
  ASSERT_EQ(driver.stream().create(0, 0, &stream), NPU_OK);
  const npu_capture* const capture = driver.interface<npu_capture>();
  ASSERT_NE(capture, nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        driver.stream().query(stream);
        driver.event().record(nullptr, stream);
        capture->launch(nullptr, stream);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(*overlap, 0);
  EXPECT_EQ(driver.stream().destroy(stream), NPU_OK);
}

TEST(Fork, TheChildKnowsAndMayNotLoad) {
  Driver::load(driver_path("tiny"));
  watch_forks();
  ASSERT_FALSE(forked_child());
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = false;
    try {
      Driver::load(driver_path("tiny_newer") + "x");
    } catch (const Error& error) {
      refused = error.code() == NPU_E_SHUTDOWN;
    }
    // What calls ask once must send them to the path with the error.
    ::_exit(forked_child() && calls_are_heard() && refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(forked_child());
}

}  // namespace
}  // namespace npu
