// SPDX-License-Identifier: Apache-2.0
//
// Collectives, data types and reductions: their numbers, and their names as in nccl-tests.
#ifndef NCCLTUNE_BENCH_WORDS_H_
#define NCCLTUNE_BENCH_WORDS_H_

#include <cstddef>
#include <vector>

#include "abi/tuner_types.h"
#include "common/vocabulary.h"

namespace nccltune::bench {

// NCCL asks tuner plugins only about the first five collectives, which have the numbers of
// ncclFunc_t.
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

// Reduces returns whether the call has a reduction operator. HasRoot returns whether the call has a
// root rank.
inline bool Reduces(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kAllReduce;
}
inline bool HasRoot(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

// The numbers of ncclDataType_t.
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

// The numbers of ncclRedOp_t, except kMulsum: a premultiplied sum has no fixed number and must be
// created with ncclRedOpCreatePreMulSum.
enum class Redop : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kMulsum = 5 };

// Return the names, indexed by the enum's number.
Words AllCollectiveNames();
Words DtypeNames();
Words RedopNames();

// Returns all values of an enum whose numbers are the indexes of `words`.
template <typename Enum>
std::vector<Enum> AllOf(Words words) {
  std::vector<Enum> all;
  all.reserve(words.size());
  for (size_t i = 0; i < words.size(); ++i) all.push_back(static_cast<Enum>(i));
  return all;
}

// Returns the size of one element in bytes.
int SizeOf(Dtype dtype);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_WORDS_H_
