// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/world.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

namespace nccltune::sendrecv {
namespace {

constexpr uint64_t kStaging = 2 * kEagerLimit;
constexpr uint64_t kLargest = 3 * kEagerLimit;
constexpr uint64_t kPlace = kLargest;
// The allocations of ranks are numbered from 1.
constexpr uint64_t kStagingNumber = 1000;
constexpr FifoSettings kFifo = {
    .buffer = 900, .steps = 3, .channels = 2, .chunk = 150, .least = kEagerLimit};

uint8_t ContentOf(size_t message, uint64_t byte) {
  return static_cast<uint8_t>(131 * message + 7 * byte + 1);
}

// What both sides of a lane have.
struct Lane {
  Lane() : native(kEagerLimit) {}
  std::unique_ptr<LaneMemory> memory = std::make_unique<LaneMemory>();
  NativeLane native;
  std::unique_ptr<LaneEnd> ends[2];
  std::unique_ptr<Staging> staging;
  std::unique_ptr<Fifo> fifos[2];
  Port ports[2];
};

// Others come in before each operation.
class Interrupted final : public Driver {
 public:
  Interrupted(Driver& driver, const std::function<void()>& pause)
      : driver_(driver), pause_(pause) {}

  Stream NewStream() override { return driver_.NewStream(); }
  void DeleteStream(Stream stream) override { driver_.DeleteStream(stream); }
  Event NewEvent() override { return driver_.NewEvent(); }
  void DeleteEvent(Event event) override { driver_.DeleteEvent(event); }
  bool Record(Event event, Stream stream) override {
    pause_();
    return driver_.Record(event, stream);
  }
  bool WaitEvent(Stream stream, Event event) override {
    pause_();
    return driver_.WaitEvent(stream, event);
  }
  bool Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) override {
    pause_();
    return driver_.Copy(stream, to, from, bytes);
  }
  bool WriteValue(Stream stream, Flag& flag, uint32_t value) override {
    pause_();
    return driver_.WriteValue(stream, flag, value);
  }
  bool WaitValue(Stream stream, Flag& flag, uint32_t value) override {
    pause_();
    return driver_.WaitValue(stream, flag, value);
  }
  bool Capturing(Stream stream) override { return driver_.Capturing(stream); }

 private:
  Driver& driver_;
  const std::function<void()>& pause_;
};

class World {
 public:
  World(const Program& program, double possible, const Policy& policy, const SoftOptions& options)
      : program_(program),
        possible_(possible),
        policy_(policy),
        machine_(options),
        next_(program.ranks),
        pauses_(program.ranks),
        busy_(program.ranks) {
    for (size_t rank = 0; rank < program.ranks; ++rank) {
      SoftDriver& driver = machine_.Open(static_cast<int>(rank));
      drivers_.push_back(&driver);
      memory_.push_back(driver.Allocate(program.messages.size() * kPlace));
      streams_.emplace_back();
      for (size_t i = 0; i < program.streams; ++i) {
        streams_.back().push_back(driver.NewStream());
        machine_.Name(streams_.back().back(),
                      "rank " + std::to_string(rank) + " stream " + std::to_string(i));
      }
    }
    for (const Sent& each : program.messages) MakeLane(each);
  }

  SoftMachine& machine() { return machine_; }

  // One rank's next group. `moment` and `pause` are for its wait for others. A graph runs once, at
  // once.
  void RunNext(size_t rank, Random& random, const std::function<bool(uint64_t)>& moment,
               const std::function<void()>& pause) {
    const Step& step = program_.steps[rank][next_[rank]++];
    pauses_[rank] = pause;
    SoftDriver& driver = *drivers_[rank];
    const Stream stream = streams_[rank][step.stream];
    std::vector<Message> messages;
    for (const Call& call : step.calls) {
      const Sent& sent = program_.messages[call.message];
      Prepare(driver, stream, call, rank);
      messages.push_back({.port = &Of(sent).ports[static_cast<size_t>(call.role)],
                          .address = Place(rank, call.message),
                          .bytes = sent.bytes,
                          .allocation = rank + 1,
                          .offset = call.message * kPlace,
                          .possible = std::bernoulli_distribution(possible_)(random),
                          .small = sent.bytes < kFloor,
                          .captured = sent.captured});
    }
    // As a communicator that does not block.
    const bool later = random() % 4 == 0;
    std::vector<NativeCall> calls;
    const auto native = [&] { return calls.empty() || NativeGroup(driver, stream, calls); };
    const Surroundings surroundings = {
        .policy = policy_,
        .moment = moment,
        .pause = pause,
        .capture =
            [&pause, left = 120]() mutable {
              pause();
              return --left > 0;
            },
        .native =
            [&](const std::vector<std::vector<size_t>>& which) {
              for (const size_t i : which[0]) {
                const Sent& sent = program_.messages[step.calls[i].message];
                calls.push_back({.lane = &Of(sent).native,
                                 .role = step.calls[i].role,
                                 .address = Place(rank, step.calls[i].message),
                                 .bytes = sent.bytes});
              }
              if (later) return Surroundings::Native::kInProgress;
              return native() ? Surroundings::Native::kDone : Surroundings::Native::kRefused;
            },
    };
    Interrupted interrupted(driver, pause);
    const Outcome outcome =
        RunGroup({{.messages = std::move(messages), .stream = stream, .driver = &interrupted}},
                 surroundings);
    if (outcome.rest) {
      pause();
      if (!native() || !outcome.rest()) Trouble("CUDA refused what comes behind NCCL's part");
    }
    if (!outcome.error.empty()) Trouble(outcome.error);
    {
      const std::scoped_lock lock(mutex_);
      for (const Outcome::Way& way : outcome.ways[0]) ++paths_[way.path];
    }
    for (const Call& call : step.calls) Check(driver, stream, call, rank);
  }

  // Of all streams, our own as well.
  bool Finish() {
    bool over = true;
    for (size_t rank = 0; rank < program_.ranks; ++rank) {
      for (const Stream stream : streams_[rank]) over &= drivers_[rank]->Synchronize(stream);
    }
    for (const auto& [key, lane] : lanes_) {
      for (const size_t side : {0U, 1U}) {
        SoftDriver& driver = *drivers_[side == 0 ? std::get<1>(key) : std::get<2>(key)];
        for (const Stream stream : lane->ports[side].streams) {
          over &= stream == nullptr || driver.Synchronize(stream);
        }
      }
    }
    return over;
  }

  bool HasNext(size_t rank) const { return next_[rank] < program_.steps[rank].size(); }

  // By chance a rank that is not in the middle of a group takes its next one. False: none can.
  bool RunAny(Random& random) {
    std::vector<size_t> able;
    for (size_t rank = 0; rank < program_.ranks; ++rank) {
      if (!busy_[rank] && HasNext(rank)) able.push_back(rank);
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
    std::ostringstream text;
    text << trouble_;
    for (const std::string& error : machine_.Errors()) text << error << "\n";
    if (!over) {
      for (const Waiting& waiting : machine_.Stuck()) text << waiting << "\n";
    }
    ran.trouble = text.str();
    return ran;
  }

  void Trouble(const std::string& what) {
    const std::scoped_lock lock(mutex_);
    trouble_ += what + "\n";
  }

 private:
  Lane& Of(const Sent& sent) { return *lanes_.at({sent.comm, sent.from, sent.to}); }
  DeviceAddress Place(size_t rank, size_t message) const {
    return memory_[rank] + message * kPlace;
  }

  void MakeLane(const Sent& sent) {
    auto& lane = lanes_[{sent.comm, sent.from, sent.to}];
    if (lane != nullptr) return;
    lane = std::make_unique<Lane>();
    DeviceAddress buffer = 0;
    for (const Role role : {Role::kSender, Role::kReceiver}) {
      const size_t mine = role == Role::kSender ? sent.from : sent.to;
      const size_t peer = role == Role::kSender ? sent.to : sent.from;
      SoftDriver& driver = *drivers_[mine];
      lane->ends[static_cast<size_t>(role)] = std::make_unique<LaneEnd>(*lane->memory, role);
      Port& port = lane->ports[static_cast<size_t>(role)];
      port.end = lane->ends[static_cast<size_t>(role)].get();
      port.streams[PlanStream::kToPeer] = driver.NewStream();
      port.name = "rank " + std::to_string(sent.from) + " to rank " + std::to_string(sent.to);
      machine_.Name(port.streams[PlanStream::kToPeer],
                    port.name + (role == Role::kSender ? ", sender" : ", receiver"));
      if (buffer == 0) buffer = drivers_[sent.to]->Allocate(kFifo.room());
      const DeviceAddress slots =
          role == Role::kReceiver ? buffer : driver.Import(*drivers_[sent.to], buffer);
      lane->fifos[static_cast<size_t>(role)] = std::make_unique<Fifo>(kFifo, slots);
      port.fifo = [fifo = lane->fifos[static_cast<size_t>(role)].get()] { return fifo; };
      const DeviceAddress base = driver.Import(*drivers_[peer], memory_[peer]);
      if (role == Role::kSender) {
        lane->staging = std::make_unique<Staging>(driver.Allocate(kStaging), kStaging);
        // As if others came just then: nothing that was seen of them before holds behind.
        port.staging = [this, mine, staging = lane->staging.get()] {
          pauses_[mine]();
          return staging;
        };
        // The peer has not mapped it when it is first asked for.
        port.staging_place = [asked = false]() mutable -> std::optional<sendrecv::Place> {
          if (!std::exchange(asked, true)) return std::nullopt;
          return sendrecv::Place{.allocation = kStagingNumber, .offset = 0};
        };
      }
      port.look = [] {};
      const DeviceAddress staging =
          role == Role::kReceiver ? driver.Import(*drivers_[peer], lane->staging->base()) : 0;
      port.resolve = [base, peer, staging](uint64_t allocation, uint64_t offset) {
        if (allocation == kStagingNumber) return staging + offset;
        return allocation == peer + 1 ? base + offset : 0;
      };
    }
  }

  // What the application computes into a buffer before it is sent, and has in it before it
  // receives.
  void Prepare(SoftDriver& driver, Stream stream, const Call& call, size_t rank) {
    const uint64_t bytes = program_.messages[call.message].bytes;
    const bool sends = call.role == Role::kSender;
    driver.Kernel(stream, [this, &driver, call, rank, bytes, sends] {
      std::vector<uint8_t> data(bytes, 0xEE);
      for (uint64_t i = 0; sends && i < bytes; ++i) data[i] = ContentOf(call.message, i);
      driver.Write(Place(rank, call.message), data.data(), bytes);
    });
  }

  // And after: what was received is right, what was sent is the application's to write.
  void Check(SoftDriver& driver, Stream stream, const Call& call, size_t rank) {
    const uint64_t bytes = program_.messages[call.message].bytes;
    driver.Kernel(stream, [this, &driver, call, rank, bytes] {
      std::vector<uint8_t> data(bytes, 0xDD);
      const DeviceAddress place = Place(rank, call.message);
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
  SoftMachine machine_;
  std::vector<SoftDriver*> drivers_;
  std::vector<DeviceAddress> memory_;
  std::vector<std::vector<Stream>> streams_;
  std::map<std::tuple<size_t, size_t, size_t>, std::unique_ptr<Lane>> lanes_;
  std::vector<size_t> next_;                   // by rank
  std::vector<std::function<void()>> pauses_;  // by rank: of its present group
  std::vector<char> busy_;                     // by rank: in the middle of a group
  std::mutex mutex_;
  std::map<Path, size_t> paths_;
  std::string trouble_;
};

SoftOptions OptionsFor(const Program& program) {
  SoftOptions options;
  options.gpus = static_cast<int>(program.ranks);
  options.delay_bits = 5;
  return options;
}

}  // namespace

Ran RunProgram(const Program& program, Random& random, double possible, const Policy& policy) {
  World world(program, possible, policy, OptionsFor(program));
  bool more = true;
  while (more) {
    more = world.RunAny(random);
    for (uint64_t i = random() % 30; i > 0; --i) world.machine().Step(random);
  }
  return world.Result(world.machine().Run(random));
}

Ran RunProgramByThreads(const Program& program, uint64_t seed, double possible,
                        const Policy& policy) {
  SoftOptions options = OptionsFor(program);
  options.delay_bits = 2;
  options.seed = seed;
  World world(program, possible, policy, options);
  world.machine().Start(2);
  world.machine().RunHosts(static_cast<int>(program.ranks), [&](int number) {
    const auto rank = static_cast<size_t>(number);
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
  return world.Result(world.Finish());
}

}  // namespace nccltune::sendrecv
