// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/result_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/nccl/pattern.h"
#include "bench/random.h"

namespace nccltune::bench {
namespace {

constexpr size_t kWindowBytes = size_t{64} << 10U;
constexpr size_t kLargestElement = 8;
constexpr size_t kWindows = kMaxCheckedBytes / kWindowBytes;

}  // namespace

void Reference::Use(const PatternKey& key) {
  if (key == key_) return;
  key_ = key;
  expected_.clear();
}

const Bytes& Reference::Pattern(int rank) {
  const auto [place, is_new] = expected_.try_emplace(rank);
  if (is_new) place->second.bytes = PatternOf(key_, rank);
  return place->second.bytes;
}

int64_t Reference::CountWrong(const std::vector<ResultPart>& parts, size_t offset,
                              const unsigned char* got, size_t bytes) {
  const auto size = static_cast<size_t>(SizeOf(key_.dtype));
  int64_t wrong = 0;
  for (const ResultPart& part : parts) {
    const size_t begin = std::max(part.offset, offset);
    const size_t end = std::min(part.offset + part.elements * size, offset + bytes);
    if (begin >= end) continue;
    const size_t first = part.first + (begin - part.offset) / size;
    wrong += CountWrongIn(part, first, got + (begin - offset), (end - begin) / size);
  }
  return wrong;
}

int64_t Reference::CountWrongIn(const ResultPart& part, size_t first, const unsigned char* got,
                                size_t elements) {
  if (part.source == ResultPart::kReduced) {
    const auto [place, is_new] = expected_.try_emplace(part.source);
    if (is_new) place->second = ReductionOf(key_);
  } else {
    Pattern(part.source);
  }
  const Reduced& expected = expected_.at(part.source);
  const auto size = static_cast<size_t>(SizeOf(key_.dtype));
  int64_t wrong = 0;
  for (size_t done = 0; done < elements;) {
    const size_t phase = (first + done) % kPatternElements;
    const size_t run = std::min(elements - done, kPatternElements - phase);
    const unsigned char* const wanted = expected.bytes.data() + phase * size;
    const unsigned char* const here = got + done * size;
    if (std::memcmp(wanted, here, run * size) != 0) {
      wrong += CountWrongElements(expected, wanted, here, run);
    }
    done += run;
  }
  return wrong;
}

int64_t Reference::CountWrongElements(const Reduced& expected, const unsigned char* wanted,
                                      const unsigned char* got, size_t elements) const {
  const auto size = static_cast<size_t>(SizeOf(key_.dtype));
  int64_t wrong = 0;
  for (size_t i = 0; i < elements; ++i) {
    const unsigned char* const a = wanted + i * size;
    const unsigned char* const b = got + i * size;
    if (std::memcmp(a, b, size) == 0) continue;
    const double number = Decode(key_.dtype, a);
    const double error = std::fabs(Decode(key_.dtype, b) - number);
    const double allowed = expected.relative * std::fabs(number) + expected.absolute;
    // The condition is negated, so that a NaN counts as wrong.
    if (!(expected.relative > 0 && error <= allowed)) ++wrong;
  }
  return wrong;
}

std::vector<Window> WindowsOf(size_t bytes, size_t element, uint64_t seed) {
  if (bytes <= kMaxCheckedBytes) return {{0, bytes}};
  std::vector<Window> windows = {{0, kWindowBytes}};
  const size_t last = bytes - kWindowBytes;
  const size_t span = last - kWindowBytes;  // the range of the windows between the two ends
  const size_t parts = kWindows - 2;
  const size_t part = span / parts / kLargestElement * kLargestElement;
  Random random(seed);
  for (size_t i = 0; i < parts; ++i) {
    const size_t offset = kWindowBytes + part * i + random.Below(part - kWindowBytes + 1);
    windows.push_back({offset / element * element, kWindowBytes});
  }
  windows.push_back({last, kWindowBytes});
  return windows;
}

}  // namespace nccltune::bench
