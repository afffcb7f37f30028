// SPDX-License-Identifier: Apache-2.0
// libnccltune-pace.so is loaded with LD_PRELOAD. The library limits the rate of some outgoing TCP
// connections of a process, or resets these connections. The library interposes on connect(), so it
// disturbs every transport in the same way. It is for tests and benchmarks and is not installed.
//
//   PACE_PORTS=A-B                only connections to these ports (default: all)
//   PACE_SKIP=N                   ignore the first N of these connections (default: 0)
//   PACE_EVERY=N PACE_WHICH=K     number the further connections 0 to N-1 repeatedly;
//                                 those with number K are selected (default: 8 and 0)
//   PACE_BYTES_PER_S=R            rate limit of a selected connection (default: none)
//   PACE_OTHERS_BYTES_PER_S=R     rate limit of the other connections (default: none)
//   PACE_RESET_MS=T               every T ms, reset the next open selected connection
//                                 (default: never)
//   PACE_LOG=1                    log each action to standard error
//
// A rate limit applies to the data that the connecting side sends (SO_MAX_PACING_RATE, which needs
// no privilege).
#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace {

using ConnectFunction = int (*)(int, const sockaddr*, socklen_t);

uint64_t Number(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Settings {
  uint64_t first_port = 0;
  uint64_t last_port = 65535;
  uint64_t skip = Number("PACE_SKIP", 0);
  uint64_t every = Number("PACE_EVERY", 8);
  uint64_t which = Number("PACE_WHICH", 0);
  uint64_t rate = Number("PACE_BYTES_PER_S", 0);
  uint64_t others_rate = Number("PACE_OTHERS_BYTES_PER_S", 0);
  uint64_t reset_ms = Number("PACE_RESET_MS", 0);
  bool log = Number("PACE_LOG", 0) != 0;

  Settings() {
    const char* const ports = std::getenv("PACE_PORTS");
    if (ports == nullptr) return;
    char* end = nullptr;
    first_port = last_port = std::strtoull(ports, &end, 10);
    if (*end == '-') last_port = std::strtoull(end + 1, nullptr, 10);
  }
};

// A connection selected with PACE_EVERY and PACE_WHICH. After a close, the kernel may reuse the
// descriptor number for another connection, but the socket cookie is unique.
struct PacedSocket {
  int fd;
  uint64_t cookie;
};

struct State {
  Settings settings;
  ConnectFunction connect = reinterpret_cast<ConnectFunction>(dlsym(RTLD_NEXT, "connect"));
  std::atomic<uint64_t> count{0};
  std::mutex mutex;
  std::unordered_set<uint64_t> seen;
  std::vector<PacedSocket> chosen;
  size_t next_reset = 0;
  bool resetting = false;
};

State& TheState() {
  // Never destroyed, because connections may be made while the process exits.
  static State* const state = new State();
  return *state;
}

uint64_t Cookie(int fd) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

// Resets the next open connection among the selected ones. The mutex must be held.
void ResetOne(State* state) {
  std::erase_if(state->chosen, [](const PacedSocket& one) { return Cookie(one.fd) != one.cookie; });
  if (state->chosen.empty()) return;
  const size_t at = state->next_reset++ % state->chosen.size();
  const int fd = state->chosen[at].fd;
  state->chosen.erase(state->chosen.begin() + static_cast<std::ptrdiff_t>(at));
  // Disconnecting an open connection sends a reset, so both ends see it.
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  // Use the system call directly: the thread sanitizer takes connect() for a new connection.
  const long result = syscall(SYS_connect, fd, &nowhere, sizeof nowhere);
  if (state->settings.log) {
    std::fprintf(stderr, "pace: connection of fd %d %s\n", fd, result == 0 ? "reset" : "not reset");
  }
}

void* ResetForEver(void* opaque) {
  auto* const state = static_cast<State*>(opaque);
  for (;;) {
    poll(nullptr, 0, static_cast<int>(state->settings.reset_ms));
    const std::lock_guard<std::mutex> lock(state->mutex);
    ResetOne(state);
  }
}

uint64_t PortOf(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in6*>(address)->sin6_port);
}

bool IsOurs(const Settings& settings, int fd, const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) {
    return false;
  }
  int type = 0;
  socklen_t length = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM) return false;
  const uint64_t port = PortOf(address);
  return port >= settings.first_port && port <= settings.last_port;
}

// Returns whether the call starts a new connection. A repeated call for a socket only retries or
// polls for the result.
bool IsNew(State* state, int fd) {
  const std::lock_guard<std::mutex> lock(state->mutex);
  return state->seen.insert(Cookie(fd)).second;
}

void Disturb(State* state, int fd) {
  const Settings& settings = state->settings;
  const uint64_t number = state->count.fetch_add(1);
  if (number < settings.skip || settings.every == 0) return;
  const uint64_t place = (number - settings.skip) % settings.every;
  const bool chosen = place == settings.which;
  const uint64_t rate = chosen ? settings.rate : settings.others_rate;
  if (rate != 0) setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
  if (settings.log) {
    std::fprintf(
        stderr, "pace: connection %llu, fd %d, number %llu of %llu, %llu bytes/s\n",
        static_cast<unsigned long long>(number), fd, static_cast<unsigned long long>(place),
        static_cast<unsigned long long>(settings.every), static_cast<unsigned long long>(rate));
  }
  if (!chosen || settings.reset_ms == 0) return;
  const std::lock_guard<std::mutex> lock(state->mutex);
  state->chosen.push_back({fd, Cookie(fd)});
  if (state->resetting) return;
  pthread_t thread{};
  state->resetting = pthread_create(&thread, nullptr, &ResetForEver, state) == 0;
  if (state->resetting) pthread_detach(thread);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int connect(int fd, const sockaddr* address,
                                                              socklen_t length) {
  State& state = TheState();
  const int before = errno;
  if (IsOurs(state.settings, fd, address) && IsNew(&state, fd)) Disturb(&state, fd);
  errno = before;
  return state.connect(fd, address, length);
}
