// SPDX-License-Identifier: Apache-2.0
// Runs the same programs with and without the send/recv library. Results and contents must be the
// same. NCCL must get the same calls in the same order, except for messages that copy engines
// carry.
#include "program_output.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

// By rank.
using Traces = std::array<std::string, 2>;

const Environment kWithout = {{"LD_PRELOAD", ""}};

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Traces TracesOf(const std::string& name, Environment environment) {
  const std::string path = testing::TempDir() + "/trace." + std::to_string(getpid()) + ".";
  environment.insert({{"NCCLTUNE_SENDRECV", "1"},
                      {"NCCLTUNE_SENDRECV_FROM", "32K"},
                      {"NCCLTUNE_SENDRECV_EAGER", "1M"},
                      {"SOFT_NCCL_BUFFER", "1048576"},
                      {"SOFT_CUDA_DELAY_US", "0"},
                      {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                      {"CASE_TRACE", path},
                      {"LD_PRELOAD", LIBRARY}});
  const std::string command = std::string(CASES) + " --gtest_brief=1 --gtest_filter=" + name;
  const std::string output = AllOutputOf(InEnvironment(environment, command));
  EXPECT_TRUE(Has(output, "PASSED  ] 1 test")) << output;
  Traces traces;
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    const std::string file = path + std::to_string(rank);
    traces[rank] = Read(file);
    unlink(file.c_str());
    EXPECT_FALSE(traces[rank].empty()) << output;
  }
  return traces;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A program's trace: the results that it saw, and the calls that NCCL got.
struct Program {
  std::string title;
  std::string seen;
  std::vector<std::string> given;
};

std::vector<Program> ProgramsOf(const std::string& text) {
  std::vector<Program> programs;
  for (const std::string& line : LinesOf(text)) {
    if (line.starts_with("## ")) {
      programs.push_back({.title = line, .seen = {}, .given = {}});
    } else if (line.starts_with("nccl")) {
      programs.back().given.push_back(line);
    } else {
      programs.back().seen += line + "\n";
    }
  }
  return programs;
}

// Returns whether a call takes effect at once even in a group. Such a call may reach NCCL before
// held calls.
bool IsImmediate(std::string_view line) {
  // Destroying an operator that a held call uses is held as well.
  if (line.starts_with("ncclRedOpDestroy")) return !line.ends_with("-> 0");
  constexpr std::array<std::string_view, 12> kOfGroups = {
      "Group",    "Send",   "Recv",    "AllReduce", "Reduce",    "AllGather",
      "AlltoAll", "Gather", "Scatter", "Bcast",     "Broadcast", "Signal"};
  return std::ranges::none_of(kOfGroups, [&](std::string_view part) {
    return line.substr(0, line.find(' ')).find(part) != std::string_view::npos;
  });
}

// Returns whether the call is a message that a copy engine may carry.
bool IsLarge(std::string_view line) { return line.find(" large ") != std::string_view::npos; }

// Returns how `given` differs from `expected`, apart from missing messages that copy engines may
// carry. Empty: it does not.
std::string Missing(const std::vector<std::string>& expected,
                    const std::vector<std::string>& given) {
  size_t at = 0;
  for (const std::string& line : expected) {
    if (at < given.size() && given[at] == line) {
      ++at;
    } else if (!IsLarge(line)) {
      return "not given: " + line;
    }
  }
  return at == given.size() ? "" : "given besides: " + given[at];
}

std::pair<std::vector<std::string>, std::vector<std::string>> Split(
    const std::vector<std::string>& lines) {
  std::pair<std::vector<std::string>, std::vector<std::string>> both;
  for (const std::string& line : lines)
    (IsImmediate(line) ? both.first : both.second).push_back(line);
  return both;
}

// Returns whether a call of the program fails such that only NCCL knows if the group is refused.
// Then the held calls reach NCCL in a group of their own, or not at all.
bool IsDoubtful(const Program& program) {
  constexpr std::array<std::string_view, 5> kFailing = {
      "ncclCommGrow", "ncclCommShrink", "ncclCommSplit!", "ncclCommRevoke!", "ncclCommFinalize"};
  return std::ranges::any_of(kFailing, [&](std::string_view function) {
    return program.title.find(function) != std::string::npos;
  });
}

enum class Carried { kNothing, kSome };

void Compare(const Traces& expected, const Traces& traces, Carried carried,
             const std::string& what) {
  for (size_t rank = 0; rank < traces.size(); ++rank) {
    const std::vector<Program> without = ProgramsOf(expected[rank]);
    const std::vector<Program> with = ProgramsOf(traces[rank]);
    ASSERT_EQ(with.size(), without.size()) << what;
    int differ = 0;
    for (size_t i = 0; i < with.size() && differ < 3; ++i) {
      const std::string where =
          what + ", rank " + std::to_string(rank) + ", " + with[i].title + "\n";
      EXPECT_EQ(with[i].seen, without[i].seen) << where;
      if (carried == Carried::kNothing) {
        EXPECT_EQ(with[i].given, without[i].given) << where;
      } else if (!IsDoubtful(with[i])) {
        const auto [at_once, in_order] = Split(without[i].given);
        const auto [given_at_once, given_in_order] = Split(with[i].given);
        EXPECT_EQ(given_at_once, at_once) << where;
        EXPECT_EQ(Missing(in_order, given_in_order), "") << where;
      }
      if (testing::Test::HasFailure()) ++differ;
    }
  }
}

size_t CountLarge(const Traces& traces) {
  size_t count = 0;
  for (const std::string& trace : traces) {
    for (const Program& program : ProgramsOf(trace)) {
      if (IsDoubtful(program)) continue;
      count += static_cast<size_t>(std::ranges::count_if(program.given, IsLarge));
    }
  }
  return count;
}

enum class Places { kAll, kMain };

// Environments in which copy engines carry nothing: with the lanes of both ranks, with none, and
// counted only. The others differ from these in why there are none.
std::map<std::string, Environment> NothingCarried(Places places) {
  const std::map<std::string, Environment> main = {
      {"on one rank alone", {{"CASE_RANK1", "NCCLTUNE_SENDRECV=0"}}},
      {"below the threshold", {{"NCCLTUNE_SENDRECV_FROM", "1024M"}}},
      {"dry run", {{"NCCLTUNE_SENDRECV", "dry-run"}}},
  };
  if (places == Places::kMain) return main;
  std::map<std::string, Environment> all = {
      {"other settings", {{"CASE_RANK1", "NCCLTUNE_SENDRECV_GRAPHS=1"}}},
      {"one connection and no kernels",
       {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}, {"NCCLTUNE_SENDRECV_WAITS", "memory"}}},
      {"one connection on one rank", {{"CASE_RANK1", "CUDA_DEVICE_MAX_CONNECTIONS=1"}}},
      {"few connections", {{"CUDA_DEVICE_MAX_CONNECTIONS", "8"}}},
  };
  all.insert(main.begin(), main.end());
  return all;
}

void CompareAll(const std::string& name, Places places, const Environment& program) {
  const auto run = [&](Environment environment) {
    environment.insert(program.begin(), program.end());
    return TracesOf(name, environment);
  };
  const Traces without = run(kWithout);
  for (const auto& [why, environment] : NothingCarried(places)) {
    Compare(without, run(environment), Carried::kNothing, why);
    if (testing::Test::HasFatalFailure()) return;
  }
  // All large messages have slots, but NCCL carries all of them.
  const Traces unshared = run({{"SOFT_CUDA_LACKS", "ipc"}});
  Compare(without, unshared, Carried::kSome, "memory that cannot be shared");
  EXPECT_EQ(CountLarge(unshared), CountLarge(without));
  const Traces carried = run({});
  Compare(without, carried, Carried::kSome, "by copy engines");
  // Copy engines carry at least half of them.
  EXPECT_LT(2 * CountLarge(carried), CountLarge(without));
  // With one connection NCCL carries single sends and what is received before it is sent.
  for (const char* const queues : {"0", "1"}) {
    if (places == Places::kMain && *queues == '0') continue;
    const Traces by_kernels =
        run({{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}, {"SOFT_CUDA_QUEUES", queues}});
    Compare(without, by_kernels, Carried::kSome, "with one connection");
    EXPECT_LT(CountLarge(by_kernels), CountLarge(without));
  }
}

TEST(Trace, EachFunctionInEachPlace) {
  CompareAll("Trace.EachFunctionInEachPlace", Places::kMain, {});
}

// In the last four places: among messages in a group, and alone.
TEST(Trace, EachFunctionInEachEnvironment) {
  CompareAll("Trace.EachFunctionInEachPlace", Places::kAll, {{"CASE_FIRST_PLACE", "7"}});
}

// TRACE_SEEDS: the number of seeds.
TEST(Trace, RandomPrograms) {
  const char* const seeds = std::getenv("TRACE_SEEDS");
  const int count = seeds == nullptr ? 2 : std::atoi(seeds);
  for (int seed = 1; seed <= count && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CompareAll("Trace.RandomPrograms", Places::kAll, {{"CASE_SEED", std::to_string(seed)}});
  }
}

// Runs the scenarios of tests/gpu/one_gpu.py on the stand-ins. NCCL alone and NCCL with the
// send/recv library must give the same results.

std::string ScenarioOutput(const std::string& arguments, Environment environment) {
  environment.insert({"SOFT_NCCL_BUFFER", "1048576"});
  return AllOutputOf(InEnvironment(environment, std::string(SCENARIOS) + " " + arguments));
}

Environment WithLibrary(const std::string& mode) {
  return {{"LD_PRELOAD", LIBRARY},
          {"NCCLTUNE_SENDRECV", mode},
          {"NCCLTUNE_SENDRECV_FROM", "256K"},
          {"NCCLTUNE_SENDRECV_EAGER", "1M"},
          {"NCCLTUNE_SENDRECV_STATS", "-"},
          {"CUDA_DEVICE_MAX_CONNECTIONS", "32"}};
}

// By rank, in the order in which each rank printed them.
std::vector<std::string> ResultsOf(const std::string& output) {
  std::vector<std::string> results;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" result ") == 1) results.push_back(line);
  }
  std::stable_sort(results.begin(), results.end(),
                   [](const auto& one, const auto& other) { return one[0] < other[0]; });
  return results;
}

// Returns whether copy engines carried messages of this process or its peer.
bool Carried(const std::string& output) {
  return output.find(": copy engine, ") != std::string::npos;
}

class Scenario : public testing::TestWithParam<const char*> {};

TEST_P(Scenario, GivesTheSameResultsWithTheLibrary) {
  const std::string arguments = GetParam();
  const std::string native = ScenarioOutput(arguments, {});
  if (native.find(" skip ") != std::string::npos) GTEST_SKIP() << native;
  const std::vector<std::string> expected = ResultsOf(native);
  ASSERT_FALSE(expected.empty()) << native;
  EXPECT_FALSE(Has(native, "WRONG")) << native;
  EXPECT_FALSE(Has(native, "status ")) << native;
  for (const char* const mode : {"1", "verify"}) {
    const std::string output = ScenarioOutput(arguments, WithLibrary(mode));
    EXPECT_EQ(ResultsOf(output), expected) << mode << "\n" << output;
    EXPECT_FALSE(Has(output, "status ")) << mode << "\n" << output;
    EXPECT_TRUE(Carried(output)) << mode << "\n" << output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Scenario,
    testing::Values("exchange large=1M", "exchange large=1048577 count=3", "simulate large=1M",
                    "order large=1M count=20", "crowd large=2M bytes=300K count=40 late=0",
                    "crowd large=2M bytes=300K count=40 late=1", "split large=1M",
                    "abort large=1M count=9", "churn large=1M count=24"),
    [](const auto& each) {
      std::string name = each.param;
      std::erase_if(name, [](char letter) { return std::isalnum(letter) == 0; });
      return name;
    });

TEST(ScenarioProgram, RejectsWhatItDoesNotKnow) {
  EXPECT_TRUE(Has(ScenarioOutput("exchange largest=1M", {}), "unknown setting largest=1M"));
  EXPECT_TRUE(Has(ScenarioOutput("exchanges", {}), "usage: sendrecv_scenarios NAME"));
}

}  // namespace
}  // namespace nccltune::sendrecv
