// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_SENDRECV_LOADER_CACHE_H_
#define NCCLTUNE_SENDRECV_LOADER_CACHE_H_

#include <string>
#include <string_view>
#include <vector>

namespace nccltune::sendrecv {

// Returns the files that ldconfig has recorded in the file `cache` under the library name `name`,
// for any processor architecture. Returns none if `cache` cannot be read or does not have the
// format of glibc 2.2 and later. Up to glibc 2.31 an older format may precede that format in the
// file.
std::vector<std::string> FindInLoaderCache(const std::string& cache, std::string_view name);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_LOADER_CACHE_H_
