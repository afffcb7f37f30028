// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_COMMON_FILE_H_
#define NCCLTUNE_COMMON_FILE_H_

#include <cstddef>
#include <string>

namespace nccltune {

// Reads a whole regular file of at most `largest` bytes. Returns false and sets `*error` (such as
// "is a directory", without the path) if the file is larger, is no regular file or cannot be read.
// Never blocks on a pipe or a device. A file that changes while it is read is read again, for at
// most 0.1 s. (A writer that pauses cannot be noticed.)
bool ReadFile(const std::string& path, size_t largest, std::string* content, std::string* error);

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_FILE_H_
