// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: private pools and users' own allocators.
#include <pybind11/stl.h>

#include <cstdint>

#include "python/bindings.h"
#include "python/index.h"
#include "runtime/allocator/memory_pools.h"

namespace py = pybind11;

namespace npu {
namespace {

// A user's pair of functions. Blocks outlive it, so it owns nothing.
struct UserAllocator {
  memory::SegmentSource* source;
};

UserAllocator user_allocator(std::uintptr_t alloc, std::uintptr_t free) {
  return {memory::make_source(
      reinterpret_cast<memory::AllocFn>(alloc),
      reinterpret_cast<memory::FreeFn>(free))};
}

memory::PoolId make_pool(
    int device,
    const UserAllocator* allocator,
    bool use_on_oom,
    bool no_split) {
  memory::PoolOptions options;
  options.source = allocator == nullptr ? nullptr : allocator->source;
  options.use_on_oom = use_on_oom;
  options.no_split = no_split;
  return memory::make_pool(index_of(device), options);
}

}  // namespace

void bind_memory_pools(py::module_& m) {
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<UserAllocator>(m, "_NPUAllocator");
  // Addresses of `void* alloc(size_t, int, void* stream)` and
  // `void free(void*, size_t, int, void* stream)`.
  m.def("_npu_customAllocator", &user_allocator);
  m.def("_npu_changeCurrentAllocator", [](const UserAllocator& allocator) {
    memory::use_source(allocator.source);
  });
  m.def("_make_pool", &make_pool);
  m.def(
      "_release_pool",
      [](int device, memory::PoolId id) {
        memory::release_pool(index_of(device), id);
      },
      no_gil);
  m.def("_pool_holders", [](int device, memory::PoolId id) {
    return memory::pool_holders(index_of(device), id);
  });
  m.def("_begin_pool", [](int device, memory::PoolId id) {
    memory::begin_route(index_of(device), id);
  });
  m.def(
      "_end_pool",
      [](int device, memory::PoolId id) {
        memory::end_route(index_of(device), id);
      },
      no_gil);
  m.def("_empty_pool", &memory::empty_pool, no_gil);
}

}  // namespace npu
