// SPDX-License-Identifier: Apache-2.0
// Tests of the shipped library, on the stand-ins for CUDA and NCCL, in programs of several
// processes.
#include "sendrecv/whole/output.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

constexpr int kSeeds = 4;

TEST(Whole, RandomProgramsByAllPaths) {
  std::string output;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    output += Programs(std::to_string(seed) + " 3 20 " + std::to_string(2 + seed % 3));
  }
  ExpectTexts(output,
              {.has = {kPushed, "copy engine, pulled: ", "copy engine, staged: ", "NCCL: small: ",
                       "NCCL: sent before it was received: ", "NCCL: decided by the peer: ",
                       "NCCL: memory not mapped by the peer yet: "},
               .lacks = {"WARN"},
               .counts = {{"well: 60 messages\n", kSeeds}}});
}

// Memory in chunks, some of which are unmapped and replaced at their addresses between rounds.
TEST(Whole, RandomProgramsInMappedMemory) {
  std::string output;
  for (const char* const arguments : {"1 8 20 3", "3 8 20 2", "5 8 20 4"}) {
    output += Programs(arguments + std::string(" plain 3000000 all mapped"));
  }
  ExpectTexts(output, {.has = {kPushed, "copy engine, pulled: "},
                       .lacks = {"memory cannot be shared", "WARN"},
                       .counts = {{"well: 160 messages\n", 3}}});
}

// Some groups are captured together with those they exchange messages with. Their graphs run once
// or twice.
TEST(Whole, RandomProgramsWithGraphs) {
  for (const char* const eager : {"0", "1M"}) {
    std::string output;
    for (const char* const seed : {"13", "14"}) {
      output += Programs(seed + std::string(" 8 20 3 plain 1048576 all 0 graphs"),
                         {{"NCCLTUNE_SENDRECV_GRAPHS", "1"}, {"NCCLTUNE_SENDRECV_EAGER", eager}});
    }
    ExpectTexts(output,
                {.has = {kPushed, "NCCL: captured in a graph, or after a captured message: "},
                 .lacks = {"WARN"},
                 .counts = {{"well: 160 messages\n", 2}}});
  }
}

// A graph refers to the peer's memory as long as it may run. Replacing chunks beside a captured
// message must not make the peer unmap their common span.
TEST(Whole, RandomProgramsWithGraphsInMappedMemory) {
  std::string output;
  for (const char* const arguments : {"6 100 20 2", "7 40 20 2", "8 40 20 3"}) {
    output += Programs(arguments + std::string(" plain 1048576 all 0 mapped single graphs"),
                       {{"NCCLTUNE_SENDRECV_GRAPHS", "1"}, {"NCCLTUNE_SENDRECV_EAGER", "0"}});
  }
  ExpectTexts(output, {.has = {kPushed},
                       .lacks = {"WARN"},
                       .counts = {{"well: 2000 messages\n", 1}, {"well: 800 messages\n", 2}}});
}

// Programs that rely on NCCL's buffers and that complete on the stand-in alone. Seed 12 is left
// out: it relies on the buffers for a send in a group that receives, and such a send may wait
// (docs/design).
TEST(Whole, RandomProgramsThroughBuffersOfReceivers) {
  const Environment few = {{"NCCLTUNE_SENDRECV_POLICY", "vccl"},
                           {"NCCLTUNE_SENDRECV_BUFFER", "1M"},
                           {"NCCLTUNE_SENDRECV_STEPS", "4"},
                           {"NCCLTUNE_SENDRECV_CHANNELS", "3"},
                           {"NCCLTUNE_SENDRECV_CHUNK", "64K"}};
  for (const Environment& settings : {Environment{{"NCCLTUNE_SENDRECV_POLICY", "vccl"}}, few}) {
    const std::string output = Programs("3 10 20 4 plain 3145728", settings);
    ExpectTexts(output,
                {.has = {"well: 200 messages", "copy engine, through the receiver's buffer: "},
                 .lacks = {kPushed}});
  }
  const std::string killed = Programs("3 200 20 3 plain 1048576 kill", few);
  EXPECT_TRUE(Has(killed, "well: all learned of the end of rank ")) << killed;
}

TEST(Whole, RandomProgramsInPieces) {
  const std::string output =
      Programs("5 10 20 4 plain 3145728", {{"NCCLTUNE_SENDRECV_CHUNK", "100K"}});
  ExpectTexts(output, {.has = {"well: 200 messages", kPushed}});
}

TEST(Whole, RandomProgramsOfCommunicatorsThatDoNotBlock) {
  std::string output;
  for (const char* const words : {"3 6 20 2 plain 1048576 all", "4 6 20 4 plain 1048576 all"}) {
    output += Programs(words + std::string(" 0 later"));
  }
  ExpectTexts(output, {.has = {kPushed, "copy engine, staged: "},
                       .lacks = {"WARN"},
                       .counts = {{"well: 120 messages\n", 2}}});
  const std::string killed = Programs("3 200 20 3 plain 1048576 kill 0 later");
  EXPECT_TRUE(Has(killed, "well: all learned of the end of rank ")) << killed;
}

TEST(Whole, RandomProgramsThatRelyOnBuffers) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const std::string output = Programs(std::to_string(seed) + " 2 14 3 eager 3000000");
    EXPECT_TRUE(Has(output, "well: 28 messages\n")) << "seed " << seed << "\n" << output;
  }
}

TEST(Whole, EveryoneLearnsOfARanksEnd) {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const std::string output = Programs(std::to_string(seed) + " 100 20 " +
                                        std::to_string(2 + seed % 3) + " plain 3000000 kill");
    EXPECT_TRUE(Has(output, "well: all learned")) << "seed " << seed << "\n" << output;
  }
}

TEST(Whole, OffThereIsNothingOfOurs) {
  for (const Environment& off :
       {Environment{{"NCCLTUNE_SENDRECV", "0"}}, Environment{{"NCCLTUNE_SENDRECV", ""}}}) {
    const std::string output =
        WellCase("Exchange.Rounds",
                 {.has = {"rank 0: native 7, segments 0,"}, .lacks = {"nccltune sendrecv"}}, off);
    // There must be as many threads as without the library.
    const size_t at = output.find("threads ");
    const std::string threads = output.substr(at, output.find('\n', at) - at + 1);
    EXPECT_EQ(CountIn(Case("Exchange.Rounds", {{"LD_PRELOAD", ""}}), threads), 2) << output;
  }
}

TEST(Whole, OnItExchangesByCopyEngines) {
  const std::string output = WellCase("Exchange.Rounds", {.lacks = {"native 7,", kWarning}});
  EXPECT_EQ(CountIn(output, "copy engine, "), CountIn(output, kDirect)) << output;
  EXPECT_GE(CountIn(output, kDirect), 2) << output;
}

TEST(Whole, ADryRunCountsWhatACopyEngineWouldHaveCarried) {
  Texts texts = {.has = kAllNative, .lacks = {kDirect}};
  texts.has.emplace_back("NCCL: dry run, a copy engine would have carried it: ");
  WellCase("Exchange.Rounds", texts, {{"NCCLTUNE_SENDRECV", "dry-run"}});
}

TEST(Whole, SettingsThatDiffer) {
  ExpectNative({{"CASE_RANK1", "NCCLTUNE_SENDRECV=0"}}, "", 0);
  ExpectNative({{"CASE_RANK1", "NCCLTUNE_SENDRECV=dry-run"}},
               "its NCCLTUNE_SENDRECV settings differ", 2);
}

TEST(Whole, GpusThatLackSomething) {
  ExpectNative({{"SOFT_CUDA_LACKS", "hostregister"}}, "host memory cannot be registered", 2);
  ExpectNative({{"SOFT_CUDA_LACKS", "memops"}}, "NCCL carries all sends and receives: ", 2);
  ExpectNative({{"SOFT_CUDA_LACKS", "ipc"}}, "", 0);
  ExpectNative({{"SOFT_CUDA_LACKS", "peer"}}, "", 0);
}

std::string WithSharedMemory(const std::string& options) {
  return "unshare --user --mount --map-root-user sh -c 'mount -t tmpfs -o " + options +
         " none /dev/shm && exec \"$0\" \"$@\"' ";
}

TEST(Whole, WithoutSharedMemory) {
  ExpectNative({{"CASE_FILE_LIMIT", std::to_string(256 << 20)}}, "(ulimit -f)", 2);
  if (OutputOf("true", {{"LD_PRELOAD", ""}}, "unshare --user --mount --map-root-user ") != "") {
    GTEST_SKIP() << "this machine lets nobody mount a small /dev/shm";
  }
  // The small /dev/shm has room for the first file.
  for (const char* const options : {"ro", "size=108k"}) {
    ExpectNative({}, "/dev/shm", 2, WithSharedMemory(options));
  }
}

TEST(Whole, OthersHaveRoomInASmallSharedMemory) {
  const auto run = [](const Environment& environment) {
    return Case("Limit.CommunicatorsInASmallSharedMemory", environment,
                WithSharedMemory("size=4m"));
  };
  const std::string output = run({});
  if (Has(output, "unshare: ")) GTEST_SKIP() << "this machine lets nobody mount a small /dev/shm";
  ExpectWell(output, {.has = {kPushed},
                      .counts = {{kWarning, 2},
                                 {" KiB free, of which 2 ranks take at most a quarter", 2}}});
  // The stand-in for NCCL takes some as well.
  const auto taken = [](const std::string& text) {
    return std::atoi(text.c_str() + text.find("taken: ") + 7);
  };
  const std::string without = run({{"NCCLTUNE_SENDRECV", "0"}});
  EXPECT_GT(taken(output), taken(without)) << output << without;
  EXPECT_LE(taken(output) - taken(without), 4096 / 4) << output << without;
}

TEST(Whole, LocksThatAreLostAreNoEnd) {
  WellCase("Exchange.GoesOnAfterLocksAreLost", {.lacks = {kWarning}});
}

const std::string& Faults() {
  static const auto& preload = *new std::string(std::string(FAULTS) + ":" + LIBRARY);
  return preload;
}

// On one rank or on both.
std::vector<Environment> Where(const std::string& variable) {
  Environment both;
  const size_t equals = variable.find('=');
  both[variable.substr(0, equals)] = variable.substr(equals + 1);
  return {{{"CASE_RANK1", variable}}, {{"CASE_RANK0", variable}}, both};
}

// A lane is used only if both sides can use it. Otherwise NCCL carries its messages, without an
// error and without a warning.
TEST(Whole, ALaneThatOneSideCannotUseIsLeftToNccl) {
  // The calls of a process, in order: for the communicator, for its own record, for its two lanes.
  for (const char* const fault : {"fallocate:3:ENOSPC", "fallocate:4:ENOSPC",
                                  "fallocate:3:EOPNOTSUPP", "mmap:2:ENOMEM", "mmap:3:ENOMEM"}) {
    SCOPED_TRACE(fault);
    for (Environment& environment : Where(std::string("CASE_FAULT=") + fault)) {
      environment["LD_PRELOAD"] = Faults();
      environment["NCCL_DEBUG"] = "INFO";
      WellCase("Exchange.Rounds",
               {.has = {"nccltune sendrecv INFO NCCL carries all messages ",
                        "NCCL: peer on another host, or unable to use copy engines: "},
                .lacks = {kWarning}},
               environment);
    }
  }
  for (const char* const refused : {"cuMemHostRegister:1", "cuMemHostRegister:2"}) {
    for (const Environment& environment : Where(std::string("SOFT_CUDA_REFUSE=") + refused)) {
      SCOPED_TRACE(refused);
      WellCase("Exchange.WithARefusal", {.lacks = {kWarning}, .counts = {{": all\n", 2}}},
               environment);
    }
  }
}

TEST(Whole, AFileThatOneSideCannotUseLeavesAllToNccl) {
  for (const char* const fault : {"open:1:EMFILE", "ftruncate:1:ENOSPC", "fallocate:1:ENOSPC",
                                  "fallocate:2:ENOSPC", "mmap:1:ENOMEM", "fcntl:1:ENOLCK"}) {
    SCOPED_TRACE(fault);
    for (Environment& environment : Where(std::string("CASE_FAULT=") + fault)) {
      environment["LD_PRELOAD"] = Faults();
      Texts texts = {.has = kAllNative};
      texts.has.emplace_back("NCCL carries all sends and receives: ");
      WellCase("Exchange.Rounds", texts, environment);
    }
  }
}

// Signals without SA_RESTART must not cause a failure.
TEST(Whole, AnInterruptedCallIsRepeated) {
  for (const char* const fault : {"open:1:EINTR", "ftruncate:1:EINTR", "fallocate:1:EINTR",
                                  "fallocate:2:EINTR", "fallocate:3:EINTR", "fcntl:1:EINTR"}) {
    SCOPED_TRACE(fault);
    WellCase("Exchange.Rounds", {.lacks = {"native 7,", kWarning}},
             {{"LD_PRELOAD", Faults()}, {"CASE_FAULT", fault}});
  }
}

// The program's communicator still works.
TEST(Whole, WithoutAThreadMessagesGoOn) {
  WellCase("Exchange.Rounds",
           {.has = {kDirect}, .counts = {{"cannot start the thread that checks peers: ", 2}}},
           {{"LD_PRELOAD", Faults()}, {"CASE_FAULT", "pthread_create:1:EAGAIN"}});
}

// CUDA refuses one stream or event at some point.
TEST(Whole, AStreamOrEventThatIsRefusedIsNoError) {
  for (const char* const function : {"cuStreamCreate:", "cuEventCreate:"}) {
    for (const char* const call : {"1", "2", "3", "4"}) {
      for (const Environment& environment :
           Where("SOFT_CUDA_REFUSE=" + std::string(function) + call)) {
        SCOPED_TRACE(std::string(function) + call);
        WellCase("Exchange.WithARefusal", {.counts = {{": all\n", 2}}}, environment);
      }
    }
  }
}

TEST(Whole, ARefusedCallOfCudaIsAnErrorEverywhere) {
  for (const char* const refused :
       {"cuEventRecord:3", "cuStreamWaitEvent:1", "cuMemcpyDtoDAsync:2", "cuStreamWaitValue32:2",
        "cuStreamWriteValue32:2", "cuIpcOpenMemHandle:1", "cuIpcGetMemHandle:1"}) {
    const std::string output = WellCase(
        "Exchange.WithARefusal", {}, {{"CASE_RANK1", std::string("SOFT_CUDA_REFUSE=") + refused}});
    // An error on both ranks, or on neither.
    EXPECT_NE(CountIn(output, ": error\n"), 1) << refused << "\n" << output;
  }
}

// More messages than slots, in groups of any size. All arrive, and the routes are counted
// correctly.
TEST(Whole, ACrowdOfMessages) {
  struct Sizes {
    const char* count;
    const char* group0;
    const char* group1;
    bool both;
  };
  for (const Sizes& each : {Sizes{"600", "600", "1", false}, Sizes{"600", "1", "600", false},
                            Sizes{"600", "600", "600", false}, Sizes{"600", "600", "1", true},
                            Sizes{"1200", "700", "260", true}, Sizes{"5000", "5000", "1", false},
                            Sizes{"5000", "5000", "5000", true}}) {
    Environment environment = {{"CROWD_COUNT", each.count},
                               {"CROWD_GROUP0", each.group0},
                               {"CROWD_GROUP1", each.group1},
                               {"NCCLTUNE_SENDRECV_FROM", "4K"},
                               {"SOFT_CUDA_DELAY_US", "0"}};
    if (each.both) environment["CROWD_BOTH"] = "1";
    Texts texts = {.has = {kPushed}, .lacks = {kWarning, "NCCL: captured"}};
    if (std::string(each.group0) == each.count) {
      texts.has.emplace_back("NCCL: no free slot between the two ranks: ");
    }
    SCOPED_TRACE(std::string(each.count) + " " + each.group0 + " " + each.group1);
    WellCase("Crowd.OfMessagesInGroups", texts, environment);
  }
}

TEST(Whole, SendsThatAreReceivedLateAreLeftForTheReceiver) {
  for (const char* const name :
       {"Exchange.SendsThatAreReceivedLate", "Exchange.SendsOfAProcessThatEndsEarly"}) {
    WellCase(name,
             {.has = {"copy engine, staged: ", "copy engine, pulled: "}, .lacks = {kWarning}});
  }
}

TEST(Whole, ASignalReportsWhatIsWaitedFor) {
  ExpectWell(CaseWithChecks("Exchange.AReceiveThatIsAskedAbout"),
             {.has = {", rank 0 to rank 1: message 5, 393216 bytes, pushed: received, not yet "
                      "sent, the first stream has reached it\n"}});
}

TEST(Whole, AFileSwitchesItOffWithoutARestart) {
  const std::string file = testing::TempDir() + "/off-" + std::to_string(getpid());
  // One rank that is off is enough for both, so the other may not have looked in between.
  WellCase("Exchange.SwitchedOffAndOn",
           {.has = {"NCCL: switched off: ", " exists: NCCL carries all later messages\n",
                    " was removed: copy engines carry messages again\n"}},
           {{"NCCLTUNE_SENDRECV_OFF_FILE", file}, {"NCCL_DEBUG", "INFO"}});
}

TEST(Whole, NcclsLogHasTheCountsByRoute) {
  const std::string ends = " ends; messages of this process so far: copy engine, ";
  WellCase(
      "Exchange.Rounds",
      {.has = {"nccltune sendrecv INFO rank 0" + ends, "nccltune sendrecv INFO rank 1" + ends}},
      {{"NCCL_DEBUG", "INFO"}});
}

TEST(Whole, AGreenContextIsLeftToNcclUnlessThePeerHasDecided) {
  WellCase("Exchange.InAStreamOfAGreenContext",
           {.counts = {{"NCCL: stream of another CUDA context: 1 messages, 393216 bytes\n", 1},
                       {"NCCL: decided by the peer: 1 messages, 393216 bytes\n", 1}}});
}

TEST(Whole, AScraperReadsTheCounts) {
  const std::filesystem::path folder = testing::TempDir() + "/metrics-" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  // Of a process that was killed.
  const std::filesystem::path old = folder / "nccltune-sendrecv-1-0123456789abcdef.prom";
  std::ofstream(old) << "# TYPE nccltune_sendrecv_messages_total counter\n";
  std::filesystem::last_write_time(
      old, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  std::ofstream(folder / "of_another_program.prom") << "";
  std::filesystem::last_write_time(
      folder / "of_another_program.prom",
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  WellCase("Exchange.AScrape",
           {.counts = {{"# TYPE nccltune_sendrecv_messages_total counter\n", 2},
                       {"route=\"copy engine, pushed\"} ", 4},
                       {"nccltune_sendrecv_off 0\n", 2}}},
           {{"NCCLTUNE_SENDRECV_METRICS", folder.string()}});
  EXPECT_TRUE(std::filesystem::remove(folder / "of_another_program.prom"));
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the files end with their processes";
  std::filesystem::remove_all(folder);
}

TEST(Whole, SizesThatDifferNameRanksAndBytes) {
  WellCase("Wrong.SizesThatDifferAreAnErrorOnBothSides",
           {.has = {"refused\n"},
            .counts = {{"rank 0 to rank 1: message 5 has 786432 bytes at the sender and "
                        "393216 at the receiver\n",
                        2}}});
}

TEST(Whole, Memory) {
  WellCase("Memory.OfAPoolGoesByNccl", {.counts = {{"NCCL: memory cannot be shared: ", 2}}});
  for (const char* const name :
       {"Memory.ThatComesAgainAtTheSameAddress", "Memory.InTheMiddleOfAnAllocation",
        "Memory.ThatIsFreedWhileAnotherCommunicatorWaits", "Memory.ThatIsFreedIsGivenBack",
        "Memory.ThatIsFreedBesideACollective"}) {
    ExpectWell(CaseWithChecks(name), {.lacks = {kWarning}});
  }
}

TEST(Whole, GroupsWithCollectivesAndTwoStreams) {
  WellCase("Group.OfACollectiveAndMessagesInTwoStreams", {.has = {kDirect}});
}

TEST(Whole, GroupsThatAreRefusedOrHaveOtherWork) {
  WellCase("Grouped.WhatIsRefusedRunsNowhere", {.has = {kPushed}, .lacks = {kWarning}});
  WellCase("Grouped.ARevokedCommunicatorIsNccls");
  WellCase("Grouped.ACommunicatorThatEndsThere");
}

// Whether a group is looked up or repeated, its messages are sent and counted once.
TEST(Whole, SmallGroupsThatComeAgain) {
  const std::string output = WellCase("Small.GroupsThatComeAgainAndOthers");
  const std::string line = "exchanged: small: ";
  const size_t at = output.find(line) + line.size();
  ASSERT_LT(at, output.size()) << output;
  const std::string messages = output.substr(at, output.find(" messages", at) - at);
  EXPECT_GT(std::stoi(messages), 200) << output;
  EXPECT_EQ(CountIn(output, "NCCL: small: " + messages + " messages"), 2) << output;

  WellCase("Small.GroupsOfThreadsThatEnd", {.counts = {{"NCCL: small: 3600 messages", 2}}});
  WellCase("Small.AGroupThatIsRefusedIsNotCounted");
  WellCase("Small.GroupsWithAPeerThatIsKilled", {.has = {"peer lost\n"}});
}

// NCCL carries what only one side captures and what may not wait.
const std::vector<const char*> kCapturedByNccl = {"Capture.OnOneSideAlone",
                                                  "Capture.OfAllThreadsGoesOnWhateverElseIsDone",
                                                  "Capture.BehindADirectCallOfThePeerIsAnError"};

TEST(Whole, Captures) {
  WellCase("Capture.RunsThreeTimesAndMessagesGoOn");
  for (const char* const name : kCapturedByNccl) WellCase(name);
}

TEST(Whole, CapturesOnBothSidesAreCopied) {
  const Environment graphs = {{"NCCLTUNE_SENDRECV_GRAPHS", "1"}};
  WellCase("Capture.OfGroupsOnAllSides", {.has = {kPushed}, .lacks = {"NCCL: captured"}}, graphs);
  WellCase("Capture.OfAPeerThatIsKilled", {.has = {"peer lost\n"}}, graphs);
  for (const char* const eager : {"0", "1M"}) {
    Environment more = graphs;
    more["NCCLTUNE_SENDRECV_EAGER"] = eager;
    SCOPED_TRACE(eager);
    for (const char* const name : kCapturedByNccl) WellCase(name, {}, more);
  }
}

TEST(Whole, CommunicatorsOfAllKinds) {
  for (const char* const name :
       {"Comms.SplitAndShrunk", "Comms.OneThreadForTwoGpus", "Comms.AThreadForEachGpu",
        "Comms.MadeInAGroup", "Comms.AnAbortWhenAllIsOverIsNoErrorElsewhere",
        "Comms.ComeAndGoWithoutATrace"}) {
    WellCase(name, {.lacks = {kWarning}});
  }
}

TEST(Whole, GoesOnAfterAResetOfTheContext) {
  const std::string output = WellCase("Resets.NewCommunicatorsAfterOne");
  EXPECT_GT(CountIn(output, "copy engine, "), 1) << output;
}

TEST(Whole, APeerThatEndsAfterAResetIsNoCrash) {
  ExpectWell(CaseWithChecks("Resets.APeerEndsAfterOne"));
}

TEST(Whole, AnAbortEndsWaitsEverywhere) {
  for (const char* const name :
       {"Comms.AnAbortEndsAReceiveAndThePeerLearnsOfIt", "Comms.AnAbortAndAnEndAreLearnedOf"}) {
    WellCase(name, {.counts = {{"rank 0 has abandoned the communicator", 1}}});
  }
}

TEST(Whole, CommunicatorsThatDoNotBlock) {
  for (const char* const name :
       {"Comms.ThatDoNotBlock", "Comms.ThatBlockOnOneSide", "Comms.PartsOfOneThatDoesNotBlock",
        "Comms.PartsOfPartsThatDoNotBlock"}) {
    WellCase(name, {.has = {kPushed}, .lacks = {kWarning}});
  }
  WellCase("Comms.ThatDoNotBlockAndAreAborted");
  WellCase("Comms.PartsOfOneThatIsAborted");
}

TEST(Whole, WhatWaitsForADeadRankWaitsUntilSomebodyKnows) {
  const std::string output = WellCase("Comms.WhatWaitsForADeadRankWaitsUntilSomebodyKnows",
                                      {.counts = {{"peer lost\n", 2}}});
  EXPECT_GE(CountIn(output, "rank 1 has ended\n"), 2) << output;
}

}  // namespace
}  // namespace nccltune::sendrecv
