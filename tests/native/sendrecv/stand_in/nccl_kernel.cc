// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/pattern.h"
#include "sendrecv/stand_in/cuda_options.h"
#include "sendrecv/stand_in/nccl_comm.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

using bench::Decode;
using bench::Dtype;
using bench::Encode;
using bench::Redop;

// Large, because the ranks wait for each other in each chunk.
constexpr size_t kChunk = Segment::kCollectiveCapacity;
constexpr size_t kMostAtOnce = size_t{256} << 10;

void Report(Comm& comm, const std::string& what) {
  comm.error = kNcclInternalError;
  std::fprintf(stderr, "soft nccl: process %d, rank %d: %s\n", static_cast<int>(getpid()),
               comm.rank, what.c_str());
}

// A message that is being transferred. Its length is sent first.
class Transfer {
 public:
  Transfer(Comm& comm, const Task& task)
      : comm_(comm),
        task_(task),
        pipe_(task.kind == TaskKind::kSend ? comm.segment->Messages(comm.rank, task.peer)
                                           : comm.segment->Messages(task.peer, comm.rank)) {}

  bool Over() const { return moved_ == task_.bytes; }
  // Moves what is possible now. Returns whether anything was moved.
  bool Advance() { return task_.kind == TaskKind::kSend ? Send() : Receive(); }

 private:
  bool Send() {
    uint8_t* at = nullptr;
    if (length_ < sizeof(uint64_t)) {
      const uint64_t bytes = task_.bytes;
      const size_t part = pipe_.ToWrite(sizeof bytes - length_, at);
      std::memcpy(at, reinterpret_cast<const uint8_t*>(&bytes) + length_, part);
      length_ += part;
      pipe_.Wrote(part, false);
      return part > 0;
    }
    const size_t part = pipe_.ToWrite(std::min(task_.bytes - moved_, kMostAtOnce), at);
    if (part == 0) return false;
    // The context has recorded the error, so the kernel stops.
    if (!softCudaRead(comm_.gpu, task_.from + moved_, at, part))
      comm_.error = kNcclUnhandledCudaError;
    pipe_.Wrote(part, true);
    moved_ += part;
    return true;
  }

  bool Receive() {
    uint8_t* at = nullptr;
    if (length_ < sizeof(uint64_t)) {
      const size_t part = pipe_.ToRead(sizeof bytes_there_ - length_, at);
      std::memcpy(reinterpret_cast<uint8_t*>(&bytes_there_) + length_, at, part);
      length_ += part;
      pipe_.Read(part, false);
      if (length_ == sizeof(uint64_t) && bytes_there_ != task_.bytes) {
        Report(comm_, "a message of " + std::to_string(bytes_there_) + " bytes from rank " +
                          std::to_string(task_.peer) + " for a receive of " +
                          std::to_string(task_.bytes));
      }
      return part > 0;
    }
    const size_t part = pipe_.ToRead(std::min(task_.bytes - moved_, kMostAtOnce), at);
    if (part == 0) return false;
    if (!softCudaWrite(comm_.gpu, task_.to + moved_, at, part))
      comm_.error = kNcclUnhandledCudaError;
    pipe_.Read(part, true);
    moved_ += part;
    return true;
  }

  Comm& comm_;
  const Task& task_;
  PipeEnd pipe_;
  size_t length_ = 0;  // bytes of the length that were moved
  uint64_t bytes_there_ = 0;
  size_t moved_ = 0;
};

bool Stops(const Comm& comm) {
  const ncclResult_t error = comm.error;
  return comm.aborted || (error != kNcclSuccess && error != kNcclInProgress);
}

// Runs all messages at once, but those with one peer in order.
void RunMessages(Comm& comm, const std::vector<Task>& tasks) {
  std::map<std::pair<int, TaskKind>, std::vector<Transfer>> rows;
  for (const Task& task : tasks) {
    if (!task.is_collective() && task.bytes > 0)
      rows[{task.peer, task.kind}].emplace_back(comm, task);
  }
  std::map<std::pair<int, TaskKind>, size_t> next;
  Patience patience;
  for (bool over = false; !over && !Stops(comm);) {
    over = true;
    bool moved = false;
    for (auto& [key, row] : rows) {
      size_t& at = next[key];
      if (at == row.size()) continue;
      over = false;
      if (row[at].Advance()) moved = true;
      if (row[at].Over()) ++at;
    }
    if (moved) {
      patience = {};
    } else if (!over) {
      patience.Sleep();
    }
  }
}

// Moves all bytes of one rank for another through their pipe. Returns false if the communicator is
// aborted.
template <bool kPuts>
bool Move(Comm& comm, int peer, uint8_t* data, size_t bytes) {
  PipeEnd pipe =
      kPuts ? comm.segment->Collective(comm.rank, peer) : comm.segment->Collective(peer, comm.rank);
  Patience patience;
  while (bytes > 0) {
    if (Stops(comm)) return false;
    uint8_t* at = nullptr;
    const size_t part = kPuts ? pipe.ToWrite(bytes, at) : pipe.ToRead(bytes, at);
    if (part == 0) patience.Sleep();
    if constexpr (kPuts) {
      std::memcpy(at, data, part);
      pipe.Wrote(part, true);
    } else {
      std::memcpy(data, at, part);
      pipe.Read(part, true);
    }
    data += part;
    bytes -= part;
  }
  return true;
}

using Inputs = std::vector<std::vector<uint8_t>>;  // of a chunk, by rank

double Rounded(Dtype dtype, double number) {
  unsigned char stored[8];
  Encode(dtype, number, stored);
  return Decode(dtype, stored);
}

// Whether ncclRedOpCreatePreMulSum has made its operation.
bool IsScaled(const Task& task) { return task.op >= kNcclBuiltInOps; }

Redop RedopOf(const Task& task) {
  return IsScaled(task) ? Redop::kSum : static_cast<Redop>(task.op);
}

bool IsRealAverage(const Task& task) {
  return RedopOf(task) == Redop::kAvg && bench::FormatOf(static_cast<Dtype>(task.type)).is_real;
}

double Combined(Redop redop, double one, double other) {
  switch (redop) {
    case Redop::kProd:
      return one * other;
    case Redop::kMax:
      return std::max(one, other);
    case Redop::kMin:
      return std::min(one, other);
    default:
      return one + other;
  }
}

void Scale(const Task& task, int ranks, std::vector<uint8_t>* input) {
  const auto dtype = static_cast<Dtype>(task.type);
  const bool scaled = IsScaled(task);
  if (!scaled && !IsRealAverage(task)) return;
  const double factor = scaled ? task.scalar : Rounded(dtype, 1.0 / ranks);
  for (size_t at = 0; at < input->size(); at += SizeOf(task.type)) {
    uint8_t* const element = input->data() + at;
    Encode(dtype, Decode(dtype, element) * factor, element);
  }
}

// Rounds every partial result to the type. The order of ranks differs between elements, as with
// NCCL's rings and trees. `at`: where in the chunk the reduced bytes begin.
void Reduce(const Task& task, const Inputs& inputs, size_t at, std::vector<uint8_t>* to) {
  const auto dtype = static_cast<Dtype>(task.type);
  const Redop redop = RedopOf(task);
  const bool divides = redop == Redop::kAvg && !IsRealAverage(task);
  const size_t size = SizeOf(task.type);
  for (size_t offset = 0; offset < to->size(); offset += size) {
    const size_t first = (at + offset) / size / 16;
    double result = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const uint8_t* const data = inputs[(first + i) % inputs.size()].data() + at;
      const double number = Decode(dtype, data + offset);
      result = i == 0 ? number : Rounded(dtype, Combined(redop, result, number));
    }
    if (divides) result = std::trunc(result / static_cast<double>(inputs.size()));
    Encode(dtype, result, to->data() + offset);
  }
}

// Gives all ranks a chunk of the inputs, and writes the parts of the result that it has.
bool RunChunk(Comm& comm, const Task& task, size_t at, size_t bytes) {
  Inputs inputs(static_cast<size_t>(comm.ranks));
  const auto input = [&](int rank) -> std::vector<uint8_t>& {
    return inputs[static_cast<size_t>(rank)];
  };
  for (int rank = 0; rank < comm.ranks; ++rank) {
    if (task.peer == kAllRanks || task.peer == rank) input(rank).resize(bytes);
  }
  std::vector<uint8_t>& mine = input(comm.rank);
  if (!softCudaRead(comm.gpu, task.from + at, mine.data(), mine.size())) return false;
  Scale(task, comm.ranks, &mine);
  for (int peer = 0; peer < comm.ranks; ++peer) {
    if (peer != comm.rank && !Move<true>(comm, peer, mine.data(), mine.size())) return false;
  }
  for (int peer = 0; peer < comm.ranks; ++peer) {
    if (peer == comm.rank) continue;
    if (!Move<false>(comm, peer, input(peer).data(), input(peer).size())) return false;
  }
  for (const Part& part : task.parts) {
    const size_t begin = std::max(part.from, at);
    const size_t end = std::min(part.from + part.bytes, at + bytes);
    if (begin >= end) continue;
    std::vector<uint8_t> reduced(part.source == Part::kReduced ? end - begin : 0);
    const uint8_t* data = reduced.data();
    if (part.source != Part::kReduced) {
      data = input(part.source).data() + (begin - at);
    } else {
      Reduce(task, inputs, begin - at, &reduced);
    }
    const CUdeviceptr to = task.to + part.to + (begin - part.from);
    if (!softCudaWrite(comm.gpu, to, data, end - begin)) return false;
  }
  return true;
}

void RunCollective(Comm& comm, const Task& task) {
  for (size_t at = 0; at < task.bytes && !Stops(comm); at += kChunk) {
    const bool went = RunChunk(comm, task, at, std::min(kChunk, task.bytes - at));
    if (!went && !Stops(comm)) comm.error = kNcclUnhandledCudaError;
  }
}

// Runs `body` between the calls of the observer.
template <typename Body>
void Observed(Comm& comm, size_t bytes, CUdeviceptr last, const Body& body) {
  if (comm.observer != nullptr) comm.observer->Begin(bytes);
  body();
  if (comm.observer != nullptr && !Stops(comm)) comm.observer->End(bytes, last);
}

void Run(void* data) {
  auto* const kernel = static_cast<Kernel*>(data);
  const std::shared_ptr<Comm> comm = kernel->comm;
  CUdeviceptr last = 0;
  bool has_messages = false;
  for (const Task& task : kernel->tasks) {
    if (task.is_collective()) {
      const CUdeviceptr end = task.parts.empty() ? 0 : task.to + task.parts.back().to;
      Observed(*comm, TunedBytes(task), end, [&] { RunCollective(*comm, task); });
      continue;
    }
    has_messages = true;
    if (task.kind == TaskKind::kReceive) last = task.to;
  }
  if (has_messages) {
    const auto run = [&] { RunMessages(*comm, kernel->tasks); };
    Observed(*comm, SentBytes(kernel->tasks), last, run);
  }
  if (kernel->captured) return;
  std::unique_ptr<Kernel> done;
  const std::scoped_lock lock(comm->mutex);
  const auto found = comm->kernels.find(kernel);
  if (found == comm->kernels.end()) return;
  done = std::move(found->second);
  comm->kernels.erase(found);
}

// Makes `later` wait for the present work of `earlier`.
CUresult Order(CUstream later, CUstream earlier) {
  if (later == earlier) return kCudaSuccess;
  CUevent event = nullptr;
  CUresult result = cuEventCreate(&event, 0);
  if (result != kCudaSuccess) return result;
  result = cuEventRecord(event, earlier);
  if (result == kCudaSuccess) result = cuStreamWaitEvent(later, event, 0);
  cuEventDestroy_v2(event);
  return result;
}

CUresult Enqueue(Comm& comm, Kernel* kernel, const std::vector<CUstream>& streams) {
  const CUstream first = streams.front();
  for (const CUstream each : streams) {
    if (const CUresult result = Order(first, each)) return result;
  }
  if (!kernel->captured) {
    if (const CUresult result = cuStreamWaitEvent(first, comm.last, 0)) return result;
  }
  if (const CUresult result = cuLaunchHostFunc(first, Run, kernel)) return result;
  if (!kernel->captured) {
    if (const CUresult result = cuEventRecord(comm.last, first)) return result;
  }
  for (const CUstream each : streams) {
    if (const CUresult result = Order(each, first)) return result;
  }
  return kCudaSuccess;
}

struct Joining {
  std::shared_ptr<Comm> asked;
  std::function<ncclResult_t()> join;
  std::function<void()> begin;
  ncclResult_t result = kNcclSuccess;
};

struct Group {
  int depth = 0;
  ncclResult_t error = kNcclSuccess;
  std::vector<Task> tasks;
  std::vector<Joining> joins;
};

thread_local Group group;

// Ranks of one process join in parallel threads, because each waits for the others.
ncclResult_t RunJoins(std::vector<Joining>& joins) {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < joins.size(); ++i) {
    threads.emplace_back([&joining = joins[i]] { joining.result = joining.join(); });
  }
  if (!joins.empty()) joins[0].result = joins[0].join();
  for (std::thread& thread : threads) thread.join();
  const auto fails = std::ranges::find_if(
      joins, [](const Joining& joining) { return joining.result != kNcclSuccess; });
  return fails == joins.end() ? kNcclSuccess : fails->result;
}

// Joins in a separate thread. The communicators count as complete when all have joined.
ncclResult_t RunJoinsLater(std::vector<Joining> joins) {
  for (const Joining& joining : joins) joining.asked->error = kNcclInProgress;
  std::thread([own = std::move(joins)]() mutable {
    RunJoins(own);
    for (const Joining& joining : own) joining.asked->error = joining.result;
  }).detach();
  return kNcclInProgress;
}

ncclResult_t RunTasks(std::vector<Task> tasks) {
  ncclResult_t result = kNcclSuccess;
  while (!tasks.empty()) {
    const std::shared_ptr<Comm> comm = tasks.front().comm;
    const auto others =
        std::ranges::stable_partition(tasks, [&](const Task& task) { return task.comm == comm; });
    std::vector<Task> mine(std::make_move_iterator(tasks.begin()),
                           std::make_move_iterator(others.begin()));
    tasks.erase(tasks.begin(), others.begin());
    const ncclResult_t launched = Launch(comm, std::move(mine));
    if (result == kNcclSuccess) result = launched;
  }
  return result;
}

// Runs after a delay in a separate thread. If one communicator of the group is nonblocking, all are
// treated so.
ncclResult_t RunTasksLater(std::vector<Task> tasks) {
  std::vector<std::shared_ptr<Comm>> comms;
  for (const Task& task : tasks) {
    if (task.comm->error != kNcclInProgress) comms.push_back(task.comm);
    task.comm->error = kNcclInProgress;
  }
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  std::thread([own = std::move(tasks), comms = std::move(comms), context]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const ScopedCommContext in(context);
    const ncclResult_t result = RunTasks(std::move(own));
    for (const std::shared_ptr<Comm>& comm : comms) {
      ncclResult_t before = kNcclInProgress;
      comm->error.compare_exchange_strong(before, result);
    }
  }).detach();
  return kNcclInProgress;
}

}  // namespace

size_t SentBytes(const std::vector<Task>& tasks) {
  size_t bytes = 0;
  for (const Task& task : tasks) bytes += task.kind == TaskKind::kSend ? task.bytes : 0;
  return bytes;
}

size_t SizeOf(ncclDataType_t type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type < 0 || type >= static_cast<int>(std::size(kSizes)) ? 0 : kSizes[type];
}

ncclResult_t Launch(const std::shared_ptr<Comm>& comm, std::vector<Task> tasks) {
  if (FindComm(HandleOf(comm)) == nullptr) {
    return Fail(kNcclInvalidArgument, "a communicator that has ended in the group");
  }
  std::vector<CUstream> streams;
  for (const Task& task : tasks) {
    if (std::ranges::find(streams, task.stream) == streams.end()) streams.push_back(task.stream);
  }
  const ScopedCommContext context(comm->context);
  auto kernel = std::make_unique<Kernel>();
  int capturing = 0;
  if (cuStreamIsCapturing(streams.front(), &capturing) != kCudaSuccess) {
    return Fail(kNcclUnhandledCudaError, "no such stream");
  }
  kernel->captured = capturing != 0;
  if (comm->observer != nullptr) {
    if (const ncclResult_t result = comm->observer->Launch(tasks, kernel->captured)) return result;
  }
  kernel->comm = comm;
  kernel->tasks = std::move(tasks);
  const std::scoped_lock lock(comm->mutex);
  Kernel* const raw = kernel.get();
  comm->kernels[raw] = std::move(kernel);
  const CUresult result = Enqueue(*comm, raw, streams);
  if (result == kCudaSuccess) return kNcclSuccess;
  return Fail(kNcclUnhandledCudaError, "CUDA error " + std::to_string(result));
}

void StartGroup() { ++group.depth; }

ncclResult_t FailGroup(ncclResult_t result) {
  if (group.depth > 0 && group.error == kNcclSuccess) group.error = result;
  return result;
}

ncclResult_t EndGroup(ncclSimInfo_t* info) {
  if (group.depth == 0) return Fail(kNcclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return kNcclSuccess;
  Group ended = std::exchange(group, {});
  if (ended.error != kNcclSuccess) return ended.error;
  if (info != nullptr && info->magic != 0x74685283) return kNcclInvalidArgument;
  for (const Joining& joining : ended.joins) joining.begin();
  const bool waits = std::ranges::all_of(
      ended.joins, [](const Joining& joining) { return joining.asked->blocking; });
  const ncclResult_t joined = waits ? RunJoins(ended.joins) : RunJoinsLater(std::move(ended.joins));
  if (joined != kNcclSuccess && joined != kNcclInProgress) return joined;
  const bool blocks =
      std::ranges::all_of(ended.tasks, [](const Task& task) { return task.comm->blocking; });
  // Nonblocking communicators run a simulated group as well, as in NCCL 2.22 to 2.30.
  if (info != nullptr && blocks) {
    info->time = 1;
    return joined;
  }
  const ncclResult_t ran =
      blocks ? RunTasks(std::move(ended.tasks)) : RunTasksLater(std::move(ended.tasks));
  return ran == kNcclSuccess ? joined : ran;
}

ncclResult_t AddTask(Task task) {
  StartGroup();
  group.tasks.push_back(std::move(task));
  return EndGroup();
}

ncclResult_t AddJoin(std::shared_ptr<Comm> asked, std::function<ncclResult_t()> join,
                     std::function<void()> begin) {
  StartGroup();
  group.joins.push_back(
      {.asked = std::move(asked), .join = std::move(join), .begin = std::move(begin)});
  return EndGroup();
}

}  // namespace nccltune::soft
