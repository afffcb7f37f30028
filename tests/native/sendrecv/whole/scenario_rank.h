// SPDX-License-Identifier: Apache-2.0
// One of the two ranks of a scenario: a process that uses CUDA's and NCCL's interfaces as a program
// does, with or without the send/recv library, on the stand-ins or on a GPU.
//
// It prints lines on standard output, each with the rank in front:
//   result NAME VALUE    must be the same with and without the library
//   measure NAME VALUE   reported, not compared
//   skip REASON          this NCCL cannot run the scenario
//   done                 the last line of a rank that reached its end
#ifndef NCCLTUNE_TESTS_SENDRECV_WHOLE_SCENARIO_RANK_H_
#define NCCLTUNE_TESTS_SENDRECV_WHOLE_SCENARIO_RANK_H_

#include "sendrecv/stand_in/soft_cuda.h"
#include "sendrecv/stand_in/soft_nccl.h"
#include "standard.h"

namespace nccltune::sendrecv {

// Exit codes of a rank.
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitHang = 4;
inline constexpr int kExitSkipped = 5;

// The NAME=VALUE arguments of the command line.
class Settings {
 public:
  explicit Settings(std::vector<std::string> words);
  // Sizes may end in K, M or G (powers of 1024).
  uint64_t Number(std::string_view name, uint64_t otherwise) const;
  std::string Text(std::string_view name, const std::string& otherwise) const;
  bool Has(std::string_view name) const { return values_.contains(name); }
  // Ends the process if an argument has a name that no scenario uses.
  void RejectUnknown() const;

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

class ScenarioRank {
 public:
  ScenarioRank(const Settings& settings, int rank, std::string folder);

  const Settings& settings() const { return settings_; }
  int rank() const { return rank_; }
  int peer() const { return 1 - rank_; }
  uint64_t large() const { return large_; }
  soft::CUstream stream() const { return stream_; }
  soft::ncclComm_t comm() const { return comm_; }

  // Creates a communicator of all ranks, which comm() returns from then on. The first call also
  // creates the context and the stream.
  soft::ncclComm_t Init();
  void Destroy(soft::ncclComm_t comm);

  // A barrier for all ranks, without NCCL. Ends the process if another rank does not arrive.
  void Meet(std::string_view name);
  // Returns rank 0's value on all ranks. Each `name` is used once.
  std::string Share(const std::string& name, const std::string& value);

  soft::CUdeviceptr Allocate(uint64_t bytes);
  void Free(soft::CUdeviceptr memory);
  // A message's content is given by a key: bytes of the pattern, from a position that depends on
  // the key. It is the same on all ranks.
  void Put(soft::CUdeviceptr to, uint64_t key, uint64_t bytes);
  void Clear(soft::CUdeviceptr to, uint64_t bytes);
  // Call it after Wait().
  bool Holds(soft::CUdeviceptr from, uint64_t key, uint64_t bytes) {
    return std::memcmp(Fetch(from, bytes), Content(key, bytes), bytes) == 0;
  }
  // Return the bytes of a key, and bytes of device memory. The latter are valid until the next
  // call.
  const uint8_t* Content(uint64_t key, uint64_t bytes) const;
  const uint8_t* Fetch(soft::CUdeviceptr from, uint64_t bytes);

  // Sends to or receives from the peer, in comm() or in a communicator split from it.
  soft::ncclResult_t Send(soft::CUdeviceptr from, uint64_t bytes, soft::ncclComm_t comm = nullptr);
  soft::ncclResult_t Receive(soft::CUdeviceptr to, uint64_t bytes, soft::ncclComm_t comm = nullptr);
  // Runs a group of a send to the peer and a receive from it, and waits for it. Returns whether the
  // content is right.
  bool Exchange(uint64_t bytes, uint64_t key, soft::ncclComm_t comm = nullptr);

  // Waits until the stream is idle. Ends the process with kExitHang after the setting `patience`,
  // and with kExitFailed on an error of the communicator.
  void Wait();
  // Aborts comm(), and waits for the stream.
  soft::ncclResult_t Abort();
  // Ends the process with kExitFailed if `result` is an error.
  void Must(soft::ncclResult_t result, std::string_view what);
  void Result(std::string_view name, std::string_view value) const;
  // Prints whether a content is right.
  void ResultContent(std::string_view name, bool right) const {
    Result(name, right ? "right" : "WRONG");
  }
  void ResultCode(std::string_view name, soft::ncclResult_t code) const;
  void Measure(std::string_view name, double value) const;
  [[noreturn]] void Skip(std::string_view why) const;
  [[noreturn]] void Fail(std::string_view why) const;
  [[noreturn]] void Hang(std::string_view where) const;
  Resources CountResources() const;
  std::chrono::seconds patience() const { return patience_; }

  // Returns a function that older versions of NCCL lack. Skips the scenario if it is missing.
  template <typename Function>
  Function Find(const char* name) const {
    void* const found = dlsym(RTLD_DEFAULT, name);
    if (found == nullptr) Skip(std::string("NCCL has no ") + name);
    return reinterpret_cast<Function>(found);
  }

 private:
  void UseGpu();
  int PeerIn(soft::ncclComm_t comm) const;

  const Settings& settings_;
  const int rank_;
  const std::string folder_;
  const uint64_t large_;
  const std::chrono::seconds patience_;
  int inits_ = 0;
  int meetings_ = 0;
  soft::CUstream stream_ = nullptr;
  soft::ncclComm_t comm_ = nullptr;
  uint8_t* pattern_ = nullptr;  // pinned, like the next one
  uint64_t pattern_bytes_ = 0;
  uint8_t* fetched_ = nullptr;
  uint64_t fetched_bytes_ = 0;
  soft::CUdeviceptr from_ = 0;  // buffers of Exchange
  soft::CUdeviceptr to_ = 0;
};

inline void* At(soft::CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// Listed in scenario_program.cc.
void RunSplit(ScenarioRank& rank);
void RunAbort(ScenarioRank& rank);
void RunChurn(ScenarioRank& rank);
void RunMillion(ScenarioRank& rank);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_TESTS_SENDRECV_WHOLE_SCENARIO_RANK_H_
