// Rotary position embedding on a CPU. Element is float or c10::BFloat16; the rotation is float32, rounded once.
#pragma once

#include "../common/rotary_params.h"

namespace astrai::cpu {

template <typename Element>
void rotary(const RotaryParams<Element>& params);

}  // namespace astrai::cpu
