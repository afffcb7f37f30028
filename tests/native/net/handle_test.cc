// SPDX-License-Identifier: Apache-2.0
#include "net/wire.h"
#include "testing.h"

namespace nccltune::net {
namespace {

using Bytes = std::array<std::byte, kHandleBytes>;

SocketEndpoint End(const std::string& address, uint16_t port) {
  SocketEndpoint end;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&end.storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&end.storage);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr), 1) << address;
    v6->sin6_family = AF_INET6;
  }
  end.set_port(port);
  return end;
}

Invitation WithEnds(size_t count, const std::string& prefix) {
  Invitation invitation;
  for (size_t i = 0; i < invitation.token.size(); ++i) {
    invitation.token[i] = std::byte(i + 100);
  }
  for (size_t i = 1; i <= count; ++i) {
    invitation.ends.push_back(End(prefix + std::to_string(i), static_cast<uint16_t>(40'000 + i)));
  }
  return invitation;
}

Bytes Written(const Invitation& invitation) {
  std::array<std::byte, kHandleBytes + 64> memory;
  memory.fill(std::byte{0xee});
  const auto handle = std::span(memory).first<kHandleBytes>();
  WriteHandle(invitation, handle);
  SetAttempt(handle, 0);
  EXPECT_TRUE(std::all_of(memory.begin() + kHandleBytes, memory.end(), [](std::byte byte) {
    return byte == std::byte{0xee};
  })) << "written behind the handle";
  Bytes bytes;
  std::ranges::copy(handle, bytes.begin());
  return bytes;
}

std::optional<Invitation> ReadWith(Bytes bytes, size_t at, int value) {
  bytes[at] = std::byte(value);
  return ReadHandle(bytes);
}

void ExpectComesBack(const Invitation& invitation, size_t most) {
  Bytes bytes = Written(invitation);
  const std::optional<Invitation> read = ReadHandle(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->release, kWireRelease);
  EXPECT_TRUE(SameToken(read->token, invitation.token));
  ASSERT_EQ(read->ends.size(), std::min(most, invitation.ends.size()));
  for (size_t i = 0; i < read->ends.size(); ++i) {
    EXPECT_EQ(read->ends[i].Name(), invitation.ends[i].Name());
  }
  EXPECT_EQ(AttemptOf(bytes), 0U);
}

TEST(HandleTest, AnInvitationComesBackWithAllAddressesThatFit) {
  for (size_t count = 1; count <= kMostAddressesV4 + 3; ++count) {
    ExpectComesBack(WithEnds(count, "10.1.2."), kMostAddressesV4);
  }
  for (size_t count = 1; count <= kMostAddressesV6 + 3; ++count) {
    ExpectComesBack(WithEnds(count, "2001:db8::"), kMostAddressesV6);
  }
}

// Other releases and hosts with the other byte order must read the same bytes.
TEST(HandleTest, IsTheSameBytesOnEveryHost) {
  Invitation invitation = WithEnds(1, "10.1.2.");
  invitation.release = 0x0102;
  Bytes bytes = Written(invitation);
  SetAttempt(bytes, 0x8877665544332211U);
  std::array<uint8_t, kHandleBytes> expected = {'N', 'T', 'n', 'H', 0x02, 0x01, 4, 1};
  for (size_t i = 0; i < 16; ++i) expected[8 + i] = static_cast<uint8_t>(100 + i);
  const std::array<uint8_t, 6> end = {40'001 >> 8, 40'001 & 0xff, 10, 1, 2, 1};
  std::ranges::copy(end, expected.begin() + 24);
  for (size_t i = 0; i < 8; ++i) expected[120 + i] = static_cast<uint8_t>(0x11 * (i + 1));
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::to_integer<uint8_t>(bytes[i]), expected[i]) << "byte " << i;
  }
}

TEST(HandleTest, TheConnectorsNumberIsBesideAllAddresses) {
  for (const Invitation& invitation :
       {WithEnds(kMostAddressesV4, "10.1.2."), WithEnds(kMostAddressesV6, "2001:db8::")}) {
    Bytes bytes = Written(invitation);
    SetAttempt(bytes, 0x8877665544332211U);
    EXPECT_EQ(AttemptOf(bytes), 0x8877665544332211U);
    const std::optional<Invitation> read = ReadHandle(bytes);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->ends.back().Name(), invitation.ends.back().Name());
  }
}

TEST(HandleTest, AnotherMagicIsNotOurs) {
  const Bytes good = Written(WithEnds(2, "10.1.2."));
  for (size_t at = 0; at < 4; ++at) {
    EXPECT_FALSE(ReadWith(good, at, std::to_integer<int>(good[at]) ^ 1).has_value());
  }
  Bytes zero = {};
  EXPECT_FALSE(ReadHandle(zero).has_value());
}

TEST(HandleTest, AnInvitationOfAnotherReleaseHasNoEnds) {
  Invitation invitation = WithEnds(2, "10.1.2.");
  for (const uint16_t release : {uint16_t{0}, uint16_t{kWireRelease + 1}, uint16_t{UINT16_MAX}}) {
    invitation.release = release;
    Bytes bytes = Written(invitation);
    bytes[6] = std::byte{99};  // any value of another release
    const std::optional<Invitation> read = ReadHandle(bytes);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->release, release);
    EXPECT_TRUE(read->ends.empty());
  }
}

TEST(HandleTest, AnUnknownFamilyIsRefused) {
  const Bytes good = Written(WithEnds(2, "10.1.2."));
  for (int family = 0; family < 256; ++family) {
    if (family == 4 || family == 6) continue;
    EXPECT_FALSE(ReadWith(good, 6, family).has_value()) << family;
  }
}

TEST(HandleTest, NoAddressAndMoreThanFitAreRefused) {
  const Bytes v4 = Written(WithEnds(kMostAddressesV4, "10.1.2."));
  const Bytes v6 = Written(WithEnds(kMostAddressesV6, "2001:db8::"));
  for (int count = 0; count < 256; ++count) {
    const auto n = static_cast<size_t>(count);
    EXPECT_EQ(ReadWith(v4, 7, count).has_value(), n >= 1 && n <= kMostAddressesV4) << count;
    EXPECT_EQ(ReadWith(v6, 7, count).has_value(), n >= 1 && n <= kMostAddressesV6) << count;
  }
}

TEST(HandleTest, APortOfZeroIsRefused) {
  Invitation invitation = WithEnds(3, "10.1.2.");
  invitation.ends[1].set_port(0);
  Bytes bytes = Written(invitation);
  EXPECT_FALSE(ReadHandle(bytes).has_value());
}

}  // namespace
}  // namespace nccltune::net
