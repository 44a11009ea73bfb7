// What variable-length attention is given, on any device: raw pointers and 64-bit strides, no torch types.
//
// A segment is tokens cu_seqlens[i] .. cu_seqlens[i+1] of the row; queries see the keys of their own segment only.
// Query head h reads key-value head h / (q_heads / kv_heads).
#pragma once

#include <cstdint>

namespace astrai {

// One of q, k, v: [tokens, heads, head_dim] with the last axis dense. Strides count elements, not bytes.
template <typename Element>
struct Heads {
  const Element* data;
  int64_t token_stride;
  int64_t head_stride;

  const Element* at(int64_t token, int64_t head) const {
    return data + token * token_stride + head * head_stride;
  }
};

template <typename Element>
struct AttentionParams {
  Heads<Element> q, k, v;
  Element* out;  // [num_tokens, q_heads, head_dim], dense
  const int32_t* cu_seqlens;  // [num_segments + 1]
  int64_t num_tokens, num_segments;
  int64_t q_heads, kv_heads, head_dim;
  float scale;
  bool causal;
};

}  // namespace astrai
