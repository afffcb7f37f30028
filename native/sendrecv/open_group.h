// SPDX-License-Identifier: Apache-2.0
//
// The calls of a thread between ncclGroupStart and the outermost ncclGroupEnd.
//
// Calls go to NCCL at once until the first eligible message (route.h). That call and all
// later ones are held in their order. NCCL puts messages, and some collectives as messages, into
// one queue for each peer, so no call may overtake another. Messages are posted to peers only at
// the end of the group, because ncclGroupSimulateEnd or a failing call may end the group without
// running it.
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
  // Returns the OpenGroup of a thread, or null if the thread has none yet.
  static OpenGroup* Find(const ThreadState& thread) {
    return static_cast<OpenGroup*>(thread.open_group);
  }

  // The calls of this group so far, as long as they repeat the thread's last group. The functions
  // below do not include these calls.
  RepeatedGroup repeated;

  int depth() const { return depth_; }
  bool IsOpen() const { return depth_ != 0; }
  void Start() { ++depth_; }
  // Leaves a nested group, or a group that `repeated` has ended.
  void LeaveGroup() {
    // End() is not called for a group that `repeated` has ended, so reset the mark here as well.
    if (--depth_ == 0) doubtful_ = false;
  }

  bool HasHeldCalls() const { return !calls_.held.empty(); }
  // Returns whether NCCL has refused a call of the group. Then NCCL will refuse the whole group.
  bool failed() const { return failed_; }
  // Notes that a call has failed. NCCL may refuse the whole group because of that call.
  void MarkDoubtful() { doubtful_ = true; }
  bool doubtful() const { return doubtful_; }
  // Records that a communicator of the group has failed.
  void Fail(nccl::Result error) { error_ = error; }
  nccl::Result error() const { return error_; }

  // Adds a message that was already passed to NCCL.
  void AddAlreadyCalled(MessageCall call);
  // Records another call that was already passed to NCCL, and returns that call's `result`.
  nccl::Result AddOther(nccl::Result result);
  // Passes a call to NCCL at once and adds it.
  nccl::Result CallNow(MessageCall call, const Native& native);
  nccl::Result CallNow(const EnqueueCall& call);
  void Hold(MessageCall call);
  void Hold(std::unique_ptr<EnqueueCall> call);
  // Holds the start or end of a nested group.
  void HoldNested(std::unique_ptr<EnqueueCall> call);
  // Returns whether a held call uses the operator.
  bool HoldsUseOf(nccl::RedOp op, nccl::Comm comm) const;
  // Passes all held calls to NCCL without posting them to peers. Use it only if NCCL will not run
  // the group.
  void Flush(const Native& native);
  // Returns whether ncclGroupSimulateEnd would run the group. NCCL runs the group if one of its
  // communicators is nonblocking.
  bool IgnoresSimulation() const;

  void AddNew(NewCommunicator made);
  // Drops a communicator that ends inside the group, which NCCL does not allow. Returns whether
  // some messages of the communicator are held.
  bool Forget(const Communicator* communicator);

  // Ends the group. Returns its calls and the communicators that NCCL creates at its end. The
  // object is empty afterwards.
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
