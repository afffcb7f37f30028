// SPDX-License-Identifier: Apache-2.0
#include "bench/step.h"

#include <array>
#include <cstdio>
#include <string_view>

namespace nccltune::bench {

std::string InWords(const Choice& choice) {
  switch (choice.kind) {
    case Choice::Kind::kDefault:
      return "NCCL's default";
    case Choice::Kind::kTuned:
      return "the rules' choice";
    case Choice::Kind::kForced:
      break;
  }
  std::string words = host::CombinationName(choice.combination);
  if (choice.channels > 0) words += " on " + std::to_string(choice.channels) + " channels";
  if (choice.chunk_bytes > 0) {
    words += " in chunks of " + std::to_string(choice.chunk_bytes) + " bytes";
  }
  return words;
}

std::string InWords(const Step& step) {
  std::string words(AllCollectiveNames()[static_cast<size_t>(step.collective)]);
  words += " of " + std::to_string(step.bytes) + " bytes";
  if (IsTuned(step.collective)) words += " with " + InWords(step.choice);
  return words;
}

std::string Processes(const std::vector<int>& numbers) {
  std::string words = numbers.size() == 1 ? "process" : "processes";
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    words += (i == 0 ? " " : ", ") + std::to_string(numbers[i]);
    if (last > i) words += (last == i + 1 ? ", " : "-") + std::to_string(numbers[last]);
    i = last + 1;
  }
  return words;
}

std::string InSeconds(std::chrono::duration<double> time) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", time.count());
  return text;
}

namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kCollectives = {"broadcast"sv,     "reduce"sv,    "allgather"sv,
                                     "reducescatter"sv, "allreduce"sv, "sendrecv"sv,
                                     "alltoall"sv,      "gather"sv,    "scatter"sv};
constexpr std::array kDtypes = {"int8"sv,   "uint8"sv,    "int32"sv,  "uint32"sv,
                                "int64"sv,  "uint64"sv,   "half"sv,   "float"sv,
                                "double"sv, "bfloat16"sv, "f8e4m3"sv, "f8e5m2"sv};
constexpr std::array<int, kDtypes.size()> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr std::array kRedops = {"sum"sv, "prod"sv, "max"sv, "min"sv, "avg"sv};

static_assert(kCollectives.size() == static_cast<size_t>(Collective::kScatter) + 1);
static_assert(kDtypes.size() == static_cast<size_t>(Dtype::kF8e5m2) + 1);
static_assert(kRedops.size() == static_cast<size_t>(Redop::kAvg) + 1);

}  // namespace

Words AllCollectiveNames() { return kCollectives; }
Words DtypeNames() { return kDtypes; }
Words RedopNames() { return kRedops; }

int SizeOf(Dtype dtype) { return kSizes[static_cast<size_t>(dtype)]; }

}  // namespace nccltune::bench
