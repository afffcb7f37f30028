// SPDX-License-Identifier: Apache-2.0
//
// What can run a step: NCCL on GPUs (nccl/), or a recording (replay/).
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
  std::string host_hash;  // stands for the host name, which is never told; empty: not known
};

// What `hello` says; docs/design/bench.md shows it.
struct BackendInfo {
  std::string backend;       // "nccl" or "replay"
  std::string replay;        // the recording's name; empty: none
  std::string nccl_version;  // "2.28.9"; of all processes the same, or the run does not start
  std::string nccl_path;     // empty: none was opened
  std::string nccl_from;     // "flag", "torch", "system", "recording"
  std::string driver;        // the CUDA version of the driver, "13.0"; empty: not known
  std::string tuner_path;
  int tuner_control = 0;    // NCCLTUNE_TUNER_CONTROL_VERSION of the plugin
  int tuner_interface = 0;  // 0: not known yet
  int nodes = 1;
  int ranks = 1;
  std::vector<GpuInfo> gpus;  // of this process, by rank
  std::vector<Collective> collectives;
  std::vector<Dtype> dtypes;
  std::vector<Redop> redops;
  bool registered = false;
  bool graph = false;
  bool load = false;
  bool traffic = false;
  bool chunk = false;
};

struct OpenError {
  enum class Kind {
    kCannotRun,  // no GPU, no library, too old an NCCL: exit status 3
    kBadInput,   // what it was given cannot be used: exit status 2
    kFailed,     // NCCL or CUDA failed: exit status 4
  };
  Kind kind = Kind::kCannotRun;
  std::string text;  // "no GPU: libcuda.so.1 could not be opened"
  std::string hint;  // the way out; may be empty
  int rank = -1;
};

// All of a process's ranks. Open, Run, Table and Close are called from one thread, one at a time,
// and in all processes alike.
class Backend {
 public:
  virtual ~Backend() = default;

  // Before the communicator is made, a backend agrees with the others over the exchange that all
  // can (one that cannot must not leave the others in ncclCommInitRank). `exchange` outlives the
  // backend. Error: the run ends.
  virtual std::optional<OpenError> Open(const World& world, Exchange* exchange,
                                        BackendInfo* info) = 0;

  // Blocks until the ranks of this process are done. An error of one process that keeps it from
  // taking part must be agreed upon before anything is launched, so that all return it.
  virtual StepResult Run(const Step& step) = 0;

  // NCCL's predictions for the call that the step describes (choice, warm-up and iterations aside).
  virtual TableResult Table(const Step& step) = 0;

  // The good end; not called after Abort.
  virtual void Close() = 0;

  // From another thread, at any time, once: makes a blocked call return soon (ncclCommAbort). May
  // itself block; the process ends by force a few seconds later in any case.
  virtual void Abort() noexcept = 0;
};

struct NcclOptions {
  std::string nccl_path;   // --nccl; empty: PyTorch's, else the system's
  std::string tuner_path;  // our plugin, absolute
  std::chrono::milliseconds start_limit{std::chrono::minutes(2)};  // for the communicator
};

// Opens nothing before Open.
std::unique_ptr<Backend> MakeNcclBackend(const NcclOptions& options);

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_BACKEND_H_
