// SPDX-License-Identifier: Apache-2.0
//
// Communicators of the NCCL stand-in, and how ranks meet.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_COMM_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_COMM_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sendrecv/stand_in/nccl_segment.h"
#include "sendrecv/stand_in/soft_nccl.h"

namespace nccltune::soft {

struct Kernel;

struct Comm {
  std::shared_ptr<Segment> segment;
  int rank = 0;
  int ranks = 0;
  int gpu = 0;
  CUcontext context = nullptr;
  bool blocking = true;
  std::atomic<bool> ready{false};
  std::atomic<bool> aborted{false};
  std::atomic<bool> finalized{false};
  std::atomic<ncclResult_t> error{0};

  // Of the calls that enqueue.
  std::mutex mutex;
  CUevent last = nullptr;  // its kernels run one after another
  std::map<Kernel*, std::unique_ptr<Kernel>> kernels;
  uint64_t splits = 0;
  uint64_t shrinks = 0;
};

// Makes a context of the comm the thread's, as long as it lives.
class InContext {
 public:
  explicit InContext(CUcontext context) { cuCtxPushCurrent_v2(context); }
  ~InContext() { cuCtxPopCurrent_v2(nullptr); }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
};

// On the calling thread's GPU, which is the first where it has none. Null: there is no CUDA.
std::shared_ptr<Comm> NewComm();
// Null: there is no such communicator.
std::shared_ptr<Comm> FindComm(const ncclComm* handle);
ncclComm_t HandleOf(const std::shared_ptr<Comm>& comm);
void ForgetComm(const std::shared_ptr<Comm>& comm);

// Returns when all ranks are there.
ncclResult_t Join(Comm& comm, const Place& place, int ranks, int rank);

// One vote of `voters`, in order; a color below 0 joins nothing. `made` is ready, or has no ranks.
struct Vote {
  bool shrink = false;
  uint64_t round = 0;
  std::vector<int> voters;
  int color = 0;
  int key = 0;
};
ncclResult_t JoinByVote(Comm& parent, const Vote& vote, Comm& made);

ncclResult_t Fail(ncclResult_t result, const std::string& why);
const char* LastFailure();

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_COMM_H_
