// What a rotary embedding is given, on any device: raw pointers and 64-bit strides, no torch types.
#pragma once

#include <cstdint>

namespace astrai {

// Rotates the first 2 * num_pairs of head_dim elements; the rest is copied. Pair t is (t, t + num_pairs) in the half
// layout and (2t, 2t + 1) in the interleaved one. Strides count elements.
template <typename Element>
struct RotaryParams {
  const Element* x;  // [num_tokens, num_heads, head_dim], last axis dense
  int64_t token_stride, head_stride;
  Element* out;  // the same shape, dense
  const float *cos, *sin;  // [rows, num_pairs], dense
  const int64_t* positions;  // [num_tokens], the table row of each token; null: token i takes row i
  int64_t num_tokens, num_heads, head_dim, num_pairs;
  bool interleaved;
};

}  // namespace astrai
