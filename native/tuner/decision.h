// SPDX-License-Identifier: Apache-2.0
//
// The decision about one call. No allocation, lock, log or system call unless a program that
// measures has given orders through the control interface.
#ifndef NCCLTUNE_TUNER_DECISION_H_
#define NCCLTUNE_TUNER_DECISION_H_

#include <cstddef>
#include <cstdint>

#include "tuner/communicator.h"
#include "tuner/control_state.h"
#include "tuner/lookup_table.h"
#include "tuner/support_matrix.h"

namespace nccltune::tuner {

struct Call {
  int collective = 0;
  uint64_t bytes = 0;
  int pipe_ops = 1;
  int registered = kAny;  // kAny: the interface does not tell
};

// What NCCL offers since v3: a table of predicted times, the lowest of which it will run.
class TableOffer {
 public:
  TableOffer(float* entries, int algorithms, int protocols)
      : entries_(entries),
        algorithms_(entries == nullptr ? 0 : algorithms),
        protocols_(entries == nullptr ? 0 : protocols) {}

  // Negative is NCCL's "cannot run here"; a NaN is no time either.
  bool CanRun(int algorithm, int protocol) const {
    return algorithm < algorithms_ && protocol < protocols_ && *At(algorithm, protocol) >= 0.0F;
  }

  void Take(int algorithm, int protocol) const { *At(algorithm, protocol) = 0.0F; }

  // False: there is no table to record.
  bool CopyTo(nccltune_tuner_table* table) const;

 private:
  float* At(int algorithm, int protocol) const {
    return entries_ + static_cast<ptrdiff_t>(algorithm) * protocols_ + protocol;
  }

  float* entries_;
  int algorithms_;
  int protocols_;
};

// What NCCL 2.21 offers (v2): two flags, and it runs unchecked what the tuner names.
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

// The same under orders: forced choices instead of rules, and records.
template <typename Offer>
void DecideUnderOrders(const Communicator& communicator, const Call& call, const Orders& orders,
                       const Offer& offer, int* channels);

// Takes the first matching rule that NCCL can run; without one everything stays as it is.
template <typename Offer>
inline void Decide(const Communicator& communicator, const Call& call, const Offer& offer,
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
  if (chosen == nullptr) return;
  offer.Take(chosen->algorithm, chosen->protocol);
  if (chosen->channels != 0) *channels = chosen->channels;
}

extern template void DecideUnderOrders(const Communicator&, const Call&, const Orders&,
                                       const TableOffer&, int*);
extern template void DecideUnderOrders(const Communicator&, const Call&, const Orders&,
                                       const DirectOffer&, int*);

// The chunk size of one channel's share: NCCL's own unless another is forced, or asked for by the
// rule that was taken for the call, and safe.
void DecideChunk(const Communicator& communicator, int collective, int algorithm, int protocol,
                 size_t* chunk_bytes);

}  // namespace nccltune::tuner

#endif  // NCCLTUNE_TUNER_DECISION_H_
