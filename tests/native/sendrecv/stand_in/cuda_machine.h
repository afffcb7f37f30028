// SPDX-License-Identifier: Apache-2.0
//
// The state of the CUDA stand-in in one process: GPUs, contexts, and streams and events by their
// handles.
#ifndef NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MACHINE_H_
#define NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MACHINE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "sendrecv/stand_in/cuda_options.h"
#include "sendrecv/stand_in/cuda_stream.h"
#include "sendrecv/stand_in/soft_cuda.h"

namespace nccltune::soft {

// A lock that threads get in the order of their requests.
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

// The primary context of a GPU. Other contexts are not supported.
struct Context {
  int gpu = 0;
  std::atomic<CUresult> error{0};  // an error stays for ever, as in CUDA
  int retained = 0;
  std::shared_ptr<SoftStream> legacy;
  std::vector<std::weak_ptr<SoftStream>> streams;
  std::vector<std::shared_ptr<Queue>> queues;  // empty: each stream has its own
  size_t next_queue = 0;
  // With one connection: the queues of copies, by Operation::Kind. Null otherwise.
  std::map<Operation::Kind, std::shared_ptr<Queue>> engines;
  uint64_t peers = 0;    // GPUs to which access is enabled, as bits
  CopyEngine engine;     // for copies to and from peers
  uintptr_t resets = 0;  // functions from before the last reset are invalid

  // Logs the reason on stderr. All later calls of the context fail.
  void Fail(CUresult result, const std::string& why);
};

struct Event {
  Context* context = nullptr;
  Mark mark;
  // Not null: recorded under capture.
  std::weak_ptr<Graph> graph;
  size_t graph_mark = 0;
};

class Machine {
 public:
  // Never destroyed.
  static Machine& Get();
  static bool started();
  static void Start();

  const CudaOptions options;
  Refusals refusals{"SOFT_CUDA_REFUSE"};

  // Protects the members below and orders all enqueued operations.
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> contexts;
  std::map<uint64_t, std::shared_ptr<SoftStream>> streams;
  std::map<uint64_t, std::shared_ptr<Event>> events;
  std::map<uint64_t, std::shared_ptr<Graph>> graphs;
  uint64_t NextHandle() { return handles_ += 0x40; }
  // Destroys the streams and events of a context, as a reset does. Requires the lock.
  void DestroyAll(Context& context);
  // Aborts if a reset has destroyed this stream or event: CUDA may crash then. Requires the lock.
  void CheckHandle(const void* handle) const;

  // Captures in progress that forbid unsafe calls, also to other threads.
  std::vector<std::weak_ptr<Graph>> captures;
  std::atomic<int> capturing{0};

  // Requires the lock. Null: no such stream. Resolves the legacy and the per-thread stream for the
  // current context.
  std::shared_ptr<SoftStream> Find(CUstream stream);
  std::shared_ptr<SoftStream> NewStream(Context& context, unsigned flags);
  // Enqueues in the stream, or adds to the graph that it captures.
  Mark Enqueue(SoftStream& stream, Operation operation);

 private:
  Machine();
  Mark Push(SoftStream& stream, Operation operation);
  uint64_t handles_ = 0x5000'0000;
  std::set<uint64_t> destroyed_by_reset_;
};

// Returns the calling thread's current context; null: none.
Context* Current();
std::vector<Context*>& ContextStack();
// Returns null if the handle is not a context of this process.
Context* ContextOf(CUcontext context);
inline CUcontext HandleOf(Context* context) { return reinterpret_cast<CUcontext>(context); }

// The calling thread's CUstreamCaptureMode.
int& CaptureMode();

// Called first in every function. Fails if cuInit was not called or SOFT_CUDA_REFUSE selects the
// call.
CUresult Enter(const char* function);
// Like Enter, and requires a current context without an error.
CUresult EnterContext(const char* function);

// Enqueues an operation in a stream, given by its handle.
CUresult EnqueueIn(CUstream stream, Operation operation);
// Waits for all work of the context.
CUresult SynchronizeContext(Context& context);

#define SOFT_ENTER() \
  if (const CUresult entered = Enter(__func__); entered != kCudaSuccess) return entered
#define SOFT_ENTER_CONTEXT() \
  if (const CUresult entered = EnterContext(__func__); entered != kCudaSuccess) return entered

}  // namespace nccltune::soft

#endif  // NCCLTUNE_TESTS_SENDRECV_STAND_IN_CUDA_MACHINE_H_
