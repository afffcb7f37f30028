// SPDX-License-Identifier: Apache-2.0
//
// Zero-copy sends of one flow (MSG_ZEROCOPY) and the kernel's reports of them.
//
// A send is outstanding until the kernel reports that it has released all its pages. Only an open
// socket delivers reports. So the socket of a dead flow is kept until all its reports have arrived.
#ifndef NCCLTUNE_NET_ZERO_COPY_H_
#define NCCLTUNE_NET_ZERO_COPY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "net/counters.h"
#include "net/net_settings.h"
#include "net/socket.h"
#include "net/zero_copy_choice.h"
#include "net/zero_copy_ledger.h"

namespace nccltune::net {

// Returns whether the kernel supports MSG_ZEROCOPY for TCP.
bool KernelHasZeroCopy();

class ZeroCopy {
 public:
  ZeroCopy(ZeroCopyMode mode, Counters& counters) : choice_(mode), counters_(counters) {}

  // Functions for the current socket.

  // Returns whether the next `bytes` should be sent with Send.
  bool Wants(size_t bytes) const { return choice_.Wants(bytes, ledger_.outstanding()); }
  // Sends bytes of the current frame without a copy. Returns nothing if the kernel refused; then
  // they must be copied.
  std::optional<IoResult> Send(int fd, uint64_t request, std::span<const std::byte> bytes);
  // Ends the current frame. Returns false if the kernel still reads its buffer; then Reports or
  // ReadDyingReports returns its request later.
  bool Finish() { return ledger_.Finish(); }

  bool outstanding() const { return ledger_.outstanding() != 0; }
  // Returns the request that the kernel has held for the longest time.
  std::optional<uint64_t> oldest() const { return ledger_.oldest(); }
  // Reads the kernel's reports. Returns false if there are none. Appends a request to `released`
  // for each frame whose buffer is no longer read.
  bool Reports(int fd, std::vector<uint64_t>* released);
  // A request was complete except for the kernel's report, and its flow is ended because of that.
  void HeldTooLong(int64_t now_ns);

  // Stops the socket: nothing more is sent. Takes ownership of `*socket` until all sends are
  // reported; if none is outstanding, the caller keeps it. Later calls are for a new socket. If it
  // throws, nothing has changed.
  void Abandon(Descriptor* socket, int64_t now_ns, std::vector<uint64_t>* released);
  // Resets the connection but keeps the socket open. The kernel drops its send queue.
  static void Disconnect(int fd);

  // Functions for abandoned sockets.

  bool dying() const { return !dying_.empty(); }
  bool ReadDyingReports(std::vector<uint64_t>* released);
  // Returns when the oldest of them was abandoned.
  int64_t dying_since_ns() const { return dying_.front().since_ns; }
  // Waits at most a quarter of a second for the remaining reports.
  void AwaitDying();

 private:
  // Reads the error queue of `fd` into `ledger`. Returns false if it is empty.
  bool Read(int fd, ZeroCopyLedger& ledger, bool up, std::vector<uint64_t>* released);
  // Counts the change to kDropped once.
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
