// SPDX-License-Identifier: Apache-2.0
//
// The sends and receives of a thread, from the outermost ncclGroupStart to its end, or one alone.
#ifndef NCCLTUNE_SENDRECV_CALLS_H_
#define NCCLTUNE_SENDRECV_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sendrecv/communicator.h"
#include "sendrecv/interpose.h"

namespace nccltune::sendrecv {

// A send or receive to a rank that lanes lead to. It waits here for the group's end.
struct Call {
  Role role = Role::kSender;
  void* buffer = nullptr;
  size_t count = 0;
  nccl::DataType type = nccl::kInt8;
  int peer = 0;
  nccl::Comm comm = nullptr;
  nccl::Stream stream = nullptr;
  std::shared_ptr<Communicator> communicator;

  uint64_t bytes() const { return count * nccl::SizeOf(type); }
};

// `grouped`: NCCL's group is open and ends here. `others`: NCCL has more to do in it.
struct CallGroup {
  std::vector<Call> calls;
  bool grouped = false;
  bool others = false;
};

nccl::Result CallOne(const Call& call, const Native& native);

// What comes behind NCCL's part of a group, where NCCL has said that it is in progress.
class Rest {
 public:
  virtual ~Rest() = default;
  // NCCL has done its part when it says so of all of them.
  virtual std::vector<nccl::Comm> Comms() const = 0;
  // Then, once.
  virtual nccl::Result Finish() = 0;
  // Or never: `why` it is of no use.
  virtual void GiveUp(const std::string& why) = 0;
};

// NCCL's result, or what went wrong with ours. Of communicators that do not block it may be that it
// is in progress: then there is a rest.
nccl::Result RunCalls(const CallGroup& group, const Native& native, std::shared_ptr<Rest>* rest);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_CALLS_H_
