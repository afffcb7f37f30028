// SPDX-License-Identifier: Apache-2.0
//
// Communicators that the application has ended, until all that was begun with them is over: peers
// may have still to receive what was sent, which NCCL would have in their memory already.
#ifndef NCCLTUNE_SENDRECV_ENDED_H_
#define NCCLTUNE_SENDRECV_ENDED_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "sendrecv/communicator.h"

namespace nccltune::sendrecv {

class Ended {
 public:
  // Null: it was none of ours.
  void Add(const std::shared_ptr<Communicator>& communicator);
  // Gives back those that are over, and waits for others for as long as `patience`; half a minute
  // where living peers have not received yet, unless there is no patience at all. The rest is asked
  // again when the next one ends.
  void GiveBack(std::chrono::milliseconds patience);

 private:
  bool HaveSent();
  bool GiveBackOnce();

  std::mutex mutex_;
  std::vector<std::shared_ptr<Communicator>> ended_;
};

// What a process that ends without ending its communicators waits for, 5 s at most.
void WaitForReceivers();

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_ENDED_H_
