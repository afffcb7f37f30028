// SPDX-License-Identifier: Apache-2.0
// A net plugin of interface v12 that moves bytes over one TCP connection in the simplest way,
// inside test(). It breaks the contract in the way that NAIVE_FAULT names; faults about a message
// start with message 10.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "abi/net_v12.h"

namespace nccltune {
namespace {

using abi::Result;

constexpr uint64_t kFaultyMessage = 10;
constexpr size_t kMaxRequests = 32;

bool Fault(std::string_view name) {
  const char* const fault = std::getenv("NAIVE_FAULT");
  return fault != nullptr && name == fault;
}

struct Comm;

struct Request {
  Comm* comm = nullptr;
  uint64_t number = 0;
  unsigned char* data = nullptr;
  uint64_t room = 0;
  uint64_t bytes = 0;  // size from the header
  size_t header_moved = 0;
  uint64_t moved = 0;
  bool done = false;
};

struct Comm {
  int fd = -1;
  bool sends = false;
  uint64_t posted = 0;
  std::deque<Request*> queue;                      // requests not transferred yet
  std::vector<std::unique_ptr<Request>> requests;  // all requests that test has not reported done

  ~Comm() { close(fd); }
};

// Returns false if no progress is possible now; *result is set on an error.
bool Move(Comm* comm, void* data, size_t bytes, size_t* moved, Result* result) {
  const ssize_t n = comm->sends ? send(comm->fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : recv(comm->fd, data, bytes, MSG_DONTWAIT);
  if (n > 0) {
    *moved = static_cast<size_t>(n);
    return true;
  }
  if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    *result = abi::kRemoteError;
  }
  return false;
}

Result Progress(Comm* comm) {
  Result result = abi::kSuccess;
  while (!comm->queue.empty()) {
    Request& request = *comm->queue.front();
    size_t moved = 0;
    if (request.header_moved < sizeof request.bytes) {
      auto* const header = reinterpret_cast<unsigned char*>(&request.bytes);
      if (!Move(comm, header + request.header_moved, sizeof request.bytes - request.header_moved,
                &moved, &result)) {
        return result;
      }
      request.header_moved += moved;
      if (request.header_moved < sizeof request.bytes) continue;
      if (request.bytes > request.room) return abi::kInvalidUsage;
    }
    if (request.moved < request.bytes) {
      if (!Move(comm, request.data + request.moved, request.bytes - request.moved, &moved,
                &result)) {
        return result;
      }
      request.moved += moved;
      if (request.moved < request.bytes) continue;
    }
    request.done = true;
    comm->queue.pop_front();
  }
  return result;
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

Result Init(void** context, uint64_t /*communicator*/, abi::NetCommConfig* /*config*/,
            abi::LogFunction log, abi::NetProfilerCallback profiler) {
  *context = nullptr;
  log(abi::kLogInfo, 0x10, __FILE__, __LINE__, "%s", "naive init");
  log(abi::kLogWarn, 0x10, __FILE__, __LINE__, "naive is %s", "naive");
  void* event = nullptr;
  const Result result = profiler(&event, 0, nullptr, 0, nullptr);
  return Fault("init_fails") ? abi::kSystemError : result;
}

Result Finalize(void* /*context*/) { return abi::kSuccess; }

Result Devices(int* count) {
  *count = Fault("no_devices") ? 0 : 1;
  return abi::kSuccess;
}

Result GetProperties(int /*device*/, abi::NetPropertiesV12* properties) {
  abi::NetPropertiesV12 own{};
  own.name = "naive0";
  own.ptr_support = 1;
  own.speed = Fault("unset_property") ? properties->speed : 10000;
  own.max_comms = 1024;
  own.max_recvs = 1;
  own.max_p2p_bytes = own.max_coll_bytes = size_t{1} << 30;
  own.v_device.count = 1;
  *properties = own;
  if (Fault("properties_overrun")) std::memset(properties + 1, 1, 8);
  return abi::kSuccess;
}

Result Listen(void* /*context*/, int /*device*/, void* handle, void** listen_comm) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof address;
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd, where, length) != 0 || listen(fd, 16) != 0 || getsockname(fd, where, &length) != 0) {
    close(fd);
    return abi::kSystemError;
  }
  std::memcpy(handle, &address.sin_port, sizeof address.sin_port);
  if (Fault("handle_overrun")) std::memset(handle, 1, 200);
  *listen_comm = new int(fd);
  return abi::kSuccess;
}

void NoDelay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

Result Connect(void* /*context*/, int /*device*/, void* handle, void** send_comm,
               abi::NetDeviceHandle** /*send_device*/) {
  *send_comm = nullptr;
  if (Fault("connect_never")) return abi::kSuccess;
  uint16_t port = 0;
  std::memcpy(&port, handle, sizeof port);
  const sockaddr_in address = Loopback(port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return abi::kRemoteError;
  }
  NoDelay(fd);
  auto comm = std::make_unique<Comm>();
  comm->fd = fd;
  comm->sends = true;
  *send_comm = comm.release();
  return abi::kSuccess;
}

Result Accept(void* listen_comm, void** recv_comm, abi::NetDeviceHandle** /*recv_device*/) {
  *recv_comm = nullptr;
  if (Fault("accept_hangs")) poll(nullptr, 0, -1);
  const int fd = accept4(*static_cast<int*>(listen_comm), nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return abi::kSuccess;
  NoDelay(fd);
  auto comm = std::make_unique<Comm>();
  comm->fd = fd;
  *recv_comm = comm.release();
  return abi::kSuccess;
}

Result RegMr(void* /*comm*/, void* /*data*/, size_t /*size*/, int type, void** /*mhandle*/) {
  return type == 1 || Fault("takes_gpu_memory") ? abi::kSuccess : abi::kInvalidArgument;
}

Result Post(void* opaque, void* data, uint64_t bytes, void** request) {
  Comm& comm = *static_cast<Comm*>(opaque);
  if (Fault("request_unset") && comm.posted == kFaultyMessage) return abi::kSuccess;
  *request = nullptr;
  if (comm.requests.size() == kMaxRequests) return abi::kSuccess;
  if (Fault("null_for_ever") && comm.posted == kFaultyMessage) return abi::kSuccess;
  if (Fault("crash") && comm.posted == kFaultyMessage) std::raise(SIGABRT);
  if (Fault("exit") && comm.posted == kFaultyMessage) _exit(0);
  auto own = std::make_unique<Request>();
  own->comm = &comm;
  own->number = comm.posted++;
  own->data = static_cast<unsigned char*>(data);
  own->room = bytes;
  own->bytes = comm.sends ? bytes : 0;
  *request = own.get();
  comm.requests.push_back(std::move(own));
  Request* const last = comm.requests.back().get();
  // With this fault, message 10 is sent after message 11.
  if (comm.sends && Fault("swapped") && last->number == kFaultyMessage) return abi::kSuccess;
  comm.queue.push_back(last);
  if (comm.sends && Fault("swapped") && last->number == kFaultyMessage + 1) {
    comm.queue.push_back(comm.requests[comm.requests.size() - 2].get());
  }
  return abi::kSuccess;
}

Result Isend(void* comm, void* data, size_t size, int /*tag*/, void* /*mhandle*/, void* /*phandle*/,
             void** request) {
  return Post(comm, data, size, request);
}

Result Irecv(void* comm, int /*count*/, void** data, size_t* sizes, int* /*tags*/,
             void** /*mhandles*/, void** /*phandles*/, void** request) {
  return Post(comm, data[0], sizes[0], request);
}

// Applies the fault to a completed receive.
void Spoil(Request* request) {
  if (request->comm->sends || request->number != kFaultyMessage) return;
  if (Fault("corrupt_byte")) request->data[request->bytes / 2] ^= 1;
  if (Fault("wrong_size")) --request->bytes;
  if (Fault("writes_behind")) request->data[request->bytes] ^= 1;
  if (Fault("writes_before")) request->data[-100] ^= 1;
}

Result Test(void* opaque, int* done, int* sizes) {
  auto& request = *static_cast<Request*>(opaque);
  Comm& comm = *request.comm;
  if (Fault("done_unset")) return abi::kSuccess;
  *done = 0;
  const bool faulty = request.number == kFaultyMessage;
  if (faulty && Fault("test_hangs")) poll(nullptr, 0, -1);
  if (faulty && Fault("test_fails")) return abi::kInternalError;
  if (const Result result = Progress(&comm); result != abi::kSuccess) return result;
  if (!request.done || (faulty && Fault("never_done"))) return abi::kSuccess;
  Spoil(&request);
  *done = 1;
  if (sizes != nullptr && !(Fault("size_unset") && !comm.sends)) {
    sizes[0] = static_cast<int>(request.bytes);
  }
  std::erase_if(comm.requests, [&](const auto& own) { return own.get() == &request; });
  return abi::kSuccess;
}

// The fault is this data race.
__attribute__((no_sanitize("thread"))) void WriteLate(volatile unsigned char* data) {
  poll(nullptr, 0, 50);
  *data = 1;
}

Result Close(void* opaque) {
  auto* const comm = static_cast<Comm*>(opaque);
  if (Fault("writes_after_close") && !comm->sends && !comm->queue.empty()) {
    std::thread(&WriteLate, comm->queue.front()->data).detach();
  }
  delete comm;
  return Fault("close_fails") ? abi::kInternalError : abi::kSuccess;
}

Result CloseListen(void* opaque) {
  const std::unique_ptr<int> fd(static_cast<int*>(opaque));
  close(*fd);
  return abi::kSuccess;
}

Result DeregMr(void* /*comm*/, void* /*mhandle*/) { return abi::kSuccess; }

}  // namespace
}  // namespace nccltune

extern "C" __attribute__((visibility("default"))) const nccltune::abi::NetV12 ncclNetPlugin_v12 = {
    .name = "Naive",
    .init = nccltune::Init,
    .devices = nccltune::Devices,
    .get_properties = nccltune::GetProperties,
    .listen = nccltune::Listen,
    .connect = nccltune::Connect,
    .accept = nccltune::Accept,
    .reg_mr = nccltune::RegMr,
    .reg_mr_dma_buf = nullptr,
    .dereg_mr = nccltune::DeregMr,
    .isend = nccltune::Isend,
    .irecv = nccltune::Irecv,
    .iflush = nullptr,
    .test = nccltune::Test,
    .close_send = nccltune::Close,
    .close_recv = nccltune::Close,
    .close_listen = nccltune::CloseListen,
    .get_device_mr = nullptr,
    .irecv_consumed = nullptr,
    .make_v_device = nullptr,
    .finalize = nccltune::Finalize,
    .set_net_attr = nullptr,
};
