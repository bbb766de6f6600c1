// SPDX-License-Identifier: Apache-2.0
// torch_npu._C: programs of compiled graphs, built from FX nodes.
#include "aten/graph/capture.h"
#include "aten/graph/replayer.h"
#include "aten/graph/traced_graph.h"
#include "graph/pass.h"

#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings.h"
#include "python/index.h"

namespace py = pybind11;

namespace npu {
namespace {

using graph::Operand;
using graph::Replayer;
using graph::TracedGraph;

// Where a value of the graph is, in Python's hands.
struct Place {
  graph::Register index;
};

bool is_place(const py::handle& object) {
  return py::isinstance<Place>(object);
}

// Whether a place stands somewhere inside a list or tuple.
bool holds_place(const py::handle& object) {
  if (!py::isinstance<py::list>(object) && !py::isinstance<py::tuple>(object)) {
    return is_place(object);
  }
  for (const py::handle item : object) {
    if (holds_place(item)) {
      return true;
    }
  }
  return false;
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  const auto optional = type->cast<c10::OptionalType>();
  return optional ? without_optional(optional->getElementType()) : type;
}

// Sizes are integers at run time.
c10::TypePtr element_type(const c10::TypePtr& list) {
  const auto known = list->cast<c10::ListType>();
  TORCH_CHECK(known, "graph: values of the graph in a list that is no list");
  const c10::TypePtr element = known->getElementType();
  return element->kind() == c10::TypeKind::SymIntType
             ? c10::TypePtr(c10::IntType::get())
             : element;
}

bool is_number(const py::handle& object) {
  return PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr()) ||
         PyComplex_Check(object.ptr());
}

Operand to_operand_of(const py::handle& object, const c10::TypePtr& type) {
  Operand made;
  const c10::TypePtr plain = without_optional(type);
  if (is_place(object)) {
    made.kind = Operand::kRegister;
    made.index = object.cast<Place>().index;
    made.to_double = plain->kind() == c10::TypeKind::FloatType;
    made.to_tensor = plain->kind() == c10::TypeKind::TensorType;
  } else if (holds_place(object)) {
    made.kind = Operand::kList;
    made.element = element_type(plain);
    for (const py::handle item : object) {
      made.items.push_back(to_operand_of(item, made.element));
    }
  } else if (plain->kind() == c10::TypeKind::TensorType && is_number(object)) {
    made.constant = graph::number_tensor(
        torch::jit::toIValue(object, c10::NumberType::get()).toScalar());
  } else {
    made.constant = torch::jit::toIValue(object, type);
  }
  return made;
}

// Arguments in the schema's order, defaults filled in.
std::vector<Operand> arguments_of(
    const c10::FunctionSchema& schema,
    const py::tuple& args,
    const py::dict& kwargs) {
  std::vector<Operand> made;
  std::size_t named = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    const std::size_t i = made.size();
    const py::str name(argument.name());
    if (i < args.size()) {
      made.push_back(to_operand_of(args[i], argument.type()));
    } else if (kwargs.contains(name)) {
      made.push_back(to_operand_of(kwargs[name], argument.type()));
      ++named;
    } else {
      TORCH_CHECK(
          argument.default_value(),
          "graph: ",
          schema.name(),
          ": argument ",
          argument.name(),
          " is missing");
      Operand constant;
      constant.constant = *argument.default_value();
      made.push_back(std::move(constant));
    }
  }
  TORCH_CHECK(
      args.size() <= made.size() && named == kwargs.size(),
      "graph: ",
      schema.name(),
      ": arguments the schema does not have");
  return made;
}

// Tensors and numbers as such, everything else as the Python object it is.
c10::IValue to_value(const py::handle& object) {
  if (THPVariable_Check(object.ptr())) {
    return THPVariable_Unpack(object.ptr());
  }
  if (object.is_none()) {
    return c10::IValue();
  }
  if (py::isinstance<py::bool_>(object)) {
    return object.cast<bool>();
  }
  if (py::isinstance<py::int_>(object)) {
    return object.cast<std::int64_t>();
  }
  if (py::isinstance<py::float_>(object)) {
    return object.cast<double>();
  }
  return torch::jit::toIValue(object, c10::PyObjectType::get());
}

Operand output_of(const py::handle& object) {
  Operand made;
  if (is_place(object)) {
    made.kind = Operand::kRegister;
    made.index = object.cast<Place>().index;
  } else {
    made.constant = to_value(object);
  }
  return made;
}

std::vector<Operand> operands_of(const py::list& objects) {
  std::vector<Operand> made;
  for (const py::handle object : objects) {
    made.push_back(output_of(object));
  }
  return made;
}

py::object register_call(
    TracedGraph& program,
    const std::string& name,
    const std::string& overload,
    const py::tuple& args,
    const py::dict& kwargs) {
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(
      name.c_str(), overload.c_str());
  const graph::Register first =
      program.add_call(op, arguments_of(op.schema(), args, kwargs));
  const std::size_t n = op.schema().returns().size();
  if (n == 1) {
    return py::cast(Place{first});
  }
  py::tuple places(n);
  for (std::size_t i = 0; i < n; ++i) {
    places[i] = py::cast(Place{first + static_cast<graph::Register>(i)});
  }
  return places;
}

// A Python function may die after the interpreter's end of use: it is dropped
// with the GIL held.
Place register_host(
    TracedGraph& program,
    const std::string& name,
    py::function function,
    const py::list& arguments) {
  const std::shared_ptr<py::function> held(
      new py::function(std::move(function)), [](py::function* dying) {
        const py::gil_scoped_acquire gil;
        delete dying;
      });
  auto call = [held](std::vector<c10::IValue>&& values) {
    const py::gil_scoped_acquire gil;
    py::tuple given(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      given[i] = torch::jit::toPyObject(std::move(values[i]));
    }
    return to_value((*held)(*given));
  };
  return {program.add_host(name, std::move(call), operands_of(arguments))};
}

graph::Arith arith_of(const std::string& name) {
  static const std::vector<std::pair<const char*, graph::Arith>> kNames = {
      {"add", graph::Arith::kAdd},
      {"sub", graph::Arith::kSub},
      {"mul", graph::Arith::kMul},
      {"floordiv", graph::Arith::kFloorDiv},
      {"mod", graph::Arith::kMod},
      {"neg", graph::Arith::kNeg},
      {"eq", graph::Arith::kEq},
      {"ne", graph::Arith::kNe},
      {"lt", graph::Arith::kLt},
      {"le", graph::Arith::kLe},
      {"gt", graph::Arith::kGt},
      {"ge", graph::Arith::kGe}};
  for (const auto& [known, arith] : kNames) {
    if (name == known) {
      return arith;
    }
  }
  throw py::value_error("graph: no integer arithmetic called " + name);
}

// The list is emptied, so that inputs die at their last use.
template <class Runnable>
py::list run_values(Runnable& runnable, const py::list& args) {
  std::vector<c10::IValue> inputs;
  inputs.reserve(args.size());
  for (const py::handle arg : args) {
    inputs.push_back(to_value(arg));
  }
  args.attr("clear")();
  std::vector<c10::IValue> results;
  {
    const py::gil_scoped_release no_gil;
    results = runnable.run(std::move(inputs));
  }
  py::list given(results.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    given[i] = torch::jit::toPyObject(std::move(results[i]));
  }
  return given;
}

// Whether two of the tensors have bytes in common.
bool share_memory(const py::sequence& args) {
  std::vector<std::pair<const char*, const char*>> ranges;
  for (const py::handle arg : args) {
    if (!THPVariable_Check(arg.ptr())) {
      continue;
    }
    const at::Tensor& tensor = THPVariable_Unpack(arg.ptr());
    if (tensor.layout() != c10::kStrided || !tensor.has_storage() ||
        tensor.numel() == 0) {
      continue;
    }
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < tensor.dim(); ++i) {
      last += (tensor.size(i) - 1) * tensor.stride(i);
    }
    const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
    ranges.emplace_back(
        data,
        data + (last + 1) * static_cast<std::int64_t>(tensor.element_size()));
  }
  std::ranges::sort(ranges);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return true;
    }
  }
  return false;
}

// Runs the operator that Python names, inside the capture.
py::object capture_call(
    graph::Capture& capture,
    const py::object& function,
    const py::tuple& args,
    const py::dict& kwargs) {
  const py::object schema = function.attr("_schema");
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(
      schema.attr("name").cast<std::string>().c_str(),
      schema.attr("overload_name").cast<std::string>().c_str());
  torch::jit::Stack stack;
  for (Operand& operand : arguments_of(op.schema(), args, kwargs)) {
    stack.push_back(std::move(operand.constant));
  }
  {
    const py::gil_scoped_release no_gil;
    capture.call(op, stack);
  }
  return torch::jit::createPyObjectForStack(std::move(stack));
}

py::dict counts_of(const graph::Recording::Counts& counts) {
  py::dict made;
  made["frames"] = counts.frames;
  made["islands"] = counts.islands;
  made["views"] = counts.views;
  made["host_calls"] = counts.host_calls;
  for (const graph::Pass& pass : graph::pass_registry()) {
    for (const char* const counter : pass.counters) {
      if (counter != nullptr) {
        made[counter] = 0;
      }
    }
  }
  for (const auto& [name, count] : counts.passes) {
    made[name] = count;
  }
  made["device_graphs"] = counts.device_graphs;
  made["arena_bytes"] = counts.arena_bytes;
  made["unshared_bytes"] = counts.unshared_bytes;
  return made;
}

py::dict counts_of_replayer(const Replayer& replayer) {
  const Replayer::Counts counts = replayer.counts();
  py::dict made = counts_of(counts.last);
  made["recorded"] = counts.recorded;
  made["replayed"] = counts.replayed;
  made["eager"] = counts.eager;
  made["left"] = counts.left;
  made["evicted"] = counts.evicted;
  return made;
}

// The registry of passes, in order.
py::list pass_rows() {
  py::list rows;
  for (const graph::Pass& pass : graph::pass_registry()) {
    py::list counters;
    for (const char* const counter : pass.counters) {
      if (counter != nullptr) {
        counters.append(counter);
      }
    }
    rows.append(py::dict(
        py::arg("name") = pass.name,
        py::arg("counters") = counters,
        py::arg("doc") = pass.doc));
  }
  return rows;
}

}  // namespace

void bind_graph(py::module_& m) {
  m.def("_graph_passes", &pass_rows);
  m.def("_graph_share_memory", &share_memory);
  py::class_<Place>(m, "_GraphPlace")
      .def_readonly("index", &Place::index)
      .def("__repr__", [](const Place& place) {
        return "%" + std::to_string(place.index);
      });
  py::class_<TracedGraph, std::shared_ptr<TracedGraph>>(m, "_TracedGraph")
      .def(py::init<>())
      .def("input", [](TracedGraph& p) { return Place{p.add_input()}; })
      .def("call", &register_call)
      .def(
          "item",
          [](TracedGraph& p, const Place& list, std::int64_t item) {
            return Place{p.add_item(list.index, item)};
          })
      .def(
          "arith",
          [](TracedGraph& p,
             const std::string& name,
             const py::list& arguments) {
            return Place{p.add_arith(arith_of(name), operands_of(arguments))};
          })
      .def("host", &register_host)
      .def(
          "finish",
          [](TracedGraph& p, const py::list& outputs) {
            p.finish(operands_of(outputs));
          })
      .def("run", &run_values<TracedGraph>)
      .def("names", [](const TracedGraph& p) {
        std::vector<std::string> names;
        for (const graph::Instruction& i : p.instructions()) {
          names.push_back(i.name);
        }
        return names;
      });
  py::class_<Replayer, std::shared_ptr<Replayer>>(m, "_GraphReplayer")
      .def(py::init(
          [](const std::shared_ptr<TracedGraph>& program, std::size_t limit) {
            return std::make_shared<Replayer>(program, limit);
          }))
      .def("run", &run_values<Replayer>)
      .def("counts", &counts_of_replayer);
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  py::class_<graph::CapturedGraph, std::shared_ptr<graph::CapturedGraph>>(
      m, "_CapturedGraph")
      .def("replay", &graph::CapturedGraph::replay, no_gil)
      .def("names", &graph::CapturedGraph::names)
      .def("counts", [](const graph::CapturedGraph& captured) {
        return counts_of(captured.counts());
      });
  py::class_<graph::Capture>(m, "_GraphCapture")
      .def(py::init([](std::int64_t stream, int device) {
        return std::make_unique<graph::Capture>(c10::Stream(
            c10::Stream::UNSAFE,
            c10::Device(c10::DeviceType::PrivateUse1, index_of(device)),
            stream));
      }))
      .def("call", &capture_call)
      .def("replay", &graph::Capture::replay, no_gil)
      .def("follow", &graph::Capture::follow)
      .def("restore", &graph::Capture::restore, no_gil)
      .def("finish", &graph::Capture::finish, no_gil);
}

}  // namespace npu
