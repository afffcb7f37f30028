// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/element.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

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

}  // namespace nccltune::bench
