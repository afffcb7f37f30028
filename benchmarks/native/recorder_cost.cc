// SPDX-License-Identifier: Apache-2.0
//
// Times NCCL calls of two ranks, each a process with a GPU of its own, with several copies of one
// libnccl side by side in each process. Where there is one GPU, they share it as two nodes.
//
//   recorder_cost SECONDS off=COPY on=COPY,PROFILER[,FOLDER,N] [control=COPY...]
//
// With 0 seconds it makes few calls and copies little, to try it without GPUs.
//
// A copy has the profiler that its word names, or none; a recorder writes into FOLDER and times one
// in N kernels. Batches of the copies alternate, so that what differs from start to start (cores,
// clocks, memory) is the same for all. Each copy, and each recorder, needs a file of its own, since
// the loader loads a file once. Prints lines of words, those of the calls that were sent for `on`
// alone; recorder_cost.py reads them.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/nccl/nccl_abi.h"
#include "common/cuda_api.h"
#include "common/shared_library.h"

namespace nccltune {
namespace {

constexpr int kFloat = 7;  // ncclFloat32
constexpr int kSum = 0;
constexpr int kCallsOfGraph = 20;
constexpr size_t kMiB = size_t{1} << 20;

struct Case {
  const char* name;
  enum Kind { kEager, kExchange, kGraph, kBehindCopy } kind;
  size_t bytes;
  int times;  // in a batch
};
constexpr auto kCases = std::to_array<Case>({
    {"all-reduce-1KiB", Case::kEager, size_t{1} << 10, 400},
    {"all-reduce-1MiB", Case::kEager, kMiB, 200},
    {"send-and-receive-64KiB", Case::kExchange, size_t{64} << 10, 200},
    {"graph-of-20-all-reduces-1KiB", Case::kGraph, size_t{1} << 10, 50},
    {"all-reduce-1MiB-behind-a-copy-of-256MiB", Case::kBehindCopy, kMiB, 50},
});

using Sent = std::tuple<const char*, size_t, bool>;  // function, bytes, captured
struct Side {
  std::string name;
  std::string library;
  std::string profiler;  // empty: none
  std::string folder;    // empty: as the environment says
  std::string times;
  nccl::Functions nccl;
  nccl::Comm comm = nullptr;
  cu::Graph graph = nullptr;
  cu::GraphExec replay = nullptr;
  std::map<Sent, long> sent;
};

// How much is done.
struct Extent {
  double seconds = 0;
  int warm_up = 10;
  int fewest_rounds = 3;
  int most_times = 1000;
  size_t copied = 256 * kMiB;
};
constexpr Extent kTrial = {.warm_up = 1, .fewest_rounds = 1, .most_times = 2, .copied = kMiB};

Extent extent;
cu::Api cuda;
int rank = 0;
int other_rank = -1;  // a socket
cu::Stream stream = nullptr;
cu::Event event = nullptr;
cu::Pointer memory = 0;
std::string output;

void Require(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "rank %d: %s failed\n", rank, what.c_str());
  std::_Exit(1);
}

void Check(int result, const char* what) {
  Require(result == 0, what + (": result " + std::to_string(result)));
}

// Gives the other rank the bytes and gets its own, after which both are here.
template <typename Value>
Value Swap(const Value& mine) {
  Value its = {};
  Require(write(other_rank, &mine, sizeof(mine)) == sizeof(mine), "the other rank");
  Require(recv(other_rank, &its, sizeof(its), MSG_WAITALL) == sizeof(its), "the other rank");
  return its;
}

void Open(Side* side) {
  // Before the library is loaded: newer ones read all variables at once.
  if (side->profiler.empty()) {
    unsetenv("NCCL_PROFILER_PLUGIN");
  } else {
    setenv("NCCL_PROFILER_PLUGIN", side->profiler.c_str(), 1);
  }
  if (!side->folder.empty()) {
    setenv("NCCLTUNE_RECORD", side->folder.c_str(), 1);
    setenv("NCCLTUNE_RECORD_TIMES", side->times.c_str(), 1);
  }
  std::string error;
  SharedLibrary loaded = SharedLibrary::Open(side->library, &error);
  Require(error.empty(), error);
#define NCCLTUNE_FIND(result, name, parameters)                                           \
  side->nccl.name = loaded.Find<std::remove_pointer_t<decltype(side->nccl.name)>>(#name); \
  Require(side->nccl.name != nullptr, #name);
  NCCLTUNE_NCCL_FUNCTIONS(NCCLTUNE_FIND)
#undef NCCLTUNE_FIND
  loaded.Keep();
  nccl::UniqueId id = {};
  if (rank == 0) Check(side->nccl.ncclGetUniqueId(&id), "ncclGetUniqueId");
  const nccl::UniqueId its = Swap(id);
  Check(side->nccl.ncclCommInitRank(&side->comm, 2, rank == 0 ? id : its, rank),
        "ncclCommInitRank");
}

void AllReduce(Side* side, size_t bytes, bool captured) {
  auto* const data = reinterpret_cast<void*>(memory);
  Check(side->nccl.ncclAllReduce(data, data, bytes / 4, kFloat, kSum, side->comm, stream),
        "ncclAllReduce");
  ++side->sent[{"AllReduce", bytes, captured}];
}

void Exchange(Side* side, size_t bytes) {
  const nccl::Functions& nccl = side->nccl;
  Check(nccl.ncclGroupStart(), "ncclGroupStart");
  Check(nccl.ncclSend(reinterpret_cast<void*>(memory), bytes / 4, kFloat, 1 - rank, side->comm,
                      stream),
        "ncclSend");
  Check(nccl.ncclRecv(reinterpret_cast<void*>(memory + extent.copied), bytes / 4, kFloat, 1 - rank,
                      side->comm, stream),
        "ncclRecv");
  Check(nccl.ncclGroupEnd(), "ncclGroupEnd");
  ++side->sent[{"Send", bytes, false}];
  ++side->sent[{"Recv", bytes, false}];
}

void Enqueue(Side* side, const Case& what) {
  if (what.kind == Case::kGraph) {
    Check(cuda.GraphLaunch(side->replay, stream), "cuGraphLaunch");
  } else if (what.kind == Case::kExchange) {
    Exchange(side, what.bytes);
  } else {
    if (what.kind == Case::kBehindCopy) {
      Check(cuda.MemcpyDtoDAsync(memory + extent.copied, memory, extent.copied, stream), "a copy");
    }
    AllReduce(side, what.bytes, false);
  }
}

void WaitForStream() {
  Check(cuda.EventRecord(event, stream), "cuEventRecord");
  int result = cu::kNotReady;
  while (result == cu::kNotReady) result = cuda.EventQuery(event);
  Check(result, "cuEventQuery");
}

void Capture(Side* side, size_t bytes) {
  AllReduce(side, bytes, false);  // connects the ranks
  WaitForStream();
  Check(cuda.StreamBeginCapture(stream, cu::kCaptureThreadLocal), "cuStreamBeginCapture");
  for (int i = 0; i < kCallsOfGraph; ++i) AllReduce(side, bytes, true);
  Check(cuda.StreamEndCapture(stream, &side->graph), "cuStreamEndCapture");
  Check(cuda.GraphInstantiateWithFlags(&side->replay, side->graph, 0), "cuGraphInstantiate");
}

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point began) {
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

void TimeBatch(Side* side, const Case& what, int round) {
  (void)Swap('b');
  for (int i = 0; i < extent.warm_up; ++i) Enqueue(side, what);
  WaitForStream();
  const auto began = Clock::now();
  const int times = std::min(what.times, extent.most_times);
  for (int i = 0; i < times; ++i) Enqueue(side, what);
  const double enqueued = MicrosecondsSince(began);
  WaitForStream();
  const double whole = MicrosecondsSince(began);
  const int calls = times * (what.kind == Case::kGraph ? kCallsOfGraph : 1);
  std::array<char, 200> line{};
  std::snprintf(line.data(), line.size(), "time %d %s %s %d %.4f %.4f\n", rank, what.name,
                side->name.c_str(), round, whole / calls, enqueued / calls);
  output += line.data();
}

// One core for the calls; NCCL's threads, which exist already, keep all others.
void PinThisThread() {
  cpu_set_t allowed;
  Check(sched_getaffinity(0, sizeof(allowed), &allowed), "sched_getaffinity");
  int left = CPU_COUNT(&allowed) * (2 * rank + 1) / 4;
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || left-- > 0) continue;
    CPU_ZERO(&allowed);
    CPU_SET(core, &allowed);
    sched_setaffinity(0, sizeof(allowed), &allowed);
    return;
  }
}

void RunRank(std::vector<Side>* sides) {
  cu::Device device = 0;
  cu::Context context = nullptr;
  const std::string error = cu::Load(cu::kBench, &cuda);
  Require(error.empty(), error);
  Check(cuda.Init(0), "cuInit");
  if (cuda.DeviceGet(&device, rank) != 0) {
    setenv("NCCL_HOSTID", rank == 0 ? "node0" : "node1", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    Check(cuda.DeviceGet(&device, 0), "cuDeviceGet");
  }
  Check(cuda.DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  Check(cuda.CtxSetCurrent(context), "cuCtxSetCurrent");
  Check(cuda.StreamCreate(&stream, cu::kStreamNonBlocking), "cuStreamCreate");
  Check(cuda.EventCreate(&event, cu::kEventDisableTiming), "cuEventCreate");
  Check(cuda.MemAlloc(&memory, 2 * extent.copied), "cuMemAlloc");
  Check(cuda.MemsetD8Async(memory, 0, 2 * extent.copied, stream), "cuMemsetD8Async");
  WaitForStream();
  for (Side& side : *sides) Open(&side);
  PinThisThread();
  for (const Case& what : kCases) {
    for (Side& side : *sides) {
      if (what.kind == Case::kGraph) Capture(&side, what.bytes);
    }
  }
  const auto began = Clock::now();
  const int number = static_cast<int>(sides->size());
  for (int round = 0;; ++round) {
    const bool ends =
        round >= extent.fewest_rounds && MicrosecondsSince(began) > extent.seconds * 1e6;
    const bool its = Swap(ends);
    if (rank == 0 ? ends : its) break;
    for (const Case& what : kCases) {
      for (int i = 0; i < number; ++i) {
        const int at = ((round % 2 == 0 ? i : number - 1 - i) + round / 2) % number;
        TimeBatch(&(*sides)[static_cast<size_t>(at)], what, round);
      }
    }
  }
  int version = 0;
  for (Side& side : *sides) {
    Check(cuda.GraphExecDestroy(side.replay), "cuGraphExecDestroy");
    Check(cuda.GraphDestroy(side.graph), "cuGraphDestroy");
    Check(side.nccl.ncclCommDestroy(side.comm), "ncclCommDestroy");
    Check(side.nccl.ncclGetVersion(&version), "ncclGetVersion");
    if (side.name != "on") continue;
    for (const auto& [call, count] : side.sent) {
      output += "sent " + std::to_string(getpid()) + ' ' + std::get<0>(call) + ' ' +
                std::to_string(std::get<1>(call)) + ' ' + std::to_string(int{std::get<2>(call)}) +
                ' ' + std::to_string(count) + '\n';
    }
  }
  if (rank == 0) output += "nccl " + std::to_string(version) + '\n';
}

int Main(int count, char** words) {
  std::vector<Side> sides;
  for (int i = 2; i < count; ++i) {
    std::istringstream word(words[i]);
    Side side;
    std::getline(word, side.name, '=');
    std::getline(word, side.library, ',');
    std::getline(word, side.profiler, ',');
    std::getline(word, side.folder, ',');
    std::getline(word, side.times);
    sides.push_back(std::move(side));
  }
  if (sides.empty() || sides.front().library.empty()) {
    std::fputs("usage: recorder_cost SECONDS NAME=LIBRARY[,PROFILER]...\n", stderr);
    return 2;
  }
  const double seconds = std::atof(words[1]);
  if (seconds == 0) extent = kTrial;
  extent.seconds = seconds;
  std::array<int, 2> ends{};
  Check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), "socketpair");
  const pid_t child = fork();  // before CUDA, which does not survive it
  Require(child >= 0, "fork");
  if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
  rank = child == 0 ? 1 : 0;
  other_rank = ends[static_cast<size_t>(rank)];
  close(ends[static_cast<size_t>(1 - rank)]);
  RunRank(&sides);
  int status = 0;
  if (child != 0) {
    Require(waitpid(child, &status, 0) == child && status == 0, "rank 1");
  }
  std::fputs(output.c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace nccltune

int main(int count, char** words) { return nccltune::Main(count, words); }
