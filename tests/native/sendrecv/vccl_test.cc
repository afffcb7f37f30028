// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/vccl/vccl.h"
#include "testing.h"

namespace nccltune::sendrecv::vccl {
namespace {

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

// The table of psm_p2p.cc: the whole buffer for messages of 64 MiB and more. The chunk halves
// whenever the message size halves.
TEST(VcclChunks, HaveTheSizesOfVcclsTable) {
  VcclSettings settings;
  const std::map<uint64_t, uint64_t> mib = {{1024, 64}, {64, 64}, {32, 64}, {31, 32}, {16, 32},
                                            {15, 16},   {8, 16},  {4, 8},   {2, 4},   {1, 2}};
  for (const auto& [bytes, chunk] : mib) {
    EXPECT_EQ(ChunkBytes(settings, bytes * kMebibyte), chunk * kMebibyte) << bytes << " MiB";
  }
  EXPECT_EQ(ChunkBytes(settings, kMebibyte - 1), kMebibyte);
  EXPECT_EQ(ChunkBytes(settings, 1024), kMebibyte);
  settings.slots = 8;
  EXPECT_EQ(ChunkBytes(settings, 64 * kMebibyte), 8 * kMebibyte);
  settings.chunk_bytes = 4 * kMebibyte;
  EXPECT_EQ(ChunkBytes(settings, 64 * kMebibyte), 4 * kMebibyte);
  settings.chunk_bytes = 16 * kMebibyte;
  EXPECT_EQ(ChunkBytes(settings, 64 * kMebibyte), 8 * kMebibyte);
}

// Checks that the chunks cover all bytes once and in order on each channel, and stay within the
// channel's buffer. No slot may be reused within `slots` chunks. The chunk numbers do not depend on
// the buffer's address.
TEST(VcclChunks, CoverAMessageWithoutAGap) {
  for (const uint64_t slots : {1U, 2U, 7U}) {
    for (const uint64_t channels : {1U, 2U, 3U, 8U}) {
      const VcclSettings settings = {.channel_bytes = kMebibyte,
                                     .slots = slots,
                                     .channels = channels,
                                     .chunk_bytes = 100'000,
                                     .min_channel_bytes = 70'000};
      ChunkSequence mine(settings, 0x1000);
      ChunkSequence theirs(settings, 0x9'0000'0000);
      std::map<size_t, std::vector<uint64_t>> used;
      for (const uint64_t bytes :
           {uint64_t{1}, uint64_t{70'000}, uint64_t{140'001}, 3 * kMebibyte + 5}) {
        const std::vector<BufferChunk> chunks = mine.NextMessage(bytes);
        const std::vector<BufferChunk> others = theirs.NextMessage(bytes);
        ASSERT_EQ(chunks.size(), others.size());
        uint64_t at = 0;
        for (size_t i = 0; i < chunks.size(); ++i) {
          const BufferChunk& chunk = chunks[i];
          EXPECT_EQ(chunk.offset, at);
          EXPECT_GT(chunk.bytes, 0U);
          at += chunk.bytes;
          EXPECT_LT(chunk.channel, channels);
          const uint64_t begin = chunk.slot - 0x1000 - chunk.channel * settings.channel_bytes;
          EXPECT_LE(begin + chunk.bytes, settings.channel_bytes);
          std::vector<uint64_t>& before = used[chunk.channel];
          EXPECT_EQ(chunk.number, before.size() + 1);
          for (size_t k = 1; k < slots && k <= before.size(); ++k) {
            EXPECT_NE(before[before.size() - k], begin);
          }
          before.push_back(begin);
          EXPECT_EQ(others[i].number, chunk.number);
          EXPECT_EQ(others[i].slot - 0x9'0000'0000, chunk.slot - 0x1000);
          EXPECT_EQ(others[i].offset, chunk.offset);
          EXPECT_EQ(others[i].bytes, chunk.bytes);
        }
        EXPECT_EQ(at, bytes);
      }
    }
  }
}

// Formats each operation as `?filled0=7`, `copy500>1000+9` or `=emptied0=7`.
std::string Words(const std::vector<Operation>& operations, const SharedState& shared) {
  std::string words;
  for (const Operation& each : operations) {
    if (!words.empty()) words += ' ';
    if (each.kind == Operation::Kind::kCopy) {
      words += "copy" + std::to_string(each.from) + ">" + std::to_string(each.to) + "+" +
               std::to_string(each.bytes);
      continue;
    }
    words += each.kind == Operation::Kind::kWait ? "?" : "=";
    for (size_t i = 0; i < shared.channels.size(); ++i) {
      if (each.flag == &shared.channels[i].filled) words += "filled" + std::to_string(i);
      if (each.flag == &shared.channels[i].emptied) words += "emptied" + std::to_string(i);
    }
    words += "=" + std::to_string(each.value);
  }
  return words;
}

constexpr VcclSettings kSmall = {
    .channel_bytes = 20, .slots = 2, .channels = 2, .chunk_bytes = 9, .min_channel_bytes = 1000};

TEST(VcclChannels, ASenderWaitsForASlotThatWasUsedBefore) {
  SharedState shared;
  Channels sender(kSmall, shared, Role::kSender, 500);
  const auto first = sender.NextMessage(2000, 18);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(Words(first[0], shared), "copy2000>510+9 =filled0=1 copy2009>500+9 =filled0=2");
  EXPECT_EQ(Words(sender.NextMessage(3000, 4)[0], shared), "?emptied0=1 copy3000>510+4 =filled0=3");
  EXPECT_EQ(shared.channels[0].enqueued, 3U);
}

TEST(VcclChannels, AReceiverWaitsForEachChunk) {
  SharedState shared;
  Channels receiver(kSmall, shared, Role::kReceiver, 500);
  EXPECT_EQ(Words(receiver.NextMessage(2000, 13)[0], shared),
            "?filled0=1 copy510>2000+9 =emptied0=1 ?filled0=2 copy500>2009+4 =emptied0=2");
  EXPECT_EQ(shared.channels[0].enqueued, 2U);
}

TEST(VcclChannels, ALargeMessageUsesAllOfThem) {
  SharedState shared;
  Channels sender(kSmall, shared, Role::kSender, 0);
  EXPECT_EQ(sender.NextMessage(0, 2000).size(), 2U);
  EXPECT_GT(shared.channels[1].enqueued, 0U);
}

}  // namespace
}  // namespace nccltune::sendrecv::vccl
