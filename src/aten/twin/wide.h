// SPDX-License-Identifier: Apache-2.0
// CPU calls in a wider dtype than the caller's.
//
// Note [Wide]: the CPU lacks kernels that accelerators have (histc of integers,
// avg_pool3d of halves), and some of its half kernels round after every step
// where an accelerator computes in float32 and rounds once. ops/wide.yaml lists
// them, and operators that are slow on some CPUs (half_products.h). In such a
// call the kernel gets wide copies of the arguments; what it wrote and what it
// returns is rounded to the caller's dtype.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/Scalar.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace npu::twin {

struct Arg;

// A row of ops/wide.yaml.
struct WideRow {
  const char* name;       // "aten::avg_pool3d": its overloads, and in-place
  std::uint64_t dtypes;   // a bit per c10::ScalarType
  c10::ScalarType wide;   // Undefined: the next wider one
  const char* when;       // an argument that has to be true, or not 1; or null
  std::uint32_t mixed;    // results that are narrow where dtypes are mixed
  std::uint32_t rounded;  // results that are narrow elsewhere
  const char* indices;    // an argument whose int32 becomes int64; or null
  bool slow;              // only on CPUs that multiply the dtype slowly
  bool products;          // only where the products outweigh the casts
};
struct WideTable {
  const WideRow* rows;  // sorted by name
  std::size_t n;
};
WideTable wide_table();  // generated

// Composites whose halves are cast around them (wide_composite.h).
struct WideNames {
  const char* const* names;
  std::size_t n;
};
WideNames wide_composites();  // generated

// An operator's rows, with the places of the arguments they name.
struct WideRules {
  struct Rule {
    const WideRow* row;
    int argument = -1;  // `when` or `indices`
  };
  c10::SmallVector<Rule, 2> rules;
  std::uint64_t outs = 0;       // places of out= arguments
  std::uint64_t dtypes = 0;     // that any row is about, a bit each
  bool complex_halves = false;  // a row names them
  // Whether a tensor of this dtype may make a call wide. Halves do where
  // complex halves are listed: a half and a complex number make one.
  bool names(c10::ScalarType dtype) const {
    return (dtypes >> static_cast<unsigned>(dtype) & 1) != 0 ||
           (complex_halves && dtype == c10::ScalarType::Half);
  }
};
// Null for most operators.
std::unique_ptr<const WideRules> find_wide(const c10::FunctionSchema& schema);
// What the list says about an operator here ("aten::mm"), to show.
struct WideFact {
  c10::ScalarType dtype;
  c10::ScalarType wide;  // the same where the CPU's kernel is used as it is
  const char* when;      // or null
  bool slow;             // half_products.h says why it is so
};
std::vector<WideFact> wide_facts(std::string_view name);

// What decides: seen argument by argument, in the schema's order.
class WideInputs {
 public:
  explicit WideInputs(const WideRules& rules) : rules_(rules) {}
  template <class T>
  void next(const T& value) {
    see(value);
    ++at_;
  }
  // For a caller that sees tensors only: every rule's `when` may hold.
  void assume_whens() {
    trues_ = ~std::uint64_t{0};
  }

 private:
  friend class Wide;
  void see(const at::Tensor& tensor);
  void see(const std::optional<at::Tensor>& tensor) {
    if (tensor) {
      see(*tensor);
    }
  }
  template <class List>
  void see_list(const List& list) {
    for (const at::Tensor& item : list) {
      see(item);
    }
  }
  void see(at::TensorList list) {
    see_list(list);
  }
  void see(const at::ITensorListRef& list) {
    see_list(list);
  }
  void see(const c10::List<std::optional<at::Tensor>>& list);
  void see(bool value) {
    trues_ |= std::uint64_t{value} << at_;
  }
  void see(const std::optional<at::ScalarType>& dtype) {
    asked_ = dtype;
  }
  void see(const at::Scalar& number) {
    see(!number.equal(1));
    if (rules_.complex_halves) {
      promoted_ = at::native::update_result_type_state(number, promoted_);
    }
  }
  void see(const c10::IValue& value);
  template <class Other>
  void see(const Other&) {}

  const WideRules& rules_;
  unsigned at_ = 0;
  std::uint64_t dtypes_ = 0;  // of tensors that are read
  std::uint64_t outs_ = 0;    // dtypes of out= tensors
  bool strided_ = true;       // all of them
  std::uint64_t trues_ = 0;   // arguments that are true, or numbers but 1
  std::optional<at::ScalarType> asked_;
  at::native::ResultTypeState promoted_;  // where complex halves matter
  const at::Tensor* factors_[2] = {};     // the last two that are read
};

// One call's wide copies.
class Wide {
 public:
  // Null where the call runs as it is.
  static std::unique_ptr<Wide> plan(const WideInputs& inputs);

  // What the kernel gets for `plain`: a copy, filled later, or `plain`.
  c10::TensorImpl* stand_in(c10::TensorImpl* plain, const Arg& arg);
  // The same for dtype=.
  std::optional<at::ScalarType> stand_in(
      std::optional<at::ScalarType> dtype) const;
  // Before the kernel, when the arguments have their bytes.
  void fill();
  // After it: what it wrote, into the arguments.
  void copy_home();
  // The argument a result is, or null.
  c10::TensorImpl* plain_of(const c10::TensorImpl* result) const;
  // The next result in the caller's dtype.
  at::Tensor narrow(at::Tensor result);

 private:
  struct Pair {
    c10::TensorImpl* plain;  // the call's wrapper
    at::Tensor wide;
    bool written;
  };
  static bool makes_complex_halves(const WideInputs& inputs);
  static bool applies(const WideInputs& inputs, const WideRules::Rule& rule);
  static bool is_faster_wide(const WideInputs& inputs, c10::ScalarType low);
  bool casts(const c10::TensorImpl& plain, const Arg& arg) const;
  c10::ScalarType wide_of(c10::ScalarType dtype) const;
  c10::ScalarType narrow_of(c10::ScalarType dtype) const;

  c10::ScalarType low_ = c10::ScalarType::Undefined;
  c10::ScalarType wide_ = c10::ScalarType::Undefined;
  std::uint32_t narrows_ = ~0u;  // results
  int indices_ = -1;
  unsigned results_ = 0;
  c10::SmallVector<Pair, 4> pairs_;
};

}  // namespace npu::twin
