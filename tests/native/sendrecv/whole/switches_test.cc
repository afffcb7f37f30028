// SPDX-License-Identifier: Apache-2.0
// Tests of the settings of NCCL and CUDA with which a site states what its machines can do, and of
// the hardware on which copy engines are used.
#include "sendrecv/whole/output.h"
#include "testing.h"

namespace nccltune::sendrecv {
namespace {

void ByCopyEngines(const Environment& environment) {
  const std::string output = WellCase("Exchange.Rounds", {.lacks = {kWarning}}, environment);
  EXPECT_GE(CountIn(output, kDirect), 2) << output;
}

class Switches : public testing::Test {
 protected:
  ~Switches() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::string folder() const { return folder_; }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / ("switches-" + std::to_string(getpid()));
};

TEST_F(Switches, NcclsOwnEndDirectAccess) {
  ExpectNative({{"NCCL_P2P_DISABLE", "1"}}, "NCCL_P2P_DISABLE=1", 2);
  ExpectNative({{"NCCL_P2P_DISABLE", "0x1"}}, "NCCL_P2P_DISABLE=0x1", 2);
  ExpectNative({{"NCCL_P2P_LEVEL", "LOC"}}, "NCCL_P2P_LEVEL=LOC", 2);
  ExpectNative({{"NCCL_P2P_LEVEL", "0"}}, "NCCL_P2P_LEVEL=0", 2);
  ExpectNative({{"NCCL_P2P_DISABLE", "1"}, {"NCCL_P2P_LEVEL", "SYS"}}, "NCCL_P2P_DISABLE=1", 2);
  ExpectNative({{"NCCL_SHM_DISABLE", "1"}}, "NCCL_SHM_DISABLE=1", 2);
  // On one rank alone.
  ExpectNative({{"CASE_RANK1", "NCCL_P2P_DISABLE=1"}}, "NCCL_P2P_DISABLE=1", 1);
}

TEST_F(Switches, OtherValuesAreAsNothing) {
  for (const Environment& none :
       {Environment{{"NCCL_P2P_DISABLE", "0"}}, Environment{{"NCCL_P2P_DISABLE", "2"}},
        Environment{{"NCCL_P2P_DISABLE", ""}}, Environment{{"NCCL_P2P_LEVEL", "loc"}},
        Environment{{"NCCL_P2P_LEVEL", "NVL"}}, Environment{{"NCCL_P2P_LEVEL", "1"}},
        Environment{{"NCCL_P2P_LEVEL", "9"}}, Environment{{"NCCL_SHM_DISABLE", "0"}}}) {
    ByCopyEngines(none);
  }
}

TEST_F(Switches, AreReadFromNcclsFiles) {
  const std::string file = File("conf", "# NCCL_P2P_LEVEL=SYS\nNCCL_P2P_DISABLE=1\r\n");
  File(".nccl.conf", "NCCL_P2P_LEVEL=LOC\nNCCL_P2P_LEVEL=SYS\n");
  ExpectNative({{"NCCL_CONF_FILE", file}}, "NCCL_P2P_DISABLE=1", 2);
  ExpectNative({{"HOME", folder()}}, "NCCL_P2P_LEVEL=LOC", 2);
  ExpectNative({{"HOME", folder()}, {"NCCL_CONF_FILE", ""}}, "NCCL_P2P_LEVEL=LOC", 2);
  // The environment wins, also with an empty value. A named file replaces that of the user.
  ByCopyEngines({{"NCCL_CONF_FILE", file}, {"NCCL_P2P_DISABLE", "0"}});
  ByCopyEngines({{"NCCL_CONF_FILE", file}, {"NCCL_P2P_DISABLE", ""}});
  ByCopyEngines({{"HOME", folder()}, {"NCCL_CONF_FILE", folder() + "/none"}});
  // A blank belongs to the name, and a comment begins at the line's first character.
  ByCopyEngines({{"NCCL_CONF_FILE", File("blank", " NCCL_P2P_DISABLE=1\nNCCL_P2P_LEVEL =LOC\n")}});
}

TEST_F(Switches, WithoutNvlinkNcclCarriesAll) {
  for (const char* const link : {"pix", "sys"}) {
    ExpectNative({{"SOFT_NVML_LINK", link}}, "NCCLTUNE_SENDRECV_HARDWARE=any", 2);
  }
  ExpectNative({{"SOFT_NVML_LINK", "none"}}, "NVML does not report the link", 2);
  ExpectNative({{"SOFT_CUDA_LACKS", "hopper"}}, "NCCLTUNE_SENDRECV_HARDWARE=any", 2);
  ByCopyEngines({{"SOFT_CUDA_LACKS", "hopper"}, {"NCCLTUNE_SENDRECV_HARDWARE", "any"}});
}

// Only the receiver copies: a flag may overtake bytes that are pushed over PCIe.
TEST_F(Switches, NothingIsPushedOverPcie) {
  const Environment any = {{"SOFT_NVML_LINK", "pxb"}, {"NCCLTUNE_SENDRECV_HARDWARE", "any"}};
  std::string output;
  for (const char* const arguments : {"1 6 20 3", "2 6 20 2"}) output += Programs(arguments, any);
  Environment graphs = any;
  graphs["NCCLTUNE_SENDRECV_GRAPHS"] = "1";
  output += Programs("13 6 20 3 plain 1048576 all 0 graphs", graphs);
  ExpectTexts(output, {.has = {"copy engine, pulled: ", "NCCL: received before it was sent"},
                       .lacks = {kPushed},
                       .counts = {{"well: 120 messages\n", 3}}});
}

TEST_F(Switches, LevelsAreComparedWithTheLink) {
  const auto with = [](const char* link, const char* level) {
    return Environment{
        {"SOFT_NVML_LINK", link}, {"NCCL_P2P_LEVEL", level}, {"NCCLTUNE_SENDRECV_HARDWARE", "any"}};
  };
  for (const auto& [link, level] :
       {std::pair("pix", "NVL"), {"pxb", "PIX"}, {"phb", "PXB"}, {"phb", "none"}, {"sys", "3"}}) {
    ExpectNative(with(link, level), "NCCL_P2P_LEVEL", 2);
  }
  for (const auto& [link, level] :
       {std::pair("pix", "PIX"), {"pxb", "none"}, {"pxb", "2"}, {"phb", "PHB"}, {"sys", "SYS"}}) {
    WellCase("Exchange.Rounds", {.lacks = {kWarning}}, with(link, level));
  }
}

TEST_F(Switches, AccessThatTheDriverDisablesIsNotUsed) {
  ExpectNative({{"SOFT_NVML_P2P", "0"}}, "peer access is disabled", 2);
  ExpectNative({{"SOFT_NVML_P2P", "0"}, {"NCCL_IGNORE_DISABLED_P2P", "1"}},
               "peer access is disabled", 2);
  ByCopyEngines({{"SOFT_NVML_P2P", "0"}, {"NCCL_IGNORE_DISABLED_P2P", "2"}});
}

TEST_F(Switches, BlockingLaunchesLeaveAllToNccl) {
  for (const char* const connections : {"1", "32"}) {
    const Environment blocking = {{"CUDA_LAUNCH_BLOCKING", "1"},
                                  {"SOFT_CUDA_BLOCKING", "1"},
                                  {"CUDA_DEVICE_MAX_CONNECTIONS", connections}};
    ExpectNative(blocking, "CUDA_LAUNCH_BLOCKING=1", 2);
  }
  ByCopyEngines({{"CUDA_LAUNCH_BLOCKING", "0"}});
}

// A debugger may block launches without the variable.
TEST_F(Switches, ALaunchThatBlocksIsAnErrorAndNoHang) {
  WellCase("Limit.LaunchesThatBlock", {.has = {"the launch of a kernel has not returned for 10 s"}},
           {{"SOFT_CUDA_BLOCKING", "1"},
            {"CUDA_DEVICE_MAX_CONNECTIONS", "1"},
            {"NCCLTUNE_SENDRECV_EAGER", "0"}});
}

// By CUDA_DEVICE_MAX_CONNECTIONS. With 1 streams wait by kernels. SOFT_CUDA_QUEUES=1 makes the
// streams share so many connections.
std::string OutputWith(const std::string& command, Environment environment) {
  environment.insert({{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}, {"SOFT_CUDA_QUEUES", "1"}});
  return OutputOf(command, environment);
}

std::string CaseWith(const std::string& name, const Texts& texts = {},
                     const Environment& environment = {}) {
  return ExpectWell(
      OutputWith(std::string(CASES) + " --gtest_brief=1 --gtest_filter=" + name, environment),
      texts);
}

std::string ProgramsWith(const std::string& arguments, const Environment& environment = {}) {
  return OutputWith(std::string(PROGRAMS) + " " + arguments, environment);
}

// By default the threshold is four times as high as with more connections.
TEST(WithOneConnection, CopyEnginesCarryFromEightMebibytesOn) {
  const auto with = [](const std::string& bytes, const std::string& connections) {
    return CaseWith("Exchange.Rounds", {},
                    {{"NCCLTUNE_SENDRECV_FROM", kUnset},
                     {"CASE_BYTES", bytes},
                     {"CUDA_DEVICE_MAX_CONNECTIONS", connections}});
  };
  EXPECT_GT(CountIn(with("8388608", "1"), "copy engine, pulled: "), 0);
  EXPECT_EQ(CountIn(with("8388604", "1"), "copy engine, "), 0);
  EXPECT_GT(CountIn(with("8388604", "32"), "copy engine, "), 0);
}

// The kernels of the context that was reset must not be launched.
TEST(WithOneConnection, KernelsAreLoadedAnewAfterAReset) {
  CaseWith("Resets.NewCommunicatorsAfterOne",
           {.lacks = {"WARN"}, .counts = {{"copy engine, pulled: ", 2}}});
}

TEST(WithOneConnection, RandomProgramsEndWell) {
  for (const char* const queues : {"0", "1"}) {
    std::string output;
    for (const char* const arguments : {"1 3 20 3", "2 3 20 3", "3 3 20 4", "5 3 20 2"}) {
      output += ProgramsWith(arguments + std::string(" plain"), {{"SOFT_CUDA_QUEUES", queues}});
    }
    ExpectTexts(output, {.has = {"NCCL: received before it was sent, with one connection "},
                         .lacks = {kPushed, "WARN"},
                         .counts = {{"well: 60 messages\n", 4}}});
    EXPECT_GT(CountIn(output, "copy engine, pulled: "), 4) << output;
  }
}

TEST(WithOneConnection, ProgramsOfOtherKindsEndWell) {
  std::string output = ProgramsWith("1 8 20 3 plain 3000000 all 0 mapped");
  output +=
      ProgramsWith("13 8 20 3 plain 1048576 all 0 graphs", {{"NCCLTUNE_SENDRECV_GRAPHS", "1"}});
  output += ProgramsWith("3 8 20 3 plain 1048576 all 0 later");
  ExpectTexts(output, {.lacks = {"WARN"}, .counts = {{"well: 160 messages\n", 3}}});
}

TEST(WithOneConnection, AKilledRankIsAnErrorForTheOthers) {
  for (const char* const arguments : {"3 200 20 3", "4 200 20 2"}) {
    const std::string killed = ProgramsWith(arguments + std::string(" plain 1048576 kill"));
    EXPECT_EQ(CountIn(killed, "well: all learned of the end of rank "), 1) << killed;
  }
}

void ExpectAllNative(Environment environment, const std::string& why, int warnings) {
  environment.insert({{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}, {"SOFT_CUDA_QUEUES", "1"}});
  ExpectNative(environment, why, warnings);
}

TEST(WithOneConnection, NcclCarriesAllIfKernelsCannotBeUsed) {
  ExpectAllNative({{"NCCLTUNE_SENDRECV_WAITS", "memory"}}, "without NCCLTUNE_SENDRECV_WAITS=memory",
                  2);
  ExpectAllNative({{"SOFT_CUDA_LACKS", "kernels"}}, "CUDA cannot load the wait kernels", 2);
  ExpectAllNative({{"CASE_RANK1", "CUDA_DEVICE_MAX_CONNECTIONS=32"}},
                  "it is not known how many connections", 1);
  ExpectAllNative({{"NCCLTUNE_SENDRECV_POLICY", "vccl"}}, "", 0);
}

// The first launches of a process load the kernels.
TEST(WithOneConnection, ARefusedCallIsAnErrorEverywhere) {
  for (const char* const refused :
       {"cuModuleLoadData:1", "cuModuleGetFunction:2", "cuMemsetD8Async:1", "cuLaunchKernel:1",
        "cuLaunchKernel:2", "cuLaunchKernel:3", "cuLaunchKernel:4", "cuLaunchKernel:5",
        "cuLaunchKernel:6", "cuMemcpyDtoDAsync:1", "cuStreamWriteValue32:1", "cuStreamCreate:3"}) {
    SCOPED_TRACE(refused);
    const std::string output = CaseWith(
        "Exchange.WithARefusal", {}, {{"CASE_RANK1", std::string("SOFT_CUDA_REFUSE=") + refused}});
    // An error on both ranks, or on neither.
    EXPECT_NE(CountIn(output, ": error\n"), 1) << refused << "\n" << output;
  }
}

// The sender's kernel waits for a receive that comes after the limit.
TEST(WithOneConnection, AWaitEndsAfterItsLimit) {
  CaseWith("Limit.ASendWithoutAReceive",
           {.has = {"a message is not complete after NCCLTUNE_SENDRECV_WAIT_LIMIT"}},
           {{"NCCLTUNE_SENDRECV_WAIT_LIMIT", "1"}, {"NCCLTUNE_SENDRECV_EAGER", "0"}});
}

// The program's own choice decides, also if it is made inside the program.
TEST(Connections, TheLibraryNeverSetsTheirNumber) {
  EXPECT_EQ(OutputWith("sh -c 'echo ${CUDA_DEVICE_MAX_CONNECTIONS-unset}'",
                       {{"CUDA_DEVICE_MAX_CONNECTIONS", kUnset}}),
            "unset\n");
  ExpectAllNative({{"CUDA_DEVICE_MAX_CONNECTIONS", kUnset}}, "set CUDA_DEVICE_MAX_CONNECTIONS=32",
                  2);
}

// What counts is the value when CUDA was initialised, which may be the former one.
TEST(Connections, ANumberThatIsSetLaterIsNotTrusted) {
  for (const auto& [before, later] :
       {std::pair("8", "32"), {"32", "1"}, {"1", "32"}, {kUnset, "32"}, {"32", "31"}}) {
    const std::string late = std::string("CUDA_DEVICE_MAX_CONNECTIONS=") + later;
    ExpectAllNative(
        {{"CUDA_DEVICE_MAX_CONNECTIONS", before}, {"CASE_RANK0", late}, {"CASE_RANK1", late}},
        "it is not known how many connections", 2);
  }
}

// Of 16 connections the library's streams take half, and leave the others to the application.
TEST(Connections, StreamsThatWaitAreLimited) {
  const auto routes = [](const std::string& connections) {
    return OutputWith(std::string(PROGRAMS) + " 3 6 20 4",
                      {{"CUDA_DEVICE_MAX_CONNECTIONS", connections}, {"NCCL_DEBUG", "INFO"}});
  };
  const std::string few = routes("16");
  const std::string many = routes("32");
  ExpectTexts(few + many, {.counts = {{"well: 120 messages\n", 2}}});
  ExpectTexts(few, {.has = {"too few connections to the GPU are left", kPushed}});
  ExpectTexts(many, {.lacks = {"too few connections to the GPU are left"}});
}

// Streams share connections, and one that waits keeps the others of its connection waiting.
TEST(Connections, RandomProgramsWithSixteen) {
  constexpr int kSeeds = 8;
  std::string output;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    output += ProgramsWith(std::to_string(seed) + " 3 20 " + std::to_string(2 + seed % 3),
                           {{"CUDA_DEVICE_MAX_CONNECTIONS", "16"}, {"SOFT_CUDA_QUEUES", "1"}});
  }
  ExpectTexts(output,
              {.has = {"copy engine, staged: "}, .counts = {{"well: 60 messages\n", kSeeds}}});
}

TEST(Connections, NcclCarriesAllWithFew) {
  for (const char* const few : {"", "0", "2", "15"}) {
    ExpectAllNative({{"CUDA_DEVICE_MAX_CONNECTIONS", few}}, "must be 1 or at least 16", 2);
  }
  CaseWith("Exchange.Rounds", {.has = {kPushed}}, {{"CUDA_DEVICE_MAX_CONNECTIONS", "16"}});
}

}  // namespace
}  // namespace nccltune::sendrecv
