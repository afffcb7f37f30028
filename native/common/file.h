// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>

namespace nccltune {

// Reads a whole regular file of at most `largest` bytes. Returns false and sets `*error` (such as
// "is a directory", without the path) if the file is larger, is no regular file or cannot be read.
// Never blocks on a pipe or a device. A file that changes while it is read is read again, for at
// most 0.1 s. (A writer that pauses cannot be noticed.)
bool ReadFile(const std::string& path, size_t largest, std::string* content, std::string* error);

// Removes the regular files of a folder that belong to this user, whose names begin and end so,
// that nobody has written for `seconds`, and that are not in use. Opens each of them.
void RemoveOldFiles(const std::string& folder, std::string_view begin, std::string_view end,
                    time_t seconds, const std::function<bool(int file)>& in_use);

}  // namespace nccltune
