// SPDX-License-Identifier: Apache-2.0
#include "net/connection_stats.h"
#include "common/log.h"
#include "common/text.h"
#include "log_line.h"
#include "net/clock.h"
#include "net/connection_failure.h"
#include "net/stats_page.h"
#include "testing.h"

namespace nccltune::net {
namespace {

class ConnectionStatsTest : public testing::Test {
 protected:
  ConnectionStatsTest() { TakeLines(); }

  // Returns the line that was logged, behind its level and its flags.
  static std::string TakeOne() {
    const std::vector<LogLine> lines = TakeLogLines();
    EXPECT_EQ(lines.size(), 1U);
    if (lines.empty()) return "";
    const std::string level = lines[0].level == abi::kLogWarn ? "WARN " : "INFO ";
    return level + std::to_string(lines[0].flags) + " " + lines[0].text;
  }

  const Log log_{KeepLine, abi::kSubsysInit | abi::kSubsysNet, "NET/nccltune: "};
};

TEST_F(ConnectionStatsTest, FlowsAreCountedInTheOrderInWhichTheyAreMade) {
  ConnectionStats stats(StatsRole::kSends, log_, "eth0", "10.0.0.2:5000", 3);
  stats.NextFlow().AddTransferred(100, 1);
  stats.NextFlow().AddTransferred(200, 2);
  stats.NextFlow().AddTransferred(50, 7);
  EXPECT_EQ(stats.page().flows()[1].bytes, 100U);
  EXPECT_EQ(stats.page().flows()[2].bytes, 200U);
  EXPECT_EQ(stats.page().flows()[0].bytes, 50U) << "the express flow is the last to be made";
}

TEST_F(ConnectionStatsTest, OneLineAtTheEndReportsWhatEachFlowCarried) {
  {
    ConnectionStats stats(StatsRole::kSends, log_, "eth0", "10.0.0.2:5000", 3);
    stats.counters().requests = 12;
    stats.counters().messages = 11;
    stats.counters().bytes = 3 << 20;
    stats.counters().eager = 4;
    stats.counters().sent_twice = 3;
    stats.counters().uncopied_bytes = 1 << 20;
    FlowStats first = stats.NextFlow();
    first.AddTransferred(1 << 20, 40);
    first.SetRate(2.5e8);
    first.TookOver();
    FlowStats second = stats.NextFlow();
    second.AddTransferred(2 << 20, 50);
    second.WentDown(true);
    second.Dialled();
    FlowStats express = stats.NextFlow();
    express.WentDown(false);
    express.Dialled();
    EXPECT_TRUE(TakeLines().empty());
  }
  EXPECT_EQ(TakeOne(),
            "INFO 16 NET/nccltune: closed: sent to 10.0.0.2:5000 on eth0 3.00 MiB in 0.0 s, "
            "11 messages (4 eager), 90 chunks, 1.00 MiB without a copy, cancelled 1, sent twice 3, "
            "reconnect attempts 1; "
            "express 0 B 0.0 %, flows 1.00 MiB 33.3 % 250 MB/s taken over 1 | 2.00 MiB 66.7 % "
            "deaths 1");
}

TEST_F(ConnectionStatsTest, TheLineOfManyFlowsFitsTheLog) {
  ConnectionStats stats(StatsRole::kReceives, log_, "eth0", "10.0.0.2:5000", 65);
  for (int i = 0; i < 64; ++i) stats.NextFlow().AddTransferred(123'456'789, 1000);
  const std::string line = stats.Summary(NowNs());
  EXPECT_LE(line.size(), 700U);
  EXPECT_TRUE(Has(line, "closed: received from 10.0.0.2:5000")) << line;
  EXPECT_TRUE(Has(line, " | 118 MiB 1.6 % and ")) << line;
  EXPECT_EQ(line.substr(line.size() - 5), " more") << line;
}

TEST_F(ConnectionStatsTest, ASlowFlowIsAWarningWithItsAddressesAndRate) {
  ConnectionStats stats(StatsRole::kSends, log_, "eth0", "10.0.0.2:5000", 5);
  const std::span<FlowBlock> flows = stats.page().flows();
  flows[3].local.Set("10.0.0.1:40123");
  flows[3].peer.Set("10.0.0.2:5000");
  flows[3].retransmits = 12;
  int64_t now = 1000 * kNsPerSecond;
  stats.Tick(now);
  for (int window = 0; window < 2; ++window) {
    EXPECT_TRUE(TakeLines().empty());
    for (size_t i = 1; i < flows.size(); ++i) {
      flows[i].bytes += i == 3 ? 50'000'000 : 1'000'000'000;
      flows[i].samples += 50;
      flows[i].path_samples += 50;
    }
    now += kSlowWindowNs;
    stats.Tick(now);
  }
  EXPECT_EQ(TakeOne(),
            "WARN 17 NET/nccltune: slow flow: 10.0.0.1:40123 to 10.0.0.2:5000 on eth0 delivers "
            "10.0 MB/s, the other 3 flows 200 MB/s (median), for 10.0 s; it carries 1.6 % of the "
            "bytes, retransmits 12. The other flows carry its share. Check the network path "
            "between these two ports");
}

TEST(StatsText, HasThreeDigitsThatCount) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(1000), "1000 B");
  EXPECT_EQ(SizeText(1023), "1023 B");
  EXPECT_EQ(SizeText(1024), "1.00 KiB");
  EXPECT_EQ(SizeText(1'325'400'064), "1.23 GiB");
  EXPECT_EQ(SizeText(uint64_t{5} << 60), "5120 PiB");
  EXPECT_EQ(SpeedText(999.4), "999 B/s");
  EXPECT_EQ(SpeedText(12'340'000), "12.3 MB/s");
  EXPECT_EQ(SpeedText(999'700'000), "1.00 GB/s");
}

constexpr uint64_t kMiB = 1 << 20;

FlowWork Busy(uint64_t mib) { return {.bytes = mib * kMiB, .samples = 50, .path_samples = 48}; }

// Feeds the watch with windows; `Window` takes the work of each flow.
class Watched {
 public:
  explicit Watched(size_t flows) : watch_(flows), totals_(flows) {
    now_ns_ = 1000 * kNsPerSecond;
    EXPECT_TRUE(watch_.Due(now_ns_));
    EXPECT_TRUE(watch_.Judge(now_ns_, totals_).empty());
  }

  std::vector<SlowFlow> Window(const std::vector<FlowWork>& work, int64_t ns = kSlowWindowNs) {
    for (size_t i = 0; i < work.size(); ++i) {
      totals_[i].bytes += work[i].bytes;
      totals_[i].samples += work[i].samples;
      totals_[i].path_samples += work[i].path_samples;
    }
    EXPECT_FALSE(watch_.Due(now_ns_ + kSlowWindowNs - 1));
    now_ns_ += ns;
    EXPECT_TRUE(watch_.Due(now_ns_));
    return watch_.Judge(now_ns_, totals_);
  }

 private:
  SlowFlowWatch watch_;
  std::vector<FlowWork> totals_;
  int64_t now_ns_;
};

std::vector<FlowWork> OneSlow() { return {Busy(1000), Busy(1100), Busy(90), Busy(1000)}; }

TEST(SlowFlowWatch, ReportsAFlowWithATenthAfterTwoWindows) {
  Watched watched(4);
  EXPECT_TRUE(watched.Window(OneSlow()).empty()) << "five seconds may be somebody's burst";
  const std::vector<SlowFlow> reported = watched.Window(OneSlow());
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].which, 2U);
  EXPECT_EQ(reported[0].for_ns, 2 * kSlowWindowNs);
  EXPECT_NEAR(reported[0].bytes_per_s, 18.0 * kMiB, 1);
  EXPECT_NEAR(reported[0].others_bytes_per_s, 200.0 * kMiB, 1);
  EXPECT_NEAR(reported[0].share, 90.0 / 3190, 1e-9);
}

TEST(SlowFlowWatch, ReportsItOnceInTenMinutes) {
  Watched watched(4);
  int reported = 0;
  for (int i = 0; i < 2 + 120; ++i) reported += static_cast<int>(watched.Window(OneSlow()).size());
  EXPECT_EQ(reported, 2);
}

TEST(SlowFlowWatch, AFlowThatIsWellForAWhileBeginsAnew) {
  Watched watched(4);
  const std::vector<FlowWork> well(4, Busy(1000));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(watched.Window(OneSlow()).empty());
    EXPECT_TRUE(watched.Window(well).empty());
  }
}

TEST(SlowFlowWatch, AStalledFlowIsSlow) {
  Watched watched(2);
  watched.Window({Busy(0), Busy(500)});
  const std::vector<SlowFlow> reported = watched.Window({Busy(0), Busy(500)});
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].which, 0U);
  EXPECT_EQ(reported[0].share, 0);
}

TEST(SlowFlowWatch, WhatIsNotSlow) {
  std::vector<FlowWork> idle = OneSlow();
  // It was fast but the others left it little, or a thread was late.
  idle[2].path_samples = 29;
  std::vector<FlowWork> seldom = OneSlow();
  for (FlowWork& work : seldom) work.samples = work.path_samples = 9;
  const std::pair<const char*, std::vector<FlowWork>> cases[] = {
      {"has nothing to do", idle},
      {"a third", {Busy(900), Busy(900), Busy(300), Busy(900)}},
      {"a little load", {Busy(15), Busy(15), Busy(0), Busy(15)}},
      {"seldom looked at", seldom},
      {"no sisters", {Busy(0)}}};
  for (const auto& [what, work] : cases) {
    Watched watched(work.size());
    EXPECT_TRUE(watched.Window(work).empty()) << what;
    EXPECT_TRUE(watched.Window(work).empty()) << what;
  }
}

TEST(SlowFlowWatch, APauseOfTheConnectionShowsNothing) {
  Watched watched(4);
  EXPECT_TRUE(watched.Window(OneSlow()).empty());
  EXPECT_TRUE(watched.Window(OneSlow(), 2 * kSlowWindowNs).empty());
  EXPECT_TRUE(watched.Window(OneSlow()).empty());
  EXPECT_EQ(watched.Window(OneSlow()).size(), 1U);
}

TEST(SlowFlowWatch, HalfOfTheFlowsMayBeSlow) {
  const std::vector<FlowWork> work = {Busy(10), Busy(20), Busy(900), Busy(900), Busy(900)};
  EXPECT_TRUE(IsSlow(work, 0));
  EXPECT_TRUE(IsSlow(work, 1));
  EXPECT_FALSE(IsSlow(work, 2));
  EXPECT_EQ(MedianOfOthers(work, 0), 900 * kMiB);
}

TEST(WarningBudget, IsOneAMinuteAndCountsTheOthers) {
  WarningBudget budget;
  const int64_t now = 5 * kNsPerSecond;
  EXPECT_EQ(budget.Take(now), std::optional<uint64_t>(0));
  EXPECT_EQ(budget.Take(now), std::nullopt);
  EXPECT_EQ(budget.Take(now + 59 * kNsPerSecond), std::nullopt);
  EXPECT_EQ(budget.Take(now + 60 * kNsPerSecond), std::optional<uint64_t>(2));
  EXPECT_EQ(budget.Take(now + 120 * kNsPerSecond), std::optional<uint64_t>(0));
}

// Lowers a limit of this process for a while.
class Limited {
 public:
  Limited(__rlimit_resource resource, rlim_t most) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit limit = {most, before_.rlim_max};
    setrlimit(resource_, &limit);
  }
  ~Limited() { setrlimit(resource_, &before_); }
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_ = {};
};

std::vector<uint64_t> WordsOf(int fd) {
  std::vector<uint64_t> words(4096);
  const ssize_t bytes = pread(fd, words.data(), words.size() * 8, 0);
  words.resize(bytes < 0 ? 0 : static_cast<size_t>(bytes) / 8);
  return words;
}

TEST(StatsPage, IsWhatAnotherProgramFindsUnderItsName) {
  ASSERT_TRUE(OpenMemory(kStatsName).empty());
  StatsPage page(3);
  ASSERT_EQ(page.hidden(), "");
  const std::vector<int> found = OpenMemory(kStatsName);
  ASSERT_EQ(found.size(), 1U);
  page.connection().counters.bytes = 77;
  page.flows()[2].chunks = 5;
  std::vector<uint64_t> words = WordsOf(found[0]);
  ASSERT_EQ(words.size(), (448 + 3 * 256) / 8U);
  EXPECT_EQ(words[0], 0U) << "not complete yet";
  page.Publish();
  words = WordsOf(found[0]);
  EXPECT_EQ(std::memcmp(words.data(), "ncclstat", 8), 0);
  EXPECT_EQ(words[1], 1U);
  EXPECT_EQ(words[2], words.size() * 8);
  EXPECT_EQ(words[3], 448U);
  EXPECT_EQ(words[4], 256U);
  EXPECT_EQ(words[5], 3U);
  EXPECT_EQ(words[6], static_cast<uint64_t>(getpid()));
  EXPECT_EQ(words[(320 + 16) / 8], 77U) << "the third counter";
  EXPECT_EQ(words[(448 + 2 * 256 + 152) / 8], 5U);
}

TEST(StatsPage, IsNotInheritedAndKeepsItsSize) {
  const StatsPage page(1);
  const std::vector<int> found = OpenMemory(kStatsName);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(fcntl(found[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(ftruncate(found[0], 0), -1) << "a write would be the end of the process";
  EXPECT_EQ(fcntl(found[0], F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW),
            F_SEAL_SHRINK | F_SEAL_GROW);
}

TEST(StatsPage, GoesWithItsOwner) {
  for (int i = 0; i < 3; ++i) {
    const StatsPage one(1);
    const StatsPage two(64);
    EXPECT_EQ(OpenMemory(kStatsName).size(), 2U);
  }
  EXPECT_TRUE(OpenMemory(kStatsName).empty());
}

TEST(StatsPage, CountsUnseenWithoutADescriptorOrWhereFilesMayNotBeSoLarge) {
  const std::tuple<__rlimit_resource, rlim_t, const char*> cases[] = {
      {RLIMIT_NOFILE, 0, "memfd_create: Too many open files"},
      // A larger file would raise a signal.
      {RLIMIT_FSIZE, 100, "the limit of a file's size: File too large"}};
  for (const auto& [resource, most, why] : cases) {
    std::optional<Limited> limited(std::in_place, resource, most);
    StatsPage page(4);
    page.Publish();
    page.flows()[3].bytes += 9;
    limited.reset();
    EXPECT_EQ(page.flows()[3].bytes, 9U);
    EXPECT_EQ(page.connection().flows, 4U);
    EXPECT_EQ(page.hidden(), why);
  }
}

TEST(SharedText, IsCutAndEnded) {
  SharedText<16> text;
  EXPECT_EQ(text.Get(), "");
  text.Set("10.0.0.1:4000");
  EXPECT_EQ(text.Get(), "10.0.0.1:4000");
  text.Set(std::string(40, 'x'));
  EXPECT_EQ(text.Get(), std::string(15, 'x'));
  text.Set("y");
  EXPECT_EQ(text.Get(), "y");
}

constexpr int kOutageS = 300;

class ConnectionFailureTest : public testing::Test {
 protected:
  ConnectionFailureTest() { TakeLines(); }

  using Texts = std::vector<std::string>;
  static Texts Lines() { return TakeLines(); }

  ConnectionFailure failure_{Log(KeepLine, abi::kSubsysNet, ""), "sending to x on y", kOutageS};
};

TEST_F(ConnectionFailureTest, WarnsAtOnceWhereSomebodyWaits) {
  EXPECT_FALSE(failure_.failed());
  failure_.Set(abi::kRemoteError, "reset", true, 7);
  EXPECT_TRUE(failure_.failed());
  EXPECT_EQ(Lines(), Texts({"WARN sending to x on y failed with 7 bytes outstanding: reset"}));
  EXPECT_EQ(failure_.Refuse(), abi::kRemoteError);
  EXPECT_TRUE(Lines().empty()) << "it was logged before";
}

TEST_F(ConnectionFailureTest, WarnsOnceOfAnUnnoticedEndWhenSomebodyGoesOn) {
  failure_.Set(abi::kSystemError, "bye", false, 0);
  EXPECT_EQ(Lines(), Texts({"INFO sending to x on y ended with 0 bytes outstanding: bye"}));
  EXPECT_EQ(failure_.Refuse(), abi::kSystemError);
  EXPECT_EQ(failure_.Refuse(), abi::kSystemError);
  EXPECT_EQ(Lines().size(), 1U);
}

TEST_F(ConnectionFailureTest, TheFirstFailureStays) {
  failure_.Set(abi::kRemoteError, "first", true, 1);
  failure_.Set(abi::kSystemError, "second", true, 1);
  EXPECT_EQ(failure_.result(), abi::kRemoteError);
  EXPECT_EQ(Lines().size(), 1U);
}

TEST_F(ConnectionFailureTest, TenSecondsWithoutAnyFlowAreTooLong) {
  constexpr int64_t kStart = 5 * kNsPerSecond;
  EXPECT_EQ(failure_.NoFlow(kStart), "");
  failure_.FlowsChanged(kStart, false, {"reset"});
  failure_.FlowsChanged(kStart + kNsPerSecond, false, {});
  EXPECT_EQ(failure_.NoFlow(kStart + 10 * kNsPerSecond), "");
  EXPECT_EQ(failure_.NoFlow(kStart + 10 * kNsPerSecond + 1), "no flow for 10 s: reset");
  failure_.FlowsChanged(kStart + 11 * kNsPerSecond, true, {});
  EXPECT_EQ(failure_.NoFlow(kStart + 60 * kNsPerSecond), "");
  EXPECT_EQ(failure_.why_down(), "reset");
}

TEST_F(ConnectionFailureTest, AnOutageMayLastAsLongAsTheSettingAllows) {
  constexpr int64_t kStart = 5 * kNsPerSecond;
  // The network went away under the first flow; a reset ended the last one.
  failure_.FlowsChanged(kStart, true, {"no answer", true});
  failure_.FlowsChanged(kStart, false, {"reset"});
  EXPECT_EQ(failure_.NoFlow(kStart + kOutageS * kNsPerSecond), "");
  EXPECT_EQ(failure_.NoFlow(kStart + kOutageS * kNsPerSecond + 1), "no flow for 300 s: reset");
  // What went down before a flow was up again does not count.
  failure_.FlowsChanged(kStart, true, {});
  failure_.FlowsChanged(kStart, false, {"reset"});
  EXPECT_EQ(failure_.NoFlow(kStart + 10 * kNsPerSecond + 1), "no flow for 10 s: reset");
  // A failed attempt to reconnect shows an outage, too.
  failure_.FlowsChanged(kStart + kNsPerSecond, false, {"no answer", true});
  EXPECT_EQ(failure_.NoFlow(kStart + kOutageS * kNsPerSecond), "");
}

TEST_F(ConnectionFailureTest, WithoutALimitAnOutageNeverEndsIt) {
  ConnectionFailure failure(Log(KeepLine, abi::kSubsysNet, ""), "", 0);
  failure.FlowsChanged(1, false, {"no answer", true});
  EXPECT_EQ(failure.NoFlow(1'000'000 * kNsPerSecond), "");
}

TEST(SocketEnd, IsAnOutageWhereTheNetworkMayComeBack) {
  for (const int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN, EADDRNOTAVAIL}) {
    EXPECT_TRUE(EndBy(error).is_outage) << ErrorWords(error);
  }
  for (const int error : {ECONNRESET, ECONNREFUSED, EPIPE, EMFILE}) {
    EXPECT_FALSE(EndBy(error).is_outage) << ErrorWords(error);
  }
  EXPECT_FALSE(EndOf({}).is_outage);
}

}  // namespace
}  // namespace nccltune::net
