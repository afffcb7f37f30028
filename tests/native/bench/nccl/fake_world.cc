// SPDX-License-Identifier: Apache-2.0
#include "bench/nccl/fake_world.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/nccl/pattern.h"

namespace nccltune::fake {

using bench::Decode;
using bench::Encode;
using bench::FormatOf;
using bench::Redop;

struct World::Shared {
  std::atomic<uint64_t> met[kMaxRanks];
  size_t send_bytes[kMaxRanks];
  size_t offset_to[kMaxRanks][kMaxRanks];
  double scalar[kMaxRanks];
  unsigned char staging[kMaxRanks][kStagingBytes];
};

std::string World::Create() {
  // Never closed: the name is valid while the descriptor is open, and no file is left behind.
  const int descriptor = memfd_create("fake_nccl", MFD_CLOEXEC);
  if (descriptor < 0 || ftruncate(descriptor, sizeof(Shared)) != 0) std::abort();
  return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor);
}

World::World(const std::string& name, int ranks, int rank) : ranks_(ranks), rank_(rank) {
  const int descriptor = open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) std::abort();
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (memory == MAP_FAILED) std::abort();
  shared_ = static_cast<Shared*>(memory);
}

World::~World() { munmap(shared_, sizeof(Shared)); }

bool World::Barrier(const std::atomic<bool>& aborted) {
  shared_->met[rank_].store(++barriers_, std::memory_order_release);
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int polls = 0; shared_->met[rank].load(std::memory_order_acquire) < barriers_; ++polls) {
      if (aborted) return false;
      if (polls < 100) {
        sched_yield();
      } else {
        usleep(50);
      }
    }
  }
  return true;
}

bool World::Run(const RankExchange& exchange, const std::atomic<bool>& aborted) {
  // A copy, because an in-place result overwrites input that other ranks still read.
  const std::vector<unsigned char> send(exchange.send, exchange.send + exchange.send_bytes);
  shared_->send_bytes[rank_] = send.size();
  shared_->scalar[rank_] = exchange.scalar;
  for (size_t peer = 0; peer < exchange.offset_to.size(); ++peer) {
    shared_->offset_to[rank_][peer] = exchange.offset_to[peer];
  }
  if (!Barrier(aborted)) return false;
  const size_t longest = *std::max_element(shared_->send_bytes, shared_->send_bytes + ranks_);
  std::vector<ResultPiece> parts = exchange.parts;
  if (exchange.point_to_point) {
    for (ResultPiece& part : parts) part.from = shared_->offset_to[part.source][rank_];
  }
  for (size_t chunk = 0; chunk < longest; chunk += kStagingBytes) {
    if (chunk < send.size()) {
      std::memcpy(shared_->staging[rank_], send.data() + chunk,
                  std::min(kStagingBytes, send.size() - chunk));
    }
    if (!Barrier(aborted)) return false;
    for (const ResultPiece& part : parts) Deliver(exchange, part, chunk);
    if (!Barrier(aborted)) return false;
  }
  return true;
}

void World::Deliver(const RankExchange& exchange, const ResultPiece& part, size_t chunk) const {
  const size_t begin = std::max(part.from, chunk);
  const size_t end = std::min(part.from + part.bytes, chunk + kStagingBytes);
  if (begin >= end) return;
  unsigned char* const to = exchange.receive + part.to + (begin - part.from);
  if (part.source == ResultPiece::kReduced) {
    Reduce(exchange, begin - chunk, end - begin, to);
  } else {
    std::memcpy(to, shared_->staging[part.source] + (begin - chunk), end - begin);
  }
}

// Rounds every partial result to the type. The order of ranks differs between elements, as with
// NCCL's rings and trees.
void World::Reduce(const RankExchange& exchange, size_t begin, size_t bytes,
                   unsigned char* to) const {
  const bench::Dtype dtype = exchange.dtype;
  const auto size = static_cast<size_t>(bench::SizeOf(dtype));
  const auto rounded = [dtype](double number) {
    unsigned char stored[8];
    Encode(dtype, number, stored);
    return Decode(dtype, stored);
  };
  const bool real_average = exchange.redop == Redop::kAvg && FormatOf(dtype).is_real;
  const double share = rounded(1.0 / ranks_);
  for (size_t offset = 0; offset < bytes; offset += size) {
    const size_t first = (begin + offset) / size / 16;
    double result = 0;
    for (int i = 0; i < ranks_; ++i) {
      const size_t rank = (first + static_cast<size_t>(i)) % static_cast<size_t>(ranks_);
      double number = Decode(dtype, shared_->staging[rank] + begin + offset);
      if (exchange.redop == Redop::kMulsum) number = rounded(number * shared_->scalar[rank]);
      if (real_average) number = rounded(number * share);
      if (i == 0) {
        result = number;
        continue;
      }
      switch (exchange.redop) {
        case Redop::kSum:
        case Redop::kAvg:
        case Redop::kMulsum:
          result = rounded(result + number);
          break;
        case Redop::kProd:
          result = rounded(result * number);
          break;
        case Redop::kMax:
          result = std::max(result, number);
          break;
        case Redop::kMin:
          result = std::min(result, number);
          break;
      }
    }
    if (exchange.redop == Redop::kAvg && !real_average) result = std::trunc(result / ranks_);
    Encode(dtype, result, to + offset);
  }
}

}  // namespace nccltune::fake
