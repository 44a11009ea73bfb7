// Rows of a strided tensor, brought into float32 scratch tiles: as they are, scaled, or transposed.
#pragma once

#include "tile_gemm.h"

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace astrai::cpu {

// to[i] = from[i] * factor, then zeros up to padded(count).
template <typename Element>
inline void pack_row(const Element* from, int64_t count, float factor, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]) * factor;
  }
  std::fill(to + count, to + padded(count), 0.0f);
}

// to [rows, ld], each row one of `count` elements from `from`.
template <typename Element>
inline void pack_rows(const Element* from, int64_t stride, int64_t rows, int64_t count, float* to, int64_t ld) {
  for (int64_t row = 0; row < rows; ++row) {
    pack_row(from + row * stride, count, 1.0f, to + row * ld);
  }
}

// to [count, ld] = from [rows, count] turned over; columns rows .. padded(rows) of `to` become zeros.
inline void transpose(const float* from, int64_t stride, int64_t rows, int64_t count, float* to, int64_t ld) {
  const int64_t whole_rows = rows / kWidth * kWidth, whole_count = count / kWidth * kWidth;
  for (int64_t row = 0; row < whole_rows; row += kWidth) {
    for (int64_t i = 0; i < whole_count; i += kWidth) {
      at::vec::transpose_mxn<float, kWidth, kWidth>(from + row * stride + i, stride, to + i * ld + row, ld);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t row = i < whole_count ? whole_rows : 0; row < padded(rows); ++row) {
      to[i * ld + row] = row < rows ? from[row * stride + i] : 0.0f;
    }
  }
}

// The same for any element; `stage` is room for rows * count floats.
inline void pack_transposed(
    const float* from, int64_t stride, int64_t rows, int64_t count, float* to, int64_t ld, float*) {
  transpose(from, stride, rows, count, to, ld);
}

inline void pack_transposed(
    const c10::BFloat16* from, int64_t stride, int64_t rows, int64_t count, float* to, int64_t ld, float* stage) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < count; ++i) {
      stage[row * count + i] = static_cast<float>(from[row * stride + i]);
    }
  }
  transpose(stage, count, rows, count, to, ld);
}

}  // namespace astrai::cpu
