// SPDX-License-Identifier: Apache-2.0
//
// Communicators of the NCCL stand-in, and how their ranks connect.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_COMM_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_COMM_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
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
  std::atomic<bool> revoked{false};
  std::atomic<ncclResult_t> error{0};

  // Held by the calls that enqueue.
  std::mutex mutex;
  CUevent last = nullptr;  // the end of its last kernel: the kernels run one after another
  std::map<Kernel*, std::unique_ptr<Kernel>> kernels;
  uint64_t splits = 0;
  uint64_t shrinks = 0;
  uint64_t grows = 0;
  std::set<int> ops;  // operators created by the application; numbers are not reused
  int next_op = kNcclBuiltInOps;
};

// Makes a communicator's context current on this thread while the object lives.
class ScopedCommContext {
 public:
  explicit ScopedCommContext(CUcontext context) { cuCtxPushCurrent_v2(context); }
  ~ScopedCommContext() { cuCtxPopCurrent_v2(nullptr); }
  ScopedCommContext(const ScopedCommContext&) = delete;
  ScopedCommContext& operator=(const ScopedCommContext&) = delete;
};

// Creates a communicator on the calling thread's GPU, or on GPU 0 if it has none. Null: there is no
// CUDA.
std::shared_ptr<Comm> NewComm();
// Returns null if there is no such communicator.
std::shared_ptr<Comm> FindComm(const ncclComm* handle);
ncclComm_t HandleOf(const std::shared_ptr<Comm>& comm);
void ForgetComm(const std::shared_ptr<Comm>& comm);

// Returns when all ranks have joined.
ncclResult_t Join(Comm& comm, const Place& place, int ranks, int rank);

// The vote of each of `voters`, in order. A negative color joins no communicator. `made`: the new
// communicator, or one without ranks.
struct Vote {
  bool shrink = false;
  uint64_t round = 0;
  std::vector<int> voters;
  int color = 0;
  int key = 0;
};
// Connects all ranks of `parent` in a communicator of `ranks`, each with its own number. The rank
// that has a place shares it with the others.
ncclResult_t JoinGrown(Comm& parent, uint64_t round, const Place* place, int ranks, Comm& made);
ncclResult_t JoinByVote(Comm& parent, const Vote& vote, Comm& made);

ncclResult_t Fail(ncclResult_t result, const std::string& why);
const char* LastFailure();

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_NCCL_COMM_H_
