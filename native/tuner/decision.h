// SPDX-License-Identifier: Apache-2.0
// Decides one call. The code does not allocate, lock, log or make a system call, unless a measuring
// program uses the control interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tuner/communicator.h"
#include "tuner/control_state.h"
#include "tuner/rule_set.h"

namespace nccltune::tuner {

// The facts known with interface v2 (NCCL 2.21), which has no cost table.
struct WithoutTable {
  int collective = 0;
  int collnet_support = 0;
  int nvls_support = 0;
  Scale scale;
  // The rules were measured on this type of GPU with this NCCL version, so NCCL could run the
  // choices that they name.
  bool measured_here = false;
  // NCCL_ALGO or NCCL_PROTO is set. Only a cost table shows which pairs remain, so no rule is used.
  bool filtered = false;
};

// Returns whether NCCL 2.21 can certainly run the pair of algorithm and protocol. Returns false if
// in doubt, because NCCL 2.21 runs a v2 tuner's choice unchecked.
bool CanRunWithoutTable(const WithoutTable& facts, int algorithm, int protocol);

struct Call {
  int collective = 0;
  uint64_t bytes = 0;
  int pipe_ops = 1;
  int registered = kAny;  // kAny: the interface version does not pass this value
};

// The choices that NCCL offers since v3: a table of predicted times. NCCL runs the pair with the
// lowest time.
class TableOffer {
 public:
  TableOffer(float* entries, int algorithms, int protocols)
      : entries_(entries),
        algorithms_(entries == nullptr ? 0 : algorithms),
        protocols_(entries == nullptr ? 0 : protocols) {}

  // Returns whether NCCL can run the pair. A negative entry or NaN means that NCCL cannot run it.
  bool CanRun(int algorithm, int protocol) const {
    return algorithm < algorithms_ && protocol < protocols_ && *At(algorithm, protocol) >= 0.0F;
  }

  void Take(int algorithm, int protocol) const { *At(algorithm, protocol) = 0.0F; }

  // Copies the table for a record. Returns false if there is no table.
  bool CopyTo(nccltune_tuner_table* table) const;

 private:
  float* At(int algorithm, int protocol) const {
    return entries_ + static_cast<ptrdiff_t>(algorithm) * protocols_ + protocol;
  }

  float* entries_;
  int algorithms_;
  int protocols_;
};

// The choices that NCCL 2.21 offers (v2): two flags instead of a table. NCCL runs the tuner's
// choice unchecked.
class DirectOffer {
 public:
  DirectOffer(const WithoutTable& facts, int* algorithm, int* protocol)
      : facts_(facts), algorithm_(algorithm), protocol_(protocol) {}

  bool CanRun(int algorithm, int protocol) const {
    return CanRunWithoutTable(facts_, algorithm, protocol);
  }

  void Take(int algorithm, int protocol) const {
    *algorithm_ = algorithm;
    *protocol_ = protocol;
  }

  static bool CopyTo(nccltune_tuner_table* /*table*/) { return false; }

 private:
  WithoutTable facts_;
  int* algorithm_;
  int* protocol_;
};

// Decides and records a call for which orders exist (a forced choice, recording, or both). A forced
// choice replaces the rules. If there is none, the rules decide.
template <typename Offer>
void DecideUnderOrders(const TunerContext& communicator, const Call& call, const Orders& orders,
                       const Offer& offer, int* channels);

// Applies the first matching rule that NCCL can run. Changes nothing if no such rule exists. Orders
// of a measuring program take precedence.
template <typename Offer>
inline void Decide(const TunerContext& communicator, const Call& call, const Offer& offer,
                   int* channels) {
  const LookupTable* const rules = communicator.rules.TableOf(call.collective);
  if (rules == nullptr) return;
  const uint64_t word = OrderWord(call.collective);
  if (word != 0) [[unlikely]] {
    DecideUnderOrders(communicator, call, Unpacked(word), offer, channels);
    return;
  }
  const Candidate* const chosen = rules->Find(
      call.bytes, call.pipe_ops, call.registered,
      [&offer](int algorithm, int protocol) { return offer.CanRun(algorithm, protocol); });
  if (rules->has_chunks()) [[unlikely]] {
    communicator.chunks.Keep(call.collective, *rules, chosen);
  }
  if (communicator.hits != nullptr) communicator.hits->Count(chosen);
  if (chosen == nullptr) return;
  offer.Take(chosen->algorithm, chosen->protocol);
  if (chosen->channels != 0) *channels = chosen->channels;
}

extern template void DecideUnderOrders(const TunerContext&, const Call&, const Orders&,
                                       const TableOffer&, int*);
extern template void DecideUnderOrders(const TunerContext&, const Call&, const Orders&,
                                       const DirectOffer&, int*);

// Decides the chunk size for one channel. A size that is forced, or requested by the rule that was
// applied to the call, is used if it is safe. Otherwise NCCL's own value stays.
void DecideChunk(const TunerContext& communicator, int collective, int algorithm, int protocol,
                 size_t* chunk_bytes);

}  // namespace nccltune::tuner
