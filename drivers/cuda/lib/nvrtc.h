// SPDX-License-Identifier: Apache-2.0
// The part of NVRTC that the driver uses, opened at run time. The names are
// those of nvrtc.h, whose ABI is kept within a major version.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace npu::cuda::nvrtc {

struct Compiled {
  std::vector<char> cubin;  // empty: `why` is NVRTC's log, or a sentence
  std::string why;
};

struct Include {
  const char* name;
  const char* text;
};

// Empty, or why NVRTC cannot be used: it is missing, lacks a function, or is of
// a version that the driver does not know.
const std::string& why();
// "13.0"; empty where it cannot be used.
const std::string& version();

// For one architecture: 90 is sm_90. The result is machine code, never PTX.
Compiled compile(
    const std::string& source,
    const std::vector<Include>& headers,
    int architecture);

}  // namespace npu::cuda::nvrtc
