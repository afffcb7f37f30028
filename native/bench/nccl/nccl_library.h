// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_BENCH_NCCL_NCCL_LIBRARY_H_
#define NCCLTUNE_BENCH_NCCL_NCCL_LIBRARY_H_

#include <memory>
#include <optional>
#include <string>

#include "bench/backend.h"
#include "bench/nccl/nccl_abi.h"
#include "bench/nccl/opened_library.h"
#include "common/nccl_version.h"

namespace nccltune::bench {

// libnccl.so.2, opened.
class NcclLibrary {
 public:
  // The one at `path`; empty: the one that the PyTorch of the active Python (the `python3` that is
  // found first) brings along; without that, the system's. Null and *error if there is none, it
  // cannot be opened, or it is older than 2.21. What NCCL reads of the environment at its start has
  // to be set by then.
  static std::unique_ptr<NcclLibrary> Open(const std::string& path, OpenError* error);

  const nccl::Functions* operator->() const { return &functions_; }

  const NcclVersion& version() const { return version_; }
  std::string path() const { return library_->Path(); }
  const char* from() const { return from_; }  // "flag", "torch" or "system"

  // Nothing if the call went well, else what it was for and NCCL's words, with the communicator's
  // last error where there is one. A wrong argument leaves the communicator usable; anything else
  // is fatal.
  std::optional<StepError> Check(nccl::Result result, const char* what, int rank,
                                 nccl::Comm comm) const;
  StepError FailureOf(nccl::Result result, const char* what, int rank, nccl::Comm comm) const;

 private:
  NcclLibrary() = default;
  bool TakeFunctions(OpenError* error);

  std::unique_ptr<OpenedLibrary> library_;
  const char* from_ = "";
  nccl::Functions functions_{};
  NcclVersion version_;
};

}  // namespace nccltune::bench

#endif  // NCCLTUNE_BENCH_NCCL_NCCL_LIBRARY_H_
