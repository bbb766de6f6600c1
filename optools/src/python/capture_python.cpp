// SPDX-License-Identifier: Apache-2.0
// Captures and Python: the tool, a writer of records from Python values, and a
// reader of record logs.
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "python/bindings.h"
#include "tools/capture.h"

namespace optools {
namespace {

py::dict totals_of(const CaptureStore& store) {
  const auto totals = store.totals();
  py::dict out;
  out["records"] = totals.records;
  out["refused"] = totals.refused;
  out["seen_bytes"] = totals.seen_bytes;
  out["blob_bytes"] = totals.blob_bytes;
  out["log_bytes"] = totals.log_bytes;
  out["blobs"] = totals.blobs;
  out["packs"] = totals.packs;
  return out;
}

// Records made of Python values, for what was captured elsewhere.
class CaptureWriter {
 public:
  CaptureWriter(
      const std::string& folder, const std::map<std::string, std::string>& head)
      : store_(new CaptureStore(folder, {})),
        values_(*store_, CaptureContent::kFull, 0) {
    put_frame(FrameKind::kHead, py::cast(head));
  }

  void define(
      const std::string& table,
      uint32_t number,
      const std::string& text,
      const std::string& more) {
    py::list parts;
    parts.append(table);
    parts.append(number);
    parts.append(text);
    parts.append(more);
    put_frame(FrameKind::kDefinition, parts);
  }
  void add(const py::dict& record) {
    put_frame(FrameKind::kRecord, record);
    ++records_;
  }
  void close() {
    py::dict end;
    end["records"] = records_;
    values_.packer.clear();
    put(end);
    const std::string payload = values_.packer.take();
    const py::gil_scoped_release release;
    store_->close(payload);
  }
  std::string why_closed() const {
    return store_->why_closed();
  }

 private:
  std::unique_ptr<CaptureStore, CaptureStore::Forget> store_;
  CaptureValues values_;
  uint64_t records_ = 0;

  void put_frame(FrameKind kind, const py::object& value) {
    values_.forget();
    values_.packer.clear();
    put(value);
    std::string payload = values_.packer.take();
    const py::gil_scoped_release release;
    store_->add_record({{kind, std::move(payload)}}, 0);
  }
  void put(const py::handle& value, int depth = 0);
  void put_key(const py::handle& key);
  void put_integer(const py::handle& value);
  bool put_scalar(const py::handle& value);
  bool put_torch(const py::handle& value);
  void put_word(ValueCode code, const std::string& word) {
    const auto opened =
        values_.packer.open_extension(static_cast<int8_t>(code));
    values_.packer.text(word);
    values_.packer.close_extension(opened);
  }
};

// One that 64 bits do not hold is named, as other values that have no word are.
void CaptureWriter::put_integer(const py::handle& value) {
  int overflow = 0;
  const int64_t small = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow == 0) {
    values_.packer.integer(small);
    return;
  }
  const uint64_t natural =
      overflow > 0 ? PyLong_AsUnsignedLongLong(value.ptr()) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    const auto bits = value.attr("bit_length")().cast<size_t>();
    put_word(
        ValueCode::kObject, "an integer of " + std::to_string(bits) + " bits");
    return;
  }
  values_.packer.natural(natural);
}

// UTF-8; what it has no form for (half of a surrogate pair) is spelled out.
std::string text_of(const py::handle& value) {
  const auto bytes = py::reinterpret_steal<py::bytes>(
      PyUnicode_AsEncodedString(value.ptr(), "utf-8", "backslashreplace"));
  if (!bytes) {
    throw py::error_already_set();
  }
  return bytes;
}

bool CaptureWriter::put_scalar(const py::handle& value) {
  auto& packer = values_.packer;
  if (value.is_none()) {
    packer.nil();
  } else if (py::isinstance<py::bool_>(value)) {
    packer.boolean(value.cast<bool>());
  } else if (py::isinstance<py::int_>(value)) {
    put_integer(value);
  } else if (py::isinstance<py::float_>(value)) {
    packer.real(value.cast<double>());
  } else if (py::isinstance<py::str>(value)) {
    packer.text(text_of(value));
  } else if (PyComplex_Check(value.ptr())) {
    const auto opened =
        packer.open_extension(static_cast<int8_t>(ValueCode::kComplex));
    packer.array(2);
    packer.real(PyComplex_RealAsDouble(value.ptr()));
    packer.real(PyComplex_ImagAsDouble(value.ptr()));
    packer.close_extension(opened);
  } else {
    return false;
  }
  return true;
}

// `torch.float32` -> `float32`
std::string last_word(const py::handle& value) {
  const auto text = py::str(value).cast<std::string>();
  return text.substr(text.rfind('.') + 1);
}

bool CaptureWriter::put_torch(const py::handle& value) {
  PyObject* object = value.ptr();
  if (THPVariable_Check(object)) {
    values_.put_tensor(THPVariable_Unpack(object), nullptr);
  } else if (THPDtype_Check(object)) {
    put_word(ValueCode::kDtype, last_word(value));
  } else if (THPDevice_Check(object)) {
    put_word(ValueCode::kDevice, py::str(value));
  } else if (THPLayout_Check(object)) {
    put_word(ValueCode::kLayout, last_word(value));
  } else if (THPMemoryFormat_Check(object)) {
    put_word(ValueCode::kMemoryFormat, last_word(value));
  } else {
    return false;
  }
  return true;
}

// As deep as the reader goes: a list may hold itself.
void CaptureWriter::put(const py::handle& value, int depth) {
  auto& packer = values_.packer;
  if (put_scalar(value) || put_torch(value)) {
    return;
  }
  if (depth > kMaxDepth - 8) {  // a tensor is a map of lists
    throw py::value_error("its values are nested too deeply");
  }
  if (py::isinstance<py::tuple>(value)) {
    const auto opened =
        packer.open_extension(static_cast<int8_t>(ValueCode::kTuple));
    packer.array(py::len(value));
    for (const auto& item : value) {
      put(item, depth + 2);
    }
    packer.close_extension(opened);
  } else if (py::isinstance<py::list>(value)) {
    packer.array(py::len(value));
    for (const auto& item : value) {
      put(item, depth + 1);
    }
  } else if (py::isinstance<py::dict>(value)) {
    packer.map(py::len(value));
    for (const auto& [key, item] : py::reinterpret_borrow<py::dict>(value)) {
      put_key(key);
      put(item, depth + 1);
    }
  } else {
    put_word(ValueCode::kObject, py::str(py::type::handle_of(value)));
  }
}

// The reader takes texts and numbers for keys; others are spelled.
void CaptureWriter::put_key(const py::handle& key) {
  if (py::isinstance<py::str>(key)) {
    values_.packer.text(text_of(key));
  } else if (py::isinstance<py::int_>(key)) {
    put_integer(key);
  } else if (key.is_none() || py::isinstance<py::float_>(key)) {
    values_.packer.text(text_of(py::repr(key)));
  } else {
    values_.packer.text(text_of(py::str(py::type::handle_of(key))));
  }
}

// A record log in memory; records are unpacked when asked for.
class CaptureLog {
 public:
  explicit CaptureLog(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      throw std::system_error(
          errno, std::generic_category(), "reading " + path);
    }
    std::ostringstream text;
    text << file.rdbuf();
    bytes_ = std::move(text).str();
    scan_ = scan_frames(bytes_);
    for (const auto& frame : scan_.frames) {
      if (frame.kind == static_cast<uint8_t>(FrameKind::kRecord)) {
        records_.push_back(frame);
      }
    }
  }
  size_t size() const {
    return records_.size();
  }
  py::object record(size_t index) const {
    if (index >= records_.size()) {
      throw py::index_error("no such record");
    }
    return unpack(records_[index]);
  }
  // Places of the records, by their numbers.
  std::vector<size_t> order() const {
    std::vector<std::pair<uint64_t, size_t>> pairs;
    for (size_t i = 0; i < records_.size(); ++i) {
      const auto& frame = records_[i];
      pairs.emplace_back(
          record_number(
              std::string_view(bytes_).substr(frame.offset, frame.bytes)),
          i);
    }
    std::sort(pairs.begin(), pairs.end());
    std::vector<size_t> places;
    for (const auto& pair : pairs) {
      places.push_back(pair.second);
    }
    return places;
  }
  // Payloads of every frame of a kind.
  py::list all(uint8_t kind) const {
    py::list out;
    for (const auto& frame : scan_.frames) {
      if (frame.kind == kind) {
        try {
          out.append(unpack(frame));
        } catch (const py::value_error&) {
          out.append(py::none());  // whole, and not ours
        }
      }
    }
    return out;
  }
  py::list problems() const {
    py::list out;
    for (const auto& problem : scan_.problems) {
      out.append(py::make_tuple(problem.offset, problem.what));
    }
    return out;
  }
  uint64_t bytes() const {
    return bytes_.size();
  }

 private:
  std::string bytes_;
  FrameScan scan_;
  std::vector<Frame> records_;

  py::object unpack(const Frame& frame) const {
    return unpack_value(
        std::string_view(bytes_).substr(frame.offset, frame.bytes));
  }
};

std::shared_ptr<Capture> make_capture(
    const std::string& folder,
    const std::map<std::string, std::string>& head,
    int content,
    uint64_t max_tensor_bytes,
    uint64_t max_calls,
    bool views,
    uint64_t max_bytes,
    uint64_t min_free,
    uint64_t queue_bytes,
    uint64_t pack_bytes) {
  CaptureOptions options;
  options.content = static_cast<CaptureContent>(content);
  options.max_tensor_bytes = max_tensor_bytes;
  options.max_calls = max_calls;
  options.views = views;
  options.limits = {queue_bytes, pack_bytes, max_bytes, min_free};
  const py::gil_scoped_release release;
  return std::make_shared<Capture>(folder, head, options);
}

}  // namespace

void bind_capture(py::module_& m) {
  py::class_<Capture, Tool, std::shared_ptr<Capture>>(m, "Capture")
      .def(
          py::init(&make_capture),
          py::arg("folder"),
          py::arg("head"),
          py::kw_only(),
          py::arg("content"),
          py::arg("max_tensor_bytes"),
          py::arg("max_calls"),
          py::arg("views"),
          py::arg("max_bytes"),
          py::arg("min_free"),
          py::arg("queue_bytes"),
          py::arg("pack_bytes"))
      .def(
          "totals",
          [](Capture& tool) {
            py::dict out = totals_of(tool.store());
            out["operand_bytes"] = tool.operand_bytes();
            return out;
          })
      .def("unread", &Capture::unread)
      .def(
          "drain",
          [](Capture& tool) { tool.store().drain(); },
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("why_closed", [](Capture& tool) {
        return tool.store().why_closed();
      });
  py::class_<CaptureWriter>(m, "CaptureWriter")
      .def(
          py::init<std::string, std::map<std::string, std::string>>(),
          py::arg("folder"),
          py::arg("head"))
      .def("define", &CaptureWriter::define)
      .def("add", &CaptureWriter::add)
      .def("close", &CaptureWriter::close)
      .def_property_readonly("why_closed", &CaptureWriter::why_closed);
  py::class_<CaptureLog>(m, "CaptureLog")
      .def(py::init<std::string>(), py::arg("path"))
      .def("__len__", &CaptureLog::size)
      .def("record", &CaptureLog::record)
      .def("order", &CaptureLog::order)
      .def("all", &CaptureLog::all, "Frames of a kind")
      .def_property_readonly("problems", &CaptureLog::problems)
      .def_property_readonly("bytes", &CaptureLog::bytes);
  m.def(
      "hash_bytes",
      [](const py::buffer& buffer) {
        const auto info = buffer.request();
        return hash_bytes(
                   info.ptr, static_cast<size_t>(info.size * info.itemsize))
            .hex();
      },
      "A blob's name");
}

}  // namespace optools
