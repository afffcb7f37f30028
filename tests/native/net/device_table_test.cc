// SPDX-License-Identifier: Apache-2.0
#include "net/device_table.h"
#include "net/kernel_facts.h"
#include "net/kernel_folder.h"
#include "testing.h"

namespace nccltune::net {
namespace {

Nic PciNic(int number, int speed_mbps = 100000) {
  return {.name = "eth" + std::to_string(number),
          .address = AddressOf("10.0." + std::to_string(number) + ".1"),
          .pci_path = "/sys/devices/pci0000:00/0000:3b:00." + std::to_string(number),
          .driver = "ena",
          .speed_mbps = speed_mbps,
          .mtu = 9001};
}

std::vector<Nic> PciNics(int count) {
  std::vector<Nic> nics;
  for (int i = 0; i < count; ++i) nics.push_back(PciNic(i));
  return nics;
}

class DeviceTableTest : public ::testing::Test {
 protected:
  static int Make(DeviceTable* table, const std::vector<int>& members) {
    std::string error;
    const int index = table->MakeVirtual(members, &error);
    EXPECT_EQ(index < 0, !error.empty()) << error;
    return index;
  }

  static std::string Refusal(DeviceTable* table, const std::vector<int>& members) {
    std::string error;
    const int before = table->size();
    EXPECT_EQ(table->MakeVirtual(members, &error), -1);
    EXPECT_EQ(table->size(), before);
    return error;
  }

  // Not set.
  ScopedVariable no_merge_{"NCCL_NET_FORCE_MERGE", nullptr};
  ScopedVariable no_level_{"NCCL_NET_MERGE_LEVEL", nullptr};
};

TEST_F(DeviceTableTest, ANicIsSeveralDevicesThatShareItsSpeed) {
  DeviceTable table({PciNic(0), PciNic(1, 25000)}, 2);
  ASSERT_EQ(table.size(), 4);
  // The first devices are all NICs; the copies follow.
  EXPECT_EQ(table.Find(0)->name, "eth0");
  EXPECT_EQ(table.Find(1)->name, "eth1");
  EXPECT_EQ(table.Find(2)->name, "eth0/1");
  EXPECT_EQ(table.Find(3)->name, "eth1/1");
  for (const int index : {0, 2}) EXPECT_EQ(table.Find(index)->speed_mbps, 50000) << index;
  for (const int index : {1, 3}) EXPECT_EQ(table.Find(index)->speed_mbps, 12500) << index;
  EXPECT_EQ(table.Find(2)->pci_path, table.Find(0)->pci_path);
  EXPECT_EQ(table.Find(2)->nics.front().name, "eth0");
  EXPECT_NE(table.Find(2)->guid, table.Find(0)->guid);
  EXPECT_EQ(table.Find(2)->members, std::vector{2});
  EXPECT_EQ(table.nics().size(), 2U);

  // NCCL asks for this by itself, because it takes the devices for ports of one card.
  EXPECT_EQ(Refusal(&table, {0, 2}), "eth0 and eth0/1 belong to one NIC");
  EXPECT_EQ(Refusal(&table, {0, 1, 2, 3}), "eth0 and eth0/1 belong to one NIC");
  const int both = Make(&table, {0, 1});
  EXPECT_EQ(both, 4);
  EXPECT_EQ(Make(&table, {2, 3}), 5);
  EXPECT_EQ(table.Find(both)->name, "eth0+eth1");
}

TEST_F(DeviceTableTest, TheNumberOfDevicesIsSetOrByNicsAndCpus) {
  const ScopedVariable none("NCCLTUNE_NET_DEVICES", nullptr);
  for (const size_t nics : {0U, 1U, 2U, 9U}) EXPECT_EQ(DevicesEach(nics), DevicesOfNic(nics));
  {
    const ScopedVariable level("NCCL_NET_MERGE_LEVEL", "PHB");
    EXPECT_EQ(DevicesEach(1), 1);
  }
  const ScopedVariable wanted("NCCLTUNE_NET_DEVICES", "3");
  EXPECT_EQ(DevicesEach(1), 3);
  EXPECT_EQ(DevicesEach(9), 3);
}

TEST_F(DeviceTableTest, EachNicIsADevice) {
  const DeviceTable table({PciNic(0), PciNic(1, 25000)});
  ASSERT_EQ(table.size(), 2);
  const Device* const device = table.Find(1);
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->name, "eth1");
  EXPECT_EQ(device->pci_path, "/sys/devices/pci0000:00/0000:3b:00.1");
  EXPECT_EQ(device->speed_mbps, 25000);
  ASSERT_EQ(device->nics.size(), 1U);
  EXPECT_EQ(device->nics[0].name, "eth1");
  EXPECT_EQ(device->nics[0].mtu, 9001);
  EXPECT_EQ(device->members, std::vector<int>{1});
  EXPECT_EQ(table.Find(2), nullptr);
  EXPECT_EQ(table.Find(-1), nullptr);
  EXPECT_EQ(DeviceTable({}).size(), 0);
}

TEST_F(DeviceTableTest, GuidsAreUniqueAndTheSameInEveryProcess) {
  const DeviceTable one(PciNics(2));
  const DeviceTable other(PciNics(2));
  EXPECT_NE(one.Find(0)->guid, one.Find(1)->guid);
  EXPECT_EQ(one.Find(0)->guid, other.Find(0)->guid);
  // The same slot and name on another host.
  Nic elsewhere = PciNic(0);
  elsewhere.address = AddressOf("10.0.0.2");
  EXPECT_NE(DeviceTable({elsewhere}).Find(0)->guid, one.Find(0)->guid);
}

TEST_F(DeviceTableTest, SeveralAreOneOfTheSumOfTheirSpeeds) {
  DeviceTable table({PciNic(0, 100000), PciNic(1, 25000), PciNic(2, 50000)});
  EXPECT_EQ(Make(&table, {2, 1}), 3);
  ASSERT_EQ(table.size(), 4);
  const Device* const device = table.Find(3);
  EXPECT_EQ(device->name, "eth2+eth1");
  EXPECT_EQ(device->speed_mbps, 75000);
  EXPECT_EQ(device->pci_path, table.Find(2)->pci_path);
  EXPECT_EQ(device->members, (std::vector<int>{2, 1}));
  ASSERT_EQ(device->nics.size(), 2U);
  EXPECT_EQ(device->nics[0].name, "eth2");
  EXPECT_EQ(device->nics[1].name, "eth1");
  for (int i = 0; i < 3; ++i) EXPECT_NE(device->guid, table.Find(i)->guid);
}

TEST_F(DeviceTableTest, SpeedsDoNotOverflow) {
  DeviceTable table({PciNic(0, INT_MAX), PciNic(1, INT_MAX)});
  EXPECT_EQ(table.Find(Make(&table, {0, 1}))->speed_mbps, INT_MAX);
}

TEST_F(DeviceTableTest, TheSameSetIsTheSameDevice) {
  DeviceTable table(PciNics(4));
  EXPECT_EQ(Make(&table, {0, 1}), 4);
  EXPECT_EQ(Make(&table, {2, 3}), 5);
  EXPECT_EQ(Make(&table, {1, 0}), 4);
  EXPECT_EQ(Make(&table, {0, 1, 2}), 6);
  EXPECT_EQ(Make(&table, {0, 1}), 4);
  EXPECT_EQ(table.size(), 7);
  // A single member gives itself.
  EXPECT_EQ(Make(&table, {2}), 2);
  EXPECT_EQ(table.size(), 7);
}

TEST_F(DeviceTableTest, PointersStayValid) {
  DeviceTable table(PciNics(8));
  const Device* const plain = table.Find(0);
  const char* const name = plain->name.c_str();
  const int first = Make(&table, {0, 1});
  const Device* const made = table.Find(first);
  for (int i = 0; i < 8; ++i) {
    for (int j = i + 1; j < 8; ++j) Make(&table, {i, j});
  }
  EXPECT_EQ(table.size(), 8 + 28);
  EXPECT_EQ(table.Find(0), plain);
  EXPECT_EQ(plain->name.c_str(), name);
  EXPECT_EQ(table.Find(first), made);
}

TEST_F(DeviceTableTest, WhatCannotBeOneIsRefused) {
  DeviceTable table(PciNics(9));
  EXPECT_EQ(Refusal(&table, {}), "the list of devices is empty");
  EXPECT_EQ(Refusal(&table, {0, 9}), "there is no device 9");
  EXPECT_EQ(Refusal(&table, {0, -1}), "there is no device -1");
  EXPECT_EQ(Refusal(&table, {0, 1, 0}), "eth0 is listed twice");
  EXPECT_EQ(Refusal(&table, {0, 1, 2, 3, 4, 5, 6, 7, 8}), "9 devices are more than 8");
  EXPECT_EQ(Make(&table, {0, 1, 2, 3, 4, 5, 6, 7}), 9);
  EXPECT_EQ(Refusal(&table, {9, 8}),
            "device 9 (eth0+eth1+eth2+eth3+eth4+eth5+eth6+eth7) is a merged device already");
}

TEST_F(DeviceTableTest, AddressesOfTwoFamiliesAreRefused) {
  Nic v6 = PciNic(1);
  v6.address = AddressOf("fd00::1");
  DeviceTable table({PciNic(0), v6});
  EXPECT_EQ(
      Refusal(&table, {0, 1}),
      "eth0 has an IPv4 address and eth1 an IPv6 one; set NCCL_SOCKET_FAMILY to use one family");
}

TEST_F(DeviceTableTest, WhatNcclOnlyTakesForOneCardIsOneWhenAskedFor) {
  Nic bridge = PciNic(1);
  bridge.name = "cni0";
  bridge.pci_path = "";
  Nic virtio = PciNic(2);
  virtio.pci_path = "/sys/devices/pci0000:00/0000:00:05.0/virtio2";
  DeviceTable table({PciNic(0), bridge, virtio});
  EXPECT_EQ(
      Refusal(&table, {0, 1}),
      "cni0 is not a PCI function; set NCCL_NET_FORCE_MERGE or NCCL_NET_MERGE_LEVEL to merge it");
  EXPECT_NE(Refusal(&table, {1, 2}), "");
  {
    const ScopedVariable merge("NCCL_NET_FORCE_MERGE", "eth0,cni0");
    EXPECT_EQ(Make(&table, {0, 1}), 3);
  }
  const ScopedVariable level("NCCL_NET_MERGE_LEVEL", "PHB");
  EXPECT_EQ(Make(&table, {1, 2}), 4);
}

TEST_F(DeviceTableTest, AfterTheLastCommunicatorTheVirtualOnesAreNotCounted) {
  DeviceTable table(PciNics(4));
  EXPECT_EQ(Make(&table, {0, 1}), 4);
  EXPECT_EQ(Make(&table, {2, 3}), 5);
  const Device* const first = table.Find(4);
  table.ForgetVirtual();
  EXPECT_EQ(table.size(), 4);
  // NCCL may keep using the old indices.
  EXPECT_EQ(table.Find(4), first);
  ASSERT_NE(table.Find(5), nullptr);
  // Or it may ask again and gets the same index.
  EXPECT_EQ(Make(&table, {1, 0}), 4);
  EXPECT_EQ(table.size(), 5);
  EXPECT_EQ(table.Find(4), first);
  EXPECT_EQ(Make(&table, {2, 3}), 5);
  EXPECT_EQ(table.size(), 6);
}

TEST_F(DeviceTableTest, OthersAfterTheLastCommunicatorTakeTheirPlace) {
  DeviceTable table(PciNics(4));
  Make(&table, {0, 1});
  Make(&table, {2, 3});
  const Device* const first = table.Find(4);
  const std::string name = first->name;
  table.ForgetVirtual();
  EXPECT_EQ(Make(&table, {2, 3}), 4);
  EXPECT_EQ(table.size(), 5);
  EXPECT_EQ(table.Find(4)->name, "eth2+eth3");
  EXPECT_EQ(first->name, name);
}

TEST_F(DeviceTableTest, ManyThreadsMayAskAtOnce) {
  DeviceTable table(PciNics(8));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&table] {
      for (int i = 0; i < 7; ++i) {
        const int index = Make(&table, {i, i + 1});
        const Device* const device = table.Find(index);
        ASSERT_NE(device, nullptr);
        EXPECT_EQ(device->members, (std::vector<int>{i, i + 1}));
        EXPECT_LT(index, table.size());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(table.size(), 8 + 7);
}

TEST_F(DeviceTableTest, TheTableOfTheProcessIsOne) {
  EXPECT_EQ(&DeviceTable::Get(), &DeviceTable::Get());
  EXPECT_EQ(DeviceTable::Get().Find(DeviceTable::Get().size()), nullptr);
}

}  // namespace
}  // namespace nccltune::net
