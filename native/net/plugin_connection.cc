// SPDX-License-Identifier: Apache-2.0
// NCCL's calls on a connection. Most calls are on NCCL's hot path, so the functions in this file
// take no lock, allocate no memory, and log only errors.
#include <algorithm>
#include <climits>
#include <cstddef>

#include "net/plugin.h"
#include "net/transport.h"

namespace nccltune::net::plugin {
namespace {

abi::Result CheckBuffer(const char* call, const void* data, size_t bytes) {
  if (bytes > abi::kNetLargestMessage) {
    return Refuse(abi::kInvalidArgument, "%s: invalid size of %lld bytes", call,
                  static_cast<long long>(bytes));
  }
  if (data == nullptr && bytes != 0) return RefuseNull(call, "the buffer");
  return abi::kSuccess;
}

template <typename Size>
abi::Result ReceiveOne(void* recv_comm, int count, void** data, const Size* sizes, void** request) {
  if (request == nullptr) return RefuseNull("irecv", "the pointer to the request");
  *request = nullptr;
  if (recv_comm == nullptr) return RefuseNull("irecv", "the connection");
  if (count != Properties::kMaxReceives) {
    return Refuse(abi::kInvalidArgument, "irecv: %d buffers, but maxRecvs is %d", count,
                  Properties::kMaxReceives);
  }
  if (data == nullptr || sizes == nullptr) return RefuseNull("irecv", "the list of buffers");
  const auto bytes = static_cast<size_t>(*sizes);
  const abi::Result checked = CheckBuffer("irecv", *data, bytes);
  if (checked != abi::kSuccess) return checked;
  TransferRequest* made = nullptr;
  const abi::Result result = Receive(static_cast<Receiver*>(recv_comm), *data, bytes, &made);
  *request = made;
  return result;
}

}  // namespace

abi::Result Accept(void* listen_comm, void** recv_comm) noexcept {
  if (recv_comm == nullptr) return RefuseNull("accept", "the pointer to the comm");
  *recv_comm = nullptr;
  if (listen_comm == nullptr) return RefuseNull("accept", "the listener");
  Receiver* receiver = nullptr;
  const abi::Result result = net::Accept(static_cast<Listener*>(listen_comm), &receiver);
  *recv_comm = receiver;
  return result;
}

abi::Result RegMr(void* comm, int type, void** mhandle) noexcept {
  if (mhandle != nullptr) *mhandle = nullptr;
  if (comm == nullptr) return RefuseNull("regMr", "the connection");
  if (type != abi::kPointerHost) {
    return Refuse(abi::kInvalidArgument, "regMr: memory of type %d, but ptrSupport is %d (host)",
                  type, Properties::kPointerSupport);
  }
  return abi::kSuccess;
}

abi::Result DeregMr(void* /*comm*/, void* /*mhandle*/) noexcept { return abi::kSuccess; }

abi::Result Isend(void* send_comm, const void* data, size_t bytes, void** request) noexcept {
  if (request == nullptr) return RefuseNull("isend", "the pointer to the request");
  *request = nullptr;
  if (send_comm == nullptr) return RefuseNull("isend", "the connection");
  const abi::Result checked = CheckBuffer("isend", data, bytes);
  if (checked != abi::kSuccess) return checked;
  TransferRequest* made = nullptr;
  const abi::Result result = Send(static_cast<Sender*>(send_comm), data, bytes, &made);
  *request = made;
  return result;
}

abi::Result Irecv(void* recv_comm, int count, void** data, const int* sizes,
                  void** request) noexcept {
  return ReceiveOne(recv_comm, count, data, sizes, request);
}

abi::Result Irecv(void* recv_comm, int count, void** data, const size_t* sizes,
                  void** request) noexcept {
  return ReceiveOne(recv_comm, count, data, sizes, request);
}

abi::Result Iflush(void* /*recv_comm*/, int /*count*/, void** /*data*/, int* /*sizes*/,
                   void** /*mhandles*/, void** request) noexcept {
  if (request != nullptr) *request = nullptr;
  return Refuse(abi::kInternalError, "iflush: the plugin does not receive into GPU memory");
}

abi::Result Test(void* request, int* done, int* sizes) noexcept {
  if (done == nullptr) return RefuseNull("test", "the pointer to the answer");
  *done = 0;
  if (request == nullptr) return RefuseNull("test", "the request");
  bool finished = false;
  size_t bytes = 0;
  const abi::Result result = net::Test(static_cast<TransferRequest*>(request), &finished, &bytes);
  if (result != abi::kSuccess || !finished) return result;
  *done = 1;
  // The interface's size is an int. NCCL only checks whether the size is zero.
  if (sizes != nullptr) *sizes = static_cast<int>(std::min<size_t>(bytes, INT_MAX));
  return abi::kSuccess;
}

abi::Result CloseSend(void* send_comm) noexcept { return Close(static_cast<Sender*>(send_comm)); }

abi::Result CloseRecv(void* recv_comm) noexcept { return Close(static_cast<Receiver*>(recv_comm)); }

abi::Result CloseListen(void* listen_comm) noexcept {
  return Close(static_cast<Listener*>(listen_comm));
}

}  // namespace nccltune::net::plugin
