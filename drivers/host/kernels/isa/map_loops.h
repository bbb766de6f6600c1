// SPDX-License-Identifier: Apache-2.0
// The loops behind one MapLoops. Included by each map_<isa>.cpp with NPU_ISA
// set to its namespace; includes no inline function that the linker could
// share with another instruction set (see arithmetic.h).
#include "kernels/isa/map.h"

namespace npu::host::NPU_ISA {
namespace {

// In a namespace of its own: nothing here is shared between instruction sets.
template <class Op, class T>
npu_status line_of(const MapLine& line, std::int64_t n) {
  using Plain = typename WithoutFactor<Op>::type;
  if constexpr (!std::is_same_v<Op, Plain>) {
    const npu_scalar& factor = line.scalars[0];
    if (factor.kind == NPU_SCALAR_NONE || factor.re == 1) {
      run_line<Plain, T>(line, n);
      return NPU_OK;
    }
  }
  run_line<Op, T>(line, n);
  return NPU_OK;
}

#define NPU_ROW(kind, code, name) \
  {NPU_KIND_##kind,               \
   NPU_##kind##_##code,           \
   {line_of<formula::name, float>, line_of<formula::name, double>}},
constexpr MapLoop kRows[] = {NPU_ISA_MAPS(NPU_ROW)};
#undef NPU_ROW

}  // namespace

extern const MapLoops kMapLoops = {kRows, sizeof(kRows) / sizeof(kRows[0])};

}  // namespace npu::host::NPU_ISA
