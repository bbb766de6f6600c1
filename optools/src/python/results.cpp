// SPDX-License-Identifier: Apache-2.0
// What tools found, as Python values.
#include <c10/core/DeviceType.h>
#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "core/engine.h"
#include "core/tensor_names.h"
#include "python/bindings.h"
#include "tools/cast.h"
#include "tools/fallback.h"
#include "tools/observe.h"
#include "tools/overflow.h"
#include "tools/timing.h"

namespace optools {
namespace {

py::dict describe(const TensorEntry* entry) {
  const int64_t* sizes = sizes_of(entry);
  const int64_t* strides = strides_of(entry);
  py::tuple shape(entry->dims);
  py::tuple stride(entry->dims);
  for (size_t i = 0; i < entry->dims; ++i) {
    shape[i] = sizes[i];
    stride[i] = strides[i];
  }
  const c10::Device device(
      static_cast<c10::DeviceType>(entry->device_type), entry->device_index);
  py::dict out;
  out["position"] = entry->position;
  out["item"] = entry->item;
  out["dtype"] = c10::toString(static_cast<c10::ScalarType>(entry->dtype));
  out["device"] = device.str();
  out["shape"] = shape;
  out["stride"] = stride;
  out["offset"] = entry->offset;
  out["numel"] = entry->elements;
  out["data_ptr"] = entry->address;
  out["requires_grad"] = (entry->flags & kRequiresGrad) != 0;
  out["written"] = (entry->flags & kWritten) != 0;
  out["opaque"] = (entry->flags & kOpaque) != 0;
  return out;
}

py::dict describe_head(const Record& record) {
  py::dict out;
  out["number"] = record.number;
  out["op"] = op_name(record.op);
  out["phase"] = phase_name(static_cast<Phase>(record.phase));
  out["api"] = api_names().name(record.api);
  out["api_call"] = record.api_call;
  out["module"] = module_names().name(record.module);
  out["site"] = record.site;
  out["thread"] = record.thread;
  out["forward"] = record.forward;
  out["sequence"] = record.sequence;
  out["sequence_thread"] = record.sequence_thread;
  out["step"] = record.step;
  out["start_ns"] = record.start_ns;
  out["raised"] = record.raised != 0;
  return out;
}

py::dict describe(const Record& record) {
  py::dict out = describe_head(record);
  py::list inputs;
  py::list outputs;
  const TensorEntry* entry = first_entry(record);
  for (int i = 0; i < record.entries; ++i, entry = next_entry(entry)) {
    (entry->output != 0 ? outputs : inputs).append(describe(entry));
  }
  out["inputs"] = inputs;
  out["outputs"] = outputs;
  return out;
}

py::list records(const Observe& tool) {
  std::vector<const Record*> all;
  tool.each([&](const Record& record) { all.push_back(&record); });
  std::sort(all.begin(), all.end(), [](const auto* a, const auto* b) {
    return a->number < b->number;
  });
  py::list out;
  for (const auto* record : all) {
    out.append(describe(*record));
  }
  return out;
}

// The first record there is of each operator, and how its phase was.
py::list first_records(const Observe& tool) {
  std::map<uint32_t, const Record*> firsts;
  tool.each([&](const Record& record) {
    const auto [it, fresh] = firsts.try_emplace(record.op, &record);
    if (!fresh && record.number < it->second->number) {
      it->second = &record;
    }
  });
  py::list out;
  for (const auto& [op, record] : firsts) {
    out.append(describe(*record));
  }
  return out;
}

py::list counts(const Observe& tool) {
  py::list out;
  for (const auto& [key, count] : tool.counts()) {
    out.append(py::make_tuple(
        op_name(key.first), phase_name(static_cast<Phase>(key.second)), count));
  }
  return out;
}

py::list counted(const Counted& tool) {
  py::list out;
  for (const auto& [key, share] : tool.counts()) {
    out.append(py::make_tuple(op_name(key.first), key.second, share.calls));
  }
  return out;
}

c10::ScalarType dtype_of(const py::handle& dtype) {
  if (!THPDtype_Check(dtype.ptr())) {
    throw py::type_error("op_tools: expected a torch.dtype");
  }
  return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
}

std::shared_ptr<Cast> make_cast(const py::dict& map) {
  std::vector<std::pair<c10::ScalarType, c10::ScalarType>> pairs;
  for (const auto& [from, to] : map) {
    pairs.emplace_back(dtype_of(from), dtype_of(to));
  }
  return std::make_shared<Cast>(std::move(pairs));
}

py::dict describe(const Statistics& s) {
  py::dict out;
  out["count"] = s.count;
  out["nan"] = s.nan;
  out["+inf"] = s.positive_inf;
  out["-inf"] = s.negative_inf;
  out["zero"] = s.zero;
  out["min"] = s.min;
  out["max"] = s.max;
  out["sum"] = s.sum;
  out["squares"] = s.squares;
  return out;
}

// By the dispatcher, as the operator's library may be gone by now.
std::string argument_name(uint32_t number, size_t position) {
  const auto* op = Engine::get().operator_at(number);
  if (op == nullptr) {
    return {};
  }
  const auto handle = c10::Dispatcher::singleton().findSchema(op->id);
  return !handle || position >= handle->schema().arguments().size()
             ? std::string()
             : handle->schema().arguments()[position].name();
}

py::list events(const Overflow& tool) {
  py::list out;
  for (const auto& event : tool.events()) {
    py::dict one = describe_head(event.call);
    one["first_bad"] = event.first_bad;
    one["deliberate"] = event.deliberate;
    one["site"] = event.site;
    py::list tensors;
    for (const auto& tensor : event.tensors) {
      py::dict t;
      t["output"] = tensor.output;
      t["written"] = tensor.written;
      t["position"] = tensor.position;
      t["item"] = tensor.item;
      t["magnitude"] = tensor.magnitude;
      t["nan"] = tensor.holds_nan();
      t["name"] = label_text(tensor.label);
      t["first"] = tensor.first;
      t["argument"] = tensor.output && !tensor.written
                          ? std::string()
                          : argument_name(event.call.op, tensor.position);
      t["statistics"] = tensor.statistics.count != 0
                            ? py::object(describe(tensor.statistics))
                            : py::object(py::none());
      tensors.append(t);
    }
    one["tensors"] = tensors;
    out.append(one);
  }
  return out;
}

py::list unread(const Overflow& tool) {
  py::list out;
  for (const auto& [key, share] : tool.unread()) {
    out.append(py::make_tuple(op_name(key.first), key.second, share.calls));
  }
  return out;
}

py::list history(const Overflow& tool) {
  py::list out;
  for (const auto& bytes : tool.history()) {
    out.append(describe(*reinterpret_cast<const Record*>(bytes.data())));
  }
  return out;
}

// A tensor the scans can read.
at::Tensor readable(const py::object& object) {
  if (!THPVariable_Check(object.ptr())) {
    throw py::type_error("op_tools: expected a tensor");
  }
  at::Tensor tensor = THPVariable_Unpack(object.ptr());
  if (!host_readable(tensor)) {
    throw py::value_error(
        "op_tools: expected a dense tensor in host memory; move it to the cpu "
        "first");
  }
  return tensor;
}

py::list samples(const Timing& tool) {
  py::list out;
  for (const auto& s : tool.samples()) {
    out.append(py::make_tuple(
        s.number,
        op_name(s.op),
        phase_name(s.phase),
        s.start_ns,
        s.launch_ns,
        s.device_ns,
        s.took_ns(),
        s.thread,
        s.step,
        s.sequence,
        s.forward,
        api_names().name(s.api),
        s.api_call,
        module_names().name(s.module),
        s.raised,
        s.site));
  }
  return out;
}

}  // namespace

void bind_results(py::module_& m) {
  py::class_<Observe, Tool, std::shared_ptr<Observe>>(m, "Observe")
      .def(py::init<size_t>(), py::arg("limit_bytes"))
      .def("records", &records)
      .def("first_records", &first_records)
      .def("counts", &counts)
      .def_property_readonly("dropped", &Observe::dropped);
  py::class_<Overflow, Tool, std::shared_ptr<Overflow>>(m, "Overflow")
      .def(py::init<size_t, size_t>(), py::arg("history"), py::arg("limit"))
      .def("events", &events)
      .def("history", &history)
      .def_property_readonly("total", &Overflow::total)
      .def_property_readonly("checked", &Overflow::checked)
      .def("unread", &unread);
  m.def(
      "name_after",
      [](const py::object& named, const py::object& tensor, const char* more) {
        if (THPVariable_Check(named.ptr()) && THPVariable_Check(tensor.ptr())) {
          name_after(
              THPVariable_Unpack(named.ptr()),
              THPVariable_Unpack(tensor.ptr()),
              more);
        }
      },
      "A name made of the first one's, where that has any");
  m.def("name_tensor", [](const py::object& tensor, const std::string& name) {
    if (THPVariable_Check(tensor.ptr())) {
      name_tensor(THPVariable_Unpack(tensor.ptr()), name);
    }
  });
  py::class_<Timing, Tool, std::shared_ptr<Timing>>(m, "Timing")
      .def(py::init<size_t>(), py::arg("limit"))
      .def("samples", &samples)
      .def_property_readonly("dropped", &Timing::dropped);
  py::class_<Fallback, Tool, std::shared_ptr<Fallback>>(m, "Fallback")
      .def(py::init<>())
      .def("counts", [](const Fallback& tool) { return counted(tool); });
  py::class_<Cast, Tool, std::shared_ptr<Cast>>(m, "Cast")
      .def(py::init(&make_cast), py::arg("dtypes"))
      .def("counts", [](const Cast& tool) { return counted(tool); });
  m.def("statistics", [](const py::object& tensor) {
    return describe(statistics(readable(tensor)));
  });
  m.def("content_hash", [](const py::object& tensor) {
    const auto hash = content_hash(readable(tensor));
    return py::make_tuple(hash[0], hash[1]);
  });
}

}  // namespace optools
