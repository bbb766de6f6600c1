// SPDX-License-Identifier: Apache-2.0
// Group errors: misuse answers a status and a text, and the driver goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "crash.h"
#include "kit.h"

namespace npu::kit {
namespace {

// Says which call is made: it may be the driver's last.
#define NPU_EXPECT_REFUSED(call, what) \
  do {                                 \
    note_case(#call);                  \
    expect_refused((call), what);      \
  } while (0)

// A failure with words, not a success and not a crash.
void expect_refused(npu_status status, const char* what) {
  EXPECT_NE(status, NPU_OK) << what;
  EXPECT_NE(status, NPU_NOT_READY) << what;
  EXPECT_GE(status, NPU_E_INVALID) << what;
  EXPECT_LE(status, NPU_E_INTERNAL) << what;
  EXPECT_NE(last_error(), "") << what << ": no error text";
  clear_error();
}

// After whatever went wrong, this must still work.
class errors : public testing::Test {
 protected:
  void TearDown() override {
    const Bytes content(100, 11);
    Buffer buffer(content);
    EXPECT_EQ(buffer.get(), content) << "the device is not usable afterwards";
    NPU_EXPECT_OK(device_table().synchronize(0));
  }
};

TEST_F(errors, BadDeviceIndex) {
  for (const npu_device device : {-1, device_count(), 1000000, INT32_MIN}) {
    SCOPED_TRACE(device);
    void* ptr = nullptr;
    NPU_EXPECT_REFUSED(memory_table().alloc(device, 64, &ptr), "alloc");
    npu_stream stream = nullptr;
    NPU_EXPECT_REFUSED(stream_table().create(device, 0, &stream), "stream");
    npu_event event = nullptr;
    NPU_EXPECT_REFUSED(event_table().create(device, 0, &event), "event");
    NPU_EXPECT_REFUSED(device_table().synchronize(device), "synchronize");
    npu_device_properties p{};
    p.size = sizeof(p);
    NPU_EXPECT_REFUSED(device_table().properties(device, &p), "properties");
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    NPU_EXPECT_REFUSED(
        device_table().memory_info(device, &a, &b), "memory_info");
    NPU_EXPECT_REFUSED(device_table().open(device), "open");
  }
}

TEST_F(errors, NullArguments) {
  NPU_EXPECT_REFUSED(device_table().count(nullptr), "count");
  NPU_EXPECT_REFUSED(device_table().properties(0, nullptr), "properties");
  NPU_EXPECT_REFUSED(device_table().memory_info(0, nullptr, nullptr), "info");
  NPU_EXPECT_REFUSED(memory_table().alloc(0, 64, nullptr), "alloc");
  NPU_EXPECT_REFUSED(memory_table().host_alloc(64, nullptr), "host_alloc");
  NPU_EXPECT_REFUSED(
      memory_table().pointer_info(&errno, nullptr), "pointer_info");
  NPU_EXPECT_REFUSED(stream_table().create(0, 0, nullptr), "stream create");
  NPU_EXPECT_REFUSED(stream_table().synchronize(nullptr), "stream synchronize");
  NPU_EXPECT_REFUSED(stream_table().query(nullptr), "stream query");
  NPU_EXPECT_REFUSED(stream_table().destroy(nullptr), "stream destroy");
  NPU_EXPECT_REFUSED(event_table().create(0, 0, nullptr), "event create");
  NPU_EXPECT_REFUSED(event_table().destroy(nullptr), "event destroy");
  NPU_EXPECT_REFUSED(event_table().query(nullptr), "event query");
  NPU_EXPECT_REFUSED(event_table().synchronize(nullptr), "event synchronize");
}

TEST_F(errors, NullOnAStream) {
  Stream stream;
  Event event;
  Buffer a(64);
  Bytes host(64);
  NPU_EXPECT_REFUSED(event_table().record(event.get(), nullptr), "record");
  NPU_EXPECT_REFUSED(event_table().record(nullptr, stream.get()), "record");
  NPU_EXPECT_REFUSED(
      stream_table().wait_event(stream.get(), nullptr), "wait_event");
  NPU_EXPECT_REFUSED(
      stream_table().wait_event(nullptr, event.get()), "wait_event");
  NPU_EXPECT_REFUSED(
      stream_table().host_call(stream.get(), nullptr, nullptr), "host_call");
  NPU_EXPECT_REFUSED(
      memory_table().copy_to_device(nullptr, a.data(), host.data(), 64),
      "copy without stream");
  NPU_EXPECT_REFUSED(
      memory_table().copy_to_device(stream.get(), nullptr, host.data(), 64),
      "copy to null");
  NPU_EXPECT_REFUSED(
      memory_table().copy_to_host(stream.get(), nullptr, a.data(), 64),
      "copy to null host");
  NPU_EXPECT_REFUSED(
      memory_table().set_bytes(stream.get(), nullptr, 0, 64), "set_bytes");
  double ms = 0;
  NPU_EXPECT_REFUSED(
      event_table().elapsed_ms(nullptr, event.get(), &ms), "elapsed");
}

TEST_F(errors, DoubleFree) {
  void* ptr = nullptr;
  NPU_ASSERT_OK(memory_table().alloc(0, 4096, &ptr));
  NPU_ASSERT_OK(memory_table().free(0, ptr));
  NPU_EXPECT_REFUSED(memory_table().free(0, ptr), "second free");
  void* pinned = nullptr;
  NPU_ASSERT_OK(memory_table().host_alloc(4096, &pinned));
  NPU_ASSERT_OK(memory_table().host_free(pinned));
  NPU_EXPECT_REFUSED(memory_table().host_free(pinned), "second host_free");
}

TEST_F(errors, ForeignAndInteriorPointers) {
  Bytes host(4096);
  NPU_EXPECT_REFUSED(
      memory_table().free(0, host.data()), "free of host memory");
  NPU_EXPECT_REFUSED(memory_table().host_free(host.data()), "host_free");
  void* ptr = nullptr;
  NPU_ASSERT_OK(memory_table().alloc(0, 4096, &ptr));
  NPU_EXPECT_REFUSED(
      memory_table().free(0, static_cast<char*>(ptr) + 512), "interior free");
  NPU_EXPECT_REFUSED(
      memory_table().host_free(ptr), "host_free of device memory");
  NPU_EXPECT_OK(memory_table().free(0, ptr));
}

TEST_F(errors, FreeOnTheWrongDevice) {
  if (device_count() < 2) {
    GTEST_SKIP() << "one device";
  }
  void* ptr = nullptr;
  NPU_ASSERT_OK(memory_table().alloc(0, 4096, &ptr));
  NPU_EXPECT_REFUSED(memory_table().free(1, ptr), "free on another device");
  NPU_EXPECT_OK(memory_table().free(0, ptr));
}

TEST_F(errors, CopiesOutsideTheirMemory) {
  Buffer a(4096);
  Bytes host(1 << 20);
  Stream stream;
  NPU_EXPECT_REFUSED(
      memory_table().copy_to_device(
          stream.get(), a.data(), host.data(), host.size()),
      "copy past the end");
  NPU_EXPECT_REFUSED(
      memory_table().copy_to_host(
          stream.get(), host.data(), a.data(), host.size()),
      "read past the end");
  NPU_EXPECT_REFUSED(
      memory_table().set_bytes(stream.get(), a.data(), 0, UINT64_MAX - 64),
      "set past the end");
  NPU_EXPECT_REFUSED(
      memory_table().copy_on_device(stream.get(), a.data(), host.data(), 64),
      "copy_on_device from host memory");
  stream.synchronize();
}

TEST_F(errors, CopiesOfFreedMemory) {
  Bytes host(4096);
  Stream stream;
  void* ptr = nullptr;
  NPU_ASSERT_OK(memory_table().alloc(0, 4096, &ptr));
  // A driver may remember where it copied last.
  NPU_ASSERT_OK(memory_table().copy_to_device(
      stream.get(), ptr, host.data(), host.size()));
  stream.synchronize();
  NPU_ASSERT_OK(memory_table().free(0, ptr));
  NPU_EXPECT_REFUSED(
      memory_table().copy_to_device(
          stream.get(), ptr, host.data(), host.size()),
      "copy to freed memory");
  stream.synchronize();
}

TEST_F(errors, UnknownKinds) {
  std::uint32_t slot = 0;
  NPU_EXPECT_REFUSED(op_table().find("no.such.kind/1", &slot), "find");
  NPU_EXPECT_REFUSED(op_table().find("", &slot), "find empty");
  npu_op_caps caps{};
  caps.size = sizeof(caps);
  NPU_EXPECT_REFUSED(op_table().caps(4095, 0, &caps), "caps of a free slot");
  NPU_EXPECT_REFUSED(
      op_table().caps(NPU_KIND_RANDOM, 100000, &caps), "caps of a free code");
  npu_call call{};
  call.size = sizeof(call);
  call.slot = 4095;
  Stream stream;
  NPU_EXPECT_REFUSED(op_table().run(stream.get(), &call), "run of a free slot");
  npu_verdict verdict{};
  verdict.size = sizeof(verdict);
  const npu_status status = op_table().plan(0, &call, &verdict);
  EXPECT_TRUE(status != NPU_OK || verdict.answer == NPU_VERDICT_NO)
      << "plan of a slot that does not exist answers " << verdict.answer
      << ", not NPU_VERDICT_NO";
}

// A dtype outside the declared ones: refused at once, or late.
TEST_F(errors, UndeclaredDtype) {
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_UNIFORM);
  npu_op_caps caps;
  declares(NPU_KIND_RANDOM, NPU_RANDOM_UNIFORM, &caps);
  if (has(caps.dtypes[0], NPU_C128)) {
    GTEST_SKIP() << "takes everything";
  }
  Buffer a(1600);
  Frame frame(NPU_KIND_RANDOM, NPU_RANDOM_UNIFORM);
  frame.out(a, flat(NPU_C128, 100))
      .absent_in()
      .absent_in()
      .attrs(npu_random_attrs{});
  Stream stream;
  EXPECT_NE(frame.run_unchecked(stream.get()), NPU_OK);
  clear_error();
  NPU_EXPECT_OK(stream_table().synchronize(stream.get()));
}

TEST_F(errors, OperandsThatDoNotFit) {
  NPU_NEEDS_KIND(NPU_KIND_DROPOUT, 0);
  Buffer a(400);
  Buffer mask(100);
  Frame frame(NPU_KIND_DROPOUT);
  frame.out(a, flat(NPU_F32, 100))
      .out(mask, flat(NPU_BOOL, 50))
      .in(a, flat(NPU_F32, 100))
      .attrs(npu_dropout_attrs{});
  Stream stream;
  EXPECT_NE(frame.run_unchecked(stream.get()), NPU_OK)
      << "mask of another size";
  clear_error();
  NPU_EXPECT_OK(stream_table().synchronize(stream.get()));
}

TEST_F(errors, OffsetMustBeAMultipleOfFour) {
  NPU_NEEDS_KIND(NPU_KIND_RANDOM, NPU_RANDOM_UNIFORM);
  Buffer a(400);
  Frame frame(NPU_KIND_RANDOM, NPU_RANDOM_UNIFORM);
  frame.out(a, flat(NPU_F32, 100))
      .absent_in()
      .absent_in()
      .attrs(npu_random_attrs{})
      .rng({1, 3, nullptr, nullptr});
  Stream stream;
  EXPECT_NE(frame.run_unchecked(stream.get()), NPU_OK);
  clear_error();
  NPU_EXPECT_OK(stream_table().synchronize(stream.get()));
}

// ---- errors of queued work ----

// A call that fails when it runs: an index far outside. False: the driver has
// none of these kinds.
bool make_bad_call(
    Frame*& frame, std::vector<std::unique_ptr<Buffer>>& memory) {
  constexpr std::uint32_t kKinds[] = {
      NPU_KIND_INDEX_SELECT, NPU_KIND_TAKE, NPU_KIND_GATHER};
  for (const std::uint32_t slot : kKinds) {
    npu_op_caps caps;
    const npu_kind_info& kind = *npu_kind_of(slot);
    if (!declares(slot, 0, &caps) ||
        !has(taken_dtypes(kind, caps, 0), NPU_F32) ||
        !has(taken_dtypes(kind, caps, 2), NPU_I64)) {
      continue;
    }
    memory.push_back(std::make_unique<Buffer>(std::vector<float>(4, 0)));
    memory.push_back(std::make_unique<Buffer>(std::vector<float>(4, 1)));
    memory.push_back(
        std::make_unique<Buffer>(std::vector<std::int64_t>{0, 1, 1000000, 2}));
    frame = new Frame(slot);
    frame->out(*memory[0], flat(NPU_F32, 4))
        .in(*memory[1], flat(NPU_F32, 4))
        .in(*memory[2], flat(NPU_I64, 4));
    if (slot == NPU_KIND_INDEX_SELECT) {
      frame->attrs(npu_index_select_attrs{});
    } else if (slot == NPU_KIND_GATHER) {
      frame->attrs(npu_gather_attrs{});
    }
    return true;
  }
  return false;
}

// Whatever is called after the work failed, the error is reported, and once.
TEST_F(errors, OfQueuedWorkAreReportedOnce) {
  Frame* made = nullptr;
  std::vector<std::unique_ptr<Buffer>> memory;
  if (!make_bad_call(made, memory)) {
    NPU_NOT_DECLARED("index_select, take or gather of float32");
  }
  const std::unique_ptr<Frame> frame(made);
  Event event;
  Bytes host(16);
  Buffer other(64);
  using Route = std::function<npu_status(npu_stream)>;
  const std::pair<const char*, Route> kRoutes[] = {
      {"stream.synchronize", [](npu_stream) { return NPU_OK; }},
      {"stream.query",
       [](npu_stream stream) {
         npu_status status = NPU_NOT_READY;
         while (status == NPU_NOT_READY) {
           status = stream_table().query(stream);
         }
         return status;
       }},
      {"device.synchronize",
       [](npu_stream) { return device_table().synchronize(0); }},
      {"event.synchronize",
       [&](npu_stream stream) {
         const npu_status status = event_table().record(event.get(), stream);
         const npu_status waited = event_table().synchronize(event.get());
         return status != NPU_OK ? status : waited;
       }},
      {"copy_to_host",
       [&](npu_stream stream) {
         return memory_table().copy_to_host(
             stream, host.data(), other.data(), host.size());
       }},
      {"later work", [&](npu_stream stream) {
         return memory_table().set_bytes(stream, other.data(), 1, 64);
       }}};
  for (const auto& [name, route] : kRoutes) {
    npu_stream stream = nullptr;
    NPU_ASSERT_OK(stream_table().create(0, 0, &stream));
    clear_error();
    const npu_status queued = op_table().run(stream, &frame->call());
    int reported = queued != NPU_OK ? 1 : 0;
    for (const npu_status status :
         {route(stream),
          stream_table().synchronize(stream),
          stream_table().synchronize(stream),
          stream_table().destroy(stream)}) {
      EXPECT_TRUE(status == NPU_OK || status == NPU_E_ASYNC)
          << name << ": " << explain(status);
      reported += status != NPU_OK ? 1 : 0;
    }
    EXPECT_EQ(reported, 1) << "an index out of range, then " << name
                           << ": reported so many times";
  }
}

TEST_F(errors, TextIsPerThreadAndOneLine) {
  clear_error();
  void* ptr = nullptr;
  EXPECT_NE(memory_table().alloc(-5, 64, &ptr), NPU_OK);
  const std::string text = last_error();
  EXPECT_NE(text, "");
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST_F(errors, ForkBeforeOpen) {
  EXPECT_EQ(wrong_with_forked_child(), "");
}

// In a forked child every call answers, and none works.
TEST_F(errors, AfterFork) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    void* ptr = nullptr;
    const npu_status alloc = memory_table().alloc(0, 64, &ptr);
    const npu_status sync = device_table().synchronize(0);
    _exit(alloc == NPU_E_SHUTDOWN && sync == NPU_E_SHUTDOWN ? 0 : 1);
  }
  int result = -1;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result)) << "the child was killed";
  EXPECT_EQ(WEXITSTATUS(result), 0) << "not NPU_E_SHUTDOWN after fork";
}

}  // namespace
}  // namespace npu::kit
