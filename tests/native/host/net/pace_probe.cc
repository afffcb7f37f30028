// SPDX-License-Identifier: Apache-2.0
// pace_probe COUNT opens COUNT connections to itself and prints the rate limit of each in bytes per
// second, 0 for none. pace_probe COUNT reset also waits until one is reset, and prints its number
// and the errors that both of its ends report.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#ifndef SO_MAX_PACING_RATE
#define SO_MAX_PACING_RATE 47
#endif

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, where, length) != 0 || listen(listener, 128) != 0 ||
      getsockname(listener, where, &length) != 0) {
    return 1;
  }
  std::vector<pollfd> accepted;
  std::vector<int> connected;
  for (int i = 0; i < std::atoi(argv[1]); ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, where, length) != 0) return 1;
    uint64_t rate = 0;
    socklen_t size = sizeof rate;
    if (getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size) != 0) return 1;
    std::printf("%llu\n", rate == ~uint64_t{0} ? 0ULL : static_cast<unsigned long long>(rate));
    connected.push_back(fd);
    accepted.push_back({accept(listener, nullptr, nullptr), POLLIN, 0});
  }
  if (argc < 3 || std::string_view(argv[2]) != "reset") return 0;
  constexpr int kLongMs = 20000;
  if (poll(accepted.data(), accepted.size(), kLongMs) <= 0) return 1;
  for (size_t i = 0; i < accepted.size(); ++i) {
    if (accepted[i].revents == 0) continue;
    char byte = 0;
    const bool here = recv(accepted[i].fd, &byte, 1, 0) < 0 && errno == ECONNRESET;
    const bool there = send(connected[i], &byte, 1, MSG_NOSIGNAL) < 0;
    std::printf("%zu %s %s\n", i, here ? "reset" : "open", there ? "reset" : "open");
  }
  return 0;
}
