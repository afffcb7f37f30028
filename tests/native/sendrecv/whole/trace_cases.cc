// SPDX-License-Identifier: Apache-2.0
//
// Runs programs and writes traces of their calls to the files CASE_TRACE plus the rank's number, to
// be compared with the traces of other runs.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sendrecv/whole/trace_program.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

constexpr const char* kSymbols[] = {
#define SYMBOL(name, returns) #name,
#include "symbols.inc"
#undef SYMBOL
};

// The positions of a call: alone, in groups, and beside messages that NCCL carries or that copy
// engines may carry.
const std::vector<std::vector<std::string>>& Places() {
  static const auto& places = *new std::vector<std::vector<std::string>>{
      {"f"},
      {"(", "f", ")"},
      {"(", "(", "f", ")", ")"},
      {"(", "s", "f", ")"},
      {"(", "f", "s", ")"},
      {"(", "L", "f", ")"},
      {"(", "f", "L", ")"},
      {"(", "s", "L", "f", "s", "f", "L", ")"},
      {"(", "(", "L", "f", ")", "s", ")"},
      {"s", "f", "s"},
      {"L", "f", "L"},
  };
  return places;
}

void WriteDown(int rank, const TracedRank& traced) {
  const char* const path = std::getenv("CASE_TRACE");
  ASSERT_NE(path, nullptr);
  std::ofstream(path + std::to_string(rank)) << traced.text();
}

TEST(Trace, EachFunctionInEachPlace) {
  const std::vector<std::string> calls = TracedRank::Calls();
  const std::set<std::string> covered(calls.begin(), calls.end());
  for (const std::string symbol : kSymbols) {
    EXPECT_TRUE(symbol.starts_with("pnccl") || covered.contains(symbol)) << symbol;
  }
  Ranks two(2);
  two.Run([&](int rank) {
    TakeEnvironment(rank);
    TracedRank traced(&two, rank);
    // Until both ranks have mapped each other's memory.
    for (int i = 0; i < kWarm; ++i) traced.Run("warm", {"(", "L", ")"});
    for (const std::string& call : calls) {
      for (const std::vector<std::string>& place : Places()) {
        std::vector<std::string> words = place;
        std::ranges::replace(words, std::string("f"), call);
        std::string title;
        for (const std::string& word : words) title += word + " ";
        traced.Run(title, words);
        if (testing::Test::HasFailure()) return;
      }
    }
    WriteDown(rank, traced);
  });
}

// Runs CASE_PROGRAMS random programs with the seed CASE_SEED.
TEST(Trace, RandomPrograms) {
  const char* const seed = std::getenv("CASE_SEED");
  const char* const programs = std::getenv("CASE_PROGRAMS");
  const std::vector<std::string> calls = TracedRank::Calls();
  // These calls are drawn as often as all others together.
  const std::vector<std::string> often = {
      "ncclAlltoAll",  "ncclAllReduce",      "ncclGather",           "ncclScatter",
      "ncclSend",      "ncclRedOpDestroy",   "ncclGroupSimulateEnd", "ncclCommSplit",
      "ncclSend!peer", "ncclBroadcast!root", "ncclAlltoAllConfig",   "ncclCommAbort"};
  Ranks two(2);
  two.Run([&](int rank) {
    TakeEnvironment(rank);
    TracedRank traced(&two, rank);
    std::mt19937 random(static_cast<unsigned>(seed == nullptr ? 1 : std::atoi(seed)));
    const int count = programs == nullptr ? 100 : std::atoi(programs);
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
      std::vector<std::string> words;
      const size_t length = 2 + random() % 12;
      int depth = 0;
      while (words.size() < length) {
        switch (random() % 8) {
          case 0:
            if (depth < 3) words.emplace_back("("), ++depth;
            break;
          case 1:
            if (depth > 0) words.emplace_back(")"), --depth;
            break;
          case 2:
            words.emplace_back("s");
            break;
          case 3:
          case 4:
            words.emplace_back("L");
            break;
          case 5:
            words.push_back(calls[random() % calls.size()]);
            break;
          default:
            words.push_back(often[random() % often.size()]);
        }
      }
      std::string title = std::to_string(i) + ": ";
      for (const std::string& word : words) title += word + " ";
      traced.Run(title, words);
    }
    WriteDown(rank, traced);
  });
}

}  // namespace
}  // namespace nccltune::sendrecv
