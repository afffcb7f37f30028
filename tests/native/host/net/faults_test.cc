// SPDX-License-Identifier: Apache-2.0
// Every violation of the contract must be detected and reported in one line.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "host/net/support.h"

namespace nccltune::host::net {
namespace {

struct Case {
  const char* fault;
  const char* message;
  const char* arguments = "transfer --fork --sizes 4K --messages 40";
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.fault; }

class FaultsTest : public ::testing::TestWithParam<Case> {};

TEST_P(FaultsTest, IsDetectedAndReported) {
  const CommandResult outcome =
      RunCommand(std::string("NAIVE_FAULT=") + GetParam().fault + " " NET_HOST " " +
                 GetParam().arguments + " --plugin " NAIVE_NET_PLUGIN);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.output.find(GetParam().message), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.rfind("error: rank ", 0), 0U) << outcome.output;
  EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
}

constexpr const char* kShort = "transfer --fork --sizes 4K --messages 40 --timeout 3";

INSTANTIATE_TEST_SUITE_P(
    Naive, FaultsTest,
    ::testing::Values(
        Case{"wrong_size", "message 10 of 4096 bytes: test reports 4095 bytes"},
        Case{"size_unset", "received message 0 of 4096 bytes: test did not set the size"},
        Case{"corrupt_byte", "received message 10 of 4096 bytes: byte 2048 is wrong"},
        Case{"swapped", "received message 10 of 4096 bytes: carries the bytes of message 11"},
        Case{"writes_behind", "message 10 of 4096 bytes: bytes behind the message were written"},
        Case{"writes_before", "message 10 of 4096 bytes: wrote outside of the buffer",
             "transfer --fork --sizes 4K --messages 40 --receive-slack 0"},
        Case{"never_done", "message 10 of 4096 bytes: is not done after 3 s", kShort},
        Case{"null_for_ever", " gave no request after 3 s",
             "transfer --fork --direction forward --sizes 4K --messages 40 --window 1 --timeout 3"},
        Case{"request_unset", "did not set the request"},
        Case{"done_unset", "test did not set done"},
        Case{"test_fails", "message 10 of 4096 bytes: test returned internal error"},
        Case{"test_hangs", "test has not returned for 3 s", kShort},
        Case{"accept_hangs", "accept has not returned for 3 s", kShort},
        Case{"connect_never", " gave no connection for 3 s",
             "transfer --fork --direction forward --timeout 3"},
        Case{"init_fails", "communicator: init returned system error"},
        Case{"no_devices", "the plugin has 0 devices"},
        Case{"unset_property", "device 0: getProperties leaves a member unset"},
        Case{"properties_overrun", "device 0: getProperties wrote outside of the properties"},
        Case{"handle_overrun", "listen wrote outside of the handle"},
        Case{"takes_gpu_memory", "regMr takes GPU memory"},
        Case{"close_fails", "closeSend returned internal error"},
        Case{"writes_after_close", "was written to after its connection was closed",
             "transfer --fork --sizes 4K --messages 40 --close-in-flight --window 4"},
        Case{"crash", "was ended by signal 6"}, Case{"exit", "ended with status 0"}),
    [](const auto& instance) { return std::string(instance.param.fault); });

}  // namespace
}  // namespace nccltune::host::net
