// SPDX-License-Identifier: Apache-2.0
#include "net/kernel_stand_in.h"

#include <linux/errqueue.h>

#include "standard.h"

namespace nccltune::net {
namespace {

struct Held {
  int fd;
  uint32_t number;
  const std::byte* data;
  size_t bytes;
};

// Zero-copy sends without a report, and the number of each socket's next one.
std::mutex mutex;
std::vector<Held> held;
thread_local YieldCount* yields_of_thread = nullptr;
std::map<int, uint32_t> next_number;

void Take(int fd, const msghdr& message, ssize_t bytes) {
  const std::scoped_lock lock(mutex);
  held.push_back({fd, next_number[fd]++, static_cast<const std::byte*>(message.msg_iov[0].iov_base),
                  static_cast<size_t>(bytes)});
}

void LetGo(int fd, uint32_t first, uint32_t last) {
  const std::scoped_lock lock(mutex);
  std::erase_if(
      held, [&](const Held& each) { return each.fd == fd && each.number - first <= last - first; });
}

// The kernel reuses a descriptor's number after a close.
void Begin(int fd) {
  const std::scoped_lock lock(mutex);
  for (Held& each : held) {
    if (each.fd == fd) each.fd = -1;
  }
  next_number[fd] = 0;
}

// Handles the kernel's report in the message that was read.
void Look(int fd, msghdr* message) {
  KernelStandIn& kernel = TheKernel();
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_IP || part->cmsg_type != IP_RECVERR) continue;
    sock_extended_err error;
    std::memcpy(&error, CMSG_DATA(part), sizeof(error));
    if (error.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
    kernel.reported += error.ee_data - error.ee_info + 1;
    LetGo(fd, error.ee_info, error.ee_data);
    if (kernel.hides_copies) error.ee_code = 0;
    std::memcpy(CMSG_DATA(part), &error, sizeof(error));
  }
}

}  // namespace

YieldCount::YieldCount() { yields_of_thread = this; }
YieldCount::~YieldCount() { yields_of_thread = nullptr; }

void CountYield() {
  if (yields_of_thread != nullptr) ++yields_of_thread->value_;
}

KernelStandIn& TheKernel() {
  static KernelStandIn kernel;
  return kernel;
}

void ResetKernel() {
  KernelStandIn& kernel = TheKernel();
  kernel.hides_copies = false;
  kernel.holds_reports = false;
  kernel.option_error = 0;
  kernel.send_error = 0;
  kernel.refuses_each = 1;
  kernel.asked = 0;
  kernel.taken = 0;
  kernel.reported = 0;
  kernel.looks = 0;
  kernel.not_there = 0;
  kernel.blocked = 0;
  const std::scoped_lock lock(mutex);
  held.clear();
  next_number.clear();
}

bool KernelHolds(const void* data, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  const std::scoped_lock lock(mutex);
  return std::ranges::any_of(held, [&](const Held& each) {
    return each.data < begin + bytes && begin < each.data + each.bytes;
  });
}

}  // namespace nccltune::net

using nccltune::net::TheKernel;

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names.
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
int __real_setsockopt(int fd, int level, int option, const void* value, socklen_t length);
int __real_sched_yield();

int __wrap_sched_yield() {
  nccltune::net::CountYield();
  return __real_sched_yield();
}

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  if ((flags & MSG_ZEROCOPY) == 0) {
    const ssize_t sent = __real_sendmsg(fd, message, flags);
    if (sent < 0 && errno == EAGAIN) {
      ++TheKernel().blocked;
      errno = EAGAIN;
    }
    return sent;
  }
  const int error = TheKernel().send_error;
  if (++TheKernel().asked % TheKernel().refuses_each == 0 && error != 0) {
    errno = error;
    return -1;
  }
  const ssize_t sent = __real_sendmsg(fd, message, flags);
  if (sent > 0) {
    ++TheKernel().taken;
    nccltune::net::Take(fd, *message, sent);
  }
  return sent;
}

ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  if ((flags & MSG_ERRQUEUE) == 0) return __real_recvmsg(fd, message, flags);
  ++TheKernel().looks;
  if (TheKernel().holds_reports) {
    errno = EAGAIN;
    return -1;
  }
  const ssize_t got = __real_recvmsg(fd, message, flags);
  if (got >= 0) {
    nccltune::net::Look(fd, message);
  } else if (errno == EAGAIN) {
    ++TheKernel().not_there;
    errno = EAGAIN;
  }
  return got;
}

int __wrap_setsockopt(int fd, int level, int option, const void* value, socklen_t length) {
  const int error = TheKernel().option_error;
  if (level == SOL_SOCKET && option == SO_ZEROCOPY && error != 0) {
    errno = error;
    return -1;
  }
  if (level == SOL_SOCKET && option == SO_ZEROCOPY) nccltune::net::Begin(fd);
  return __real_setsockopt(fd, level, option, value, length);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

}  // extern "C"
