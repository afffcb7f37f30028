// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of a fake communicator meet: memory that threads and processes share.
#ifndef NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_FAKE_WORLD_H_
#define NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_FAKE_WORLD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/words.h"

namespace nccltune::fake {

inline constexpr int kMostRanks = 16;
inline constexpr size_t kStagingBytes = size_t{64} << 10U;

// One piece of a rank's result: bytes [from, from + bytes) of what `source` gives, or of the
// reduction of what all give.
struct Part {
  static constexpr int kReduced = -1;
  int source = kReduced;
  size_t from = 0;
  size_t to = 0;
  size_t bytes = 0;
};

// A collective as one rank sees it, as bytes in and bytes out.
struct Exchange {
  const unsigned char* send = nullptr;
  size_t send_bytes = 0;
  unsigned char* receive = nullptr;
  std::vector<Part> parts;
  bench::Dtype dtype = bench::Dtype::kFloat;
  bench::Redop redop = bench::Redop::kSum;
  double scalar = 1;  // what this rank's data are multiplied with first
  // Point to point: where in `send` each peer's data begin. Its parts name the source and the
  // bytes; where they lie there is what the source tells.
  bool point_to_point = false;
  std::vector<size_t> offset_to;
};

class World {
 public:
  // A name to put into a unique id, good for this and other processes while this one lives.
  static std::string Create();

  World(const std::string& name, int ranks, int rank);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Waits for all ranks; false once `aborted`.
  bool Meet(const std::atomic<bool>& aborted);

  // Runs it with all ranks. False once `aborted`.
  bool Run(const Exchange& exchange, const std::atomic<bool>& aborted);

 private:
  struct Shared;
  void Deliver(const Exchange& exchange, const Part& part, size_t chunk) const;
  void Reduce(const Exchange& exchange, size_t begin, size_t bytes, unsigned char* to) const;

  const int ranks_;
  const int rank_;
  Shared* shared_ = nullptr;
  uint64_t meetings_ = 0;
};

}  // namespace nccltune::fake

#endif  // NCCLTUNE_TESTS_NATIVE_BENCH_NCCL_FAKE_WORLD_H_
