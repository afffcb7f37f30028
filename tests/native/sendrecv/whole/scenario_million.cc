// SPDX-License-Identifier: Apache-2.0
//
// A long run of small and large messages, in groups and as single calls.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "sendrecv/whole/scenario_rank.h"
#include "sendrecv/whole/scenarios.h"

namespace nccltune::sendrecv {
namespace {

using namespace soft;  // NOLINT(google-build-using-namespace): CUDA's and NCCL's names
using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// A batch of messages in both directions. Both ranks draw the same batch from its number.
struct Batch {
  struct Message {
    uint64_t at = 0;  // offset in the memory of its direction
    uint64_t bytes = 0;
  };
  std::array<std::vector<Message>, 2> from;  // by sender
  uint64_t group = 64;  // messages of one direction in a group; 0: single calls

  Batch(uint64_t seed, uint64_t number, uint64_t room) {
    std::mt19937_64 random(seed * 1'000'003 + number);
    const uint64_t shape = random() % 8;
    group = shape < 5 ? 64 : shape < 7 ? 1 + random() % 8 : 0;
    for (std::vector<Message>& messages : from) {
      // Some batches have only one direction.
      const uint64_t most = group == 0 ? 6 : 64;
      const uint64_t count = random() % 8 == 0 ? 0 : 1 + random() % most;
      uint64_t at = 0;
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t kind = random() % 100;
        const uint64_t limit = kind < 78 ? 32 << 10 : kind < 95 ? 512 << 10 : room / 4;
        const uint64_t bytes = 1 + random() % limit;
        if (at + bytes > room) break;
        messages.push_back({at, bytes});
        at = (at + bytes + 255) / 256 * 256;
      }
    }
  }
  uint64_t operations() const { return 2 * (from[0].size() + from[1].size()); }
};

class Million {
 public:
  explicit Million(ScenarioRank& rank) : rank_(rank), room_(rank.large()) {}

  void Run() {
    const uint64_t wanted = rank_.settings().Number("operations", 1'000'000);
    const auto seconds = static_cast<double>(rank_.settings().Number("seconds", 300));
    const auto began = Clock::now();
    rank_.Init();
    uint64_t operations = 0;
    uint64_t next = wanted / 10;
    for (uint64_t number = 0; operations < wanted; ++number) {
      if (number % kAsked == 0) {
        const bool late = SecondsSince(began) > seconds;
        if (rank_.Share("go." + std::to_string(number), late ? "no" : "yes") == "no") break;
      }
      if (number % kRenewed == 0) Renew();
      operations += RunBatch(number);
      if (operations < next) continue;
      next += wanted / 10;
      if (rank_.rank() == 0) rank_.Measure("operations", static_cast<double>(operations));
    }
    // A measure and not a result: the limit `seconds` may end the run early.
    rank_.Measure("operations", static_cast<double>(operations));
    rank_.Measure("seconds", SecondsSince(began));
    rank_.Measure("bytes_received", static_cast<double>(received_));
    rank_.Result("wrong", std::to_string(wrong_));
    rank_.Destroy(rank_.comm());
  }

 private:
  static constexpr uint64_t kAsked = 100;
  static constexpr uint64_t kRenewed = 997;

  void Renew() {
    if (out_ != 0) rank_.Free(out_);
    if (in_ != 0) rank_.Free(in_);
    out_ = rank_.Allocate(room_);
    in_ = rank_.Allocate(room_);
  }

  uint64_t RunBatch(uint64_t number) {
    const Batch batch(rank_.settings().Number("seed", 1), number, room_);
    const auto mine = static_cast<size_t>(rank_.rank());
    const auto& sent = batch.from[mine];
    const auto& received = batch.from[1 - mine];
    const auto bytes_of = [](const std::vector<Batch::Message>& messages) {
      return messages.empty() ? 0 : messages.back().at + messages.back().bytes;
    };
    const uint64_t key = 2 * number;
    if (!sent.empty()) rank_.Put(out_, key + mine, bytes_of(sent));
    if (!received.empty()) rank_.Clear(in_, bytes_of(received));
    const size_t count = std::max(sent.size(), received.size());
    const auto exchange = [&](size_t i, bool sends) {
      const auto& messages = sends ? sent : received;
      if (i >= messages.size()) return;
      const Batch::Message& each = messages[i];
      rank_.Must(
          sends ? rank_.Send(out_ + each.at, each.bytes) : rank_.Receive(in_ + each.at, each.bytes),
          sends ? "ncclSend" : "ncclRecv");
    };
    const size_t group = batch.group == 0 ? 1 : batch.group;
    for (size_t begin = 0; begin < count; begin += group) {
      if (batch.group != 0) rank_.Must(ncclGroupStart(), "ncclGroupStart");
      for (size_t i = begin; i < begin + group; ++i) {
        // Single calls in an order that needs no buffers: first the messages that rank 0 sends.
        exchange(i, mine == 0);
        exchange(i, mine != 0);
      }
      if (batch.group != 0) rank_.Must(ncclGroupEnd(), "ncclGroupEnd");
    }
    rank_.Wait();
    if (!received.empty()) Check(received, key + 1 - mine, bytes_of(received));
    return batch.operations();
  }

  void Check(const std::vector<Batch::Message>& messages, uint64_t key, uint64_t bytes) {
    const uint8_t* const expected = rank_.Content(key, bytes);
    const uint8_t* const got = rank_.Fetch(in_, bytes);
    uint64_t end = 0;
    for (const Batch::Message& each : messages) {
      // The bytes between the messages must not be written.
      const bool kept =
          std::all_of(got + end, got + each.at, [](uint8_t byte) { return byte == 0xEE; });
      if (!kept || std::memcmp(got + each.at, expected + each.at, each.bytes) != 0) ++wrong_;
      end = each.at + each.bytes;
      received_ += each.bytes;
    }
  }

  ScenarioRank& rank_;
  const uint64_t room_;
  CUdeviceptr out_ = 0;
  CUdeviceptr in_ = 0;
  uint64_t wrong_ = 0;
  uint64_t received_ = 0;
};

}  // namespace

void RunMillion(ScenarioRank& rank) { Million(rank).Run(); }

}  // namespace nccltune::sendrecv
