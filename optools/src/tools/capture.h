// SPDX-License-Identifier: Apache-2.0
// Capture: every call's arguments and results, in files.
#pragma once

#include <map>

#include "core/call_counts.h"
#include "core/capture_store.h"
#include "core/tool.h"
#include "tools/capture_values.h"

namespace optools {

struct CaptureOptions {
  CaptureContent content = CaptureContent::kFull;
  uint64_t max_tensor_bytes = 0;  // 0: no limit
  uint64_t max_calls = 0;         // per operator; 0: no limit
  bool views = false;             // read tensors of operators that only view
  CaptureLimits limits;
};

class Capture : public Tool {
 public:
  // `head`: what the log's first frame says about the run.
  Capture(
      const std::string& folder,
      const std::map<std::string, std::string>& head,
      const CaptureOptions& options);

  void around(Call& call, Chain& chain) override;
  void finish() override;

  CaptureStore& store() {
    return *store_;
  }
  // Of all tensors in all calls, read or not.
  uint64_t operand_bytes() const;
  // Tensors without contents, by reason.
  std::map<std::string, uint64_t> unread() const;

 private:
  struct Local;
  struct Pending;

  bool admits(const Call& call);
  // An operator that only makes a view touches no contents: its tensors are in
  // the records of those that made and use them.
  bool only_views(const Operator& op) const {
    return op.is_view && !op.writes && !options_.views;
  }
  void begin(Call& call, Local& mine);
  void end(Call& call, Local& mine, const char* error);
  void put_outputs(Call& call, Local& mine, const char* skip);
  void put_after(Call& call, Local& mine);
  void put_random(Call& call, Local& mine);
  void define(const Call& call, Local& mine);
  void take_late(Local& mine, bool last);

  const CaptureOptions options_;
  std::unique_ptr<CaptureStore, CaptureStore::Forget> store_;
  // Calls taken, by operator.
  CallCounts calls_;
};

}  // namespace optools
