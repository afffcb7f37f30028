// SPDX-License-Identifier: Apache-2.0
//
// The calls of a thread between ncclGroupStart and the outermost ncclGroupEnd.
//
// Calls go to NCCL at once until the first eligible message. That call and all later ones are held
// in their order. NCCL puts messages, and some collectives as messages, into one queue for each
// peer, so none may overtake another. Peers learn of a message only at the end of the group. Before
// that, ncclGroupSimulateEnd or a failing call may end the group without running it.
#ifndef NCCLTUNE_SENDRECV_OPEN_GROUP_H_
#define NCCLTUNE_SENDRECV_OPEN_GROUP_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sendrecv/calls.h"
#include "sendrecv/repeated_group.h"

namespace nccltune::sendrecv {

class OpenGroup {
 public:
  // A communicator that NCCL creates at the end of the group.
  struct NewCommunicator {
    std::shared_ptr<Communicator> communicator;
    nccl::Comm* comm = nullptr;
  };

  static OpenGroup& Of(ThreadState& thread) {
    if (thread.open_group == nullptr) Make(&thread);
    return *static_cast<OpenGroup*>(thread.open_group);
  }
  // Returns null if the thread has no OpenGroup yet.
  static OpenGroup* Find(const ThreadState& thread) {
    return static_cast<OpenGroup*>(thread.open_group);
  }

  // The part of the group that repeats the last one. The functions below do not see it.
  RepeatedGroup repeated;

  int depth() const { return depth_; }
  bool IsOpen() const { return depth_ != 0; }
  void Start() { ++depth_; }
  // Leaves a nested group, or a group that `repeated` has ended.
  void LeaveGroup() {
    // Reset it here as well: End() is not called for a group that `repeated` has ended.
    if (--depth_ == 0) doubtful_ = false;
  }

  bool HasHeldCalls() const { return !calls_.held.empty(); }
  // NCCL has refused a call of the group and will refuse the whole group.
  bool failed() const { return failed_; }
  // A call has failed, and NCCL may or may not refuse the group because of it.
  void MarkDoubtful() { doubtful_ = true; }
  bool doubtful() const { return doubtful_; }
  // Records that a communicator of the group has failed.
  void Fail(nccl::Result error) { error_ = error; }
  nccl::Result error() const { return error_; }

  // Adds a message that NCCL has already got.
  void AddAlreadyCalled(MessageCall call);
  // Records other work that NCCL has already got, and returns its `result`.
  nccl::Result AddOther(nccl::Result result);
  nccl::Result CallNow(MessageCall call, const Native& native);
  nccl::Result CallNow(const EnqueueCall& call);
  void Hold(MessageCall call);
  void Hold(std::unique_ptr<EnqueueCall> call);
  // Holds the start or end of a nested group.
  void HoldNested(std::unique_ptr<EnqueueCall> call);
  // Returns whether a held call uses the operator.
  bool HoldsUseOf(nccl::RedOp op, nccl::Comm comm) const;
  // Gives all held calls to NCCL. Peers do not learn of them, so use it only if the group will not
  // run.
  void Flush(const Native& native);
  // Returns whether NCCL runs the group although the program simulates it. NCCL does so with
  // nonblocking communicators.
  bool IgnoresSimulation() const;

  void AddNew(NewCommunicator made);
  // Drops a communicator that ends inside the group, which NCCL does not allow. Returns whether
  // some of its messages are held.
  bool Forget(const Communicator* communicator);

  // Ends the group and returns what was in it. The object is empty afterwards.
  struct Contents {
    GroupCalls calls;
    std::vector<NewCommunicator> made;
    bool failed = false;
    nccl::Result error = abi::kSuccess;
  };
  Contents End();

 private:
  // Creates the OpenGroup of a thread. It is deleted when the thread ends.
  [[gnu::noinline]] static void Make(ThreadState* thread);

  int depth_ = 0;
  bool failed_ = false;
  bool doubtful_ = false;
  nccl::Result error_ = abi::kSuccess;
  GroupCalls calls_;
  std::vector<NewCommunicator> made_;
};

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_OPEN_GROUP_H_
