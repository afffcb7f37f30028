// SPDX-License-Identifier: Apache-2.0
// The network plugin SPOIL_PLUGIN with the fault that SPOIL_FAULT names, from the first received
// message on.
#include "abi/net.h"
#include "standard.h"

namespace nccltune {
namespace {

using abi::Result;

const abi::NetV12& Real() {
  static const auto* const net = static_cast<const abi::NetV12*>(
      dlsym(dlopen(std::getenv("SPOIL_PLUGIN"), RTLD_NOW | RTLD_LOCAL), "ncclNetPlugin_v12"));
  return *net;
}

bool Fault(std::string_view name) { return name == std::getenv("SPOIL_FAULT"); }

Result Init(void** context, uint64_t communicator, abi::NetCommConfig* config, abi::LogFunction log,
            abi::NetProfilerCallback profiler) {
  if (Fault("init_hangs")) pause();
  return Real().init(context, communicator, config, log, profiler);
}

Result Listen(void* context, int device, void* handle, void** listen_comm) {
  if (Fault("listen_hangs")) pause();
  return Real().listen(context, device, handle, listen_comm);
}

// Only the progress thread uses it.
std::map<void*, unsigned char*> g_received;  // buffers by request

Result Irecv(void* recv_comm, int count, void** data, size_t* sizes, int* tags, void** mhandles,
             void** phandles, void** request) {
  const Result result =
      Real().irecv(recv_comm, count, data, sizes, tags, mhandles, phandles, request);
  if (*request != nullptr) g_received[*request] = static_cast<unsigned char*>(*data);
  if (Fault("request_unset")) *request = reinterpret_cast<void*>(uintptr_t{0xDEAD0});
  return result;
}

Result Test(void* request, int* done, int* sizes) {
  if (Fault("crash")) std::abort();
  if (Fault("exit")) std::exit(0);
  if (Fault("done_unset")) return abi::kSuccess;
  *done = 0;
  if (Fault("never_done")) return abi::kSuccess;
  const Result result = Real().test(request, done, sizes);
  const auto found = g_received.find(request);
  if (*done == 0 || found == g_received.end()) return result;
  if (Fault("corrupt_byte")) found->second[20] ^= 1;
  if (Fault("writes_behind")) found->second[sizes[0]] = 1;
  if (Fault("writes_before")) found->second[-1] = 1;
  if (Fault("wrong_size")) --sizes[0];
  g_received.erase(found);
  return Fault("test_fails") ? abi::kInternalError : result;
}

// The fault is this data race.
__attribute__((no_sanitize("thread"))) void WriteLate(volatile unsigned char* data) {
  poll(nullptr, 0, 50);
  *data = 1;
}

Result CloseRecv(void* recv_comm) {
  if (Fault("writes_after_close") && !g_received.empty()) {
    std::thread(&WriteLate, g_received.begin()->second).detach();
  }
  const Result result = Real().close_recv(recv_comm);
  return Fault("close_fails") ? abi::kInternalError : result;
}

abi::NetV12 Spoiled() {
  abi::NetV12 net = Real();
  net.init = Init;
  net.listen = Listen;
  net.irecv = Irecv;
  net.test = Test;
  net.close_recv = CloseRecv;
  return net;
}

}  // namespace
}  // namespace nccltune

extern "C" {
__attribute__((visibility("default"))) extern const nccltune::abi::NetV12 ncclNetPlugin_v12;
const nccltune::abi::NetV12 ncclNetPlugin_v12 = nccltune::Spoiled();
}
