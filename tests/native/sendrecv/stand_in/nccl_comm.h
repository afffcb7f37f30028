// SPDX-License-Identifier: Apache-2.0
// Communicators of the NCCL stand-in, and how their ranks connect.
#pragma once

#include "sendrecv/stand_in/soft_nccl.h"
#include "standard.h"

// Defines what a function does. nccl_entries.cc defines its two public names, which trace each
// call.
#define SOFT_NCCL(name, parameters) ncclResult_t acts::name parameters

namespace nccltune::soft {

// The memory that the ranks of a communicator of the NCCL stand-in share: which ranks have joined,
// and a pipe of limited size between each two ranks. It is a memfd of one rank and ends with its
// last user.

inline constexpr int kMostRanks = 64;

// Where any process finds a segment. A unique id contains this.
struct Place {
  uint64_t magic = 0;
  int process = 0;
  int fd = 0;
  uint64_t inode = 0;
  uint64_t time = 0;  // makes every id different
  uint64_t number = 0;
};

// A rank's vote on which new communicator it joins.
struct Ballot {
  std::atomic<uint64_t> rounds{0};  // number of rounds in which this rank has voted
  std::atomic<uint64_t> placed{0};
  std::atomic<uint64_t> left{0};
  int color = 0;
  int key = 0;
  Place place;  // where the first rank of the new communicator created its segment
};

struct Member {
  std::atomic<int> joined{0};  // 1: joining, 2: joined
  int gpu = 0;
  Ballot split;
  Ballot shrink;
  Ballot grow;
};

// An ordered stream of bytes from one rank to another.
struct Pipe {
  std::atomic<uint64_t> written{0};
  std::atomic<uint64_t> read{0};
  // Without the lengths that precede messages.
  std::atomic<uint64_t> data_written{0};
  std::atomic<uint64_t> data_read{0};
};

struct SegmentHeader {
  uint64_t magic;
  uint64_t capacity;  // of each pipe
  std::atomic<int> ranks;
  Member members[kMostRanks];
};

// One end of a pipe.
class PipeEnd {
 public:
  // Space for the lengths of messages, in addition to `capacity`.
  static constexpr size_t kExtra = size_t{64} << 10;

  PipeEnd(Pipe& pipe, uint8_t* bytes, size_t capacity)
      : pipe_(pipe), bytes_(bytes), capacity_(capacity) {}

  // Return how many of the `wanted` bytes can be moved now, and where. Call Wrote or Read
  // afterwards.
  size_t ToWrite(size_t wanted, uint8_t*& at) const;
  void Wrote(size_t bytes, bool data);
  size_t ToRead(size_t wanted, uint8_t*& at) const;
  void Read(size_t bytes, bool data);

 private:
  size_t ring() const { return capacity_ + kExtra; }

  Pipe& pipe_;
  uint8_t* bytes_;
  size_t capacity_;
};

class Segment {
 public:
  static constexpr size_t kCollectiveCapacity = size_t{128} << 10;

  // Creates a segment that this process keeps open until it has joined. Returns false if the system
  // has no memory.
  static bool Create(Place& place);
  // Returns null if the segment has ended, is not a segment, or has another number of ranks.
  static std::shared_ptr<Segment> Open(const Place& place, int ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  Member& member(int rank) { return header().members[rank]; }
  PipeEnd Messages(int from, int to) { return End(from, to, false); }
  PipeEnd Collective(int from, int to) { return End(from, to, true); }

 private:
  Segment() = default;
  static size_t Bytes(int ranks, size_t capacity);
  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(data_); }
  PipeEnd End(int from, int to, bool collective);

  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  int ranks_ = 0;
};

struct Kernel;
class CommObserver;

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
  // Operators created by the application, with their scalars. Numbers are not reused.
  std::map<int, double> ops;
  int next_op = kNcclBuiltInOps;
  std::map<const void*, size_t> registered;  // buffers and their sizes
  std::shared_ptr<CommObserver> observer;    // null in most tests
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

// The work of a group for one communicator of the NCCL stand-in, in one stream.

enum class TaskKind { kSend, kReceive, kCollective };

// A piece of a rank's result: bytes from `from` on of the input of `source`, or of the reduction of
// all inputs.
struct Part {
  static constexpr int kReduced = -1;
  int source = kReduced;
  size_t from = 0;
  size_t to = 0;
  size_t bytes = 0;
};

inline constexpr int kAllRanks = -1;

struct Task {
  TaskKind kind = TaskKind::kSend;
  std::shared_ptr<Comm> comm = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr from = 0;
  CUdeviceptr to = 0;
  size_t bytes = 0;
  ncclDataType_t type = 0;
  int peer = 0;  // collectives: the one rank whose input is used, or kAllRanks
  // Collectives. `bytes` is the size of each input.
  const char* name = "";
  size_t result_bytes = 0;
  std::vector<Part> parts = {};
  ncclRedOp_t op = kNcclSum;
  double scalar = 1;  // of an operator of the application

  bool is_collective() const { return kind == TaskKind::kCollective; }
};

// What the NCCL of the tests of nccltune-bench does in addition: plugins and faults.
class CommObserver {
 public:
  virtual ~CommObserver() = default;
  // Called before a group is enqueued. Its error is that of the group.
  virtual ncclResult_t Launch(const std::vector<Task>& tasks, bool captured) = 0;
  // Called in the stream around each collective, and around all messages of a group. `last`: where
  // the last piece of the result begins; 0: none.
  virtual void Begin(size_t bytes) = 0;
  virtual void End(size_t bytes, CUdeviceptr last) = 0;
  // Called when the communicator ends. Graphs may still run its kernels.
  virtual void Close() = 0;

  // Makes an observer of a communicator. Null in most tests.
  static inline std::shared_ptr<CommObserver> (*make)(Comm& comm) = nullptr;
};

// The size that NCCL's tuner sees.
inline size_t TunedBytes(const Task& task) { return std::max(task.bytes, task.result_bytes); }
// The bytes that the messages of a group send.
size_t SentBytes(const std::vector<Task>& tasks);

struct Kernel {
  std::shared_ptr<Comm> comm;
  std::vector<Task> tasks;
  bool captured = false;  // runs whenever its graph runs
};

// Returns the bytes of one element; 0: unknown type.
size_t SizeOf(ncclDataType_t type);

// Enqueues all tasks that a group has for one communicator.
ncclResult_t Launch(const std::shared_ptr<Comm>& comm, std::vector<Task> tasks);

// Groups of the NCCL stand-in. Their calls are carried out at the outermost end.

void StartGroup();
// `info`: see ncclGroupSimulateEnd.
ncclResult_t EndGroup(ncclSimInfo_t* info = nullptr);

// Adds an operation. Outside of a group it gets its own group.
ncclResult_t AddTask(Task task);

// Adds the creation of a communicator. When the group ends without a failure, `begin` is called, in
// the order of these calls. Then `join` waits for the other ranks. Outside of a group this happens
// at once. If `asked` is nonblocking, `join` runs in its own thread; `asked` is the parent, or the
// communicator itself if it has none.
ncclResult_t AddJoin(
    std::shared_ptr<Comm> asked, std::function<ncclResult_t()> join,
    std::function<void()> begin = [] {});

// Makes the calling thread's group fail, if it is in one.
ncclResult_t FailGroup(ncclResult_t result);

// Macros and helpers for the functions of the NCCL stand-in.

namespace acts {
#define SOFT_NCCL_ACT(name, parameters, arguments) ncclResult_t name parameters;
#define SOFT_NCCL_OTHER_ACT(type, name, parameters, arguments) type name parameters;
SOFT_NCCL_FUNCTIONS(SOFT_NCCL_ACT)
SOFT_NCCL_OTHER_FUNCTIONS(SOFT_NCCL_OTHER_ACT)
#undef SOFT_NCCL_ACT
#undef SOFT_NCCL_OTHER_ACT
}  // namespace acts

inline CUdeviceptr AddressOf(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// While it lives, SOFT_CUDA_REFUSE ignores the calls of this thread, because they are the NCCL
// stand-in's own.
class Spared {
 public:
  Spared() { softCudaSpare(1); }
  ~Spared() { softCudaSpare(-1); }
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;
};

// Operators and registrations that were not released.
inline std::atomic<long> live_objects{0};

// Returns null if the handle is unknown, not ready yet or already ended.
std::shared_ptr<Comm> ReadyComm(const ncclComm* handle);

}  // namespace nccltune::soft
