// SPDX-License-Identifier: Apache-2.0
// Runs programs with RunGroup on a software machine.
#pragma once

#include "sendrecv/group/group.h"
#include "sendrecv/lane/gate.h"
#include "sendrecv/lane/message_lane.h"
#include "sendrecv/programs.h"
#include "sendrecv/soft_driver.h"
#include "sendrecv/soft_engine.h"
#include "standard.h"
#include "testing.h"

namespace nccltune::sendrecv {

inline constexpr uint64_t kEagerLimit = 1024;

inline constexpr uint64_t kFloor = 128;

inline constexpr Kind kKind = {.floor = kFloor, .eager = kEagerLimit, .largest = 3 * kEagerLimit};

// The two policies: direct copies, and copies through buffers of the receivers.
inline constexpr Policy kCopies = {.eager_limit = kEagerLimit};

inline constexpr Policy kWithGraphs = {.eager_limit = kEagerLimit, .graphs = true};

// Streams share one connection and wait by kernels. The limits are in steps.
inline constexpr Policy kByKernels = {
    .eager_limit = kEagerLimit,
    .kernel_waits = true,
    .wait_limits = {.held_up_ns = 60, .alone_ns = 600, .longest_ns = UINT64_MAX}};

inline constexpr Policy kThroughBuffers = {.eager_limit = kEagerLimit, .vccl = true};

struct Ran {
  bool over = false;
  std::string trouble;           // empty: all bytes were right
  std::map<Path, size_t> paths;  // number of messages by path
  size_t full = 0;               // number of messages that found a full ring
};

// Settings of the lanes of a world.
struct LaneSettings {
  uint64_t ring = LaneMemory::kSlots;
  bool opened = true;           // the gates are open at first
  bool other_priority = false;  // the first stream of each rank has another priority
};

inline constexpr uint64_t kStaging = 2 * kEagerLimit;

inline constexpr uint64_t kLargest = 3 * kEagerLimit;

inline constexpr uint64_t kPlace = kLargest;

// Allocations of ranks are numbered from 1, so this is above them.
inline constexpr uint64_t kStagingNumber = 1000;

inline constexpr vccl::VcclSettings kVccl = {.channel_bytes = 900,
                                             .slots = 3,
                                             .channels = 2,
                                             .chunk_bytes = 150,
                                             .min_channel_bytes = kEagerLimit};

inline uint8_t ContentOf(size_t message, uint64_t byte) {
  return static_cast<uint8_t>(131 * message + 7 * byte + 1);
}

// A model of NCCL's own send and receive. The messages of a pair stay in order. A send alone
// completes when its bytes are in a buffer of limited size; a send in a group with receives
// completes when it is received. A group is one kernel, in which all messages progress at once.
class NativeLane {
 public:
  explicit NativeLane(uint64_t capacity) : capacity_(capacity) {}

  struct Message {
    uint64_t bytes = 0;
    bool send_begun = false;
    bool receive_begun = false;
    bool eager = false;
    bool buffered = false;
    bool delivered = false;
    std::vector<uint8_t> data;
  };

  // Returns the next message in this side's order.
  std::shared_ptr<Message> Next(Role role) {
    const std::scoped_lock lock(mutex_);
    const size_t index = next_[static_cast<size_t>(role)]++;
    if (messages_.size() == index) messages_.push_back(std::make_shared<Message>());
    return messages_[index];
  }

  // `data` and `eager` are given by the sender.
  void Begin(Message& message, Role role, std::vector<uint8_t> data, bool eager) {
    const std::scoped_lock lock(mutex_);
    if (role == Role::kReceiver) {
      message.receive_begun = true;
    } else {
      message.send_begun = true;
      message.eager = eager;
      message.bytes = data.size();
      message.data = std::move(data);
    }
    Advance();
  }

  // Advances all messages that can progress, and returns whether this one is complete. Thread-safe.
  bool Over(const Message& message, Role role) {
    const std::scoped_lock lock(mutex_);
    Advance();
    return message.delivered || (role == Role::kSender && message.buffered);
  }

 private:
  // Messages are processed in order. One that cannot continue blocks those after it.
  void Advance() {
    for (; first_ < messages_.size(); ++first_) {
      Message& message = *messages_[first_];
      if (!message.send_begun || !message.receive_begun) break;
      message.delivered = true;
      if (message.buffered) held_ -= message.bytes;
    }
    for (size_t i = first_; i < messages_.size(); ++i) {
      Message& message = *messages_[i];
      if (message.buffered) continue;
      if (!message.send_begun || !message.eager || held_ + message.bytes > capacity_) break;
      message.buffered = true;
      held_ += message.bytes;
    }
  }

  const uint64_t capacity_;
  std::mutex mutex_;
  uint64_t held_ = 0;
  size_t next_[2] = {};
  std::vector<std::shared_ptr<Message>> messages_;
  size_t first_ = 0;  // index of the first message that is not delivered
};

struct NativeCall {
  NativeLane* lane = nullptr;
  Role role = Role::kSender;
  DeviceAddress address = 0;
  uint64_t bytes = 0;
};

// Enqueues one ncclGroup in a stream. Returns false if the driver refuses.
inline bool NativeGroup(SoftDriver& driver, Stream stream, const std::vector<NativeCall>& calls) {
  struct One {
    NativeCall call;
    std::shared_ptr<NativeLane::Message> message;
  };
  const bool receives = std::ranges::any_of(
      calls, [](const NativeCall& each) { return each.role == Role::kReceiver; });
  auto all = std::make_shared<std::vector<One>>();
  for (const NativeCall& call : calls) all->push_back({call, call.lane->Next(call.role)});
  const auto begin = [all, &driver, eager = !receives] {
    for (const One& one : *all) {
      std::vector<uint8_t> data;
      if (one.call.role == Role::kSender) {
        data.resize(one.call.bytes);
        driver.Read(one.call.address, data.data(), data.size());
      }
      one.call.lane->Begin(*one.message, one.call.role, std::move(data), eager);
    }
  };
  const auto over = [all] {
    return std::ranges::all_of(
        *all, [](const One& one) { return one.call.lane->Over(*one.message, one.call.role); });
  };
  const auto receive = [all, &driver] {
    for (const One& one : *all) {
      if (one.call.role == Role::kSender) continue;
      driver.Write(one.call.address, one.message->data.data(), one.message->data.size());
    }
  };
  return driver.Kernel(stream, begin) && driver.Kernel(stream, receive, over);
}

// A gate that is open for both sides before their first message.
struct OpenedGate {
  GateMemory memory;
  OpenedGate() {
    GateState state;
    state.entered = {true, true};
    state.opened = true;
    memory.periods[0].store(state.Packed());
  }
};

// What both sides of a lane share.
struct SharedLane {
  SharedLane() : native(kEagerLimit) {}
  std::unique_ptr<LaneMemory> memory = std::make_unique<LaneMemory>();
  OpenedGate opened;
  GateMemory shut;
  NativeLane native;
  std::unique_ptr<LaneEnd> ends[2];
  std::unique_ptr<Staging> staging;
  std::unique_ptr<vccl::Channels> channels[2];
  Port ports[2];
};

class World {
 public:
  World(const Program& program, double possible, const Policy& policy, const LaneSettings& lanes,
        unsigned delay_bits)
      : program_(program),
        possible_(possible),
        policy_(policy),
        lane_settings_(lanes),
        machine_({.one_connection = policy.kernel_waits, .delay_bits = delay_bits}),
        next_(program.ranks),
        busy_(program.ranks),
        waits_(program.ranks),
        helpers_(program.ranks) {
    for (size_t rank = 0; rank < program.ranks; ++rank) {
      SoftDriver& driver = machine_.Open();
      drivers_.push_back(&driver);
      memory_.push_back(driver.Allocate(program.messages.size() * kPlace));
      streams_.emplace_back();
      for (size_t i = 0; i < program.streams; ++i) {
        streams_.back().push_back(driver.NewStream());
        if (lanes.other_priority && i == 0) driver.SetOtherPriority(streams_.back().back());
        machine_.Name(streams_.back().back(),
                      "rank " + std::to_string(rank) + " stream " + std::to_string(i));
      }
    }
    for (const Sent& each : program.messages) MakeLane(each);
  }

  SoftMachine& machine() { return machine_; }

  // Runs one rank's next group. `moment` is called where the rank waits for others, `pause` between
  // its operations. A captured graph runs once, immediately.
  void RunNext(size_t rank, Random& random, const std::function<bool(uint64_t)>& moment,
               const std::function<void()>& pause) {
    const Step& step = program_.steps[rank][next_[rank]++];
    SoftDriver& driver = *drivers_[rank];
    const Stream stream = streams_[rank][step.stream];
    std::vector<GroupMessage> messages;
    for (const Call& call : step.calls) {
      const Sent& sent = program_.messages[call.message];
      Prepare(driver, stream, call, rank);
      messages.push_back({.port = &Of(sent).ports[static_cast<size_t>(call.role)],
                          .address = AddressOf(rank, call.message),
                          .bytes = sent.bytes,
                          .allocation = rank + 1,
                          .offset = call.message * kPlace,
                          .can_copy = std::bernoulli_distribution(possible_)(random),
                          .small = sent.bytes < kFloor,
                          .captured = sent.captured});
    }
    // Like a nonblocking communicator.
    const bool later = random() % 4 == 0;
    std::vector<NativeCall> calls;
    const auto native = [&] { return calls.empty() || NativeGroup(driver, stream, calls); };
    const GroupContext context = {
        .policy = policy_,
        .wait_for_receiver = moment,
        .wait_for_capture =
            [&pause, left = 120]() mutable {
              pause();
              return --left > 0;
            },
        .start_native =
            [&](const std::vector<std::vector<size_t>>& which) {
              for (const size_t i : which[0]) {
                const Sent& sent = program_.messages[step.calls[i].message];
                calls.push_back({.lane = &Of(sent).native,
                                 .role = step.calls[i].role,
                                 .address = AddressOf(rank, step.calls[i].message),
                                 .bytes = sent.bytes});
              }
              if (later) return NativeStart::kInProgress;
              return native() ? NativeStart::kComplete : NativeStart::kRefused;
            },
    };
    driver.SetPause(pause);
    const GroupOutcome outcome = RunGroup({{.messages = std::move(messages),
                                            .stream = stream,
                                            .driver = &driver,
                                            .helpers = &helpers_[rank]}},
                                          context);
    if (outcome.enqueue_rest) {
      pause();
      if (!native() || !outcome.enqueue_rest())
        Trouble("CUDA refused what comes behind NCCL's part");
    }
    driver.SetPause(nullptr);
    if (!outcome.error.empty()) Trouble(outcome.error);
    {
      const std::scoped_lock lock(mutex_);
      for (const MessageOutcome& way : outcome.messages[0]) {
        ++paths_[way.path];
        if (way.path == Path::kNative && way.reason == NativeReason::kRingFull) ++full_;
      }
    }
    for (const Call& call : step.calls) Check(driver, stream, call, rank);
    if (HasNext(rank) && program_.steps[rank][next_[rank]].waits) {
      waits_[rank] = true;
      driver.Kernel(stream, [this, rank] { waits_[rank] = false; });
    }
  }

  bool HasNext(size_t rank) const { return next_[rank] < program_.steps[rank].size(); }

  bool HasAnyNext() const {
    for (size_t rank = 0; rank < program_.ranks; ++rank) {
      if (HasNext(rank)) return true;
    }
    return false;
  }

  // Runs the next group of a random rank that is not inside a group. Returns false if there is
  // none.
  bool RunAny(Random& random) {
    std::vector<size_t> able;
    for (size_t rank = 0; rank < program_.ranks; ++rank) {
      if (!busy_[rank] && !waits_[rank] && HasNext(rank)) able.push_back(rank);
    }
    if (able.empty()) return false;
    const size_t rank = able[random() % able.size()];
    busy_[rank] = true;
    uint64_t moments = random() % 4;
    const auto something = [&] {
      if (random() % 3 != 0 || !RunAny(random)) machine_.Step(random);
    };
    RunNext(
        rank, random,
        [&](uint64_t) {
          if (moments == 0) return false;
          --moments;
          something();
          return true;
        },
        something);
    busy_[rank] = false;
    return true;
  }

  Ran Result(bool over) {
    Ran ran;
    ran.over = over;
    ran.paths = paths_;
    ran.full = full_;
    std::ostringstream text;
    text << trouble_;
    for (const std::string& error : machine_.Errors()) text << error << "\n";
    if (!over) {
      for (const std::string& waits : machine_.Stuck()) text << waits << "\n";
    }
    ran.trouble = text.str();
    return ran;
  }

  void Trouble(const std::string& what) {
    const std::scoped_lock lock(mutex_);
    trouble_ += what + "\n";
  }

 private:
  SharedLane& Of(const Sent& sent) { return *lanes_.at({sent.comm, sent.from, sent.to}); }
  DeviceAddress AddressOf(size_t rank, size_t message) const {
    return memory_[rank] + message * kPlace;
  }

  void MakeLane(const Sent& sent) {
    auto& lane = lanes_[{sent.comm, sent.from, sent.to}];
    if (lane != nullptr) return;
    lane = std::make_unique<SharedLane>();
    DeviceAddress buffer = 0;
    for (const Role role : {Role::kSender, Role::kReceiver}) {
      const size_t mine = role == Role::kSender ? sent.from : sent.to;
      const size_t peer = role == Role::kSender ? sent.to : sent.from;
      SoftDriver& driver = *drivers_[mine];
      lane->ends[static_cast<size_t>(role)] = std::make_unique<LaneEnd>(
          *lane->memory, lane_settings_.opened ? lane->opened.memory : lane->shut, role,
          lane_settings_.ring);
      Port& port = lane->ports[static_cast<size_t>(role)];
      port.end = lane->ends[static_cast<size_t>(role)].get();
      port.streams[PlanStream::kToPeer] = driver.NewStream();
      port.name = "rank " + std::to_string(sent.from) + " to rank " + std::to_string(sent.to);
      machine_.Name(port.streams[PlanStream::kToPeer],
                    port.name + (role == Role::kSender ? ", sender" : ", receiver"));
      if (buffer == 0) buffer = drivers_[sent.to]->Allocate(kVccl.lane_bytes());
      const DeviceAddress slots = role == Role::kReceiver ? buffer : driver.Import(buffer);
      auto& channels = lane->channels[static_cast<size_t>(role)];
      channels = std::make_unique<vccl::Channels>(kVccl, lane->memory->vccl, role, slots);
      port.channels = [channels = channels.get()] { return channels; };
      const DeviceAddress base = driver.Import(memory_[peer]);
      if (role == Role::kSender) {
        lane->staging = std::make_unique<Staging>(driver.Allocate(kStaging), kStaging);
        // Other ranks may run at this point. The code must not rely on anything it read before.
        port.staging = [this, mine, staging = lane->staging.get()] {
          drivers_[mine]->Pause();
          return staging;
        };
        // At the first call the peer has not mapped it yet.
        port.staging_address = [asked = false]() mutable -> std::optional<ExportedAddress> {
          if (!std::exchange(asked, true)) return std::nullopt;
          return ExportedAddress{.allocation = kStagingNumber, .offset = 0};
        };
      }
      port.map_new = [] {};
      const DeviceAddress staging =
          role == Role::kReceiver ? driver.Import(lane->staging->base()) : 0;
      port.resolve = [base, peer, staging](uint64_t allocation, uint64_t offset, uint64_t) {
        if (allocation == kStagingNumber) return staging + offset;
        return allocation == peer + 1 ? base + offset : 0;
      };
    }
  }

  // Fills the buffers of a call: with the message before a send, with other bytes before a receive.
  void Prepare(SoftDriver& driver, Stream stream, const Call& call, size_t rank) {
    const uint64_t bytes = program_.messages[call.message].bytes;
    const bool sends = call.role == Role::kSender;
    driver.Kernel(stream, [this, &driver, call, rank, bytes, sends] {
      std::vector<uint8_t> data(bytes, 0xEE);
      for (uint64_t i = 0; sends && i < bytes; ++i) data[i] = ContentOf(call.message, i);
      driver.Write(AddressOf(rank, call.message), data.data(), bytes);
    });
  }

  // Checks what was received, and overwrites what was sent, as an application may.
  void Check(SoftDriver& driver, Stream stream, const Call& call, size_t rank) {
    const uint64_t bytes = program_.messages[call.message].bytes;
    driver.Kernel(stream, [this, &driver, call, rank, bytes] {
      std::vector<uint8_t> data(bytes, 0xDD);
      const DeviceAddress place = AddressOf(rank, call.message);
      if (call.role == Role::kSender) {
        driver.Write(place, data.data(), bytes);
        return;
      }
      driver.Read(place, data.data(), bytes);
      for (uint64_t i = 0; i < bytes; ++i) {
        if (data[i] == ContentOf(call.message, i)) continue;
        Trouble("message " + std::to_string(call.message) + ": byte " + std::to_string(i) + " of " +
                std::to_string(bytes) + " is wrong");
        return;
      }
    });
  }

  const Program& program_;
  const double possible_;
  const Policy policy_;
  const LaneSettings lane_settings_;
  SoftMachine machine_;
  std::vector<SoftDriver*> drivers_;
  std::vector<DeviceAddress> memory_;
  std::vector<std::vector<Stream>> streams_;
  std::map<std::tuple<size_t, size_t, size_t>, std::unique_ptr<SharedLane>> lanes_;
  std::vector<size_t> next_;            // by rank
  std::vector<char> busy_;              // by rank: it is inside a group
  std::vector<char> waits_;             // by rank: it waits for its stream
  std::vector<HelperStreams> helpers_;  // by rank
  std::mutex mutex_;
  std::map<Path, size_t> paths_;
  size_t full_ = 0;
  std::string trouble_;
};

// Runs a program in a random order. `possible`: the probability that a copy engine may carry a
// message; 0: NCCL carries all.
inline Ran RunProgram(const Program& program, Random& random, double possible,
                      const Policy& policy = kCopies, const LaneSettings& lanes = {}) {
  World world(program, possible, policy, lanes, 5);
  while (world.HasAnyNext()) {
    // Stuck: no rank and no operation can continue, and the program is not complete.
    if (!world.RunAny(random) && !world.machine().Step(random)) break;
    for (uint64_t i = random() % 30; i > 0; --i) world.machine().Step(random);
  }
  return world.Result(world.machine().Run(random) && !world.HasAnyNext());
}

// Does the same with a thread for each rank.
inline Ran RunProgramByThreads(const Program& program, uint64_t seed, double possible,
                               const Policy& policy = kCopies, const LaneSettings& lanes = {}) {
  World world(program, possible, policy, lanes, 2);
  world.machine().Start(2, seed);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < program.ranks; ++rank) {
    ranks.emplace_back([&world, seed, rank] {
      Random random(seed + rank);
      while (world.HasNext(rank)) {
        int moments = 20;
        world.RunNext(
            rank, random,
            [&](uint64_t) {
              std::this_thread::yield();
              return --moments > 0;
            },
            [] { std::this_thread::yield(); });
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return world.Result(world.machine().Finish());
}

// Checks that a program has ended well. Adds its paths to `paths`.
inline void ExpectWell(const Ran& ran, const Program& program, uint64_t seed,
                       std::map<Path, size_t>* paths = nullptr) {
  ASSERT_TRUE(ran.over) << "seed " << seed << "\n" << Words(program) << ran.trouble;
  ASSERT_EQ(ran.trouble, "") << "seed " << seed << "\n" << Words(program);
  if (paths == nullptr) return;
  for (const auto& [path, count] : ran.paths) (*paths)[path] += count;
}

}  // namespace nccltune::sendrecv
