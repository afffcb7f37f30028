// SPDX-License-Identifier: Apache-2.0
#include "net/kernel_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "common/descriptor.h"
#include "common/retry.h"
#include "common/text.h"

namespace nccltune::net {
namespace {

constexpr size_t kLargest = 64U << 10U;

}  // namespace

std::optional<std::string> ReadKernelFile(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return std::nullopt;
  std::string content(kLargest, '\0');
  size_t done = 0;
  while (done < kLargest) {
    const ssize_t got =
        Retry([&] { return read(file.fd(), content.data() + done, kLargest - done); });
    // Reading may fail after a successful open: the speed of an interface without a link is an
    // example.
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  while (!content.empty() && content.back() == '\n') content.pop_back();
  return content;
}

std::optional<uint64_t> ReadKernelNumber(const std::string& path) {
  const std::optional<std::string> text = ReadKernelFile(path);
  return text ? ParseUnsigned(Trimmed(*text)) : std::nullopt;
}

}  // namespace nccltune::net
