// Variable-length attention, forward, on a CPU. Element is float or c10::BFloat16; sums are float32.
#pragma once

#include "../common/attention_params.h"

namespace astrai::cpu {

// Fills params.out. The result does not depend on the number of threads, nor a segment's on any other segment.
template <typename Element>
void attention_varlen(const AttentionParams<Element>& params);

}  // namespace astrai::cpu
