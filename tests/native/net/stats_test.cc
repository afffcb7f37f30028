// SPDX-License-Identifier: Apache-2.0
// The counters of running connections, read as another program reads them.
#include "net/link.h"
#include "net/stats_page.h"
#include "testing.h"

namespace nccltune::net {
namespace {

// A copy of a page at one moment.
class Snapshot {
 public:
  explicit Snapshot(int fd) : words_(4096) {
    EXPECT_GE(pread(fd, words_.data(), words_.size() * 8, 0), ssize_t{448 + 4 * 256});
  }

  // The page has its magic number, so it is complete; this is a copy of it.
  const ConnectionBlock& connection() const {
    return *reinterpret_cast<const ConnectionBlock*>(words_.data());
  }
  const FlowBlock& flow(size_t i) const {
    return reinterpret_cast<const FlowBlock*>(words_.data() + 448 / 8)[i];
  }
  uint64_t Sum(Word FlowBlock::* word) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < connection().flows; ++i) sum += flow(i).*word;
    return sum;
  }

 private:
  std::vector<uint64_t> words_;
};

struct Ends {
  std::unique_ptr<Snapshot> sender;
  std::unique_ptr<Snapshot> receiver;
};

Ends Read() {
  Ends ends;
  for (const int fd : OpenMemory(kStatsName)) {
    auto read = std::make_unique<Snapshot>(fd);
    const bool sends = read->connection().role == static_cast<uint64_t>(StatsRole::kSends);
    (sends ? ends.sender : ends.receiver) = std::move(read);
  }
  return ends;
}

class StatsTest : public testing::Test {
 protected:
  StatsTest() {
    TakeLines();
    settings_.flows = 3;
  }

  NetSettings settings_;
};

TEST_F(StatsTest, BothEndsCountWhatTheirApplicationsSee) {
  Plan plan;
  for (size_t i = 0; i < 60; ++i) plan.sizes.push_back(i % 3 == 0 ? 1000 : 100'000 * (i % 20));
  const uint64_t bytes = std::accumulate(plan.sizes.begin(), plan.sizes.end(), uint64_t{0});
  // Without zero-copy: on a busy machine, a flow would be ended because the kernel holds data that
  // others have delivered.
  settings_.zero_copy = ZeroCopyMode::kOff;
  {
    Link link(settings_);
    ASSERT_TRUE(Exchange(link, plan));
    const Ends ends = Read();
    ASSERT_TRUE(ends.sender != nullptr && ends.receiver != nullptr);
    for (const Snapshot* end : {ends.sender.get(), ends.receiver.get()}) {
      EXPECT_EQ(end->connection().flows, 4U);
      EXPECT_EQ(end->connection().device.Get(), "lo");
      EXPECT_EQ(end->connection().counters.requests, 60U);
      EXPECT_EQ(end->connection().counters.messages, 60U);
      EXPECT_EQ(end->connection().counters.bytes, bytes);
    }
    const Counters& sent = ends.sender->connection().counters;
    EXPECT_GE(sent.eager, 20U) << "all the small ones";
    EXPECT_LE(sent.eager, 60U);
    // Flows also count duplicate copies.
    EXPECT_GE(ends.receiver->Sum(&FlowBlock::bytes), bytes);
    EXPECT_GE(ends.sender->Sum(&FlowBlock::bytes), bytes);
    EXPECT_EQ(ends.sender->Sum(&FlowBlock::undelivered), 0U);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(ends.sender->flow(i).up, 1U);
      EXPECT_EQ(ends.sender->flow(i).local.Get(), ends.receiver->flow(i).peer.Get());
      EXPECT_EQ(ends.sender->flow(i).peer.Get(), ends.receiver->flow(i).local.Get());
      EXPECT_EQ(ends.sender->flow(i).sequence % 2, 0U);
      EXPECT_EQ(ends.sender->flow(i).deaths, 0U);
    }
    EXPECT_EQ(ends.sender->flow(0).chunks, sent.eager);
  }
  EXPECT_TRUE(OpenMemory(kStatsName).empty()) << "what is closed is gone";
  const std::vector<std::string> lines = TakeLines();
  EXPECT_TRUE(HasLine(lines, {"INFO", "closed: sent to 127.0.0.1", "60 messages", "flows "}));
  EXPECT_TRUE(HasLine(lines, {"INFO", "closed: received from 127.0.0.1", "60 messages"}));
}

TEST_F(StatsTest, AFlowThatDiesAndComesBackIsCountedUnderItsNewAddress) {
  Link link(settings_);
  ASSERT_TRUE(Exchange(link, {.sizes = {100'000}}));
  const std::string before = Read().sender->flow(2).local.Get();
  for (const int fd : SocketsTo(link.end())) {
    if (LocalEnd(fd).Name() == before) shutdown(fd, SHUT_RDWR);
  }
  const Plan plan = {.sizes = std::vector<size_t>(20, 300'000)};
  ASSERT_TRUE(Until([&] {
    EXPECT_TRUE(Exchange(link, plan));
    const Ends ends = Read();
    return ends.sender->flow(2).local.Get() != before && ends.receiver->flow(2).up == 1 &&
           ends.sender->flow(2).local.Get() == ends.receiver->flow(2).peer.Get();
  }));
  const Ends ends = Read();
  for (const Snapshot* end : {ends.sender.get(), ends.receiver.get()}) {
    EXPECT_EQ(end->flow(2).deaths, 1U);
    EXPECT_EQ(end->connection().counters.flow_ends, 1U);
    EXPECT_EQ(end->connection().counters.flow_returns, 1U);
  }
  EXPECT_GE(ends.sender->flow(2).dials, 1U);
  EXPECT_EQ(ends.sender->flow(1).deaths, 0U);
}

}  // namespace
}  // namespace nccltune::net
