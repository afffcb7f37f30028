// SPDX-License-Identifier: Apache-2.0
#include "net/stranger.h"
#include "common/text.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

namespace nccltune::net {

Stranger::Stranger(const SocketEndpoint& end)
    : socket_(socket(end.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const auto* const to = reinterpret_cast<const sockaddr*>(&end.storage);
  EXPECT_EQ(connect(socket_.fd(), to, end.length()), 0) << ErrorWords(errno);
}

void Stranger::SendBytes(std::span<const std::byte> bytes) {
  EXPECT_EQ(send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

void Stranger::SendBytes(std::string_view text) { SendBytes(std::as_bytes(std::span(text))); }

void Stranger::Reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_.Close();
}

// Reads; returns true at the end of the stream.
bool Stranger::Hear() {
  for (;;) {
    std::array<std::byte, 256> bytes{};
    const ssize_t got = recv(socket_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) return true;
    if (got < 0) return errno != EAGAIN && errno != EINTR;
    received_.insert(received_.end(), bytes.begin(), bytes.begin() + got);
  }
}

bool Stranger::Closed() { return Hear(); }

std::optional<Welcome> Stranger::Welcomed() {
  Hear();
  if (received_.size() < kWelcomeBytes) return std::nullopt;
  return DecodeWelcome(std::span(received_).first<kWelcomeBytes>());
}

std::span<const std::byte> Stranger::ReceivedAfterWelcome() {
  Hear();
  return std::span(received_).subspan(std::min(received_.size(), kWelcomeBytes));
}

std::vector<int> SocketsTo(const SocketEndpoint& end) {
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
