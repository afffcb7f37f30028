// SPDX-License-Identifier: Apache-2.0
// The result of init for an environment and a file, and its log lines. The test program exports
// ncclGetVersion itself (support.h), like a program that is linked with NCCL.
#include "tuner/startup.h"
#include "abi/tuner.h"
#include "common/content_hash.h"
#include "common/text.h"
#include "host/plugin_log.h"
#include "testing.h"
#include "tuner/config.h"
#include "tuner/rule_set.h"
#include "tuner/support.h"

// What happens while the plugin pauses between two reads of a file.
static std::function<void()> on_pause;
extern "C" int usleep(useconds_t us) {
  if (on_pause) on_pause();
  std::this_thread::sleep_for(std::chrono::microseconds(us));
  return 0;
}

namespace nccltune::tuner {
namespace {

using Lines = std::vector<std::string>;

Pair ChoiceOf(const TestTuner& tuner) {
  Call call;
  call.collective = abi::kAllReduce;
  call.bytes = 5;
  return Chosen(tuner.Ask(call), tuner.version());
}

class StartupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ForgetWarnings();
    ForgetConfig();
    TakeLog();
    SetNcclVersion(22809);
  }
  void TearDown() override { SetNcclVersion(0); }

  // Returns the log of one init with this configuration.
  static Lines Start(const ScopedFile& file, int version = 5, Scale scale = {4, 32}) {
    const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
    const TestTuner tuner(version, scale);
    return TakeLog();
  }

  static bool Decides(const ScopedFile& file) {
    const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
    return ChoiceOf(TestTuner(5, {4, 32})) != Pair{};
  }

  static std::string Prefix(const char* level) { return std::string(level) + " TUNER/nccltune: "; }

  ScopedVariable no_config_{"NCCLTUNE_CONFIG", nullptr};
  ScopedVariable no_nccl_config_{"NCCL_TUNER_CONFIG_FILE", nullptr};
  ScopedVariable no_strict_{"NCCLTUNE_STRICT", nullptr};
  ScopedVariable no_stale_{"NCCLTUNE_STALE", nullptr};
  ScopedVariable no_hash_{"NCCLTUNE_CONFIG_HASH", nullptr};
};

constexpr const char* kRule = "allreduce,0,9,tree,ll,-1,-1,-1\n";

TEST_F(StartupTest, LogsWhatTheFileResultedIn) {
  const std::string content =
      "# nccltune: schema=1 nccl=2.28.3\n"
      "allreduce,0,9,tree,ll,-1,4,32\n"
      "allreduce,0,9,ring,ll,8,4,-1\n"
      "allreduce,2,3,tree,ll,-1,4,32\n"
      "allreduce,0,9,tree,ll,-1,2,16\n"
      "allreduce,0,9,tree,ll,-1,1,8\n";
  const ScopedFile file(content);
  EXPECT_EQ(Start(file),
            Lines{Prefix("INFO") + file.path() + " (content " + Hex64(ContentHash(content)) +
                  "): 2 of 5 rules apply to 4 nodes, 32 ranks; dropped: 2 other scale, 1 shadowed, "
                  "0 bad lines; interface v5, NCCL 2.28.9"});
}

TEST_F(StartupTest, WithoutAFileOneQuietLine) {
  const TestTuner tuner(6, {1, 8});
  EXPECT_EQ(TakeLog(), Lines{Prefix("INFO") +
                             "no rules, NCCLTUNE_CONFIG and NCCL_TUNER_CONFIG_FILE are not set; "
                             "interface v6, NCCL 2.28.9"});
}

TEST_F(StartupTest, AnUnknownNcclIsLoggedAsUnknown) {
  SetNcclVersion(0);
  const TestTuner tuner(6, {1, 8});
  EXPECT_TRUE(Has(TakeLog().at(0), "interface v6, NCCL unknown"));
}

TEST_F(StartupTest, OurVariableComesBeforeNvidias) {
  const ScopedFile ours(kRule);
  const ScopedFile theirs(kRule);
  const ScopedVariable nvidias("NCCL_TUNER_CONFIG_FILE", theirs.path().c_str());
  EXPECT_TRUE(Has(Start(ours).at(0), ours.path()));
  const ScopedVariable empty("NCCLTUNE_CONFIG", "");
  const TestTuner tuner(5, {4, 32});
  EXPECT_TRUE(Has(TakeLog().at(0), theirs.path()));
}

TEST_F(StartupTest, FilesThatCannotBeReadAreWarnedAbout) {
  struct Case {
    std::string path;
    const char* reason;
  };
  const std::string pipe = ::testing::TempDir() + "nccltune-pipe-" + std::to_string(getpid());
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Case cases[] = {{"/nonexistent/tuner.conf", "No such file or directory"},
                        {::testing::TempDir(), "is a directory"},
                        {"/dev/null", "is not a regular file"},
                        {pipe, "is not a regular file"}};
  for (const Case& c : cases) {
    const ScopedVariable config("NCCL_TUNER_CONFIG_FILE", c.path.c_str());
    const TestTuner tuner(5, {4, 32});
    EXPECT_EQ(TakeLog(), (Lines{Prefix("WARN") + "NCCL_TUNER_CONFIG_FILE=" + c.path + ": " +
                                    c.reason + ": no rules, NCCL decides everything",
                                Prefix("INFO") + "no rules, " + c.path +
                                    " cannot be read; interface v5, NCCL 2.28.9"}));
  }
  unlink(pipe.c_str());
}

TEST_F(StartupTest, AHugeFileIsNotRead) {
  const ScopedFile file("");
  ASSERT_EQ(truncate(file.path().c_str(), off_t{1} << 40U), 0);
  const Lines lines = Start(file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(Has(lines[0], "has 1099511627776 bytes, more than 33554432"));
}

TEST_F(StartupTest, BadLinesAreWarnedAboutAndTheRestWorks) {
  const ScopedFile file(std::string("allreduce,0,9,NVLS,ll,-1,-1,-1\n") + kRule);
  const Lines lines = Start(file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], Prefix("WARN") + file.path() +
                          ":1: column 4 (algorithm): 'NVLS' is not an algorithm; did you mean "
                          "'nvls'? names are lower case without spaces: tree ring collnet_direct "
                          "collnet_chain nvls nvls_tree pat");
  EXPECT_TRUE(Has(lines[1], "1 of 1 rule applies"));
  EXPECT_TRUE(Has(lines[1], "1 bad line;"));
  EXPECT_TRUE(Decides(file));
}

TEST_F(StartupTest, AFileOfRubbishDoesNotFloodTheLog) {
  std::string content;
  for (int i = 0; i < 5000; ++i) content += "rubbish " + std::to_string(i) + "\n";
  const Lines lines = Start(ScopedFile(content));
  ASSERT_EQ(lines.size(), 18U);  // 16 problems, the number of further ones, and the summary
  EXPECT_TRUE(Has(lines[16], "4984 more lines like these"));
  EXPECT_TRUE(Has(lines[17], "5000 bad lines"));
}

TEST_F(StartupTest, WarningsComeOnceAProcessAndTheSummaryEachTime) {
  const ScopedFile file("rubbish\n");
  EXPECT_EQ(Start(file).size(), 2U);
  EXPECT_EQ(Start(file).size(), 1U);
}

TEST_F(StartupTest, StrictTakesNoRuleFromABadFile) {
  const ScopedFile bad(std::string("rubbish\n") + kRule);
  const ScopedFile good(kRule);
  const ScopedVariable strict("NCCLTUNE_STRICT", "1");
  const Lines lines = Start(bad);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[1],
            Prefix("WARN") + bad.path() + ": 1 bad line and NCCLTUNE_STRICT=1: no rule is used");
  EXPECT_TRUE(Has(lines[2],
                  "0 of 1 rule applies to 4 nodes, 32 ranks; dropped: all by "
                  "NCCLTUNE_STRICT=1, 1 bad line"));
  EXPECT_FALSE(Decides(bad));
  EXPECT_TRUE(Decides(good));
}

TEST_F(StartupTest, StrictDoesNotMindNotes) {
  const ScopedFile file(std::string("# nccltune: schema=2\n") + kRule);
  const ScopedVariable strict("NCCLTUNE_STRICT", "1");
  EXPECT_TRUE(Decides(file));
}

TEST_F(StartupTest, ABadValueOfASettingIsNamed) {
  const ScopedFile file(kRule);
  const ScopedVariable strict("NCCLTUNE_STRICT", "yes");
  const ScopedVariable stale("NCCLTUNE_STALE", "Warm");
  const Lines lines = Start(file);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], Prefix("WARN") + "NCCLTUNE_STRICT='yes' is not one of 0 1; using 0");
  EXPECT_EQ(lines[1], Prefix("WARN") +
                          "NCCLTUNE_STALE='Warm' is not one of warn off; did you mean 'warn'? "
                          "using warn");
}

TEST_F(StartupTest, UnknownSettingsAreWarnedAboutOnce) {
  const ScopedVariable typo("NCCLTUNE_CONFG", "/etc/tuner.conf");
  const ScopedVariable other("NCCLTUNE_SOMETHING_ELSE", "1");
  const ScopedVariable known("NCCLTUNE_NATIVE_DIR", "/opt");
  const ScopedFile file(kRule);
  Lines lines = Start(file);
  ASSERT_EQ(lines.size(), 3U);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines[1], Prefix("WARN") +
                          "NCCLTUNE_CONFG is not a setting of nccltune and is ignored; did you "
                          "mean NCCLTUNE_CONFIG?");
  EXPECT_EQ(lines[2],
            Prefix("WARN") + "NCCLTUNE_SOMETHING_ELSE is not a setting of nccltune and is ignored");
  EXPECT_EQ(Start(file).size(), 1U);
}

TEST_F(StartupTest, RulesOfAnotherNcclAreStale) {
  const ScopedFile file(std::string("# nccltune: nccl=2.27.3\n") + kRule);
  const Lines lines = Start(file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], Prefix("WARN") + file.path() +
                          ": stale rules, measured on NCCL 2.27.3 (this is 2.28.9); they are used "
                          "anyway; measure again, or disable them with NCCLTUNE_STALE=off");
  EXPECT_TRUE(Decides(file));
}

TEST_F(StartupTest, AnotherDriverIsNamedAndChangesNothing) {
  const ScopedFile driver("580.159.04\n");
  const ScopedVariable stale("NCCLTUNE_STALE", "off");
  const auto start = [&](const std::string& header, const char* driver_file) {
    const ScopedFile file("# nccltune: " + header + "\n" + kRule);
    const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
    ForgetConfig();
    const auto made = StartCommunicator({5, {4, 32}, host::plugin_log::Function(), driver_file});
    Lines lines = TakeLog();
    EXPECT_EQ(made->rules.counts().applied, header.find("2.27") == std::string::npos ? 1U : 0U);
    lines.pop_back();
    return lines.empty() ? "" : lines[0].substr(lines[0].find(": ", file.path().size()) + 2);
  };
  const char* const here = driver.path().c_str();
  EXPECT_EQ(
      start("nccl=2.28.9 driver=570.86.10", here),
      "rules measured on driver 570.86.10 (this is 580.159.04); they are used; nccltune check "
      "shows whether they still hold");
  EXPECT_TRUE(Has(start("nccl=2.27.3 driver=570.86.10", here),
                  "stale rules, measured on NCCL 2.27.3 (this is 2.28.9) and driver 570.86.10 "
                  "(this is 580.159.04); NCCLTUNE_STALE=off: no rule is used"));
  EXPECT_EQ(start("nccl=2.28.9 driver=580.159.04", here), "");
  EXPECT_EQ(start("nccl=2.28.9", here), "");
  EXPECT_EQ(start("nccl=2.28.9 driver=570.86.10", "/nowhere"), "");
}

TEST_F(StartupTest, AFileWithoutRulesIsNotStale) {
  const ScopedFile file("# nccltune: nccl=2.27.3\n");
  EXPECT_EQ(Start(file).size(), 1U);
}

TEST_F(StartupTest, StaleRulesCanBeSwitchedOff) {
  const ScopedFile stale_file(std::string("# nccltune: nccl=2.27.3\n") + kRule);
  const ScopedFile fresh_file(std::string("# nccltune: nccl=2.28.1\n") + kRule);
  const ScopedFile silent_file(kRule);
  const ScopedVariable stale("NCCLTUNE_STALE", "off");
  const Lines lines = Start(stale_file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(Has(lines[0], "NCCLTUNE_STALE=off: no rule is used"));
  EXPECT_TRUE(Has(lines[1],
                  "0 of 1 rule applies to 4 nodes, 32 ranks; dropped: all as stale by "
                  "NCCLTUNE_STALE=off, 0 bad lines"));
  EXPECT_FALSE(Decides(stale_file));
  EXPECT_TRUE(Decides(fresh_file));   // a patch release makes no difference
  EXPECT_TRUE(Decides(silent_file));  // a file without these values is not stale
  SetNcclVersion(0);
  EXPECT_TRUE(Decides(stale_file));  // the running platform is unknown
}

// What the last line says of one row, by interface and NCCL.
TEST_F(StartupTest, WhatHasNoEffectHereIsLogged) {
  struct Case {
    const char* row;
    int interface;
    int nccl;
    const char* has;
    const char* lacks;
  };
  constexpr const char* kChannels = "allreduce,0,9,tree,ll,8,-1,-1\n";
  constexpr const char* kChunk = "allreduce,0,9,tree,ll,-1,-1,-1,-1,-1,4096\n";
  constexpr const char* kPat = "allgather,0,9,pat,simple,-1,-1,-1\n";
  constexpr const char* kRegistered = "allreduce,0,9,tree,ll,8,-1,-1,-1,1\n";
  for (const Case& c :
       {Case{kChannels, 6, 23007, "1 of 1", "channels only lower"},
        Case{kChannels, 6, 23102, "; channels only lower NCCL's own number since NCCL 2.31", "\n"},
        Case{kRule, 6, 23102, "1 of 1", "channels only lower"},
        Case{kChunk, 5, 22809, "; chunk sizes have no effect before NCCL 2.30", "\n"},
        Case{kChunk, 6, 22809, "1 of 1", "chunk"}, Case{kRule, 5, 22809, "1 of 1", "chunk"},
        Case{kPat, 3, 22203, "; rules for PAT have no effect before NCCL 2.23", "\n"},
        Case{kPat, 3, 22304, "1 of 1", "PAT"},
        Case{kRegistered, 3, 22809, "0 of 1 rule applies", "\n"},
        Case{kRegistered, 3, 22809, "1 on registered buffers (passed since v4)", "\n"},
        Case{kRegistered, 4, 22809, "1 of 1 rule applies", "\n"}}) {
    SetNcclVersion(c.nccl);
    ForgetConfig();
    const std::string line = Start(ScopedFile(c.row), c.interface).back();
    EXPECT_TRUE(Has(line, c.has)) << line;
    EXPECT_FALSE(Has(line, c.lacks)) << line;
  }
}

void Rewrite(const ScopedFile& file, std::string_view text) {
  std::ofstream(file.path(), std::ios::binary | std::ios::trunc) << text;
}

// Ranks create a later communicator at different times, so that a new file would be seen by some.
TEST_F(StartupTest, TheFileIsReadOnceInAProcess) {
  const ScopedFile file("allreduce,0,9,tree,ll,-1,-1,-1\n");
  const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
  const TestTuner first(5, {4, 32});
  for (const char* const later : {"allreduce,0,9,ring,ll,-1,-1,-1\n", "rubbish\n", ""}) {
    Rewrite(file, later);
    EXPECT_EQ(ChoiceOf(TestTuner(5, {4, 32})), (Pair{abi::kTree, abi::kLl}));
  }
  unlink(file.path().c_str());
  EXPECT_EQ(ChoiceOf(TestTuner(5, {4, 32})), (Pair{abi::kTree, abi::kLl}));
  const ScopedFile other("allreduce,0,9,ring,ll,-1,-1,-1\n");
  const ScopedVariable moved("NCCLTUNE_CONFIG", other.path().c_str());
  EXPECT_EQ(ChoiceOf(TestTuner(5, {4, 32})), (Pair{abi::kRing, abi::kLl}));
}

constexpr const char* kWhole =
    "# nccltune: schema=1 end=below\n"
    "allreduce,0,4,ring,ll,-1,4,320\n"
    "allreduce,0,9,tree,ll,-1,4,32\n"
    "allreduce,0,9,ring,ll,-1,4,320\n"
    "# nccltune: end=here\n";

TEST_F(StartupTest, APartOfAFileIsNamed) {
  const std::string whole = kWhole;
  const ScopedFile part(whole.substr(0, whole.rfind('#')));
  const Lines lines = Start(part);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(
      Has(lines[0], "the file is cut off, its last line '# nccltune: end=here' is missing"));
  EXPECT_TRUE(Has(lines[1], "dropped: all, the file is cut off; "));
  EXPECT_TRUE(Has(Start(ScopedFile("")).at(0), "the file is empty"));
}

TEST_F(StartupTest, AFileThatIsBeingWrittenIsReadAgain) {
  const std::string whole = kWhole;
  const ScopedFile file(whole.substr(0, whole.find("320") + 2));
  int pauses = 0;
  on_pause = [&] {
    if (++pauses == 3) Rewrite(file, whole);
  };
  EXPECT_TRUE(Decides(file));
  on_pause = nullptr;
  EXPECT_EQ(pauses, 3);
}

TEST_F(StartupTest, AWriterBesideManyCommunicatorsNeverGivesATornRule) {
  const std::string whole = kWhole;
  const ScopedFile file(whole);
  const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (size_t cut = 1; !stop; cut = cut % (whole.size() - 1) + 1) {
      std::ofstream out(file.path(), std::ios::binary | std::ios::trunc);
      out << whole.substr(0, cut) << std::flush << whole.substr(cut) << std::flush;
    }
  });
  size_t used = 0;
  for (int i = 0; i < 40; ++i) {
    ForgetConfig();
    ForgetWarnings();
    const Pair chosen = ChoiceOf(TestTuner(5, {4, 32}));
    const Lines lines = TakeLog();
    if (chosen != Pair{}) {
      EXPECT_EQ(chosen, (Pair{abi::kTree, abi::kLl}));
      EXPECT_TRUE(Has(lines.back(), "1 of 3 rules apply")) << lines.back();
      ++used;
    } else {
      // A first line that is cut off does not say yet that an end follows.
      EXPECT_TRUE(lines.at(0).starts_with("WARN") ||
                  lines[0].find(": 0 of 0 rules apply") != std::string::npos)
          << lines[0];
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(used, 0U);
}

TEST_F(StartupTest, OnlyTheExpectedContentIsUsed) {
  const ScopedFile file(kRule);
  {
    const ScopedVariable hash("NCCLTUNE_CONFIG_HASH", Hex64(ContentHash(kRule)).c_str());
    EXPECT_EQ(Start(file).size(), 1U);
    EXPECT_TRUE(Decides(file));
  }
  for (const char* const wrong : {"0123456789abcdef", "0", "x"}) {
    const ScopedVariable hash("NCCLTUNE_CONFIG_HASH", wrong);
    ForgetConfig();
    TakeLog();
    const Lines lines = Start(file);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_TRUE(lines[0].starts_with(Prefix("WARN") + file.path() + ": its content is " +
                                     Hex64(ContentHash(kRule)) + ", and NCCLTUNE_CONFIG_HASH='" +
                                     wrong + "': no rule is used"))
        << lines[0];
    EXPECT_TRUE(Has(lines[1], "dropped: all by NCCLTUNE_CONFIG_HASH; "));
    EXPECT_FALSE(Decides(file));
    TakeLog();
    EXPECT_EQ(Start(file).size(), 1U) << "it is warned of once";
  }
}

TEST_F(StartupTest, FactsThatRanksMaySeeDifferentlyAreWarnedAbout) {
  const ScopedFile registered(
      "allreduce,0,9,tree,ll,8,4,32,-1,1\nallreduce,0,9,tree,ll,8,2,8,-1,0\n");
  const Lines lines = Start(registered);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(Has(lines[0], "1 rule applies only to registered buffers"));
  EXPECT_EQ(Start(registered, 3).size(), 1U) << "the interface passes no registration";
  // This process has no CUDA context.
  const ScopedFile of_a_gpu(std::string("# nccltune: gpu=\"NVIDIA H200\"\n") + kRule);
  EXPECT_EQ(Start(of_a_gpu).size(), 1U);
  const ScopedVariable stale("NCCLTUNE_STALE", "off");
  EXPECT_TRUE(Has(Start(of_a_gpu).at(0), "this rank has no CUDA context"));
}

TEST_F(StartupTest, LongPathsDoNotOverrunNcclsLine) {
  const std::string path = "/" + std::string(4000, 'p');
  const ScopedVariable config("NCCLTUNE_CONFIG", path.c_str());
  const TestTuner tuner(5, {4, 32});
  const Lines lines = TakeLog();
  ASSERT_EQ(lines.size(), 2U);
  for (const std::string& line : lines) EXPECT_LT(line.size(), 820U);
}

TEST_F(StartupTest, ManyThreadsMakeCommunicatorsAtOnce) {
  const ScopedFile file(
      "rubbish\n"
      "allreduce,0,9,tree,ll,-1,4,32\n"
      "allreduce,0,9,ring,ll,-1,1,8\n");
  const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 30; ++i) {
        const bool large = (static_cast<size_t>(i) + t) % 2 == 0;
        const TestTuner tuner(2 + static_cast<int>(t) % 6, large ? Scale{4, 32} : Scale{1, 8});
        if (ChoiceOf(tuner) != Pair{large ? abi::kTree : abi::kRing, abi::kLl}) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
  const Lines lines = TakeLog();
  EXPECT_EQ(lines.size(), 8 * 30 + 1U);  // one INFO each, the WARN once
}

using Reasons = std::vector<std::string>;

ConfigHeader Header(std::optional<NcclVersion> nccl, std::optional<std::string> gpu) {
  ConfigHeader header;
  header.nccl = nccl;
  header.gpu = std::move(gpu);
  return header;
}

const RunningPlatform kHere = {NcclVersion{2, 28, 9}, "NVIDIA H200"};

TEST(Provenance, NamesWhatIsKnownAndOtherwise) {
  EXPECT_EQ(StaleReasons(Header(NcclVersion{2, 28, 9}, "NVIDIA H200"), kHere), Reasons{});
  EXPECT_EQ(StaleReasons(Header(NcclVersion{2, 28, 3}, "NVIDIA H200"), kHere), Reasons{});
  EXPECT_EQ(StaleReasons(Header(NcclVersion{2, 30, 0}, "NVIDIA H100"), kHere),
            (Reasons{"NCCL 2.30.0 (this is 2.28.9)", "'NVIDIA H100' (this is 'NVIDIA H200')"}));
  EXPECT_EQ(StaleReasons(Header(NcclVersion{3, 28, 9}, {}), kHere),
            Reasons{"NCCL 3.28.9 (this is 2.28.9)"});
  EXPECT_EQ(StaleReasons(Header({}, {}), kHere), Reasons{});
  EXPECT_EQ(StaleReasons(Header(NcclVersion{2, 20, 1}, "A"), {}), Reasons{});
}

TEST(Provenance, MeasuredHereNeedsBothToBeKnownAndEqual) {
  EXPECT_TRUE(MeasuredHere(Header(NcclVersion{2, 28, 3}, "NVIDIA H200"), kHere));
  EXPECT_FALSE(MeasuredHere(Header(NcclVersion{2, 28, 3}, {}), kHere));
  EXPECT_FALSE(MeasuredHere(Header({}, "NVIDIA H200"), kHere));
  EXPECT_FALSE(MeasuredHere(Header(NcclVersion{2, 28, 3}, "NVIDIA H100"), kHere));
  EXPECT_FALSE(MeasuredHere(Header(NcclVersion{2, 28, 3}, "NVIDIA H200"), {kHere.nccl, {}}));
}

TEST(Provenance, TheGpuIsThatOfTheCurrentContext) {
  EXPECT_EQ(FindRunning(nullptr).gpu, std::nullopt);  // libcuda is not loaded
  {
    const ScopedLibrary cuda(CUDA_DOUBLE);
    auto* const set_device = cuda.Find<void(int)>("set_current_device");
    ASSERT_NE(set_device, nullptr);
    set_device(-1);
    EXPECT_EQ(FindRunning(nullptr).gpu, std::nullopt);  // no context
    EXPECT_EQ(FindRunning(nullptr).device, -1);
    set_device(3);
    EXPECT_EQ(FindRunning(nullptr).gpu, "Double 3");
    EXPECT_EQ(FindRunning(nullptr).device, 3);
  }
  EXPECT_EQ(FindRunning(nullptr).gpu, std::nullopt);  // the query must not keep it loaded
}

TEST(Provenance, TheNcclIsTheOneThatHandedOverTheLogger) {
  SetNcclVersion(22809);  // a global symbol of the program
  const ScopedLibrary nccl(NCCL_LIBRARY_DOUBLE);
  auto* const logger =
      nccl.Find<void(abi::LogLevel, unsigned long, const char*, int, const char*, ...)>(
          "nccl_double_logger");
  ASSERT_NE(logger, nullptr);
  EXPECT_EQ(FindRunning(logger).nccl, (NcclVersion{2, 21, 5}));
  EXPECT_EQ(FindRunning(nullptr).nccl, (NcclVersion{2, 28, 9}));
  SetNcclVersion(0);
  EXPECT_EQ(FindRunning(nullptr).nccl, std::nullopt);
}

// The counters of a page, as another program reads them; index 0 has the calls without a rule.
std::vector<uint64_t> HitsOf(int fd) {
  std::vector<uint64_t> words(4096);
  const ssize_t bytes = pread(fd, words.data(), words.size() * 8, 0);
  words.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes) / 8);
  if (words.size() < sizeof(HitsBlock) / 8) return {};
  EXPECT_EQ(std::memcmp(words.data(), "ncclhits", 8), 0);
  EXPECT_EQ(words[1], 1U);
  EXPECT_EQ(words[2], words.size() * 8);
  EXPECT_EQ(words[5], static_cast<uint64_t>(getpid()));
  const std::string path = reinterpret_cast<const char*>(words.data() + 8);
  EXPECT_EQ(path.substr(path.rfind('/') + 1, 9), "nccltune-");
  words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(words[3] / 8));
  return words;
}

void AskAllReduce(const TestTuner& tuner, std::initializer_list<uint64_t> sizes) {
  for (const uint64_t bytes : sizes) {
    Call call;
    call.collective = abi::kAllReduce;
    call.bytes = bytes;
    tuner.Ask(call);
  }
}

constexpr const char* kTwoRows =
    "# a comment\nallreduce,0,4096,tree,ll,-1,4,32,-1,-1\n\n"
    "allreduce,4097,1048576,ring,ll128,-1,4,32,-1,-1\n";

TEST_F(StartupTest, CallsAreCountedByTheRowThatDecidesThemWhereOtherProgramsSeeIt) {
  const ScopedFile file(kTwoRows);
  const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
  ASSERT_TRUE(OpenMemory(kHitsName).empty());
  {
    const TestTuner tuner(5, {4, 32});
    const TestTuner other_scale(5, {2, 16});
    const std::vector<int> pages = OpenMemory(kHitsName);
    ASSERT_EQ(pages.size(), 1U) << "one page for a file, however many communicators";
    EXPECT_EQ(HitsOf(pages[0]), (std::vector<uint64_t>{0, 0, 0, 0, 0}));
    AskAllReduce(tuner, {8, 4096, 65536, 4 << 20});
    AskAllReduce(other_scale, {8});
    EXPECT_EQ(HitsOf(pages[0]), (std::vector<uint64_t>{2, 0, 2, 0, 1}));
  }
  ForgetConfig();
  EXPECT_TRUE(OpenMemory(kHitsName).empty());
}

TEST_F(StartupTest, AFileWithoutRowsIsNotCounted) {
  const ScopedFile file("# nothing\n");
  const ScopedVariable config("NCCLTUNE_CONFIG", file.path().c_str());
  const TestTuner tuner(5, {4, 32});
  EXPECT_TRUE(OpenMemory(kHitsName).empty());
}

TEST_F(StartupTest, RowsDecideWhereTheirCallsCannotBeCountedForOthers) {
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const ScopedFile file(kTwoRows);
  const rlimit none = {64, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  EXPECT_TRUE(Decides(file));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(OpenMemory(kHitsName).empty());
}

}  // namespace
}  // namespace nccltune::tuner
