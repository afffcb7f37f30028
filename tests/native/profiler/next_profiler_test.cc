// SPDX-License-Identifier: Apache-2.0
//
// Another profiler plugin behind the recorder.
#include "profiler/next_profiler.h"

#include "log_line.h"
#include "program_output.h"
#include "recorded.h"
#include "testing.h"

namespace nccltune::profiler {
namespace {

TEST_F(Recorded, AnOlderPluginGetsEventsOfItsVersion) {
  const std::string log = folder_ + "/log";
  variables_.Set("LOGGING_PROFILER_LOG", log);
  variables_.Set("LOGGING_PROFILER_MASK", "4607");  // all of NCCL 2.28, and copy engines
  const std::vector<ProgramCall> program = {
      {.count = 5}, {.function = "Send", .count = 7}, {.run = ProgramCall::kCopyEngine}};
  for (const auto& [plugin, version] :
       {std::pair{LOGGING_PROFILER_V4, 4}, std::pair{LOGGING_PROFILER_V5, 5}}) {
    fs::remove_all(log);
    const ScopedVariable next("NCCLTUNE_RECORD_NEXT", plugin);
    ASSERT_EQ(InChild([&program] {
                Newest communicator(PROFILER_PLUGIN, "all", 4, 2);
                for (const ProgramCall& call : program) communicator.Play(call);
                return 0;
              }),
              0);
    const std::string text = Content(log);
    EXPECT_EQ(CountIn(text, "init all 1 4 2\n"), 1) << text;
    EXPECT_EQ(CountIn(text, "finalize"), 1) << text;
    EXPECT_EQ(CountIn(text, "start 256 "), version == 4 ? 0 : 3) << text;
    EXPECT_EQ(CountIn(text, "start 4096 "), 0) << text;
    // v4: the parent is the group, whose handle is the number before it.
    EXPECT_EQ(CountIn(text, version == 4 ? "start 2 parent 0x10 rank 3 count 5: 0x20"
                                         : "start 2 parent 0x20 rank 3 count 5: 0x40"),
              1)
        << text;
    EXPECT_EQ(CountIn(text, "start 4 parent"), 1) << text;
  }
}

TEST_F(Recorded, APluginThatRefusesGetsNothing) {
  const std::string log = folder_ + "/log";
  variables_.Set("LOGGING_PROFILER_LOG", log);
  variables_.Set("NCCLTUNE_RECORD_NEXT", LOGGING_PROFILER_V7);
  for (const bool records : {true, false}) {
    for (const bool accepts_first : {true, false}) {
      fs::remove_all(log);
      const ScopedVariable folder("NCCLTUNE_RECORD", records ? this->records().c_str() : "");
      const int expected = (records ? 2 | 4 | 4096 : 0) | (accepts_first ? 8 : 0);
      EXPECT_EQ(InChild([accepts_first, expected] {
                  std::unique_ptr<Newest> first;
                  setenv("LOGGING_PROFILER_MASK", "8", 1);
                  if (accepts_first) first = std::make_unique<Newest>(PROFILER_PLUGIN, "a", 4, 2);
                  setenv("LOGGING_PROFILER_FAILS", "1", 1);
                  setenv("LOGGING_PROFILER_MASK", "512", 1);
                  Newest refused(PROFILER_PLUGIN, "b", 4, 2, &KeepLine);
                  Newest again(PROFILER_PLUGIN, "c", 4, 2, &KeepLine);
                  int lines = 0;
                  for (const std::string& line : TakeLines()) lines += CountIn(line, "refused");
                  refused.Play({.count = 1});
                  return lines == 1 && nccls_mask == expected ? 0 : 1;
                }),
                0)
          << records << accepts_first;
      EXPECT_EQ(CountIn(Content(log), "start"), 0) << Content(log);
    }
  }
}

TEST_F(Recorded, EventsAfterTheEndOfTheirCommunicatorArePassedOn) {
  const std::string log = folder_ + "/log";
  variables_.Set("LOGGING_PROFILER_LOG", log);
  variables_.Set("LOGGING_PROFILER_MASK", "8");
  variables_.Set("NCCLTUNE_RECORD_NEXT", LOGGING_PROFILER_V7);
  EXPECT_EQ(InChild([] {
              Newest(PROFILER_PLUGIN, "all", 4, 2).PlayLate();
              return 0;
            }),
            0);
  EXPECT_EQ(CountIn(Content(log), "start 8 "), 1) << Content(log);
}

TEST_F(Recorded, AnotherPluginMayChangeItsMaskAndWhatAnOperatorSetsStays) {
  const std::string log = folder_ + "/log";
  variables_.Set("LOGGING_PROFILER_LOG", log);
  variables_.Set("LOGGING_PROFILER_MASK", "2");
  variables_.Set("LOGGING_PROFILER_LATER", "10");
  variables_.Set("NCCLTUNE_RECORD_NEXT", LOGGING_PROFILER_V7);
  for (const bool is_set : {false, true}) {
    fs::remove_all(log);
    EXPECT_EQ(InChild([is_set] {
                Newest communicator(PROFILER_PLUGIN, "all", 4, 2);
                if (is_set) nccls_mask = 2;  // NCCL 2.31
                communicator.Play({.count = 1});
                if (is_set && nccls_mask != 2) return 1;
                for (int i = 0; i < (is_set ? 10 : 9); ++i) communicator.Play({.count = 1});
                return (nccls_mask & 8) != 0 ? 0 : 2;  // the plugin's own change
              }),
              0);
    if (is_set) continue;
    // The fifth event is in the second call.
    EXPECT_EQ(CountIn(Content(log), "start 8 "), 8) << Content(log);
  }
}

TEST_F(Recorded, APluginThatCannotBeUsedIsNamedOnce) {
  variables_.Set("LOGGING_PROFILER_LOG", folder_ + "/log");
  const std::vector<std::tuple<const char*, const char*, std::string>> cases = {
      {"/nowhere/libother.so", "", "cannot open shared object file"},
      {PROFILER_PLUGIN, "", "is the recorder itself"},
      {"libc.so.6", "", "has no profiler interface v4 to v7"},
      {LOGGING_PROFILER_V5, "1", "gets all events"}};
  for (const auto& [plugin, fails, sentence] : cases) {
    fs::remove_all(records());
    const ScopedVariable next("NCCLTUNE_RECORD_NEXT", plugin);
    const ScopedVariable fail("LOGGING_PROFILER_FAILS", *fails == '\0' ? nullptr : fails);
    EXPECT_EQ(InChild([&sentence] {
                for (int i = 0; i < 2; ++i) {
                  Newest communicator(PROFILER_PLUGIN, "all", 4, 2, &KeepLine);
                  communicator.Play({.count = 1});
                }
                int named = 0;
                for (const std::string& line : TakeLines()) named += CountIn(line, sentence);
                return named == 1 ? 0 : 1;
              }),
              0)
        << sentence;
    EXPECT_EQ(RowsOf(OnlyFile(), "calls"), (Rows{{"AllReduce 4 ncclFloat32 ", 2}}));
  }
}

}  // namespace
}  // namespace nccltune::profiler
