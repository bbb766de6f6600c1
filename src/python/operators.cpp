// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: which kinds the driver runs, and with which dtypes; counting
// floating point operations.
#include <string>
#include <vector>

#include "aten/core/flops.h"
#include "aten/custom/custom.h"
#include "driver/registry.h"
#include "npu/kinds.h"
#include "npu/validate.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace npu {
namespace {

// The dtypes of the first operand that says any, inputs before outputs.
py::list dtypes_of(const npu_op_caps& caps, const npu_kind_info& kind) {
  std::uint64_t mask = 0;
  const std::uint32_t operands = kind.n_out + kind.n_in + kind.n_lists;
  for (std::uint32_t i = kind.n_out; i < operands && mask == 0; ++i) {
    mask = i < NPU_MAX_OPERANDS ? caps.dtypes[i] : 0;
  }
  mask = mask != 0 ? mask : caps.dtypes[0];
  py::list names;
  for (npu_dtype dtype = 1; dtype < NPU_DTYPE_COUNT; ++dtype) {
    if ((mask >> dtype & 1u) != 0) {
      names.append(npu_dtype_name(dtype));
    }
  }
  return names;
}

// A row {kind, code, dtypes} for each that the driver has; code is "" in kinds
// without codes.
py::list driver_kinds() {
  const Driver& driver = active_driver();
  py::list rows;
  for (std::uint32_t slot = 1; slot < NPU_KIND_LIMIT; ++slot) {
    const npu_kind_info* const kind = npu_kind_of(slot);
    if (kind == nullptr || !driver.has_kind(slot)) {
      continue;
    }
    for (std::uint32_t code = 0; code < kind->n_codes; ++code) {
      const npu_op_caps* const caps = driver.caps(slot, code);
      if (caps == nullptr) {
        continue;
      }
      py::dict row;
      row["kind"] = kind->name;
      row["code"] = kind->codes != nullptr ? kind->codes[code] : "";
      row["dtypes"] = dtypes_of(*caps, *kind);
      rows.append(std::move(row));
    }
  }
  return rows;
}

// (module of torch_npu.ops, doc, nearest, why it is refused).
py::tuple row_of(const custom::Operator& op) {
  return py::make_tuple(op.module, op.doc, op.nearest, op.refused);
}

// None where Ascend has no such operator.
py::object find_custom(const std::string& ns, const std::string& name) {
  const custom::Operator* const op = custom::find(ns, name);
  if (op == nullptr) {
    return py::none();
  }
  return row_of(*op);
}

// Of an overload with a kernel or gradient in C++ the operator that the
// gradient calls, or ""; None where the composition is all there is.
py::object find_kernel(const std::string& ns, const std::string& name) {
  const custom::Operator* const op =
      custom::find(ns, name.substr(0, name.find('.')));
  for (std::size_t i = 0; op != nullptr && i < op->count; ++i) {
    const custom::Overload& overload = op->overloads[i];
    const std::string_view schema = overload.schema;
    if (overload.kernel != nullptr &&
        schema.substr(0, schema.find('(')) == name) {
      return py::str(overload.kernel->needs);
    }
  }
  return py::none();
}

// {name: row} without defining anything.
py::dict custom_operators(const std::string& ns) {
  py::dict rows;
  for (const custom::Operator& op : custom::operators()) {
    if (op.ns == ns) {
      rows[op.name] = row_of(op);
    }
  }
  return rows;
}

}  // namespace

void bind_operators(py::module_& m) {
  m.def("_find_custom", &find_custom);
  m.def("_define_custom", [](const std::string& ns, const std::string& name) {
    const custom::Operator* const op = custom::find(ns, name);
    return op != nullptr && custom::define(*op);
  });
  m.def("_custom_operators", &custom_operators);
  m.def("_custom_kernel", &find_kernel);
  m.def("_driver_kinds", &driver_kinds);
  m.def("_flops_start", &flops::start);
  m.def("_flops_stop", &flops::stop);
  m.def("_flops_pause", &flops::pause);
  m.def("_flops_resume", &flops::resume);
  m.def("_flops_counts", [] {
    const flops::Counts counts = flops::counts();
    return py::make_tuple(counts.recorded, counts.traversed);
  });
}

}  // namespace npu
