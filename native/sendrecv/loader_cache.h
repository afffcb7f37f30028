// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_SENDRECV_LOADER_CACHE_H_
#define NCCLTUNE_SENDRECV_LOADER_CACHE_H_

#include <string>
#include <string_view>
#include <vector>

namespace nccltune::sendrecv {

// The files that ldconfig has noted under a name, for any processor; none where the cache cannot
// be read. glibc 2.2 and later write this format, behind an older one up to 2.31.
std::vector<std::string> FindInLoaderCache(const std::string& cache, std::string_view name);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_LOADER_CACHE_H_
