// SPDX-License-Identifier: Apache-2.0
// How functions are declared that drivers for processors and for GPUs compile
// alike: these headers are formulas, and every driver runs the same ones.
#pragma once

#if defined(__CUDACC__)
#define NPU_SHARED __host__ __device__
#else
#define NPU_SHARED
#endif

// Inlined by force: the headers are also compiled with instruction sets the
// machine may lack, and the linker keeps one copy of each function that was not
// inlined.
#define NPU_SHARED_INLINE [[gnu::always_inline]] NPU_SHARED inline
#define NPU_SHARED_CONSTEXPR [[gnu::always_inline]] NPU_SHARED inline constexpr
