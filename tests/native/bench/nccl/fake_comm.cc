// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/fake_comm.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/nccl/pattern.h"
#include "sendrecv/stand_in/soft_cuda.h"

namespace nccltune::fake {
namespace {

// The mask of profiler events, one for the process, as in NCCL.
int profiler_mask = 0;

// The channels of every fake communicator.
constexpr size_t kChannels = 24;

// The plugin host has one log for the process, so the ranks of a process must ask the plugin one
// after another.
std::mutex tuner_mutex;

std::string Setting(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::optional<Faults::At> Place(const char* name) {
  Faults::At at;
  const std::string text = Setting(name);
  if (std::sscanf(text.c_str(), "%d:%zu", &at.rank, &at.bytes) != 2) return std::nullopt;
  return at;
}

// Returns the number of nodes, from FAKE_NCCL_NODES, at most one for each rank.
int NodesOf(int ranks) {
  const std::string nodes = Setting("FAKE_NCCL_NODES");
  return nodes.empty() ? 1 : std::min(std::atoi(nodes.c_str()), ranks);
}

// Predictions whose order depends on the size: latency and bandwidth of each combination.
std::vector<std::pair<host::Combination, float>> Costs(int function, size_t bytes, int algorithms) {
  const auto cost = [bytes](double latency_us, double gb_per_s) {
    return static_cast<float>(latency_us + static_cast<double>(bytes) / (1000 * gb_per_s));
  };
  std::vector<std::pair<host::Combination, float>> costs = {
      {{abi::kRing, abi::kLl}, cost(8, 10)},
      {{abi::kRing, abi::kLl128}, cost(15, 40)},
      {{abi::kRing, abi::kSimple}, cost(30, 80)}};
  if (function == abi::kAllReduce) {
    costs.push_back({{abi::kTree, abi::kLl}, cost(6, 8)});
    costs.push_back({{abi::kTree, abi::kLl128}, cost(14, 30)});
    costs.push_back({{abi::kTree, abi::kSimple}, cost(20, 70)});
  }
  if (algorithms > abi::kPat && function == abi::kAllGather) {
    costs.push_back({{abi::kPat, abi::kSimple}, cost(25, 60)});
  }
  return costs;
}

int CurrentGpu() {
  int gpu = -1;
  if (soft::cuCtxGetDevice(&gpu) != soft::kCudaSuccess) std::abort();
  return gpu;
}

soft::CUstream Handle(cu::Stream stream) { return static_cast<soft::CUstream>(stream); }

soft::CUdeviceptr AddressOf(const void* pointer) {
  return reinterpret_cast<soft::CUdeviceptr>(pointer);
}

std::string UpperCase(std::string_view word) {
  std::string upper(word);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

}  // namespace

NcclVersion VersionFromEnvironment() {
  const std::string text = Setting("FAKE_NCCL_VERSION");
  return NcclVersionFromCode(text.empty() ? 22809 : std::atoi(text.c_str())).value();
}

Faults Faults::FromEnvironment() {
  Faults faults;
  faults.hang = Place("FAKE_NCCL_HANG");
  faults.wrong = Place("FAKE_NCCL_WRONG");
  faults.fail = Place("FAKE_NCCL_FAIL");
  faults.asynchronous = Place("FAKE_NCCL_ASYNC");
  const std::string code = Setting("FAKE_NCCL_FAIL_CODE");
  if (!code.empty()) faults.fail_code = std::atoi(code.c_str());
  faults.ignores_tuner = !Setting("FAKE_NCCL_NO_TUNER").empty();
  faults.forgets_tuner = !Setting("FAKE_NCCL_FORGETS_TUNER").empty();
  faults.no_registration = Setting("NCCL_LOCAL_REGISTER") == "0";
  faults.delay_us = std::atol(Setting("FAKE_NCCL_DELAY_US").c_str());
  return faults;
}

bool Faults::Hits(const std::optional<At>& fault, int rank, size_t bytes) {
  return fault && fault->rank == rank && (fault->bytes == 0 || fault->bytes == bytes);
}

Comm::Comm(const std::string& world, int ranks, int rank)
    : ranks_(ranks), rank_(rank), world_(world, ranks, rank, CurrentGpu()) {
  const int nodes = NodesOf(ranks);
  const std::string plugin = Setting("NCCL_TUNER_PLUGIN");
  if (!plugin.empty() && !faults_.ignores_tuner) {
    host::InitReport report;
    host::Failure failure;
    const std::lock_guard<std::mutex> lock(tuner_mutex);
    tuner_ = host::TunerHost::Start({.tuner = plugin,
                                     .nccl = version_,
                                     .platform = {.nodes = nodes,
                                                  .ranks = ranks,
                                                  .min_ranks_per_node = ranks / nodes,
                                                  .max_ranks_per_node = ranks / nodes},
                                     .channels = std::nullopt},
                                    &report, &failure);
  }
  if (version_ >= NcclVersion{2, 28, 0} &&
      strcasecmp(Setting("NCCL_PROFILER_PLUGIN").c_str(), "STATIC_PLUGIN") == 0) {
    void* const program = dlopen(nullptr, RTLD_NOW | RTLD_LOCAL);
    profiler_ = static_cast<const abi::ProfilerV5*>(dlsym(program, "ncclProfiler_v5"));
    dlclose(program);
    if (profiler_ != nullptr) {
      profiler_->init(&profiler_context_, 1, &profiler_mask, nullptr, nodes, ranks, rank, nullptr);
    }
  }
}

Comm::~Comm() { End(); }

void Comm::End() {
  while (pending_ > 0) usleep(100);
  if (profiler_ != nullptr) profiler_->finalize(profiler_context_);
  profiler_ = nullptr;
  const std::lock_guard<std::mutex> lock(tuner_mutex);
  tuner_.reset();
}

void Comm::Deregister(const void* buffer) {
  std::erase_if(registered_, [buffer](const auto& range) { return range.first == buffer; });
}

bool Comm::IsRegistered(const void* buffer, size_t bytes) const {
  const auto* const start = static_cast<const char*>(buffer);
  return std::any_of(registered_.begin(), registered_.end(), [start, bytes](const auto& range) {
    const auto* const first = static_cast<const char*>(range.first);
    return start >= first && start + bytes <= first + range.second;
  });
}

int Comm::KeepScalar(double scalar) {
  scalars_.push_back(scalar);
  return static_cast<int>(scalars_.size()) - 1;
}

// As NCCL, passes the size of all calls of a group, looks up the registration at the first call's
// buffers with that size, and counts the calls for each channel of the communicator as pipe ops.
void Comm::Decide(const Call& call, size_t calls, bool capturing) {
  if (tuner_ == nullptr || faults_.forgets_tuner) return;
  host::DecisionRequest request;
  request.collective = static_cast<abi::TunedCollective>(call.function);
  request.bytes = call.tuner_bytes * calls;
  request.pipe_ops = static_cast<int>((calls + kChannels - 1) / kChannels);
  request.registered =
      capturing || (!faults_.no_registration && IsRegistered(call.send, calls * call.send_bytes) &&
                    IsRegistered(call.receive, calls * call.receive_bytes));
  request.costs = Costs(call.function, request.bytes, tuner_->rules().algorithms);
  host::Decision decision;
  {
    const std::lock_guard<std::mutex> lock(tuner_mutex);
    decision = tuner_->Decide(request);
  }
  // A channel count that fits the size; the plugin's count is an upper bound.
  const int worth = static_cast<int>(std::clamp<size_t>(call.tuner_bytes >> 15U, 1, kChannels));
  const int wanted = decision.choice.channels.value_or(worth);
  if (!capturing) ReportToProfiler(call, std::min(worth, wanted), decision.selected);
}

void Comm::ReportToProfiler(const Call& call, int channels, host::Combination combination) {
  const auto mask = static_cast<uint64_t>(__atomic_load_n(&profiler_mask, __ATOMIC_RELAXED));
  if (profiler_ == nullptr || (mask & abi::kProfileCollective) == 0) return;
  const std::string algorithm = UpperCase(host::AlgorithmName(combination.algorithm));
  const std::string protocol = UpperCase(host::ProtocolName(combination.protocol));
  abi::ProfilerEventV5 event{};
  event.type = abi::kProfileCollective;
  event.rank = rank_;
  event.collective.function = call.name;
  event.collective.channels = static_cast<uint8_t>(channels);
  event.collective.algorithm = algorithm.c_str();
  event.collective.protocol = protocol.c_str();
  void* handle = nullptr;
  profiler_->start_event(profiler_context_, &handle, &event);
}

nccl::Result Comm::Enqueue(Call call, cu::Stream stream) {
  return EnqueueCalls({std::move(call)}, stream);
}

nccl::Result Comm::EnqueueCalls(std::vector<Call> calls, cu::Stream stream) {
  if (Faults::Hits(faults_.fail, rank_, calls.front().tuner_bytes)) {
    last_error_ = "a made-up failure";
    return faults_.fail_code;
  }
  int capturing = 0;
  soft::cuStreamIsCapturing(Handle(stream), &capturing);
  Decide(calls.front(), calls.size(), capturing != 0);
  for (Call& call : calls) Launch(std::move(call), stream);
  return abi::kSuccess;
}

nccl::Result Comm::EnqueueGroup(const std::vector<Transfer>& transfers, cu::Stream stream) {
  Call call;
  call.name = "group";
  call.exchange.point_to_point = true;
  call.exchange.offset_to.resize(static_cast<size_t>(ranks_));
  // In these tests all transfers of a group use one buffer, so what is sent is contiguous.
  for (const Transfer& transfer : transfers) {
    RankExchange& exchange = call.exchange;
    if (transfer.sends) {
      if (exchange.send == nullptr || transfer.from < exchange.send) exchange.send = transfer.from;
    } else if (exchange.receive == nullptr || transfer.to < exchange.receive) {
      exchange.receive = transfer.to;
    }
  }
  for (const Transfer& transfer : transfers) {
    RankExchange& exchange = call.exchange;
    if (transfer.sends) {
      const auto offset = static_cast<size_t>(transfer.from - exchange.send);
      exchange.offset_to[static_cast<size_t>(transfer.peer)] = offset;
      exchange.send_bytes = std::max(exchange.send_bytes, offset + transfer.bytes);
      call.tuner_bytes = std::max(call.tuner_bytes, exchange.send_bytes);
    } else {
      const auto offset = static_cast<size_t>(transfer.to - exchange.receive);
      exchange.parts.push_back({transfer.peer, 0, offset, transfer.bytes});
    }
    const auto mask = static_cast<uint64_t>(__atomic_load_n(&profiler_mask, __ATOMIC_RELAXED));
    if (profiler_ == nullptr || (mask & abi::kProfilePointToPoint) == 0) continue;
    abi::ProfilerEventV5 event{};
    event.type = abi::kProfilePointToPoint;
    event.rank = rank_;
    event.point_to_point.channels = 2;
    void* handle = nullptr;
    profiler_->start_event(profiler_context_, &handle, &event);
  }
  if (Faults::Hits(faults_.fail, rank_, call.tuner_bytes)) return faults_.fail_code;
  Launch(std::move(call), stream);
  return abi::kSuccess;
}

void Comm::Launch(Call call, cu::Stream stream) {
  operations_.push_back({this, std::move(call)});
  soft::cuLaunchHostFunc(Handle(stream), &Comm::Play, &operations_.back());
}

void Comm::Play(void* argument) {
  auto& operation = *static_cast<Operation*>(argument);
  Comm& comm = *operation.comm;
  const Call& call = operation.call;
  if (comm.aborted_) return;
  ++comm.pending_;
  const Faults& faults = comm.faults_;
  const bool fails = Faults::Hits(faults.asynchronous, comm.rank_, call.tuner_bytes);
  if (fails) comm.asynchronous_error_ = abi::kRemoteError;
  if (fails || Faults::Hits(faults.hang, comm.rank_, call.tuner_bytes)) {
    while (!comm.aborted_) usleep(100);
  }
  if (faults.delay_us > 0) usleep(static_cast<useconds_t>(faults.delay_us));
  if (comm.world_.Run(call.exchange, comm.aborted_) &&
      Faults::Hits(faults.wrong, comm.rank_, call.tuner_bytes) && !call.exchange.parts.empty()) {
    comm.world_.Spoil(call.exchange.receive + call.exchange.parts.back().to);
  }
  --comm.pending_;
}

using bench::Decode;
using bench::Encode;
using bench::FormatOf;
using bench::Redop;

struct World::Shared {
  std::atomic<uint64_t> met[kMaxRanks];
  size_t send_bytes[kMaxRanks];
  size_t offset_to[kMaxRanks][kMaxRanks];
  double scalar[kMaxRanks];
  unsigned char staging[kMaxRanks][kStagingBytes];
};

std::string World::Create() {
  // Never closed: the name is valid while the descriptor is open, and no file is left behind.
  const int descriptor = memfd_create("fake_nccl", MFD_CLOEXEC);
  if (descriptor < 0 || ftruncate(descriptor, sizeof(Shared)) != 0) std::abort();
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor);
}

World::World(const std::string& name, int ranks, int rank, int gpu)
    : ranks_(ranks), rank_(rank), gpu_(gpu) {
  const int descriptor = open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) std::abort();
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (memory == MAP_FAILED) std::abort();
  shared_ = static_cast<Shared*>(memory);
}

World::~World() { munmap(shared_, sizeof(Shared)); }

bool World::Barrier(const std::atomic<bool>& aborted) {
  shared_->met[rank_].store(++barriers_, std::memory_order_release);
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int polls = 0; shared_->met[rank].load(std::memory_order_acquire) < barriers_; ++polls) {
      if (aborted) return false;
      if (polls < 100) {
        sched_yield();
      } else {
        usleep(50);
      }
    }
  }
  return true;
}

bool World::Run(const RankExchange& exchange, const std::atomic<bool>& aborted) {
  // A copy, because an in-place result overwrites input that other ranks still read.
  std::vector<unsigned char> send(exchange.send_bytes);
  soft::softCudaRead(gpu_, AddressOf(exchange.send), send.data(), send.size());
  shared_->send_bytes[rank_] = send.size();
  shared_->scalar[rank_] = exchange.scalar;
  for (size_t peer = 0; peer < exchange.offset_to.size(); ++peer) {
    shared_->offset_to[rank_][peer] = exchange.offset_to[peer];
  }
  if (!Barrier(aborted)) return false;
  const size_t longest = *std::max_element(shared_->send_bytes, shared_->send_bytes + ranks_);
  std::vector<ResultPiece> parts = exchange.parts;
  if (exchange.point_to_point) {
    for (ResultPiece& part : parts) part.from = shared_->offset_to[part.source][rank_];
  }
  for (size_t chunk = 0; chunk < longest; chunk += kStagingBytes) {
    if (chunk < send.size()) {
      std::memcpy(shared_->staging[rank_], send.data() + chunk,
                  std::min(kStagingBytes, send.size() - chunk));
    }
    if (!Barrier(aborted)) return false;
    for (const ResultPiece& part : parts) Deliver(exchange, part, chunk);
    if (!Barrier(aborted)) return false;
  }
  return true;
}

void World::Deliver(const RankExchange& exchange, const ResultPiece& part, size_t chunk) const {
  const size_t begin = std::max(part.from, chunk);
  const size_t end = std::min(part.from + part.bytes, chunk + kStagingBytes);
  if (begin >= end) return;
  std::vector<unsigned char> result(end - begin);
  const unsigned char* from = result.data();
  if (part.source == ResultPiece::kReduced) {
    Reduce(exchange, begin - chunk, end - begin, result.data());
  } else {
    from = shared_->staging[part.source] + (begin - chunk);
  }
  unsigned char* const to = exchange.receive + part.to + (begin - part.from);
  soft::softCudaWrite(gpu_, AddressOf(to), from, end - begin);
}

void World::Spoil(unsigned char* byte) const {
  unsigned char value = 0;
  soft::softCudaRead(gpu_, AddressOf(byte), &value, 1);
  value ^= 1U;
  soft::softCudaWrite(gpu_, AddressOf(byte), &value, 1);
}

// Rounds every partial result to the type. The order of ranks differs between elements, as with
// NCCL's rings and trees.
void World::Reduce(const RankExchange& exchange, size_t begin, size_t bytes,
                   unsigned char* to) const {
  const bench::Dtype dtype = exchange.dtype;
  const auto size = static_cast<size_t>(bench::SizeOf(dtype));
  const auto rounded = [dtype](double number) {
    unsigned char stored[8];
    Encode(dtype, number, stored);
    return Decode(dtype, stored);
  };
  const bool real_average = exchange.redop == Redop::kAvg && FormatOf(dtype).is_real;
  const double share = rounded(1.0 / ranks_);
  for (size_t offset = 0; offset < bytes; offset += size) {
    const size_t first = (begin + offset) / size / 16;
    double result = 0;
    for (int i = 0; i < ranks_; ++i) {
      const size_t rank = (first + static_cast<size_t>(i)) % static_cast<size_t>(ranks_);
      double number = Decode(dtype, shared_->staging[rank] + begin + offset);
      if (exchange.redop == Redop::kMulsum) number = rounded(number * shared_->scalar[rank]);
      if (real_average) number = rounded(number * share);
      if (i == 0) {
        result = number;
        continue;
      }
      switch (exchange.redop) {
        case Redop::kSum:
        case Redop::kAvg:
        case Redop::kMulsum:
          result = rounded(result + number);
          break;
        case Redop::kProd:
          result = rounded(result * number);
          break;
        case Redop::kMax:
          result = std::max(result, number);
          break;
        case Redop::kMin:
          result = std::min(result, number);
          break;
      }
    }
    if (exchange.redop == Redop::kAvg && !real_average) result = std::trunc(result / ranks_);
    Encode(dtype, result, to + offset);
  }
}

}  // namespace nccltune::fake
