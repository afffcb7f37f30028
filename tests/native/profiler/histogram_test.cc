// SPDX-License-Identifier: Apache-2.0
#include "profiler/histogram.h"
#include "testing.h"

namespace nccltune::profiler {
namespace {

using Key = std::tuple<int, int, int, int, int, int, uint64_t>;
using Counts = std::map<Key, uint64_t>;

Key KeyOf(const Call& call) {
  return {call.flags,    call.function, call.type, call.algorithm,
          call.protocol, call.channels, call.bytes};
}

Counts ExactCounts(const Histogram& histogram) {
  Counts counts;
  histogram.ForEach([&counts](const Row& row) {
    if (!row.rounded) counts[KeyOf(row.call)] += row.count;
  });
  return counts;
}

struct Sums {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  bool operator==(const Sums&) const = default;
};

Sums AllOf(const Histogram& histogram) {
  Sums sums = {histogram.lost_calls(), histogram.lost_bytes()};
  histogram.ForEach([&sums](const Row& row) {
    sums.calls += row.count;
    sums.bytes += row.total;
  });
  return sums;
}

Call Random(std::mt19937* random, size_t sizes) {
  const auto below = [random](size_t end) { return static_cast<uint8_t>((*random)() % end); };
  Call call;
  call.flags = below(2);
  call.function = below(3);
  call.channels = call.flags == 0 ? uint8_t{0} : below(2);
  call.bytes = uint64_t{(*random)() % sizes} * 4097;
  return call;
}

TEST(Histogram, ExactCountsAreThoseOfTheCalls) {
  std::mt19937 random(1);
  Histogram histogram;
  Counts expected;
  for (int i = 0; i < 20000; ++i) {
    const Call call = Random(&random, 10);
    histogram.Add(call);
    ++expected[KeyOf(call)];
  }
  EXPECT_GT(expected.size(), 80U);
  EXPECT_EQ(ExactCounts(histogram), expected);
  EXPECT_EQ(histogram.lost_calls(), 0U);
}

TEST(Histogram, EveryMemberTellsCallsApart) {
  std::vector<Call> calls(8);
  calls[0] = {1, 2, 3, 4, 5, 6, 7};
  for (size_t i = 1; i < calls.size(); ++i) calls[i] = calls[0];
  calls[1].flags = calls[2].function = calls[3].type = calls[4].algorithm = 9;
  calls[5].protocol = calls[6].channels = 255;
  calls[7].bytes = ~uint64_t{0};
  Histogram histogram;
  Counts expected;
  for (const Call& call : calls) {
    histogram.Add(call);
    ++expected[KeyOf(call)];
  }
  EXPECT_EQ(expected.size(), calls.size());
  EXPECT_EQ(ExactCounts(histogram), expected);
}

TEST(Histogram, SizesWithoutAPlaceAreRoundedDownAndNothingIsLost) {
  Histogram histogram;
  Sums expected;
  for (uint64_t bytes = 1; bytes <= 50000; ++bytes) {
    Call call;
    call.bytes = bytes;
    call.type = 3;
    histogram.Add(call);
    ++expected.calls;
    expected.bytes += bytes;
  }
  EXPECT_EQ(AllOf(histogram), expected);
  EXPECT_EQ(histogram.lost_calls(), 0U);
  size_t rounded = 0;
  histogram.ForEach([&rounded](const Row& row) {
    if (!row.rounded) return;
    ++rounded;
    EXPECT_TRUE(std::has_single_bit(row.call.bytes));
    EXPECT_EQ(row.call.type, 0);
    EXPECT_GE(row.total, row.count * row.call.bytes);
    EXPECT_LT(row.total, row.count * row.call.bytes * 2);
  });
  EXPECT_GT(rounded, 5U);
  EXPECT_GT(ExactCounts(histogram).size(), Histogram::kExactRows / 2);
}

TEST(Histogram, ALostCallIsCounted) {
  std::mt19937_64 random(1);
  Histogram histogram;
  Sums expected;
  for (int i = 0; i < 100000; ++i) {
    Call call;
    call.function = static_cast<uint8_t>(random() % 60);
    call.bytes = random() >> (random() % 40 + 24);
    histogram.Add(call);
    ++expected.calls;
    expected.bytes += call.bytes;
  }
  EXPECT_GT(histogram.lost_calls(), 0U);
  EXPECT_EQ(AllOf(histogram), expected);
  Histogram sum;
  sum.Add(histogram);
  sum.Add(histogram);
  EXPECT_EQ(AllOf(sum), (Sums{2 * expected.calls, 2 * expected.bytes}));
}

TEST(Histogram, ThreadsAddWithoutALoss) {
  Histogram histogram;
  std::array<Counts, 4> counts;
  {
    std::vector<std::jthread> threads;
    for (unsigned seed = 0; seed < counts.size(); ++seed) {
      threads.emplace_back([seed, &histogram, &counts] {
        std::mt19937 random(seed);
        for (int i = 0; i < 20000; ++i) {
          const Call call = Random(&random, 8);
          histogram.Add(call);
          ++counts.at(seed)[KeyOf(call)];
        }
      });
    }
  }
  Counts expected;
  for (const Counts& part : counts) {
    for (const auto& [key, count] : part) expected[key] += count;
  }
  EXPECT_EQ(ExactCounts(histogram), expected);
}

TEST(KnownEvents, EveryMemberTellsEventsApart) {
  std::vector<Event> events(8, {1, "a", "b", "c", "d", 1, 1});
  events[1].count = 2;
  events[2].function = events[3].type = events[4].algorithm = events[5].protocol = "other";
  events[6].flags = events[7].channels = 2;
  KnownEvents known;
  std::vector<Slot> counts(events.size());
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(known.Find(events[i]), nullptr) << i;
    known.Keep(events[i], &counts[i]);
  }
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(known.Find(events[i]), &counts[i]) << i;
}

TEST(KnownEvents, ThreadsFindTheirOwnCountsOrNone) {
  static constexpr size_t kEvents = 1000;  // far more than have an entry
  KnownEvents known;
  std::vector<Slot> counts(kEvents);
  std::atomic<int> found = 0;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned seed = 0; seed < 4; ++seed) {
      threads.emplace_back([seed, &known, &counts, &found, &wrong] {
        std::mt19937 random(seed);
        for (int i = 0; i < 20000; ++i) {
          const size_t number = random() % kEvents;
          const Event event = {.count = number * 4096, .function = "AllReduce"};
          Slot* const count = known.Find(event);
          if (count == nullptr) known.Keep(event, &counts[number]);
          if (count == nullptr) continue;
          ++found;
          if (count != &counts[number]) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(found, 4000);  // 128 of 1000 events
}

TEST(WordTable, NumbersBelongToTextsAndNotToAddresses) {
  WordTable table;
  std::string first = "AllReduce";
  const std::string second = "AllReduce";
  const uint8_t number = table.NumberOf(first.c_str());
  EXPECT_NE(number, 0);
  EXPECT_EQ(table.NumberOf(second.c_str()), number);
  first = "AllGather";  // at the same address
  const uint8_t other = table.NumberOf(first.c_str());
  EXPECT_NE(other, number);
  EXPECT_STREQ(table.Word(number), "AllReduce");
  EXPECT_STREQ(table.Word(other), "AllGather");
  EXPECT_EQ(table.NumberOf(nullptr), 0);
  EXPECT_EQ(table.NumberOf(""), 0);
}

TEST(WordTable, AFullTableHasANumberForTheRest) {
  WordTable table;
  std::vector<std::string> words;
  for (int i = 0; i < 100; ++i) words.push_back("word " + std::to_string(i));
  for (size_t i = 0; i < words.size(); ++i) {
    const uint8_t number = table.NumberOf(words[i].c_str());
    EXPECT_EQ(number, std::min<size_t>(i + 1, WordTable::kOther));
  }
  EXPECT_EQ(table.NumberOf(words[5].c_str()), 6);
  EXPECT_STREQ(table.Word(WordTable::kOther), "");
  const std::string longest(100, 'x');
  WordTable other;
  const uint8_t number = other.NumberOf(longest.c_str());
  EXPECT_EQ(other.NumberOf(std::string(longest).c_str()), number);
  EXPECT_EQ(std::string(other.Word(number)).size(), 30U);
}

TEST(WordTable, BytesOfTypes) {
  WordTable table;
  const std::vector<std::pair<const char*, int>> types = {
      {"ncclInt8", 1},        {"ncclFloat16", 2},    {"ncclBfloat16", 2}, {"ncclUint32", 4},
      {"ncclFloat8e4m3", 1},  {"ncclFloat64", 8},    {"Unknown", 1},      {"ncclFloat4e2m1", 0},
      {"ncclInt12345678", 0}, {"ncclFloat8e5m2", 1},
  };
  for (const auto& [name, bytes] : types) {
    EXPECT_EQ(table.TypeBytes(table.NumberOf(name)), bytes) << name;
  }
}

}  // namespace
}  // namespace nccltune::profiler
