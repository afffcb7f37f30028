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

}  // namespace nccltune::sendrecv
