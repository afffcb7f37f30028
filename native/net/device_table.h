// SPDX-License-Identifier: Apache-2.0
//
// The devices that NCCL sees: the NICs of this host, each several times, then those that it asked
// to have as one.
#ifndef NCCLTUNE_NET_DEVICE_TABLE_H_
#define NCCLTUNE_NET_DEVICE_TABLE_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "net/device.h"

namespace nccltune::net {

// As many as the newest interface (v12) can name; v9 to v11 stop at 4.
inline constexpr size_t kMostMembers = 8;

// How often NCCL sees a NIC where nobody says how often. NCCL makes two channels for a device, and
// a channel waits for its peer between two bursts: with four devices others are under way
// meanwhile. Not where devices are to be made one: a NIC's devices never are.
int DevicesEach(size_t nics);

// Thread-safe. A device and its texts live as long as the table: NCCL keeps pointers to them.
class DeviceTable {
 public:
  // The table of the process, filled at the first call and never taken apart.
  static DeviceTable& Get();

  // Each NIC is `devices_each` devices that share its speed: all NICs, then all of them again.
  explicit DeviceTable(std::vector<Nic> nics, int devices_each = 1);
  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;

  std::vector<Nic> nics() const;

  // What NCCL is to be told: the plain and the virtual devices since the last ForgetVirtual.
  int size() const;

  // Null where there is none. Virtual devices from before a ForgetVirtual are still found.
  const Device* Find(int index) const;

  // The index of one device over these, the same for the same set in whatever order; a single one
  // is itself. -1 with the reason in `error` where they cannot be one.
  //
  // NICs that are no PCI functions are made one only where NCCL_NET_FORCE_MERGE or
  // NCCL_NET_MERGE_LEVEL is set. NCCL puts all of them (virtio, bridges, tunnels) under the first
  // CPU, takes them for ports of one card, and would fuse them unasked.
  int MakeVirtual(std::span<const int> members, std::string* error);

  // For the end of the last communicator where NCCL says that it is the end (v11 and later). NCCL
  // then drops the plugin, which stays in memory (-z nodelete): if it comes back, it counts the
  // devices anew and must not take the virtual ones for NICs. The indices that it had stay valid,
  // since it keeps and goes on using them under NCCL_NET_PLUGIN_REF_COUNT=1.
  void ForgetVirtual();

 private:
  std::string Objection(std::span<const int> members) const;

  mutable std::mutex mutex_;
  const std::vector<Nic> nics_;
  const size_t plain_;  // devices that are one NIC
  size_t told_;         // devices that NCCL is told of
  std::vector<const Device*> devices_;
  std::vector<std::unique_ptr<const Device>> owned_;  // those that were replaced, too
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_DEVICE_TABLE_H_
