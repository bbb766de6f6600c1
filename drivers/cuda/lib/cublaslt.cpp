// SPDX-License-Identifier: Apache-2.0
#include "lib/cublaslt.h"

#include "lib/library.h"

namespace npu::cuda::lt {
namespace {

struct Opened {
  Api api;
  bool works = false;
  std::string why;

  Opened() {
    void* const library = open_library("libcublasLt.so.13", why);
    if (!library) {
      return;
    }
    works = true;
    const auto take = [&](auto& function, const char* symbol) {
      function = load_function<decltype(function)>(library, symbol);
      if (!function) {
        works = false;
        why = std::string("libcublasLt.so.13 has no ") + symbol;
      }
    };
    take(api.create, "cublasLtCreate");
    take(api.desc_create, "cublasLtMatmulDescCreate");
    take(api.desc_destroy, "cublasLtMatmulDescDestroy");
    take(api.desc_set, "cublasLtMatmulDescSetAttribute");
    take(api.layout_create, "cublasLtMatrixLayoutCreate");
    take(api.layout_destroy, "cublasLtMatrixLayoutDestroy");
    take(api.layout_set, "cublasLtMatrixLayoutSetAttribute");
    take(api.preference_create, "cublasLtMatmulPreferenceCreate");
    take(api.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    take(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    take(api.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    take(api.matmul, "cublasLtMatmul");
  }
};

const Opened& opened() {
  static const Opened one;
  return one;
}

}  // namespace

const Api* api() {
  return opened().works ? &opened().api : nullptr;
}

const std::string& why() {
  return opened().why;
}

}  // namespace npu::cuda::lt
