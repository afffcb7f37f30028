// SPDX-License-Identifier: Apache-2.0
// The library's wait kernels (native/sendrecv/cuda/wait_kernels.cu) in C++, for both CUDAs in
// software: what a kernel does whenever it looks at its flags. `Gpu` has Load, Store, Started,
// RaiseStarted and CopyByKernel, which access memory as a kernel on that GPU.
#pragma once

#include "sendrecv/cuda/wait_kernels.h"
#include "standard.h"

namespace nccltune::sendrecv {

template <typename Gpu>
class SoftGate {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  SoftGate(Gpu gpu, const GateKernel& gate) : gpu_(std::move(gpu)), gate_(gate) {}

  // Returns whether the kernel ends at this time.
  bool Ends(uint64_t now) {
    if (!began_) began_ = now;
    if (!reached_ && Reached(gpu_.Load(gate_.begun), gate_.begun_value)) reached_ = now;
    if (!reached_) {
      if (now - *began_ <= gate_.limits.longest_ns) return false;
      gpu_.Store(gate_.expired, 1);
      return true;
    }
    if (Reached(gpu_.Load(gate_.ready), gate_.value)) return true;
    if (!held_up_ && gpu_.Started(gate_.started) > gate_.start) held_up_ = now;
    if (now < GivesWay()) return false;
    if (held_up_ && now >= *held_up_ + gate_.limits.held_up_ns) gpu_.Store(gate_.held_up, 1);
    gpu_.Store(gate_.late, gate_.value);
    return true;
  }
  // Returns when it ends in any case; kNever: not known yet.
  uint64_t GivesWay() const {
    const uint64_t alone = reached_ ? *reached_ + gate_.limits.alone_ns : kNever;
    return held_up_ ? std::min(alone, *held_up_ + gate_.limits.held_up_ns) : alone;
  }

 private:
  Gpu gpu_;
  GateKernel gate_;
  std::optional<uint64_t> began_;
  std::optional<uint64_t> reached_;  // the group had started
  std::optional<uint64_t> held_up_;  // since when it holds up a later group
};

template <typename Gpu>
class SoftExchange {
 public:
  SoftExchange(Gpu gpu, const ExchangeKernel& exchange)
      : gpu_(std::move(gpu)), exchange_(exchange) {}

  void Begin() {
    if (exchange_.start != 0) gpu_.RaiseStarted(exchange_.started, exchange_.start);
    for (uint32_t i = 0; i < exchange_.raise_count; ++i) {
      gpu_.Store(exchange_.raises[i].flag, exchange_.raises[i].value);
    }
  }
  bool Ends(uint64_t now) {
    if (!began_) began_ = now;
    bool all = true;
    for (uint32_t i = 0; i < exchange_.pull_count; ++i) all &= IsDone(exchange_.pulls[i]);
    for (uint32_t i = 0; i < exchange_.wait_count; ++i) {
      ExchangeKernel::Value& wait = exchange_.waits[i];
      if (wait.flag != nullptr && Reached(gpu_.Load(wait.flag), wait.value)) wait = {};
      all &= wait.flag == nullptr;
    }
    if (!all) {
      if (now - *began_ <= exchange_.longest_ns) return false;
      gpu_.Store(exchange_.expired, 1);
    }
    if (exchange_.collected_count != 0) {
      gpu_.Store(exchange_.collected.flag, exchange_.collected.value);
    }
    return true;
  }

 private:
  bool IsDone(ExchangeKernel::Pull& pull) {
    if (pull.copied == nullptr) return true;
    if (!Reached(gpu_.Load(pull.copied), pull.value)) return false;
    if (gpu_.Load(pull.late) == pull.value) {
      const uint32_t ready = gpu_.Load(pull.ready);
      if (!Reached(ready, pull.value)) return false;
      if (ready - pull.value < kReleased) gpu_.CopyByKernel(pull.to, pull.from, pull.bytes);
    }
    gpu_.Store(pull.done, pull.value);
    pull = {};
    return true;
  }

  Gpu gpu_;
  ExchangeKernel exchange_;
  std::optional<uint64_t> began_;
};

}  // namespace nccltune::sendrecv
