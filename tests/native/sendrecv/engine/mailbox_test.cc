// SPDX-License-Identifier: Apache-2.0
// Sockets of other users that have, or had, the address of a rank's mailbox.
#include "sendrecv/peers/mailbox.h"

#include <sys/un.h>

#include "sendrecv/engine/sharing.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

// A socket with an abstract address, as another user of the machine can bind.
class ForeignSocket {
 public:
  ForeignSocket() : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}

  bool Bind(const std::string& name) const {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const size_t bytes = offsetof(sockaddr_un, sun_path) + 1 + name.size();
    return bind(socket_.fd(), reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(bytes)) == 0;
  }
  bool HasReceived() const {
    std::array<char, sizeof(ChunkMessage)> data = {};
    return recv(socket_.fd(), data.data(), data.size(), 0) >= 0 || errno != EAGAIN;
  }

 private:
  Descriptor socket_;
};

// Returns the abstract addresses of a segment's mailboxes, as every user of the machine sees them.
std::vector<std::string> VisibleAddresses(const std::string& segment) {
  std::vector<std::string> names;
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find("@" + segment);
    if (at != std::string::npos) names.push_back(line.substr(at + 1));
  }
  return names;
}

// Sends a datagram with one descriptor to the socket with this abstract address.
bool SendTo(const std::string& name, const ChunkMessage& datagram,
            const std::vector<Descriptor>& descriptors) {
  const Descriptor socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  iovec data = {.iov_base = const_cast<ChunkMessage*>(&datagram), .iov_len = sizeof(datagram)};
  msghdr message = {};
  message.msg_name = &address;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = descriptors[0].fd();
  std::memcpy(CMSG_DATA(header), &number, sizeof(number));
  return sendmsg(socket_.fd(), &message, 0) >= 0;
}

TEST(Mailbox, ASocketThatWasBoundBeforeTheRankJoinedGetsNothing) {
  soft::Ranks one(1);
  one.Run([](int) {
    soft::UseGpu(0);
    Side first("early", 0);
    // Every user can calculate these names from the segment's name and the place.
    const ForeignSocket foreign;
    EXPECT_TRUE(foreign.Bind(first.segment->name() + "-1"));
    soft::UseGpu(1);
    Side second("early", 1);
    second.Meet(0, ImportedMemory::Kind::kDirect);
    soft::UseGpu(0);
    const Segments memory(2, 2);
    EXPECT_EQ(first.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kPending);
    second.imported->Update(&IsQuiet);
    EXPECT_EQ(first.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kMapped);
    EXPECT_FALSE(foreign.HasReceived());
    soft::UseGpu(1);
  });
}

TEST(Mailbox, EveryMailboxHasAnAddressOfItsOwn) {
  soft::Ranks one(1);
  one.Run([](int) {
    soft::UseGpu(0);
    const Side side("own", 0);
    side.segment->Unlink();
    const std::unique_ptr<Mailbox> other = Mailbox::Open(*side.segment);
    ASSERT_NE(other, nullptr);
    EXPECT_NE(other->token(), side.mailbox->token());
    EXPECT_NE(other->token(), Token{});
    EXPECT_EQ(VisibleAddresses(side.segment->name()).size(), 2U);
  });
}

TEST(Mailbox, NothingIsSentToARankWithoutAMailbox) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        const Segments memory(2, 2);
        const size_t before = OpenDescriptors();
        side.record(1).mailbox = {};
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kUnshareable);
        EXPECT_EQ(side.mailbox->Send(1, {}, {}), Mailbox::SendResult::kGone);
        EXPECT_TRUE(std::ranges::all_of(
            side.record(0).exports, [](const ExportEntry& entry) { return entry.number == 0; }));
        EXPECT_EQ(OpenDescriptors(), before);
        pair.Meet();
      },
      [&](Side&) { pair.Meet(); });
}

// Every user sees the address, and a user who can read the record also knows the sender's token.
TEST(Mailbox, ADatagramOfAnotherUserIsNotAccepted) {
  if (getuid() != 0) GTEST_SKIP() << "only root can send as another user";
  soft::Ranks one(1);
  one.Run([](int) {
    soft::UseGpu(0);
    Side side("user", 0);
    side.segment->Unlink();
    const auto send = [&](uint64_t number, bool as_other) {
      const ChunkMessage datagram = {.to = ThisProcess(),
                                     .process = ThisProcess(),
                                     .place = 0,
                                     .number = number,
                                     .first = 0,
                                     .count = 1};
      const pid_t child = fork();
      if (child == 0) {
        if (as_other && setresuid(65534, 65534, 65534) != 0) _exit(1);
        std::vector<Descriptor> descriptors;
        descriptors.emplace_back(dup(0));
        const bool sent = SendTo(VisibleAddresses(side.segment->name())[0], datagram, descriptors);
        _exit(sent ? 0 : 2);
      }
      int status = -1;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
      EXPECT_TRUE(side.inbox->ReadAll());
      return side.inbox->Find(0, number) != nullptr;
    };
    EXPECT_TRUE(send(7, false));
    EXPECT_FALSE(send(8, true));
  });
}

// Every user sees the address, but not the token of the receiver's process.
TEST(Mailbox, DatagramsWithoutTheReceiversTokenDoNotFillIt) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        const Segments memory(2, 2);
        std::vector<Descriptor> descriptors;
        descriptors.emplace_back(dup(0));
        ChunkMessage junk = {.process = ThisProcess(), .place = 0, .number = 1, .count = 1};
        junk.to = {.low = side.record(1).process.low, .high = 1};
        // More than a socket holds: SendTo would wait for the receiver.
        for (const std::string& address : VisibleAddresses(side.segment->name())) {
          for (int i = 0; i < 5000; ++i) ASSERT_TRUE(SendTo(address, junk, descriptors));
        }
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kPending);
        pair.Meet();
        pair.Meet();
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kMapped);
      },
      [&](Side& side) {
        pair.Meet();
        side.imported->Update(&IsQuiet);
        pair.Meet();
      });
}

// Another user reads the address of a mailbox and binds it as soon as it is free.
void ExpectNothingForTheNextOwner(bool killed) {
  Pair pair;
  pair.Run(
      [&](Side& side) {
        std::vector<std::string> addresses = VisibleAddresses(side.segment->name());
        EXPECT_EQ(addresses.size(), 2U);
        pair.Meet();
        const ForeignSocket foreign;
        EXPECT_TRUE(soft::Soon([&] {
          return std::ranges::any_of(addresses,
                                     [&](const std::string& name) { return foreign.Bind(name); });
        }));
        const Segments memory(2, 2);
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kPending);
        EXPECT_FALSE(foreign.HasReceived());
        EXPECT_EQ(side.Ask(memory.at(), 2 * kChunk, 1), ExportStatus::kRefused);
      },
      [&](Side&) {
        pair.Meet();
        if (killed) raise(SIGKILL);
      },
      killed ? 1 : -1);
}

TEST(Mailbox, TheNextOwnerOfAnEndedRanksAddressGetsNothing) { ExpectNothingForTheNextOwner(true); }

TEST(Mailbox, TheNextOwnerOfAnAddressThatARankHasLeftGetsNothing) {
  ExpectNothingForTheNextOwner(false);
}

}  // namespace
}  // namespace nccltune::sendrecv
