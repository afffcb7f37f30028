// SPDX-License-Identifier: Apache-2.0
//
// Communicators that the application has destroyed or aborted. They are kept until their operations
// are complete. NCCL would have buffered small sends; here a peer may still have to read them.
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
  // Ignores null.
  void Add(const std::shared_ptr<Communicator>& communicator);
  // Releases the complete ones and waits up to `patience` for the others. Waits up to 30 s for
  // living peers that have not received all messages, unless `patience` is 0. The rest is tried
  // again when the next communicator ends.
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
