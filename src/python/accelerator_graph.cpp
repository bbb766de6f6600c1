// SPDX-License-Identifier: Apache-2.0
// torch.accelerator.Graph: PyTorch's interface for device graphs, served by
// torch.npu.NPUGraph.
#include "python/bindings.h"
#include "runtime/torch_compat.h"

#if NPU_TORCH_AT_LEAST(2, 13)
#include <ATen/core/GraphImplInterface.h>

#include <memory>
#include <string>
#include <utility>

namespace py = pybind11;

namespace npu {
namespace {

const char* mode_name(at::GraphCaptureMode mode) {
  switch (mode) {
    case at::GraphCaptureMode::ThreadLocal:
      return "thread_local";
    case at::GraphCaptureMode::Relaxed:
      return "relaxed";
    default:
      return "global";
  }
}

// Called with or without the GIL.
class AcceleratorGraph final : public at::GraphImplInterface {
 public:
  explicit AcceleratorGraph(const at::GraphImplArgs& args) {
    const py::gil_scoped_acquire gil;
    graph_ = py::module_::import("torch_npu.npu.graphs")
                 .attr("NPUGraph")(args.keep_graph);
  }
  ~AcceleratorGraph() override {
    if (Py_IsInitialized() == 0) {
      graph_.release();
      return;
    }
    const py::gil_scoped_acquire gil;
    graph_ = py::object();
  }
  AcceleratorGraph(const AcceleratorGraph&) = delete;
  AcceleratorGraph& operator=(const AcceleratorGraph&) = delete;

  void capture_begin(
      at::MempoolId_t pool, at::GraphCaptureMode capture_mode) override {
    const py::gil_scoped_acquire gil;
    py::object shared = py::none();
    if (pool.first != 0 || pool.second != 0) {
      shared = py::make_tuple(pool.first, pool.second);
    }
    graph_.attr("capture_begin")(shared, mode_name(capture_mode));
  }
  void capture_end() override {
    call("capture_end");
  }
  void instantiate() override {
    call("instantiate");
  }
  void replay() override {
    call("replay");
  }
  void reset() override {
    call("reset");
  }
  at::MempoolId_t pool() const override {
    const py::gil_scoped_acquire gil;
    const py::tuple found = graph_.attr("pool")();
    return {
        found[0].cast<unsigned long long>(),
        found[1].cast<unsigned long long>()};
  }
  void enable_debug_mode() override {
    call("enable_debug_mode");
  }
  void debug_dump(const std::string& path) override {
    const py::gil_scoped_acquire gil;
    graph_.attr("debug_dump")(path);
  }

 private:
  void call(const char* method) {
    const py::gil_scoped_acquire gil;
    graph_.attr(method)();
  }

  py::object graph_;
};

}  // namespace
}  // namespace npu

namespace at {
// NOLINTNEXTLINE: the macro's names
REGISTER_GRAPH_IMPL(NPU, ::npu::AcceleratorGraph)
}  // namespace at
#endif
