// SPDX-License-Identifier: Apache-2.0
// Attention by its definition.
#include "judge/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace optools {
namespace {

using c10::ScalarType;
using Values = std::vector<c10::IValue>;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// What a kernel may do to numbers between its two products.
struct HalfSteps {
  // Unit roundoff P and dS are rounded with before the second product: that of
  // the arguments where they are half precision, else none.
  double roundoff = 0;
  double smallest = 0;  // and half the smallest number of that dtype
  // Relative error of exp: kernels for half precision use one that is no
  // better than P after rounding needs, and logsumexp shows it.
  double exponential = 0;
};

struct Attention {
  at::Tensor query, key, value;     // batch, heads, time, width
  at::Tensor bias;                  // four dimensions, any of them 1
  at::Tensor grad, out, logsumexp;  // of a backward call
  bool causal = false;
  double scale = 0;
  double dropout = 0;
  int64_t first_row = 0;  // of `query` within the whole call
  HalfSteps half;

  // A mask multiplies by 0 or 1 / (1 - dropout): its middle, which is also how
  // far it goes to either side.
  double kept() const {
    return dropout == 0 ? 1 : dropout < 1 ? 0.5 / (1 - dropout) : 0;
  }
};

void take(Attention& a, const std::string& name, const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor t = value.toTensor();
    if (name == "query") {
      a.query = t;
    } else if (name == "key") {
      a.key = t;
    } else if (name == "value") {
      a.value = t;
    } else if (name == "attn_mask" || name == "attn_bias") {
      a.bias = t;
    } else if (name == "grad_out" || name == "grad_out_") {
      a.grad = t;
    } else if (name == "out") {
      a.out = t;
    } else if (name == "logsumexp") {
      a.logsumexp = t;
    }
  } else if (name == "is_causal" && value.isBool()) {
    a.causal = value.toBool();
  } else if (name == "scale" && value.isDouble()) {
    a.scale = value.toDouble();
  } else if (name == "dropout_p" && value.isDouble()) {
    a.dropout = value.toDouble();
  }
}

bool known_form(const Attention& a) {
  return a.query.defined() && a.key.defined() && a.value.defined() &&
         a.query.dim() == 4 && a.key.dim() == 4 && a.value.dim() == 4 &&
         a.key.size(1) > 0 && a.query.size(1) % a.key.size(1) == 0 &&
         a.key.size(1) == a.value.size(1) && a.key.size(2) == a.value.size(2) &&
         (!a.bias.defined() || a.bias.dim() <= 4);
}

// Majorants need few digits: float32 is half the work.
at::Tensor rough(const at::Tensor& t) {
  return t.to(ScalarType::Float).abs();
}

at::Tensor turned(const at::Tensor& t) {
  return t.transpose(-2, -1);
}

// A bound as a majorant of float32 sums, whose allowance is 8 u M.
double as_terms(double bound) {
  return bound / (8 * accumulator_roundoff(ScalarType::Float));
}

// Both ends of what a mask may give, rounded as results there are.
double reach(const HalfSteps& half) {
  return as_terms(1 + 8 * std::max(half.roundoff, 0x1p-22));
}

// What rounding the elements to half precision adds to their terms.
at::Tensor half_terms(const at::Tensor& elements, const HalfSteps& half) {
  return elements.mul(as_terms(half.roundoff)).add_(as_terms(half.smallest));
}

struct Scores {
  at::Tensor s;      // masked: minus infinity
  at::Tensor terms;  // how large what was summed into them was
};

Scores scores(const Attention& a) {
  Scores found;
  found.s = a.query.matmul(turned(a.key)).mul_(a.scale);
  found.terms =
      rough(a.query).matmul(turned(rough(a.key))).mul(std::fabs(a.scale));
  if (a.bias.defined()) {
    if (a.bias.scalar_type() == ScalarType::Bool) {
      found.s = found.s.masked_fill(a.bias.logical_not(), -kInfinite);
    } else {
      found.s = found.s.add(a.bias);
      found.terms = found.terms.add(rough(a.bias).nan_to_num(0.0, 0.0, 0.0));
    }
  }
  if (a.causal) {
    const at::Tensor seen =
        at::ones({found.s.size(-2), found.s.size(-1)}, at::kBool)
            .tril(a.first_row);
    found.s = found.s.masked_fill(seen.logical_not(), -kInfinite);
  }
  return found;
}

// exp(s - sum), and 0 in rows that may see nothing.
at::Tensor shares_of(const at::Tensor& s, const at::Tensor& sum) {
  return s.sub(sum).exp_().masked_fill_(s.eq(-kInfinite), 0.0);
}

AttentionAnswer forward(const Attention& a) {
  const Scores all = scores(a);
  const at::Tensor sum = at::logsumexp(all.s, {-1});
  const at::Tensor p = shares_of(all.s, sum.unsqueeze(-1));
  const at::Tensor shares = rough(p);
  const at::Tensor moves = shares.mul(all.terms).sum(-1, true);
  at::Tensor terms = all.terms.add(moves).add_(1).mul_(shares);
  if (a.half.roundoff != 0) {
    terms.add_(half_terms(shares, a.half));
  }
  if (a.dropout != 0) {
    terms.add_(shares, reach(a.half)).mul_(a.kept());
  }
  const at::Tensor sum_terms =
      rough(sum).add_(moves.squeeze(-1)).add_(as_terms(a.half.exponential));
  return {
      {p.matmul(a.value).mul_(a.kept()), sum},
      {terms.matmul(rough(a.value)), sum_terms}};
}

AttentionAnswer backward(const Attention& a) {
  const Scores all = scores(a);
  const at::Tensor sum = a.logsumexp.unsqueeze(-1);
  const at::Tensor p = shares_of(all.s, sum);
  const at::Tensor along = a.grad.mul(a.out).sum(-1, true);
  const at::Tensor through = a.grad.matmul(turned(a.value)).mul_(a.kept());
  const at::Tensor ds = through.sub(along).mul_(p).mul_(a.scale);
  const at::Tensor grad = rough(a.grad);
  const at::Tensor shares = rough(p);
  at::Tensor terms =
      all.terms.add(rough(sum).nan_to_num_(0.0, 0.0, 0.0)).add_(1).mul_(shares);
  const at::Tensor whole = grad.mul(rough(a.out)).sum(-1, true);
  at::Tensor ds_terms = grad.matmul(turned(rough(a.value)))
                            .mul_(a.kept())
                            .add_(whole)
                            .mul_(terms)
                            .mul_(std::fabs(a.scale));
  if (a.half.roundoff != 0) {
    terms.add_(half_terms(shares, a.half));
    ds_terms.add_(half_terms(rough(ds), a.half));
  }
  if (a.dropout != 0) {
    terms.add_(shares, reach(a.half)).mul_(a.kept());
    ds_terms.add_(
        rough(through).mul_(shares), reach(a.half) * std::fabs(a.scale));
  }
  return {
      {ds.matmul(a.key),
       turned(ds).matmul(a.query),
       turned(p).matmul(a.grad).mul_(a.kept())},
      {ds_terms.matmul(rough(a.key)),
       turned(ds_terms).matmul(rough(a.query)),
       turned(terms).matmul(grad)}};
}

// ---- slices
// ------------------------------------------------------------------

// So many scores at a time stay in the cache, with what is made of them; a
// head with more than kMostScores is cut into rows.
constexpr int64_t kScores = 1 << 15;
constexpr int64_t kMostScores = 1 << 20;

struct Slice {
  int64_t batch, head, heads, row, rows;
};

at::Tensor narrowed(const at::Tensor& t, int64_t dim, int64_t at, int64_t n) {
  return t.size(dim) > 1 ? t.narrow(dim, at, n) : t;
}

Attention part_of(const Attention& a, const Slice& s) {
  Attention part = a;
  part.first_row = s.row;
  for (auto* t :
       {&part.query,
        &part.key,
        &part.value,
        &part.bias,
        &part.grad,
        &part.out,
        &part.logsumexp}) {
    if (t->defined()) {
      *t = narrowed(narrowed(*t, 0, s.batch, 1), 1, s.head, s.heads);
    }
  }
  for (auto* t :
       {&part.query, &part.bias, &part.grad, &part.out, &part.logsumexp}) {
    if (t->defined()) {
      *t = narrowed(*t, 2, s.row, s.rows);
    }
  }
  return part;
}

// Whether a result has a row for each of the query's; the gradients of keys
// and values sum over them.
bool by_row(const Attention& a, size_t result) {
  return !a.grad.defined() || result == 0;
}

void add_slice(
    Values& whole, const Values& parts, const Attention& a, const Slice& s) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& part = parts[i].toTensor();
    if (whole.size() <= i) {
      auto sizes = part.sizes().vec();
      sizes[0] = a.query.size(0);
      sizes[1] = a.query.size(1);
      if (by_row(a, i)) {
        sizes[2] = a.query.size(2);
      }
      whole.emplace_back(at::zeros(sizes, part.options()));
    }
    at::Tensor place =
        whole[i].toTensor().narrow(0, s.batch, 1).narrow(1, s.head, s.heads);
    if (by_row(a, i)) {
      place = place.narrow(2, s.row, s.rows);
    }
    place.add_(part);
  }
}

AttentionAnswer by_slices(
    const Attention& a, AttentionAnswer (*answer)(const Attention&)) {
  const int64_t batches = a.query.size(0);
  const int64_t heads = a.query.size(1);
  const int64_t rows = a.query.size(2);
  const int64_t columns = std::max<int64_t>(a.key.size(2), 1);
  const int64_t scores = std::max<int64_t>(rows * columns, 1);
  const int64_t step = std::max<int64_t>(1, kScores / scores);
  if (batches * heads <= step) {
    return answer(a);
  }
  const int64_t lines = scores <= kMostScores
                            ? std::max<int64_t>(rows, 1)
                            : std::max<int64_t>(1, kMostScores / columns);
  AttentionAnswer whole;
  for (int64_t batch = 0; batch < batches; ++batch) {
    for (int64_t head = 0; head < heads; head += step) {
      for (int64_t row = 0; row < std::max<int64_t>(rows, 1); row += lines) {
        const Slice slice{
            batch,
            head,
            std::min(step, heads - head),
            row,
            std::min(lines, rows - row)};
        const AttentionAnswer found = answer(part_of(a, slice));
        add_slice(whole.results, found.results, a, slice);
        add_slice(whole.majorants, found.majorants, a, slice);
      }
    }
  }
  return whole;
}

// ---- grouped heads
// -----------------------------------------------------------

// Each head of keys and values serves several of queries.
int64_t spread_groups(Attention& a) {
  const int64_t group = a.query.size(1) / a.key.size(1);
  if (group != 1) {
    a.key = a.key.repeat_interleave(group, 1);
    a.value = a.value.repeat_interleave(group, 1);
  }
  return group;
}

at::Tensor sum_of_group(const at::Tensor& t, int64_t group) {
  return t.unflatten(1, {t.size(1) / group, group}).sum(2);
}

// Gradients of a shared head are the sum of its queries'. A kernel may round
// each of them before that sum.
void gather_groups(
    AttentionAnswer& found, int64_t group, const HalfSteps& half) {
  for (size_t i = 1; i < found.results.size(); ++i) {
    at::Tensor terms = found.majorants[i].toTensor();
    const at::Tensor each = found.results[i].toTensor();
    if (half.roundoff != 0) {
      terms = terms.add(half_terms(rough(each), half));
    }
    found.results[i] = sum_of_group(each, group);
    found.majorants[i] = sum_of_group(terms, group);
  }
}

// ---- what the call has that the definition does not say
// ----------------------

HalfSteps half_steps(const HostCall& call) {
  HalfSteps half;
  const auto& arguments = call.op->handle.schema().arguments();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (arguments[i].name() != "query" || !call.inputs[i].isTensor()) {
      continue;
    }
    const auto dtype = call.inputs[i].toTensor().scalar_type();
    if (dtype == ScalarType::Half || dtype == ScalarType::BFloat16) {
      half.roundoff = unit_roundoff(dtype);
      half.smallest = dtype == ScalarType::Half ? 0x1p-25 : 0;
      half.exponential = 0x1p-13;
    }
  }
  return half;
}

const at::Tensor* result_at(const HostCall& call, size_t position) {
  for (const auto& result : call.results) {
    if (result.output && result.position == position) {
      return &result.got;
    }
  }
  return nullptr;
}

// Some kernels pad logsumexp, or leave it out; and of a row that may see
// nothing each has a value of its own.
void adapt_logsumexp(const HostCall& call, AttentionAnswer& found) {
  const at::Tensor* got = result_at(call, 1);
  const at::Tensor sum = found.results[1].toTensor();
  if (got == nullptr) {
    return;
  }
  const std::string name = base_name(*call.op);
  if (got->dim() == 4 && got->size(-1) == 1 && sum.dim() == 3) {  // cuDNN's
    found.results[1] = sum.unsqueeze(-1);
    found.majorants[1] = found.majorants[1].toTensor().unsqueeze(-1);
  }
  if (got->sizes() != found.results[1].toTensor().sizes()) {
    if (name.find("efficient") != std::string::npos ||
        name.find("cudnn") != std::string::npos) {
      found.results.pop_back();
      found.majorants.pop_back();
    }
    return;
  }
  const at::Tensor fitting = found.results[1].toTensor();
  found.results[1] =
      at::where(fitting.eq(-kInfinite), got->to(ScalarType::Double), fitting);
}

Attention attention_of(const HostCall& call, const Values& inputs) {
  Attention a;
  const auto& arguments = call.op->handle.schema().arguments();
  for (size_t i = 0; i < inputs.size(); ++i) {
    take(a, arguments[i].name(), inputs[i]);
  }
  a.half = half_steps(call);
  if (a.scale == 0 && a.query.defined() && a.query.dim() == 4) {
    a.scale = 1 / std::sqrt(static_cast<double>(a.query.size(-1)));
  }
  if (a.logsumexp.defined() && a.logsumexp.dim() == 4 &&
      a.logsumexp.size(-1) == 1) {
    a.logsumexp = a.logsumexp.squeeze(-1);  // cuDNN's has a column
  }
  while (a.bias.defined() && a.bias.dim() < 4) {
    a.bias = a.bias.unsqueeze(0);
  }
  return a;
}

}  // namespace

std::optional<AttentionAnswer> attention_answer(
    const HostCall& call, const Values& inputs) {
  Attention a = attention_of(call, inputs);
  if (!known_form(a)) {
    return std::nullopt;
  }
  const int64_t group = spread_groups(a);
  if (!a.grad.defined()) {
    AttentionAnswer found = by_slices(a, &forward);
    adapt_logsumexp(call, found);
    return found;
  }
  if (!a.out.defined() || !a.logsumexp.defined() || a.logsumexp.dim() != 3 ||
      a.logsumexp.size(-1) != a.query.size(-2)) {
    return std::nullopt;
  }
  AttentionAnswer found = by_slices(a, &backward);
  if (group != 1) {
    gather_groups(found, group, a.half);
  }
  return found;
}

std::optional<Values> attention_on_host(
    const Operator& op, const Values& inputs) {
  const std::string name = base_name(op);
  if (name.find("overrideable") == std::string::npos) {
    return std::nullopt;
  }
  const bool back = name.find("backward") != std::string::npos;
  const auto own = c10::Dispatcher::singleton().findSchema(
      {std::string("aten::_scaled_dot_product_flash_attention_for_cpu") +
           (back ? "_backward" : ""),
       ""});
  if (!own) {
    return std::nullopt;
  }
  const auto& mine = op.handle.schema().arguments();
  torch::jit::Stack stack;
  for (const auto& wanted : own->schema().arguments()) {
    const auto at = std::find_if(mine.begin(), mine.end(), [&](const auto& m) {
      return m.name() == wanted.name() ||
             (m.name() == "attn_bias" && wanted.name() == "attn_mask");
    });
    if (at == mine.end()) {
      return std::nullopt;
    }
    c10::IValue value = inputs[at - mine.begin()];
    if (wanted.name() == "dropout_p" && value.toDouble() != 0) {
      return std::nullopt;  // the CPU's kernel draws nothing
    }
    const bool absent = value.isTensor() && !value.toTensor().defined();
    stack.push_back(absent ? c10::IValue() : std::move(value));
  }
  own->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return Values{stack.begin(), stack.end()};
}

}  // namespace optools
