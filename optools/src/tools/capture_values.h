// SPDX-License-Identifier: Apache-2.0
// A call's arguments and results as MessagePack; tensors' contents go to the
// store.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <map>
#include <string>

#include "core/capture_store.h"
#include "core/packer.h"
#include "core/tensor_bytes.h"

namespace optools {

enum class CaptureContent : uint8_t { kNone = 0, kHash = 1, kFull = 2 };

// Extension codes of the values MessagePack has no word for.
enum class ValueCode : int8_t {
  kTensor = 1,
  kDtype = 2,
  kDevice = 3,
  kLayout = 4,
  kMemoryFormat = 5,
  kComplex = 6,
  kGenerator = 7,
  kObject = 8,
  kTuple = 9,
  kUndefined = 10,
};

// Why the tensors of a view's call have no contents: not worth counting.
inline constexpr const char* kViewOnly = "a view only";

enum TensorFlag : uint8_t {
  kTensorRequiresGrad = 1,
  kTensorConjugate = 2,
  kTensorNegative = 4,
  kTensorWrappedNumber = 8,
  kTensorPacked = 16,
};

class CaptureValues {
 public:
  CaptureValues(
      CaptureStore& store, CaptureContent content, uint64_t max_tensor_bytes)
      : store_(store), content_(content), max_bytes_(max_tensor_bytes) {}

  Packer packer;
  uint64_t operand_bytes = 0;  // of all tensors, read or not
  // Tensors without contents, by reason.
  std::map<std::string_view, uint64_t> unread;  // of literals

  // `type` is the schema's, which knows that an integer is a dtype. `skip`
  // says why tensors in it are not to be read, null to read them.
  void put(const c10::IValue& value, const c10::Type* type, const char* skip);
  void put_tensor(const at::Tensor& t, const char* skip);

  // What was read of memory stays true until forget(): a view of it is not
  // read again.
  void forget() {
    seen_.clear();
  }

 private:
  struct Seen {
    const void* address;
    size_t bytes;
    BlobHash hash;
  };
  CaptureStore& store_;
  CaptureContent content_;
  uint64_t max_bytes_;
  std::vector<Seen> seen_;
  c10::Device device_{c10::DeviceType::CPU};  // whose name is device_name_
  std::string device_name_ = "cpu";

  void put_integer(int64_t value, const c10::Type* type);
  void put_list(
      const c10::IValue& value, const c10::Type* type, const char* skip);
  void put_word(ValueCode code, std::string_view word);
  bool put_plain(const c10::IValue& value, const c10::Type* type);
  void put_geometry(const at::Tensor& t, uint32_t& pairs);
  const char* put_content(
      const at::Tensor& t, const DenseForm& form, uint32_t& pairs);
  BlobHash read(const at::Tensor& t, const DenseForm& form, size_t bytes);
  std::string_view device_word(c10::Device device);
};

}  // namespace optools
