// SPDX-License-Identifier: Apache-2.0
// Both ends of a connection in one process, over 127.0.0.1, without an adapter.
#pragma once

#include <sys/syscall.h>

#include "common/text.h"
#include "log_line.h"
#include "net/socket.h"
#include "net/transport.h"
#include "net/wire.h"
#include "standard.h"
#include "testing.h"

namespace nccltune::net {

using HandleArray = std::array<std::byte, kHandleBytes>;

// One NIC, 127.0.0.1.
inline Device Loopback() {
  Nic nic;
  nic.name = "lo";
  nic.speed_mbps = 10'000;
  nic.mtu = 65'536;
  auto* const address = reinterpret_cast<sockaddr_in*>(&nic.address.storage);
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Device device;
  device.name = "lo";
  device.speed_mbps = nic.speed_mbps;
  device.nics = {nic};
  device.members = {0};
  return device;
}

// Returns a context whose log lines are kept for TakeLines.
inline ConnectionContext ContextWith(const NetSettings& settings) {
  return {
      .settings = settings, .log = Log(KeepLine, abi::kSubsysNet, "net: "), .traffic_class = -1};
}

// Returns whether one line has all of these words.
inline bool HasLine(const std::vector<std::string>& lines, const std::vector<std::string>& words) {
  return std::ranges::any_of(lines, [&](const std::string& line) {
    return std::ranges::all_of(
        words, [&](const std::string& word) { return line.find(word) != std::string::npos; });
  });
}

inline constexpr std::chrono::seconds kLongest{120};

// Calls `ask` until it returns true. Returns false after two minutes.
inline bool Until(const std::function<bool()>& ask) {
  const auto limit = std::chrono::steady_clock::now() + kLongest;
  while (!ask()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

inline std::vector<std::byte> Content(size_t bytes, uint64_t seed) {
  std::vector<std::byte> content(bytes);
  // SplitMix64: a standard engine takes most of a test's time in builds without inlining.
  uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15U;
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    state += 0x9e3779b97f4a7c15U;
    uint64_t value = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
    std::memcpy(content.data() + at, &value, std::min(sizeof(value), bytes - at));
  }
  return content;
}

// The result of a request that was tested until it was done or failed.
struct RequestResult {
  abi::Result result = abi::kSuccess;
  size_t bytes = 0;
};

inline RequestResult Finish(TransferRequest* request) {
  RequestResult ended;
  const bool over = Until([&] {
    bool done = false;
    ended.result = Test(request, &done, &ended.bytes);
    return done || ended.result != abi::kSuccess;
  });
  EXPECT_TRUE(over) << "neither done nor failed";
  return ended;
}

// A listener and one connection through it.
class Link {
 public:
  explicit Link(const NetSettings& settings = {}) : context_(ContextWith(settings)) {
    EXPECT_EQ(Listen(context_, Loopback(), handle_, &listener), abi::kSuccess);
    if (listener != nullptr) Join();
  }
  ~Link() { CloseAll(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Another connection through the listener, in place of this one.
  void Join() { Join(handle_); }
  // The same, but the connector dials `end` instead of the listener.
  void JoinThrough(const SocketEndpoint& end) {
    HandleArray handle = handle_;
    Invitation invitation = *ReadHandle(handle);
    invitation.ends = {end};
    WriteHandle(invitation, handle);
    Join(handle);
  }
  // Calls connect and accept until both ends stand.
  void Establish(const ConnectionContext& context, HandleArray& handle) {
    const Device device = Loopback();
    const bool joined = Until([&] {
      if (sender == nullptr && Connect(context, device, handle, &sender) != abi::kSuccess) {
        return true;
      }
      if (receiver == nullptr && Accept(listener, &receiver) != abi::kSuccess) return true;
      return stands();
    });
    EXPECT_TRUE(joined && stands());
  }
  bool stands() const { return sender != nullptr && receiver != nullptr; }
  // Returns the listener's address.
  SocketEndpoint end() const {
    HandleArray handle = handle_;
    return ReadHandle(handle)->ends.front();
  }
  // Returns the handle that a connector gets from NCCL.
  HandleArray handle() const { return handle_; }
  const ConnectionContext& context() const { return context_; }

  void CloseSender() { EXPECT_EQ(Close(std::exchange(sender, nullptr)), abi::kSuccess); }
  void CloseReceiver() { EXPECT_EQ(Close(std::exchange(receiver, nullptr)), abi::kSuccess); }
  void CloseListener() { EXPECT_EQ(Close(std::exchange(listener, nullptr)), abi::kSuccess); }
  void CloseAll() {
    CloseSender();
    CloseReceiver();
    CloseListener();
  }

  // Post a request that must be taken. The memory outlives it.
  TransferRequest* Send(const std::vector<std::byte>& content) const {
    TransferRequest* request = nullptr;
    EXPECT_EQ(net::Send(sender, content.data(), content.size(), &request), abi::kSuccess);
    EXPECT_NE(request, nullptr);
    return request;
  }
  TransferRequest* Receive(std::vector<std::byte>* buffer) const {
    TransferRequest* request = nullptr;
    EXPECT_EQ(net::Receive(receiver, buffer->data(), buffer->size(), &request), abi::kSuccess);
    EXPECT_NE(request, nullptr);
    return request;
  }

  Listener* listener = nullptr;
  Sender* sender = nullptr;
  Receiver* receiver = nullptr;

 private:
  void Join(HandleArray handle) {
    CloseSender();
    CloseReceiver();
    Establish(context_, handle);
  }

  ConnectionContext context_;
  HandleArray handle_ = {};
};

struct Plan {
  std::vector<size_t> sizes;
  size_t slack = 0;    // how much larger the receives are than the sends
  size_t window = 32;  // requests outstanding at each end
  uint64_t seed = 1;   // for the content and the order of tests
  std::function<void(size_t received)> between = nullptr;
};

inline constexpr std::byte kUntouched{0xc7};

// A message in flight.
struct OnItsWay {
  size_t index = 0;
  TransferRequest* request = nullptr;
};

struct Awaited {
  size_t index = 0;
  TransferRequest* request = nullptr;
  std::vector<std::byte> buffer;
};

class Exchanger {
 public:
  Exchanger(const Link& link, const Plan& plan) : link_(link), plan_(plan), random_(plan.seed) {
    for (size_t i = 0; i < plan.sizes.size(); ++i) {
      contents_.push_back(Content(plan.sizes[i], plan.seed * 1000 + i));
    }
  }

  bool Run() {
    const bool ended = Until([this] {
      return failed_ || (sent_ == contents_.size() && received_ == contents_.size()) || Step();
    });
    EXPECT_TRUE(ended) << "stopped with " << sent_ << " sent and " << received_ << " received";
    return ended && !failed_;
  }

 private:
  // Returns false always, so that Until continues.
  bool Step() {
    if (random_() % 2 == 0) {
      PostReceive();
      PostSend();
    } else {
      PostSend();
      PostReceive();
    }
    TestSend();
    TestReceive();
    return false;
  }

  void PostSend() {
    if (next_send_ == contents_.size() || sends_.size() == plan_.window) return;
    TransferRequest* request = nullptr;
    const std::vector<std::byte>& content = contents_[next_send_];
    if (Bad(Send(link_.sender, content.data(), content.size(), &request), "send")) return;
    if (request != nullptr) sends_.push_back({next_send_++, request});
  }

  void PostReceive() {
    if (next_receive_ == contents_.size() || receives_.size() == plan_.window) return;
    std::vector<std::byte> buffer(contents_[next_receive_].size() + plan_.slack, kUntouched);
    TransferRequest* request = nullptr;
    if (Bad(Receive(link_.receiver, buffer.data(), buffer.size(), &request), "receive")) return;
    if (request != nullptr) receives_.push_back({next_receive_++, request, std::move(buffer)});
  }

  void TestSend() {
    if (sends_.empty()) return;
    const size_t at = random_() % sends_.size();
    bool done = false;
    size_t bytes = SIZE_MAX;
    if (Bad(Test(sends_[at].request, &done, &bytes), "test of a send") || !done) return;
    Check(bytes == contents_[sends_[at].index].size(), "bytes sent", sends_[at].index);
    sends_.erase(sends_.begin() + static_cast<ptrdiff_t>(at));
    ++sent_;
  }

  void TestReceive() {
    if (receives_.empty()) return;
    const size_t at = random_() % receives_.size();
    bool done = false;
    size_t bytes = SIZE_MAX;
    if (Bad(Test(receives_[at].request, &done, &bytes), "test of a receive") || !done) return;
    const Awaited incoming = std::move(receives_[at]);
    receives_.erase(receives_.begin() + static_cast<ptrdiff_t>(at));
    ++received_;
    const std::vector<std::byte>& content = contents_[incoming.index];
    Check(bytes == content.size(), "bytes received", incoming.index);
    Check(
        content.empty() || std::memcmp(content.data(), incoming.buffer.data(), content.size()) == 0,
        "the content", incoming.index);
    const auto behind = incoming.buffer.begin() + static_cast<ptrdiff_t>(content.size());
    Check(std::all_of(behind, incoming.buffer.end(), [](std::byte b) { return b == kUntouched; }),
          "what is behind", incoming.index);
    if (plan_.between) plan_.between(received_);
  }

  bool Bad(abi::Result result, const char* what) {
    if (result == abi::kSuccess) return false;
    ADD_FAILURE() << what << " gave " << result;
    return failed_ = true;
  }

  void Check(bool good, const char* what, size_t index) {
    if (good) return;
    ADD_FAILURE() << what << " of message " << index << " of " << contents_[index].size();
    failed_ = true;
  }

  const Link& link_;
  const Plan& plan_;
  std::mt19937_64 random_;
  std::vector<std::vector<std::byte>> contents_;
  std::vector<OnItsWay> sends_;
  std::vector<Awaited> receives_;
  size_t next_send_ = 0;
  size_t next_receive_ = 0;
  size_t sent_ = 0;
  size_t received_ = 0;
  bool failed_ = false;
};

// Sends all messages and checks every byte and size, and that nothing is written past a message.
// Returns false after a reported failure.
inline bool Exchange(const Link& link, const Plan& plan) {
  return link.stands() && Exchanger(link, plan).Run();
}

// A foreign connection to a listener's port, and access to the sockets of this process.

class Stranger {
 public:
  explicit Stranger(const SocketEndpoint& end)
      : socket_(socket(end.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto* const to = reinterpret_cast<const sockaddr*>(&end.storage);
    EXPECT_EQ(connect(socket_.fd(), to, end.length()), 0) << ErrorWords(errno);
  }
  Stranger(const SocketEndpoint& end, const auto& bytes) : Stranger(end) { SendBytes(bytes); }

  void SendBytes(std::span<const std::byte> bytes) {
    EXPECT_EQ(send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void SendBytes(std::string_view text) { SendBytes(std::as_bytes(std::span(text))); }
  // Closes with a reset.
  void Reset() {
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    socket_.Close();
  }
  // Returns whether the other side has closed. Received data is kept.
  bool Closed() { return Hear(); }
  // Returns the welcome once it has arrived completely.
  std::optional<Welcome> Welcomed() {
    Hear();
    if (received_.size() < kWelcomeBytes) return std::nullopt;
    return DecodeWelcome(std::span(received_).first<kWelcomeBytes>());
  }
  // Returns the bytes that have arrived after the welcome.
  std::span<const std::byte> ReceivedAfterWelcome() {
    Hear();
    return std::span(received_).subspan(std::min(received_.size(), kWelcomeBytes));
  }
  int fd() const { return socket_.fd(); }

 private:
  bool Hear() {
    for (;;) {
      std::array<std::byte, 256> bytes{};
      const ssize_t got = recv(socket_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got == 0) return true;
      if (got < 0) return errno != EAGAIN && errno != EINTR;
      received_.insert(received_.end(), bytes.begin(), bytes.begin() + got);
    }
  }

  Descriptor socket_;
  std::vector<std::byte> received_;
};

// Connecting to AF_UNSPEC resets the connection; the owner keeps the descriptor. A raw system call,
// because the thread sanitizer would report two threads that use one descriptor.
inline void ResetSocket(int fd) {
  sockaddr nothing = {};
  nothing.sa_family = AF_UNSPEC;
  syscall(SYS_connect, fd, &nothing, sizeof(nothing));
}

// Number of open descriptors of this process.
inline int CountOpen() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) != -1 ? 1 : 0;
  return count;
}

// Returns the sockets of this process that are connected to `end`, oldest first.
inline std::vector<int> SocketsTo(const SocketEndpoint& end) {
  std::vector<int> found;
  std::error_code error;
  // Other threads open and close descriptors meanwhile; skip those that are gone.
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), last; !error && at != last;
       at.increment(error)) {
    const std::string name = at->path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (fd >= 0 && PeerEnd(fd).Name() == end.Name()) found.push_back(fd);
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace nccltune::net
