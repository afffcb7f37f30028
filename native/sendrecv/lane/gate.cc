// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/lane/gate.h"

namespace nccltune::sendrecv {
namespace {

// Layout of a word of GateMemory, from the lowest bit: sender entered, receiver entered, opened,
// closed, unusable, the period modulo 2^11. The upper 48 bits are the lead.
constexpr uint64_t kOpened = 4;
constexpr uint64_t kClosed = 8;
constexpr uint64_t kUnusable = 16;
constexpr int kPeriodShift = 5;
constexpr uint32_t kPeriods = 1U << 11;
constexpr int kLeadShift = 16;

}  // namespace

GateState GateState::Of(uint64_t packed) {
  return {.period = static_cast<uint32_t>(packed >> kPeriodShift) % kPeriods,
          .entered = {(packed & 1) != 0, (packed & 2) != 0},
          .opened = (packed & kOpened) != 0,
          .closed = (packed & kClosed) != 0,
          .unusable = (packed & kUnusable) != 0,
          .lead = static_cast<int64_t>(packed) >> kLeadShift};
}

uint64_t GateState::Packed() const {
  return static_cast<uint64_t>(lead) << kLeadShift |
         static_cast<uint64_t>(period % kPeriods) << kPeriodShift | (unusable ? kUnusable : 0) |
         (closed ? kClosed : 0) | (opened ? kOpened : 0) | (entered[1] ? 2U : 0U) |
         (entered[0] ? 1U : 0U);
}

// Returns the state of the present period. A word of an older period is read as an empty state, so
// no side has to reset the word.
GateState Gate::Load(uint64_t* packed) const {
  *packed = word().load();
  const GateState state = GateState::Of(*packed);
  if (state.period == period_ % kPeriods) return state;
  return {.period = period_ % kPeriods};
}

void Gate::Open() {
  open_ = true;
  ++period_;
}

Gate::Step Gate::Take(bool may_open, int64_t max_lead, bool pass) {
  const auto mine = static_cast<size_t>(role_);
  const int64_t one = role_ == Role::kSender ? 1 : -1;
  while (true) {
    uint64_t packed = 0;
    GateState state = Load(&packed);
    if (state.closed) {
      unusable_ = state.unusable;
      return Step::kClosed;
    }
    const int64_t ahead = state.lead * one;
    if (state.opened) {
      // The peer has opened the gate and no longer changes this word. NCCL carries the messages
      // that the peer passed before, so this side passes as many before it opens the gate.
      if (ahead >= 0) {
        Open();
        return Step::kOpen;
      }
    } else if (may_open && state.entered[1 - mine] && ahead >= 0 && ahead <= max_lead) {
      state.opened = true;
      if (!word().compare_exchange_strong(packed, state.Packed())) continue;
      Open();
      return Step::kOpen;
    }
    if (!pass) return Step::kNative;
    state.entered[mine] = true;
    state.lead += one;
    if (!word().compare_exchange_strong(packed, state.Packed())) continue;
    passed_ = true;
    return Step::kNative;
  }
}

bool Gate::CloseForGood(bool unusable) {
  while (true) {
    uint64_t packed = 0;
    GateState state = Load(&packed);
    if (state.opened) {
      Open();
      return false;
    }
    unusable_ = state.closed ? state.unusable : unusable;
    if (state.closed) return true;
    state.closed = true;
    state.unusable = unusable;
    if (word().compare_exchange_strong(packed, state.Packed())) return true;
  }
}

}  // namespace nccltune::sendrecv
