// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: what fell back, and the policy about it.
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include "aten/core/site.h"
#include "aten/ladder/check_policy.h"
#include "aten/ladder/host_function.h"
#include "aten/ladder/report.h"
#include "aten/ops/install.h"
#include "aten/profile/call_site.h"
#include "aten/profile/dtype_table.h"
#include "aten/profile/dtypes.h"
#include "aten/profile/facts.h"
#include "aten/profile/gap.h"
#include "aten/profile/policy.h"
#include "aten/profile/profile.h"
#include "aten/twin/half_products.h"
#include "aten/twin/twin.h"
#include "aten/twin/wide.h"
#include "compose/compose.h"
#include "driver/status.h"
#include "npu/kinds.h"
#include "profiler/device_label.h"
#include "profiler/work_trace.h"
#include "python/bindings.h"
#include "python/call_site.h"
#include "python/index.h"
#include "runtime/capabilities.h"
#include "runtime/cpu_work.h"

namespace py = pybind11;

namespace npu {
namespace {

py::list fallback_rows() {
  py::list out;
  for (const auto& row : ladder::report_rows()) {
    py::dict entry;
    entry["overload"] = row.overload;
    entry["reported"] = row.reported;
    entry["rung"] = row.rung;
    entry["native"] = row.native;
    entry["reason"] = row.reason;
    entry["calls"] = row.calls;
    entry["refused_calls"] = row.refused;
    entry["wide_calls"] = row.wide;
    entry["bytes"] = row.bytes;
    entry["seconds"] = row.seconds;
    entry["call_site_path"] = row.call_site;
    entry["call_site"] = without_folder(row.call_site);
    out.append(std::move(entry));
  }
  return out;
}

const char* twin_name() {
  if (!twin_is_native()) {
    return "";
  }
  return platform() == Platform::kCpu ? "CPU" : "CUDA";
}

// Owns nothing of `tensors` afterwards.
py::list wrap_all(std::vector<at::Tensor>&& tensors) {
  py::list out(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    out[i] = py::reinterpret_steal<py::object>(
        THPVariable_Wrap(std::move(tensors[i])));
  }
  tensors.clear();
  return out;
}

std::vector<at::Tensor> unwrap_all(const py::handle& tensors) {
  std::vector<at::Tensor> out;
  for (const py::handle tensor : tensors) {
    if (!THPVariable_Check(tensor.ptr())) {
      throw py::type_error("expected tensors");
    }
    out.push_back(THPVariable_Unpack(tensor.ptr()));
  }
  return out;
}

// function(list of CPU tensors) -> sequence of CPU tensors.
py::list run_host_function(
    const py::function& function, const py::list& tensors, int device) {
  const std::vector<at::Tensor> given = unwrap_all(tensors);
  const auto call = [&function](std::vector<at::Tensor>&& cpu) {
    const py::gil_scoped_acquire gil;
    return unwrap_all(function(wrap_all(std::move(cpu))));
  };
  std::vector<at::Tensor> results;
  {
    const py::gil_scoped_release no_gil;
    results = ladder::run_host_function(
        call, given, {c10::DeviceType::PrivateUse1, index_of(device)});
  }
  return wrap_all(std::move(results));
}

// Calls of a compiled graph by operators of the profile's fallbacks: judged and
// counted as if they had been called one by one.
void count_compiled(const std::vector<std::string>& overloads) {
  for (const std::string& overload : overloads) {
    ladder::count_compiled(overload);
  }
}

// [(overload, [dtype of a tensor])]: the same for verdicts about dtypes.
void judge_compiled(
    const std::vector<std::pair<std::string, std::vector<py::object>>>& calls) {
  for (const auto& [overload, given] : calls) {
    std::vector<c10::ScalarType> dtypes;
    for (const py::object& dtype : given) {
      if (!THPDtype_Check(dtype.ptr())) {
        throw py::type_error("expected dtypes");
      }
      dtypes.push_back(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type);
    }
    ladder::judge_compiled(overload, dtypes);
  }
}

// {"native": ["float32"], "refused": [...]}; None where dtypes are not judged.
py::object dtypes_of(const std::string& overload) {
  const auto found = profile::dtypes_of(overload);
  if (!found) {
    return py::none();
  }
  py::dict out;
  for (const auto& [key, bits] :
       {std::pair("native", found->native),
        std::pair("refused", found->refused)}) {
    py::list names;
    for (unsigned dtype = 1; dtype < NPU_DTYPE_COUNT; ++dtype) {
      if ((bits & NPU_DTYPE_BIT(dtype)) != 0) {
        names.append(profile::torch_name(dtype));
      }
    }
    out[key] = std::move(names);
  }
  return out;
}

py::list explain_operator(const std::string& name) {
  py::list out;
  for (const auto& row : profile::explain(name)) {
    py::dict entry;
    entry["overload"] = row.overload;
    entry["resolved"] = row.resolved;
    entry["falls_back"] = row.falls_back;
    entry["profile"] = row.profile;
    out.append(std::move(entry));
  }
  return out;
}

// [(dtype, the dtype it is computed in, only where, why)]
py::list wide_facts(const std::string& name) {
  py::list out;
  for (const twin::WideFact& fact : twin::wide_facts(name)) {
    out.append(py::make_tuple(
        c10::toString(fact.dtype),
        c10::toString(fact.wide),
        fact.when == nullptr ? "" : fact.when,
        fact.slow ? twin::why_multiplied_so(fact.dtype) : std::string()));
  }
  return out;
}

// {dtype: (in float32, why)}
py::dict half_products() {
  py::dict out;
  for (const auto& [name, dtype] :
       {std::pair("bfloat16", c10::ScalarType::BFloat16),
        std::pair("float16", c10::ScalarType::Half)}) {
    out[name] = py::make_tuple(
        twin::multiplied_in_float32(dtype), twin::why_multiplied_so(dtype));
  }
  return out;
}

py::list profile_gaps() {
  py::list out;
  for (const auto& row : gap_rows()) {
    py::dict entry;
    entry["feature"] = row.feature;
    entry["calls"] = row.calls;
    entry["call_site"] = without_folder(row.call_site);
    out.append(std::move(entry));
  }
  return out;
}

py::list unknown_dtype_rows() {
  py::list out;
  for (const auto& row : unknown_dtypes()) {
    py::dict entry;
    entry["operator"] = row.name;
    entry["dtype"] = row.dtype;
    entry["calls"] = row.calls;
    entry["call_site"] = without_folder(row.call_site);
    out.append(std::move(entry));
  }
  return out;
}

// (calls, overload, reason) of what the CPU computed for this thread in the
// device's place; the last two are the last call's.
py::tuple cpu_work() {
  const CpuWork& seen = cpu_work_of_thread();
  return py::make_tuple(seen.calls, seen.last, reason_text(seen.reason));
}

// {overload: [{kind, code, 1: calls, 2: calls, 3: calls, 4: calls}]}: an
// overload may have several codes. 4: on the embedded host driver.
py::dict native_calls() {
  py::dict calls;
  for_each_site([&](Site& site) {
    py::dict row;
    std::uint64_t sum = 0;
    for (int rung = 1; rung <= Site::kRungs; ++rung) {
      row[py::int_(rung)] = site.calls(rung);
      sum += site.calls(rung);
    }
    if (sum == 0) {
      return;
    }
    row["kind"] = npu_kind_name(site.slot());
    row["code"] = npu_code_name(site.slot(), site.code());
    if (!calls.contains(site.overload())) {
      calls[site.overload()] = py::list();
    }
    calls[site.overload()].cast<py::list>().append(row);
  });
  return calls;
}

// The kinds rung 3 can make of others.
py::list composed_kinds() {
  py::list out;
  for (std::uint32_t slot = 1; slot < NPU_KIND_COUNT; ++slot) {
    if (compose::has_decomposition(slot)) {
      out.append(npu_kind_name(slot));
    }
  }
  return out;
}

}  // namespace

void bind_fallback(py::module_& m) {
  m.def("_native_calls", &native_calls);
  m.def("_cpu_work", &cpu_work);
  // Whose kernels are the device's own: "CPU", "CUDA" or "".
  m.def("_twin", &twin_name);
  // For tests: calls of rung 4 take the kernel of their twin's dispatch key, as
  // they do on a GPU, or the CPU function that the generated code names.
  m.def("_set_uses_cpu_functions", [](bool used) {
    using twin::detail::CpuFunctions;
    twin::detail::cpu_functions =
        used ? CpuFunctions::kUsed : CpuFunctions::kNotUsed;
  });
  m.def("_composed_kinds", &composed_kinds);
  m.def("_fallback_rows", &fallback_rows);
  m.def("_wide_facts", &wide_facts);
  m.def("_half_products", &half_products);
  m.def("_run_host_function", &run_host_function);
  m.def("_count_compiled", &count_compiled);
  m.def("_judge_compiled", &judge_compiled);
  m.def("_dtypes_of", &dtypes_of);
  m.def("_fallback_reset", [] {
    ladder::report_reset();
    gap_reset();
    unknown_dtypes_reset();
  });
  m.def("_profile_gaps", &profile_gaps);
  m.def("_unknown_dtypes", &unknown_dtype_rows);
  m.def("_profile_name", &profile::name);
  m.def("_profile_device_name", &profile::device_name);
  // 0 warn, 1 silent, 2 error.
  m.def("_fallback_policy", [] { return static_cast<int>(profile::policy()); });
  m.def("_set_fallback_policy", [](int policy) {
    ladder::set_policy(static_cast<profile::Policy>(policy));
  });
  m.def("_profile_info", &profile::info);
  m.def("_explain_operator", &explain_operator);
  // Once, with the folder of the package's data files.
  m.def("_install_ladder", [](const std::string& data_dir) {
    profile::set_data_dir(data_dir);
    profile::set_call_site_provider(&python_call_site);
    profiler::set_line_provider(&python_line);
    profiler::set_device_name_provider(&profile::device_name);
    install_operators();
  });
}

}  // namespace npu
