// SPDX-License-Identifier: Apache-2.0
// Group kind: one test per kind, with random cases of every code and dtype that
// the driver declares, against the oracle (the host driver in float64).
//
// A failure names its seed: --kind <kind> --seed <seed> runs that case alone.
#include "kinds_test.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>

#include "draw.h"
#include "judge.h"

namespace npu::kit {
namespace {

constexpr int kMostFailures = 5;
constexpr int kUsualCases = 3;

std::map<std::string, KindResult>& results() {
  static std::map<std::string, KindResult> rows;
  return rows;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
  return x ^ (x >> 29);
}

class KindTest : public testing::Test {
 public:
  explicit KindTest(const npu_kind_info& kind)
      : kind_(kind), result_(results()[kind.name]) {}

  void TestBody() override {
    std::vector<std::uint32_t> codes;
    for (std::uint32_t code = 0; code < kind_.n_codes; ++code) {
      if (declares(kind_.slot, code)) {
        codes.push_back(code);
      }
    }
    if (codes.empty()) {
      NPU_NOT_DECLARED("kind " << kind_.name);
    }
    result_.codes = static_cast<int>(codes.size());
    if (const char* why = not_drawn(kind_)) {
      result_.why_declined = why;
      GTEST_SKIP() << kind_.name << ": " << why;
    }
    for (const std::uint32_t code : codes) {
      declares(kind_.slot, code, &caps_);
      const std::uint64_t dtypes = main_dtypes(kind_, code, caps_);
      for (npu_dtype dtype = 1; dtype < NPU_DTYPE_COUNT; ++dtype) {
        if (has(dtypes, dtype) && failures_ < kMostFailures) {
          test_dtype(code, dtype);
        }
      }
      test_long(code, dtypes);
    }
  }

 private:
  void test_dtype(std::uint32_t code, npu_dtype dtype) {
    // Some draws are no case (more dimensions than the driver takes), some are
    // declined: both are drawn again, not for ever.
    constexpr int kMostDraws = 12;
    int wanted = options().cases;
    for (int i = 0; wanted > 0 && i < options().cases * kMostDraws; ++i) {
      if (failures_ >= kMostFailures) {
        return;
      }
      const std::uint64_t seed =
          options().seed != 0 ? options().seed
                              : mix(mix(kind_.slot * 1000u + code, dtype),
                                    static_cast<std::uint64_t>(i)) >>
                                    32;
      Case value;
      if (!draw_case(kind_, code, caps_, dtype, seed, value)) {
        continue;
      }
      const Outcome outcome = run_mended(subject(), value);
      // A list kind may learn in run that it lacks the operation.
      const bool lacks = kind_.slot == NPU_KIND_MULTI_MAP &&
                         outcome.queued == NPU_E_UNSUPPORTED;
      if (outcome.declined || lacks) {
        ++result_.declined;
        result_.why_declined = outcome.reason;
        continue;
      }
      --wanted;
      test_case(value, outcome);
    }
  }

  // Many elements in a row: kernels work in blocks and tiles. One dtype per
  // code, another for the next code; all of them when many cases are asked for.
  void test_long(std::uint32_t code, std::uint64_t dtypes) {
    const std::string family = kind_.family;
    if (family != "map" && family != "reduce" && family != "normalise") {
      return;
    }
    for (const std::uint32_t complex : {NPU_C32, NPU_C64, NPU_C128}) {
      dtypes &= ~NPU_DTYPE_BIT(complex);
    }
    const auto n = static_cast<std::uint32_t>(std::popcount(dtypes));
    std::uint32_t place = 0;
    for (npu_dtype dtype = 1; dtype < NPU_DTYPE_COUNT; ++dtype) {
      if (!has(dtypes, dtype)) {
        continue;
      }
      const bool turn = place++ == code % n || options().cases > kUsualCases ||
                        options().seed != 0;
      Case value;
      const std::uint64_t seed =
          options().seed != 0 ? options().seed
                              : mix(kind_.slot * 1000u + code, dtype) >> 32;
      if (!turn || failures_ >= kMostFailures ||
          !draw_case(kind_, code, caps_, dtype, seed, value, true)) {
        continue;
      }
      const Outcome outcome = run_mended(subject(), value);
      if (!outcome.declined) {
        test_case(value, outcome);
      }
    }
  }

  void test_case(const Case& value, const Outcome& outcome) {
    ++result_.cases;
    if (!outcome.ok()) {
      fail(
          value.text() + ": " +
          (outcome.broken.empty()
               ? explain(outcome.queued ? outcome.queued : outcome.done)
               : outcome.broken) +
          " " + outcome.reason);
      return;
    }
    std::string skipped;
    const Judgement verdict = judge(value, outcome, skipped);
    if (!skipped.empty()) {
      ++result_.without_oracle;
      return;
    }
    result_.worst = std::max(result_.worst, verdict.worst);
    if (!verdict.wrong.empty()) {
      fail(value.text() + ": " + verdict.wrong);
      return;
    }
    test_again(value, outcome);
    test_in_place(value, outcome);
    test_host_scalars(value);
    test_once(value, outcome);
  }

  // What one case of a kind tells as well as many.
  void test_once(const Case& value, const Outcome& outcome) {
    if (!tested_device_ && device_count() > 1) {
      tested_device_ = true;
      const Outcome other = run_case(subject(device_count() - 1), value);
      if (!other.declined && (!other.ok() || !same(outcome, other))) {
        fail(
            value.text() + ": on device " + std::to_string(device_count() - 1) +
            " it gives another answer " + other.reason + other.broken);
      }
    }
    if (!tested_limit_ && outcome.workspace_bytes > 0) {
      tested_limit_ = true;
      test_workspace_limit(value, outcome.workspace_bytes);
    }
    const bool tunes = caps_.plan_use != NPU_PLAN_NONE &&
                       driver().op->tune != nullptr &&
                       (driver().call_flags_known & NPU_CALL_BENCHMARK) != 0;
    if (!tested_tune_ && tunes) {
      tested_tune_ = true;
      Case tuned = value;
      tuned.benchmark = true;
      judge_other(tuned, "flagged NPU_CALL_BENCHMARK");
    }
  }

  // Less workspace than the plan would like, and none at all.
  void test_workspace_limit(const Case& value, std::uint64_t bytes) {
    for (const std::uint64_t limit : {bytes / 2, std::uint64_t{1}}) {
      Case limited = value;
      limited.workspace_limit = std::max<std::uint64_t>(limit, 1);
      const std::string what =
          "with workspace_limit " + std::to_string(limited.workspace_limit);
      const Outcome outcome = judge_other(limited, what);
      if (outcome.declined && outcome.verdict.answer == NPU_VERDICT_NO &&
          outcome.verdict.reason != NPU_REASON_WORKSPACE) {
        fail(
            limited.text() + ": " + what +
            " plan declines, and the reason is not NPU_REASON_WORKSPACE: " +
            outcome.reason);
      }
    }
  }

  Outcome judge_other(const Case& value, const std::string& what) {
    const Outcome outcome = run_case(subject(), value);
    std::string skipped;
    const std::string wrong =
        outcome.declined          ? ""
        : !outcome.broken.empty() ? outcome.broken
        : !outcome.ok()
            ? explain(outcome.queued ? outcome.queued : outcome.done)
            : judge(value, outcome, skipped).wrong;
    if (!wrong.empty()) {
      fail(value.text() + ": " + what + ": " + wrong);
    }
    return outcome;
  }

  // Elementwise calls with a number in the place of each input in turn.
  void test_host_scalars(const Case& value) {
    if ((caps_.flags & NPU_CAP_HOST_SCALAR) == 0 ||
        std::string(value.kind->family) != "map") {
      return;
    }
    const std::size_t first = value.kind->n_out;
    std::size_t inputs = 0;
    for (std::size_t i = first; i < value.operands.size(); ++i) {
      inputs += value.operands[i].present() ? 1 : 0;
    }
    for (std::size_t i = first; i < value.operands.size() && inputs > 1; ++i) {
      if (value.operands[i].values.empty()) {
        continue;
      }
      Case scalar = value;
      Operand& number = scalar.operands[i];
      number.sizes.clear();
      number.strides.clear();
      number.offset = 0;
      number.host_scalar = true;
      number.values.resize(1);
      judge_other(
          scalar, std::string("with a host scalar as ") + number.info->name);
    }
  }

  // Two threads, a deterministic call: the same bits.
  void test_again(const Case& value, const Outcome& outcome) {
    if ((caps_.flags & NPU_CAP_DETERMINISTIC) == 0) {
      return;
    }
    Case again = value;
    again.deterministic = true;
    set_threads(2);
    const Outcome other = run_case(subject(), again);
    set_threads(1);
    if (other.ok() && !same(outcome, other)) {
      fail(value.text() + ": declared deterministic, and a second run differs");
    }
  }

  // Outputs that lie in an input, where the driver says that it may.
  void test_in_place(const Case& value, const Outcome& outcome) {
    const std::uint32_t n_out = value.kind->n_out;
    for (std::size_t i = n_out; i < value.operands.size(); ++i) {
      const Operand& in = value.operands[i];
      const Operand& out = value.operands[0];
      const bool may = (caps_.flags & NPU_CAP_ALIAS) != 0 &&
                       ((caps_.alias_mask >> (i - n_out)) & 1) != 0;
      if (!may || !in.present() || in.host_scalar || in.dtype != out.dtype ||
          in.sizes != out.sizes || out.info->mode != NPU_MODE_OUT) {
        continue;
      }
      Case inside = value;
      inside.operands[i].alias_of = 0;
      inside.operands[i].strides = out.strides;
      inside.operands[i].offset = out.offset;
      const Outcome other = run_case(subject(), inside);
      if (!other.declined && (!other.ok() || !same(outcome, other))) {
        fail(
            inside.text() + ": in place it gives another answer " +
            other.reason + other.broken);
      }
    }
  }

  static bool same(const Outcome& a, const Outcome& b) {
    const auto bits = [](const Outcome& outcome) {
      Bytes out;
      for (std::size_t i = 0; i < outcome.values.size(); ++i) {
        for (const Value& value : outcome.values[i]) {
          out.resize(out.size() + 16);
          store(outcome.dtypes[i], value, out.data() + out.size() - 16);
        }
      }
      return out;
    };
    return bits(a) == bits(b);
  }

  void fail(const std::string& text) {
    ++failures_;
    ++result_.failed;
    if (result_.first_failure.empty()) {
      result_.first_failure = text;
    }
    ADD_FAILURE() << text;
  }

  const npu_kind_info& kind_;
  KindResult& result_;
  npu_op_caps caps_{};
  int failures_ = 0;
  bool tested_device_ = false;
  bool tested_limit_ = false;
  bool tested_tune_ = false;
};

// ---- indices out of range ----

// The operand (or list) of a kind that holds indices.
struct IndexRole {
  const char* kind;
  const char* operand;
};
constexpr IndexRole kIndexRoles[] = {
    {"gather", "index"},
    {"scatter", "index"},
    {"index", "indices"},
    {"index_put", "indices"},
    {"index_select", "index"},
    {"index_update", "index"},
    {"take", "index"},
    {"put", "index"},
    {"embedding_grad", "indices"},
    {"embedding_bag", "indices"},
    {"embedding_renorm", "indices"},
    {"nll", "target"},
};

// An index out of range is an error, at once or when the stream is waited for;
// nothing outside the operands is written, and the stream goes on.
class IndexErrorTest : public testing::Test {
 public:
  explicit IndexErrorTest(const IndexRole& role) : role_(role) {}

  void TestBody() override {
    const npu_kind_info& kind = *npu_kind_of(npu_kind_find(role_.kind));
    npu_op_caps caps;
    NPU_NEEDS_KIND(kind.slot, 0);
    declares(kind.slot, 0, &caps);
    int tested = 0;
    for (std::uint64_t seed = 1; seed < 40 && tested < 6; ++seed) {
      Case value;
      if (!draw_case(kind, 0, caps, NPU_F32, seed, value)) {
        continue;
      }
      Case bad = value;
      const std::int64_t wrong[] = {1000, -1000, INT32_MAX, INT32_MIN};
      if (!put_index(bad, wrong[seed % 4])) {
        continue;
      }
      const Outcome outcome = run_case(subject(), bad);
      if (outcome.declined) {
        continue;
      }
      ++tested;
      EXPECT_TRUE(outcome.queued != NPU_OK || outcome.done != NPU_OK)
          << bad.text() << ": index " << wrong[seed % 4] << " is no error";
      EXPECT_EQ(outcome.broken, "") << bad.text();
      const Outcome after = run_case(subject(), value);
      EXPECT_TRUE(after.ok() || after.declined)
          << value.text()
          << ": no longer works after an error: " << after.reason
          << after.broken;
    }
    EXPECT_GT(tested, 0);
  }

 private:
  bool put_index(Case& value, std::int64_t index) const {
    const auto put = [&](Operand& operand) {
      if (std::string(operand.info->name) != role_.operand ||
          operand.values.empty()) {
        return false;
      }
      operand.values.back().integer = index;  // stored last, where expanded
      return true;
    };
    for (Operand& operand : value.operands) {
      if (operand.present() && put(operand)) {
        return true;
      }
    }
    for (auto& list : value.lists) {
      for (Operand& operand : list) {
        if (operand.present() && put(operand)) {
          return true;
        }
      }
    }
    return false;
  }

  IndexRole role_;
};

}  // namespace

KitOptions& options() {
  static KitOptions value;
  return value;
}

const KindResult& kind_result(const char* kind) {
  return results()[kind];
}

void register_kind_tests() {
  const auto add = [](const char* suite, const char* name, auto make) {
    testing::RegisterTest(
        suite, name, nullptr, nullptr, __FILE__, __LINE__, make);
  };
  for (std::uint32_t i = 0; i < NPU_KIND_COUNT; ++i) {
    const npu_kind_info* kind = npu_kind_at(i);
    add("kind", kind->name, [kind]() -> testing::Test* {
      return new KindTest(*kind);
    });
  }
  for (const IndexRole& role : kIndexRoles) {
    add("index_errors", role.kind, [&role]() -> testing::Test* {
      return new IndexErrorTest(role);
    });
  }
}

}  // namespace npu::kit
