// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/fifo.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// The table of psm_p2p.cc: 64 MiB from 64 MiB on, and by sizes that halve a part that halves.
TEST(FifoTest, ChunksAsVcclHasThem) {
  FifoSettings settings;
  const std::map<uint64_t, uint64_t> mib = {{1024, 64}, {64, 64}, {32, 64}, {31, 32}, {16, 32},
                                            {15, 16},   {8, 16},  {4, 8},   {2, 4},   {1, 2}};
  for (const auto& [bytes, chunk] : mib) {
    EXPECT_EQ(ChunkOf(settings, bytes * kMiB), chunk * kMiB) << bytes << " MiB";
  }
  EXPECT_EQ(ChunkOf(settings, kMiB - 1), kMiB);
  EXPECT_EQ(ChunkOf(settings, 1024), kMiB);
  settings.steps = 8;
  EXPECT_EQ(ChunkOf(settings, 64 * kMiB), 8 * kMiB);
  settings.chunk = 4 * kMiB;
  EXPECT_EQ(ChunkOf(settings, 64 * kMiB), 4 * kMiB);
  settings.chunk = 16 * kMiB;
  EXPECT_EQ(ChunkOf(settings, 64 * kMiB), 8 * kMiB);
}

// All bytes once and in order on each channel, within the channel's buffer, no slot of the last
// `steps` chunks twice, and the same numbers wherever the buffer is seen.
TEST(FifoTest, MessagesAreCutWithoutAGap) {
  for (const uint64_t steps : {1U, 2U, 7U}) {
    for (const uint64_t channels : {1U, 2U, 3U, 8U}) {
      const FifoSettings settings = {
          .buffer = kMiB, .steps = steps, .channels = channels, .chunk = 100'000, .least = 70'000};
      Fifo mine(settings, 0x1000);
      Fifo theirs(settings, 0x9'0000'0000);
      std::map<size_t, std::vector<uint64_t>> used;
      for (const uint64_t bytes :
           {uint64_t{1}, uint64_t{70'000}, uint64_t{140'001}, 3 * kMiB + 5}) {
        const std::vector<Fifo::Chunk> chunks = mine.Take(bytes);
        const std::vector<Fifo::Chunk> others = theirs.Take(bytes);
        ASSERT_EQ(chunks.size(), others.size());
        uint64_t at = 0;
        for (size_t i = 0; i < chunks.size(); ++i) {
          const Fifo::Chunk& chunk = chunks[i];
          EXPECT_EQ(chunk.offset, at);
          EXPECT_GT(chunk.bytes, 0U);
          at += chunk.bytes;
          EXPECT_LT(chunk.channel, channels);
          const uint64_t begin = chunk.at - 0x1000 - chunk.channel * settings.buffer;
          EXPECT_LE(begin + chunk.bytes, settings.buffer);
          std::vector<uint64_t>& before = used[chunk.channel];
          EXPECT_EQ(chunk.number, before.size() + 1);
          for (size_t k = 1; k < steps && k <= before.size(); ++k) {
            EXPECT_NE(before[before.size() - k], begin);
          }
          before.push_back(begin);
          EXPECT_EQ(others[i].number, chunk.number);
          EXPECT_EQ(others[i].at - 0x9'0000'0000, chunk.at - 0x1000);
          EXPECT_EQ(others[i].offset, chunk.offset);
          EXPECT_EQ(others[i].bytes, chunk.bytes);
        }
        EXPECT_EQ(at, bytes);
      }
    }
  }
}

}  // namespace
}  // namespace nccltune::sendrecv
