// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_SENDRECV_LOADER_CACHE_H_
#define NCCLTUNE_SENDRECV_LOADER_CACHE_H_

#include <string>
#include <string_view>
#include <vector>

namespace nccltune::sendrecv {

// Returns the files that ldconfig has recorded under a name, for any processor. Empty if the cache
// cannot be read. glibc 2.2 and later write this format; up to 2.31 it follows an older one in the
// file.
std::vector<std::string> FindInLoaderCache(const std::string& cache, std::string_view name);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_LOADER_CACHE_H_
