// SPDX-License-Identifier: Apache-2.0
// Streams, events and host functions.
#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_memory.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

CUresult NewStream(CUstream* handle, unsigned flags) {
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  const std::shared_ptr<SoftStream> stream = all.NewStream(*Current(), flags);
  all.streams[stream->id()] = stream;
  *handle = reinterpret_cast<CUstream>(stream->id());
  return kCudaSuccess;
}

// Invalidates the capture if the stream is under capture. Requires the lock.
bool Invalidates(SoftStream& stream) {
  if (stream.graph == nullptr) return false;
  stream.graph->invalid = true;
  return true;
}

std::shared_ptr<Event> FindEvent(CUevent event) {
  Machine& all = Machine::Get();
  all.CheckHandle(event);
  const auto found = all.events.find(reinterpret_cast<uint64_t>(event));
  return found == all.events.end() ? nullptr : found->second;
}

// Returns null unless the address is aligned and in GPU memory or pinned memory.
std::shared_ptr<uint32_t> WordAt(int gpu, CUdeviceptr address, bool write) {
  const Memory& memory = Memory::Get();
  if (address % sizeof(uint32_t) != 0) return nullptr;
  if (!memory.IsDevice(address) && !memory.FindHost(address)) return nullptr;
  std::string why;
  const std::vector<Piece> pieces = memory.Reach(gpu, address, sizeof(uint32_t), write, why);
  if (pieces.size() != 1) return nullptr;
  return {pieces[0].keeps, reinterpret_cast<uint32_t*>(pieces[0].data)};
}

// Enqueues an operation on a value in memory. `make` gets the value's address.
template <typename Make>
CUresult EnqueueOnValue(CUstream handle, CUdeviceptr address, bool write, const Make& make) {
  Machine& all = Machine::Get();
  if (all.options.Lacks("memops")) return kNotSupported;
  const std::scoped_lock lock(all.mutex);
  const std::shared_ptr<SoftStream> stream = all.Find(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (const CUresult error = stream->context().error) return error;
  const std::shared_ptr<uint32_t> word = WordAt(stream->context().gpu, address, write);
  if (word == nullptr) return kInvalidValue;
  all.Enqueue(*stream, make(word));
  return kCudaSuccess;
}

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  SOFT_ENTER_CONTEXT();
  return NewStream(stream, flags);
}

// All streams have one priority.
CUresult cuStreamGetPriority(CUstream /*stream*/, int* priority) {
  SOFT_ENTER();
  *priority = 0;
  return kCudaSuccess;
}

// Pending operations still run.
CUresult cuStreamDestroy_v2(CUstream handle) {
  SOFT_ENTER();
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  all.CheckHandle(handle);
  const auto found = all.streams.find(reinterpret_cast<uint64_t>(handle));
  if (found == all.streams.end()) return kInvalidHandle;
  found->second->Retire();
  all.streams.erase(found);
  return kCudaSuccess;
}

CUresult cuStreamSynchronize(CUstream handle) {
  SOFT_ENTER();
  Machine& all = Machine::Get();
  std::shared_ptr<SoftStream> stream;
  Mark last;
  {
    const std::scoped_lock lock(all.mutex);
    stream = all.Find(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (Invalidates(*stream)) return kStreamCaptureUnsupported;
    last = stream->Last();
  }
  last.Wait();
  return stream->context().error;
}

CUresult cuStreamQuery(CUstream handle) {
  SOFT_ENTER();
  SOFT_STREAM(handle);
  if (Invalidates(*stream)) return kStreamCaptureUnsupported;
  if (const CUresult error = stream->context().error) return error;
  return stream->Last().Done() ? kCudaSuccess : kNotReady;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  SOFT_ENTER();
  SOFT_STREAM(handle);
  // On an H200 with driver 580 a stream of a green context has a handle of its own. Everything else
  // works as with streams of the primary context, also with that one current and with its events.
  *context =
      stream->green ? reinterpret_cast<CUcontext>(stream.get()) : HandleOf(&stream->context());
  return kCudaSuccess;
}

void softCudaGreen(CUstream handle) {
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  all.Find(handle)->green = true;
}

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  SOFT_ENTER_CONTEXT();
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  auto event = std::make_shared<Event>();
  event->context = Current();
  event->timed = (flags & kEventDisableTiming) == 0;
  const uint64_t id = all.NextHandle();
  all.events[id] = std::move(event);
  *handle = reinterpret_cast<CUevent>(id);
  return kCudaSuccess;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  SOFT_ENTER();
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  all.CheckHandle(handle);
  return all.events.erase(reinterpret_cast<uint64_t>(handle)) == 0 ? kInvalidHandle : kCudaSuccess;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  SOFT_ENTER();
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  const std::shared_ptr<Event> event = FindEvent(handle);
  const std::shared_ptr<SoftStream> stream = all.Find(stream_handle);
  if (event == nullptr || stream == nullptr || event->context != &stream->context()) {
    return kInvalidHandle;
  }
  if (const CUresult error = stream->context().error) return error;
  event->graph.reset();
  Operation record;
  record.kind = Operation::Kind::kRecord;
  if (event->timed) {
    event->reached = std::make_shared<std::atomic<int64_t>>(0);
    record.run = [reached = event->reached] {
      *reached = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    };
  }
  event->mark = all.Enqueue(*stream, std::move(record));
  if (stream->graph != nullptr) {
    Graph& graph = *stream->graph;
    graph.nodes.back().records = event->graph_mark = ++graph.marks;
    graph.lane_of_mark[graph.marks] = stream->lane;
    event->graph = stream->graph;
  }
  return kCudaSuccess;
}

CUresult cuCtxRecordEvent(CUcontext context_handle, CUevent handle) {
  SOFT_ENTER();
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  Context* const context = ContextOf(context_handle);
  const std::shared_ptr<Event> event = FindEvent(handle);
  if (context == nullptr || event == nullptr || event->context != context) return kInvalidHandle;
  Operation behind;
  for (const auto& each : context->streams) {
    const auto stream = each.lock();
    if (stream == nullptr) continue;
    // As documented by CUDA, this ends all captures that the call conflicts with.
    if (Invalidates(*stream)) return kStreamCaptureUnsupported;
    behind.after.push_back(stream->Last());
  }
  const std::shared_ptr<SoftStream> own = all.NewStream(*context, kStreamNonBlocking);
  event->graph.reset();
  event->mark = all.Enqueue(*own, std::move(behind));
  own->Retire();
  return kCudaSuccess;
}

CUresult cuEventSynchronize(CUevent handle) {
  SOFT_ENTER();
  Mark mark;
  Context* context = nullptr;
  {
    const std::scoped_lock lock(Machine::Get().mutex);
    const std::shared_ptr<Event> event = FindEvent(handle);
    if (event == nullptr) return kInvalidHandle;
    if (!event->graph.expired()) return kCapturedEvent;
    mark = event->mark;
    context = event->context;
  }
  mark.Wait();
  return context->error;
}

CUresult cuEventQuery(CUevent handle) {
  SOFT_ENTER();
  const std::scoped_lock lock(Machine::Get().mutex);
  const std::shared_ptr<Event> event = FindEvent(handle);
  if (event == nullptr) return kInvalidHandle;
  if (!event->graph.expired()) return kCapturedEvent;
  if (const CUresult error = event->context->error) return error;
  return event->mark.Done() ? kCudaSuccess : kNotReady;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  SOFT_ENTER();
  const std::scoped_lock lock(Machine::Get().mutex);
  const std::shared_ptr<Event> start = FindEvent(start_handle);
  const std::shared_ptr<Event> end = FindEvent(end_handle);
  if (start == nullptr || end == nullptr) return kInvalidHandle;
  if (start->reached == nullptr || end->reached == nullptr) return kInvalidHandle;
  if (!start->mark.Done() || !end->mark.Done()) return kNotReady;
  *milliseconds = static_cast<float>(*end->reached - *start->reached) / 1e6F;
  return kCudaSuccess;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned /*flags*/) {
  SOFT_ENTER();
  Machine& all = Machine::Get();
  const std::scoped_lock lock(all.mutex);
  const std::shared_ptr<Event> event = FindEvent(handle);
  const std::shared_ptr<SoftStream> stream = all.Find(stream_handle);
  if (event == nullptr || stream == nullptr) return kInvalidHandle;
  if (const CUresult error = stream->context().error) return error;
  const std::shared_ptr<Graph> graph = event->graph.lock();
  if (graph == nullptr) {
    // An event from outside of the capture is not allowed in it.
    if (Invalidates(*stream)) return kStreamCaptureUnsupported;
    all.Enqueue(*stream, {.after = {event->mark}, .ready = nullptr, .run = nullptr});
    return kCudaSuccess;
  }
  // The stream joins the capture in which the event was recorded.
  if (stream->graph == nullptr) {
    stream->graph = graph;
    stream->lane = graph->lanes.size();
    graph->lanes.emplace_back(stream);
    graph->joined.push_back(false);
  } else if (stream->graph != graph) {
    stream->graph->invalid = graph->invalid = true;
    return kStreamCaptureInvalidated;
  }
  all.Enqueue(*stream, {});
  graph->nodes.back().waits_for = event->graph_mark;
  const size_t from = graph->lane_of_mark[event->graph_mark];
  if (from != stream->lane) graph->joined[from] = true;
  return kCudaSuccess;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  SOFT_ENTER();
  if (function == nullptr) return kInvalidValue;
  return EnqueueIn(stream, {.after = {}, .ready = nullptr, .run = [=] { function(data); }});
}

// Stream operations that write values to memory or wait for them.
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                unsigned flags) {
  SOFT_ENTER();
  if (flags != kWaitGeq) return kNotSupported;
  return EnqueueOnValue(stream, address, false, [value](const std::shared_ptr<uint32_t>& word) {
    Operation operation;
    operation.ready = [word, value] {
      const uint32_t now = std::atomic_ref<uint32_t>(*word).load(std::memory_order_acquire);
      return static_cast<int32_t>(now - value) >= 0;
    };
    return operation;
  });
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                 unsigned flags) {
  SOFT_ENTER();
  if (flags != 0) return kNotSupported;
  return EnqueueOnValue(stream, address, true, [value](const std::shared_ptr<uint32_t>& word) {
    Operation operation;
    operation.kind = Operation::Kind::kWrite;
    operation.run = [word, value] {
      std::atomic_ref<uint32_t>(*word).store(value, std::memory_order_release);
    };
    return operation;
  });
}

}  // namespace nccltune::soft
