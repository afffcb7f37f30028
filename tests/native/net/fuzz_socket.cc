// SPDX-License-Identifier: Apache-2.0
#include "net/fuzz_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>

namespace nccltune::net {

Device FuzzDevice() {
  Nic nic;
  nic.name = "lo";
  auto* const address = reinterpret_cast<sockaddr_in*>(&nic.address.storage);
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Device device;
  device.name = "lo";
  device.nics = {nic};
  device.members = {0};
  return device;
}

ConnectionContext FuzzContext() {
  NetSettings settings;
  settings.flows = 2;
  settings.threads = 2;
  settings.eager_bytes = 1024;
  return {.settings = settings, .log = Log(nullptr, 0, ""), .traffic_class = -1};
}

FuzzSocket::FuzzSocket(const SocketEndpoint& end)
    : socket_(socket(end.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const auto* const to = reinterpret_cast<const sockaddr*>(&end.storage);
  Require(connect(socket_.fd(), to, end.length()) == 0, "a listener can be reached");
}

size_t FuzzSocket::SendAvailable(std::span<const std::byte> bytes) {
  if (!open() || bytes.empty()) return 0;
  iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  return WriteSome(socket_.fd(), {&part, 1}).bytes;
}

bool FuzzSocket::Hear(std::vector<std::byte>* heard) {
  std::array<std::byte, 1 << 16> bytes;
  while (open()) {
    iovec part = {bytes.data(), bytes.size()};
    const IoResult moved = ReadSome(socket_.fd(), {&part, 1});
    if (moved.would_block()) return true;
    if (moved.error != 0 || moved.bytes == 0) break;
    heard->insert(heard->end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(moved.bytes));
  }
  return false;
}

void FuzzSocket::Reset() {
  if (!open()) return;
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_.Close();
}

}  // namespace nccltune::net
