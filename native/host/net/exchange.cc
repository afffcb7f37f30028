// SPDX-License-Identifier: Apache-2.0
#include "host/net/exchange.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace nccltune::host::net {
namespace {

// Values that a plugin is unlikely to write. kUnset marks `done` and the sizes, kAfterMessage the
// bytes behind a message, kClosed the buffers of a closed connection.
constexpr int kUnset = -0x5A5A5A5A;
constexpr unsigned char kAfterMessage = 0xEE;
constexpr unsigned char kClosed = 0xC3;
constexpr uint64_t kAlignment = 64;
constexpr unsigned kPassesPerLook = 256;
constexpr int kLateWriteMs = 200;

// Returns an invalid pointer, which *request holds before each call. If *request still holds this
// pointer after the call, the plugin did not set *request.
void* UnsetRequest() { return reinterpret_cast<void*>(uintptr_t{0xDEAD0}); }

bool AllAre(unsigned char value, const unsigned char* begin, const unsigned char* end) {
  return std::all_of(begin, end, [value](unsigned char byte) { return byte == value; });
}

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(1e9 * seconds); }

}  // namespace

MessageEnd::MessageEnd(HostProcess* process, PluginEndpoint* endpoint, Connection* connection,
                       bool check)
    : process_(*process),
      endpoint_(*endpoint),
      connection_(*connection),
      options_(process->options()),
      check_(check),
      content_(options_.sizes, connection->number, connection->forward),
      slots_(static_cast<size_t>(options_.window)),
      random_(static_cast<uint64_t>(connection->number)),
      capacity_(options_.sizes.Largest() + (check ? options_.slack : 0)) {
  for (size_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
}

std::string MessageEnd::MessageName(uint64_t sequence) const {
  return connection_.Name() + ", " + (sends() ? "sent" : "received") + " message " +
         std::to_string(sequence) + " of " + std::to_string(SizeOf(sequence)) + " bytes";
}

void MessageEnd::FailMessage(uint64_t sequence, const std::string& what) {
  process_.Fail(MessageName(sequence) + ": " + what);
}

uint64_t MessageEnd::SizeOf(uint64_t sequence) const {
  return first_empty_ && sequence >= *first_empty_ ? 0 : content_.SizeOf(sequence);
}

void MessageEnd::Register() {
  for (Slot& slot : slots_) {
    slot.memory = std::make_unique<GuardedBytes>("buffer", capacity_);
    const abi::Result result = endpoint_.plugin().RegMr(
        connection_.comm, slot.memory->data(), capacity_, abi::kPointerHost, &slot.mhandle);
    if (result != abi::kSuccess) process_.PluginError(connection_.Name(), "regMr", result);
  }
}

void MessageEnd::Deregister() {
  for (const Slot& slot : slots_) {
    const abi::Result result = endpoint_.plugin().DeregMr(connection_.comm, slot.mhandle);
    if (result != abi::kSuccess) process_.PluginError(connection_.Name(), "deregMr", result);
  }
}

void MessageEnd::EndAfter(uint64_t messages) {
  first_empty_ = messages;
  limit_ = messages + slots_.size();
  // The next slot may already be prepared with the old size; prepare it again.
  if (!free_.empty()) slots_[free_.front()].data = nullptr;
}

bool MessageEnd::Step() {
  const bool posted = !free_.empty() && posted_ < limit_ && Post();
  return (!outstanding_.empty() && TestOne()) || posted;
}

void MessageEnd::Fill() {
  while (!free_.empty() && posted_ < limit_ && Post()) {
  }
}

void MessageEnd::Prepare(Slot* slot) {
  slot->sequence = posted_;
  slot->posted_bytes = SizeOf(posted_);
  slot->data = static_cast<unsigned char*>(slot->memory->data());
  if (!check_) return;
  const uint64_t bytes = slot->posted_bytes;
  if (!sends()) slot->posted_bytes += random_() % (options_.slack + 1);
  // Put the message at the end of the buffer, close to the guard bytes that detect writes outside
  // the buffer.
  auto* const end = slot->data + capacity_;
  slot->data += (capacity_ - slot->posted_bytes) / kAlignment * kAlignment;
  if (sends()) {
    content_.Fill(posted_, slot->data, bytes);
  } else {
    // All of it: a message that is posted before the last ones become empty may be one of these.
    std::fill(slot->data, end, kAfterMessage);
  }
}

bool MessageEnd::Post() {
  Slot& slot = slots_[free_.front()];
  NetPlugin& plugin = endpoint_.plugin();
  // Prepare the slot, unless an earlier attempt for the same message already prepared it and got no
  // request.
  if (slot.data == nullptr || slot.sequence != posted_) Prepare(&slot);
  slot.request = UnsetRequest();
  const int tag = connection_.forward ? 0 : 1;
  const abi::Result result = sends() ? plugin.Isend(connection_.comm, slot.data, slot.posted_bytes,
                                                    tag, slot.mhandle, &slot.request)
                                     : plugin.Irecv(connection_.comm, slot.data, slot.posted_bytes,
                                                    tag, slot.mhandle, &slot.request);
  const char* const call = sends() ? "isend" : "irecv";
  if (result != abi::kSuccess) {
    process_.PluginError(MessageName(posted_), call, result);
    return false;
  }
  if (slot.request == UnsetRequest()) {
    FailMessage(posted_, std::string(call) + " did not set the request");
  }
  if (slot.request == nullptr) return false;
  ++posted_;
  outstanding_.push_back(free_.front());
  free_.pop_front();
  return true;
}

bool MessageEnd::TestOne() {
  const Slot& slot = slots_[outstanding_.front()];
  int done = kUnset;
  std::array<int, kMaxRecvs> sizes{};
  sizes[0] = kUnset;
  const abi::Result result = endpoint_.plugin().Test(slot.request, &done, sizes.data());
  if (result != abi::kSuccess) {
    process_.PluginError(MessageName(slot.sequence), "test", result);
    return false;
  }
  // The plugin must always set `done`, because NCCL does not initialize it.
  if (done == kUnset) FailMessage(slot.sequence, "test did not set done");
  if (done == 0) return false;
  // Only a receive must set its size.
  const uint64_t expected = sends() ? slot.posted_bytes : SizeOf(slot.sequence);
  if (sizes[0] == kUnset ? !sends() : static_cast<uint64_t>(sizes[0]) != expected) {
    FailMessage(slot.sequence, "test reports " + std::to_string(sizes[0]) + " bytes");
  }
  Complete();
  return true;
}

void MessageEnd::Complete() {
  Slot& slot = slots_[outstanding_.front()];
  const uint64_t size = SizeOf(slot.sequence);
  if (check_) {
    if (const auto wrong = content_.Difference(slot.sequence, slot.data, size)) {
      FailMessage(slot.sequence, sends() ? "was changed while it was sent" : *wrong);
    }
    const auto* const end = static_cast<unsigned char*>(slot.memory->data()) + capacity_;
    if (!sends() && !AllAre(kAfterMessage, slot.data + size, end)) {
      FailMessage(slot.sequence, "bytes behind the message were written");
    }
  }
  slot.data = nullptr;
  bytes_ += size;
  ++completed_;
  free_.push_back(outstanding_.front());
  outstanding_.pop_front();
}

void MessageEnd::CheckGuards() {
  for (Slot& slot : slots_) {
    if (const auto damage = slot.memory->TakeDamage()) {
      process_.Fail(connection_.Name() + ": " + *damage);
    }
  }
}

void MessageEnd::MarkOutstanding() {
  for (const size_t index : outstanding_) {
    std::memset(slots_[index].memory->data(), kClosed, capacity_);
  }
}

void MessageEnd::CheckMarks() {
  for (const size_t index : outstanding_) {
    const auto* const begin = static_cast<unsigned char*>(slots_[index].memory->data());
    if (!AllAre(kClosed, begin, begin + capacity_)) {
      FailMessage(slots_[index].sequence, "was written to after its connection was closed");
    }
  }
}

std::string MessageEnd::Waiting() const {
  if (outstanding_.empty()) {
    return MessageName(posted_) + ": " + (sends() ? "isend" : "irecv") + " gave no request";
  }
  return MessageName(slots_[outstanding_.front()].sequence) + ": is not done";
}

MessageExchange::MessageExchange(HostProcess* process, PluginEndpoint* endpoint)
    : process_(*process), endpoint_(*endpoint), options_(process->options()) {
  if (options_.mode == NetCheckMode::kIdle) return;
  const bool check = options_.check || options_.mode == NetCheckMode::kTransfer;
  for (Connection& connection : endpoint->connections()) {
    ends_.push_back(std::make_unique<MessageEnd>(process, endpoint, &connection, check));
  }
}

void MessageExchange::Run() {
  InThread([this] {
    for (const auto& end : ends_) end->Register();
  });
  process_.Barrier();
  InThread([this] { Progress(); });
  if (options_.close_in_flight) {
    process_.Send(PeerMessage::kClosing, {});
  } else if (!process_.peer_killed()) {
    process_.Barrier();
  }
  InThread([this] {
    for (const auto& end : ends_) end->Deregister();
  });
  endpoint_.Close();
  if (options_.close_in_flight) {
    for (const auto& end : ends_) end->MarkOutstanding();
    poll(nullptr, 0, kLateWriteMs);
    for (const auto& end : ends_) end->CheckMarks();
  }
  for (const auto& end : ends_) end->CheckGuards();
}

bool MessageExchange::AllFinished() const {
  return std::all_of(ends_.begin(), ends_.end(), [](const auto& end) { return end->finished(); });
}

Measured MessageExchange::Count() const {
  Measured count;
  for (const auto& end : ends_) {
    TransferCount& flow = end->sends() ? count.sent : count.received;
    flow.messages += end->completed();
    flow.bytes += end->bytes();
  }
  count.seconds = 1e-9 * static_cast<double>(NowNs());
  return count;
}

void MessageExchange::Measure(const Measured& before) {
  measured_ = Count();
  measured_.seconds -= before.seconds;
  measured_.sent.messages -= before.sent.messages;
  measured_.sent.bytes -= before.sent.bytes;
  measured_.received.messages -= before.received.messages;
  measured_.received.bytes -= before.received.bytes;
}

bool MessageExchange::Pass() {
  bool moved = false;
  for (const auto& end : ends_) {
    moved = end->Step() || moved;
    if (process_.loss()) return false;
  }
  if (++passes_ % kPassesPerLook == 0) process_.Look();
  if (moved) {
    moved_at_ns_ = 0;
    return true;
  }
  // Store the time at the first pass without progress.
  if (moved_at_ns_ == 0) moved_at_ns_ = NowNs();
  if (passes_ % kPassesPerLook == 0 && NowNs() - moved_at_ns_ > kSecond * options_.timeout_s) {
    const auto waiting =
        std::find_if(ends_.begin(), ends_.end(), [](const auto& end) { return !end->finished(); });
    const std::string what = (waiting == ends_.end() ? ends_.front() : *waiting)->Waiting();
    const std::string after = " after " + std::to_string(options_.timeout_s) + " s";
    process_.Fail(process_.peer_killed() ? "rank 1 is lost, and the plugin reports no error" + after
                                         : what + after + " without progress");
  }
  // Yield, as NCCL's progress thread does.
  sched_yield();
  return true;
}

void MessageExchange::Progress() {
  const Measured before = Count();
  if (options_.mode == NetCheckMode::kTransfer) {
    Transfer();
    Measure(before);
  } else if (options_.mode == NetCheckMode::kThroughput) {
    Throughput();
  } else {
    const int64_t until = NowNs() + Nanoseconds(options_.seconds);
    for (int64_t left = 0; (left = until - NowNs()) > 0;) {
      process_.Look(static_cast<int>(std::clamp<int64_t>(left / kMs, 1, 1000)));
    }
    Measure(before);
  }
}

void MessageExchange::Transfer() {
  const bool kills = process_.rank() == 0 && options_.kill_after_ms >= 0;
  const int64_t kill_at = NowNs() + kMs * options_.kill_after_ms;
  if (options_.kill_after_ms < 0 && !options_.close_in_flight) {
    for (const auto& end : ends_) end->set_limit(options_.messages);
  }
  const uint64_t enough = options_.messages * ends_.size() / 2;
  while (Pass() && !AllFinished()) {
    if (kills && !process_.peer_killed() && NowNs() >= kill_at) process_.KillPeer();
    if (!options_.close_in_flight) continue;
    uint64_t completed = 0;
    for (const auto& end : ends_) completed += end->completed();
    if (process_.peer_closing() || completed >= enough) break;
  }
  for (const auto& end : ends_) {
    if (options_.close_in_flight && !process_.loss()) end->Fill();
  }
}

void MessageExchange::Throughput() {
  const int64_t measure_from = NowNs() + Nanoseconds(options_.warmup_seconds);
  while (NowNs() < measure_from && Pass()) {
  }
  const int64_t measure_to = measure_from + Nanoseconds(options_.seconds);
  const Measured before = Count();
  while (NowNs() < measure_to && Pass()) {
  }
  Measure(before);
  EndTogether();
}

void MessageExchange::EndAfter(bool sends, const std::string& totals) {
  size_t at = 0;
  for (const auto& end : ends_) {
    if (end->sends() != sends) continue;
    uint64_t total = 0;
    if (totals.size() - at < sizeof total) {
      process_.Fail("the other process has other options: it sends on fewer connections");
    }
    std::memcpy(&total, totals.data() + at, sizeof total);
    at += sizeof total;
    end->EndAfter(total);
  }
}

void MessageExchange::EndTogether() {
  // The receiving ends have posted receives for messages that will not be sent. These receives must
  // be completed by empty messages. The number of messages is sent over the peer link, because some
  // plugins never report sizes that could mark the end. The empty messages follow when no more
  // receives will be posted.
  std::string totals;
  for (const auto& end : ends_) {
    if (!end->sends()) continue;
    const uint64_t total = end->StopPosting();
    totals.append(reinterpret_cast<const char*>(&total), sizeof total);
  }
  process_.Send(PeerMessage::kTotals, totals);
  bool received = false;
  bool acknowledged = false;
  while (!(received && acknowledged && AllFinished()) && Pass()) {
    if (!received) {
      if (const auto theirs = process_.Take(PeerMessage::kTotals)) {
        EndAfter(false, *theirs);
        process_.Send(PeerMessage::kTotalsTaken, {});
        received = true;
      }
    }
    if (!acknowledged && process_.Take(PeerMessage::kTotalsTaken)) {
      EndAfter(true, totals);
      acknowledged = true;
    }
  }
}

}  // namespace nccltune::host::net
