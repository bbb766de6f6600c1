// SPDX-License-Identifier: Apache-2.0
// A mutex that is held over fork(): a child may not inherit the lock from a
// thread that it does not have.
#pragma once

#include <pthread.h>

#include <mutex>

namespace optools {

// One per type `Owner`, whose only object lives as long as the process.
template <class Owner>
class ForkMutex {
 public:
  ForkMutex() {
    s_only = this;
    pthread_atfork(
        [] { s_only->lock(); },
        [] { s_only->unlock(); },
        [] { s_only->unlock(); });
  }
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() {
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
  }

 private:
  inline static ForkMutex* s_only = nullptr;
  std::mutex mutex_;
};

}  // namespace optools
