// SPDX-License-Identifier: Apache-2.0
//
// Communicators that the application has destroyed or aborted. They are kept until their operations
// are complete. NCCL would have buffered small sends, so that the peer could receive them later.
// With copy engines the peer may still have to copy them from this rank's memory.
#ifndef NCCLTUNE_SENDRECV_RETIRED_COMMUNICATORS_H_
#define NCCLTUNE_SENDRECV_RETIRED_COMMUNICATORS_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "sendrecv/communicator.h"

namespace nccltune::sendrecv {

class RetiredCommunicators {
 public:
  // Does nothing if `communicator` is null.
  void Add(const std::shared_ptr<Communicator>& communicator);
  // Frees the communicators whose operations are complete, and waits up to `patience` for the
  // others. If `patience` is not 0, waits up to 30 s for living peers that have not received all
  // messages. The remaining communicators are tried again when the next communicator ends.
  void Release(std::chrono::milliseconds patience);

 private:
  bool HaveUnreceivedSends();
  bool ReleaseOnce();

  std::mutex mutex_;
  std::vector<std::shared_ptr<Communicator>> retired_;
};

// Called at exit: waits up to 5 s for peers that have not received all messages.
void WaitForReceivers();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_RETIRED_COMMUNICATORS_H_
