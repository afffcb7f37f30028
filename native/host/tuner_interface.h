// SPDX-License-Identifier: Apache-2.0
// Calls any version of NCCL's tuner plugin interface through one common class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "abi/tuner.h"
#include "common/shared_library.h"
#include "host/cost_table.h"
#include "host/nccl_rules.h"

namespace nccltune::host {

inline constexpr int kOldestInterface = 2;
inline constexpr int kNewestInterface = 7;

struct InitCall {
  uint64_t communicator_id = 0;
  size_t ranks = 0;
  size_t nodes = 0;
  abi::LogFunction log = nullptr;
  abi::NvlDomainInfoV5* nvl_domains = nullptr;
  void* constants = nullptr;  // a TunerConstantsV5 for v5 and v6, a TunerConstantsV7 for v7
};

struct CollInfoCall {
  abi::TunedCollective collective = abi::kAllReduce;
  size_t bytes = 0;
  int pipe_ops = 1;
  bool registered = false;
  float** table = nullptr;  // contiguous float[algorithms][kNumProtocols]
  int algorithms = abi::kNumAlgorithms;
  int* channels = nullptr;
  // Used only with interface v2, which has no table: the flags that NCCL derives from the table,
  // and pointers to the result.
  int collnet_support = 0;
  int nvls_support = 0;
  int* algorithm = nullptr;
  int* protocol = nullptr;
};

struct ChunkCall {
  abi::TunedCollective collective = abi::kAllReduce;
  size_t bytes = 0;
  Combination combination;
  int channels = 1;
  size_t* chunk_bytes = nullptr;
};

// The plugin's function table of one version. The functions return what the plugin returned: an
// abi::Result or any other number.
class TunerInterface {
 public:
  virtual ~TunerInterface() = default;

  virtual int version() const = 0;
  virtual const char* name() const = 0;  // null if the plugin sets none
  // Returns the name of the first mandatory member that the plugin left null; empty if there is
  // none.
  virtual std::string MissingMember() const = 0;
  // Returns the size of the constants that init takes; 0 if it takes none.
  virtual size_t constants_size() const = 0;

  virtual int Init(const InitCall& call, void** context) const = 0;
  virtual int GetCollInfo(void* context, const CollInfoCall& call) const = 0;
  virtual bool has_chunk_size() const = 0;
  virtual int GetChunkSize(void* context, const ChunkCall& call) const = 0;
  virtual int Finalize(void* context) const = 0;
};

// Returns a symbol name such as "ncclTunerPlugin_v5".
std::string TunerSymbolName(int version);

// Wraps the function table exported under that version's symbol. Returns null for a version outside
// kOldestInterface to kNewestInterface.
std::unique_ptr<TunerInterface> WrapTuner(int version, const void* symbol);

// Returns the struct that a plugin exports for that interface version, or null.
const void* FindTuner(const SharedLibrary& plugin, int version);

// Returns the exported interface versions, newest first. The list may contain v1, which no NCCL
// since 2.21 looks up.
std::vector<int> InterfacesOf(const SharedLibrary& plugin);

}  // namespace nccltune::host
