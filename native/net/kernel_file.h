// SPDX-License-Identifier: Apache-2.0
#ifndef NCCLTUNE_NET_KERNEL_FILE_H_
#define NCCLTUNE_NET_KERNEL_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

namespace nccltune::net {

// What a file of /proc or /sys says, without the line end at its end. The kernel gives such files
// a size of 0 or 4096 whatever is in them, so that common/file.h cannot read them. At most 64 KiB.
std::optional<std::string> ReadKernelFile(const std::string& path);

// One whole number; empty for anything else.
std::optional<uint64_t> ReadKernelNumber(const std::string& path);

}  // namespace nccltune::net

#endif  // NCCLTUNE_NET_KERNEL_FILE_H_
