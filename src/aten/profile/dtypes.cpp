// SPDX-License-Identifier: Apache-2.0
// Verdicts about the dtypes of calls.
#include "aten/profile/dtypes.h"

#include <c10/util/Exception.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "aten/profile/call_site.h"
#include "aten/profile/dtype_table.h"
#include "aten/profile/facts.h"
#include "aten/profile/gap.h"
#include "aten/profile/policy.h"
#include "aten/profile/profile.h"
#include "runtime/error.h"

namespace npu {

struct DtypeRow {
  struct Count {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<bool> warned{false};
    std::string call_site;  // guarded by Rows::mutex
  };
  std::string name;
  profile::Dtypes dtypes;
  std::array<Count, NPU_DTYPE_COUNT> counts;
};

namespace {

struct Rows {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<DtypeRow>> all;
};

Rows& rows() {
  static auto* const instance = new Rows;
  return *instance;
}

// "aten::add_.Tensor" -> "aten::add": what the user reads.
std::string operator_name(const std::string& overload) {
  std::string name = overload.substr(0, overload.find('.'));
  if (name.ends_with('_') && !name.ends_with("__")) {
    name.pop_back();
  }
  return name;
}

template <class Body>
void for_each_dtype(std::uint64_t bits, const Body& body) {
  for (unsigned dtype = 1; dtype < NPU_DTYPE_COUNT; ++dtype) {
    if ((bits & NPU_DTYPE_BIT(dtype)) != 0) {
      body(dtype);
    }
  }
}

std::string names_of(std::uint64_t bits) {
  std::string text;
  for_each_dtype(bits, [&text](unsigned dtype) {
    text +=
        (text.empty() ? "" : ", ") + std::string(profile::torch_name(dtype));
  });
  return text;
}

std::string takes(const DtypeRow& row) {
  return row.dtypes.native == 0 ? ""
                                : "; it takes " + names_of(row.dtypes.native);
}

void raise_refused(const DtypeRow& row, std::uint64_t bits) {
  TORCH_CHECK(
      false,
      "npu: ",
      row.name,
      ": ",
      profile::name(),
      " refuses ",
      names_of(bits),
      takes(row),
      ". Cast the tensors, or unset NPU_PROFILE_STRICT, which asks for that "
      "device's errors.",
      pta_error(Code::kAcl));
}

void warn_refused(DtypeRow& row, unsigned dtype) {
  if (profile::policy() == profile::Policy::kSilent || !warnings_enabled() ||
      row.counts[dtype].warned.exchange(true)) {
    return;
  }
  warn(
      std::string("npu: ") + row.name + ": " + profile::name() + " refuses " +
          profile::torch_name(dtype) + takes(row) +
          ". It runs here and raises an error there; NPU_PROFILE_STRICT=1 "
          "raises it here.",
      "refused_dtype",
      __FILE__,
      __LINE__);
}

}  // namespace

const DtypeRow* DtypeJudge::find(const char* overload) {
  if (const DtypeRow* const known = row_.load(std::memory_order_acquire)) {
    return known;
  }
  const auto dtypes = profile::dtypes_of(overload);
  if (!dtypes) {
    native_.store(~std::uint64_t{0}, std::memory_order_relaxed);
    return nullptr;
  }
  const std::string name = operator_name(overload);
  Rows& table = rows();
  const std::lock_guard<std::mutex> lock(table.mutex);
  // Overloads of one name may have rows of their own.
  auto& made = table.all[name + ' ' + std::to_string(dtypes->native)];
  if (made == nullptr) {
    made = std::make_unique<DtypeRow>();
    made->name = name;
    made->dtypes = *dtypes;
  }
  native_.store(dtypes->native, std::memory_order_relaxed);
  row_.store(made.get(), std::memory_order_release);
  return made.get();
}

bool DtypeJudge::may_run(const char* overload, std::uint64_t bits) {
  const DtypeRow* const row = find(overload);
  if (row == nullptr || takes(bits)) {
    return false;
  }
  if (const std::uint64_t refused = bits & row->dtypes.refused;
      refused != 0 && profile::strict()) {
    raise_refused(*row, refused);
  }
  return true;
}

void DtypeJudge::count(std::uint64_t bits) {
  DtypeRow* const row = row_.load(std::memory_order_acquire);
  if (row == nullptr) {
    return;
  }
  for_each_dtype(bits & ~row->dtypes.native, [row](unsigned dtype) {
    if ((row->dtypes.refused & NPU_DTYPE_BIT(dtype)) != 0) {
      count_gap(std::string(profile::torch_name(dtype)) + ' ' + row->name);
      warn_refused(*row, dtype);
    } else if (
        row->counts[dtype].calls.fetch_add(1, std::memory_order_relaxed) == 0) {
      std::string site = profile::current_call_site();
      const std::lock_guard<std::mutex> lock(rows().mutex);
      row->counts[dtype].call_site = std::move(site);
    }
  });
}

std::vector<UnknownDtype> unknown_dtypes() {
  std::vector<UnknownDtype> found;
  Rows& table = rows();
  const std::lock_guard<std::mutex> lock(table.mutex);
  for (const auto& [key, row] : table.all) {
    for (unsigned dtype = 1; dtype < NPU_DTYPE_COUNT; ++dtype) {
      const DtypeRow::Count& count = row->counts[dtype];
      if (const std::uint64_t calls = count.calls.load(); calls != 0) {
        found.push_back(
            {row->name, profile::torch_name(dtype), calls, count.call_site});
      }
    }
  }
  return found;
}

void unknown_dtypes_reset() {
  Rows& table = rows();
  const std::lock_guard<std::mutex> lock(table.mutex);
  for (const auto& [key, row] : table.all) {
    for (DtypeRow::Count& count : row->counts) {
      count.calls = 0;
    }
  }
}

}  // namespace npu
