// SPDX-License-Identifier: Apache-2.0
// The tests of the network plugin rely on this: each fault is detected and reported in one line.
#include "host/net/support.h"
#include "testing.h"

namespace nccltune::host::net {
namespace {

using Case = std::pair<const char*, const char*>;  // fault and message

class FaultsTest : public ::testing::TestWithParam<Case> {};

TEST_P(FaultsTest, IsDetectedAndReported) {
  const std::string fault = GetParam().first;
  const CommandResult outcome =
      RunCommand("NCCL_SOCKET_IFNAME=lo SPOIL_PLUGIN=" NET_PLUGIN " SPOIL_FAULT=" + fault +
                 " " NET_HOST
                 " transfer --fork --sizes 4K --messages 40 --receive-slack 1"
                 " --direction forward --timeout 3 --plugin " SPOILING_PLUGIN +
                 (fault == "writes_after_close" ? " --close-in-flight" : ""));
  const bool is_incomplete = fault.starts_with("no_");
  EXPECT_EQ(outcome.status, is_incomplete ? 3 : 1);
  EXPECT_NE(outcome.output.find(GetParam().second), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.rfind(is_incomplete ? "error: " : "error: rank ", 0), 0U)
      << outcome.output;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    Spoiled, FaultsTest,
    ::testing::Values(
        Case{"wrong_size", "received message 0 of 4096 bytes: test reports 4095 bytes"},
        Case{"corrupt_byte", "of 4096 bytes: the eight bytes from byte 16 are wrong"},
        Case{"writes_behind", "of 4096 bytes: bytes behind the message were written"},
        Case{"writes_before", "wrote outside of the buffer"},
        Case{"never_done", "of 4096 bytes: is not done after 3 s"},
        Case{"request_unset", "irecv did not set the request"},
        Case{"done_unset", "test did not set done"},
        Case{"test_fails", "test returned internal error"},
        Case{"close_fails", "closeRecv returned internal error"},
        Case{"writes_after_close", "was written to after its connection was closed"},
        Case{"many_members", "device 0: getProperties gives 1073741824 members, at most 8"},
        Case{"negative_members", "device 0: getProperties gives -1 members"},
        Case{"no_close_listen", "interface v12 has no closeListen"},
        Case{"no_finalize", "interface v12 has no finalize"},
        Case{"init_hangs", "rank 0: no progress for 6 s: init does not return"},
        Case{"listen_hangs", "rank 1: no progress for 7 s: listen does not return"},
        Case{"crash", "was ended by signal 6"}, Case{"exit", "ended with status 0"}),
    [](const auto& instance) { return std::string(instance.param.first); });

}  // namespace
}  // namespace nccltune::host::net
