// SPDX-License-Identifier: Apache-2.0
// Makes random cases of a kind: sizes and attributes from the kind's rule, the
// rest (dtypes, strides, values, optional operands) from npu_kind_info and
// caps.
//
// A rule is a function that names operands and gives them sizes:
//
//   {"gemm", [](Draw& d) {
//      const Shape batch = d.shape(0, 2);
//      const auto m = d.size(), n = d.size(), k = d.size();
//      d.set("out", batch + Shape{m, n}).set("a", batch + Shape{m, k}) ...
//
// What a rule does not mention is left out when it may be absent, and drawn
// otherwise: booleans and enums over their range, scalars and numbers small.
// Kinds without a rule are elementwise: every operand has the same sizes.
#pragma once

#include <random>

#include "case.h"

namespace npu::kit {

inline Shape operator+(Shape a, const Shape& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Shape without(Shape sizes, std::size_t dim);
Shape with(Shape sizes, std::size_t dim, std::int64_t size);

class Draw {
 public:
  Draw(
      const npu_kind_info& kind,
      std::uint32_t code,
      const npu_op_caps& caps,
      npu_dtype dtype,
      std::uint64_t seed);

  // ---- chance ----
  std::int64_t between(std::int64_t low, std::int64_t high);  // both included
  std::int64_t size() {
    return between(1, 6);
  }
  bool coin() {
    return between(0, 1) == 1;
  }
  double real(double low, double high);
  Shape shape(std::int64_t least_dims, std::int64_t most_dims);
  // A dimension of a shape that has one.
  std::size_t dim(const Shape& sizes);

  // ---- operands ----
  Draw& set(const std::string& name, const Shape& sizes);
  Draw& maybe(const std::string& name, const Shape& sizes);
  // Any dtype that the driver takes, the 8-bit floats too.
  Draw& dtype(const std::string& name, npu_dtype dtype);
  // Values in [low, high].
  Draw& range(const std::string& name, double low, double high);
  // Different integers below `limit`, along the last dimension.
  Draw& distinct(const std::string& name, std::int64_t limit);
  Draw& values(const std::string& name, const std::vector<double>& numbers);
  Draw& host_scalar(const std::string& name);
  Draw& contiguous(const std::string& name);
  Draw& list(const std::string& name, const std::vector<Shape>& sizes);
  // Its entries are numbers in host memory.
  Draw& host_list(const std::string& name);
  // Only the entries [first, last) of a list are there.
  Draw& keep(const std::string& name, std::size_t first, std::size_t last);

  // ---- attributes ----
  Draw& attr(const std::string& name, double value);
  Draw& array(const std::string& name, const Shape& values);
  Draw& reals(const std::string& name, const std::vector<double>& values);
  Draw& no_scalar(const std::string& name);

  // ---- about the case ----
  Draw& linear(std::int64_t terms);
  Draw& terms(std::int64_t n);
  // Numbers of this size cancel inside the kernel.
  Draw& cancels(double size);
  Draw& compute(npu_dtype dtype);
  Draw& sized(std::function<void(Case&, std::int64_t)> fn);
  // The next shape has one dimension of some hundred elements.
  void set_long(bool value) {
    is_long_ = value;
  }
  // There is no such case (of this dtype, say).
  void impossible() {
    possible_ = false;
  }

  bool has_cap(std::uint32_t flag) const {
    return (caps_.flags & flag) != 0;
  }
  const char* code() const;
  bool code_is(const char* name) const;
  npu_dtype main() const {
    return main_;
  }
  // The dtype an operand would get.
  npu_dtype natural(const std::string& name) const;
  std::uint64_t allowed(const std::string& name) const;
  // One of these, of those that the driver takes.
  npu_dtype one_of(const std::string& name, std::uint64_t mask);
  const Shape& sizes(const std::string& name) const;
  template <class Fn>
  void each_operand(Fn fn) const {
    for (std::uint32_t i = 0; i < kind_.n_out + kind_.n_in; ++i) {
      fn(kind_.operands[i]);
    }
  }

  // Draws what the rule left open. False: no such case.
  bool finish(Case& out);

 private:
  std::size_t place(const std::string& name) const;
  std::uint64_t taken_at(std::size_t place) const;
  std::uint64_t allowed_at(std::size_t place) const;
  npu_dtype dtype_at(std::size_t place);
  void pick_row(std::size_t leading);
  const npu_attr_info* attr_info(const std::string& name) const;
  void write_attr(const npu_attr_info& info, std::size_t i, double value);
  void lay_out(Operand& operand, bool strided);
  void lay_out_limited(Operand& operand);
  void fill(Operand& operand);
  void draw_attrs();
  // One of caps.dtype_rows, where the driver has such.
  bool in_a_row() const;

  struct Range {
    double low = 0;
    double high = 0;
    bool given = false;
    bool distinct = false;
  };

  const npu_kind_info& kind_;
  npu_op_caps caps_;
  npu_dtype main_;
  std::mt19937_64 random_;
  Case case_;
  std::vector<Range> ranges_;
  std::vector<bool> plain_;
  std::vector<bool> attrs_set_;
  bool possible_ = true;
  bool is_long_ = false;
  const npu_dtype_row* row_ = nullptr;
};

struct Rule {
  const char* kind;
  void (*make)(Draw&);
};
// The rule of a kind, or the elementwise one.
void (*find_rule(const char* kind))(Draw&);
// Why the kit has no cases for a kind; null: it has.
const char* not_drawn(const npu_kind_info& kind);

// One random case; false when there is none for this dtype.
bool draw_case(
    const npu_kind_info& kind,
    std::uint32_t code,
    const npu_op_caps& caps,
    npu_dtype dtype,
    std::uint64_t seed,
    Case& out,
    bool is_long = false);
// The dtypes a driver declares for the operand that others follow.
std::uint64_t main_dtypes(
    const npu_kind_info& kind, std::uint32_t code, const npu_op_caps& caps);

}  // namespace npu::kit
