// SPDX-License-Identifier: Apache-2.0
//
// The interface of the backends that run steps: NCCL on GPUs (nccl/) or a recording (replay/).
#ifndef NCCLTUNE_BENCH_BACKEND_H_
#define NCCLTUNE_BENCH_BACKEND_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/exchange.h"
#include "bench/step.h"
#include "bench/world.h"

namespace nccltune::bench {

struct GpuInfo {
  int rank = 0;
  std::string name;
  // A hash that identifies the host; empty if unknown. The host name itself is never reported.
  std::string host_hash;
};

// The description of the backend in the answer to a `hello` request. docs/design/bench.md shows an
// example.
struct BackendInfo {
  std::string backend;       // "nccl" or "replay"
  std::string replay;        // name of the recording; empty: none
  std::string nccl_version;  // such as "2.28.9"; must be the same in all processes
  std::string nccl_path;     // empty: no library was opened
  std::string nccl_from;     // source of the library: "flag", "torch", "system" or "recording"
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

#endif  // NCCLTUNE_BENCH_BACKEND_H_
