// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_NET_KERNEL_FILE_H_
#define NCCLTUNE_NET_KERNEL_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

namespace nccltune::net {

// Returns the content of a file of /proc or /sys without trailing newlines, at most 64 KiB.
// common/file.h cannot read such files: the kernel reports a size of 0 or 4096 for them.
std::optional<std::string> ReadKernelFile(const std::string& path);

// Returns the file's unsigned number; empty for any other content.
std::optional<uint64_t> ReadKernelNumber(const std::string& path);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_KERNEL_FILE_H_
