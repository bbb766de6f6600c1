// SPDX-License-Identifier: Apache-2.0
// Attention by its definition.
#include "judge/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace optools {
namespace {

using Values = std::vector<c10::IValue>;

struct Attention {
  at::Tensor query, key, value;  // batch, heads, time, width
  at::Tensor bias;
  at::Tensor grad, out, logsumexp;  // of a backward call
  bool causal = false;
  double scale = 0;
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
  }
}

bool known_form(const Attention& a) {
  return a.query.defined() && a.key.defined() && a.value.defined() &&
         a.query.dim() == 4 && a.key.dim() == 4 && a.value.dim() == 4 &&
         a.query.size(1) == a.key.size(1) && a.query.size(1) == a.value.size(1);
}

// Majorants need few digits: float32 is half the work.
at::Tensor rough(const at::Tensor& t) {
  return t.to(c10::ScalarType::Float).abs();
}

at::Tensor turned(const at::Tensor& t) {
  return t.transpose(-2, -1);
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
    if (a.bias.scalar_type() == c10::ScalarType::Bool) {
      found.s = found.s.masked_fill(
          a.bias.logical_not(), -std::numeric_limits<double>::infinity());
    } else {
      found.s = found.s.add(a.bias);
      found.terms = found.terms.add(rough(a.bias).nan_to_num(0.0, 0.0, 0.0));
    }
  }
  if (a.causal) {
    const at::Tensor seen =
        at::ones({found.s.size(-2), found.s.size(-1)}, at::kBool).tril();
    found.s = found.s.masked_fill(
        seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  return found;
}

AttentionAnswer forward(const Attention& a) {
  const Scores all = scores(a);
  const at::Tensor sum = at::logsumexp(all.s, {-1});
  const at::Tensor p = all.s.sub(sum.unsqueeze(-1)).exp_();
  const at::Tensor shares = rough(p);
  const at::Tensor moves = shares.mul(all.terms).sum(-1, true);
  const at::Tensor terms = all.terms.add(moves).add_(1).mul_(shares);
  return {
      {p.matmul(a.value), sum},
      {terms.matmul(rough(a.value)), rough(sum).add_(moves.squeeze(-1))}};
}

AttentionAnswer backward(const Attention& a) {
  const Scores all = scores(a);
  const at::Tensor sum = a.logsumexp.unsqueeze(-1);
  const at::Tensor p = all.s.sub(sum).exp_();
  const at::Tensor along = a.grad.mul(a.out).sum(-1, true);
  const at::Tensor ds =
      a.grad.matmul(turned(a.value)).sub_(along).mul_(p).mul_(a.scale);
  const at::Tensor grad = rough(a.grad);
  const at::Tensor terms = all.terms.add(rough(sum)).add_(1).mul_(rough(p));
  const at::Tensor whole = grad.mul(rough(a.out)).sum(-1, true);
  const at::Tensor ds_terms = grad.matmul(turned(rough(a.value)))
                                  .add_(whole)
                                  .mul_(terms)
                                  .mul_(std::fabs(a.scale));
  return {
      {ds.matmul(a.key), turned(ds).matmul(a.query), turned(p).matmul(a.grad)},
      {ds_terms.matmul(rough(a.key)),
       turned(ds_terms).matmul(rough(a.query)),
       turned(terms).matmul(grad)}};
}

// So many scores at a time stay in the cache, with what is made of them.
constexpr int64_t kScores = 1 << 15;

// A bias that is one for all of them stays whole.
at::Tensor slice(const at::Tensor& t, int64_t batch, int64_t head, int64_t n) {
  at::Tensor part = t;
  if (t.defined()) {
    part = part.size(0) > 1 ? part.narrow(0, batch, 1) : part;
    part = part.size(1) > 1 ? part.narrow(1, head, n) : part;
  }
  return part;
}

void put_slice(
    Values& whole,
    const Values& parts,
    const Attention& a,
    int64_t batch,
    int64_t head) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor& part = parts[i].toTensor();
    if (whole.size() <= i) {
      auto sizes = part.sizes().vec();
      sizes[0] = a.query.size(0);
      sizes[1] = a.query.size(1);
      whole.emplace_back(at::empty(sizes, part.options()));
    }
    whole[i]
        .toTensor()
        .narrow(0, batch, 1)
        .narrow(1, head, part.size(1))
        .copy_(part);
  }
}

AttentionAnswer by_slices(
    const Attention& a, AttentionAnswer (*answer)(const Attention&)) {
  const int64_t batches = a.query.size(0);
  const int64_t heads = a.query.size(1);
  const int64_t scores = a.query.size(2) * a.key.size(2);
  const int64_t step =
      std::max<int64_t>(1, kScores / std::max<int64_t>(scores, 1));
  if (batches * heads <= step || (a.bias.defined() && a.bias.dim() != 4)) {
    return answer(a);
  }
  AttentionAnswer whole;
  for (int64_t batch = 0; batch < batches; ++batch) {
    for (int64_t head = 0; head < heads; head += step) {
      const int64_t n = std::min(step, heads - head);
      Attention part = a;
      for (auto* t :
           {&part.query,
            &part.key,
            &part.value,
            &part.bias,
            &part.grad,
            &part.out,
            &part.logsumexp}) {
        *t = slice(*t, batch, head, n);
      }
      const AttentionAnswer found = answer(part);
      put_slice(whole.results, found.results, a, batch, head);
      put_slice(whole.majorants, found.majorants, a, batch, head);
    }
  }
  return whole;
}

}  // namespace

std::optional<AttentionAnswer> attention_answer(
    const HostCall& call, const Values& inputs) {
  Attention a;
  const auto& arguments = call.op->handle.schema().arguments();
  for (size_t i = 0; i < inputs.size(); ++i) {
    take(a, arguments[i].name(), inputs[i]);
  }
  if (!known_form(a)) {
    return std::nullopt;
  }
  if (a.scale == 0) {
    a.scale = 1 / std::sqrt(static_cast<double>(a.query.size(-1)));
  }
  if (!a.grad.defined()) {
    return by_slices(a, &forward);
  }
  if (!a.out.defined() || !a.logsumexp.defined() || a.logsumexp.dim() != 3 ||
      a.logsumexp.size(-1) != a.query.size(-2)) {
    return std::nullopt;
  }
  return by_slices(a, &backward);
}

}  // namespace optools
