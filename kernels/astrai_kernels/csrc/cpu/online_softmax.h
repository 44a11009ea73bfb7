// Softmax of a row that arrives tile by tile, in float32 (Milakov and Gimelshein 2018, "Online normalizer calculation
// for softmax").
#pragma once

#include "tile_gemm.h"

#include <cmath>
#include <limits>

namespace astrai::cpu {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The running maximum of a row and the sum of exp(score - maximum) so far.
struct RowState {
  float maximum = kMinusInfinity;
  float sum = 0.0f;
};

inline float reduce_max(const float* scores, int64_t count) {
  Vec largest(kMinusInfinity);
  for (int64_t i = 0; i < count; i += kWidth) {
    largest = at::vec::maximum(largest, Vec::loadu(scores + i));
  }
  return at::vec::vec_reduce_all<float>([](Vec a, Vec b) { return at::vec::maximum(a, b); }, largest);
}

// scores[i] = exp(scores[i] - maximum), and their sum. ATen's exp_u20 is right to 20 units in the last place.
inline float exponentiate(float* scores, int64_t count, float maximum) {
  Vec total(0.0f);
  const Vec shift(maximum);
  for (int64_t i = 0; i < count; i += kWidth) {
    const Vec weight = (Vec::loadu(scores + i) - shift).exp_u20();
    weight.store(scores + i);
    total = total + weight;
  }
  return at::vec::vec_reduce_all<float>([](Vec a, Vec b) { return a + b; }, total);
}

// Turns `visible` scores of one tile into weights and adds them to `state`. Scores from `visible` to `columns` become
// weight 0; `columns` <= the room behind `scores`, which is a multiple of kWidth. Returns the factor for what the row
// has summed up before. A row that has seen only -infinity keeps sum 0.
inline float absorb_tile(float* scores, int64_t visible, int64_t columns, RowState& state) {
  std::fill(scores + visible, scores + padded(visible), kMinusInfinity);
  const float maximum = std::max(state.maximum, reduce_max(scores, visible));
  const float shift = maximum == kMinusInfinity ? 0.0f : maximum;
  const float factor = maximum == state.maximum ? 1.0f : std::exp(state.maximum - shift);
  state.sum = state.sum * factor + exponentiate(scores, visible, shift);
  state.maximum = maximum;
  if (padded(visible) < columns) {
    std::fill(scores + padded(visible), scores + columns, 0.0f);
  }
  return factor;
}

}  // namespace astrai::cpu
