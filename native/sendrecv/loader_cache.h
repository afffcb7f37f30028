// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_SENDRECV_LOADER_CACHE_H_
#define NCCLTUNE_SENDRECV_LOADER_CACHE_H_

#include <string>
#include <string_view>
#include <vector>

namespace nccltune::sendrecv {

// Returns the files that ldconfig has recorded under a name, for any processor architecture.
// Returns none if the cache file cannot be read. glibc 2.2 and later write this format. Up to glibc
// 2.31 an older format precedes it in the file.
std::vector<std::string> FindInLoaderCache(const std::string& cache, std::string_view name);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_LOADER_CACHE_H_
