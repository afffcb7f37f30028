// SPDX-License-Identifier: Apache-2.0
//
// A fake communicator: it calls the tuner plugin and the profiler as NCCL does, and computes the
// results.
#ifndef NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_FAKE_COMM_H_
#define NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_FAKE_COMM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/profiler_v5.h"
#include "bench/nccl/nccl_abi.h"
#include "bench/step.h"
#include "common/nccl_version.h"
#include "host/nccl_rules.h"
#include "host/tuner_host.h"

namespace nccltune::fake {

// The shared state of a fake communicator, in memory that threads and processes share.

inline constexpr int kMaxRanks = 16;
inline constexpr size_t kStagingBytes = size_t{64} << 10U;

// One piece of a rank's result: bytes [from, from + bytes) of the input of `source`, or of the
// reduction of all inputs.
struct ResultPiece {
  static constexpr int kReduced = -1;
  int source = kReduced;
  size_t from = 0;
  size_t to = 0;
  size_t bytes = 0;
};

// One rank's view of a collective: input bytes and output bytes.
struct RankExchange {
  const unsigned char* send = nullptr;
  size_t send_bytes = 0;
  unsigned char* receive = nullptr;
  std::vector<ResultPiece> parts;
  bench::Dtype dtype = bench::Dtype::kFloat;
  bench::Redop redop = bench::Redop::kSum;
  double scalar = 1;  // factor applied to this rank's data
  // Point to point: the offset in `send` of the data for each peer. The parts then need no `from`,
  // because the source's own offset is used.
  bool point_to_point = false;
  std::vector<size_t> offset_to;
};

class World {
 public:
  // Returns a name for a unique id. It is valid in all processes while this one lives.
  static std::string Create();

  // `gpu` holds the buffers of the rank.
  World(const std::string& name, int ranks, int rank, int gpu);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Waits for all ranks. Returns false after `aborted` is set.
  bool Barrier(const std::atomic<bool>& aborted);

  // Runs the collective with all ranks. Returns false after `aborted` is set.
  bool Run(const RankExchange& exchange, const std::atomic<bool>& aborted);
  // Changes a byte of the rank's GPU memory.
  void Spoil(unsigned char* byte) const;

 private:
  struct Shared;
  void Deliver(const RankExchange& exchange, const ResultPiece& part, size_t chunk) const;
  void Reduce(const RankExchange& exchange, size_t begin, size_t bytes, unsigned char* to) const;

  const int ranks_;
  const int rank_;
  const int gpu_;
  Shared* shared_ = nullptr;
  uint64_t barriers_ = 0;
};

// The faults to simulate, read from the environment when the communicator is created. A size of 0
// means every size.
struct Faults {
  struct At {
    int rank = -1;
    size_t bytes = 0;
  };
  std::optional<At> hang;   // FAKE_NCCL_HANG=RANK:BYTES: the call never ends
  std::optional<At> wrong;  // FAKE_NCCL_WRONG=RANK:BYTES: one element of the result is wrong
  std::optional<At> fail;   // FAKE_NCCL_FAIL=RANK:BYTES: the function returns fail_code
  // FAKE_NCCL_ASYNC=RANK:BYTES: hangs and reports an asynchronous error.
  std::optional<At> asynchronous;
  int fail_code = 1;             // FAKE_NCCL_FAIL_CODE
  bool ignores_tuner = false;    // FAKE_NCCL_NO_TUNER: does not load the plugin
  bool forgets_tuner = false;    // FAKE_NCCL_FORGETS_TUNER: loads the plugin but does not call it
  bool no_registration = false;  // NCCL_LOCAL_REGISTER=0, a setting of NCCL
  long delay_us = 0;             // FAKE_NCCL_DELAY_US: duration of each collective

  static Faults FromEnvironment();
  static bool Hits(const std::optional<At>& fault, int rank, size_t bytes);
};

NcclVersion VersionFromEnvironment();  // FAKE_NCCL_VERSION=22809

// The arguments of a collective call.
struct Call {
  int function = -1;  // ncclFunc_t, -1: sends and receives
  const char* name = "";
  size_t tuner_bytes = 0;
  RankExchange exchange;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t send_bytes = 0;  // sizes of the buffers, as NCCL computes them from the count
  size_t receive_bytes = 0;
};

// One send or receive of a group.
struct Transfer {
  bool sends = false;
  const unsigned char* from = nullptr;
  unsigned char* to = nullptr;
  size_t bytes = 0;
  int peer = 0;
};

class Comm {
 public:
  Comm(const std::string& world, int ranks, int rank);
  // Waits for the enqueued operations.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const Faults& faults() const { return faults_; }
  const std::string& last_error() const { return last_error_; }

  bool Init() { return world_.Barrier(aborted_); }

  // Simulates one collective: asks the plugin, reports to the profiler and enqueues the work.
  // Returns the fault's code if it must fail.
  nccl::Result Enqueue(Call call, cu::Stream stream);
  // Simulates a group of equal collectives: asks the plugin once about all of them, as NCCL does.
  nccl::Result EnqueueCalls(std::vector<Call> calls, cu::Stream stream);
  nccl::Result EnqueueGroup(const std::vector<Transfer>& transfers, cu::Stream stream);

  // Enqueued operations that have not started do nothing, but a stream may still reach them.
  void Abort() {
    aborted_ = true;
    End();
  }
  nccl::Result asynchronous_error() const { return asynchronous_error_; }

  void Register(const void* buffer, size_t bytes) { registered_.emplace_back(buffer, bytes); }
  void Deregister(const void* buffer);

  double scalar_of(int op) const { return scalars_.at(static_cast<size_t>(op)); }
  int KeepScalar(double scalar);

 private:
  struct Operation {
    Comm* comm;
    Call call;
  };

  void End();
  void Decide(const Call& first, size_t calls, bool capturing);
  void ReportToProfiler(const Call& call, int channels, host::Combination combination);
  bool IsRegistered(const void* buffer, size_t bytes) const;
  void Launch(Call call, cu::Stream stream);
  static void Play(void* operation);

  const Faults faults_ = Faults::FromEnvironment();
  const NcclVersion version_ = VersionFromEnvironment();
  const int ranks_;
  const int rank_;
  World world_;
  std::atomic<bool> aborted_ = false;
  std::atomic<int> asynchronous_error_ = 0;
  std::atomic<int> pending_ = 0;
  std::string last_error_;
  std::list<Operation> operations_;  // never removed, because graphs launch them again
  std::unique_ptr<host::TunerHost> tuner_;
  const abi::ProfilerV5* profiler_ = nullptr;
  void* profiler_context_ = nullptr;
  std::vector<std::pair<const void*, size_t>> registered_;
  std::vector<double> scalars_;
};

}  // namespace nccltune::fake

#endif  // NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_FAKE_COMM_H_
