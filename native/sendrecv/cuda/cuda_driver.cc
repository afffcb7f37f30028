// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/cuda/cuda_driver.h"

#include <array>
#include <map>
#include <utility>

#include "sendrecv/log.h"

namespace nccltune::sendrecv {
namespace {

constexpr const char* kWaitKernels =
#include "sendrecv/cuda/wait_kernels.inc"
    ;

constexpr auto kLongestLaunch = std::chrono::seconds(10);

// Returns the GPU's address of a flag. It equals the CPU's address: MissingFeature requires unified
// addressing and CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM.
cu::Pointer AddressOf(const Flag& flag) { return reinterpret_cast<cu::Pointer>(&flag); }

bool Has(const cu::Api& api, cu::Device device, int attribute) {
  int value = 0;
  return api.DeviceGetAttribute(&value, attribute, device) == cu::kSuccess && value != 0;
}

// Returns a required feature that the GPU lacks, or an empty text.
std::string MissingFeature(const cu::Api& api, cu::Device device) {
  if (!Has(api, device, cu::kUnifiedAddressing)) return "no unified addressing";
  if (!Has(api, device, cu::kHostRegister)) return "host memory cannot be registered";
  if (!Has(api, device, cu::kHostPointerForRegistered)) {
    return "registered host memory has another address on the GPU";
  }
  // CUDA 12 reports this feature by another attribute than earlier versions.
  if (!Has(api, device, cu::kStreamMemOps) && !Has(api, device, cu::kStreamMemOpsV1)) {
    return "streams cannot wait for values in memory";
  }
  return "";
}

}  // namespace

const cu::Api* OpenCuda(std::string* why) {
  struct Opened {
    cu::Api api;
    std::string why = cu::Load(cu::kSendRecv, &api);
  };
  static const Opened opened;
  *why = opened.why;
  return opened.why.empty() ? &opened.api : nullptr;
}

ScopedContext::ScopedContext(const cu::Api& api, cu::Context context) : api_(api) {
  cu::Context current = nullptr;
  if (api_.CtxGetCurrent(&current) == cu::kSuccess && current == context) return;
  pushed_ = api_.CtxPushCurrent(context) == cu::kSuccess;
}

ScopedContext::~ScopedContext() {
  cu::Context popped = nullptr;
  if (pushed_) api_.CtxPopCurrent(&popped);
}

ScopedRelaxedContext::ScopedRelaxedContext(const cu::Api& api, cu::Context context)
    : api_(api), current_(api, context) {
  api_.ThreadExchangeStreamCaptureMode(&mode_);
}

ScopedRelaxedContext::~ScopedRelaxedContext() { api_.ThreadExchangeStreamCaptureMode(&mode_); }

uint64_t ContextId(const cu::Api& api, cu::Context context) {
  unsigned long long id = 0;
  return api.CtxGetId != nullptr && api.CtxGetId(context, &id) == cu::kSuccess ? id : 0;
}

cu::Result LoadedKernels::Launch(cu::Function function, Stream stream, void* parameters) {
  std::array<void*, 1> all = {parameters};
  return api_.LaunchKernel(function, 1, 1, 1, kWaitKernelThreads, 1, 1, 0, stream, all.data(),
                           nullptr);
}

cu::Result LoadedKernels::LaunchGate(Stream stream, GateKernel gate) {
  gate.started = started_;
  return Launch(gate_, stream, &gate);
}

cu::Result LoadedKernels::LaunchExchange(Stream stream, ExchangeKernel exchange) {
  exchange.started = started_;
  return Launch(exchange_, stream, &exchange);
}

cu::Result LoadedKernels::Load() {
  cu::Module module = nullptr;
  // Some functions are required only by other users of CUDA.
  if (api_.ModuleLoadData == nullptr || api_.ModuleGetFunction == nullptr ||
      api_.LaunchKernel == nullptr || api_.MemsetD8Async == nullptr) {
    return cu::kNotSupported;
  }
  cu::Result result = api_.ModuleLoadData(&module, kWaitKernels);
  if (result == cu::kSuccess) result = api_.ModuleGetFunction(&gate_, module, kGateKernelName);
  if (result == cu::kSuccess) {
    result = api_.ModuleGetFunction(&exchange_, module, kExchangeKernelName);
  }
  constexpr size_t kBytes = 256;
  if (result == cu::kSuccess) result = api_.MemAlloc(&started_, kBytes);
  cu::Stream stream = nullptr;
  if (result == cu::kSuccess) result = api_.StreamCreate(&stream, cu::kStreamNonBlocking);
  if (result != cu::kSuccess) return result;
  result = api_.MemsetD8Async(started_, 0, kBytes, stream);
  // CUDA may load a kernel only at its first launch, which then waits for running work. So launch
  // both without messages. The flags of the gate are in the same memory and have their values.
  GateKernel gate;
  gate.begun = gate.ready = reinterpret_cast<Flag*>(started_ + sizeof(uint64_t));
  if (result == cu::kSuccess) result = LaunchGate(stream, gate);
  if (result == cu::kSuccess) result = LaunchExchange(stream, {});
  // Destroying the stream does not wait.
  api_.StreamDestroy(stream);
  return result;
}

std::shared_ptr<LoadedKernels> LoadedKernels::Of(const cu::Api& api, cu::Context context,
                                                 std::string* why) {
  static std::mutex& mutex = *new std::mutex;
  static auto& all = *new std::map<cu::Context, std::shared_ptr<LoadedKernels>>;
  const ScopedRelaxedContext in(api, context);
  const std::scoped_lock lock(mutex);
  std::shared_ptr<LoadedKernels>& known = all[context];
  // A reset makes the functions invalid. Communicators from before it may still hold them.
  if (known != nullptr && known->context_id_ == ContextId(api, context)) return known;
  known = nullptr;
  std::shared_ptr<LoadedKernels> made(new LoadedKernels(api));
  const cu::Result result = made->Load();
  made->context_id_ = ContextId(api, context);
  if (result == cu::kSuccess) return known = std::move(made);
  *why = "CUDA cannot load the wait kernels: " + cu::NameOf(api, result);
  return nullptr;
}

cu::Context PrimaryContext(const cu::Api& api, int device) {
  cu::Device number = 0;
  cu::Context context = nullptr;
  if (api.Init(0) != cu::kSuccess || api.DeviceGet(&number, device) != cu::kSuccess) return nullptr;
  return api.DevicePrimaryCtxRetain(&context, number) == cu::kSuccess ? context : nullptr;
}

std::unique_ptr<CudaDriver> CudaDriver::OfCurrent(const cu::Api& api, std::string* why) {
  cu::Context context = nullptr;
  cu::Device device = 0;
  cu::Result result = api.Init(0);
  if (result == cu::kSuccess) result = api.CtxGetCurrent(&context);
  // The program has not used a device yet, so the runtime would use device 0.
  if (result == cu::kSuccess && context == nullptr) context = PrimaryContext(api, 0);
  if (result == cu::kSuccess && context == nullptr) {
    *why = "there is no GPU";
    return nullptr;
  }
  if (result != cu::kSuccess) {
    *why = "CUDA is not available: " + cu::NameOf(api, result);
    return nullptr;
  }
  const ScopedRelaxedContext in(api, context);
  cu::Uuid uuid = {};
  result = api.CtxGetDevice(&device);
  if (result == cu::kSuccess) result = api.DeviceGetUuid(&uuid, device);
  *why = result == cu::kSuccess ? MissingFeature(api, device) : cu::NameOf(api, result);
  if (!why->empty()) return nullptr;
  return std::unique_ptr<CudaDriver>(new CudaDriver(api, context, device, uuid));
}

bool CudaDriver::Succeeded(cu::Result result) const {
  if (result == cu::kSuccess) return true;
  Warn("CUDA refused an operation: " + cu::NameOf(api_, result));
  return false;
}

CudaDriver::~CudaDriver() { FreeSpares(); }

bool CudaDriver::IsContextReset() const {
  return context_id_ != 0 && ContextId(api_, context_) != context_id_;
}

Stream CudaDriver::CreateStream() const {
  const ScopedRelaxedContext in(api_, context_);
  cu::Stream stream = nullptr;
  return api_.StreamCreate(&stream, cu::kStreamNonBlocking) == cu::kSuccess ? stream : nullptr;
}

Event CudaDriver::CreateEvent() const {
  const ScopedRelaxedContext in(api_, context_);
  cu::Event event = nullptr;
  return api_.EventCreate(&event, cu::kEventDisableTiming) == cu::kSuccess ? event : nullptr;
}

bool CudaDriver::Reserve() {
  if (spare_stream_ == nullptr) spare_stream_ = CreateStream();
  if (spare_event_ == nullptr) spare_event_ = CreateEvent();
  return spare_stream_ != nullptr && spare_event_ != nullptr;
}

void CudaDriver::FreeSpares() {
  if (Stream stream = spare_stream_.exchange(nullptr)) DeleteStream(stream);
  if (Event event = spare_event_.exchange(nullptr)) DeleteEvent(event);
}

Stream CudaDriver::NewStream() {
  Stream stream = CreateStream();
  return stream != nullptr ? stream : spare_stream_.exchange(nullptr);
}

void CudaDriver::DeleteStream(Stream stream) {
  if (IsContextReset()) return;
  const ScopedRelaxedContext in(api_, context_);
  Succeeded(api_.StreamDestroy(stream));
}

// The thread that watches peers calls NewEvent as well, so NewEvent must be thread-safe.
Event CudaDriver::NewEvent() {
  Event event = CreateEvent();
  return event != nullptr ? event : spare_event_.exchange(nullptr);
}

void CudaDriver::DeleteEvent(Event event) {
  if (IsContextReset()) return;
  const ScopedRelaxedContext in(api_, context_);
  Succeeded(api_.EventDestroy(event));
}

bool CudaDriver::Record(Event event, Stream stream) {
  const ScopedContext in(api_, context_);
  return Succeeded(api_.EventRecord(event, stream));
}

bool CudaDriver::WaitEvent(Stream stream, Event event) {
  const ScopedContext in(api_, context_);
  return Succeeded(api_.StreamWaitEvent(stream, event, 0));
}

bool CudaDriver::Copy(Stream stream, DeviceAddress to, DeviceAddress from, size_t bytes) {
  const ScopedContext in(api_, context_);
  return Succeeded(api_.MemcpyDtoDAsync(to, from, bytes, stream));
}

bool CudaDriver::WriteValue(Stream stream, Flag& flag, uint32_t value) {
  const ScopedContext in(api_, context_);
  // By default CUDA puts a system-wide fence before the write, so peers see the bytes before the
  // flag.
  return Succeeded(api_.StreamWriteValue32(stream, AddressOf(flag), value, 0));
}

bool CudaDriver::WaitValue(Stream stream, Flag& flag, uint32_t value) {
  const ScopedContext in(api_, context_);
  return Succeeded(api_.StreamWaitValue32(stream, AddressOf(flag), value, cu::kWaitGreaterOrEqual));
}

bool CudaDriver::Capturing(Stream stream) {
  const ScopedContext in(api_, context_);
  int status = cu::kCaptureNone;
  // For the legacy stream CUDA returns an error while another stream is under capture. The stream
  // cannot be used then, so it counts as captured.
  return api_.StreamIsCapturing(stream, &status) != cu::kSuccess || status != cu::kCaptureNone;
}

bool CudaDriver::Owns(Stream stream) const {
  const ScopedContext in(api_, context_);
  cu::Context owner = context_;
  if (api_.StreamGetCtx == nullptr) return true;
  return api_.StreamGetCtx(stream, &owner) == cu::kSuccess && owner == context_;
}

bool CudaDriver::LoadKernels(std::string* why) {
  kernels_ = LoadedKernels::Of(api_, context_, why);
  return kernels_ != nullptr;
}

bool CudaDriver::LaunchGate(Stream stream, const GateKernel& gate) {
  const ScopedContext in(api_, context_);
  {
    const std::scoped_lock lock(pending_mutex_);
    pending_ = {.gate = &gate, .stream = stream, .began = std::chrono::steady_clock::now()};
  }
  const bool launched = Succeeded(kernels_->LaunchGate(stream, gate));
  const std::scoped_lock lock(pending_mutex_);
  pending_.gate = nullptr;
  return launched && !pending_.ended;
}

bool CudaDriver::EndBlockedLaunch() {
  const std::scoped_lock lock(pending_mutex_);
  const auto waited = std::chrono::steady_clock::now() - pending_.began;
  if (pending_.gate == nullptr || pending_.ended || waited < kLongestLaunch) return false;
  // If the GPU is busy and CUDA has no room for more launches, the gate is not in its stream yet.
  if (IsComplete(pending_.stream)) return false;
  pending_.ended = true;
  pending_.gate->begun->store(pending_.gate->begun_value);
  return true;
}

bool CudaDriver::LaunchExchange(Stream stream, const ExchangeKernel& exchange) {
  const ScopedContext in(api_, context_);
  return Succeeded(kernels_->LaunchExchange(stream, exchange));
}

bool CudaDriver::HasDefaultPriority(Stream stream) {
  const ScopedContext in(api_, context_);
  int priority = 0;
  return api_.StreamGetPriority != nullptr &&
         api_.StreamGetPriority(stream, &priority) == cu::kSuccess && priority == 0;
}

bool CudaDriver::RecordAll(Event event) {
  if (IsContextReset()) return false;
  const ScopedRelaxedContext in(api_, context_);
  return api_.CtxRecordEvent != nullptr && api_.CtxRecordEvent(context_, event) == cu::kSuccess;
}

// After an error of the context nothing runs any more, so all work counts as complete.
bool CudaDriver::IsComplete(Stream stream) {
  if (IsContextReset()) return true;
  const ScopedRelaxedContext in(api_, context_);
  return api_.StreamQuery(stream) != cu::kNotReady;
}

bool CudaDriver::HasHappened(Event event) {
  if (IsContextReset()) return true;
  const ScopedRelaxedContext in(api_, context_);
  return api_.EventQuery(event) != cu::kNotReady;
}

std::optional<Allocation> CudaDriver::Find(DeviceAddress address) const {
  const ScopedRelaxedContext in(api_, context_);
  unsigned type = 0;
  unsigned managed = 0;
  unsigned legacy = 0;
  int device = -1;
  cu::Pointer base = 0;
  size_t bytes = 0;
  unsigned long long id = 0;
  const std::array<int, 7> attributes = {cu::kMemoryType,    cu::kIsManaged,  cu::kLegacyIpc,
                                         cu::kDeviceOrdinal, cu::kRangeStart, cu::kRangeSize,
                                         cu::kBufferId};
  std::array<void*, 7> values = {&type, &managed, &legacy, &device, &base, &bytes, &id};
  const cu::Result result =
      api_.PointerGetAttributes(attributes.size(), attributes.data(), values.data(), address);
  if (result != cu::kSuccess || type != cu::kDeviceMemory || managed != 0 || base == 0) return {};
  return Allocation{
      .base = base, .bytes = bytes, .id = id, .device = device, .shareable = legacy != 0};
}

DeviceAddress CudaDriver::Allocate(uint64_t bytes) {
  const ScopedRelaxedContext in(api_, context_);
  cu::Pointer address = 0;
  return api_.MemAlloc(&address, bytes) == cu::kSuccess ? address : 0;
}

void CudaDriver::Free(DeviceAddress address) {
  if (IsContextReset()) return;
  const ScopedRelaxedContext in(api_, context_);
  Succeeded(api_.MemFree(address));
}

void* CudaDriver::AllocateHost(uint64_t bytes) {
  const ScopedRelaxedContext in(api_, context_);
  void* address = nullptr;
  return Succeeded(api_.MemHostAlloc(&address, bytes, 0)) ? address : nullptr;
}

void CudaDriver::FreeHost(void* address) {
  if (IsContextReset()) return;
  const ScopedRelaxedContext in(api_, context_);
  Succeeded(api_.MemFreeHost(address));
}

bool CudaDriver::CopyToHost(Stream stream, void* to, DeviceAddress from, uint64_t bytes) {
  const ScopedRelaxedContext in(api_, context_);
  return Succeeded(api_.MemcpyDtoHAsync(to, from, bytes, stream));
}

bool CudaDriver::LaunchHostFunction(Stream stream, void (*function)(void*), void* argument) {
  const ScopedRelaxedContext in(api_, context_);
  return Succeeded(api_.LaunchHostFunc(stream, function, argument));
}

bool CudaDriver::Export(const Allocation& allocation, cu::IpcMemory* handle) const {
  const ScopedRelaxedContext in(api_, context_);
  return api_.IpcGetMemHandle(handle, allocation.base) == cu::kSuccess;
}

DeviceAddress CudaDriver::Import(const cu::IpcMemory& handle) const {
  const ScopedRelaxedContext in(api_, context_);
  cu::Pointer address = 0;
  const cu::Result result = api_.IpcOpenMemHandle(&address, handle, cu::kIpcLazyPeerAccess);
  return result == cu::kSuccess ? address : 0;
}

void CudaDriver::CloseImport(DeviceAddress base) const {
  if (IsContextReset()) return;
  const ScopedRelaxedContext in(api_, context_);
  Succeeded(api_.IpcCloseMemHandle(base));
}

bool CudaDriver::EnablePeer(cu::Context peer) const {
  if (peer == context_) return true;
  const ScopedRelaxedContext in(api_, context_);
  const cu::Result result = api_.CtxEnablePeerAccess(peer, 0);
  return result == cu::kSuccess || result == cu::kPeerAccessEnabled;
}

PinnedMemory::PinnedMemory(const CudaDriver& driver, void* memory, size_t bytes)
    : api_(driver.api()), context_(driver.context()) {
  const ScopedRelaxedContext in(api_, context_);
  const cu::Result result =
      api_.MemHostRegister(memory, bytes, cu::kHostPortable | cu::kHostDeviceMap);
  if (result == cu::kSuccess) memory_ = memory;
}

PinnedMemory::~PinnedMemory() {
  const ScopedRelaxedContext in(api_, context_);
  if (memory_ != nullptr) api_.MemHostUnregister(memory_);
}

}  // namespace nccltune::sendrecv
