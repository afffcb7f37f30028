// SPDX-License-Identifier: Apache-2.0
// A random number generator that gives the same numbers on every platform for the same seed. The
// distributions of the standard library do not guarantee this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace nccltune::bench {

// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15U;
    uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }

  // Returns a uniform number in [0, bound). `bound` must be above 0.
  uint64_t Below(uint64_t bound) {
    const uint64_t unfair = (0 - bound) % bound;  // 2^64 modulo bound
    for (;;) {
      const uint64_t number = Next();
      if (number >= unfair) return number % bound;
    }
  }

 private:
  uint64_t state_;
};

// Returns a seed that depends on `seed` and `number`. The order of several calls matters.
inline uint64_t MixSeed(uint64_t seed, uint64_t number) {
  return Random(seed ^ Random(number).Next()).Next();
}

inline uint64_t MixSeed(uint64_t seed, std::string_view text) {
  for (const char c : text) seed = MixSeed(seed, static_cast<unsigned char>(c));
  return MixSeed(seed, text.size());
}

// Shuffles the items; every order is equally likely (Fisher-Yates).
template <typename T>
void Shuffle(Random* random, std::vector<T>* items) {
  for (size_t left = items->size(); left > 1; --left) {
    std::swap((*items)[left - 1], (*items)[random->Below(left)]);
  }
}

}  // namespace nccltune::bench
