// SPDX-License-Identifier: Apache-2.0
#include "tuner/decision.h"

#include <algorithm>

#include "abi/tuner.h"

namespace nccltune::tuner {
namespace {

bool IsCollnet(int algorithm) {
  return algorithm == abi::kCollnetDirect || algorithm == abi::kCollnetChain;
}

nccltune_tuner_decision Described(const TunerContext& communicator, const Call& call) {
  nccltune_tuner_decision decision{};
  decision.bytes = call.bytes;
  decision.nodes = communicator.scale.nodes;
  decision.ranks = communicator.scale.ranks;
  decision.collective = call.collective;
  decision.pipe_ops = call.pipe_ops;
  decision.registered = call.registered;
  decision.source = NCCLTUNE_TUNER_BY_NCCL;
  decision.algorithm = NCCLTUNE_TUNER_DEFAULT;
  decision.protocol = NCCLTUNE_TUNER_DEFAULT;
  decision.channels = NCCLTUNE_TUNER_DEFAULT;
  decision.interface_version = communicator.interface_version;
  return decision;
}

nccltune_tuner_table TableFor(const TunerContext& communicator, const Call& call) {
  nccltune_tuner_table table{};
  table.bytes = call.bytes;
  table.nodes = communicator.scale.nodes;
  table.ranks = communicator.scale.ranks;
  table.collective = call.collective;
  table.pipe_ops = call.pipe_ops;
  table.registered = call.registered;
  table.interface_version = communicator.interface_version;
  return table;
}

// Returns whether the call may run CollNet. NCCL limits the number of channels to the
// communicator's, except for both kinds of CollNet. So a forced number of channels is not passed on
// if CollNet may run.
template <typename Offer>
bool MayRunCollnet(const Orders& orders, const Offer& offer) {
  if (orders.algorithm >= 0) return IsCollnet(orders.algorithm);
  return offer.CanRun(abi::kCollnetDirect, abi::kSimple) ||
         offer.CanRun(abi::kCollnetChain, abi::kSimple);
}

template <typename Offer>
void ApplyForced(const Orders& orders, const Offer& offer, int* channels,
                 nccltune_tuner_decision* decision) {
  decision->source = NCCLTUNE_TUNER_BY_FORCE;
  if (orders.algorithm >= 0) {
    if (!offer.CanRun(orders.algorithm, orders.protocol)) {
      decision->outcome |= NCCLTUNE_TUNER_UNUSABLE;
      return;
    }
    offer.Take(orders.algorithm, orders.protocol);
    decision->algorithm = orders.algorithm;
    decision->protocol = orders.protocol;
  }
  if (orders.channels < 0) return;
  if (MayRunCollnet(orders, offer)) {
    decision->outcome |= NCCLTUNE_TUNER_CHANNELS_REFUSED;
    return;
  }
  *channels = orders.channels;
  decision->channels = orders.channels;
}

template <typename Offer>
void ApplyRule(const TunerContext& communicator, const Call& call, const Offer& offer,
               int* channels, nccltune_tuner_decision* decision) {
  const LookupTable& rules = *communicator.rules.TableOf(call.collective);
  const Candidate* const chosen = rules.Find(
      call.bytes, call.pipe_ops, call.registered,
      [&offer](int algorithm, int protocol) { return offer.CanRun(algorithm, protocol); });
  communicator.chunks.Keep(call.collective, rules, chosen);
  if (chosen == nullptr) return;
  offer.Take(chosen->algorithm, chosen->protocol);
  decision->source = NCCLTUNE_TUNER_BY_RULE;
  decision->algorithm = chosen->algorithm;
  decision->protocol = chosen->protocol;
  decision->line = chosen->order;
  if (chosen->channels == 0) return;
  *channels = chosen->channels;
  decision->channels = chosen->channels;
}

// Returns the forced chunk size for this pair of algorithm and protocol; 0 if there is none. If
// NCCL runs another pair than the forced one, the forced size does not apply.
size_t ForcedChunk(const Orders& orders, int algorithm, int protocol) {
  const bool meant =
      orders.algorithm < 0 || (orders.algorithm == algorithm && orders.protocol == protocol);
  return meant ? orders.chunk_bytes : 0;
}

}  // namespace

bool TableOffer::CopyTo(nccltune_tuner_table* table) const {
  if (algorithms_ <= 0 || protocols_ <= 0) return false;
  table->algorithms = std::min<int>(algorithms_, NCCLTUNE_TUNER_ALGORITHMS);
  table->protocols = std::min<int>(protocols_, NCCLTUNE_TUNER_PROTOCOLS);
  for (auto& row : table->cost_us) std::fill(std::begin(row), std::end(row), abi::kIgnore);
  for (int a = 0; a < table->algorithms; ++a) {
    for (int p = 0; p < table->protocols; ++p) table->cost_us[a][p] = *At(a, p);
  }
  return true;
}

template <typename Offer>
void DecideUnderOrders(const TunerContext& communicator, const Call& call, const Orders& orders,
                       const Offer& offer, int* channels) {
  nccltune_tuner_table table = TableFor(communicator, call);
  const bool has_table = orders.recording && offer.CopyTo(&table);
  nccltune_tuner_decision decision = Described(communicator, call);
  if (orders.forced) {
    // Remove the chunk size of an earlier rule, which must not apply to the forced choice.
    communicator.chunks.Forget(call.collective);
    ApplyForced(orders, offer, channels, &decision);
  } else {
    ApplyRule(communicator, call, offer, channels, &decision);
  }
  RecordCall(communicator.device, &decision, has_table ? &table : nullptr);
}

template void DecideUnderOrders(const TunerContext&, const Call&, const Orders&, const TableOffer&,
                                int*);
template void DecideUnderOrders(const TunerContext&, const Call&, const Orders&, const DirectOffer&,
                                int*);

void DecideChunk(const TunerContext& communicator, int collective, int algorithm, int protocol,
                 size_t* chunk_bytes) {
  if (collective < 0 || collective >= abi::kNumCollectives) return;
  const Orders orders = Unpacked(OrderWord(collective));
  const size_t proposed = *chunk_bytes;
  const size_t wanted = orders.forced ? ForcedChunk(orders, algorithm, protocol)
                                      : communicator.chunks.Find(collective, algorithm, protocol);
  const bool refused = wanted != 0 && !IsSafeChunk(wanted, proposed, algorithm, protocol);
  if (wanted != 0 && !refused) *chunk_bytes = wanted;
  if (!orders.forced && !orders.recording) return;
  RecordChunk(communicator.device, collective, proposed, *chunk_bytes, refused);
}

namespace {

bool IsGatherOrScatter(int collective) {
  return collective == abi::kAllGather || collective == abi::kReduceScatter;
}

}  // namespace

bool CanRunWithoutTable(const WithoutTable& facts, int algorithm, int protocol) {
  if (facts.filtered || facts.scale.ranks < 2) return false;
  // LL128 loses data on links that reorder stores. NCCL enables it depending on the path between
  // the GPUs, which a tuner does not know. So LL128 is used only if the rules were measured on this
  // platform.
  if (protocol == abi::kLl128 && !facts.measured_here) return false;
  const bool allreduce = facts.collective == abi::kAllReduce;
  const bool collnet = facts.collnet_support == 1;
  const bool nvls = facts.nvls_support == 1;
  const bool one_node = facts.scale.nodes == 1;
  const bool simple = protocol == abi::kSimple;
  switch (algorithm) {
    case abi::kRing:
      return true;
    case abi::kTree:
      return allreduce;
    case abi::kCollnetDirect:
      // CollNet direct also needs an NVSwitch and, except for all-reduce, a NIC for each GPU. A
      // tuner does not know whether the platform has them. So CollNet direct is used only if the
      // rules were measured on this platform.
      return simple && collnet && facts.measured_here &&
             (allreduce || IsGatherOrScatter(facts.collective));
    case abi::kCollnetChain:
      return simple && collnet && allreduce;
    case abi::kNvls:
      if (!simple || !nvls) return false;
      return allreduce ? one_node || collnet : IsGatherOrScatter(facts.collective) && one_node;
    case abi::kNvlsTree:
      return simple && nvls && allreduce && !one_node;
    default:
      return false;  // NCCL 2.21 has no PAT, which exists since 2.23
  }
}

}  // namespace nccltune::tuner
