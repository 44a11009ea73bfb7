// Tiled attention with online softmax (Dao et al. 2022, FlashAttention, algorithm 1), one block of queries at a time.
//
// A task is (segment, key-value head, block of query positions). The query heads that share the key-value head are
// rows of the same tile, position by position, so one packed key or value tile serves them all and the rows a causal
// limit cuts off stand together: whole register blocks are skipped, not only whole tiles. With 4 heads to a group and
// kTileRows 96 a task has 24 positions; row 4 i + g is head g at position i.
#include "attention_varlen.h"

#include "online_softmax.h"
#include "pack.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <memory>
#include <vector>

namespace astrai::cpu {
namespace {

constexpr int64_t kTileRows = 96;  // a multiple of kBlockRows
constexpr int64_t kTileKeys = 128;  // a multiple of kPanel

struct Task {
  int64_t begin, length;  // the segment: first token, tokens
  int64_t first, count;  // the query positions inside it
  int64_t kv_head;
  int64_t keys;  // how many keys its last query sees
};

struct FreeAligned {
  void operator()(float* memory) const {
    std::free(memory);
  }
};

// Scratch of one thread, every part on a cache line.
class Scratch {
 public:
  Scratch(int64_t rows, int64_t head_dim)
      : depth(padded(head_dim)),
        queries(take(rows * depth)),
        sums(take(rows * depth)),
        scores(take(rows * kTileKeys)),
        keys(take(head_dim * kTileKeys)),
        values(take(kTileKeys * depth)),
        states(rows) {}

  const int64_t depth;

 private:
  using Block = std::unique_ptr<float, FreeAligned>;

  static Block take(int64_t count) {
    auto* memory = static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    return Block(memory);
  }

 public:
  const Block queries, sums, scores, keys, values;
  std::vector<RowState> states;
};

template <typename Element>
class Worker {
 public:
  explicit Worker(const AttentionParams<Element>& params)
      : p_(params),
        group_(params.q_heads / params.kv_heads),
        scratch_(std::max(kTileRows, group_), params.head_dim) {}

  void run(const Task& task) {
    rows_ = task.count * group_;
    load_queries(task);
    for (int64_t key = 0; key < task.keys; key += kTileKeys) {
      const int64_t count = std::min(kTileKeys, task.keys - key);
      const auto* k = p_.k.at(task.begin + key, task.kv_head);
      const auto* v = p_.v.at(task.begin + key, task.kv_head);
      pack_transposed(
          k, p_.k.token_stride, count, p_.head_dim, scratch_.keys.get(), kTileKeys, scratch_.values.get());
      pack_rows(v, p_.v.token_stride, count, p_.head_dim, scratch_.values.get(), scratch_.depth);
      score(task, key, count);
      weigh(task, key, count);
      sum_values(task, key, count);
    }
    store(task);
  }

 private:
  // Keys of the tile [key, key + count) that `row` may see.
  int64_t visible(const Task& task, int64_t row, int64_t key, int64_t count) const {
    if (!p_.causal) {
      return count;
    }
    return std::clamp<int64_t>(task.first + row / group_ + 1 - key, 0, count);
  }

  void load_queries(const Task& task) {
    for (int64_t row = 0; row < rows_; ++row) {
      const auto* q = p_.q.at(task.begin + task.first + row / group_, task.kv_head * group_ + row % group_);
      pack_row(q, p_.head_dim, p_.scale, scratch_.queries.get() + row * scratch_.depth);
    }
    std::fill_n(scratch_.sums.get(), rows_ * scratch_.depth, 0.0f);
    std::fill_n(scratch_.states.begin(), rows_, RowState());
  }

  void score(const Task& task, int64_t key, int64_t count) {
    for (int64_t column = 0; column < padded(count); column += kPanel) {
      const auto vectors = static_cast<int>(std::min(kPanel, padded(count) - column) / kWidth);
      for (int64_t row = 0; row < rows_; row += kBlockRows) {
        const auto block = static_cast<int>(std::min<int64_t>(kBlockRows, rows_ - row));
        if (visible(task, row + block - 1, key, count) > column) {
          const float* q = scratch_.queries.get() + row * scratch_.depth;
          float* s = scratch_.scores.get() + row * kTileKeys + column;
          multiply(
              {q, scratch_.depth, scratch_.keys.get() + column, kTileKeys, s, kTileKeys},
              block,
              vectors,
              p_.head_dim,
              false);
        }
      }
    }
  }

  void weigh(const Task& task, int64_t key, int64_t count) {
    for (int64_t row = 0; row < rows_; ++row) {
      float* scores = scratch_.scores.get() + row * kTileKeys;
      const int64_t seen = visible(task, row, key, count);
      if (seen == 0) {
        std::fill_n(scores, count, 0.0f);
        continue;
      }
      const float factor = absorb_tile(scores, seen, count, scratch_.states[row]);
      if (factor != 1.0f) {
        float* sums = scratch_.sums.get() + row * scratch_.depth;
        for (int64_t i = 0; i < scratch_.depth; ++i) {
          sums[i] *= factor;
        }
      }
    }
  }

  void sum_values(const Task& task, int64_t key, int64_t count) {
    for (int64_t column = 0; column < scratch_.depth; column += kPanel) {
      const auto vectors = static_cast<int>(std::min(kPanel, scratch_.depth - column) / kWidth);
      for (int64_t row = 0; row < rows_; row += kBlockRows) {
        const auto block = static_cast<int>(std::min<int64_t>(kBlockRows, rows_ - row));
        const float* weights = scratch_.scores.get() + row * kTileKeys;
        float* sums = scratch_.sums.get() + row * scratch_.depth + column;
        multiply(
            {weights, kTileKeys, scratch_.values.get() + column, scratch_.depth, sums, scratch_.depth},
            block,
            vectors,
            visible(task, row + block - 1, key, count),
            true);
      }
    }
  }

  void store(const Task& task) {
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t token = task.begin + task.first + row / group_, head = task.kv_head * group_ + row % group_;
      const float sum = scratch_.states[row].sum, inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
      const float* sums = scratch_.sums.get() + row * scratch_.depth;
      Element* out = p_.out + (token * p_.q_heads + head) * p_.head_dim;
      for (int64_t i = 0; i < p_.head_dim; ++i) {
        out[i] = static_cast<Element>(sums[i] * inverse);
      }
    }
  }

  const AttentionParams<Element>& p_;
  const int64_t group_;
  Scratch scratch_;
  int64_t rows_ = 0;
};

// All tasks, those with the most keys first: threads take one after the other and end together.
template <typename Element>
std::vector<Task> list_tasks(const AttentionParams<Element>& p) {
  const int64_t positions = std::max<int64_t>(1, kTileRows / (p.q_heads / p.kv_heads));
  std::vector<Task> tasks;
  for (int64_t segment = 0; segment < p.num_segments; ++segment) {
    const int64_t begin = p.cu_seqlens[segment], length = p.cu_seqlens[segment + 1] - begin;
    for (int64_t head = 0; head < p.kv_heads; ++head) {
      for (int64_t first = 0; first < length; first += positions) {
        const int64_t count = std::min(positions, length - first);
        tasks.push_back({begin, length, first, count, head, p.causal ? first + count : length});
      }
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.keys > b.keys; });
  return tasks;
}

}  // namespace

template <typename Element>
void attention_varlen(const AttentionParams<Element>& params) {
  const int64_t used = params.num_segments ? params.cu_seqlens[params.num_segments] : 0;
  const int64_t row = params.q_heads * params.head_dim;
  std::fill(params.out + used * row, params.out + params.num_tokens * row, Element(0.0f));
  const auto tasks = list_tasks(params);
  const auto num_tasks = static_cast<int64_t>(tasks.size());
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min<int64_t>(at::get_num_threads(), num_tasks), 1, [&](int64_t, int64_t) {
    Worker<Element> worker(params);
    for (int64_t task = next++; task < num_tasks; task = next++) {
      worker.run(tasks[task]);
    }
  });
}

template void attention_varlen<float>(const AttentionParams<float>&);
template void attention_varlen<c10::BFloat16>(const AttentionParams<c10::BFloat16>&);

}  // namespace astrai::cpu
