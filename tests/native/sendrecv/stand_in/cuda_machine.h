// SPDX-License-Identifier: Apache-2.0
// The state of the CUDA stand-in in one process: GPUs, contexts, and streams and events by their
// handles.
#pragma once

#include "sendrecv/stand_in/cuda_options.h"
#include "sendrecv/stand_in/soft_cuda.h"
#include "standard.h"

namespace nccltune::soft {

// Streams of the CUDA stand-in. A thread for each stream runs its operations in order, and sleeps
// when there are none.
class SoftStream;
struct Context;
struct Graph;

// The position in a stream at which the mark was made.
struct Mark {
  std::shared_ptr<SoftStream> stream;  // null: nothing to wait for
  uint64_t sequence = 0;

  bool Done() const;
  void Wait() const;
};

struct Operation {
  std::vector<Mark> after;
  // Polled at the head of the queue; null: the operation may run at once.
  std::function<bool()> ready;
  // Null: the operation only waits.
  std::function<void()> run;
  // With one connection, the kind selects the queue. kKernel also stands for waits.
  enum class Kind : uint8_t { kKernel, kCopyIn, kCopyOut, kPush, kPull, kWrite, kRecord };
  Kind kind = Kind::kKernel;
};

// A hardware queue. Operations of its streams start in the order of the calls. An operation that
// waits at the head blocks all behind it. One that runs blocks only its own stream.
class Queue {
 private:
  friend class SoftStream;
  struct Entry {
    SoftStream* stream = nullptr;
    uint64_t sequence = 0;
    Operation operation;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
};

class SoftStream : public std::enable_shared_from_this<SoftStream> {
 public:
  SoftStream(Context& context, std::shared_ptr<Queue> queue, unsigned flags, uint64_t id);

  // For a stream that is not under capture. The caller orders the calls.
  Mark Push(Operation operation);
  // The caller holds the machine's lock.
  Mark Last();
  bool Done(uint64_t sequence);
  void Wait(uint64_t sequence);
  // Lets the thread end when all operations are done.
  void Retire();

  Context& context() const { return context_; }
  unsigned flags() const { return flags_; }
  uint64_t id() const { return id_; }

  // The graph if the stream is under capture; protected by the machine's lock.
  std::shared_ptr<Graph> graph;
  size_t lane = 0;
  bool green = false;  // of a green context; protected by the machine's lock
  // With one connection: parts of this stream in other queues, and the part (or null: this) of the
  // last operation; protected by the machine's lock.
  std::map<Queue*, std::shared_ptr<SoftStream>> parts;
  SoftStream* last_part = nullptr;

 private:
  Mark LastHere();
  void Serve();

  Context& context_;
  const std::shared_ptr<Queue> queue_;
  const unsigned flags_;
  const uint64_t id_;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t pushed_ = 0;
  uint64_t done_ = 0;
  bool has_thread_ = false;
  std::atomic<bool> retired_{false};
};

// The captured operations, in the order of the calls. Lane 0 is the stream in which the capture
// began.
struct Graph {
  struct Node {
    size_t lane = 0;
    Operation operation;
    size_t records = 0;  // index of a mark in the graph, from 1
    size_t waits_for = 0;
  };
  std::vector<Node> nodes;
  std::vector<std::weak_ptr<SoftStream>> lanes;
  std::map<size_t, size_t> lane_of_mark;
  std::vector<bool> joined;  // by lane: lane 0 has waited for all of its operations
  size_t marks = 0;
  bool invalid = false;
  int mode = 0;
  std::thread::id thread;  // the thread that began the capture
};

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
  bool timed = false;
  // In nanoseconds: when the stream reached the last record of an event with timing. With one
  // connection it stays 0.
  std::shared_ptr<std::atomic<int64_t>> reached;
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
  std::atomic<int> modules{0};
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
// The machine, locked, and the stream of the handle.
#define SOFT_STREAM(handle)                                    \
  Machine& all = Machine::Get();                               \
  std::unique_lock lock(all.mutex);                            \
  const std::shared_ptr<SoftStream> stream = all.Find(handle); \
  if (stream == nullptr) return kInvalidHandle

}  // namespace nccltune::soft
