// SPDX-License-Identifier: Apache-2.0
// Collectives.
#include "tools/collective.h"

#if __has_include(<torch/csrc/distributed/c10d/Work.hpp>)
#include <torch/custom_class.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#define OPTOOLS_HAS_WORK 1
#else
#define OPTOOLS_HAS_WORK 0
#endif

namespace optools {
namespace {

#if OPTOOLS_HAS_WORK
c10::intrusive_ptr<c10d::Work> as_work(const c10::IValue& value) {
  return value.toCustomClass<c10d::Work>();
}
#endif

}  // namespace

CollectiveWork::CollectiveWork(const Call& call) {
#if OPTOOLS_HAS_WORK
  if (!call.op.collective) {
    return;
  }
  for (const auto& value : call.outputs()) {
    if (value.isObject() &&
        value.type()->str().find("c10d.Work") != std::string::npos) {
      work_ = value;
    }
  }
#else
  static_cast<void>(call);
#endif
}

bool CollectiveWork::completed() const {
#if OPTOOLS_HAS_WORK
  return as_work(work_)->isCompleted();
#else
  return false;
#endif
}

bool CollectiveWork::wait() const {
#if OPTOOLS_HAS_WORK
  try {
    return as_work(work_)->wait();
  } catch (const std::exception&) {
    return false;
  }
#else
  return false;
#endif
}

bool waits_at_once(const Call& call, c10::ArrayRef<c10::IValue> inputs) {
  const auto& arguments = call.op.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "async_op") {
      return inputs[i].isBool() && !inputs[i].toBool();
    }
  }
  return false;
}

}  // namespace optools
