// SPDX-License-Identifier: Apache-2.0
// The decompositions, by kind.
#pragma once

#include "compose/builder.h"

namespace npu::compose {

void flip(Builder& build);
void roll(Builder& build);
void isin(Builder& build);
void weight_norm(Builder& build);
void weight_norm_grad(Builder& build);
void loss(Builder& build);
void loss_grad(Builder& build);
void margin(Builder& build);
void margin_grad(Builder& build);
void program(Builder& build);
void multi_program(Builder& build);

}  // namespace npu::compose
