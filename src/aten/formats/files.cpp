// SPDX-License-Identifier: Apache-2.0
// torch.save and torch.load keep the storage format of npu tensors.
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <charconv>
#include <string>
#include <string_view>
#include <unordered_map>

#include "aten/formats/formats.h"
#include "aten/formats/shape.h"
#include "runtime/device.h"

namespace npu {
namespace {

// PyTorch keeps names with yes or no: the number is part of the name.
constexpr std::string_view kPrefix = "npu_format:";

using Metadata = std::unordered_map<std::string, bool>;

void write_format(const at::Tensor& tensor, Metadata& metadata) {
  const std::int64_t format = format_of(tensor);
  if (format != format::default_of(tensor.dim())) {
    metadata[std::string(kPrefix) + std::to_string(format)] = true;
  }
}

void read_format(const at::Tensor& tensor, Metadata& metadata) {
  for (const auto& [name, yes] : metadata) {
    if (!yes || name.compare(0, kPrefix.size(), kPrefix) != 0) {
      continue;
    }
    std::int64_t format = 0;
    const char* const begin = name.data() + kPrefix.size();
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(begin, end, format);
    if (read.ec == std::errc() && read.ptr == end) {
      restore_format(tensor, format);
    }
  }
}

[[maybe_unused]] const bool registered = [] {
  torch::jit::TensorBackendMetaRegistry(
      kDeviceType, &write_format, &read_format);
  return true;
}();

}  // namespace
}  // namespace npu
