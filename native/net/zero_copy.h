// SPDX-License-Identifier: Apache-2.0
//
// Zero-copy sends (MSG_ZEROCOPY) of one flow, and the kernel's reports of these sends. A flow is
// one TCP connection of an NCCL connection.
//
// A send is outstanding until the kernel reports that it has released all pages of the send. Only
// an open socket delivers reports. So the socket of a dead flow is kept until the reports of all
// its sends have arrived.
#ifndef NCCLTUNE_NET_ZERO_COPY_H_
#define NCCLTUNE_NET_ZERO_COPY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "net/net_settings.h"
#include "net/socket.h"
#include "net/stats_page.h"
#include "net/zero_copy_choice.h"
#include "net/zero_copy_ledger.h"

namespace nccltune::net {

// Returns whether the kernel supports MSG_ZEROCOPY for TCP.
bool KernelHasZeroCopy();

class ZeroCopy {
 public:
  ZeroCopy(ZeroCopyMode mode, Counters& counters) : choice_(mode), counters_(counters) {}

  // The following functions are for the current socket.

  // Returns whether the next `bytes` should be sent with Send.
  bool Wants(size_t bytes) const { return choice_.Wants(bytes, ledger_.outstanding()); }
  // Sends bytes of the current frame without a copy. Returns nothing if the kernel refuses that;
  // then the bytes must be sent with a copy.
  std::optional<IoResult> Send(int fd, uint64_t request, std::span<const std::byte> bytes);
  // Ends the current frame. Returns false if the kernel still reads the frame's buffer. Then
  // Reports or ReadDyingReports returns the frame's request later.
  bool Finish() { return ledger_.Finish(); }

  bool outstanding() const { return ledger_.outstanding() != 0; }
  // Returns the request that the kernel has held for the longest time; nothing if it holds none.
  std::optional<uint64_t> oldest() const { return ledger_.oldest(); }
  // Reads the kernel's reports. Returns false if there are none. Appends a request to `released`
  // for each frame whose buffer is no longer read.
  bool Reports(int fd, std::vector<uint64_t>* released);
  // Records that the flow is ended because a request waited only for the kernel's report.
  void HeldTooLong(int64_t now_ns);

  // Gives up the current socket; later calls are for a new socket. If sends are outstanding,
  // disconnects the socket so that nothing more is sent. If sends are still outstanding then, takes
  // ownership of `*socket` until all sends are reported; otherwise the caller keeps the socket. If
  // Abandon throws, nothing has changed.
  void Abandon(Descriptor* socket, int64_t now_ns, std::vector<uint64_t>* released);
  // Resets the connection but keeps the socket open. The kernel drops its send queue.
  static void Disconnect(int fd);

  // The following functions are for abandoned sockets. ReadDyingReports does for them what Reports
  // does for the current socket.

  bool dying() const { return !dying_.empty(); }
  bool ReadDyingReports(std::vector<uint64_t>* released);
  // Returns the time at which the oldest abandoned socket was abandoned. dying() must be true.
  int64_t dying_since_ns() const { return dying_.front().since_ns; }
  // Waits at most a quarter of a second for the remaining reports of abandoned sockets.
  void AwaitDying();

 private:
  // Reads the kernel's reports from the error queue of `fd` into `ledger`. Returns false if there
  // are none. `up`: `fd` is the current socket.
  bool Read(int fd, ZeroCopyLedger& ledger, bool up, std::vector<uint64_t>* released);
  // Counts the flow in `zero_copy_drops` once, when its state is kDropped.
  void CountDrop();

  ZeroCopyChoice choice_;
  Counters& counters_;
  ZeroCopyLedger ledger_;
  bool allowed_ = false;  // SO_ZEROCOPY is set on the socket
  bool counted_ = false;
  struct Dying {
    Descriptor socket;
    ZeroCopyLedger ledger;
    int64_t since_ns = 0;
  };
  std::list<Dying> dying_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ZERO_COPY_H_
