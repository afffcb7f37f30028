// SPDX-License-Identifier: Apache-2.0
// Runs programs with the shipped library, on the stand-ins, and returns what they print.
#pragma once

#include "program_output.h"
#include "testing.h"

namespace nccltune::sendrecv {

// Returns standard output and standard error, followed by the exit status if it is not 0. `wrap` is
// put before the program. `environment` is added to these defaults, and replaces them.
inline std::string OutputOf(const std::string& command, Environment environment,
                            const std::string& wrap = "") {
  environment.insert({{"NCCLTUNE_SENDRECV", "1"},
                      {"NCCLTUNE_SENDRECV_FROM", "256K"},
                      {"NCCLTUNE_SENDRECV_EAGER", "1M"},
                      {"NCCLTUNE_SENDRECV_STATS", "-"},
                      {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                      {"SOFT_NCCL_BUFFER", "1048576"},
                      {"LD_PRELOAD", LIBRARY}});
  return AllOutputOf(wrap + InEnvironment(environment, command));
}

inline std::string Case(const std::string& name, const Environment& environment = {},
                        const std::string& wrap = "") {
  return OutputOf(std::string(CASES) + " --gtest_brief=1 --gtest_filter=" + name, environment,
                  wrap);
}

// Runs a case that calls AwaitCheck. Its counts follow its output.
inline std::string CaseWithChecks(const std::string& name) {
  const std::string file = testing::TempDir() + "/checks-" + std::to_string(getpid());
  const std::string output =
      Case(name, {{"NCCLTUNE_SENDRECV_SIGNAL", "USR1"}, {"NCCLTUNE_SENDRECV_STATS", file}});
  std::stringstream counts;
  counts << std::ifstream(file).rdbuf();
  std::remove(file.c_str());
  return output + counts.str();
}

inline std::string Programs(const std::string& arguments, const Environment& environment = {}) {
  return OutputOf(std::string(PROGRAMS) + " " + arguments, environment);
}

inline constexpr const char* kWarning = "nccltune sendrecv WARN ";
// The path of messages that copy engines have pushed or pulled.
inline constexpr const char* kDirect = "copy engine, pu";
inline constexpr const char* kPushed = "copy engine, pushed: ";

// What an output must be.
struct Texts {
  std::vector<std::string> has = {};
  std::vector<std::string> lacks = {};
  std::map<std::string, int> counts = {};  // by text
};

inline void ExpectTexts(const std::string& output, const Texts& texts) {
  for (const std::string& each : texts.has)
    EXPECT_TRUE(Has(output, each)) << each << "\n" << output;
  for (const std::string& each : texts.lacks) {
    EXPECT_FALSE(Has(output, each)) << each << "\n" << output;
  }
  for (const auto& [each, count] : texts.counts) {
    EXPECT_EQ(CountIn(output, each), count) << each << "\n" << output;
  }
}

inline std::string ExpectWell(const std::string& output, Texts texts = {}) {
  texts.has.emplace_back("PASSED  ] 1 test");
  texts.lacks.emplace_back("status ");
  ExpectTexts(output, texts);
  return output;
}

// Runs a case that must pass. Returns its output.
inline std::string WellCase(const std::string& name, const Texts& texts = {},
                            const Environment& environment = {}, const std::string& wrap = "") {
  return ExpectWell(Case(name, environment, wrap), texts);
}

inline const std::vector<std::string> kAllNative = {"rank 0: native 7,", "rank 1: native 7,"};

// NCCL carries all messages, and each process logs one line with the reason.
inline void ExpectNative(const Environment& environment, const std::string& why, int warnings,
                         const std::string& wrap = "") {
  Texts texts = {.has = kAllNative, .counts = {{kWarning, warnings}}};
  if (warnings > 0) texts.counts[why] = warnings;
  WellCase("Exchange.Rounds", texts, environment, wrap);
}

}  // namespace nccltune::sendrecv
