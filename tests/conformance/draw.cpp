// SPDX-License-Identifier: Apache-2.0
// Random cases: dtypes, strides, values, attributes.
#include "draw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace npu::kit {
namespace {

constexpr std::uint64_t kDrawn =
    (UINT64_C(1) << (NPU_C128 + 1)) - 2;  // no 8-bit and 4-bit floats

// The operand whose dtype the others follow: the first input of no fixed
// dtype, or the first output of that kind, or the first list. A condition is no
// leader.
std::size_t leader(const npu_kind_info& kind, std::uint32_t code) {
  const std::uint32_t n = kind.n_out + kind.n_in;
  if (kind.slot == NPU_KIND_TERNARY && code == NPU_TERNARY_WHERE) {
    return kind.n_out + 1;
  }
  for (std::uint32_t i = kind.n_out; i < n; ++i) {
    if (kind.operands[i].dtypes == 0 && !kind.operands[i].optional) {
      return i;
    }
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    if (kind.operands[i].dtypes == 0) {
      return i;
    }
  }
  return 0;
}

npu_dtype pick(std::uint64_t mask, std::mt19937_64& random) {
  std::vector<npu_dtype> found;
  for (npu_dtype dtype = 1; dtype < NPU_DTYPE_COUNT; ++dtype) {
    if (has(mask, dtype)) {
      found.push_back(dtype);
    }
  }
  return found.empty() ? npu_dtype{NPU_ABSENT} : found[random() % found.size()];
}

}  // namespace

Shape without(Shape sizes, std::size_t dim) {
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  return sizes;
}

Shape with(Shape sizes, std::size_t dim, std::int64_t size) {
  sizes.at(dim) = size;
  return sizes;
}

std::uint64_t main_dtypes(
    const npu_kind_info& kind, std::uint32_t code, const npu_op_caps& caps) {
  return taken_dtypes(kind, caps, leader(kind, code)) & kDrawn;
}

Draw::Draw(
    const npu_kind_info& kind,
    std::uint32_t code,
    const npu_op_caps& caps,
    npu_dtype dtype,
    std::uint64_t seed)
    : kind_(kind), caps_(caps), main_(dtype), random_(seed) {
  case_.kind = &kind;
  case_.code = code;
  case_.seed = seed;
  case_.attrs.assign(kind.attr_bytes, 0);
  if (kind.attr_bytes > 0) {
    std::memcpy(case_.attrs.data(), &kind.attr_bytes, sizeof(std::uint32_t));
  }
  case_.operands.resize(kind.n_out + kind.n_in);
  for (std::size_t i = 0; i < case_.operands.size(); ++i) {
    case_.operands[i].info = &kind.operands[i];
  }
  case_.lists.resize(kind.n_lists);
  ranges_.resize(kind.n_out + kind.n_in + kind.n_lists);
  plain_.resize(ranges_.size());
  attrs_set_.resize(kind.n_attrs);
  pick_row(leader(kind, code));
}

// One of the combinations that begin with the main dtype.
void Draw::pick_row(std::size_t leading) {
  const bool rows = caps_.dtype_rule == NPU_DTYPES_ROWS && caps_.dtype_rows;
  std::vector<const npu_dtype_row*> fit;
  for (std::uint32_t i = 0; rows && i < caps_.n_dtype_rows; ++i) {
    const npu_dtype_row& row = caps_.dtype_rows[i];
    if (leading < NPU_MAX_OPERANDS && row.dtypes[leading] == main_) {
      fit.push_back(&row);
    }
  }
  row_ = fit.empty() ? nullptr : fit[random_() % fit.size()];
}

std::int64_t Draw::between(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(
                   random_() % static_cast<std::uint64_t>(high - low + 1));
}

double Draw::real(double low, double high) {
  return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
}

Shape Draw::shape(std::int64_t least_dims, std::int64_t most_dims) {
  if (is_long_ && most_dims > 0) {
    // More than a block or a tile of most kernels, and no multiple of one.
    is_long_ = false;
    Shape row{2 * between(200, 500) + 1};
    if (std::max(least_dims, between(1, most_dims)) > 1) {
      row.insert(coin() ? row.begin() : row.end(), 2);
    }
    while (static_cast<std::int64_t>(row.size()) < least_dims) {
      row.insert(row.begin(), 1);
    }
    return row;
  }
  Shape out(static_cast<std::size_t>(between(least_dims, most_dims)));
  for (std::int64_t& each : out) {
    each = size();
  }
  return out;
}

std::size_t Draw::dim(const Shape& sizes) {
  return static_cast<std::size_t>(
      between(0, static_cast<std::int64_t>(sizes.size()) - 1));
}

std::size_t Draw::place(const std::string& name) const {
  const std::size_t n = kind_.n_out + kind_.n_in + kind_.n_lists;
  for (std::size_t i = 0; i < n; ++i) {
    if (name == kind_.operands[i].name) {
      return i;
    }
  }
  ADD_FAILURE() << kind_.name << " has no operand " << name;
  return 0;
}

std::uint64_t Draw::taken_at(std::size_t i) const {
  return taken_dtypes(kind_, caps_, i);
}

std::uint64_t Draw::allowed_at(std::size_t i) const {
  return taken_at(i) & kDrawn;
}

std::uint64_t Draw::allowed(const std::string& name) const {
  return allowed_at(place(name));
}

npu_dtype Draw::one_of(const std::string& name, std::uint64_t mask) {
  return pick(taken_at(place(name)) & mask, random_);
}

npu_dtype Draw::dtype_at(std::size_t i) {
  const std::uint64_t mask = allowed_at(i);
  if (row_ != nullptr && i < NPU_MAX_OPERANDS &&
      row_->dtypes[i] != NPU_ABSENT) {
    return row_->dtypes[i];
  }
  if (kind_.operands[i].dtypes == 0) {
    return has(mask, main_) ? main_ : npu_dtype{NPU_ABSENT};
  }
  return has(mask, main_) ? main_ : pick(mask, random_);
}

Draw& Draw::set(const std::string& name, const Shape& sizes) {
  const std::size_t i = place(name);
  Operand& operand = case_.operands.at(i);
  operand.sizes = sizes;
  if (!operand.present()) {
    operand.dtype = dtype_at(i);
  }
  possible_ = possible_ && operand.present();
  return *this;
}

Draw& Draw::maybe(const std::string& name, const Shape& sizes) {
  return coin() ? set(name, sizes) : *this;
}

Draw& Draw::dtype(const std::string& name, npu_dtype dtype) {
  const std::size_t i = place(name);
  possible_ = possible_ && has(taken_at(i), dtype);
  if (i < case_.operands.size()) {
    case_.operands[i].dtype = dtype;
  } else {
    for (Operand& each : case_.lists[i - case_.operands.size()]) {
      each.dtype = dtype;
    }
  }
  return *this;
}

Draw& Draw::range(const std::string& name, double low, double high) {
  ranges_[place(name)] = {low, high, true, false};
  return *this;
}

Draw& Draw::distinct(const std::string& name, std::int64_t limit) {
  ranges_[place(name)] = {0, static_cast<double>(limit - 1), true, true};
  return *this;
}

Draw& Draw::values(
    const std::string& name, const std::vector<double>& numbers) {
  Operand& operand = case_.operands.at(place(name));
  for (const double number : numbers) {
    Value value{.number = number};
    value.integer = static_cast<std::int64_t>(number);
    value.is_integer =
        !is_floating(operand.dtype) && !is_complex(operand.dtype);
    operand.values.push_back(value);
  }
  return *this;
}

Draw& Draw::host_scalar(const std::string& name) {
  Operand& operand = case_.operands.at(place(name));
  operand.sizes.clear();
  operand.host_scalar = true;
  possible_ = possible_ && (caps_.flags & NPU_CAP_HOST_SCALAR) != 0;
  return *this;
}

Draw& Draw::contiguous(const std::string& name) {
  plain_[place(name)] = true;
  return *this;
}

Draw& Draw::list(const std::string& name, const std::vector<Shape>& sizes) {
  const std::size_t i = place(name);
  std::vector<Operand>& rows = case_.lists.at(i - case_.operands.size());
  const npu_dtype dtype = dtype_at(i);
  possible_ = possible_ && dtype != NPU_ABSENT;
  for (const Shape& each : sizes) {
    Operand operand;
    operand.info = &kind_.operands[i];
    operand.sizes = each;
    operand.dtype = dtype;
    rows.push_back(operand);
  }
  return *this;
}

Draw& Draw::host_list(const std::string& name) {
  for (Operand& each : case_.lists.at(place(name) - case_.operands.size())) {
    each.host_scalar = true;
  }
  possible_ = possible_ && (caps_.flags & NPU_CAP_HOST_SCALAR) != 0;
  return *this;
}

Draw& Draw::keep(const std::string& name, std::size_t first, std::size_t last) {
  std::vector<Operand>& rows =
      case_.lists.at(place(name) - case_.operands.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i < first || i >= last) {
      rows[i].dtype = NPU_ABSENT;
      rows[i].sizes.clear();
    }
  }
  return *this;
}

const npu_attr_info* Draw::attr_info(const std::string& name) const {
  for (std::uint32_t i = 0; i < kind_.n_attrs; ++i) {
    if (name == kind_.attrs[i].name) {
      return &kind_.attrs[i];
    }
  }
  ADD_FAILURE() << kind_.name << " has no attribute " << name;
  return nullptr;
}

void Draw::write_attr(const npu_attr_info& info, std::size_t i, double value) {
  const std::string type = info.type;
  std::uint8_t* at = case_.attrs.data() + info.offset;
  if (type == "scalar") {
    npu_scalar scalar{};
    const bool whole = !is_floating(main_) && !is_complex(main_);
    scalar.kind = whole ? NPU_SCALAR_INT : NPU_SCALAR_FLOAT;
    scalar.i = static_cast<std::int64_t>(value);
    scalar.re = whole ? static_cast<double>(scalar.i) : value;
    std::memcpy(at, &scalar, sizeof(scalar));
  } else if (type.starts_with("f64")) {
    std::memcpy(at + 8 * i, &value, sizeof(value));
  } else if (info.bytes == 4) {
    const auto number = static_cast<std::uint32_t>(value);
    std::memcpy(at + 4 * i, &number, sizeof(number));
  } else {
    const auto number = static_cast<std::int64_t>(value);
    std::memcpy(at + 8 * i, &number, sizeof(number));
  }
  attrs_set_[static_cast<std::size_t>(&info - kind_.attrs)] = true;
}

Draw& Draw::attr(const std::string& name, double value) {
  write_attr(*attr_info(name), 0, value);
  return *this;
}

Draw& Draw::array(const std::string& name, const Shape& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    write_attr(*attr_info(name), i, static_cast<double>(values[i]));
  }
  return *this;
}

Draw& Draw::reals(const std::string& name, const std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    write_attr(*attr_info(name), i, values[i]);
  }
  return *this;
}

Draw& Draw::no_scalar(const std::string& name) {
  attrs_set_[static_cast<std::size_t>(attr_info(name) - kind_.attrs)] = true;
  return *this;
}

Draw& Draw::linear(std::int64_t terms) {
  case_.linear = true;
  case_.terms = terms;
  return *this;
}

Draw& Draw::terms(std::int64_t n) {
  case_.terms = n;
  return *this;
}

Draw& Draw::cancels(double size) {
  case_.cancels = size;
  return *this;
}

Draw& Draw::compute(npu_dtype dtype) {
  case_.compute_dtype = dtype;
  return *this;
}

Draw& Draw::sized(std::function<void(Case&, std::int64_t)> fn) {
  case_.sized = std::move(fn);
  return *this;
}

const char* Draw::code() const {
  return npu_code_name(kind_.slot, case_.code);
}

bool Draw::code_is(const char* name) const {
  return std::strcmp(code(), name) == 0;
}

npu_dtype Draw::natural(const std::string& name) const {
  return case_.operands.at(place(name)).dtype;
}

const Shape& Draw::sizes(const std::string& name) const {
  return case_.operands.at(place(name)).sizes;
}

bool Draw::finish(Case& out) {
  if (!possible_) {
    return false;
  }
  draw_attrs();
  const bool in = (caps_.flags & NPU_CAP_STRIDED_IN) != 0;
  const bool outs = (caps_.flags & NPU_CAP_STRIDED_OUT) != 0;
  const auto prepare = [&](Operand& each) {
    const auto at = static_cast<std::size_t>(each.info - kind_.operands);
    const bool strided = each.is_output() ? outs : in;
    const bool changed = !plain_[at] && coin();
    lay_out(each, strided && changed);
    if (!strided && changed) {
      lay_out_limited(each);
    }
    fill(each);
  };
  const auto too_many = [&](const Operand& each) {
    return caps_.max_ndim != 0 && each.sizes.size() > caps_.max_ndim;
  };
  for (Operand& each : case_.operands) {
    if (each.present() && too_many(each)) {
      return false;  // the host side asks another rung
    }
    if (each.present()) {
      prepare(each);
    } else if (
        !each.info->optional && each.info->mode != NPU_MODE_FILL &&
        each.info->mode != NPU_MODE_COUNT) {
      ADD_FAILURE() << kind_.name << ": the rule forgets " << each.info->name;
      return false;
    }
  }
  for (auto& list : case_.lists) {
    for (Operand& each : list) {
      if (each.present() && too_many(each)) {
        return false;
      }
      if (each.present()) {
        prepare(each);
      }
    }
  }
  if (!in_a_row()) {
    return false;  // the host side casts, or asks another rung
  }
  out = case_;
  return true;
}

bool Draw::in_a_row() const {
  if (caps_.dtype_rule != NPU_DTYPES_ROWS) {
    return true;
  }
  const auto fits = [&](const npu_dtype_row& row) {
    const auto same = [&](std::size_t at, npu_dtype mine) {
      return at >= NPU_MAX_OPERANDS || mine == NPU_ABSENT ||
             row.dtypes[at] == NPU_ABSENT || row.dtypes[at] == mine;
    };
    for (std::size_t i = 0; i < case_.operands.size(); ++i) {
      if (!same(i, case_.operands[i].dtype)) {
        return false;
      }
    }
    for (std::size_t i = 0; i < case_.lists.size(); ++i) {
      for (const Operand& each : case_.lists[i]) {
        if (!same(case_.operands.size() + i, each.dtype)) {
          return false;
        }
      }
    }
    return true;
  };
  return caps_.dtype_rows != nullptr &&
         std::any_of(
             caps_.dtype_rows, caps_.dtype_rows + caps_.n_dtype_rows, fits);
}

bool draw_case(
    const npu_kind_info& kind,
    std::uint32_t code,
    const npu_op_caps& caps,
    npu_dtype dtype,
    std::uint64_t seed,
    Case& out,
    bool is_long) {
  Draw draw(kind, code, caps, dtype, seed);
  draw.set_long(is_long);
  find_rule(kind.name)(draw);
  return draw.finish(out);
}

}  // namespace npu::kit
