// SPDX-License-Identifier: Apache-2.0
// An operator pack on PyTorch's stable headers: registered in a function that
// the loader calls, all or nothing.
//
//   NPU_STABLE_PACK(pack) {
//     pack.define("my_ops", "twice(Tensor a) -> Tensor");
//     pack.implement("my_ops", "twice", TORCH_BOX(&twice));
//   }
#pragma once

#include <torch/csrc/stable/library.h>

#include <deque>
#include <exception>
#include <memory>
#include <string>

namespace npu::stable {

class Pack {
 public:
  using Boxed = void (*)(StableIValue*, uint64_t, uint64_t);
  using Library = torch::stable::detail::StableLibrary;

  void define(const char* ns, const char* schema) {
    add(Library::Kind::FRAGMENT, ns, "", schema).def(schema);
  }
  void implement(const char* ns, const char* overload, Boxed function) {
    add(Library::Kind::IMPL, ns, "PrivateUse1", overload)
        .impl(overload, function);
  }
  // What was asked for last, for the message.
  const std::string& last() const {
    return last_;
  }

 private:
  Library& add(
      Library::Kind kind, const char* ns, const char* key, const char* what) {
    last_ = std::string(ns) + "::" + what;
    libraries_.push_back(
        std::make_unique<Library>(kind, ns, key, __FILE__, __LINE__));
    return *libraries_.back();
  }

  std::deque<std::unique_ptr<Library>> libraries_;
  std::string last_;
};

// nullptr, or why nothing was registered.
inline const char* add_pack(void (*body)(Pack&)) {
  static std::string why;
  auto pack = std::make_unique<Pack>();
  try {
    body(*pack);
  } catch (const std::exception& error) {
    why = pack->last() + ": " + error.what();
    return why.c_str();
  }
  pack.release();  // registered for as long as the process lives
  return nullptr;
}

}  // namespace npu::stable

#define NPU_STABLE_PACK(pack)                                   \
  static void npu_stable_pack_body(npu::stable::Pack& pack);    \
  extern "C" __attribute__((visibility("default"))) const char* \
  npu_stable_pack_add() {                                       \
    return npu::stable::add_pack(&npu_stable_pack_body);        \
  }                                                             \
  static void npu_stable_pack_body(npu::stable::Pack& pack)
