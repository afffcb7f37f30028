// SPDX-License-Identifier: Apache-2.0
// File descriptors of the process: their limit, the number in use, and the message when they run
// out.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "common/log.h"
#include "net/socket.h"

namespace nccltune::net {

// Raises the soft limit of RLIMIT_NOFILE to `wanted`, or to the hard limit if that is lower. Never
// lowers the limit. Returns the new limit, or 0 if nothing changed.
uint64_t RaiseDescriptorLimit(uint64_t wanted);

struct DescriptorUse {
  uint64_t limit = 0;
  uint64_t used = 0;

  uint64_t free() const { return used < limit ? limit - used : 0; }
};
// Reads the limit and counts the open descriptors. `used` is 0 if the number is unknown: the kernel
// call failed, or counting would take long (before Linux 6.2 with a high limit).
DescriptorUse ReadDescriptorUse();

// Returns how many of `wanted` descriptors one new connection or thread pool may take: a sixteenth
// of the free descriptors, at least `least` and at most `wanted`. The remaining descriptors are for
// later connections.
uint64_t DescriptorShare(uint64_t wanted, uint64_t least);

// Returns whether `error` is EMFILE or ENFILE.
bool IsDescriptorShortage(int error);

// Returns the message, such as "accept: Too many open files: 64 file descriptors are allowed and 64
// are in use; ...". `what` is the failed call. `error` is EMFILE, ENFILE, or 0 if few descriptors
// are left.
std::string ShortageText(const char* what, int error);

// Logs ShortageText: as a warning the first time in the process, at INFO later.
void ReportShortage(const Log& log, const char* what, int error) noexcept;
// Makes ReportShortage log the next shortage as a warning again. For tests.
void ForgetShortages();

// One descriptor that all acceptors of the process keep in reserve. If no other descriptor is free,
// an acceptor closes the reserved one and accepts a connection with it. Then the acceptor can
// refuse that connection with a reason.
class SpareDescriptor {
 public:
  // Returns the instance that all acceptors share.
  static std::shared_ptr<SpareDescriptor> Get();

  SpareDescriptor() { Restore(); }

  // Closes the reserved descriptor. Returns false if no descriptor is reserved.
  bool Release();
  // Reserves a descriptor again. Returns whether a descriptor is reserved now.
  bool Restore();

 private:
  std::mutex mutex_;
  Descriptor reserved_;
};

}  // namespace nccltune::net
