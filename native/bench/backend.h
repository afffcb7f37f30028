// SPDX-License-Identifier: Apache-2.0
// The interface of the backend that runs steps: NCCL on GPUs (nccl/), or a script in tests.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include "bench/step.h"

namespace nccltune::bench {

// Collective communication between the processes of a run, without NCCL. A backend may use it only
// inside Open, Run or Table, and only from the thread that called that function.
class ProcessExchange {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 10;

  virtual ~ProcessExchange() = default;

  // Every process passes at most kMaxBytes in `mine`. Every process receives the bytes of all
  // processes, in process order. All processes must make the same calls in the same order. Returns
  // false if the run is ending; the caller should then return soon, because the result of the
  // caller is no longer used. On one host a call takes between ten and several hundred
  // microseconds, longer if few cores are free.
  virtual bool AllGather(std::string_view mine, std::vector<std::string>* all) = 0;

  // Copies the bytes of process 0 to all processes. `is_source` is true in process 0 only. Returns
  // false if the run is ending.
  bool Broadcast(std::string* bytes, bool is_source) {
    std::vector<std::string> all;
    if (!AllGather(is_source ? std::string_view(*bytes) : std::string_view(), &all)) return false;
    *bytes = std::move(all[0]);
    return true;
  }
};

// The place of this process in the run. A rank in NCCL's sense is a GPU: process p has
// `gpus_per_process` ranks, starting at p * gpus_per_process.
struct World {
  int process = 0;           // index of this process; launchers call it the rank
  int processes = 1;         // number of processes; launchers call it the size
  int local_process = 0;     // index among the processes of this host
  int gpus_per_process = 1;  // number of GPUs of each process, each with one thread and one rank
  int emulated_nodes = 0;    // 0: no emulation, each host is a node
  int ranks_per_gpu = 1;     // number of consecutive processes of a host that share a GPU

  // The emulated node of a process; 0 without emulation.
  int NodeOf(int each) const {
    return static_cast<int>(int64_t{each} * emulated_nodes / processes);
  }
  int ranks() const { return processes * gpus_per_process; }
  int first_rank() const { return process * gpus_per_process; }
};

struct GpuInfo {
  int rank = 0;
  std::string name;
  // A hash that identifies the host; empty if unknown. The host name itself is never reported.
  std::string host_hash;
};

// The description of the backend in the answer to a `hello` request. docs/design/bench.md shows an
// example.
struct BackendInfo {
  std::string backend;       // "nccl"
  std::string nccl_version;  // such as "2.28.9"; must be the same in all processes
  std::string nccl_path;     // empty: no library was opened
  std::string nccl_from;     // source of the library: "flag", "torch" or "system"
  // The newest CUDA version that the driver supports, such as "13.0"; empty if unknown.
  std::string driver;
  std::string tuner_path;
  int tuner_control = 0;    // NCCLTUNE_TUNER_CONTROL_VERSION of the plugin
  int tuner_interface = 0;  // version of NCCL's tuner interface in use; 0: unknown so far
  int nodes = 1;
  int ranks = 1;
  std::vector<GpuInfo> gpus;  // GPUs of this process, in rank order
  std::vector<Collective> collectives;
  std::vector<Dtype> dtypes;
  std::vector<Redop> redops;
  bool registered = false;
  bool graph = false;
  bool group_calls = false;
  bool load = false;
  bool chunk = false;
};

struct OpenError {
  enum class Kind {
    kCannotRun,  // no GPU, no library, or NCCL is too old: exit status 3
    kBadInput,   // an option or an input file cannot be used: exit status 2
    kFailed,     // NCCL or CUDA failed: exit status 4
  };
  Kind kind = Kind::kCannotRun;
  std::string text;  // such as "no GPU: libcuda.so.1 could not be opened"
  std::string hint;  // how to fix it; may be empty
  int rank = -1;
};

// Runs the steps of all ranks of one process. One thread calls Open, Run, Table and Close. Every
// process makes the same calls in the same order.
class Backend {
 public:
  virtual ~Backend() = default;

  // Opens the libraries and creates the communicator. Before the communicator is created, all
  // processes report over `exchange` whether they can take part. Otherwise a process without a GPU
  // would leave the others waiting in ncclCommInitRank. `exchange` must outlive the backend.
  // Returns an error if the run must end.
  virtual std::optional<OpenError> Open(const World& world, ProcessExchange* exchange,
                                        BackendInfo* info) = 0;

  // Runs the step on all ranks of this process and blocks until they are done. If one process
  // cannot take part, every process must learn this before the collective is launched, and return
  // an error.
  virtual StepResult Run(const Step& step) = 0;

  // Returns NCCL's predictions for the call that the step describes. Ignores the step's choice,
  // warm-up and iterations.
  virtual TableResult Table(const Step& step) = 0;

  // Releases the communicator and the libraries. Not called after Abort.
  virtual void Close() = 0;

  // Makes a blocked call of another thread return soon; the NCCL backend uses ncclCommAbort. Called
  // at most once, at any time. Abort may block too; then the process exits by force a few seconds
  // later.
  virtual void Abort() noexcept = 0;
};

struct NcclOptions {
  std::string nccl_path;   // from --nccl; empty: PyTorch's library, else the system's library
  std::string tuner_path;  // absolute path of our plugin
  // Time limit for creating the communicator.
  std::chrono::milliseconds start_limit{std::chrono::minutes(2)};
};

// Creates the NCCL backend. No library is opened before Backend::Open is called.
std::unique_ptr<Backend> MakeNcclBackend(const NcclOptions& options);

}  // namespace nccltune::bench
