// SPDX-License-Identifier: Apache-2.0
// Random kinds of the host driver: what each attribute means, which words of
// the Philox stream each element uses, and the kernels' entry points.
//
// This comment is the executable part of "Random numbers" in the contract: a
// driver that follows it draws the same numbers. W(j) is word j mod 4 of the
// Philox block with low counter B + j/4 and high counter 0; B = offset / 4.
// n = numel of the output; the host side moves its generator by `words`,
// rounded up to a multiple of 4.
//
// kind random
// code         a       b      low  range  p       q      words
// uniform      from    to     -    -      -       -      n (f64: 2n)
// normal       mean    std    -    -      -       -      n (f64: 2n)
// bernoulli    prob    -      -    -      prob    -      n
// int          -       -      low  range  -       -      n (wide: 2n)
// exponential  lambda  -      -    -      -       -      n (f64: 2n)
// geometric    prob    -      -    -      -       -      n (f64, ints: 2n)
// cauchy       median  sigma  -    -      -       -      n (f64: 2n)
// log_normal   mean    std    -    -      -       -      n (f64: 2n)
// poisson      lambda  -      -    -      lambda  -      1024
// gamma        alpha   -      -    -      alpha   -      1024
// binomial     count   prob   -    -      count   prob   1024
// kind randperm     n = numel of out                     2n
// kind multinomial  weights (R, C) or (C)                replacement: 2*R*samples
//                                                        else: 2*R*C
// kind dropout      p = chance to be dropped, scale      n
//
// Operands p and q are contiguous, with the sizes of out; when one is absent
// its attribute (first column of the pair) stands for every element. Their
// dtype is that of out, except for bernoulli, where it is any float dtype.
//
// The numbers, bit for bit. "Double word" i is W(2i) + 2^32 * W(2i+1).
// uniform      u = top 24 bits of W(i) * 2^-24; 11 bits for f16, 8 for bf16,
//              53 of the double word for f64. from and to are rounded to the
//              dtype; u * (to - from), then + from, each rounded, in f32 (f64
//              for f64), then rounded to the dtype; a result equal to `to`
//              becomes `from`.
// bernoulli    1 where W(i) < floor(prob * 2^32), else 0.
// int          value = low + floor(w * range / 2^32), w = W(i). Wide, when
//              range > 2^32 or 0 (which means 2^64): double words and 2^64.
//              Then the int64 (or, for u64, the same bits) becomes the dtype.
// normal       elements 2k and 2k+1 are r cos(t) and r sin(t), with
//              r = sqrt(-2 ln u1), t = 2 pi u2; u1 from W(2k), u2 from W(2k+1),
//              each w * 2^-32 + 2^-33 in f32. f64: double words 2k and 2k+1,
//              (top 53 bits) * 2^-53 + 2^-54. Then * std, then + mean.
// The next four are computed in f32 (f64 for f64; geometric also for ints)
// from u = top 24 (53) bits as in uniform f32 (f64), then rounded.
// exponential  max(-ln(1 - u), epsilon / 2) / lambda, never 0 unless lambda is
//              infinite: raised to the dtype's smallest positive number.
// geometric    max(1, ceil(ln(1 - u) / ln(1 - prob))); ints are clamped.
// cauchy       median + sigma * tan(pi * (u - 1/2 + 2^-25)); f64: 2^-54.
// log_normal   exp(normal(mean, std)).
// poisson, gamma, binomial: see random_reject.h; low = B + attempt, high =
//              i + 1, all in f64.
// randperm     the indices 0..n-1, stably sorted by their double words.
// multinomial  see random_choice.cpp.
// dropout      kept where W(i) >= floor(p * 2^32): out = in * scale, mask = 1;
//              else out = in * 0 (a NaN stays), mask = 0. mask may be absent.
#pragma once
