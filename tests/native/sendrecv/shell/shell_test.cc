// SPDX-License-Identifier: Apache-2.0
// Tests of the shell in front of a fake NCCL, in separate programs, loaded in both ways.
#include "program_output.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

const std::string kFake = FAKE_NCCL;
const std::string kFakeFolder = kFake.substr(0, kFake.rfind('/'));
const std::string kOld = FAKE_OLD_NCCL;
const std::string kOldFolder = kOld.substr(0, kOld.rfind('/'));
const std::string kAsNccl = SHELL_AS_NCCL;
const std::string kAsNcclFolder = kAsNccl.substr(0, kAsNccl.rfind('/'));
const std::string kProbeAsNccl = PROBE_AS_NCCL;
const std::string kProbeFolder = kProbeAsNccl.substr(0, kProbeAsNccl.rfind('/'));
constexpr int kFunctions = 193;
const std::string kMade = "made: on, NCCL 22809, " + kFake + "\n";  // by the probe
const Environment kOn = {{"NCCLTUNE_SENDRECV", "1"}};

// Returns standard output and standard error, followed by the exit status if it is not 0.
std::string OutputOf(const std::string& command, Environment environment) {
  environment.insert({{"NCCLTUNE_SENDRECV", kUnset}, {"NCCLTUNE_SENDRECV_NCCL", kUnset}});
  return AllOutputOf(InEnvironment(environment, command));
}

// Runs a program that is linked with NCCL, with our library preloaded.
std::string Preloaded(const std::string& what, const std::string& library,
                      Environment environment = {}) {
  environment.emplace("LD_LIBRARY_PATH", kFakeFolder);
  environment.emplace("FAKE_NCCL", kFake);
  environment.emplace("LD_PRELOAD", library);
  return OutputOf(LINKED_PROGRAM " " + what, environment);
}

// Runs the same program so that it finds our library by NCCL's name, and the fake NCCL after it.
std::string AsNccl(const std::string& what, const std::string& folder,
                   Environment environment = {}) {
  environment.emplace("LD_LIBRARY_PATH", folder + ":" + kFakeFolder);
  environment.emplace("FAKE_NCCL", kFake);
  return OutputOf(LINKED_PROGRAM " " + what, environment);
}

std::string Called(const std::string& how) {
  const std::string functions = std::to_string(kFunctions);
  return "called " + how + functions + ", wrong 0\n";
}

TEST(Shell, ForwardsEachFunctionWithAllItsArgumentsAndAsTheFirstCall) {
  for (const auto& [what, how] : {std::pair("all", ""), std::pair("firsts", "first ")}) {
    EXPECT_EQ(Preloaded(what, SHELL), Called(how));
    EXPECT_EQ(AsNccl(what, kAsNcclFolder), Called(how));
  }
}

// On a machine with GPUs there is no reason to print.
TEST(Shell, TheShippedInterceptorForwardsAndLogsOnceWhyWithoutAGpu) {
  const std::string well = "init well, id well\nsend 0, count well\n";
  for (const char* const mode : {"1", "dry-run"}) {
    for (std::string printed : {Preloaded("typed", SHELL, {{"NCCLTUNE_SENDRECV", mode}}),
                                AsNccl("typed", kAsNcclFolder, {{"NCCLTUNE_SENDRECV", mode}})}) {
      const size_t warning = printed.find("NCCL carries all sends and receives: ");
      if (warning != std::string::npos) printed.erase(0, printed.find('\n', warning) + 1);
      EXPECT_EQ(printed, well) << mode;
    }
  }
}

TEST(Shell, ProgramsThatOpenNcclByPathOrName) {
  const Environment environment = {{"LD_LIBRARY_PATH", kAsNcclFolder + ":" + kFakeFolder},
                                   {"FAKE_NCCL", kFake}};
  EXPECT_EQ(OutputOf(PROGRAM " open " + kAsNccl + " all", environment), Called(""));
  EXPECT_EQ(OutputOf(PROGRAM " open libnccl.so.2 all", environment), Called(""));
}

TEST(Shell, ProgramsThatBindDeeply) {
#ifdef NCCLTUNE_SANITIZED
  GTEST_SKIP() << "sanitizers refuse RTLD_DEEPBIND";
#endif
  const Environment environment = {{"LD_LIBRARY_PATH", kFakeFolder}, {"FAKE_NCCL", kFake}};
  EXPECT_EQ(OutputOf(PROGRAM " deep " + kAsNccl + " all", environment), Called(""));
  EXPECT_EQ(OutputOf(PROGRAM " deep " + kProbeAsNccl + " ncclCommInitAll",
                     {{"LD_LIBRARY_PATH", kFakeFolder}, {"NCCLTUNE_SENDRECV", "1"}}),
            kMade + "intercepted CommInitAll\nncclCommInitAll: forwarded\n");
}

TEST(Shell, ModulesWithAnNcclThatNobodyElseSees) {
  const std::string seen = kMade + "intercepted Send 0 0 0\nncclSend: forwarded\n";
  EXPECT_EQ(OutputOf(PROGRAM " module " MODULE " ModuleSends", {{"LD_LIBRARY_PATH", kFakeFolder},
                                                                {"LD_PRELOAD", PROBE},
                                                                {"NCCLTUNE_SENDRECV", "1"}}),
            seen);
  EXPECT_EQ(
      OutputOf(PROGRAM " module " MODULE " ModuleSends",
               {{"LD_LIBRARY_PATH", kProbeFolder + ":" + kFakeFolder}, {"NCCLTUNE_SENDRECV", "1"}}),
      seen);
}

TEST(Shell, AnInterceptorIsMadeOnceAndOnlyWhereItIsAskedFor) {
  EXPECT_EQ(Preloaded("ncclSend ncclRecv", PROBE), "ncclSend: forwarded\nncclRecv: forwarded\n");
  EXPECT_EQ(Preloaded("ncclSend", PROBE, {{"NCCLTUNE_SENDRECV", "0"}}), "ncclSend: forwarded\n");
  for (const std::string mode : {"verify", "dry-run"}) {
    EXPECT_EQ(Preloaded("ncclSend ncclRecv", PROBE, {{"NCCLTUNE_SENDRECV", mode}}),
              "made: " + mode + ", NCCL 22809, " + kFake +
                  "\nintercepted Send 0 0 0\nncclSend: forwarded\nintercepted Recv\n"
                  "ncclRecv: forwarded\n");
  }
}

TEST(Shell, AnInterceptorSeesTheseCallsByBothNames) {
  const std::vector<std::string> calls = {
      "CommInitRankScalable",
      "CommInitAll",
      "CommSplit",
      "CommShrink",
      "CommDestroy",
      "CommAbort",
      "CommRevoke",
      "GroupStart",
      "GroupEnd",
      "Recv",
      "RedOpDestroy",
      "GroupSimulateEnd",
      "CommInitRank",
      "CommGetAsyncError",
  };
  std::string what;
  std::string expected = kMade;
  for (const std::string& call : calls) {
    what += "nccl" + call + " pnccl" + call + " ";
    expected += "intercepted " + call + "\nnccl" + call + ": forwarded\n";
    expected += "intercepted " + call + "\npnccl" + call + ": forwarded to nccl" + call + "\n";
  }
  EXPECT_EQ(Preloaded(what, PROBE, kOn), expected);
  EXPECT_EQ(AsNccl(what, kProbeFolder, kOn), expected);
}

TEST(Shell, AnInterceptorGetsTheArgumentsOfItsCalls) {
  const std::string enqueues = "intercepted a call that enqueues\n";
  const std::pair<const char*, std::string> cases[] = {
      {"typed",
       "intercepted CommInitRankConfig 8 1 128 5\ninit well, id well\n"
       "intercepted Send 1099511627776 9 3\nsend 0, count well\n"},
      // Other calls pass it by.
      {"ncclMemAlloc pncclCommCount ncclCommWindowRegister",
       "ncclMemAlloc: forwarded\npncclCommCount: forwarded\nncclCommWindowRegister: forwarded\n"},
      {"ncclAllReduce pncclPutSignal ncclAlltoAllConfig",
       enqueues + "ncclAllReduce: forwarded\n" + enqueues + "pncclPutSignal: forwarded\n" +
           enqueues + "ncclAlltoAllConfig: forwarded\n"},
      // NCCL calls itself, from the program's thread, and then from a thread of its own.
      {"ncclCommInitAll ncclCommAbort",
       "intercepted CommInitAll\nncclCommInitAll: forwarded\n"
       "intercepted CommAbort\nncclCommAbort: forwarded\n"}};
  for (const auto& [what, seen] : cases) EXPECT_EQ(Preloaded(what, PROBE, kOn), kMade + seen);
}

TEST(Shell, WhatAnInterceptorThrowsEndsThere) {
  EXPECT_EQ(Preloaded("ncclSend", PROBE, {{"NCCLTUNE_SENDRECV", "1"}, {"PROBE", "throws"}}),
            kMade + "intercepted Send 0 0 0\nncclSend: 3\n");
  const std::string failed =
      Preloaded("ncclSend", PROBE, {{"NCCLTUNE_SENDRECV", "1"}, {"PROBE", "fails"}});
  EXPECT_TRUE(Has(failed, "everything goes straight to NCCL")) << failed;
  EXPECT_TRUE(Has(failed, "ncclSend: forwarded")) << failed;
  EXPECT_EQ(Preloaded("ncclSend", PROBE, {{"NCCLTUNE_SENDRECV", "1"}, {"PROBE", "nothing"}}),
            kMade + "ncclSend: forwarded\n");
}

TEST(Shell, OthersBeforeNcclGoOnOnceAndDoNotGoRound) {
  // The tracer is loaded after our library. It calls NCCL's pnccl name, which is ours again.
  EXPECT_EQ(Preloaded("ncclSend", std::string(PROBE) + ":" TRACER, kOn),
            kMade + "intercepted Send 0 0 0\ntraced\nncclSend: forwarded to pncclSend\n");
  const std::string before = Preloaded("ncclSend", std::string(TRACER ":") + PROBE, kOn);
  EXPECT_EQ(CountIn(before, "traced"), 1) << before;
  EXPECT_EQ(CountIn(before, "intercepted Send"), 1) << before;
}

TEST(Shell, BothWaysAtOnce) {
  EXPECT_EQ(AsNccl("ncclSend", kProbeFolder, {{"LD_PRELOAD", PROBE}, {"NCCLTUNE_SENDRECV", "1"}}),
            kMade + "intercepted Send 0 0 0\nncclSend: forwarded\n");
}

TEST(Shell, AnOlderNccl) {
  const std::string output =
      Preloaded("answers", PROBE, {{"LD_LIBRARY_PATH", kOldFolder}, {"NCCLTUNE_SENDRECV", "1"}});
  EXPECT_EQ(CountIn(output, "\n"), kFunctions + 1 + 16) << output;
  EXPECT_TRUE(Has(output, "intercepted Recv\n")) << output;
  for (const char* const line :
       {"ncclCommSplit: 5\n", "pncclSend: 5\n", "ncclAlltoAllConfig: 5\n", "ncclTeamLsa: 0 0 0\n",
        "ncclLLA2ACalcSlots: 0\n", "ncclParamDumpAll: nothing\n",
        "pncclGetLastError: nccltune: this NCCL has no such function\n",
        "ncclGetErrorString: ncclGetErrorString\n"}) {
    EXPECT_TRUE(Has(output, line)) << line << output;
  }
  EXPECT_FALSE(Has(output, "intercepted CommSplit"));
}

TEST(Shell, TheVariableNamesTheNccl) {
  EXPECT_EQ(AsNccl("ncclSend ncclCommSplit", kProbeFolder,
                   {{"NCCLTUNE_SENDRECV_NCCL", kOld}, {"NCCLTUNE_SENDRECV", "1"}}),
            "made: on, NCCL 22809, " + kOld +
                "\nintercepted Send 0 0 0\nncclSend: forwarded\nncclCommSplit: 5\n");
  EXPECT_EQ(Preloaded("ncclCommSplit", SHELL, {{"NCCLTUNE_SENDRECV_NCCL", kOld}}),
            "ncclCommSplit: 5\n");
}

TEST(Shell, WithoutAnNcclEveryCallFailsAndOneLineStatesWhy) {
  const std::string output =
      AsNccl("answers", kAsNcclFolder, {{"NCCLTUNE_SENDRECV_NCCL", "/nowhere/libnccl.so.2"}});
  EXPECT_EQ(CountIn(output, "nccltune: NCCLTUNE_SENDRECV_NCCL: /nowhere/libnccl.so.2: "), 1)
      << output;
  EXPECT_EQ(CountIn(output, "\n"), kFunctions + 1) << output;
  EXPECT_EQ(CountIn(output, ": nccltune: no NCCL was found\n"), 4) << output;
  EXPECT_EQ(CountIn(output, ": nothing\n"), 5) << output;
  EXPECT_EQ(CountIn(output, ": 0 0 0\n"), 10) << output;
  EXPECT_EQ(CountIn(output, ": 0\n"), 6) << output;
  EXPECT_EQ(CountIn(output, ": 2\n"), kFunctions - 4 - 5 - 10 - 6) << output;
}

TEST(Shell, ItselfIsNoNccl) {
  for (const std::string& path : {std::string(SHELL), kAsNccl, std::string(PROBE)}) {
    const std::string output =
        AsNccl("ncclSend", kAsNcclFolder, {{"NCCLTUNE_SENDRECV_NCCL", path}});
    EXPECT_TRUE(Has(output, "is nccltune's library, not NCCL\nncclSend: 2\n")) << output;
  }
  const std::string program =
      AsNccl("ncclSend", kAsNcclFolder, {{"NCCLTUNE_SENDRECV_NCCL", "libm.so.6"}});
  EXPECT_EQ(program, "nccltune: NCCLTUNE_SENDRECV_NCCL='libm.so.6' is not NCCL\nncclSend: 2\n");
}

TEST(Shell, WithoutAnNcclTheLineListsWhatWasSearched) {
  const std::string output =
      AsNccl("ncclSend", kAsNcclFolder, {{"LD_LIBRARY_PATH", kAsNcclFolder + ":" + kProbeFolder}});
  if (output == "ncclSend: 0\n" || output.find("ncclSend: 2\n") == std::string::npos) {
    GTEST_SKIP() << "this machine has an NCCL where the loader looks";
  }
  EXPECT_EQ(CountIn(output, "\n"), 2) << output;
  for (const std::string& part :
       {std::string("nccltune: no NCCL was found: none is loaded besides "), kAsNcclFolder + ":",
        std::string("; set NCCLTUNE_SENDRECV_NCCL to its path\n")}) {
    EXPECT_TRUE(Has(output, part)) << output;
  }
}

TEST(Shell, ABadSettingIsNamedOnce) {
  EXPECT_EQ(Preloaded("ncclSend ncclRecv", SHELL, {{"NCCLTUNE_SENDRECV", "dryrun"}}),
            "nccltune: NCCLTUNE_SENDRECV='dryrun' is not one of 0 1 verify dry-run; did you mean "
            "'dry-run'? using 0\nncclSend: forwarded\nncclRecv: forwarded\n");
  EXPECT_EQ(Preloaded("ncclSend", SHELL, {{"NCCLTUNE_SENDREVC", "1"}}),
            "nccltune: NCCLTUNE_SENDREVC is not a setting of nccltune and is ignored; did you "
            "mean NCCLTUNE_SENDRECV?\nncclSend: forwarded\n");
}

// Many threads are the first, or come later and see what the first one made.
TEST(Shell, ThreadsShareOneInterceptor) {
  for (const char* const when : {"threads", "later"}) {
    const std::string output = Preloaded(when, PROBE, kOn);
    EXPECT_EQ(CountIn(output, "made: "), 1) << output;
    EXPECT_EQ(CountIn(output, "intercepted GroupStart\n"), 16) << output;
    EXPECT_EQ(CountIn(output, "threads 16, wrong 0\n"), 1) << output;
  }
  EXPECT_EQ(AsNccl("threads", kAsNcclFolder), "threads 16, wrong 0\n");
}

// The thread that makes the first call needs the loader's lock, which the other thread holds.
TEST(Shell, ALibraryMayCallNcclWhileItIsLoaded) {
  EXPECT_EQ(
      OutputOf(PROGRAM " module " MODULE " ModuleSends",
               {{"LD_LIBRARY_PATH", kFakeFolder}, {"LD_PRELOAD", SHELL}, {"MODULE_CALLS", "1"}}),
      "ncclSend: forwarded\n");
}

TEST(Shell, AChildAndItsParentEachHaveAFirst) {
  EXPECT_EQ(AsNccl("child", kProbeFolder, kOn),
            kMade + "intercepted Send 0 0 0\nncclSend: forwarded\nchild 0\n" + kMade +
                "intercepted Recv\nncclRecv: forwarded\n");
}

}  // namespace
}  // namespace nccltune::sendrecv
