// SPDX-License-Identifier: Apache-2.0
// Scenarios that create and end communicators.
#include "sendrecv/whole/scenario_rank.h"
#include "standard.h"

namespace nccltune::sendrecv {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

ncclComm_t Split(ScenarioRank& rank, int key) {
  ncclComm_t made = nullptr;
  rank.Must(ncclCommSplit(rank.comm(), 0, key, &made, nullptr), "ncclCommSplit");
  return made;
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

void RunSplit(ScenarioRank& rank) {
  const CUdeviceptr from = [&] {
    rank.Init();
    return rank.Allocate(2 * rank.large());
  }();
  const CUdeviceptr to = rank.Allocate(2 * rank.large());
  ncclComm_t comm = rank.comm();
  for (uint64_t round = 0; round < rank.settings().Number("count", 6); ++round) {
    const std::string name = "round." + std::to_string(round);
    ncclComm_t child = Split(rank, round % 2 == 0 ? rank.rank() : -rank.rank());
    const uint64_t bytes = round % 3 == 0 ? 4096 : rank.large();
    for (int i = 0; i < 4; ++i) {
      rank.ResultContent(name + ".child", rank.Exchange(bytes, 10 * round + 1, child));
      rank.ResultContent(name + ".parent", rank.Exchange(bytes, 10 * round + 2));
      // Both messages in one group.
      const uint64_t key = 1000 * round + static_cast<uint64_t>(i);
      const auto mine = static_cast<uint64_t>(rank.rank());
      rank.Put(from, 4 * key + mine, bytes);
      rank.Put(from + rank.large(), 4 * key + 2 + mine, bytes);
      rank.Must(ncclGroupStart(), "ncclGroupStart");
      rank.Must(rank.Send(from, bytes), "ncclSend");
      rank.Must(rank.Receive(to, bytes), "ncclRecv");
      rank.Must(rank.Send(from + rank.large(), bytes, child), "ncclSend");
      rank.Must(rank.Receive(to + rank.large(), bytes, child), "ncclRecv");
      rank.Must(ncclGroupEnd(), "ncclGroupEnd");
      rank.Wait();
      rank.ResultContent(name + ".both",
                         rank.Holds(to, 4 * key + 1 - mine, bytes) &&
                             rank.Holds(to + rank.large(), 4 * key + 3 - mine, bytes));
    }
    if (round % 2 == 0) {
      rank.Destroy(child);
      continue;
    }
    // The child stays usable.
    rank.Destroy(comm);
    comm = rank.Init();
    rank.ResultContent(name + ".orphan", rank.Exchange(bytes, 10 * round + 3, child));
    rank.Destroy(child);
  }
  rank.Destroy(comm);
}

namespace {

// The messages that are pending when the communicator is aborted; they depend on the round.
void AbortWithMessages(ScenarioRank& rank, uint64_t round, CUdeviceptr memory, uint64_t bytes) {
  const bool sends = round % 3 != 1 && (rank.rank() == 0 || round % 3 == 2);
  const bool receives = round % 3 != 0 && (rank.rank() == 1 || round % 3 == 2);
  if (sends || receives) {
    rank.Must(ncclGroupStart(), "ncclGroupStart");
    if (sends) rank.Must(rank.Send(memory, bytes), "ncclSend");
    if (receives) rank.Must(rank.Receive(memory + bytes, bytes), "ncclRecv");
    rank.Must(ncclGroupEnd(), "ncclGroupEnd");
  }
  rank.Meet("posted");
  usleep(static_cast<useconds_t>(round * 7919 % 50'000));
  const auto began = Clock::now();
  rank.ResultCode("abort", rank.Abort());
  rank.Measure("abort_s", SecondsSince(began));
}

// NCCL does not refuse a message to a rank that has aborted the communicator.
void AbortBeforePeer(ScenarioRank& rank, CUdeviceptr memory, uint64_t bytes) {
  if (rank.rank() == 0) {
    rank.ResultCode("abort before the peer", rank.Abort());
    rank.Meet("one has aborted");
    return;
  }
  rank.Meet("one has aborted");
  rank.ResultCode("receive after the abort", rank.Receive(memory, bytes));
  rank.ResultCode("abort after the peer", rank.Abort());
}

}  // namespace

void RunAbort(ScenarioRank& rank) {
  CUdeviceptr memory = 0;
  for (uint64_t round = 0; round < rank.settings().Number("count", 12); ++round) {
    rank.Init();
    if (memory == 0) memory = rank.Allocate(2 * rank.large());
    const uint64_t bytes = round % 2 == 0 ? rank.large() : 4096;
    const std::string name = "round." + std::to_string(round);
    for (int i = 0; i < 4; ++i) rank.ResultContent(name, rank.Exchange(bytes, 10 * round + 1));
    if (round % 4 == 2) {
      AbortBeforePeer(rank, memory, bytes);
    } else {
      AbortWithMessages(rank, round, memory, bytes);
    }
    rank.Meet("aborted");
  }
  rank.Init();
  for (uint64_t i = 0; i < 6; ++i) rank.ResultContent("after", rank.Exchange(rank.large(), 7 + i));
  rank.Destroy(rank.comm());
}

namespace {

void PrintResources(const ScenarioRank& rank, uint64_t communicators) {
  const Resources now = rank.CountResources();
  const std::string at = "." + std::to_string(communicators);
  rank.Measure("files" + at, static_cast<double>(now.files));
  rank.Measure("threads" + at, static_cast<double>(now.threads));
  rank.Measure("resident_kib" + at, static_cast<double>(now.resident_kib));
  rank.Measure("gpu_free_mib" + at, static_cast<double>(now.gpu_free_mib));
  rank.Measure("shared_files" + at, static_cast<double>(now.shared_files));
  rank.Measure("mappings" + at, static_cast<double>(now.mappings));
}

}  // namespace

// Each round creates two communicators. The first rounds are not counted, because they allocate
// what a process allocates only once.
void RunChurn(ScenarioRank& rank) {
  const uint64_t count = rank.settings().Number("count", 200);
  const uint64_t first = std::max<uint64_t>(count / 10, 2);
  const auto began = Clock::now();
  CUdeviceptr memory = 0;
  uint64_t wrong = 0;
  for (uint64_t made = 2; made <= count; made += 2) {
    const uint64_t round = made / 2;
    rank.Init();
    if (memory == 0) memory = rank.Allocate(2 * rank.large());
    ncclComm_t child = Split(rank, -rank.rank());
    for (const uint64_t bytes : {uint64_t{4096}, rank.large(), rank.large(), rank.large()}) {
      if (!rank.Exchange(bytes, round)) ++wrong;
      if (!rank.Exchange(bytes, round + 1, child)) ++wrong;
    }
    if (round % 3 == 0) rank.Must(ncclCommFinalize(child), "ncclCommFinalize");
    rank.Destroy(child);
    if (round % 10 == 9) {
      AbortWithMessages(rank, round, memory, rank.large());
    } else {
      rank.Destroy(rank.comm());
    }
    if (made - first < 2 || made - count / 2 < 2 || made + 2 > count) {
      rank.Meet("counting");
      PrintResources(rank, made);
      rank.Measure("seconds." + std::to_string(made), SecondsSince(began));
      // Both ranks wait until the entries of /dev/shm are counted.
      rank.Meet("counted");
    }
  }
  rank.Result("wrong", std::to_string(wrong));
}

// A long run of small and large messages, in groups and as single calls.
void RunMillion(ScenarioRank& rank) { Million(rank).Run(); }

}  // namespace nccltune::sendrecv
