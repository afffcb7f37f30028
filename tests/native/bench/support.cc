// SPDX-License-Identifier: Apache-2.0
#include "bench/support.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <utility>

namespace nccltune::bench {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

Sockets SocketPair() {
  int pair[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  return {Descriptor(pair[0]), Descriptor(pair[1])};
}

Pipe MakePipe() {
  int pair[2] = {-1, -1};
  EXPECT_EQ(pipe2(pair, O_CLOEXEC), 0);
  return {Descriptor(pair[0]), Descriptor(pair[1])};
}

DeafPort TakePort() {
  Descriptor taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(taken.fd(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(taken.fd(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return {std::move(taken), ntohs(address.sin_port)};
}

int FreePort() { return TakePort().port; }

Descriptor ConnectTo(int port) {
  Descriptor connection;
  EXPECT_TRUE(Eventually([&connection, port] {
    connection = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(port);
    return connect(connection.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
           0;
  }));
  return connection;
}

std::string ReadSome(int descriptor, size_t bytes) {
  std::string text(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = read(descriptor, text.data() + done, bytes - done);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

void WriteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t got = write(descriptor, bytes.data(), bytes.size());
    ASSERT_GT(got, 0);
    bytes.remove_prefix(static_cast<size_t>(got));
  }
}

bool Eventually(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

BackendInfo InfoOf(const World& world) {
  BackendInfo info;
  info.backend = "scripted";
  info.nccl_version = "2.28.9";
  info.ranks = world.processes;
  info.nodes = 1;
  info.gpus = {{world.process, "GPU", ""}};
  info.collectives = {Collective::kAllReduce, Collective::kSendRecv};
  info.dtypes = {Dtype::kFloat};
  info.redops = {Redop::kSum};
  return info;
}

void Latch::Set() {
  const std::lock_guard<std::mutex> lock(mutex_);
  set_ = true;
}

void Latch::Wait() {
  EXPECT_TRUE(Eventually([this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    return set_;
  }));
}

}  // namespace nccltune::bench
