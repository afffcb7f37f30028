// SPDX-License-Identifier: Apache-2.0
//
// Sends of one flow without a copy (MSG_ZEROCOPY), and what the kernel reports of them.
//
// A send is outstanding until the kernel has reported that it holds no page of it any more. Only a
// socket that is open tells: one of a dead flow is kept until all of its reports are there.
#ifndef NCCLTUNE_NET_ZERO_COPY_H_
#define NCCLTUNE_NET_ZERO_COPY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net/counters.h"
#include "net/net_settings.h"
#include "net/socket.h"
#include "net/zero_copy_choice.h"
#include "net/zero_copy_ledger.h"

namespace nccltune::net {

// The kernel has it for TCP.
bool KernelHasZeroCopy();

class ZeroCopy {
 public:
  ZeroCopy(ZeroCopyMode mode, Counters& counters) : choice_(mode), counters_(counters) {}

  // Of the socket that is up
  // -----------------------------------------------------------------------

  // The next `bytes` should go to Send.
  bool Wants(size_t bytes) const { return choice_.Wants(bytes, ledger_.outstanding()); }
  // Bytes of the frame that is being written. Nothing: the kernel would not, they are to be copied.
  std::optional<Moved> Send(int fd, uint64_t request, std::span<const std::byte> bytes);
  // No more of that frame is read by us. False: Reports or DyingReports will have its request.
  bool Finish() { return ledger_.Finish(); }

  bool outstanding() const { return ledger_.outstanding() != 0; }
  // The request that the kernel has held for the longest time.
  std::optional<uint64_t> oldest() const { return ledger_.oldest(); }
  // Reads what the kernel reports. False: nothing. `released` gets a request for each frame that
  // nobody reads any more.
  bool Reports(int fd, std::vector<uint64_t>* released);
  // An otherwise complete request had to wait for the kernel, and the flow is ended for it.
  void HeldTooLong(int64_t now_ns);

  // The flow is dead, or ends with sends outstanding: nothing more goes out, and the socket closes
  // when all is reported. Another socket begins.
  void Abandon(Socket socket, int64_t now_ns, std::vector<uint64_t>* released);

  // Of sockets that were abandoned
  // -----------------------------------------------------------------

  bool dying() const { return !dying_.empty(); }
  bool DyingReports(std::vector<uint64_t>* released);
  // Since when the first of them waits.
  int64_t dying_since_ns() const { return dying_.front().since_ns; }
  // For a quarter of a second at most. What the kernel still holds then, it holds.
  void AwaitDying();

 private:
  // What the error queue of `fd` says of `ledger`. False: nothing.
  bool Read(int fd, ZeroCopyLedger& ledger, bool up, std::vector<uint64_t>* released);
  // The state became kDropped.
  void CountDrop();

  ZeroCopyChoice choice_;
  Counters& counters_;
  ZeroCopyLedger ledger_;
  bool allowed_ = false;  // by the option of the socket
  bool counted_ = false;
  struct Dying {
    Socket socket;
    ZeroCopyLedger ledger;
    int64_t since_ns;
  };
  std::vector<Dying> dying_;
};

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_ZERO_COPY_H_
