// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/group/communicator.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "common/content_hash.h"
#include "sendrecv/cuda/direct_access.h"
#include "sendrecv/log.h"

namespace nccltune::sendrecv {
namespace {

uint64_t HashSettings(const SendRecvOptions& options) {
  std::string text = options.dry_run ? "dry" : "";
  if (options.policy.graphs) text += " graphs";
  if (options.policy.kernel_waits) text += " kernels";
  if (options.verify) text += " verify";
  if (options.policy.vccl) text += vccl::SharedSettingsText(options.vccl);
  return ContentHash(text);
}

constexpr int kPolls = 10;
// How long a call waits until a peer knows its rank in a communicator that was split.
constexpr auto kRankWait = std::chrono::seconds(1);

}  // namespace

struct Communicator::Peer {
  // The lane to or from the peer, with this rank's resources for it.
  struct Direction {
    Direction(LaneMemory& lane, GateMemory& gate, Role role) : end(lane, gate, role) {}
    LaneEnd end;
    Port port;
    Sums* sums = nullptr;
    uint64_t checked = 0;  // number of messages compared
    // Address of the staging memory, or 0 if it is not allocated.
    DeviceAddress memory = 0;
    bool refused = false;
    std::optional<ExportedAddress> staging_address;  // set when the peer has mapped `memory`
    std::unique_ptr<Staging> staging;
    std::unique_ptr<vccl::LaneBuffer> buffer;  // null without the vccl policy
  };

  Peer(size_t at, const CudaDriver& driver, RankRecord& record, size_t mine,
       ImportedMemory::Kind kind, Inbox* inbox)
      : place(at), imported(driver, record, mine, kind, inbox, at) {}

  bool IsComplete(CudaDriver& driver) const {
    return std::ranges::all_of(directions, [&](const std::unique_ptr<Direction>& direction) {
      return direction == nullptr ||
             std::ranges::all_of(direction->port.streams, [&](Stream stream) {
               return stream == nullptr || driver.IsComplete(stream);
             });
    });
  }

  bool HasGraphs() const {
    return std::ranges::any_of(directions, [](const std::unique_ptr<Direction>& direction) {
      return direction != nullptr && direction->end.memory().graph_messages.load() != 0;
    });
  }

  bool HasUnreceivedSends() const {
    const std::unique_ptr<Direction>& direction = directions[static_cast<size_t>(Role::kSender)];
    return direction != nullptr && sendrecv::HasUnreceivedSends(direction->end.memory());
  }

  void FreeResources(CudaDriver* driver) const {
    for (const std::unique_ptr<Direction>& direction : directions) {
      if (direction == nullptr) continue;
      for (Stream stream : direction->port.streams) {
        if (stream != nullptr) driver->DeleteStream(stream);
      }
      for (Stream stream : direction->port.captured) driver->DeleteStream(stream);
      for (Event event : direction->port.joined) {
        if (event != nullptr) driver->DeleteEvent(event);
      }
      if (direction->port.forked != nullptr) driver->DeleteEvent(direction->port.forked);
      if (direction->buffer != nullptr) direction->buffer->Free();
      if (direction->memory != 0) driver->Free(direction->memory);
    }
  }

  size_t place;
  bool same_process = false;  // the peer's rank belongs to this process
  bool same_gpu = false;
  bool may_push = false;
  uint64_t floor = 0;
  ImportedMemory imported;
  std::array<std::unique_ptr<Direction>, 2> directions;  // by this rank's role
  std::array<bool, 2> unusable = {};                     // this rank cannot use the lane
};

Communicator::Communicator(std::string_view key, const SendRecvOptions& options)
    : key_(key), options_(options) {}

std::shared_ptr<Communicator> Communicator::Join(std::string_view key, int rank,
                                                 const SendRecvOptions& options, std::string* why) {
  *why = WhyNoDirectAccess();
  if (!why->empty()) return nullptr;
  std::shared_ptr<Communicator> made(new Communicator(key, options));
  const cu::Api* const api = OpenCuda(why);
  if (api == nullptr) return nullptr;
  made->driver_ = CudaDriver::OfCurrent(*api, why);
  if (made->driver_ == nullptr) return nullptr;
  if (options.policy.kernel_waits && !made->driver_->LoadKernels(why)) return nullptr;
  made->enqueued_work_ = std::make_unique<EnqueuedWork>(*made->driver_);
  made->waiting_streams_ = std::make_unique<WaitingStreams>(made->driver_->context());
  made->segment_ = Segment::Open(key, why);
  if (made->segment_ == nullptr) return nullptr;
  const auto place = made->segment_->Join(why);
  if (!place) return nullptr;
  made->place_ = *place;
  RankRecord& record = made->segment_->memory().records[*place];
  record.rank.store(rank);
  record.protocol = RankRecord::kProtocol;
  record.process = ThisProcess();
  record.host = ThisHost();
  record.context = reinterpret_cast<uint64_t>(made->driver_->context());
  record.gpu = made->driver_->uuid();
  record.settings_hash = HashSettings(options);
  record.from = options.from;
  made->mailbox_ = Mailbox::Open(*made->segment_);
  if (made->mailbox_ != nullptr) {
    record.mailbox = made->mailbox_->token();
    made->inbox_ =
        std::make_unique<Inbox>(*made->driver_, made->segment_->memory(), *made->mailbox_);
  }
  made->exported_ =
      std::make_unique<ExportedMemory>(*made->driver_, record, made->mailbox_.get(), *place);
  record.state.store(RankRecord::kJoined);
  if (options.verify) {
    Communicator* const communicator = made.get();
    made->verifier_ =
        std::make_unique<Verifier>(*made->driver_, [communicator](const std::string& what) {
          Warn(what);
          const std::scoped_lock lock(communicator->lanes_mutex_);
          communicator->Fail(what, abi::kInternalError);
        });
  }
  return made;
}

// At this point Close has freed everything and `segment_` is null, or NCCL has not created the
// communicator.
Communicator::~Communicator() {
  if (segment_ == nullptr) return;
  if (exported_ != nullptr) segment_->memory().records[place_].state.store(RankRecord::kLeft);
  // NCCL failed to create the communicator, so Begin has not removed the file's name. This rank may
  // be the last one that can remove the name.
  if (rank_.load() < 0) segment_->Unlink();
}

void Communicator::Begin(int rank) {
  segment_->Unlink();
  rank_.store(rank);
  segment_->memory().records[place_].rank.store(rank);
}

int Communicator::RankAt(size_t place) {
  const RankRecord& record = segment_->memory().records[place];
  const RankRecord& mine = segment_->memory().records[place_];
  // After a split the peer does not know its rank until NCCL has created the communicator in the
  // peer's process. Wait until then, or until the peer has left or ended or this communicator is
  // abandoned. NCCL does not wait for a peer that is stopped, so the wait is short.
  const auto until = Clock::now() + kRankWait;
  while (record.rank.load() < 0 && record.state.load() == RankRecord::kJoined &&
         (left_places_ & PlaceBit(place)) == 0 && segment_->IsAlive(place) &&
         mine.abandoned.load() == 0) {
    if (Clock::now() > until) LeavePlaceToNccl(place);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return record.rank.load();
}

// NCCL carries all messages with the rank at that place, also when the rank is known later.
void Communicator::LeavePlaceToNccl(size_t place) {
  left_places_ |= PlaceBit(place);
  Gate(segment_->GateOf(place_, place), Role::kSender).CloseForGood(true);
  Gate(segment_->GateOf(place, place_), Role::kReceiver).CloseForGood(true);
}

std::unique_ptr<Communicator::Peer> Communicator::ConnectPeer(int rank) {
  for (size_t place = 0; place < segment_->places(); ++place) {
    if (segment_->memory().records[place].state.load() == RankRecord::kEmpty) continue;
    if (place != place_ && RankAt(place) == rank) return ConnectPeerAt(rank, place);
  }
  return nullptr;
}

std::unique_ptr<Communicator::Peer> Communicator::ConnectPeerAt(int rank, size_t place) {
  RankRecord& record = segment_->memory().records[place];
  const std::string who = "rank " + std::to_string(rank);
  if (record.protocol != RankRecord::kProtocol) {
    Info("NCCL carries all messages to and from " + who + ": it runs another release of nccltune");
    return nullptr;
  }
  if (record.host != ThisHost()) {
    Info("NCCL carries all messages to and from " + who + ": it has another NCCL_HOSTID");
    return nullptr;
  }
  if (record.settings_hash != HashSettings(options_)) {
    Warn("NCCL carries all messages to and from " + who +
         ": its NCCLTUNE_SENDRECV settings differ");
    return nullptr;
  }
  const bool same_process = record.process == ThisProcess() && record.process != ProcessToken{};
  const DirectAccess access =
      AccessTo(driver_->api(), driver_->device(), driver_->uuid(),
               {.uuid = record.gpu, .same_process = same_process}, options_.any_hardware);
  if (!access.refused.empty()) {
    Warn("NCCL carries messages between GPUs: " + access.refused);
    return nullptr;
  }
  auto kind = ImportedMemory::Kind::kByHandle;
  if (same_process) {
    const auto context = reinterpret_cast<cu::Context>(record.context);
    kind =
        driver_->EnablePeer(context) ? ImportedMemory::Kind::kDirect : ImportedMemory::Kind::kNone;
  }
  if (kind == ImportedMemory::Kind::kNone) Info("no peer access to the GPU of " + who);
  auto peer = std::make_unique<Peer>(place, *driver_, record, place_, kind, inbox_.get());
  peer->same_process = same_process;
  peer->may_push = access.may_push;
  peer->same_gpu = std::memcmp(&record.gpu, &driver_->uuid(), sizeof(record.gpu)) == 0;
  peer->floor = std::min(options_.from, record.from);
  return peer;
}

Communicator::Peer* Communicator::FindPeer(int rank) {
  const auto known = peers_.find(rank);
  if (known != peers_.end()) return known->second.get();
  std::unique_ptr<Peer>& peer = peers_[rank];
  peer = ConnectPeer(rank);
  if (peer != nullptr) {
    enqueued_work_->TrackPeer(rank);
    const std::scoped_lock lock(lanes_mutex_);
    watched_[rank].place = peer->place;
    watched_[rank].last_alive = Clock::now();
  }
  return peer.get();
}

uint64_t Communicator::FloorOf(int peer) {
  const Peer* const found = FindPeer(peer);
  return found == nullptr ? UINT64_MAX : found->floor;
}

// Reserves connections for the streams of a lane that may wait: see PlanStream::Kind.
bool Communicator::ReserveStreams(Role role) {
  const Policy& policy = options_.policy;
  if (options_.connections == 0 || policy.kernel_waits) return true;
  size_t streams = policy.vccl ? options_.vccl.channels : 1;
  if (role == Role::kSender && !policy.vccl && policy.eager_limit != 0) ++streams;
  if (!policy.vccl && policy.piece != 0) streams += 2;
  return waiting_streams_->Reserve(streams, options_.connections);
}

Port* Communicator::FindPort(int rank, Role role, bool make) {
  Peer* const peer = FindPeer(rank);
  if (peer == nullptr) return nullptr;
  std::unique_ptr<Peer::Direction>& direction = peer->directions[static_cast<size_t>(role)];
  bool& unusable = peer->unusable[static_cast<size_t>(role)];
  if (direction != nullptr) return &direction->port;
  if (!make || unusable) return nullptr;
  const bool sends = role == Role::kSender;
  const size_t from = sends ? place_ : peer->place;
  const size_t to = sends ? peer->place : place_;
  GateMemory& gate = segment_->GateOf(from, to);
  std::string why;
  Segment::LaneMapping lane;
  if (!ReserveStreams(role)) {
    why = "too few connections to the GPU are left for more streams that wait";
  } else if (driver_->Reserve()) {
    lane = segment_->MapLane(*driver_, from, to,
                             {.graphs = options_.policy.graphs, .sums = options_.verify}, &why);
  } else {
    why = "CUDA refused a stream or an event";
  }
  if (lane.memory == nullptr) {
    // Close the gate, which is in memory that every rank has mapped. So the peer leaves the
    // messages to NCCL as well.
    unusable = true;
    Gate(gate, role).CloseForGood(true);
    if (why.empty()) return nullptr;
    Info("NCCL carries all messages " + std::string(sends ? "sent to" : "received from") +
         " rank " + std::to_string(rank) + ": " + why);
    return nullptr;
  }
  direction = std::make_unique<Peer::Direction>(*lane.memory, gate, role);
  Peer::Direction* const made = direction.get();
  made->sums = lane.sums;
  made->port.end = &made->end;
  made->port.resolve = [peer](uint64_t allocation, uint64_t offset, uint64_t bytes) {
    return peer->imported.Resolve(allocation, offset, bytes);
  };
  made->port.map_new = [peer] { peer->imported.Update([] { return false; }); };
  made->port.same_process = peer->same_process;
  made->port.same_gpu = peer->same_gpu;
  made->port.may_push = peer->may_push;
  const std::string mine = "rank " + std::to_string(rank_.load());
  const std::string other = "rank " + std::to_string(rank);
  made->port.name = sends ? mine + " to " + other : other + " to " + mine;
  made->port.staging = [this, made]() -> Staging* {
    const uint64_t bytes = options_.policy.eager_limit;
    if (made->staging == nullptr && !made->refused && bytes != 0) {
      made->memory = driver_->Allocate(bytes);
      made->refused = made->memory == 0;
      if (made->refused) {
        Warn("cannot allocate " + std::to_string(bytes) +
             " bytes of staging memory: sends now wait for their receives");
      } else {
        made->staging = std::make_unique<Staging>(made->memory, bytes);
      }
    }
    return made->staging.get();
  };
  made->port.staging_address = [this, made, peer]() -> std::optional<ExportedAddress> {
    if (made->staging_address || made->port.staging() == nullptr) return made->staging_address;
    const ExportLookup found =
        exported_->Find(made->memory, options_.policy.eager_limit, peer->place);
    if (found.status == ExportStatus::kMapped) {
      made->staging_address = {.allocation = found.number, .offset = found.offset};
    }
    return made->staging_address;
  };
  if (options_.policy.vccl) {
    made->buffer = std::make_unique<vccl::LaneBuffer>(
        options_.vccl, lane.memory->vccl, role,
        vccl::LaneBuffer::Memory{
            .driver = *driver_, .exported = *exported_, .imported = peer->imported},
        rank, peer->place);
    made->port.channels = [made] { return made->buffer->channels(); };
  }
  enqueued_work_->Forget();
  const std::scoped_lock lock(lanes_mutex_);
  watched_.at(rank).lanes.emplace_back(lane.memory, made->port.name);
  return &made->port;
}

Communicator::Checked Communicator::NextChecked(int peer, Role role) {
  Peer::Direction& direction = *peers_.at(peer)->directions[static_cast<size_t>(role)];
  // After a captured message the lane is closed, and the two sides would count differently. So
  // messages of a closed lane are not compared.
  if (verifier_ == nullptr || direction.end.closed()) return {};
  return {.verifier = verifier_.get(), .sums = direction.sums, .number = ++direction.checked};
}

void Communicator::MapPeerMemory(int peer, const std::function<bool()>& is_idle) {
  peers_.at(peer)->imported.Update(is_idle);
}

bool Communicator::GiveBackMemory() {
  if (segment_ == nullptr || driver_->IsContextReset()) return false;
  exported_->CheckFreed();
  exported_->WithdrawStale([this](uint64_t number) { return IsInUse(number); });
  bool waiting = false;
  for (const auto& [rank, peer] : peers_) {
    if (peer != nullptr && peer->imported.UnmapWithdrawn()) waiting = true;
  }
  return waiting;
}

void Communicator::CloseWithdrawn() {
  for (const auto& [rank, peer] : peers_) {
    if (peer != nullptr) peer->imported.CloseWithdrawn();
  }
}

bool Communicator::IsInUse(uint64_t allocation) const {
  return std::ranges::any_of(peers_, [&](const auto& each) {
    return each.second != nullptr &&
           std::ranges::any_of(each.second->directions,
                               [&](const std::unique_ptr<Peer::Direction>& direction) {
                                 if (direction == nullptr) return false;
                                 if (direction->end.IsInGraph(allocation)) return true;
                                 const auto mine = static_cast<size_t>(direction->end.role());
                                 return std::ranges::any_of(
                                     direction->end.memory().slots, [&](const MessageSlot& slot) {
                                       return !sendrecv::IsComplete(slot) &&
                                              slot.halves[mine].allocation == allocation;
                                     });
                               });
  });
}

void Communicator::WithdrawStale() {
  if (!peers_.empty()) driver_->Reserve();
  exported_->WithdrawStale([this](uint64_t number) { return IsInUse(number); });
}

ExportLookup Communicator::FindMemory(int peer, Role role, DeviceAddress address, uint64_t bytes) {
  const Peer& other = *peers_.at(peer);
  const Peer::Direction& direction = *other.directions[static_cast<size_t>(role)];
  if (direction.buffer != nullptr) return direction.buffer->Find();
  return exported_->Find(address, bytes, other.place);
}

bool Communicator::JoinStreams(const std::vector<Stream>& streams) {
  while (join_events_.size() < streams.size()) {
    join_events_.push_back(driver_->NewEvent());
    if (join_events_.back() == nullptr) return false;
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    if (!driver_->Record(join_events_[i], streams[i])) return false;
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    for (size_t k = 0; k < streams.size(); ++k) {
      if (i != k && !driver_->WaitEvent(streams[i], join_events_[k])) return false;
    }
  }
  return true;
}

bool Communicator::HasUnreceivedSends(const Peer& peer) const {
  return segment_->memory().records[peer.place].state.load() == RankRecord::kJoined &&
         peer.HasUnreceivedSends();
}

bool Communicator::HasUnreceivedSends(std::chrono::steady_clock::time_point limit) {
  const std::unique_lock lock(mutex_, limit);
  return lock.owns_lock() && segment_ != nullptr &&
         std::ranges::any_of(peers_, [&](const auto& each) {
           return each.second != nullptr && HasUnreceivedSends(*each.second);
         });
}

bool Communicator::IsIdle(std::span<const Stream> streams) {
  const bool graphs = std::ranges::any_of(
      peers_, [](const auto& each) { return each.second != nullptr && each.second->HasGraphs(); });
  // A graph may run at any time, so a communicator with graphs is never idle.
  if (graphs) return false;
  if (!enqueued_work_->EnsureEvents(streams)) return false;
  // Even in an idle stream an event takes some microseconds to complete, so poll a few times.
  for (int times = 0; times < kPolls; ++times) {
    if (EverythingIsComplete()) return true;
  }
  return false;
}

bool Communicator::EverythingIsComplete() {
  return enqueued_work_->IsComplete() && helpers_.AreComplete(*driver_) &&
         std::ranges::all_of(peers_, [&](const auto& each) {
           return each.second == nullptr ||
                  (each.second->IsComplete(*driver_) && !HasUnreceivedSends(*each.second));
         });
}

bool Communicator::Close(std::chrono::steady_clock::time_point limit) {
  const std::unique_lock lock(mutex_, limit);
  if (!lock.owns_lock()) return false;
  if (segment_ == nullptr) return true;
  if (!EverythingIsComplete()) return false;
  for (const auto& [rank, peer] : peers_) {
    if (peer != nullptr) peer->FreeResources(driver_.get());
  }
  for (Event event : join_events_) driver_->DeleteEvent(event);
  join_events_.clear();
  helpers_.Delete(*driver_);
  peers_.clear();
  exported_.reset();
  verifier_.reset();
  // Before the mailbox is closed: see Mailbox::Open.
  segment_->memory().records[place_].state.store(RankRecord::kLeft);
  inbox_.reset();
  mailbox_.reset();
  waiting_streams_.reset();
  enqueued_work_->Clear();
  driver_->FreeSpares();
  const std::scoped_lock lanes(lanes_mutex_);
  watched_.clear();
  segment_.reset();
  return true;
}

}  // namespace nccltune::sendrecv
