// SPDX-License-Identifier: Apache-2.0
//
// What a step can be about, by number and by the names of nccl-tests.
#ifndef NCCLTUNE_BENCH_WORDS_H_
#define NCCLTUNE_BENCH_WORDS_H_

#include <cstddef>
#include <vector>

#include "abi/tuner_types.h"
#include "common/vocabulary.h"

namespace nccltune::bench {

// The first five are those that a tuner is asked about, under ncclFunc_t's numbers.
enum class Collective : int {
  kBroadcast = abi::kBroadcast,
  kReduce = abi::kReduce,
  kAllGather = abi::kAllGather,
  kReduceScatter = abi::kReduceScatter,
  kAllReduce = abi::kAllReduce,
  kSendRecv,
  kAllToAll,
  kGather,
  kScatter,
};

inline bool IsTuned(Collective collective) {
  return static_cast<int>(collective) < abi::kNumCollectives;
}

// Whether a reduction, or a root, matters to the call.
inline bool Reduces(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kAllReduce;
}
inline bool HasRoot(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

// ncclDataType_t's numbers.
enum class Dtype : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kHalf = 6,
  kFloat = 7,
  kDouble = 8,
  kBfloat16 = 9,
  kF8e4m3 = 10,  // since NCCL 2.24
  kF8e5m2 = 11,
};

// ncclRedOp_t's numbers, but for the last: a premultiplied sum has to be made.
enum class Redop : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kMulsum = 5 };

// Indexed by the number.
Words AllCollectiveNames();
Words DtypeNames();
Words RedopNames();

// Every value of an enum that is numbered like these words.
template <typename Enum>
std::vector<Enum> AllOf(Words words) {
  std::vector<Enum> all;
  all.reserve(words.size());
  for (size_t i = 0; i < words.size(); ++i) all.push_back(static_cast<Enum>(i));
  return all;
}

// Bytes of one element.
int SizeOf(Dtype dtype);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_WORDS_H_
