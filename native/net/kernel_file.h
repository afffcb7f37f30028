// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_NET_KERNEL_FILE_H_
#define NCCLTUNE_NET_KERNEL_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

namespace nccltune::net {

// Returns the content of a file of /proc or /sys without trailing newlines, at most 64 KiB. Returns
// nothing if reading fails. ReadFile of common/file.h trusts the size that the kernel reports,
// which is 0 or 4096 for such files, so it does not suit them.
std::optional<std::string> ReadKernelFile(const std::string& path);

// Returns the number in the file. Returns nothing if reading fails or the content is not an
// unsigned number.
std::optional<uint64_t> ReadKernelNumber(const std::string& path);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_KERNEL_FILE_H_
