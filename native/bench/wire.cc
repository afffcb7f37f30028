// SPDX-License-Identifier: Apache-2.0
#include "bench/wire.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bench/archive.h"
#include "common/little_endian.h"

namespace nccltune::bench {
namespace {

constexpr size_t kHead = 5;
constexpr size_t kReadBytes = size_t{64} << 10;
// Sent bytes are removed from the buffer when there are more than this number. Removing them after
// each message would move the remaining bytes too often.
constexpr size_t kKeepSent = size_t{64} << 10;

}  // namespace

Wire::Wire(Descriptor socket)
    : socket_(std::move(socket)), last_sent_(Clock::now()), last_received_(last_sent_) {
  fcntl(socket_.fd(), F_SETFL, fcntl(socket_.fd(), F_GETFL) | O_NONBLOCK);
  // setsockopt fails on the socket pair that process 0 uses for its own player. The failure is
  // harmless, because a socket pair does not delay small packets.
  const int on = 1;
  setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Wire::Break(std::string why) {
  if (broken_.empty()) broken_ = std::move(why);
}

void Wire::Send(MessageType type, std::string_view payload) {
  if (!broken_.empty() || send_failed_) return;
  little_endian::Append(&outgoing_, static_cast<uint32_t>(payload.size()));
  outgoing_.push_back(static_cast<char>(type));
  outgoing_ += payload;
  last_sent_ = Clock::now();
  Flush();
}

void Wire::Flush() {
  while (wants_to_send()) {
    const ssize_t got =
        send(socket_.fd(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL);
    if (got >= 0) {
      sent_ += static_cast<size_t>(got);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      // Keep the connection open for reading, because the peer's last messages may still be unread.
      // Receive detects the end.
      send_failed_ = true;
      sent_ = outgoing_.size();
    }
  }
  if (!wants_to_send()) {
    outgoing_.clear();
    sent_ = 0;
  } else if (sent_ > kKeepSent) {
    outgoing_.erase(0, sent_);
    sent_ = 0;
  }
}

void Wire::Receive(std::vector<Message>* messages) {
  char bytes[kReadBytes];
  while (broken_.empty()) {
    const ssize_t got = recv(socket_.fd(), bytes, sizeof bytes, 0);
    if (got > 0) {
      last_received_ = Clock::now();
      incoming_.append(bytes, static_cast<size_t>(got));
      // Handle complete messages now, even if the connection breaks afterwards.
      TakeMessages(messages);
      if (static_cast<size_t>(got) < sizeof bytes) return;
    } else if (got == 0) {
      Break("the connection was closed");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      Break(std::strerror(errno));
    }
  }
}

void Wire::TakeMessages(std::vector<Message>* messages) {
  size_t taken = 0;
  while (incoming_.size() - taken >= kHead) {
    const size_t length = little_endian::Get<uint32_t>(incoming_, taken);
    const auto type = static_cast<uint8_t>(incoming_[taken + 4]);
    if (length > kMaxPayload || type == 0 || type > static_cast<uint8_t>(kLastMessageType)) {
      incoming_.clear();
      Break("received bytes that are not a message of nccltune-bench");
      return;
    }
    if (incoming_.size() - taken < kHead + length) break;
    if (static_cast<MessageType>(type) != MessageType::kHeartbeat) {
      messages->push_back(
          {static_cast<MessageType>(type), incoming_.substr(taken + kHead, length)});
    }
    taken += kHead + length;
  }
  incoming_.erase(0, taken);
}

void Wire::KeepAlive(Clock::time_point now) {
  if (!broken_.empty()) return;
  if (now - last_received_ >= kPeerTimeout) {
    Break("nothing was received for " + std::to_string(kPeerTimeout.count()) + " s");
    return;
  }
  // If earlier bytes are still unsent, send no heartbeat, because it would only be queued behind
  // them.
  if (now - last_sent_ >= kHeartbeatInterval) {
    if (wants_to_send()) {
      last_sent_ = now;
    } else {
      Send(MessageType::kHeartbeat, {});
    }
  }
}

Wire::Clock::time_point Wire::NextDeadline() const {
  return std::min(last_sent_ + kHeartbeatInterval, last_received_ + kPeerTimeout);
}

// The Describe functions are not in an unnamed namespace, because argument-dependent lookup from
// archive.h must find them.
template <typename Archive>
static void Describe(Archive& archive, host::Combination& combination) {
  archive(combination.algorithm, combination.protocol);
}

template <typename Archive>
static void Describe(Archive& archive, Choice& choice) {
  archive(choice.kind, choice.combination, choice.channels, choice.chunk_bytes);
}

template <typename Archive>
static void Describe(Archive& archive, Step& step) {
  archive(step.sequence, step.collective, step.bytes, step.dtype, step.redop, step.root,
          step.registered, step.graph, step.group_calls, step.load, step.choice, step.warmup,
          step.iterations, step.check, step.timeout_s, step.seed, step.round, step.repeat);
}

template <typename Archive>
static void Describe(Archive& archive, RankTiming& timing) {
  archive(timing.rank, timing.event_us, timing.host_us, timing.wrong, timing.load_alone_us,
          timing.load_us);
}

template <typename Archive>
static void Describe(Archive& archive, ExecutedChoice& ran) {
  archive(ran.combination, ran.channels, ran.chunk_bytes);
}

template <typename Archive>
static void Describe(Archive& archive, TunerInputs& seen) {
  archive(seen.pipe_ops, seen.registered);
}

template <typename Archive>
static void Describe(Archive& archive, StepResult& result) {
  archive(result.timings, result.ran, result.seen, result.applied, result.error);
}

template <typename Archive>
static void Describe(Archive& archive, TableResult& result) {
  archive(result.row.costs, result.row.predicted, result.row.seen, result.error);
}

template <typename Archive>
static void Describe(Archive& archive, GpuInfo& gpu) {
  archive(gpu.rank, gpu.name, gpu.host_hash);
}

template <typename Archive>
static void Describe(Archive& archive, OpenResult& opened) {
  BackendInfo& info = opened.info;
  archive(info.backend, info.nccl_version, info.nccl_path, info.nccl_from, info.driver,
          info.tuner_path, info.tuner_control, info.tuner_interface, info.nodes, info.ranks,
          info.gpus, info.collectives, info.dtypes, info.redops, info.registered, info.graph,
          info.group_calls, info.load, info.chunk, opened.error);
}

template <typename Archive>
static void Describe(Archive& archive, AbortOrder& order) {
  archive(order.status, order.text);
}

template <typename Payload>
std::string Serialize(const Payload& payload) {
  Writer writer;
  writer(payload);
  return writer.Take();
}

template <typename Payload>
bool Read(std::string_view bytes, Payload* payload) {
  Reader reader(bytes);
  reader(*payload);
  return reader.Finished();
}

template std::string Serialize(const Step&);
template std::string Serialize(const StepResult&);
template std::string Serialize(const TableResult&);
template std::string Serialize(const OpenResult&);
template std::string Serialize(const AbortOrder&);
template std::string Serialize(const std::vector<std::string>&);
template bool Read(std::string_view, Step*);
template bool Read(std::string_view, StepResult*);
template bool Read(std::string_view, TableResult*);
template bool Read(std::string_view, OpenResult*);
template bool Read(std::string_view, AbortOrder*);
template bool Read(std::string_view, std::vector<std::string>*);

}  // namespace nccltune::bench
