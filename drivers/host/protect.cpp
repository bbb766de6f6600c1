// SPDX-License-Identifier: Apache-2.0
// NPU_HOST_PROTECT: device memory that faults when host code touches it.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "host.h"
#include "kernels/dtype.h"

namespace npu::host {
namespace {

// How often a run of pages is open, for reading and for writing.
struct Count {
  std::uint32_t readers = 0;
  std::uint32_t writers = 0;
  bool operator==(const Count&) const = default;
  int access() const {
    return writers ? PROT_READ | PROT_WRITE : readers ? PROT_READ : PROT_NONE;
  }
};

// Runs of equal pages: each key begins a run that lasts to the next key. Pages
// before the first key, and all after closing everything, have a zero count.
struct Pages {
  std::mutex mutex;
  std::map<std::uintptr_t, Count> runs;
};
Pages& pages() {
  static Pages& instance = *new Pages;  // outlives worker threads
  return instance;
}

struct Span {
  std::uintptr_t begin;
  std::uintptr_t end;
};

Span pages_of(const void* ptr, std::uint64_t bytes) {
  static const auto size = static_cast<std::uintptr_t>(sysconf(_SC_PAGE_SIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(ptr);
  return {address / size * size, (address + bytes + size - 1) / size * size};
}

// Makes `at` the beginning of a run.
std::map<std::uintptr_t, Count>::iterator split(std::uintptr_t at) {
  auto& runs = pages().runs;
  const auto next = runs.lower_bound(at);
  if (next != runs.end() && next->first == at) {
    return next;
  }
  const Count before = next == runs.begin() ? Count{} : std::prev(next)->second;
  return runs.emplace_hint(next, at, before);
}

// Joins runs that became equal to the one before them.
void tidy(const Span& span) {
  auto& runs = pages().runs;
  auto it = runs.lower_bound(span.begin);
  while (it != runs.end() && it->first <= span.end) {
    const Count before = it == runs.begin() ? Count{} : std::prev(it)->second;
    it = it->second == before ? runs.erase(it) : std::next(it);
  }
}

npu_status change(
    const void* ptr, std::uint64_t bytes, std::uint32_t access, int step) {
  if (bytes == 0) {
    return NPU_OK;
  }
  const Span span = pages_of(ptr, bytes);
  const std::lock_guard lock(pages().mutex);
  const auto end = split(span.end);
  npu_status status = NPU_OK;
  for (auto it = split(span.begin); it != end; ++it) {
    Count& count = it->second;
    std::uint32_t& counter =
        access & NPU_ACCESS_WRITE ? count.writers : count.readers;
    if (step < 0 && counter == 0) {
      status = fail(
          NPU_E_INVALID,
          "npu: host driver: host_close of %p, which is not open.",
          ptr);
      continue;
    }
    const int before = count.access();
    counter += static_cast<std::uint32_t>(step);
    const std::uintptr_t run_end = std::next(it)->first;
    if (count.access() != before && mprotect(
                                        reinterpret_cast<void*>(it->first),
                                        run_end - it->first,
                                        count.access()) != 0) {
      status = fail(
          NPU_E_INTERNAL,
          "npu: host driver: mprotect of %p: %s.",
          ptr,
          std::strerror(errno));
    }
  }
  tidy(span);
  return status;
}

npu_status check_open(const void* ptr, std::uint64_t bytes) {
  return bytes == 0 ? NPU_OK : check_range("host_open", -1, ptr, bytes);
}

// ---- the fault handler ----

struct sigaction previous;

// Only what a signal handler may do: no allocation, no stdio.
class Line {
 public:
  Line& text(const char* text) {
    while (*text && length_ < sizeof(buffer_)) {
      buffer_[length_++] = *text++;
    }
    return *this;
  }
  Line& number(std::uint64_t value, unsigned base) {
    char digits[20];
    int n = 0;
    do {
      digits[n++] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    while (n > 0 && length_ < sizeof(buffer_)) {
      buffer_[length_++] = digits[--n];
    }
    return *this;
  }
  void write() {
    const ssize_t written = ::write(STDERR_FILENO, buffer_, length_);
    static_cast<void>(written);
  }

 private:
  char buffer_[320];
  std::size_t length_ = 0;
};

void on_fault(int signal, siginfo_t* info, void* context) {
  Block block;
  const bool ours = try_find_block(info->si_addr, block) && block.device >= 0 &&
                    block.mapped != 0;
  if (ours) {
    Line()
        .text("npu: host code touched device memory 0x")
        .number(reinterpret_cast<std::uintptr_t>(info->si_addr), 16)
        .text(" of npu:")
        .number(static_cast<std::uint64_t>(block.device), 10)
        .text(" (block of ")
        .number(block.bytes, 10)
        .text(
            " bytes) outside a kernel or host_open (NPU_HOST_PROTECT=1). Copy "
            "it to the CPU first, or open it.\n")
        .write();
  } else if (previous.sa_flags & SA_SIGINFO) {
    previous.sa_sigaction(signal, info, context);
    return;
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
    return;
  }
  // Returning runs the faulty instruction again, now with the handler that was
  // there before us: the process dies where it went wrong.
  sigaction(SIGSEGV, &previous, nullptr);
}

}  // namespace

npu_status open_pages(
    const void* ptr, std::uint64_t bytes, std::uint32_t access) {
  const npu_status status = check_open(ptr, bytes);
  return status ? status : change(ptr, bytes, access, +1);
}

npu_status close_pages(
    const void* ptr, std::uint64_t bytes, std::uint32_t access) {
  return change(ptr, bytes, access, -1);
}

void forget_pages(const void* base, std::uint64_t bytes) {
  const Span span = pages_of(base, bytes);
  const std::lock_guard lock(pages().mutex);
  const auto end = split(span.end);
  for (auto it = split(span.begin); it != end; ++it) {
    it->second = Count{};
  }
  tidy(span);
}

void install_fault_handler() {
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  struct sigaction now {};
  sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) {
    return;
  }
  previous = now;
  struct sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGSEGV, &ours, nullptr);
}

// ---- opening for a kernel ----

PageGuard::~PageGuard() {
  while (ranges_) {
    close_pages(ranges_->ptr, ranges_->bytes, ranges_->access);
    ranges_ = std::move(ranges_->next);
  }
}

npu_status PageGuard::open(
    const void* ptr, std::uint64_t bytes, std::uint32_t access) {
  Block block;
  // Ordinary and pinned host memory is never closed, so it needs no opening.
  if (!settings.protect || !ptr || bytes == 0 || !find_block(ptr, block) ||
      block.device < 0) {
    return NPU_OK;
  }
  std::unique_ptr<Range> range(new Range{ptr, bytes, access, nullptr});
  const npu_status status = change(ptr, bytes, access, +1);
  if (status == NPU_OK) {
    range->next = std::move(ranges_);
    ranges_ = std::move(range);
  }
  return status;
}

npu_status PageGuard::open_tensor(
    const npu_tensor& tensor, std::uint32_t access) {
  if (tensor.dtype == NPU_ABSENT || tensor.numel == 0) {
    return NPU_OK;
  }
  std::uint64_t last = 0;
  for (int i = 0; i < tensor.ndim; ++i) {
    last +=
        static_cast<std::uint64_t>((tensor.sizes[i] - 1) * tensor.strides[i]);
  }
  return open(tensor.data, (last + 1) * element_bytes(tensor.dtype), access);
}

npu_status PageGuard::open_list(const npu_list& list, std::uint32_t access) {
  if (list.flags & NPU_TENSOR_HOST_SCALAR) {
    return NPU_OK;
  }
  npu_status status = NPU_OK;
  for (std::uint32_t i = 0; i < list.n && status == NPU_OK; ++i) {
    status = list.tensors ? open_tensor(list.tensors[i], access)
                          : open(
                                list.data[i],
                                static_cast<std::uint64_t>(list.numel[i]) *
                                    element_bytes(list.dtype),
                                access);
  }
  return status;
}

npu_status PageGuard::open_operands(const npu_call& call) {
  if (!settings.protect) {
    return NPU_OK;
  }
  const std::uint32_t both = NPU_ACCESS_READ | NPU_ACCESS_WRITE;
  npu_status status = open(call.workspace, call.workspace_bytes, both);
  status = status ? status : open(call.carry, call.carry_bytes, both);
  status = status ? status : open(call.rng.seed_ptr, 8, NPU_ACCESS_READ);
  status = status ? status : open(call.rng.offset_ptr, 8, NPU_ACCESS_READ);
  for (std::uint32_t i = 0; i < call.n_out + call.n_in && !status; ++i) {
    status =
        open_tensor(call.tensors[i], i < call.n_out ? both : NPU_ACCESS_READ);
  }
  // Which lists a kind writes is not known here: all are opened for writing.
  for (std::uint32_t i = 0; i < call.n_lists && !status; ++i) {
    status = open_list(call.lists[i], both);
  }
  return status;
}

}  // namespace npu::host
