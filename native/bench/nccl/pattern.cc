// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "bench/random.h"

namespace nccltune::bench {
namespace {

// A floating-point format narrower than float. From the highest bit down, the format has the sign,
// the exponent and the fraction.
struct Narrow {
  int exponent_bits;
  int fraction_bits;
  // false: the largest exponent encodes numbers too, and only the pattern with all bits set is NaN.
  bool has_infinity;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t exponent_mask() const { return (1U << exponent_bits) - 1; }
  uint32_t fraction_mask() const { return (1U << fraction_bits) - 1; }
  int width() const { return 1 + exponent_bits + fraction_bits; }
};

constexpr Narrow kHalf = {5, 10, true};
constexpr Narrow kBfloat16 = {8, 7, true};
constexpr Narrow kF8e4m3 = {4, 3, false};
constexpr Narrow kF8e5m2 = {5, 2, true};

double DecodeNarrow(const Narrow& format, uint32_t bits) {
  const double sign = (bits >> (format.width() - 1) & 1U) != 0 ? -1.0 : 1.0;
  const uint32_t exponent = bits >> format.fraction_bits & format.exponent_mask();
  const uint32_t fraction = bits & format.fraction_mask();
  if (exponent == format.exponent_mask()) {
    if (format.has_infinity) {
      return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::quiet_NaN();
    }
    if (fraction == format.fraction_mask()) return std::numeric_limits<double>::quiet_NaN();
  }
  const int power = std::max<int>(static_cast<int>(exponent), 1) - format.bias();
  const uint32_t hidden = exponent == 0 ? 0U : 1U << format.fraction_bits;
  return sign * std::ldexp(static_cast<double>(hidden | fraction), power - format.fraction_bits);
}

uint32_t EncodeNarrow(const Narrow& format, double number) {
  const uint32_t sign = std::signbit(number) ? 1U << (format.width() - 1) : 0U;
  const uint32_t largest_exponent = format.exponent_mask() << format.fraction_bits;
  // The encoding of numbers that are too large: infinity, or NaN in a format without infinity.
  const uint32_t beyond =
      format.has_infinity ? largest_exponent : largest_exponent | format.fraction_mask();
  if (std::isnan(number)) return sign | largest_exponent | format.fraction_mask();
  const double size = std::fabs(number);
  if (size == 0) return sign;
  if (std::isinf(size)) return sign | beyond;
  const int power = std::max(std::ilogb(size), 1 - format.bias());
  // The mantissa in units of its last place; nearbyint rounds half to even. A carry into the next
  // power of two increments the exponent field by itself.
  const double units = std::nearbyint(std::ldexp(size, format.fraction_bits - power));
  const auto bits = static_cast<uint64_t>(units) +
                    (static_cast<uint64_t>(power + format.bias() - 1) << format.fraction_bits);
  return sign | static_cast<uint32_t>(std::min<uint64_t>(bits, beyond));
}

template <typename T>
double Load(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return static_cast<double>(value);
}

template <typename T>
void Store(T value, void* element) {
  std::memcpy(element, &value, sizeof value);
}

double LoadNarrow(const Narrow& format, const void* element) {
  uint16_t bits = 0;  // element and host are both little-endian
  std::memcpy(&bits, element, static_cast<size_t>(format.width()) / 8);
  return DecodeNarrow(format, bits);
}

void StoreNarrow(const Narrow& format, double number, void* element) {
  const auto bits = static_cast<uint16_t>(EncodeNarrow(format, number));
  std::memcpy(element, &bits, static_cast<size_t>(format.width()) / 8);
}

NumberFormat Integer(bool is_signed, int bits) {
  return {.is_signed = is_signed, .digits = is_signed ? bits - 1 : bits};
}

NumberFormat Real(int digits, int least) {
  return {.is_real = true, .is_signed = true, .digits = digits, .least_exponent = least};
}

}  // namespace

NumberFormat FormatOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kInt8:
      return Integer(true, 8);
    case Dtype::kUint8:
      return Integer(false, 8);
    case Dtype::kInt32:
      return Integer(true, 32);
    case Dtype::kUint32:
      return Integer(false, 32);
    case Dtype::kInt64:
      return Integer(true, 64);
    case Dtype::kUint64:
      return Integer(false, 64);
    case Dtype::kHalf:
      return Real(11, -14);
    case Dtype::kFloat:
      return Real(24, -126);
    case Dtype::kDouble:
      return Real(53, -1022);
    case Dtype::kBfloat16:
      return Real(8, -126);
    case Dtype::kF8e4m3:
      return Real(4, -6);
    case Dtype::kF8e5m2:
      return Real(3, -14);
  }
  return {};
}

double LargestExact(Dtype dtype) {
  const NumberFormat format = FormatOf(dtype);
  if (format.is_real) return std::ldexp(1.0, format.digits);
  return std::ldexp(1.0, std::min(format.digits, 53)) - (format.digits < 53 ? 1.0 : 0.0);
}

double Decode(Dtype dtype, const void* element) {
  switch (dtype) {
    case Dtype::kInt8:
      return Load<int8_t>(element);
    case Dtype::kUint8:
      return Load<uint8_t>(element);
    case Dtype::kInt32:
      return Load<int32_t>(element);
    case Dtype::kUint32:
      return Load<uint32_t>(element);
    case Dtype::kInt64:
      return Load<int64_t>(element);
    case Dtype::kUint64:
      return Load<uint64_t>(element);
    case Dtype::kHalf:
      return LoadNarrow(kHalf, element);
    case Dtype::kFloat:
      return Load<float>(element);
    case Dtype::kDouble:
      return Load<double>(element);
    case Dtype::kBfloat16:
      return LoadNarrow(kBfloat16, element);
    case Dtype::kF8e4m3:
      return LoadNarrow(kF8e4m3, element);
    case Dtype::kF8e5m2:
      return LoadNarrow(kF8e5m2, element);
  }
  return 0;
}

void Encode(Dtype dtype, double number, void* element) {
  switch (dtype) {
    case Dtype::kInt8:
      return Store(static_cast<int8_t>(number), element);
    case Dtype::kUint8:
      return Store(static_cast<uint8_t>(number), element);
    case Dtype::kInt32:
      return Store(static_cast<int32_t>(number), element);
    case Dtype::kUint32:
      return Store(static_cast<uint32_t>(number), element);
    case Dtype::kInt64:
      return Store(static_cast<int64_t>(number), element);
    case Dtype::kUint64:
      return Store(static_cast<uint64_t>(number), element);
    case Dtype::kHalf:
      return StoreNarrow(kHalf, number, element);
    case Dtype::kFloat:
      return Store(static_cast<float>(number), element);
    case Dtype::kDouble:
      return Store(number, element);
    case Dtype::kBfloat16:
      return StoreNarrow(kBfloat16, number, element);
    case Dtype::kF8e4m3:
      return StoreNarrow(kF8e4m3, number, element);
    case Dtype::kF8e5m2:
      return StoreNarrow(kF8e5m2, number, element);
  }
}
namespace {

constexpr double kLargestTerm = 1000;
constexpr double kLargestExtreme = 100;
constexpr int kMaxFactors = 4;

uint64_t RandomAt(int rank, size_t index) { return MixSeed(static_cast<uint64_t>(rank), index); }

// Returns the number of ranks that contribute a number other than the neutral one to an element.
int Contributors(const PatternKey& key) {
  if (key.redop == Redop::kProd) return std::min(key.ranks, kMaxFactors);
  // Leave room for at least two different numbers from each contributor.
  const double room = LargestExact(key.dtype) / 2;
  return static_cast<int>(std::clamp<double>(room, 1, key.ranks));
}

bool Contributes(const PatternKey& key, int rank, size_t index) {
  const auto ranks = static_cast<size_t>(key.ranks);
  const size_t place = (static_cast<size_t>(rank) + ranks - index % ranks) % ranks;
  return place < static_cast<size_t>(Contributors(key));
}

double Term(const PatternKey& key, int rank, size_t index) {
  if (!Contributes(key, rank, index)) return 0;
  const double room = LargestExact(key.dtype) / Contributors(key);
  const auto largest = static_cast<uint64_t>(std::min(room, kLargestTerm));
  return 1.0 + static_cast<double>(RandomAt(rank, index) % largest);
}

double Factor(const PatternKey& key, int rank, size_t index) {
  if (!Contributes(key, rank, index)) return 1;
  const uint64_t random = RandomAt(rank, index);
  const double size = (random & 1U) != 0 ? 2 : 1;
  return FormatOf(key.dtype).is_signed && (random & 2U) != 0 ? -size : size;
}

double Extreme(const PatternKey& key, int rank, size_t index) {
  const auto largest = static_cast<uint64_t>(std::min(LargestExact(key.dtype), kLargestExtreme));
  const uint64_t random = RandomAt(rank, index);
  if (!FormatOf(key.dtype).is_signed) return static_cast<double>(random % (largest + 1));
  return static_cast<double>(random % (2 * largest + 1)) - static_cast<double>(largest);
}

double NumberAt(const PatternKey& key, int rank, size_t index) {
  switch (key.redop) {
    case Redop::kProd:
      return Factor(key, rank, index);
    case Redop::kMax:
    case Redop::kMin:
      return Extreme(key, rank, index);
    case Redop::kSum:
    case Redop::kAvg:
      return Term(key, rank, index);
  }
  return 0;
}

double ReducedAt(const PatternKey& key, size_t index) {
  double result = NumberAt(key, 0, index);
  for (int rank = 1; rank < key.ranks; ++rank) {
    const double number = NumberAt(key, rank, index);
    switch (key.redop) {
      case Redop::kSum:
      case Redop::kAvg:
        result += number;
        break;
      case Redop::kProd:
        result *= number;
        break;
      case Redop::kMax:
        result = std::max(result, number);
        break;
      case Redop::kMin:
        result = std::min(result, number);
        break;
    }
  }
  if (key.redop != Redop::kAvg) return result;
  result /= key.ranks;
  return FormatOf(key.dtype).is_real ? result : std::trunc(result);
}

double SmallestStep(const NumberFormat& format) {
  return std::ldexp(1.0, format.least_exponent - format.digits + 1);
}

// Returns whether an integer divided by the number of ranks is stored exactly.
bool AverageIsExact(const PatternKey& key) {
  const NumberFormat format = FormatOf(key.dtype);
  return !format.is_real || (std::has_single_bit(static_cast<unsigned>(key.ranks)) &&
                             1.0 / key.ranks >= SmallestStep(format));
}

}  // namespace

PatternKey PatternKey::For(Collective collective, Dtype dtype, Redop redop, int ranks) {
  const bool reduces = Reduces(collective);
  return {dtype, reduces, reduces ? redop : Redop::kSum, ranks};
}

Bytes PatternOf(const PatternKey& key, int rank) {
  const auto size = static_cast<size_t>(SizeOf(key.dtype));
  Bytes bytes(kPatternElements * size);
  for (size_t i = 0; i < kPatternElements; ++i) {
    unsigned char* const element = bytes.data() + i * size;
    if (key.reduces) {
      Encode(key.dtype, NumberAt(key, rank, i), element);
    } else {
      const uint64_t random = RandomAt(rank, i);
      std::memcpy(element, &random, size);
    }
  }
  return bytes;
}

Reduced ReductionOf(const PatternKey& key) {
  const auto size = static_cast<size_t>(SizeOf(key.dtype));
  Reduced reduced;
  reduced.bytes.resize(kPatternElements * size);
  for (size_t i = 0; i < kPatternElements; ++i) {
    Encode(key.dtype, ReducedAt(key, i), reduced.bytes.data() + i * size);
  }
  if (key.redop == Redop::kAvg && !AverageIsExact(key)) {
    // The tolerance allows rounding errors of half a unit in the last place: one for 1/ranks, one
    // for all products together, one for each sum, and one for our own reference. All terms have
    // the same sign, so no partial sum exceeds the result.
    const NumberFormat format = FormatOf(key.dtype);
    const int roundings = Contributors(key) + 3;
    reduced.relative = roundings * std::ldexp(1.0, -format.digits) * 1.01;
    reduced.absolute = roundings * SmallestStep(format);
  }
  return reduced;
}

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
