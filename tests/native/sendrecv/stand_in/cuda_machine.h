// SPDX-License-Identifier: Apache-2.0
//
// What a process has of the CUDA stand-in: GPUs, contexts, streams and events by their handles.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MACHINE_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MACHINE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sendrecv/stand_in/cuda_options.h"
#include "sendrecv/stand_in/cuda_stream.h"
#include "sendrecv/stand_in/soft_cuda.h"

namespace nccltune::soft {

// First come, first served.
class CopyEngine {
 public:
  class Turn {
   public:
    explicit Turn(CopyEngine& engine);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    CopyEngine& engine_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0;
  uint64_t serving_ = 0;
};

// The primary context of a GPU: there are no others.
struct Context {
  int gpu = 0;
  std::atomic<CUresult> error{0};  // stays
  int retained = 0;
  std::shared_ptr<SoftStream> legacy;
  std::vector<std::weak_ptr<SoftStream>> streams;
  std::vector<std::shared_ptr<Queue>> queues;  // none: each stream has its own
  size_t next_queue = 0;
  uint64_t peers = 0;  // enabled
  CopyEngine engine;   // for its peers

  // Says so on stderr; everything fails from now on.
  void Fail(CUresult result, const std::string& why);
};

struct Event {
  Context* context = nullptr;
  Mark mark;
  // Recorded under capture.
  std::weak_ptr<Graph> graph;
  size_t graph_mark = 0;
};

class Machine {
 public:
  // Lives as long as the process.
  static Machine& Get();
  static bool started();
  static void Start();

  const CudaOptions options;
  Refusals refusals{"SOFT_CUDA_REFUSE"};

  // Orders all that is enqueued, and keeps what follows.
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> contexts;
  std::map<uint64_t, std::shared_ptr<SoftStream>> streams;
  std::map<uint64_t, std::shared_ptr<Event>> events;
  std::map<uint64_t, std::shared_ptr<Graph>> graphs;
  uint64_t NextHandle() { return handles_ += 0x40; }

  // Captures that forbid some calls, also to others, until they end.
  std::vector<std::weak_ptr<Graph>> captures;
  std::atomic<int> capturing{0};

  // With the lock. Null: no such stream. The legacy and the per-thread one are the current
  // context's.
  std::shared_ptr<SoftStream> Find(CUstream stream);
  std::shared_ptr<SoftStream> NewStream(Context& context, unsigned flags);
  // Into the stream, or what it captures.
  Mark Enqueue(SoftStream& stream, Operation operation);

 private:
  Machine();
  uint64_t handles_ = 0x5000'0000;
};

// The calling thread's; null: none.
Context* Current();
std::vector<Context*>& ContextStack();
// Null: not a context of ours.
Context* ContextOf(CUcontext context);
inline CUcontext HandleOf(Context* context) { return reinterpret_cast<CUcontext>(context); }

// Of the calling thread: CUstreamCaptureMode.
int& CaptureMode();

// The begin of every function: cuInit was called, and this call is not to be refused.
CUresult Enter(const char* function);
// And there is a context without an error.
CUresult EnterContext(const char* function);

// One operation into a stream by its handle.
CUresult EnqueueIn(CUstream stream, Operation operation);
// All that was enqueued in the context.
CUresult SynchronizeContext(Context& context);

#define SOFT_ENTER() \
  if (const CUresult entered = Enter(__func__); entered != kCudaSuccess) return entered
#define SOFT_ENTER_CONTEXT() \
  if (const CUresult entered = EnterContext(__func__); entered != kCudaSuccess) return entered

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MACHINE_H_
