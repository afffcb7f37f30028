// SPDX-License-Identifier: Apache-2.0
#include "net/zero_copy.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
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

void ZeroCopyLedger::Sent(uint64_t request, uint64_t bytes) {
  const bool begins = frames_.empty() || !frames_.back().open;
  sends_.push_back({.frame = first_frame_ + frames_.size() - (begins ? 0 : 1), .bytes = bytes});
  try {
    if (begins) frames_.push_back({.request = request});
  } catch (...) {
    sends_.pop_back();
    throw;
  }
  ++frames_.back().outstanding;
  ++outstanding_;
}

void ZeroCopyLedger::TakeBack() {
  sends_.pop_back();
  --outstanding_;
  // A frame without a send is not kept.
  if (--frames_.back().outstanding == 0 && !HasSends(first_frame_ + frames_.size() - 1)) {
    frames_.pop_back();
  }
}

// Returns whether `sends_` has a send of the last frame. Reported sends stay in `sends_` while an
// older send is not reported.
bool ZeroCopyLedger::HasSends(uint64_t frame) const {
  return !sends_.empty() && sends_.back().frame == frame;
}

void ZeroCopyLedger::Swap(ZeroCopyLedger& other) noexcept {
  std::swap(first_, other.first_);
  sends_.swap(other.sends_);
  std::swap(outstanding_, other.outstanding_);
  std::swap(first_frame_, other.first_frame_);
  frames_.swap(other.frames_);
}

bool ZeroCopyLedger::Finish() {
  if (frames_.empty() || !frames_.back().open) return true;
  frames_.back().open = false;
  if (frames_.back().outstanding != 0) return false;
  Trim();
  return true;
}

ZeroCopyLedger::Done ZeroCopyLedger::Report(uint32_t first, uint32_t last,
                                            std::vector<uint64_t>* released) {
  // Start of the range as an index into `sends_`; negative if sends of the range were removed
  // already.
  const int64_t begin = static_cast<int32_t>(first - first_);
  const int64_t end = begin + static_cast<int64_t>(last - first) + 1;
  const auto size = static_cast<int64_t>(sends_.size());
  Done done;
  for (int64_t i = std::max<int64_t>(begin, 0); i < std::min(end, size); ++i) {
    Send& send = sends_[static_cast<size_t>(i)];
    if (send.done) continue;
    send.done = true;
    --outstanding_;
    ++done.sends;
    done.bytes += send.bytes;
    Frame& frame = FrameOf(send);
    --frame.outstanding;
    if (frame.outstanding == 0 && !frame.open) released->push_back(frame.request);
  }
  Trim();
  return done;
}

std::optional<uint64_t> ZeroCopyLedger::oldest() const {
  if (frames_.empty()) return std::nullopt;
  return frames_.front().request;
}

void ZeroCopyLedger::Trim() {
  while (!sends_.empty() && sends_.front().done) {
    sends_.pop_front();
    ++first_;
  }
  while (!frames_.empty() && !frames_.front().open && frames_.front().outstanding == 0) {
    frames_.pop_front();
    ++first_frame_;
  }
}

namespace {

constexpr size_t kNoLimit = SIZE_MAX;
constexpr size_t kOfATrial = 1;
// A flow drops zero-copy if a request was held too long twice within this time. Rare events in a
// job of weeks do not count.
constexpr int64_t kHeldAgainNs = 60 * kNsPerSecond;

}  // namespace

ZeroCopyChoice::ZeroCopyChoice(ZeroCopyMode mode)
    : mode_(mode), state_(State::kOff), most_(kNoLimit) {
  if (mode == ZeroCopyMode::kAlways) state_ = State::kKept;
  if (mode == ZeroCopyMode::kAuto) {
    state_ = State::kTrial;
    most_ = kOfATrial;
  }
}

bool ZeroCopyChoice::Refuses(int error) {
  switch (error) {
    case ENOBUFS:  // optmem_max or RLIMIT_MEMLOCK is reached
    case ENOMEM:
    case EPERM:
    case EACCES:
    case EFAULT:  // device memory, whose pages cannot be pinned
    case EINVAL:
    case EOPNOTSUPP:
    case ENOPROTOOPT:  // Linux before 4.14
      return true;
    default:
      return false;
  }
}

void ZeroCopyChoice::Refused(int error, size_t outstanding) {
  // ENOBUFS means that the kernel's limit for reports or locked memory is reached. Use fewer sends
  // at a time.
  if (error == ENOBUFS && outstanding != 0) {
    most_ = std::min(most_, outstanding);
  } else {
    Drop();
  }
}

void ZeroCopyChoice::Reported(bool copied) {
  if (mode_ != ZeroCopyMode::kAuto) return;
  if (copied) {
    Drop();
  } else if (state_ == State::kTrial) {
    state_ = State::kKept;
    most_ = kNoLimit;
  }
}

void ZeroCopyChoice::HeldTooLong(int64_t now_ns) {
  if (mode_ != ZeroCopyMode::kAuto) return;
  if (held_ns_ && now_ns - *held_ns_ < kHeldAgainNs) Drop();
  held_ns_ = now_ns;
}

void ZeroCopyChoice::NewSocket() {
  if (mode_ != ZeroCopyMode::kAuto || state_ != State::kKept) return;
  state_ = State::kTrial;
  most_ = kOfATrial;
}

}  // namespace nccltune::net
