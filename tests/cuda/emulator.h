// SPDX-License-Identifier: Apache-2.0
// CUDA kernels on the host, block by block: every thread is a fiber of its own,
// and they meet at __syncthreads and at shuffles as on a GPU. Included before a
// .cu file that a compiler for the host compiles.
#pragma once

#include <cuda_runtime_api.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __grid_constant__
#define __noinline__

namespace npu::emulator {

inline struct Place { unsigned x = 0, y = 0, z = 0; } thread_index, block_index;
inline struct Extent { unsigned x = 1, y = 1, z = 1; } block_size, grid_size;

class Block {
 public:
  static constexpr int kWarp = 32;

  // Runs body once for each of n threads.
  Block(unsigned n, std::function<void()> body)
      : body_(std::move(body)), fibers_(n), warps_((n + kWarp - 1) / kWarp) {
    now() = this;
    live_ = n;
    for (unsigned i = 0; i < n; ++i) {
      Fiber& fiber = fibers_[i];
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = stack_of(i);
      fiber.context.uc_stack.ss_size = kStack;
      fiber.context.uc_link = &scheduler_;
      makecontext(&fiber.context, reinterpret_cast<void (*)()>(&start), 0);
    }
    for (std::size_t left = n; left > 0;) {
      for (unsigned i = 0; i < n; ++i) {
        if (!fibers_[i].done) {
          resume(i);
          left -= fibers_[i].done ? 1 : 0;
        }
      }
    }
  }

  static Block*& now() {
    static Block* block = nullptr;
    return block;
  }

  void synchronize() {
    wait(block_, live_);
  }
  template <class T>
  T exchanged(T value, int with) {
    const unsigned lane = at_ % kWarp;
    Warp& warp = warps_[at_ / kWarp];
    std::memcpy(warp.slots[lane], &value, sizeof(T));
    const auto members = static_cast<unsigned>(
        std::min<std::size_t>(kWarp, fibers_.size() - at_ / kWarp * kWarp));
    wait(warp.barrier, members);
    std::memcpy(
        &value, warp.slots[lane ^ static_cast<unsigned>(with)], sizeof(T));
    wait(warp.barrier, members);
    return value;
  }

 private:
  struct Fiber {
    ucontext_t context;
    bool done = false;
  };
  struct Barrier {
    unsigned arrived = 0;
    unsigned opened = 0;
  };
  struct Warp {
    Barrier barrier;
    alignas(16) char slots[kWarp][16];
  };

  static constexpr std::size_t kStack = std::size_t{64} * 1024;
  // Kept for the next block: a fresh one is memory that was never touched.
  static char* stack_of(unsigned i) {
    static std::vector<std::unique_ptr<char[]>> all;
    while (all.size() <= i) {
      all.push_back(std::make_unique_for_overwrite<char[]>(kStack));
    }
    return all[i].get();
  }

  static void start() {
    Block& block = *now();
    block.body_();
    block.fibers_[block.at_].done = true;
    --block.live_;
  }
  void resume(unsigned i) {
    at_ = i;
    thread_index.x = i;
    swapcontext(&scheduler_, &fibers_[i].context);
  }
  void wait(Barrier& barrier, unsigned members) {
    const unsigned opened = barrier.opened;
    const unsigned self = at_;
    if (++barrier.arrived == members) {
      barrier.arrived = 0;
      ++barrier.opened;
      return;
    }
    while (barrier.opened == opened) {
      swapcontext(&fibers_[self].context, &scheduler_);
    }
  }

  std::function<void()> body_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  Barrier block_;
  unsigned live_ = 0;
  unsigned at_ = 0;
  ucontext_t scheduler_;
};

template <class Kernel, class Args>
void run(Kernel kernel, std::uint64_t blocks, unsigned threads, Args args) {
  block_size.x = threads;
  grid_size.x = static_cast<unsigned>(blocks);
  for (unsigned b = 0; b < blocks; ++b) {
    block_index.x = b;
    Block(threads, [&] { kernel(args); });
  }
}

}  // namespace npu::emulator

#define threadIdx ::npu::emulator::thread_index
#define blockIdx ::npu::emulator::block_index
#define blockDim ::npu::emulator::block_size
#define gridDim ::npu::emulator::grid_size

inline void __syncthreads() {
  ::npu::emulator::Block::now()->synchronize();
}
inline void __threadfence_system() {}
template <class T>
T __shfl_xor_sync(unsigned, T value, int with) {
  return ::npu::emulator::Block::now()->exchanged(value, with);
}
inline unsigned atomicCAS_system(unsigned* at, unsigned expected, unsigned to) {
  const unsigned found = *at;
  *at = found == expected ? to : found;
  return found;
}
inline float __uint_as_float(unsigned bits) {
  return __builtin_bit_cast(float, bits);
}
inline float __int_as_float(int bits) {
  return __builtin_bit_cast(float, bits);
}
using std::max;
using std::min;
