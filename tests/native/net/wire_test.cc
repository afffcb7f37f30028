// SPDX-License-Identifier: Apache-2.0
#include "net/wire.h"
#include "net/kernel_folder.h"
#include "testing.h"

namespace nccltune::net {
namespace {

Token SomeToken() {
  Token token = {};
  for (size_t i = 0; i < token.size(); ++i) token[i] = std::byte(17 * i + 3);
  return token;
}

Hello SomeHello() {
  Hello hello;
  hello.token = SomeToken();
  hello.connection = 0x0123456789abcdefU;
  hello.flow = 3;
  hello.flows = 9;
  return hello;
}

TEST(Wire, AHelloComesBackAsItWas) {
  const Hello hello = SomeHello();
  const std::optional<Hello> read = DecodeHello(Encode(hello));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->release, kWireRelease);
  EXPECT_TRUE(SameToken(read->token, hello.token));
  EXPECT_EQ(read->connection, hello.connection);
  EXPECT_EQ(read->flow, hello.flow);
  EXPECT_EQ(read->flows, hello.flows);
}

TEST(Wire, AHelloIsLittleEndianOnEveryHost) {
  const auto bytes = Encode(SomeHello());
  EXPECT_EQ(bytes[0], std::byte{0xA1});
  EXPECT_EQ(bytes[2], std::byte{kWireRelease & 0xff});
  EXPECT_EQ(bytes[24], std::byte{0xef});
  EXPECT_EQ(bytes[31], std::byte{0x01});
}

TEST(Wire, AHelloIsRefusedWhoseFlowsDoNotFit) {
  const auto decodes = [](uint16_t flow, uint16_t flows) {
    Hello hello = SomeHello();
    hello.flow = flow;
    hello.flows = flows;
    return DecodeHello(Encode(hello)).has_value();
  };
  EXPECT_TRUE(decodes(0, 2));
  EXPECT_TRUE(decodes(1, 2));
  EXPECT_TRUE(decodes(kMostFlows - 1, kMostFlows));
  EXPECT_FALSE(decodes(0, 0));
  EXPECT_FALSE(decodes(0, 1)) << "the express flow alone";
  EXPECT_FALSE(decodes(2, 2));
  EXPECT_FALSE(decodes(UINT16_MAX, 2));
  EXPECT_FALSE(decodes(0, kMostFlows + 1));
  EXPECT_FALSE(decodes(0, UINT16_MAX));
}

TEST(Wire, OfAHelloOfAnotherReleaseOnlyReleaseAndTokenAreRead) {
  Hello hello = SomeHello();
  hello.release = kWireRelease + 1;
  hello.flow = hello.flows = 0;  // any values of another release
  auto bytes = Encode(hello);
  bytes[63] = std::byte{7};
  const std::optional<Hello> read = DecodeHello(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->release, kWireRelease + 1);
  EXPECT_TRUE(SameToken(read->token, hello.token));
  EXPECT_EQ(read->connection, 0U);
}

TEST(Wire, AWelcomeComesBackAsItWas) {
  for (const WelcomeStatus status :
       {WelcomeStatus::kTaken, WelcomeStatus::kOtherRelease, WelcomeStatus::kUnknownConnection}) {
    for (const uint16_t release : {uint16_t{0}, kWireRelease, uint16_t{UINT16_MAX}}) {
      const std::optional<Welcome> read = DecodeWelcome(Encode(Welcome{release, status}));
      ASSERT_TRUE(read.has_value());
      EXPECT_EQ(read->release, release);
      // For another release, only this status is valid.
      EXPECT_EQ(read->status, release == kWireRelease ? status : WelcomeStatus::kOtherRelease);
    }
  }
}

TEST(Wire, AWelcomeWithFewerFlowsStatesHowMany) {
  // 0 means no flow. A connection has at least two flows, and never more than requested.
  for (const int flows : {0, 1, 2, 9, kMostFlows - 1, int{kMostFlows}, int{UINT16_MAX}}) {
    const Welcome welcome = {.status = WelcomeStatus::kFewerFlows,
                             .flows = static_cast<uint16_t>(flows)};
    const std::optional<Welcome> read = DecodeWelcome(Encode(welcome));
    ASSERT_EQ(read.has_value(), flows != 1 && flows < kMostFlows) << flows;
    if (!read) continue;
    EXPECT_EQ(read->status, WelcomeStatus::kFewerFlows);
    EXPECT_EQ(read->flows, flows);
  }
  const Welcome other = {.status = WelcomeStatus::kTaken, .flows = 4};
  EXPECT_FALSE(DecodeWelcome(Encode(other)).has_value());
}

void ExpectComesBack(const DataHeader& header) {
  const std::optional<ForwardFrame> read = DecodeForwardFrame(Encode(header));
  ASSERT_TRUE(read.has_value()) << header.offset << "+" << header.length << "/" << header.total;
  EXPECT_EQ(read->type, FrameType::kData);
  EXPECT_EQ(read->data.request, header.request);
  EXPECT_EQ(read->data.offset, header.offset);
  EXPECT_EQ(read->data.total, header.total);
  EXPECT_EQ(read->data.length, header.length);
}

TEST(Wire, ADataHeaderComesBackAsItWas) {
  ExpectComesBack({.request = 0, .offset = 0, .total = 0, .length = 0});
  ExpectComesBack({.request = UINT64_MAX, .offset = 0, .total = 1, .length = 1});
  ExpectComesBack({.request = 7, .offset = 8192, .total = 8193, .length = 1});
  ExpectComesBack({.request = 7, .offset = 8192, .total = 1 << 20, .length = 16384});
  ExpectComesBack({.request = 7, .offset = 0, .total = kLongestChunk, .length = kLongestChunk});
  ExpectComesBack({.request = 7,
                   .offset = kLargestRequest - (1 << 20),
                   .total = kLargestRequest,
                   .length = 1 << 20});
}

TEST(Wire, AByeForwardComesBackAsItWas) {
  const auto bye = EncodeForwardBye();
  const std::optional<ForwardFrame> read = DecodeForwardFrame(bye);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->type, FrameType::kBye);
}

TEST(Wire, AReverseFrameComesBackAsItWas) {
  for (const FrameType type : {FrameType::kAck, FrameType::kWaiting, FrameType::kBye}) {
    for (const uint64_t value : {uint64_t{0}, uint64_t{0x0123456789abcdefU}, UINT64_MAX}) {
      const std::optional<ReverseFrame> read =
          DecodeReverseFrame(Encode(ReverseFrame{type, value}));
      ASSERT_TRUE(read.has_value());
      EXPECT_EQ(read->type, type);
      EXPECT_EQ(read->value, value);
    }
  }
}

using Bytes = std::array<std::byte, kHandleBytes>;

Invitation WithEnds(size_t count, const std::string& prefix) {
  Invitation invitation;
  for (size_t i = 0; i < invitation.token.size(); ++i) invitation.token[i] = std::byte(i + 100);
  for (size_t i = 1; i <= count; ++i) {
    invitation.ends.push_back(
        WithPort(AddressOf(prefix + std::to_string(i)), static_cast<uint16_t>(40'000 + i)));
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

TEST(Granule, IsAPowerOfTwoThatGrowsWithTheRequest) {
  uint64_t before = 0;
  for (uint64_t total = 0; total <= uint64_t{1} << 40; total = 2 * total + 1) {
    const uint64_t granule = Granule(total);
    EXPECT_TRUE(std::has_single_bit(granule)) << total;
    EXPECT_GE(granule, std::max(before, uint64_t{8 << 10})) << total;
    EXPECT_LE(granule, uint64_t{1 << 20}) << total;
    before = granule;
  }
  EXPECT_EQ(Granule(0), uint64_t{8 << 10});
  EXPECT_EQ(Granule(uint64_t{1} << 40), uint64_t{1 << 20});
}

TEST(Granule, KeepsTheMapOfARequestSmallWhileItCanGrow) {
  for (const uint64_t total : {uint64_t{32} << 20, uint64_t{100} << 20, uint64_t{4000} << 20}) {
    EXPECT_LE(total / Granule(total), 4096U) << total;
  }
}

TEST(OnGrid, TakesWhatCanBeCutAndNothingElse) {
  constexpr uint64_t kG = 8192;
  for (const uint64_t total : {uint64_t{0}, uint64_t{1}, kG - 1, kG, kG + 1, 3 * kG, 3 * kG + 5}) {
    for (uint64_t offset = 0; offset <= total + kG; offset += offset % kG == 0 ? 1 : kG - 1) {
      for (const uint64_t end :
           {offset, offset + 1, offset + kG, offset + 2 * kG, total, total + 1}) {
        if (end < offset) continue;
        const uint64_t length = end - offset;
        const bool inside = end <= total;
        const bool cut = offset % kG == 0 && (end % kG == 0 || end == total);
        const bool full = total == 0 ? offset == 0 && length == 0 : length != 0;
        EXPECT_EQ(OnGrid(total, offset, length), inside && cut && full)
            << offset << "+" << length << "/" << total;
      }
    }
  }
}

TEST(OnGrid, DoesNotWrapAround) {
  EXPECT_FALSE(OnGrid(16384, 8192, UINT64_MAX - 8191));
  EXPECT_FALSE(OnGrid(16384, UINT64_MAX - 8191, 8192));
  EXPECT_FALSE(OnGrid(16384, UINT64_MAX - 8191, 24576));
}

TEST(Arrivals, AnEmptyRequestArrivesOnce) {
  Arrivals arrivals;
  arrivals.Reset(0);
  EXPECT_TRUE(arrivals.AnyMissing(0, 0));
  arrivals.Mark(0, 0);
  EXPECT_FALSE(arrivals.AnyMissing(0, 0));
  EXPECT_EQ(arrivals.Mark(0, 0), 0U);
}

TEST(Arrivals, ResetForgetsTheRequestBefore) {
  Arrivals arrivals;
  arrivals.Reset(3 * 8192);
  EXPECT_EQ(arrivals.Mark(0, uint64_t{3} * 8192), 3U * 8192);
  arrivals.Reset(2 * 8192 + 1);
  EXPECT_TRUE(arrivals.AnyMissing(0, 8192));
  EXPECT_TRUE(arrivals.AnyMissing(16384, 1));
  EXPECT_EQ(arrivals.Mark(0, 2 * 8192 + 1), 2U * 8192 + 1);
}

// Compares one request with a map of its granules, at which chunks are cut: at random and repeated,
// until all bytes have arrived.
void ArriveAtRandom(uint64_t total, uint64_t seed) {
  std::mt19937_64 random(seed);
  Arrivals arrivals;
  arrivals.Reset(total);
  const uint64_t granule = Granule(total);
  const uint64_t granules = (total + granule - 1) / granule;
  std::vector<char> there(granules, 0);
  uint64_t missing = total;
  while (missing != 0) {
    const uint64_t first = random() % granules;
    const uint64_t count = 1 + random() % std::min<uint64_t>(granules - first, 9);
    const uint64_t offset = first * granule;
    const uint64_t length = std::min(count * granule, total - offset);
    ASSERT_TRUE(OnGrid(total, offset, length));
    uint64_t fresh = 0;
    for (uint64_t i = first; i < std::min(first + count, granules); ++i) {
      if (there[i] == 0) fresh += std::min(granule, total - i * granule);
      there[i] = 1;
    }
    ASSERT_EQ(arrivals.AnyMissing(offset, length), fresh != 0) << offset << "+" << length;
    ASSERT_EQ(arrivals.Mark(offset, length), fresh) << offset << "+" << length;
    missing -= fresh;
    ASSERT_FALSE(arrivals.AnyMissing(offset, length));
  }
  EXPECT_FALSE(arrivals.AnyMissing(0, total));
}

TEST(Arrivals, AgreeWithAMapOfEveryGranule) {
  uint64_t seed = 0;
  for (const uint64_t total :
       {1U, 8191U, 8192U, 8193U, 65536U, 100'000U, 1U << 20, (3U << 20) + 7U, (40U << 20) + 1U}) {
    SCOPED_TRACE(total);
    for (int i = 0; i < (total > (1U << 20) ? 1 : 10); ++i) ArriveAtRandom(total, ++seed);
  }
}

}  // namespace
}  // namespace nccltune::net
