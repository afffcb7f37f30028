// SPDX-License-Identifier: Apache-2.0
// Stands in for nccl/ in a build without it.
#include "bench/backend.h"

namespace nccltune::bench {

std::unique_ptr<Backend> MakeNcclBackend(const NcclOptions& /*options*/) { return nullptr; }

}  // namespace nccltune::bench
