// SPDX-License-Identifier: Apache-2.0
//
// The shared state of a fake communicator, in memory that threads and processes share.
#ifndef NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_FAKE_WORLD_H_
#define NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_FAKE_WORLD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/step.h"

namespace nccltune::fake {

inline constexpr int kMaxRanks = 16;
inline constexpr size_t kStagingBytes = size_t{64} << 10U;

// One piece of a rank's result: bytes [from, from + bytes) of the input of `source`, or of the
// reduction of all inputs.
struct ResultPiece {
  static constexpr int kReduced = -1;
  int source = kReduced;
  size_t from = 0;
  size_t to = 0;
  size_t bytes = 0;
};

// One rank's view of a collective: input bytes and output bytes.
struct RankExchange {
  const unsigned char* send = nullptr;
  size_t send_bytes = 0;
  unsigned char* receive = nullptr;
  std::vector<ResultPiece> parts;
  bench::Dtype dtype = bench::Dtype::kFloat;
  bench::Redop redop = bench::Redop::kSum;
  double scalar = 1;  // factor applied to this rank's data
  // Point to point: the offset in `send` of the data for each peer. The parts then need no `from`,
  // because the source's own offset is used.
  bool point_to_point = false;
  std::vector<size_t> offset_to;
};

class World {
 public:
  // Returns a name for a unique id. It is valid in all processes while this one lives.
  static std::string Create();

  World(const std::string& name, int ranks, int rank);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Waits for all ranks. Returns false after `aborted` is set.
  bool Barrier(const std::atomic<bool>& aborted);

  // Runs the collective with all ranks. Returns false after `aborted` is set.
  bool Run(const RankExchange& exchange, const std::atomic<bool>& aborted);

 private:
  struct Shared;
  void Deliver(const RankExchange& exchange, const ResultPiece& part, size_t chunk) const;
  void Reduce(const RankExchange& exchange, size_t begin, size_t bytes, unsigned char* to) const;

  const int ranks_;
  const int rank_;
  Shared* shared_ = nullptr;
  uint64_t barriers_ = 0;
};

}  // namespace nccltune::fake

#endif  // NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_FAKE_WORLD_H_
