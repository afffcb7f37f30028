// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "common/content_hash.h"
#include "sendrecv/say.h"

namespace nccltune::sendrecv {
namespace {

uint64_t AgreementOf(const Options& options) {
  std::string text = options.dry_run ? "dry" : "";
  if (options.policy.graphs) text += " graphs";
  if (options.verify) text += " verify";
  if (options.policy.fifo) {
    const FifoSettings& fifo = options.fifo;
    for (const uint64_t number : {fifo.buffer, fifo.steps, fifo.channels, fifo.chunk}) {
      text += " " + std::to_string(number);
    }
  }
  return ContentHash(text);
}

constexpr int kLooks = 10;
// Streams that wait for a peer that is gone go on then, with bytes that never came. Who asks for
// errors has learned of it long before and given up.
constexpr auto kRelease = std::chrono::seconds(10);

// Another process's GPU may be out of sight; then mapping its memory will tell.
bool CanReach(const cu::Api& api, const cu::Uuid& from, const cu::Uuid& to) {
  int count = 0;
  std::optional<cu::Device> here;
  std::optional<cu::Device> there;
  if (api.DeviceGetCount(&count) != cu::kSuccess) return false;
  for (int i = 0; i < count; ++i) {
    cu::Device device = 0;
    cu::Uuid uuid = {};
    if (api.DeviceGet(&device, i) != cu::kSuccess) continue;
    if (api.DeviceGetUuid(&uuid, device) != cu::kSuccess) continue;
    if (std::memcmp(&uuid, &from, sizeof(uuid)) == 0) here = device;
    if (std::memcmp(&uuid, &to, sizeof(uuid)) == 0) there = device;
  }
  if (!here || !there || *here == *there) return true;
  int can = 0;
  return api.DeviceCanAccessPeer(&can, *here, *there) == cu::kSuccess && can != 0;
}

}  // namespace

struct Communicator::Peer {
  // One direction.
  struct Way {
    Way(LaneMemory& lane, Role role) : end(lane, role) {}
    LaneEnd end;
    Port port;
    Sums* sums = nullptr;
    uint64_t checked = 0;  // messages
    // For staging.
    DeviceAddress memory = 0;
    bool refused = false;
    std::optional<Place> place;  // as the peer knows it
    std::unique_ptr<Staging> staging;
    // The receiver's.
    DeviceAddress buffer = 0;
    bool no_buffer = false;
    std::unique_ptr<Fifo> fifo;
  };

  Peer(size_t at, const CudaDriver& driver, Card& card, size_t mine, Imports::Kind kind,
       Inbox* inbox)
      : place(at), imports(driver, card, mine, kind, inbox, at) {}

  bool IsOver(CudaDriver& driver) const {
    return std::ranges::all_of(ways, [&](const std::unique_ptr<Way>& way) {
      return way == nullptr || std::ranges::all_of(way->port.streams, [&](Stream stream) {
               return stream == nullptr || driver.IsOver(stream);
             });
    });
  }

  bool HasGraphs() const {
    return std::ranges::any_of(ways, [](const std::unique_ptr<Way>& way) {
      return way != nullptr && way->end.memory().graphs.load() != 0;
    });
  }

  bool HasSent() const {
    const std::unique_ptr<Way>& way = ways[static_cast<size_t>(Role::kSender)];
    return way != nullptr && sendrecv::HasSent(way->end.memory());
  }

  void GiveBack(CudaDriver* driver) const {
    for (const std::unique_ptr<Way>& way : ways) {
      if (way == nullptr) continue;
      for (Stream stream : way->port.streams) {
        if (stream != nullptr) driver->DeleteStream(stream);
      }
      for (Stream stream : way->port.captured) driver->DeleteStream(stream);
      for (Event event : way->port.joined) {
        if (event != nullptr) driver->DeleteEvent(event);
      }
      if (way->port.forked != nullptr) driver->DeleteEvent(way->port.forked);
      if (way->buffer != 0) driver->Free(way->buffer);
      if (way->memory != 0) driver->Free(way->memory);
    }
  }

  size_t place;
  uint64_t floor = 0;
  Imports imports;
  std::array<std::unique_ptr<Way>, 2> ways;  // by our role
};

Communicator::Communicator(std::string_view key, const Options& options)
    : key_(key), options_(options) {}

std::shared_ptr<Communicator> Communicator::Join(std::string_view key, int rank,
                                                 const Options& options, std::string* why) {
  std::shared_ptr<Communicator> made(new Communicator(key, options));
  const cu::Api* const api = cu::Open(why);
  if (api == nullptr) return nullptr;
  made->driver_ = CudaDriver::OfCurrent(*api, why);
  if (made->driver_ == nullptr) return nullptr;
  made->underway_ = std::make_unique<Underway>(*made->driver_);
  made->segment_ = Segment::Open(key, why);
  if (made->segment_ == nullptr) return nullptr;
  const auto place = made->segment_->Join(why);
  if (!place) return nullptr;
  made->place_ = *place;
  Card& card = made->segment_->memory().cards[*place];
  card.rank.store(rank);
  card.process = getpid();
  card.context = reinterpret_cast<uint64_t>(made->driver_->context());
  card.gpu = made->driver_->uuid();
  card.agreement = AgreementOf(options);
  card.from = options.from;
  made->mailbox_ = Mailbox::Open(made->segment_->name(), *place);
  if (made->mailbox_ != nullptr) {
    made->inbox_ =
        std::make_unique<Inbox>(*made->driver_, made->segment_->memory(), *made->mailbox_);
  }
  made->offers_ = std::make_unique<Offers>(*made->driver_, card, made->mailbox_.get(), *place);
  card.state.store(Card::kHere);
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

// NCCL did not make it, or it was closed.
Communicator::~Communicator() {
  if (segment_ == nullptr) return;
  if (offers_ != nullptr) segment_->memory().cards[place_].state.store(Card::kLeft);
  // Nobody else may be left to do it.
  if (rank_.load() < 0) segment_->Unlink();
}

void Communicator::Begin(int rank) {
  segment_->Unlink();
  rank_.store(rank);
  segment_->memory().cards[place_].rank.store(rank);
}

int Communicator::RankAt(size_t place) {
  const Card& card = segment_->memory().cards[place];
  const Card& mine = segment_->memory().cards[place_];
  // Whoever split a communicator with us knows its rank in a moment, too.
  while (card.rank.load() < 0 && card.state.load() == Card::kHere && segment_->Lives(place) &&
         mine.gave_up.load() == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return card.rank.load();
}

std::unique_ptr<Communicator::Peer> Communicator::Meet(int rank) {
  for (size_t place = 0; place < segment_->places(); ++place) {
    if (segment_->memory().cards[place].state.load() == Card::kNobody) continue;
    if (place != place_ && RankAt(place) == rank) return PeerAt(rank, place);
  }
  return nullptr;
}

std::unique_ptr<Communicator::Peer> Communicator::PeerAt(int rank, size_t place) {
  Card& card = segment_->memory().cards[place];
  const std::string who = "rank " + std::to_string(rank);
  if (card.agreement != AgreementOf(options_)) {
    Warn("NCCL carries all to and from " + who + ": its NCCLTUNE_SENDRECV settings are others");
    return nullptr;
  }
  auto kind = Imports::Kind::kByHandle;
  if (card.process == getpid()) {
    const auto context = reinterpret_cast<cu::Context>(card.context);
    kind = driver_->EnablePeer(context) ? Imports::Kind::kDirect : Imports::Kind::kNone;
  } else if (!CanReach(driver_->api(), driver_->uuid(), card.gpu)) {
    kind = Imports::Kind::kNone;
  }
  if (kind == Imports::Kind::kNone) Info("no peer access to the GPU of " + who);
  auto peer = std::make_unique<Peer>(place, *driver_, card, place_, kind, inbox_.get());
  peer->floor = std::min(options_.from, card.from);
  return peer;
}

Communicator::Peer* Communicator::FindPeer(int rank) {
  const auto known = peers_.find(rank);
  if (known != peers_.end()) return known->second.get();
  std::unique_ptr<Peer>& peer = peers_[rank];
  peer = Meet(rank);
  if (peer != nullptr) {
    underway_->Meet(rank);
    const std::scoped_lock lock(lanes_mutex_);
    watched_[rank].place = peer->place;
  }
  return peer.get();
}

uint64_t Communicator::FloorOf(int peer) {
  const Peer* const found = FindPeer(peer);
  return found == nullptr ? UINT64_MAX : found->floor;
}

Port* Communicator::FindPort(int rank, Role role, bool make) {
  Peer* const peer = FindPeer(rank);
  if (peer == nullptr) return nullptr;
  std::unique_ptr<Peer::Way>& way = peer->ways[static_cast<size_t>(role)];
  if (way != nullptr || !make) return way == nullptr ? nullptr : &way->port;
  const bool sends = role == Role::kSender;
  bool failed = false;
  const Segment::LanePlace lane =
      segment_->Lane(*driver_, sends ? place_ : peer->place, sends ? peer->place : place_, &failed);
  if (lane.memory == nullptr) {
    // The peer has the same verdict, or none can go on.
    if (failed) {
      Break("no shared memory for the messages of rank " + std::to_string(rank));
    } else {
      Warn("NCCL carries all to and from rank " + std::to_string(rank) +
           ": no shared memory that the GPU can reach");
    }
    return nullptr;
  }
  way = std::make_unique<Peer::Way>(*lane.memory, role);
  Peer::Way* const made = way.get();
  made->sums = lane.sums;
  made->port.end = &made->end;
  made->port.resolve = [peer](uint64_t allocation, uint64_t offset) {
    return peer->imports.Resolve(allocation, offset);
  };
  made->port.look = [peer] { peer->imports.Look([] { return false; }); };
  made->port.nearby = segment_->memory().cards[peer->place].process == getpid();
  const std::string mine = "rank " + std::to_string(rank_.load());
  const std::string other = "rank " + std::to_string(rank);
  made->port.name = sends ? mine + " to " + other : other + " to " + mine;
  made->port.staging = [this, made]() -> Staging* {
    const uint64_t bytes = options_.policy.eager_limit;
    if (made->staging == nullptr && !made->refused && bytes != 0) {
      made->memory = driver_->Allocate(bytes);
      made->refused = made->memory == 0;
      if (made->refused) {
        Warn("no memory for sends that come before their receives (" + std::to_string(bytes) +
             " bytes): they wait for them");
      } else {
        made->staging = std::make_unique<Staging>(made->memory, bytes);
      }
    }
    return made->staging.get();
  };
  made->port.staging_place = [this, made, peer]() -> std::optional<Place> {
    if (made->place || made->port.staging() == nullptr) return made->place;
    const Found found = offers_->Find(made->memory, options_.policy.eager_limit, peer->place);
    if (found.reach == Reach::kReached) {
      made->place = {.allocation = found.number, .offset = found.offset};
    }
    return made->place;
  };
  made->port.fifo = [made] { return made->fifo.get(); };
  underway_->Forget();
  const std::scoped_lock lock(lanes_mutex_);
  watched_.at(rank).lanes.emplace_back(lane.memory, made->port.name);
  return &made->port;
}

Communicator::Checked Communicator::NextChecked(int peer, Role role) {
  Peer::Way& way = *peers_.at(peer)->ways[static_cast<size_t>(role)];
  // Behind a captured message the two sides do not count alike.
  if (verifier_ == nullptr || way.end.closed()) return {};
  return {.verifier = verifier_.get(), .sums = way.sums, .number = ++way.checked};
}

void Communicator::LookAt(int peer, const std::function<bool()>& quiet) {
  peers_.at(peer)->imports.Look(quiet);
}

bool Communicator::IsInUse(uint64_t allocation) const {
  return std::ranges::any_of(peers_, [&](const auto& each) {
    return each.second != nullptr &&
           std::ranges::any_of(each.second->ways, [&](const std::unique_ptr<Peer::Way>& way) {
             if (way == nullptr) return false;
             const auto mine = static_cast<size_t>(way->end.role());
             return std::ranges::any_of(way->end.memory().slots, [&](const Slot& slot) {
               return !sendrecv::IsOver(slot) && slot.halves[mine].allocation == allocation;
             });
           });
  });
}

void Communicator::Tidy() {
  offers_->Tidy([this](uint64_t number) { return IsInUse(number); });
}

Found Communicator::FindShare(int peer, DeviceAddress address, uint64_t bytes) {
  return offers_->Find(address, bytes, peers_.at(peer)->place);
}

Found Communicator::FindFifo(int peer, Role role) {
  Peer& other = *peers_.at(peer);
  Peer::Way& way = *other.ways[static_cast<size_t>(role)];
  std::atomic<uint64_t>& number = way.end.memory().fifo;
  if (role == Role::kSender) {
    const DeviceAddress base = other.imports.Resolve(number.load(), 0);
    if (base == 0) return {.reach = Reach::kNotYet};
    if (way.fifo == nullptr) way.fifo = std::make_unique<Fifo>(options_.fifo, base);
    return {.reach = Reach::kReached, .number = number.load(), .offset = 0};
  }
  if (way.fifo == nullptr && !way.no_buffer) {
    way.buffer = driver_->Allocate(options_.fifo.room());
    way.no_buffer = way.buffer == 0;
    if (way.no_buffer) {
      Warn("no memory for a buffer of " + std::to_string(options_.fifo.room()) +
           " bytes: NCCL carries what is received from rank " + std::to_string(peer));
    } else {
      way.fifo = std::make_unique<Fifo>(options_.fifo, way.buffer);
    }
  }
  if (way.no_buffer) return {.reach = Reach::kNoMemory};
  const Found found = offers_->Find(way.buffer, options_.fifo.room(), other.place);
  if (found.reach == Reach::kNotYet || found.reach == Reach::kReached) number.store(found.number);
  return found;
}

bool Communicator::Tie(const std::vector<Stream>& streams) {
  while (ties_.size() < streams.size()) {
    ties_.push_back(driver_->NewEvent());
    if (ties_.back() == nullptr) return false;
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    if (!driver_->Record(ties_[i], streams[i])) return false;
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    for (size_t k = 0; k < streams.size(); ++k) {
      if (i != k && !driver_->WaitEvent(streams[i], ties_[k])) return false;
    }
  }
  return true;
}

bool Communicator::HasSent(const Peer& peer) const {
  return segment_->memory().cards[peer.place].state.load() == Card::kHere && peer.HasSent();
}

bool Communicator::HasSent() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && segment_ != nullptr &&
         std::ranges::any_of(peers_, [&](const auto& each) {
           return each.second != nullptr && HasSent(*each.second);
         });
}

bool Communicator::IsQuiet(std::span<const Stream> streams) {
  const bool graphs = std::ranges::any_of(
      peers_, [](const auto& each) { return each.second != nullptr && each.second->HasGraphs(); });
  // When they run nobody knows.
  if (graphs) return false;
  if (!underway_->HasEvents(streams)) return false;
  // An event takes some microseconds in a stream that has nothing else to do.
  for (int times = 0; times < kLooks; ++times) {
    if (EverythingIsOver()) return true;
  }
  return false;
}

bool Communicator::EverythingIsOver() {
  return underway_->IsOver() && std::ranges::all_of(peers_, [&](const auto& each) {
           return each.second == nullptr ||
                  (each.second->IsOver(*driver_) && !HasSent(*each.second));
         });
}

bool Communicator::Close() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (segment_ == nullptr) return true;
  if (!EverythingIsOver()) return false;
  for (const auto& [rank, peer] : peers_) {
    if (peer != nullptr) peer->GiveBack(driver_.get());
  }
  for (Event event : ties_) driver_->DeleteEvent(event);
  ties_.clear();
  peers_.clear();
  offers_.reset();
  verifier_.reset();
  inbox_.reset();
  mailbox_.reset();
  underway_->Clear();
  const std::scoped_lock lanes(lanes_mutex_);
  watched_.clear();
  segment_->memory().cards[place_].state.store(Card::kLeft);
  segment_.reset();
  return true;
}

void Communicator::Fail(const std::string& why, nccl::Result result) {
  if (failure_.why.empty()) failure_ = {.why = why, .result = result};
  troubled_.store(true);
}

void Communicator::Break(const std::string& why) {
  const std::scoped_lock lock(lanes_mutex_);
  Fail(why, abi::kRemoteError);
  if (segment_ == nullptr) return;
  segment_->memory().cards[place_].gave_up.store(1);
  for (auto& [rank, peer] : watched_) Release(peer);
}

void Communicator::Release(Watched& peer) {
  peer.released = true;
  for (const auto& [lane, name] : peer.lanes) {
    LaneEnd(*lane, Role::kSender).Break(HasOpen(*lane));
  }
}

bool Communicator::HasGone(const Watched& peer, bool processes, std::string* why) {
  const Card& card = segment_->memory().cards[peer.place];
  if (card.gave_up.load() != 0 || std::ranges::any_of(peer.lanes, [](const auto& lane) {
        return lane.first->broken.load() != LaneMemory::kWhole;
      })) {
    *why = " has given the communicator up";
    return true;
  }
  if (!processes || segment_->Lives(peer.place)) return false;
  *why = " has ended";
  return true;
}

// Who gives a communicator up, or whose process ends, may have done all that there was to do: then
// there is nothing to complain of.
void Communicator::LookAfter(bool processes) {
  if (segment_ == nullptr || !failure_.why.empty()) return;
  for (auto& [rank, peer] : watched_) {
    std::string why;
    if (!peer.gone.empty() || !HasGone(peer, processes, &why)) continue;
    peer.gone = "rank " + std::to_string(rank);
    peer.gone += why;
    peer.at = Clock::now();
    troubled_.store(true);
    underway_->Gone(rank);
    bool open = false;
    for (const auto& [lane, name] : peer.lanes) {
      open = open || lane->broken.load() == LaneMemory::kOpen || HasOpen(*lane);
      LaneEnd(*lane, Role::kSender).GiveUp(open);
      const std::string differs = FindDisagreement(*lane);
      if (!differs.empty()) {
        Fail(std::string(name).append(": ").append(differs), abi::kInvalidUsage);
      }
    }
    if (open) Fail(peer.gone, abi::kRemoteError);
  }
}

void Communicator::Watch() {
  const std::scoped_lock lock(lanes_mutex_);
  LookAfter(true);
  const auto now = Clock::now();
  const bool late = std::ranges::any_of(watched_, [&](const auto& each) {
    return !each.second.gone.empty() && now - each.second.at > kRelease;
  });
  const bool counted = options_.policy.fifo || options_.policy.graphs;
  for (auto& [rank, peer] : watched_) {
    const bool waits = !failure_.why.empty() || !peer.gone.empty();
    if (late && waits && !peer.released) Release(peer);
    if (!counted || !peer.released) continue;
    for (const auto& [lane, name] : peer.lanes) LaneEnd(*lane, Role::kSender).Release();
  }
}

std::string Communicator::OpenWords() {
  const std::scoped_lock lock(lanes_mutex_);
  // Two communicators may have the same ranks.
  std::ostringstream name;
  name << "communicator " << std::hex << (ContentHash(key_) & 0xffff) << ", ";
  std::string words;
  for (const auto& [rank, peer] : watched_) {
    for (const auto& [lane, lane_name] : peer.lanes) {
      words += sendrecv::OpenWords(*lane, name.str() + lane_name);
    }
  }
  return words;
}

Communicator::Trouble Communicator::Failure() {
  const std::scoped_lock lock(lanes_mutex_);
  LookAfter(false);
  if (segment_ == nullptr || !failure_.why.empty()) return failure_;
  for (const auto& [rank, peer] : watched_) {
    if (!peer.gone.empty() && underway_->WaitsFor(rank, peer.at)) return {.why = peer.gone};
  }
  return {};
}

}  // namespace nccltune::sendrecv
