// SPDX-License-Identifier: Apache-2.0
// One of the two ranks of a scenario: a process that uses CUDA's and NCCL's interfaces as a program
// does, with or without the send/recv library, on the stand-ins or on a GPU.
//
// It prints lines on standard output, each with the rank in front:
//   result NAME VALUE    must be the same with and without the library
//   measure NAME VALUE   reported, not compared
//   skip REASON          this NCCL cannot run the scenario
//   done                 the last line of a rank that reached its end
#pragma once

#include "sendrecv/stand_in/soft_cuda.h"
#include "sendrecv/stand_in/soft_nccl.h"
#include "standard.h"

namespace nccltune::sendrecv {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names

// Exit codes of a rank.
inline constexpr int kExitFailed = 1;

inline constexpr int kExitUsage = 2;

inline constexpr int kExitHang = 4;

inline constexpr int kExitSkipped = 5;

inline const char* const kKnown[] = {"folder", "rank",  "large", "count", "patience",
                                     "seed",   "fsize", "bytes", "late",  "as-more"};

// The NAME=VALUE arguments of the command line.
class Settings {
 public:
  explicit Settings(std::vector<std::string> words) {
    for (const std::string& word : words) {
      const size_t equals = word.find('=');
      const std::string value = equals == std::string::npos ? "1" : word.substr(equals + 1);
      values_[word.substr(0, equals)] = value;
    }
  }
  // Sizes may end in K, M or G (powers of 1024).
  uint64_t Number(std::string_view name, uint64_t otherwise) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return otherwise;
    char* end = nullptr;
    const uint64_t number = std::strtoull(found->second.c_str(), &end, 10);
    const std::string unit = end;
    if (unit.empty()) return number;
    if (unit == "K") return number << 10;
    if (unit == "M") return number << 20;
    if (unit == "G") return number << 30;
    std::fprintf(stderr, "%s is not a number\n", found->second.c_str());
    _exit(kExitUsage);
  }
  std::string Text(std::string_view name, const std::string& otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  bool Has(std::string_view name) const { return values_.contains(name); }
  // Ends the process if an argument has a name that no scenario uses.
  void RejectUnknown() const {
    for (const auto& [name, value] : values_) {
      if (std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown)) continue;
      std::fprintf(stderr, "unknown setting %s=%s\n", name.c_str(), value.c_str());
      _exit(kExitUsage);
    }
  }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// Resources that this process uses now.
struct Resources {
  size_t files = 0;
  size_t threads = 0;
  size_t resident_kib = 0;
  size_t gpu_free_mib = 0;
  size_t shared_files = 0;  // entries of /dev/shm
  size_t mappings = 0;
};

inline constexpr uint64_t kDefaultLarge = uint64_t{4} << 20;

// long enough for a slow start of CUDA
inline constexpr int kRanks = 2;

// NOLINT(google-build-using-namespace): CUDA's and NCCL's names
using Clock = std::chrono::steady_clock;

inline constexpr auto kMeeting = std::chrono::seconds(240);

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline size_t CountEntries(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

inline size_t FieldOf(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return std::strtoull(line.c_str() + name.size(), nullptr, 10);
  }
  return 0;
}

inline void* At(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

class ScenarioRank {
 public:
  ScenarioRank(const Settings& settings, int rank, std::string folder)
      : settings_(settings),
        rank_(rank),
        folder_(std::move(folder)),
        large_(settings.Number("large", kDefaultLarge)),
        patience_(settings.Number("patience", 120)) {}

  const Settings& settings() const { return settings_; }
  int rank() const { return rank_; }
  int peer() const { return 1 - rank_; }
  uint64_t large() const { return large_; }
  CUstream stream() const { return stream_; }
  ncclComm_t comm() const { return comm_; }

  // Creates a communicator of all ranks, which comm() returns from then on. The first call also
  // creates the context and the stream.
  ncclComm_t Init() {
    if (stream_ == nullptr) UseGpu();
    ncclUniqueId id = {};
    if (rank_ == 0) Must(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const std::string made =
        Share("id." + std::to_string(++inits_), std::string(id.internal, sizeof(id.internal)));
    std::memcpy(id.internal, made.data(), std::min(made.size(), sizeof(id.internal)));
    Must(ncclCommInitRank(&comm_, kRanks, id, rank_), "ncclCommInitRank");
    return comm_;
  }
  void Destroy(ncclComm_t comm) {
    if (comm == comm_) comm_ = nullptr;
    Must(ncclCommDestroy(comm), "ncclCommDestroy");
  }

  // A barrier for all ranks, without NCCL. Ends the process if another rank does not arrive.
  void Meet(std::string_view name) {
    const std::string place = folder_ + "/meeting." + std::to_string(++meetings_) + ".";
    std::ofstream(place + std::to_string(rank_)) << name;
    const auto began = Clock::now();
    for (int rank = 0; rank < kRanks; ++rank) {
      while (access((place + std::to_string(rank)).c_str(), F_OK) != 0) {
        if (Clock::now() - began > kMeeting) Fail("a rank did not reach " + std::string(name));
        usleep(500);
      }
    }
  }
  // Returns rank 0's value on all ranks. Each `name` is used once.
  std::string Share(const std::string& name, const std::string& value) {
    const std::string path = folder_ + "/" + name;
    if (rank_ == 0) {
      std::ofstream(path + ".new", std::ios::binary) << value;
      std::filesystem::rename(path + ".new", path);
      return value;
    }
    const auto began = Clock::now();
    while (access(path.c_str(), F_OK) != 0) {
      if (Clock::now() - began > kMeeting) Fail("rank 0 did not write " + name);
      usleep(500);
    }
    return ReadFile(path);
  }

  CUdeviceptr Allocate(uint64_t bytes) {
    CUdeviceptr memory = 0;
    if (cuMemAlloc_v2(&memory, bytes) != kCudaSuccess) Fail("cuMemAlloc");
    return memory;
  }
  void Free(CUdeviceptr memory) {
    if (cuMemFree_v2(memory) != kCudaSuccess) Fail("cuMemFree");
  }
  // A message's content is given by a key: bytes of the pattern, from a position that depends on
  // the key. It is the same on all ranks.
  void Put(CUdeviceptr to, uint64_t key, uint64_t bytes) {
    if (cuMemcpyHtoDAsync_v2(to, Content(key, bytes), bytes, stream_) != kCudaSuccess)
      Fail("cuMemcpyHtoDAsync");
  }
  void Clear(CUdeviceptr to, uint64_t bytes) {
    if (cuMemsetD8Async(to, 0xEE, bytes, stream_) != kCudaSuccess) Fail("cuMemsetD8Async");
  }
  // Call it after Wait().
  bool Holds(CUdeviceptr from, uint64_t key, uint64_t bytes) {
    return std::memcmp(Fetch(from, bytes), Content(key, bytes), bytes) == 0;
  }
  // Return the bytes of a key, and bytes of device memory. The latter are valid until the next
  // call.
  const uint8_t* Content(uint64_t key, uint64_t bytes) const {
    if (bytes >= pattern_bytes_) Fail("a content larger than the pattern");
    // The finalizer of splitmix64: consecutive keys get distant positions.
    uint64_t mixed = key * 0x9E3779B97F4A7C15U + 0x632BE59BD9B4E019U;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
    return pattern_ + (mixed ^ (mixed >> 31)) % (pattern_bytes_ - bytes);
  }
  const uint8_t* Fetch(CUdeviceptr from, uint64_t bytes) {
    if (fetched_bytes_ < bytes) {
      if (fetched_ != nullptr) cuMemFreeHost(fetched_);
      void* pinned = nullptr;
      if (cuMemHostAlloc(&pinned, bytes, 0) != kCudaSuccess) Fail("cuMemHostAlloc");
      fetched_ = static_cast<uint8_t*>(pinned);
      fetched_bytes_ = bytes;
    }
    if (cuMemcpyDtoHAsync_v2(fetched_, from, bytes, stream_) != kCudaSuccess) Fail("cuMemcpyDtoH");
    Wait();
    return fetched_;
  }

  // Sends to or receives from the peer, in comm() or in a communicator split from it.
  ncclResult_t Send(CUdeviceptr from, uint64_t bytes, ncclComm_t comm = nullptr);
  ncclResult_t Receive(CUdeviceptr to, uint64_t bytes, ncclComm_t comm = nullptr);
  // Runs a group of a send to the peer and a receive from it, and waits for it. Returns whether the
  // content is right.
  bool Exchange(uint64_t bytes, uint64_t key, ncclComm_t comm = nullptr) {
    if (from_ == 0) {
      from_ = Allocate(large_);
      to_ = Allocate(large_);
    }
    Put(from_, 2 * key + static_cast<uint64_t>(rank_), bytes);
    Clear(to_, bytes);
    Must(ncclGroupStart(), "ncclGroupStart");
    Must(Send(from_, bytes, comm), "ncclSend");
    Must(Receive(to_, bytes, comm), "ncclRecv");
    Must(ncclGroupEnd(), "ncclGroupEnd");
    Wait();
    return Holds(to_, 2 * key + static_cast<uint64_t>(peer()), bytes);
  }

  // Waits until the stream is idle. Ends the process with kExitHang after the setting `patience`,
  // and with kExitFailed on an error of the communicator.
  void Wait() {
    const auto began = Clock::now();
    for (uint64_t tries = 0;; ++tries) {
      const CUresult result = cuStreamQuery(stream_);
      if (result == kCudaSuccess) break;
      if (result != kNotReady) Fail("the stream ended with CUDA error " + std::to_string(result));
      ncclResult_t error = kNcclSuccess;
      if (comm_ != nullptr && tries % 64 == 63) {
        Must(ncclCommGetAsyncError(comm_, &error), "ncclCommGetAsyncError");
        Must(error, "the communicator");
      }
      if (Clock::now() - began > patience_) Hang("stream");
      if (tries > 200) usleep(50);
    }
  }
  // Aborts comm(), and waits for the stream.
  ncclResult_t Abort() {
    const ncclResult_t result = ncclCommAbort(std::exchange(comm_, nullptr));
    Wait();
    return result;
  }
  // Ends the process with kExitFailed if `result` is an error.
  void Must(ncclResult_t result, std::string_view what) {
    if (result == kNcclSuccess) return;
    Fail(std::string(what) + " returned " + std::to_string(result) + ": " +
         ncclGetLastError(comm_));
  }
  void Result(std::string_view name, std::string_view value) const {
    std::printf("%d result %.*s %.*s\n", rank_, static_cast<int>(name.size()), name.data(),
                static_cast<int>(value.size()), value.data());
  }
  // Prints whether a content is right.
  void ResultContent(std::string_view name, bool right) const {
    Result(name, right ? "right" : "WRONG");
  }
  void ResultCode(std::string_view name, ncclResult_t code) const {
    Result(name, "returned " + std::to_string(code));
  }
  void Measure(std::string_view name, double value) const {
    std::printf("%d measure %.*s %.10g\n", rank_, static_cast<int>(name.size()), name.data(),
                value);
  }
  [[noreturn]] void Skip(std::string_view why) const {
    std::printf("%d skip %.*s\n", rank_, static_cast<int>(why.size()), why.data());
    std::fflush(stdout);
    _exit(kExitSkipped);
  }
  [[noreturn]] void Fail(std::string_view why) const {
    std::printf("%d failed %.*s\n", rank_, static_cast<int>(why.size()), why.data());
    std::fflush(stdout);
    _exit(kExitFailed);
  }
  [[noreturn]] void Hang(std::string_view where) const {
    std::printf("%d hang %.*s\n", rank_, static_cast<int>(where.size()), where.data());
    std::fflush(stdout);
    // The library reports every incomplete message.
    if (std::getenv("NCCLTUNE_SENDRECV_SIGNAL") != nullptr) {
      kill(getpid(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
    _exit(kExitHang);
  }
  Resources CountResources() const {
    size_t free = 0;
    size_t total = 0;
    if (cuMemGetInfo_v2(&free, &total) != kCudaSuccess) Fail("cuMemGetInfo");
    std::ifstream maps("/proc/self/maps");
    const auto lines =
        std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n');
    return {.files = CountEntries("/proc/self/fd"),
            .threads = CountEntries("/proc/self/task"),
            .resident_kib = FieldOf("/proc/self/status", "VmRSS:"),
            .gpu_free_mib = free >> 20,
            .shared_files = CountEntries("/dev/shm"),
            .mappings = static_cast<size_t>(lines)};
  }
  std::chrono::seconds patience() const { return patience_; }

  // Returns a function that older versions of NCCL lack. Skips the scenario if it is missing.
  template <typename Function>
  Function Find(const char* name) const {
    void* const found = dlsym(RTLD_DEFAULT, name);
    if (found == nullptr) Skip(std::string("NCCL has no ") + name);
    return reinterpret_cast<Function>(found);
  }

 private:
  void UseGpu() {
    int gpus = 0;
    CUcontext context = nullptr;
    if (cuInit(0) != kCudaSuccess) Fail("cuInit");
    if (cuDeviceGetCount(&gpus) != kCudaSuccess || gpus == 0) Fail("no GPU");
    if (cuDevicePrimaryCtxRetain(&context, rank_ % gpus) != kCudaSuccess) Fail("no context");
    if (cuCtxSetCurrent(context) != kCudaSuccess) Fail("cuCtxSetCurrent");
    if (cuStreamCreate(&stream_, kStreamNonBlocking) != kCudaSuccess) Fail("cuStreamCreate");
    // Twice the largest content, so that different keys can begin at different positions.
    pattern_bytes_ = std::max(2 * large_, uint64_t{1} << 20);
    void* pinned = nullptr;
    if (cuMemHostAlloc(&pinned, pattern_bytes_, 0) != kCudaSuccess) Fail("cuMemHostAlloc");
    pattern_ = static_cast<uint8_t*>(pinned);
    std::mt19937_64 random(7);
    for (uint64_t i = 0; i + 8 <= pattern_bytes_; i += 8) {
      const uint64_t word = random();
      std::memcpy(pattern_ + i, &word, 8);
    }
  }
  int PeerIn(ncclComm_t comm) const {
    int mine = rank_;
    // A split communicator may have the ranks in another order.
    if (comm != comm_ && ncclCommUserRank(comm, &mine) != kNcclSuccess) Fail("ncclCommUserRank");
    return 1 - mine;
  }

  const Settings& settings_;
  const int rank_;
  const std::string folder_;
  const uint64_t large_;
  const std::chrono::seconds patience_;
  int inits_ = 0;
  int meetings_ = 0;
  CUstream stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  uint8_t* pattern_ = nullptr;  // pinned, like the next one
  uint64_t pattern_bytes_ = 0;
  uint8_t* fetched_ = nullptr;
  uint64_t fetched_bytes_ = 0;
  CUdeviceptr from_ = 0;  // buffers of Exchange
  CUdeviceptr to_ = 0;
};

inline ncclResult_t ScenarioRank::Send(CUdeviceptr from, uint64_t bytes, ncclComm_t comm) {
  if (comm == nullptr) comm = comm_;
  return ncclSend(At(from), bytes, kNcclUint8, PeerIn(comm), comm, stream_);
}

inline ncclResult_t ScenarioRank::Receive(CUdeviceptr to, uint64_t bytes, ncclComm_t comm) {
  if (comm == nullptr) comm = comm_;
  return ncclRecv(At(to), bytes, kNcclUint8, PeerIn(comm), comm, stream_);
}

// Listed in scenario_program.cc.
void RunSplit(ScenarioRank& rank);

void RunAbort(ScenarioRank& rank);

void RunChurn(ScenarioRank& rank);

}  // namespace nccltune::sendrecv
