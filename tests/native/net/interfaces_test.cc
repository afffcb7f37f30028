// SPDX-License-Identifier: Apache-2.0
#include "net/interfaces.h"
#include "net/kernel_folder.h"
#include "testing.h"

namespace nccltune::net {
namespace {

class InterfacesTest : public ::testing::Test {
 protected:
  // An interface of a PCI function, with links as the kernel makes them.
  void MakePciNic(const std::string& name, const std::string& function,
                  const std::string& driver) const {
    const std::string folder = "devices/pci0000:00/0000:00:01.0/" + function;
    sysfs_.MakeFolder(folder + "/net/" + name);
    sysfs_.MakeFolder("bus/pci/drivers/" + driver);
    sysfs_.Link(folder + "/driver", "bus/pci/drivers/" + driver);
    sysfs_.Link(folder + "/net/" + name + "/device", folder);
    sysfs_.Link("class/net/" + name, folder + "/net/" + name);
  }

  Nic Describe(const std::string& name) const {
    return DescribeNic(InterfaceOf(name, "10.0.0.1"), sysfs_.root());
  }

  KernelFolder sysfs_;
};

TEST_F(InterfacesTest, APciNicIsDescribed) {
  MakePciNic("eth0", "0000:3b:00.0", "gve");
  sysfs_.Write("class/net/eth0/speed", "200000");
  sysfs_.Write("class/net/eth0/mtu", "8896");
  const Nic nic = Describe("eth0");
  EXPECT_EQ(nic.name, "eth0");
  EXPECT_EQ(nic.pci_path, sysfs_.Path("devices/pci0000:00/0000:00:01.0/0000:3b:00.0"));
  EXPECT_EQ(nic.driver, "gve");
  EXPECT_EQ(nic.speed_mbps, 200000);
  EXPECT_EQ(nic.mtu, 8896);
  EXPECT_EQ(AddressText(nic.address), "10.0.0.1");
  EXPECT_TRUE(IsPciFunction(nic));
}

TEST_F(InterfacesTest, AVirtualFunctionIsItself) {
  MakePciNic("eth0", "0000:3b:00.0", "mlx5_core");
  MakePciNic("eth0v2", "0000:3b:00.4", "mlx5_core");
  sysfs_.Link("devices/pci0000:00/0000:00:01.0/0000:3b:00.4/physfn",
              "devices/pci0000:00/0000:00:01.0/0000:3b:00.0");
  EXPECT_EQ(Describe("eth0v2").pci_path,
            sysfs_.Path("devices/pci0000:00/0000:00:01.0/0000:3b:00.4"));
}

TEST_F(InterfacesTest, AVirtualInterfaceHasNoPlaceAndNoDriver) {
  sysfs_.MakeFolder("devices/virtual/net/veth0");
  sysfs_.Link("class/net/veth0", "devices/virtual/net/veth0");
  sysfs_.Write("class/net/veth0/speed", "10000");
  sysfs_.Write("class/net/veth0/mtu", "1500");
  const Nic nic = Describe("veth0");
  EXPECT_EQ(nic.pci_path, "");
  EXPECT_EQ(nic.driver, "");
  EXPECT_EQ(nic.speed_mbps, 10000);
  EXPECT_EQ(nic.mtu, 1500);
  EXPECT_FALSE(IsPciFunction(nic));
}

TEST_F(InterfacesTest, ASpeedThatIsNotKnownIsTenGigabits) {
  sysfs_.MakeFolder("class/net/eth0");
  EXPECT_EQ(Describe("eth0").speed_mbps, kUnknownSpeedMbps);
  for (const char* const speed : {"-1", "0", "4294967295", "", "fast"}) {
    sysfs_.Write("class/net/eth0/speed", speed);
    EXPECT_EQ(Describe("eth0").speed_mbps, kUnknownSpeedMbps) << speed;
  }
  sysfs_.Write("class/net/eth0/speed", "25000");
  EXPECT_EQ(Describe("eth0").speed_mbps, 25000);
}

TEST_F(InterfacesTest, AnInterfaceThatSysfsDoesNotKnowIsStillThere) {
  const Nic nic = Describe("eth7");
  EXPECT_EQ(nic.name, "eth7");
  EXPECT_EQ(nic.pci_path, "");
  EXPECT_EQ(nic.speed_mbps, kUnknownSpeedMbps);
  EXPECT_EQ(nic.mtu, 0);
}

TEST_F(InterfacesTest, PciFunctionsAreKnownByTheirNames) {
  Nic nic;
  for (const char* const path : {"/sys/devices/pci0000:00/0000:3b:00.0", "10000:e1:00.1"}) {
    nic.pci_path = path;
    EXPECT_TRUE(IsPciFunction(nic)) << path;
  }
  for (const char* const path :
       {"", "/sys/devices/pci0000:00/0000:00:05.0/virtio2", "/sys/devices/vmbus/0000:3b:00",
        "/x/zzzz:3b:00.0", "/sys/0000:3b:00.0/virtio2"}) {
    nic.pci_path = path;
    EXPECT_FALSE(IsPciFunction(nic)) << path;
  }
}

TEST_F(InterfacesTest, TheEnvironmentChooses) {
  const std::vector<InterfaceAddress> all = {
      InterfaceOf("lo", "127.0.0.1"), InterfaceOf("eth0", "10.0.0.1"),
      InterfaceOf("eth1", "10.0.1.1"), InterfaceOf("eth1", "fd00::1")};
  const auto names = [&] {
    std::string text;
    for (const Nic& nic : FindNics(all, sysfs_.root())) text += nic.name + " ";
    return text;
  };
  const ScopedVariable no_family("NCCL_SOCKET_FAMILY", nullptr);
  {
    const ScopedVariable unset("NCCL_SOCKET_IFNAME", nullptr);
    EXPECT_EQ(names(), "eth0 eth1 ");
    const ScopedVariable family("NCCL_SOCKET_FAMILY", "AF_INET6");
    EXPECT_EQ(names(), "eth1 ");
  }
  const ScopedVariable set("NCCL_SOCKET_IFNAME", "=lo,eth1");
  EXPECT_EQ(names(), "lo eth1 ");
}

TEST_F(InterfacesTest, AddressesAreShownAsTheyAreWritten) {
  EXPECT_EQ(AddressText(AddressOf("192.0.2.7")), "192.0.2.7");
  EXPECT_EQ(AddressText(AddressOf("fd00::7")), "fd00::7");
  EXPECT_EQ(AddressText(AddressOf("fe80::7", 3)), "fe80::7%3");
  EXPECT_EQ(AddressText(Address()), "no address");
}

// Every host has a loopback interface; other interfaces differ.
TEST_F(InterfacesTest, TheKernelOfThisHostIsAsked) {
  const std::vector<InterfaceAddress> addresses = ListInterfaceAddresses();
  const auto loopback = std::find_if(addresses.begin(), addresses.end(),
                                     [](const InterfaceAddress& one) { return one.name == "lo"; });
  if (loopback == addresses.end()) GTEST_SKIP() << "no lo with an address here";
  EXPECT_TRUE(loopback->address.family() == AF_INET || loopback->address.family() == AF_INET6);
  EXPECT_TRUE(DescribeNic(*loopback).pci_path.empty());
}

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
