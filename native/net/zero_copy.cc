// SPDX-License-Identifier: Apache-2.0
#include "net/zero_copy.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "net/clock.h"

namespace nccltune::net {
namespace {

constexpr int64_t kAwaitNs = 250 * kNsPerMs;
constexpr useconds_t kPollUs = 100;

// Enables MSG_ZEROCOPY on the socket. Returns 0 or the errno value.
int Allow(int fd) {
  int on = 1;
  socklen_t length = sizeof(on);
  if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0) return errno;
  // Read the option back: some Linux emulations accept any option and ignore it.
  if (getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, &length) != 0) return errno;
  return on == 1 ? 0 : EOPNOTSUPP;
}

struct KernelReport {
  uint32_t first = 0;
  uint32_t last = 0;
  bool copied = false;
};

std::optional<KernelReport> ReportIn(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    const bool v4 = part->cmsg_level == SOL_IP && part->cmsg_type == IP_RECVERR;
    const bool v6 = part->cmsg_level == SOL_IPV6 && part->cmsg_type == IPV6_RECVERR;
    sock_extended_err error;
    if ((!v4 && !v6) || part->cmsg_len < CMSG_LEN(sizeof(error))) continue;
    std::memcpy(&error, CMSG_DATA(part), sizeof(error));
    if (error.ee_errno != 0 || error.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
    return KernelReport{error.ee_info, error.ee_data,
                        (error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0};
  }
  return std::nullopt;
}

}  // namespace

bool KernelHasZeroCopy() {
  for (const int family : {AF_INET, AF_INET6}) {
    const Descriptor asked(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (asked) return Allow(asked.fd()) == 0;
  }
  return false;
}

std::optional<IoResult> ZeroCopy::Send(int fd, uint64_t request, std::span<const std::byte> bytes) {
  int error = allowed_ ? 0 : Allow(fd);
  if (error == 0) {
    allowed_ = true;
    iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    // Record the send first, because that allocates memory: every send that the kernel takes must
    // be in the ledger.
    ledger_.Sent(request, bytes.size());
    const ssize_t sent = sendmsg(fd, &message, MSG_ZEROCOPY | MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      ledger_.Correct(static_cast<uint64_t>(sent));
      return IoResult{static_cast<size_t>(sent), 0};
    }
    ledger_.TakeBack();
    error = sent == 0 || errno == EWOULDBLOCK || errno == EINTR ? EAGAIN : errno;
    if (!ZeroCopyChoice::Refuses(error)) return IoResult{0, error};
  }
  choice_.Refused(error, ledger_.outstanding());
  CountDrop();
  return std::nullopt;
}

bool ZeroCopy::Reports(int fd, std::vector<uint64_t>* released) {
  return Read(fd, ledger_, true, released);
}

bool ZeroCopy::Read(int fd, ZeroCopyLedger& ledger, bool up, std::vector<uint64_t>* released) {
  bool something = false;
  // Reserve memory first, so that nothing throws after a report was read. The kernel delivers each
  // report only once.
  released->reserve(released->size() + ledger.frames());
  // Stop when all sends are reported: another call would cost time.
  while (ledger.outstanding() != 0) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(sock_extended_err) + sizeof(sockaddr_in6))];
    msghdr message = {};
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    something = true;
    const std::optional<KernelReport> report = ReportIn(message);
    if (!report) continue;
    const ZeroCopyLedger::Done done = ledger.Report(report->first, report->last, released);
    // Ignore reports of a dead socket: the kernel reports "not copied" also for data that was never
    // sent.
    if (!up || done.sends == 0) continue;
    choice_.Reported(report->copied);
    if (report->copied) {
      counters_.copy_reports += done.sends;
      CountDrop();
    } else {
      counters_.uncopied_bytes += done.bytes;
    }
  }
  return something;
}

void ZeroCopy::HeldTooLong(int64_t now_ns) {
  choice_.HeldTooLong(now_ns);
  CountDrop();
}

void ZeroCopy::CountDrop() {
  if (choice_.state() != ZeroCopyChoice::State::kDropped || std::exchange(counted_, true)) return;
  ++counters_.zero_copy_drops;
}

void ZeroCopy::Disconnect(int fd) {
  sockaddr nothing = {};
  nothing.sa_family = AF_UNSPEC;
  // connect fails if the connection is closed already; then there is no queue to drop.
  (void)!connect(fd, &nothing, sizeof(nothing));
}

void ZeroCopy::Abandon(Descriptor* socket, int64_t now_ns, std::vector<uint64_t>* released) {
  released->reserve(released->size() + ledger_.frames());
  Dying& dying = dying_.emplace_back();
  dying.ledger.Swap(ledger_);
  dying.since_ns = now_ns;
  allowed_ = false;
  choice_.NewSocket();
  Read(socket->fd(), dying.ledger, false, released);
  if (dying.ledger.outstanding() != 0) {
    Disconnect(socket->fd());
    Read(socket->fd(), dying.ledger, false, released);
  }
  if (dying.ledger.outstanding() == 0) {
    dying_.pop_back();
  } else {
    dying.socket = std::move(*socket);
  }
}

bool ZeroCopy::ReadDyingReports(std::vector<uint64_t>* released) {
  size_t frames = 0;
  for (const Dying& each : dying_) frames += each.ledger.frames();
  released->reserve(released->size() + frames);
  bool something = false;
  std::erase_if(dying_, [&](Dying& one) {
    something |= Read(one.socket.fd(), one.ledger, false, released);
    return one.ledger.outstanding() == 0;
  });
  return something;
}

void ZeroCopy::AwaitDying() {
  std::vector<uint64_t> released;
  const int64_t until = NowNs() + kAwaitNs;
  while (dying() && NowNs() < until) {
    if (!ReadDyingReports(&released)) usleep(kPollUs);
  }
}

}  // namespace nccltune::net
