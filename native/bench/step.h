// SPDX-License-Identifier: Apache-2.0
// A step is the unit of measurement: one timing of one collective at one size with one choice.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/tuner.h"
#include "common/vocabulary.h"
#include "host/nccl_rules.h"

namespace nccltune::bench {

// Collectives, data types and reductions: their numbers, and their names as in nccl-tests.

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

// The numbers of ncclRedOp_t.
enum class Redop : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

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

struct Choice {
  enum class Kind {
    kDefault,  // NCCL's own choice; no rule is applied
    kTuned,    // the rules of the loaded configuration decide
    kForced,   // `combination`, `channels` and `chunk_bytes` decide
  };
  Kind kind = Kind::kDefault;
  host::Combination combination;  // set if kind is kForced
  int channels = -1;              // -1: NCCL's own number
  size_t chunk_bytes = 0;         // 0: NCCL's own size

  bool operator==(const Choice&) const = default;
};

struct Step {
  uint64_t sequence = 0;  // counts from 1, the same in all processes
  Collective collective = Collective::kAllReduce;
  // For all-gather and reduce-scatter, the sum over all ranks, as NCCL's tuner counts the size. The
  // same applies to all-to-all, gather and scatter. With `group_calls`, the sum over the calls of
  // the group, because NCCL's tuner is asked once about all of them.
  size_t bytes = 0;
  Dtype dtype = Dtype::kFloat;
  Redop redop = Redop::kSum;
  int root = 0;
  bool registered = false;
  bool graph = false;
  int group_calls = 1;  // equal calls between ncclGroupStart and ncclGroupEnd; 1: no group
  bool load = false;    // time the calls while a compute kernel runs on the GPUs
  Choice choice;
  int warmup = 0;
  int iterations = 1;
  bool check = true;
  double timeout_s = 30;  // limit for warm-up, timing and check together
  // The seed of the request, and the round and repeat of the step in the request. Seeds of random
  // numbers are derived from these three members.
  uint64_t seed = 0;
  int round = 0;
  int repeat = 0;

  bool operator==(const Step&) const = default;
};

// The choice that NCCL executed. Members that are not known stay unset.
struct ExecutedChoice {
  host::Combination combination;
  std::optional<int> channels;
  std::optional<size_t> chunk_bytes;

  bool operator==(const ExecutedChoice&) const = default;
};

// The inputs of NCCL's decision about a call, besides its size, as the tuner plugin got them.
struct TunerInputs {
  int pipe_ops = 1;
  std::optional<bool> registered;  // nullopt: this interface version does not pass it

  bool operator==(const TunerInputs&) const = default;
};

enum class ErrorKind {
  kWrong,        // the result was wrong
  kTimeout,      // a collective hung
  kNccl,         // an NCCL function failed
  kCuda,         // a CUDA function failed
  kMemory,       // the buffers do not fit in the GPU's memory
  kUnsupported,  // the backend cannot run the step
  kDied,         // a process was lost, or the run is ending
};

struct StepError {
  ErrorKind kind = ErrorKind::kUnsupported;
  std::string text;
  int rank = -1;       // -1: not specific to one rank
  bool fatal = false;  // true: no further step can run; always true for a timeout

  bool operator==(const StepError&) const = default;
};

struct RankTiming {
  int rank = 0;
  // Time of one iteration, measured with CUDA events. An iteration is a call, or a group of calls.
  double event_us = 0;
  // Host time from the first launch to completion, divided by the number of calls.
  std::optional<double> host_us;
  std::optional<int64_t> wrong;  // number of wrong elements; nullopt: the result was not checked
  // Time of one load kernel, when it runs alone and during the calls. Set if the step has `load`.
  std::optional<double> load_alone_us = std::nullopt;
  std::optional<double> load_us = std::nullopt;

  bool operator==(const RankTiming&) const = default;
};

struct StepResult {
  // One entry for each rank of the process. Empty after an error, except after kWrong.
  std::vector<RankTiming> timings;
  std::optional<ExecutedChoice> ran;
  std::optional<TunerInputs> seen;  // nullopt: unknown
  bool applied = true;              // false: NCCL did not run the forced choice
  std::optional<StepError> error;

  bool operator==(const StepResult&) const = default;
};

// NCCL's cost predictions for one call.
struct TableRow {
  // The combinations that NCCL can run, with their predicted times in microseconds. nullopt means
  // that the time is unknown.
  std::vector<std::pair<host::Combination, std::optional<double>>> costs;
  // The combination that NCCL would pick; unknown if the costs do not determine it.
  host::Combination predicted;
  std::optional<TunerInputs> seen;  // nullopt: unknown
};

struct TableResult {
  TableRow row;
  std::optional<StepError> error;
};

// Returns a text such as "tree/ll on 2 channels" or "NCCL's default".
std::string InWords(const Choice& choice);

// Returns a text such as "allreduce of 4096 bytes with tree/ll".
std::string InWords(const Step& step);

// Returns a text such as "process 3" or "processes 1, 3-5".
std::string Processes(const std::vector<int>& numbers);

// Returns a text such as "0.4 s".
std::string InSeconds(std::chrono::duration<double> time);

}  // namespace nccltune::bench
