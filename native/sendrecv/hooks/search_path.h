// SPDX-License-Identifier: Apache-2.0
// Finds where the dynamic loader searches for a library. dlopen does not search again for a name
// that it has already resolved, such as libnccl.so.2 if this library has that name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nccltune::sendrecv {

struct SearchPath {
  std::vector<std::string> files;  // existing files, in the order to try them
  std::string folders;             // the folders that were searched, separated by colons
};

// Returns the paths of all shared objects in this process, in load order, without the program.
std::vector<std::string> LoadedPaths();

// Returns the files of this name, without the file `except`. Searches the folders of the program
// and of the loaded objects (RPATH, LD_LIBRARY_PATH, RUNPATH), the loader's cache and the system's
// folders.
SearchPath FindOnSearchPath(std::string_view name, const std::string& except);

// Returns the files that ldconfig has recorded in the file `cache` under the library name `name`,
// for any processor architecture. Returns none if `cache` cannot be read or does not have the
// format of glibc 2.2 and later. Up to glibc 2.31 an older format may precede that format in the
// file.
std::vector<std::string> FindInLoaderCache(const std::string& cache, std::string_view name);

}  // namespace nccltune::sendrecv
