// SPDX-License-Identifier: Apache-2.0
//
// Where the dynamic loader looks for a library. It can not be asked for one whose name it has
// already given to another.
#ifndef NCCLTUNE_SENDRECV_SEARCH_PATH_H_
#define NCCLTUNE_SENDRECV_SEARCH_PATH_H_

#include <string>
#include <string_view>
#include <vector>

namespace nccltune::sendrecv {

struct SearchPath {
  std::vector<std::string> files;  // that are there, in the order to try them
  std::string folders;             // looked in, with a colon between
};

// All objects in this process, in the order they came; the program itself is not one.
std::vector<std::string> LoadedPaths();

// Files of this name, without the one that is the same file as `but`: where the program and then
// the objects in this process look for theirs (RPATH, LD_LIBRARY_PATH, RUNPATH), in the loader's
// cache, in the system's folders.
SearchPath FindOnSearchPath(std::string_view name, const std::string& but);

}  // namespace nccltune::sendrecv

#endif  // NCCLTUNE_SENDRECV_SEARCH_PATH_H_
