// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "net/interfaces.h"
#include "net/kernel_folder.h"

namespace nccltune::net {
namespace {

struct Case {
  const char* list;
  const char* name;
  bool taken;
};

TEST(InterfaceFilter, TakesWhatNcclTakes) {
  const std::vector<Case> cases = {
      // Prefixes of names.
      {"eth", "eth0", true},
      {"eth", "eth10", true},
      {"eth0", "eth01", true},
      {"eth0", "eth", false},
      {"eth", "ETH0", false},
      {"eth", "beth0", false},
      {"eth,ib", "ib0", true},
      {"eth,ib", "ens3", false},
      // Whole names; '=' applies to the whole list.
      {"=eth0", "eth0", true},
      {"=eth0", "eth01", false},
      {"=eth0,ib", "ib0", false},
      {"=eth0,ib0", "ib0", true},
      // Only a leading '=' counts; a later one is part of a name.
      {"eth0,=ib0", "ib0", false},
      {"eth0,^ib0", "ib0", false},
      {"==eth0", "eth0", false},
      {"=^eth0", "eth0", false},
      // Excluded names.
      {"^docker", "docker0", false},
      {"^docker", "eth0", true},
      {"^docker,lo", "lo", false},
      {"^=docker0", "docker0", false},
      {"^=docker0", "docker01", true},
      {"^^eth", "eth0", true},
      // A port after a name, and text after the port.
      {"eth0:1", "eth0", true},
      {"=eth0:1", "eth0", true},
      {"eth0:1,ib0:2:3", "ib0", true},
      {"eth0:ib0", "ib0", false},
      {":1,eth0", "ib0", false},
      // Blanks are part of a name.
      {" eth0", "eth0", false},
      {"eth0, ib0", "ib0", false},
      {"eth0 ", "eth0", false},
      // Empty entries are ignored, and an empty list matches everything.
      {",,eth0,", "eth0", true},
      {",,eth0,", "ib0", false},
      {",", "eth0", true},
      {":1", "eth0", true},
      {"=,", "eth0", true},
      {"^,", "eth0", false},
      {"^=", "eth0", false},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(InterfaceFilter(one.list).Takes(one.name), one.taken)
        << one.list << " and " << one.name;
  }
}

TEST(InterfaceFilter, SixteenEntriesCount) {
  std::string list;
  for (int i = 0; i < 17; ++i) list += (i == 0 ? "=" : ",") + ("nic" + std::to_string(i));
  EXPECT_TRUE(InterfaceFilter(list).Takes("nic15"));
  EXPECT_FALSE(InterfaceFilter(list).Takes("nic16"));
}

// Returns the chosen interfaces as "name=address ...".
std::string Chosen(const std::vector<InterfaceAddress>& all, const char* names = "",
                   const char* family = "") {
  std::string text;
  for (const InterfaceAddress& one : ChooseInterfaces(all, names, family)) {
    text += (text.empty() ? "" : " ") + one.name + "=" + AddressText(one.address);
  }
  return text;
}

TEST(ChooseInterfaces, LeavesOutDockerLoopbackAndVirbrAtFirst) {
  std::vector<InterfaceAddress> all = {InterfaceOf("lo", "127.0.0.1")};
  EXPECT_EQ(Chosen(all), "lo=127.0.0.1");
  all.push_back(InterfaceOf("virbr0", "192.168.122.1"));
  EXPECT_EQ(Chosen(all), "lo=127.0.0.1");
  EXPECT_EQ(Chosen({all.back()}), "virbr0=192.168.122.1");
  all.push_back(InterfaceOf("docker0", "172.17.0.1"));
  EXPECT_EQ(Chosen(all), "docker0=172.17.0.1");
  all.push_back(InterfaceOf("ens3", "10.0.0.1"));
  all.push_back(InterfaceOf("br-lan", "10.1.0.1"));
  EXPECT_EQ(Chosen(all), "ens3=10.0.0.1 br-lan=10.1.0.1");
  all.push_back(InterfaceOf("ib0", "10.2.0.1"));
  all.push_back(InterfaceOf("ibs1", "10.3.0.1"));
  EXPECT_EQ(Chosen(all), "ib0=10.2.0.1 ibs1=10.3.0.1");
  EXPECT_EQ(Chosen({}), "");
}

TEST(ChooseInterfaces, NamesThatAreGivenHaveNoSecondChoice) {
  const std::vector<InterfaceAddress> all = {InterfaceOf("lo", "127.0.0.1"),
                                             InterfaceOf("eth0", "10.0.0.1")};
  EXPECT_EQ(Chosen(all, "ib"), "");
  EXPECT_EQ(Chosen(all, "lo"), "lo=127.0.0.1");
  EXPECT_EQ(Chosen(all, "^eth"), "lo=127.0.0.1");
  EXPECT_EQ(Chosen(all, ",,"), "lo=127.0.0.1 eth0=10.0.0.1");
  // A value of one character is ignored.
  EXPECT_EQ(Chosen(all, "x"), "eth0=10.0.0.1");
  EXPECT_EQ(Chosen(all, "^"), "eth0=10.0.0.1");
}

TEST(ChooseInterfaces, TakesTheFirstAddressOfEach) {
  const std::vector<InterfaceAddress> all = {
      InterfaceOf("eth0", "10.0.0.1"),   InterfaceOf("eth1", "10.0.1.1"),
      InterfaceOf("eth0", "10.0.0.2"),   InterfaceOf("eth0", "fd00::1"),
      InterfaceOf("eth2", "fe80::2", 4),
  };
  EXPECT_EQ(Chosen(all), "eth0=10.0.0.1 eth1=10.0.1.1 eth2=fe80::2%4");
  EXPECT_EQ(Chosen(all, "", "AF_INET6"), "eth0=fd00::1 eth2=fe80::2%4");
  EXPECT_EQ(Chosen(all, "", "AF_INET"), "eth0=10.0.0.1 eth1=10.0.1.1");
  // Any other word is ignored.
  EXPECT_EQ(Chosen(all, "eth0", "AF_INET6 "), "eth0=10.0.0.1");
  EXPECT_EQ(Chosen(all, "eth0", "inet6"), "eth0=10.0.0.1");
}

TEST(ChooseInterfaces, PassesOverWhatCannotBeUsed) {
  std::vector<InterfaceAddress> all = {InterfaceOf("lo", "::1"), InterfaceOf("eth0", "10.0.0.1")};
  EXPECT_EQ(Chosen(all, "lo"), "");
  all[1].running = false;
  EXPECT_EQ(Chosen(all), "");
  all[1].running = true;
  all[1].address.storage.ss_family = AF_UNIX;
  EXPECT_EQ(Chosen(all), "");
}

TEST(ChooseInterfaces, SixteenAreTaken) {
  std::vector<InterfaceAddress> all;
  for (int i = 0; i < 20; ++i) {
    all.push_back(InterfaceOf("eth" + std::to_string(i), "10.0.0." + std::to_string(i + 1)));
  }
  const std::vector<InterfaceAddress> chosen = ChooseInterfaces(all, "", "");
  ASSERT_EQ(chosen.size(), 16U);
  EXPECT_EQ(chosen.back().name, "eth15");
}

}  // namespace
}  // namespace nccltune::net
