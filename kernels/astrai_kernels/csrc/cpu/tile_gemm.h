// A product of small tiles that lie in cache: C [+]= A B, all float32, on ATen's portable vectors.
//
// A block of kBlockRows x kBlockVectors accumulators stays in registers: 24 of AVX-512's and NEON's 32, 12 of AVX2's 16.
// B is read in whole vectors, so its rows are padded to kWidth; A is broadcast element by element and needs no packing.
#pragma once

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cstdint>

namespace astrai::cpu {

using Vec = at::vec::Vectorized<float>;

constexpr int64_t kWidth = Vec::size();
constexpr int kBlockRows = 6;
constexpr int kBlockVectors = kWidth == 8 ? 2 : 4;
constexpr int64_t kPanel = kBlockVectors * kWidth;  // columns of one pass over B

constexpr int64_t padded(int64_t columns) {
  return (columns + kWidth - 1) / kWidth * kWidth;
}

// A [rows, depth], B [depth, columns], C [rows, columns], row-major with row lengths lda, ldb, ldc.
struct TileProduct {
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
};

template <int Rows, int Vectors>
inline void multiply_block(const TileProduct& tile, int64_t depth, bool accumulate) {
  Vec sums[Rows][Vectors];
  for (int row = 0; row < Rows; ++row) {
    for (int v = 0; v < Vectors; ++v) {
      sums[row][v] = accumulate ? Vec::loadu(tile.c + row * tile.ldc + v * kWidth) : Vec(0.0f);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec line[Vectors];
    for (int v = 0; v < Vectors; ++v) {
      line[v] = Vec::loadu(tile.b + k * tile.ldb + v * kWidth);
    }
    for (int row = 0; row < Rows; ++row) {
      const Vec value(tile.a[row * tile.lda + k]);
      for (int v = 0; v < Vectors; ++v) {
        sums[row][v] = at::vec::fmadd(value, line[v], sums[row][v]);
      }
    }
  }
  for (int row = 0; row < Rows; ++row) {
    for (int v = 0; v < Vectors; ++v) {
      sums[row][v].store(tile.c + row * tile.ldc + v * kWidth);
    }
  }
}

template <int Rows>
inline void multiply_rows(const TileProduct& tile, int vectors, int64_t depth, bool accumulate) {
  switch (vectors) {
    case 1:
      return multiply_block<Rows, 1>(tile, depth, accumulate);
    case 2:
      return multiply_block<Rows, 2>(tile, depth, accumulate);
    case 3:
      return multiply_block<Rows, 3>(tile, depth, accumulate);
    default:
      return multiply_block<Rows, kBlockVectors>(tile, depth, accumulate);
  }
}

// One register block: rows <= kBlockRows, vectors <= kBlockVectors.
inline void multiply(const TileProduct& tile, int rows, int vectors, int64_t depth, bool accumulate) {
  switch (rows) {
    case 1:
      return multiply_rows<1>(tile, vectors, depth, accumulate);
    case 2:
      return multiply_rows<2>(tile, vectors, depth, accumulate);
    case 3:
      return multiply_rows<3>(tile, vectors, depth, accumulate);
    case 4:
      return multiply_rows<4>(tile, vectors, depth, accumulate);
    case 5:
      return multiply_rows<5>(tile, vectors, depth, accumulate);
    default:
      return multiply_rows<kBlockRows>(tile, vectors, depth, accumulate);
  }
}

}  // namespace astrai::cpu
