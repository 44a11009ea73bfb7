// One pass over x: the loops below hold no branch on data, and the compiler makes vectors of them.
#include "rotary.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include <algorithm>

namespace astrai::cpu {
namespace {

constexpr int64_t kElementsPerThread = 32768;

template <typename Element>
void rotate_half(const Element* __restrict x, const float* cos, const float* sin, int64_t pairs, Element* __restrict out) {
  for (int64_t t = 0; t < pairs; ++t) {
    const auto a = static_cast<float>(x[t]), b = static_cast<float>(x[t + pairs]);
    out[t] = static_cast<Element>(a * cos[t] - b * sin[t]);
    out[t + pairs] = static_cast<Element>(b * cos[t] + a * sin[t]);
  }
}

template <typename Element>
void rotate_interleaved(
    const Element* __restrict x, const float* cos, const float* sin, int64_t pairs, Element* __restrict out) {
  for (int64_t t = 0; t < pairs; ++t) {
    const auto a = static_cast<float>(x[2 * t]), b = static_cast<float>(x[2 * t + 1]);
    out[2 * t] = static_cast<Element>(a * cos[t] - b * sin[t]);
    out[2 * t + 1] = static_cast<Element>(b * cos[t] + a * sin[t]);
  }
}

}  // namespace

template <typename Element>
void rotary(const RotaryParams<Element>& p) {
  const int64_t row = std::max<int64_t>(1, p.num_heads * p.head_dim);
  at::parallel_for(0, p.num_tokens, std::max<int64_t>(1, kElementsPerThread / row), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t place = (p.positions ? p.positions[token] : token) * p.num_pairs;
      for (int64_t head = 0; head < p.num_heads; ++head) {
        const Element* x = p.x + token * p.token_stride + head * p.head_stride;
        Element* out = p.out + (token * p.num_heads + head) * p.head_dim;
        auto* rotate = p.interleaved ? rotate_interleaved<Element> : rotate_half<Element>;
        rotate(x, p.cos + place, p.sin + place, p.num_pairs, out);
        std::copy(x + 2 * p.num_pairs, x + p.head_dim, out + 2 * p.num_pairs);
      }
    }
  });
}

template void rotary<float>(const RotaryParams<float>&);
template void rotary<c10::BFloat16>(const RotaryParams<c10::BFloat16>&);

}  // namespace astrai::cpu
