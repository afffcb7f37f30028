// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/peers/mailbox.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "common/retry.h"
#include "common/text.h"
#include "sendrecv/peers/segment.h"

namespace nccltune::sendrecv {
namespace {

// Most datagrams that one call reads, so that a fast sender cannot keep this thread here.
constexpr int kMaxDatagrams = 256;
constexpr size_t kRoom =
    CMSG_SPACE(ChunkMessage::kMaxChunks * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred));

// The abstract address of a rank's socket. Abstract addresses have no owner: any user may bind one
// that is not in use. So the address contains the rank's token.
struct Address {
  sockaddr_un socket = {};
  socklen_t bytes = 0;

  Address(const std::string& segment, const Token& token) {
    const auto halves = std::bit_cast<std::array<uint64_t, 2>>(token);
    const std::string whole = segment + "-" + Hex64(halves[0]) + Hex64(halves[1]);
    socket.sun_family = AF_UNIX;
    // An abstract socket name begins with a zero byte. The name exists only as long as the socket.
    const size_t size = std::min(whole.size(), sizeof(socket.sun_path) - 1);
    std::memcpy(socket.sun_path + 1, whole.data(), size);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&socket); }
};

Descriptor NewSocket() {
  return Descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Makes the kernel drop datagrams of another size or to another process before they are queued.
// Without the filter such datagrams cost time, but the inbox does not accept them.
void DropForeign(const Descriptor& socket, const ProcessToken& to) {
  constexpr auto kWords = sizeof(ProcessToken) / sizeof(uint32_t);
  const auto words = std::bit_cast<std::array<uint32_t, kWords>>(to);
  std::array<sock_filter, 2 * (kWords + 1) + 2> code = {};
  constexpr auto kDrop = code.size() - 1;
  size_t at = 0;
  // Continues if the loaded value is equal.
  const auto expect = [&](const sock_filter& load, uint32_t value) {
    code[at++] = load;
    const auto skipped = static_cast<uint8_t>(kDrop - at - 1);
    code[at++] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped);
  };
  expect(BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), sizeof(ChunkMessage));
  uint32_t offset = 0;
  for (const uint32_t word : words) {
    // The load converts from network byte order.
    expect(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset), ntohl(word));
    offset += sizeof(word);
  }
  code[at++] = BPF_STMT(BPF_RET | BPF_K, sizeof(ChunkMessage));
  code[at++] = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program = {.len = static_cast<uint16_t>(code.size()), .filter = code.data()};
  setsockopt(socket.fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

void TakeDescriptors(const cmsghdr& header, std::vector<Descriptor>* all) {
  const size_t count = (header.cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (size_t i = 0; i < count; ++i) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(&header) + i * sizeof(int), sizeof(int));
    all->emplace_back(number);
  }
}

}  // namespace

std::unique_ptr<Mailbox> Mailbox::Open(Segment& segment) {
  Descriptor made = NewSocket();
  const std::optional<Token> token = NewToken();
  if (!made || !token) return nullptr;
  const int on = 1;
  const Address address(segment.name(), *token);
  if (setsockopt(made.fd(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) return nullptr;
  DropForeign(made, ThisProcess());
  if (bind(made.fd(), address.get(), address.bytes) != 0) return nullptr;
  return std::unique_ptr<Mailbox>(new Mailbox(segment, *token, std::move(made)));
}

bool Mailbox::HasPeer(size_t place) const {
  return segment_.memory().records[place].mailbox != Token{};
}

Mailbox::SendResult Mailbox::Send(size_t place, ChunkMessage datagram,
                                  const std::vector<Descriptor>& descriptors) {
  if (!HasPeer(place)) return SendResult::kGone;
  const RankRecord& record = segment_.memory().records[place];
  datagram.to = record.process;
  const Address address(segment_.name(), record.mailbox);
  const Descriptor socket = NewSocket();
  if (!socket) return SendResult::kFull;
  if (Retry([&] { return connect(socket.fd(), address.get(), address.bytes); }) != 0) {
    return SendResult::kGone;
  }
  // Every user can read the addresses of bound sockets in /proc/net/unix, and bind one after its
  // owner has ended. If the peer is still joined and alive, the socket that was connected to is the
  // peer's.
  if (record.state.load() != RankRecord::kJoined || !segment_.IsAlive(place)) {
    return SendResult::kGone;
  }
  alignas(cmsghdr) std::array<char, kRoom> control = {};
  iovec data = {.iov_base = &datagram, .iov_len = sizeof(datagram)};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  for (size_t i = 0; i < descriptors.size(); ++i) {
    const int number = descriptors[i].fd();
    std::memcpy(CMSG_DATA(header) + i * sizeof(int), &number, sizeof(int));
  }
  if (Retry([&] { return sendmsg(socket.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL); }) >= 0) {
    return SendResult::kSent;
  }
  switch (errno) {
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
    case ETOOMANYREFS:  // too many descriptors in flight
      return SendResult::kFull;
    default:
      return SendResult::kGone;
  }
}

std::optional<Mailbox::Received> Mailbox::Receive(bool* any) {
  Received received;
  alignas(cmsghdr) std::array<char, kRoom> control = {};
  iovec data = {.iov_base = &received.datagram, .iov_len = sizeof(received.datagram)};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t bytes =
      Retry([&] { return recvmsg(socket_.fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  *any = bytes >= 0;
  if (bytes < 0) return {};
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_RIGHTS) TakeDescriptors(*header, &received.descriptors);
    if (header->cmsg_type == SCM_CREDENTIALS) {
      ucred from = {};
      std::memcpy(&from, CMSG_DATA(header), sizeof(from));
      received.user = from.uid;
    }
  }
  if (bytes != sizeof(received.datagram) || (message.msg_flags & MSG_TRUNC) != 0) return {};
  return received;
}

Inbox::~Inbox() {
  for (const auto& [key, delivery] : deliveries_) Release(delivery);
}

void Inbox::Release(const ReceivedChunks& delivery) const {
  for (const ChunkMemory& chunk : delivery.chunks) importer_.Release(chunk.memory);
}

bool Inbox::ReadAll() {
  for (int i = 0; i < kMaxDatagrams; ++i) {
    bool any = false;
    const std::optional<Mailbox::Received> received = mailbox_.Receive(&any);
    if (!any) return true;
    if (received) Accept(*received);
  }
  return false;
}

void Inbox::Accept(const Mailbox::Received& received) {
  const ChunkMessage& datagram = received.datagram;
  if (datagram.place >= kMaxLocalRanks || received.user != getuid()) return;
  // The token proves the sender: it is in the sender's record, which only this user can read.
  // A process id would not prove the sender, because process ids are not unique across PID
  // namespaces.
  if (memory_.records[datagram.place].process != datagram.process) return;
  ReceivedChunks& delivery = deliveries_[{datagram.place, datagram.number}];
  if (delivery.refused) return;
  const bool fits = datagram.count <= ChunkMessage::kMaxChunks &&
                    datagram.first == delivery.chunks.size() &&
                    datagram.first + datagram.count <= kMaxEntryChunks &&
                    received.descriptors.size() == datagram.count;
  for (size_t i = 0; fits && i < datagram.count; ++i) {
    const cu::Memory memory = importer_.Import(received.descriptors[i]);
    if (memory == 0) break;
    delivery.chunks.push_back({.memory = memory, .bytes = datagram.bytes[i]});
  }
  if (delivery.chunks.size() == datagram.first + datagram.count) return;
  delivery.refused = true;
  Release(delivery);
  delivery.chunks.clear();
}

const Inbox::ReceivedChunks* Inbox::Find(size_t place, uint64_t number) const {
  const auto found = deliveries_.find({place, number});
  return found == deliveries_.end() ? nullptr : &found->second;
}

void Inbox::Drop(size_t place, uint64_t number) {
  const auto found = deliveries_.find({place, number});
  if (found == deliveries_.end()) return;
  Release(found->second);
  deliveries_.erase(found);
}

void Inbox::DropUnless(size_t place, const std::function<bool(uint64_t)>& exported) {
  std::erase_if(deliveries_, [&](const auto& each) {
    if (each.first.first != place || exported(each.first.second)) return false;
    Release(each.second);
    return true;
  });
}

}  // namespace nccltune::sendrecv
