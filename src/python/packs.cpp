// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: operator packs, and what the names of Ascend's kernels mean.
#include <string>

#include "aten/packs/load.h"
#include "aten/packs/names.h"
#include "driver/packs.h"
#include "driver/status.h"
#include "python/bindings.h"
#include "torch_npu/named_call.h"
#include "torch_npu/pack.h"

namespace py = pybind11;

namespace npu {
namespace {

py::dict described(const packs::Loaded& pack) {
  py::list rows;
  for (const packs::Row& row : pack.rows) {
    rows.append(py::make_tuple(row.overload, row.key, row.where));
  }
  py::dict result;
  result["name"] = pack.name;
  result["path"] = pack.path;
  result["rows"] = rows;
  return result;
}

py::dict load_pack(const std::string& path) {
  try {
    return described(packs::load(path));
  } catch (const Error& error) {
    throw py::value_error(error.what());
  }
}

py::list loaded_packs() {
  py::list result;
  for (const packs::Loaded& pack : packs::loaded()) {
    result.append(described(pack));
  }
  return result;
}

// The callable lives as long as the process: it may be asked while Python ends.
void set_definer(py::object definer) {
  auto* const kept = new py::object(std::move(definer));
  named::set_definer([kept](const std::string& name) {
    const py::gil_scoped_acquire gil;
    (*kept)(name);
  });
}

// Counts the calls of a Python pack's function. Notes live as long as the
// process, as those of C++ packs do.
py::cpp_function call_note(const std::string& overload) {
  auto* const name = new std::string(overload);
  auto* const note = new pack::CallNote(name->c_str());
  return py::cpp_function([note] { (*note)(); });
}

py::list table_of_names() {
  py::list result;
  for (const named::Renamed& row : named::renamed()) {
    result.append(
        py::make_tuple(std::string(row.name), std::string(row.target)));
  }
  return result;
}

}  // namespace

void bind_packs(py::module_& m) {
  m.def("_load_pack", &load_pack);
  m.def("_packs", &loaded_packs);
  m.def("_pack_call_note", &call_note);
  m.def("_pack_calls", [] {
    py::dict result;
    for (const auto& [overload, count] : packs::calls()) {
      result[py::str(overload)] = count;
    }
    return result;
  });
  m.def("_add_pack_file", &add_pack_file);
  m.def("_set_definer", &set_definer);
  m.def("_kernel_meaning", &named::meaning);
  m.def("_renamed_kernels", &table_of_names);
}

}  // namespace npu
