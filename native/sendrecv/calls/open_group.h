// SPDX-License-Identifier: Apache-2.0
// The calls of a thread between ncclGroupStart and the outermost ncclGroupEnd.
//
// Calls go to NCCL at once until the first eligible message (route.h). That call and all
// later ones are held in their order. NCCL puts messages, and some collectives as messages, into
// one queue for each peer, so no call may overtake another. Messages are posted to peers only at
// the end of the group, because ncclGroupSimulateEnd or a failing call may end the group without
// running it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sendrecv/calls/message_call.h"
#include "sendrecv/group/communicator.h"
#include "sendrecv/hooks/interpose.h"
#include "sendrecv/lane/enqueued_work.h"

namespace nccltune::sendrecv {

// The fast path for groups of small messages. NCCL carries small messages, and this library must
// not slow them down. Programs usually repeat such groups. So a thread remembers its last group,
// and looks nothing up while the next group matches the remembered one.
//
// Between two groups, NCCL's code evicts this library's code and data from the nearest caches. So
// the number of cache lines touched matters, not the number of instructions.
//
// The last group of a thread, if it had only small messages of one blocking communicator in one
// stream.
class RepeatedGroup {
 public:
  // Returns whether the next call of the open group matches the remembered group. Then the caller
  // passes the call to NCCL. `changes` is CommunicatorTable::changes().
  bool TryRepeat(Role role, const void* buffer, size_t count, nccl::DataType type, int peer,
                 nccl::Comm comm, nccl::Stream stream, uint64_t changes) {
    if (next_ >= end_) return false;
    RememberedCall& known = calls_[next_];
    const bool like = comm == comm_ && stream == stream_ && peer == known.peer &&
                      role == known.role && type == known.type && count - 1 < known.small_limit &&
                      buffer != nullptr;
    if (!like || (next_ == 0 && !IsCurrent(changes))) return false;
    known.count = count;
    ++next_;
    return true;
  }
  // Returns whether the open group has repeated all calls of the remembered group and no others.
  bool IsFullRepeat() const { return next_ != 0 && next_ == end_; }

  // End passes the end of a repeated group to NCCL. CallAlone makes a repeated single call outside
  // of a group. Both functions return NCCL's result. They do nothing and return nothing if the
  // remembered group is no longer valid.
  [[gnu::hot]] std::optional<nccl::Result> End(const Native& native, uint64_t changes);
  [[gnu::hot]] std::optional<nccl::Result> CallAlone(const Native& native, void* buffer,
                                                     uint64_t changes);

  // Returns the calls of the open group so far, without their communicators. Afterwards TryRepeat
  // returns false until Restart. Call StopRepeating when the open group differs from the remembered
  // group.
  std::vector<MessageCall> StopRepeating();
  // Compares the next calls with the remembered group from its beginning. Call Restart when a new
  // group begins.
  void Restart() {
    next_ = 0;
    end_ = size_;
  }

  // Remembers a completed group whose messages NCCL carried. Remembers nothing if the group has
  // other calls than small messages of one blocking communicator in one stream. The caller holds
  // the mutexes of its communicators and has called EnqueuedWork::Enqueued.
  void Remember(const GroupCalls& group, uint64_t changes);

 private:
  struct RememberedCall {
    uint64_t small_limit = 0;  // most elements with which the message is still small
    int peer = 0;
    nccl::DataType type = nccl::kInt8;
    uint32_t size = 0;  // bytes of an element
    Role role = Role::kSender;
    LaneEnd* end = nullptr;  // this rank's end of the message's lane; null if there is no lane
    size_t count = 0;        // elements of this call in the open group
  };

  bool IsCurrent(uint64_t changes) const {
    return changes == changes_ && !communicator_->needs_check();
  }
  bool Add(const MessageCall& call);
  void Uncount();
  template <typename Call>
  std::optional<nccl::Result> Run(uint64_t changes, const Call& call);

  nccl::Comm comm_ = nullptr;
  nccl::Stream stream_ = nullptr;
  uint32_t next_ = 0;
  uint32_t end_ = 0;  // number of calls that may be repeated
  // Size of `calls_`, or 0 if no group is remembered. Stored here to be in the cache line of the
  // members above.
  uint32_t size_ = 0;
  Communicator* communicator_ = nullptr;  // valid as long as `changes_` is current
  uint64_t changes_ = 0;
  uint64_t number_ = 0;  // the group's number in EnqueuedWork
  std::vector<RememberedCall> calls_;
  std::vector<int> peers_;
};

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
