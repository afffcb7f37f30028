// SPDX-License-Identifier: Apache-2.0
// Runs random programs of sends and receives, with a process for each rank, and checks every byte.
// It uses NCCL's and CUDA's public interfaces, so it runs with the send/recv library or without, on
// the stand-ins or on GPUs.
//
//   sendrecv_programs SEED ROUNDS MESSAGES RANKS [eager|plain] [LARGEST] [kill|all] [SECONDS]
//   [mapped] [single] [graphs] [later]
//
// `kill`: one rank is killed during the run, and all others must get an error within half a minute.
// SECONDS: a stream that takes longer counts as hanging.
// `mapped`: memory is mapped in chunks, as PyTorch's expandable segments do it. Between rounds some
// chunks are unmapped and others are mapped at their addresses.
// `single`: a group has at most one send to each peer and one receive from it. NCCL itself (2.28)
// hangs otherwise if the peer's groups have other messages: it pairs the sends and receives of a
// group, and begins the next pair only when one is complete.
// `graphs`: some groups are captured together with the groups they exchange messages with. Their
// graphs run once or twice.
// `later`: communicators are nonblocking.
//
// Prints "well: N messages" and exits with 0, or prints the error and exits with 1.
#include "sendrecv/programs.h"
#include "sendrecv/stand_in/soft_cuda.h"
#include "sendrecv/stand_in/soft_nccl.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names
using Clock = std::chrono::steady_clock;

constexpr size_t kComms = 2;
constexpr size_t kStreams = 2;
constexpr uint64_t kChunk = uint64_t{2} << 20;
constexpr int kMost = 8;
// Exit status of a rank that got the error that another has ended.
constexpr int kExitPeerLost = 3;
// How long a rank waits for the error after another was killed.
constexpr auto kPatience = std::chrono::seconds(120);

struct Options {
  uint64_t seed = 1;
  uint64_t rounds = 10;
  size_t messages = 20;
  int ranks = 2;
  bool eager = false;
  uint64_t largest = uint64_t{3} << 20;
  bool kill = false;
  bool mapped = false;
  bool single = false;
  bool graphs = false;
  bool later = false;

  // Reads the options from the environment, such as NCCLTUNE_SENDRECV_EAGER=1M.
  Kind kind() const {
    return {.floor = uint64_t{256} << 10,
            .eager = uint64_t{1} << 20,
            .largest = largest,
            .mixed = false,
            .single = single};
  }
};

// Memory that all processes share.
struct Shared {
  ncclUniqueId id;
  std::atomic<int> made;
  std::atomic<int> begun;
  std::atomic<uint64_t> rounds[kMost];
  // The position of each rank in the program, for the report about a hanging rank.
  std::atomic<pid_t> processes[kMost];
  std::atomic<const char*> at[kMost];
  std::atomic<uint64_t> steps[kMost];
};

[[noreturn]] __attribute__((format(printf, 1, 2))) void Die(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  _exit(1);
}

void Must(CUresult result, const char* what) {
  if (result != kCudaSuccess) Die("%s: CUDA error %d", what, result);
}

// In a message each word is this much larger than the one before.
constexpr uint32_t kStep = 2'654'435'761U;
uint32_t FirstWordOf(uint64_t round, size_t message) {
  return static_cast<uint32_t>(round * 1'000'003 + message * 7919 + 1);
}

size_t WordsOf(uint64_t bytes) { return (bytes + 3) / 4; }

class Rank {
 public:
  Rank(const Options& options, Shared* shared, int rank)
      : options_(options),
        shared_(*shared),
        rank_(rank),
        random_(options.seed * 31 + static_cast<uint64_t>(rank)) {}

  void Run() {
    shared_.processes[rank_] = getpid();
    shared_.at[rank_] = "its beginning";
    Begin();
    for (uint64_t round = 0; round < options_.rounds; ++round) {
      shared_.rounds[rank_] = round;
      RunRound(round);
    }
    End();
  }

 private:
  void Begin() {
    int gpus = 0;
    CUcontext context = nullptr;
    Must(cuInit(0), "cuInit");
    Must(cuDeviceGetCount(&gpus), "cuDeviceGetCount");
    Must(cuDevicePrimaryCtxRetain(&context, rank_ % gpus), "cuDevicePrimaryCtxRetain");
    Must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    if (rank_ == 0) {
      ncclGetUniqueId(&shared_.id);
      shared_.made = 1;
    }
    while (shared_.made == 0) usleep(100);
    comms_.resize(kComms);
    ncclConfig_t config;
    config.blocking = options_.later ? 0 : 1;
    Well(ncclCommInitRankConfig(comms_.data(), options_.ranks, shared_.id, rank_, &config));
    // The second communicator has the ranks in the opposite order.
    Well(ncclCommSplit(comms_[0], 0, -rank_, &comms_[1], nullptr));
    // ncclCommSplit does not return that it is in progress; its parent does.
    Well(kNcclInProgress);
    for (size_t i = 0; i < kStreams; ++i) {
      streams_.emplace_back();
      Must(cuStreamCreate(&streams_.back(), kStreamNonBlocking), "cuStreamCreate");
    }
    Allocate();
    void* host = nullptr;
    Must(cuMemHostAlloc(&host, options_.messages * place_, 0), "cuMemHostAlloc");
    host_ = static_cast<std::byte*>(host);
    for (ncclComm_t comm : comms_) Connect(comm);
    ++shared_.begun;
  }

  // NCCL connects two ranks at their first message in a direction. In that group both ranks must
  // have equally many messages with each other, or NCCL reports an internal error or hangs. Random
  // programs do not ensure that, so connect here.
  void Connect(ncclComm_t comm) {
    int mine = 0;
    if (ncclCommUserRank(comm, &mine) != kNcclSuccess) Die("rank %d: ncclCommUserRank", rank_);
    Well(ncclGroupStart());
    for (int peer = 0; peer < options_.ranks; ++peer) {
      if (peer == mine) continue;
      Well(ncclSend(reinterpret_cast<void*>(memory_), 1, kNcclUint8, peer, comm, streams_[0]));
      Well(ncclRecv(reinterpret_cast<void*>(memory_ + place_), 1, kNcclUint8, peer, comm,
                    streams_[0]));
    }
    Well(ncclGroupEnd());
    Wait(streams_[0]);
  }

  int RankIn(size_t comm, size_t rank) const {
    return static_cast<int>(comm == 0 ? rank : static_cast<size_t>(options_.ranks) - 1 - rank);
  }

  void Allocate() {
    place_ = (options_.largest + 511) / 256 * 256;
    if (!options_.mapped) {
      Must(cuMemAlloc_v2(&memory_, options_.messages * place_), "cuMemAlloc");
      return;
    }
    const uint64_t chunks = (options_.messages * place_ + kChunk - 1) / kChunk;
    Must(cuMemAddressReserve(&memory_, chunks * kChunk, 0, 0, 0), "cuMemAddressReserve");
    for (uint64_t i = 0; i < chunks; ++i) MapChunk(i);
    chunks_ = chunks;
  }

  void MapChunk(uint64_t chunk) const {
    CUdevice gpu = 0;
    Must(cuCtxGetDevice(&gpu), "cuCtxGetDevice");
    CUmemAllocationProp prop = {};
    prop.type = 1;
    prop.requestedHandleTypes = 1;
    prop.location = {.type = 1, .id = gpu};
    CUmemGenericAllocationHandle handle = 0;
    const CUdeviceptr at = memory_ + chunk * kChunk;
    Must(cuMemCreate(&handle, kChunk, &prop, 0), "cuMemCreate");
    Must(cuMemMap(at, kChunk, 0, handle, 0), "cuMemMap");
    Must(cuMemRelease(handle), "cuMemRelease");
    const CUmemAccessDesc access = {.location = prop.location, .flags = 3};
    Must(cuMemSetAccess(at, kChunk, &access, 1), "cuMemSetAccess");
  }

  void Free() {
    if (!options_.mapped) {
      Must(cuMemFree_v2(memory_), "cuMemFree");
      return;
    }
    Must(cuMemUnmap(memory_, chunks_ * kChunk), "cuMemUnmap");
    Must(cuMemAddressFree(memory_, chunks_ * kChunk), "cuMemAddressFree");
  }

  // Frees some memory and allocates again, often at the same address.
  void Renew() {
    if (options_.mapped && random_() % 2 == 0) {
      for (uint64_t i = random_() % chunks_; i < chunks_; i += 1 + random_() % chunks_) {
        Must(cuMemUnmap(memory_ + i * kChunk, kChunk), "cuMemUnmap");
        MapChunk(i);
      }
      return;
    }
    Free();
    Allocate();
  }

  // Pinned, because copies with other host memory would wait for all earlier work.
  uint32_t* Words(size_t message) const {
    return reinterpret_cast<uint32_t*>(host_ + message * place_);
  }

  void RunRound(uint64_t round) {
    std::mt19937_64 random(options_.seed + round * 1000);
    runs_.clear();
    Program program = RandomProgram(random, options_.messages, options_.eager, options_.kind());
    // Programs must not need more ranks than there are. With several streams, NCCL does not keep
    // graphs and direct calls in order.
    while (program.ranks > static_cast<size_t>(options_.ranks) ||
           (options_.graphs && program.streams > 1)) {
      program = RandomProgram(random, options_.messages, options_.eager, options_.kind());
    }
    if (static_cast<size_t>(rank_) >= program.ranks) return;
    shared_.at[rank_] = "new memory";
    if (random_() % 4 == 0) Renew();
    program_ = &program;
    if (options_.graphs) DrawGraphs(program, random);
    std::vector<size_t> received;
    shared_.at[rank_] = "its calls";
    shared_.steps[rank_] = 0;
    for (const Step& step : program.steps[static_cast<size_t>(rank_)]) {
      ++shared_.steps[rank_];
      if (random_() % 8 == 0) usleep(static_cast<useconds_t>(random_() % 300));
      RunStep(program, round, step, &received);
    }
    shared_.at[rank_] = "waiting for its streams";
    for (CUstream stream : streams_) Wait(stream);
    for (CUgraphExec graph : graphs_) Must(cuGraphExecDestroy(graph), "cuGraphExecDestroy");
    graphs_.clear();
    shared_.at[rank_] = "checks";
    for (const size_t message : received) Check(program, round, message);
  }

  void RunStep(const Program& program, uint64_t round, const Step& step,
               std::vector<size_t>* received) {
    CUstream const stream = streams_[step.stream];
    for (const Call& call : step.calls) Prepare(program, round, call, stream);
    const bool grouped = step.calls.size() > 1 || random_() % 4 == 0;
    const int runs = runs_.empty() ? 0 : runs_[step.calls.front().message];
    if (runs != 0) {
      Must(cuStreamBeginCapture_v2(stream, kCaptureThreadLocal), "cuStreamBeginCapture");
    }
    if (grouped) Well(ncclGroupStart());
    for (const Call& call : step.calls) {
      const Sent& sent = program.messages[call.message];
      const CUdeviceptr place = memory_ + call.message * place_;
      ncclComm_t comm = comms_[sent.comm];
      if (call.role == Role::kSender) {
        Well(ncclSend(reinterpret_cast<void*>(place), sent.bytes, kNcclUint8,
                      RankIn(sent.comm, sent.to), comm, stream));
      } else {
        Well(ncclRecv(reinterpret_cast<void*>(place), sent.bytes, kNcclUint8,
                      RankIn(sent.comm, sent.from), comm, stream));
      }
    }
    if (grouped) Well(ncclGroupEnd());
    if (runs != 0) RunGraph(stream, runs);
    for (const Call& call : step.calls) Take(program, call, stream, received);
  }

  // Draws for each message how often it runs in a graph; 0: it is called directly. Groups that
  // exchange messages are captured together, on all ranks.
  void DrawGraphs(const Program& program, std::mt19937_64& random) {
    std::vector<size_t> group(program.messages.size());
    std::iota(group.begin(), group.end(), 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::vector<Step>& steps : program.steps) {
        for (const Step& step : steps) {
          size_t least = group.size();
          for (const Call& call : step.calls) least = std::min(least, group[call.message]);
          for (const Call& call : step.calls) {
            changed = changed || group[call.message] != least;
            group[call.message] = least;
          }
        }
      }
    }
    // A message that is sent in one group and received in two would arrive in another order the
    // second time.
    std::vector<int> runs(group.size());
    for (size_t i = 0; i < group.size(); ++i) {
      const int most = std::count(group.begin(), group.end(), i) == 1 ? 2 : 1;
      runs[i] = random() % 4 == 0 ? 1 + static_cast<int>(random() % 2) % most : 0;
    }
    for (const size_t each : group) runs_.push_back(runs[each]);
  }

  void RunGraph(CUstream stream, int runs) {
    CUgraph graph = nullptr;
    CUgraphExec made = nullptr;
    Must(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    Must(cuGraphInstantiateWithFlags(&made, graph, 0), "cuGraphInstantiate");
    Must(cuGraphDestroy(graph), "cuGraphDestroy");
    graphs_.push_back(made);
    for (int i = 0; i < runs; ++i) Must(cuGraphLaunch(made, stream), "cuGraphLaunch");
  }

  // A buffer is written just before it is sent, and overwritten just after.
  void Prepare(const Program& program, uint64_t round, const Call& call, CUstream stream) {
    const uint64_t bytes = program.messages[call.message].bytes;
    const CUdeviceptr place = memory_ + call.message * place_;
    if (call.role == Role::kReceiver) {
      Must(cuMemsetD8Async(place, 0xEE, bytes, stream), "cuMemsetD8Async");
      return;
    }
    uint32_t* const words = Words(call.message);
    const uint32_t first = FirstWordOf(round, call.message);
    for (uint32_t i = 0; i < WordsOf(bytes); ++i) words[i] = first + i * kStep;
    Must(cuMemcpyHtoDAsync_v2(place, words, bytes, stream), "cuMemcpyHtoDAsync");
  }

  void Take(const Program& program, const Call& call, CUstream stream,
            std::vector<size_t>* received) {
    const uint64_t bytes = program.messages[call.message].bytes;
    const CUdeviceptr place = memory_ + call.message * place_;
    if (call.role == Role::kSender) {
      Must(cuMemsetD8Async(place, 0xDD, bytes, stream), "cuMemsetD8Async");
      return;
    }
    received->push_back(call.message);
    Must(cuMemcpyDtoHAsync_v2(Words(call.message), place, bytes, stream), "cuMemcpyDtoHAsync");
  }

  void Check(const Program& program, uint64_t round, size_t message) {
    const uint64_t bytes = program.messages[message].bytes;
    const uint32_t* const words = Words(message);
    const uint32_t first = FirstWordOf(round, message);
    uint32_t differs = 0;
    for (uint32_t i = 0; i < bytes / 4; ++i) differs |= words[i] ^ (first + i * kStep);
    const uint32_t last = first + static_cast<uint32_t>(bytes / 4) * kStep;
    if (differs == 0 && std::memcmp(words + bytes / 4, &last, bytes % 4) == 0) return;
    uint32_t at = 0;
    while (at < bytes / 4 && words[at] == first + at * kStep) ++at;
    Die("rank %d, round %llu: message %zu of %llu bytes is wrong from byte %zu on\n%s", rank_,
        static_cast<unsigned long long>(round), message, static_cast<unsigned long long>(bytes),
        size_t{4} * at, sendrecv::Words(program).c_str());
  }

  void Well(ncclResult_t result) {
    const auto began = Clock::now();
    while (result == kNcclInProgress) {
      result = kNcclSuccess;
      for (ncclComm_t comm : comms_) {
        ncclResult_t state = kNcclSuccess;
        if (comm == nullptr || result != kNcclSuccess) continue;
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
        result = asked == kNcclSuccess ? state : asked;
      }
      if (Clock::now() - began > kPatience) Die("rank %d: NCCL is in progress", rank_);
    }
    if (result == kNcclSuccess) return;
    if (options_.kill) GiveUp();
    Die("rank %d: NCCL error %d", rank_, result);
  }

  void Wait(CUstream stream) {
    const auto began = Clock::now();
    CUresult result = kNotReady;
    while ((result = cuStreamQuery(stream)) == kNotReady) {
      Ask();
      if (Clock::now() - began > kPatience) Hang(stream);
      usleep(100);
    }
    Must(result, "cuStreamQuery");
    // If another rank has failed, the stream continues without its bytes.
    Ask();
  }

  void Ask() {
    for (ncclComm_t comm : comms_) {
      ncclResult_t error = kNcclSuccess;
      if (ncclCommGetAsyncError(comm, &error) != kNcclSuccess || error != kNcclSuccess) {
        Well(error == kNcclSuccess ? kNcclSystemError : error);
      }
    }
  }

  [[noreturn]] void Hang(CUstream stream) {
    // The library reports every incomplete message.
    if (std::getenv("NCCLTUNE_SENDRECV_SIGNAL") != nullptr) {
      for (int rank = 0; rank < options_.ranks; ++rank) kill(shared_.processes[rank], SIGUSR1);
      // poll instead of sleep: the signal of another hanging rank would end a sleep.
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
    for (int rank = 0; rank < options_.ranks; ++rank) {
      std::fprintf(stderr, "rank %d: round %llu, %s, step %llu\n", rank,
                   static_cast<unsigned long long>(shared_.rounds[rank].load()),
                   shared_.at[rank].load(),
                   static_cast<unsigned long long>(shared_.steps[rank].load()));
    }
    Die("rank %d: stream %d hangs\n%s", rank_, stream == streams_[0] ? 0 : 1,
        program_ == nullptr ? "" : sendrecv::Words(*program_).c_str());
  }

  // Does what a framework does after an error: aborts and exits.
  [[noreturn]] void GiveUp() {
    std::fprintf(stderr, "rank %d got the error\n", rank_);
    // In parallel: each abort waits for its own kernels, which may wait behind another's.
    std::vector<std::thread> aborts;
    for (ncclComm_t comm : comms_) aborts.emplace_back([comm] { ncclCommAbort(comm); });
    for (std::thread& each : aborts) each.join();
    std::fprintf(stderr, "rank %d: its communicators are aborted\n", rank_);
    const auto began = Clock::now();
    for (CUstream stream : streams_) {
      while (cuStreamQuery(stream) == kNotReady) {
        if (Clock::now() - began > kPatience) Die("rank %d: hangs after its abort", rank_);
        usleep(100);
      }
    }
    _exit(kExitPeerLost);
  }

  void End() {
    for (ncclComm_t comm : comms_) {
      if (ncclCommDestroy(comm) != kNcclSuccess) Die("rank %d: ncclCommDestroy", rank_);
    }
    for (CUstream stream : streams_) Must(cuStreamDestroy_v2(stream), "cuStreamDestroy");
    Free();
    Must(cuMemFreeHost(host_), "cuMemFreeHost");
    std::exit(0);
  }

  const Options& options_;
  Shared& shared_;
  const int rank_;
  std::mt19937_64 random_;
  const Program* program_ = nullptr;  // of the present round
  std::vector<ncclComm_t> comms_;
  std::vector<CUstream> streams_;
  std::vector<CUgraphExec> graphs_;  // of the present round
  std::vector<int> runs_;            // by message
  CUdeviceptr memory_ = 0;
  uint64_t chunks_ = 0;  // number of mapped chunks
  uint64_t place_ = 0;
  std::byte* host_ = nullptr;
};

class Parent {
 public:
  explicit Parent(const Options& options) : options_(options) {
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Die("mmap");
    shared_ = new (memory) Shared();
  }

  int Run() {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const pid_t child = fork();
      if (child < 0) Die("fork");
      if (child == 0) {
        Rank(options_, shared_, rank).Run();
        _exit(1);
      }
      children_.push_back(child);
    }
    const int killed = options_.kill ? Kill() : -1;
    return Judge(killed);
  }

 private:
  int Kill() {
    std::mt19937_64 random(options_.seed);
    while (shared_->begun < options_.ranks) usleep(1000);
    usleep(static_cast<useconds_t>(random() % 300'000));
    const int killed = static_cast<int>(random() % static_cast<uint64_t>(options_.ranks));
    kill(children_[static_cast<size_t>(killed)], SIGKILL);
    return killed;
  }

  int Judge(int killed) {
    const auto began = Clock::now();
    bool well = true;
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      int status = 0;
      while (waitpid(children_[rank], &status, WNOHANG) == 0) {
        // After a rank has failed, the others may wait for ever, so they are killed.
        if (Clock::now() - began > 3 * kPatience || !well) {
          if (well) {
            std::fprintf(stderr, "rank %zu is not over, in round %llu of %llu\n", rank,
                         static_cast<unsigned long long>(shared_->rounds[rank].load()),
                         static_cast<unsigned long long>(options_.rounds));
          }
          well = false;
          kill(children_[rank], SIGKILL);
        }
        usleep(1000);
      }
      if (static_cast<int>(rank) == killed) continue;
      const bool ended =
          WIFEXITED(status) &&
          (WEXITSTATUS(status) == 0 || (killed >= 0 && WEXITSTATUS(status) == kExitPeerLost));
      if (!ended && well) std::fprintf(stderr, "rank %zu ended with status %d\n", rank, status);
      well = well && ended;
    }
    if (!well) return 1;
    if (killed >= 0) {
      std::printf("well: all learned of the end of rank %d in %.1f s\n", killed,
                  std::chrono::duration<double>(Clock::now() - began).count());
    } else {
      std::printf("well: %llu messages\n",
                  static_cast<unsigned long long>(options_.rounds * options_.messages));
    }
    return 0;
  }

  const Options options_;
  Shared* shared_ = nullptr;
  std::vector<pid_t> children_;
};

int Main(int count, char** arguments) {
  Options options;
  const std::vector<std::string> words(arguments + 1, arguments + count);
  const auto number = [&](size_t i, uint64_t otherwise) {
    return words.size() > i ? std::strtoull(words[i].c_str(), nullptr, 10) : otherwise;
  };
  options.seed = number(0, options.seed);
  options.rounds = number(1, options.rounds);
  options.messages = number(2, options.messages);
  options.ranks = static_cast<int>(std::clamp<uint64_t>(number(3, 2), 2, kMost));
  options.eager = words.size() > 4 && words[4] == "eager";
  options.largest = number(5, options.largest);
  const auto asked = [&](const char* word) {
    return words.size() > 6 && std::find(words.begin() + 6, words.end(), word) != words.end();
  };
  options.kill = asked("kill");
  options.mapped = asked("mapped");
  options.single = asked("single");
  options.graphs = asked("graphs");
  options.later = asked("later");
  return Parent(options).Run();
}

}  // namespace
}  // namespace nccltune::sendrecv

int main(int count, char** arguments) { return nccltune::sendrecv::Main(count, arguments); }
