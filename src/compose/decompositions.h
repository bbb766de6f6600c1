// SPDX-License-Identifier: Apache-2.0
// The decompositions, by kind.
#pragma once

#include "compose/builder.h"

namespace npu::compose {

void flip(Builder& build);
void roll(Builder& build);
void isin(Builder& build);
void rms_norm(Builder& build);
void rms_norm_grad(Builder& build);
void add_rms_norm(Builder& build);
void add_rms_norm_grad(Builder& build);
void weight_norm(Builder& build);
void weight_norm_grad(Builder& build);
void loss(Builder& build);
void loss_grad(Builder& build);
void cross_entropy(Builder& build);
void cross_entropy_grad(Builder& build);
void margin(Builder& build);
void margin_grad(Builder& build);
void attention(Builder& build);
void attention_grad(Builder& build);
void paged_attention(Builder& build);
void rotary(Builder& build);
void rotary_grad(Builder& build);
void swiglu(Builder& build);
void swiglu_grad(Builder& build);
void quantise(Builder& build);
void dequantise(Builder& build);
void moe_gating(Builder& build);
void moe_route(Builder& build);
void program(Builder& build);
void multi_program(Builder& build);

}  // namespace npu::compose
