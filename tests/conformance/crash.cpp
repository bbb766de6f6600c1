// SPDX-License-Identifier: Apache-2.0
// Fatal signals and the alarm name the test and the case. The handler does what
// is safe in one: it reads buffers filled before, and writes.
#include "crash.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <iterator>

namespace npu::kit {
namespace {

constexpr int kCrashed = 3;  // exit status
constexpr int kHangs = 4;
unsigned longest = 0;  // seconds a test or case may take
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
struct sigaction before[std::size(kSignals)];
char running_test[256];
char running_case[2048];

template <std::size_t kSize>
void keep(char (&target)[kSize], const std::string& text) {
  const std::size_t n = text.size() < kSize ? text.size() : kSize - 1;
  std::memcpy(target, text.data(), n);
  target[n] = '\0';
}

void put(const char* text) {
  [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text, strlen(text));
}

const char* name_of(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGBUS:
      return "SIGBUS";
    case SIGILL:
      return "SIGILL";
    case SIGFPE:
      return "SIGFPE";
    default:
      return "SIGABRT";
  }
}

void put_running() {
  put(running_test[0] != '\0' ? running_test : "(none: outside of tests)");
  if (running_case[0] != '\0') {
    put(", case ");
    put(running_case);
  }
  put("\n  alone: --gtest_filter=");
  put(running_test);
  put(running_case[0] != '\0' ? " --seed <the case's>\n" : "\n");
}

void report_hang(int) {
  put("\nnpu_conformance: the driver does not finish test ");
  put_running();
  _exit(kHangs);
}

void report(int signal, siginfo_t*, void*) {
  put("\nnpu_conformance: the driver ended the process (");
  put(name_of(signal));
  put(") in test ");
  put_running();
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    if (kSignals[i] == signal && before[i].sa_handler != SIG_DFL) {
      // A sanitizer's: it has more to say.
      sigaction(signal, &before[i], nullptr);
      raise(signal);
      return;
    }
  }
  _exit(kCrashed);
}

}  // namespace

void install_crash_report(unsigned seconds) {
  longest = seconds;
  static char stack[1 << 16];  // a driver may have used up its own
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof(stack);
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &action, &before[i]);
  }
  struct sigaction alarmed {};
  alarmed.sa_handler = report_hang;
  alarmed.sa_flags = SA_ONSTACK;
  sigaction(SIGALRM, &alarmed, nullptr);
}

void note_test(const std::string& test) {
  keep(running_test, test);
  keep(running_case, "");
  alarm(longest);
}

void note_case(const std::string& text) {
  keep(running_case, text);
  alarm(longest);
}

}  // namespace npu::kit
