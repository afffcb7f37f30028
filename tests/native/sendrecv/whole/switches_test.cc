// SPDX-License-Identifier: Apache-2.0
//
// Tests of the settings of NCCL and CUDA with which a site states what its machines can do, and of
// the hardware on which copy engines are used.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "sendrecv/whole/output.h"

namespace nccltune::sendrecv {
namespace {

std::string ByCopyEngines(const Environment& environment) {
  const std::string output = Case("Exchange.Rounds", environment);
  EXPECT_TRUE(Well(output)) << output;
  EXPECT_GE(CountIn(output, "copy engine, p"), 2) << output;
  EXPECT_FALSE(Has(output, kWarning)) << output;
  return output;
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
  EXPECT_EQ(CountIn(output, "well: 120 messages\n"), 3) << output;
  EXPECT_TRUE(Has(output, "copy engine, pulled: ")) << output;
  EXPECT_FALSE(Has(output, "copy engine, pushed: ")) << output;
  EXPECT_TRUE(Has(output, "NCCL: received before it was sent")) << output;
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
    const std::string output = Case("Exchange.Rounds", with(link, level));
    EXPECT_TRUE(Well(output)) << output;
    EXPECT_FALSE(Has(output, kWarning)) << link << " " << level << "\n" << output;
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
  const std::string output = Case("Limit.LaunchesThatBlock", {{"SOFT_CUDA_BLOCKING", "1"},
                                                              {"CUDA_DEVICE_MAX_CONNECTIONS", "1"},
                                                              {"NCCLTUNE_SENDRECV_EAGER", "0"}});
  EXPECT_TRUE(Well(output)) << output;
  EXPECT_TRUE(Has(output, "the launch of a kernel has not returned for 10 s")) << output;
}

}  // namespace
}  // namespace nccltune::sendrecv
