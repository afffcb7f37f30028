// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_options.h"
#include "standard.h"

namespace nccltune::soft {
namespace {

std::atomic<Machine*> machine{nullptr};
std::once_flag once;
thread_local int spared = 0;
thread_local int capture_mode = kCaptureGlobal;

// Functions that CUDA forbids during a capture.
bool IsUnsafe(const std::string& function) {
  static const auto* const names = new std::set<std::string>{
      "cuMemAlloc_v2",   "cuMemFree_v2",       "cuMemHostAlloc",        "cuMemFreeHost",
      "cuEventQuery",    "cuEventSynchronize", "cuMemHostRegister_v2",  "cuMemHostUnregister",
      "cuStreamQuery",   "cuCtxSynchronize",   "cuStreamSynchronize",   "cuMemsetD8_v2",
      "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2",    "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"};
  return names->contains(function);
}

// Such a call also ends the capture.
bool ForbiddenByCapture(const char* function) {
  Machine& all = Machine::Get();
  if (all.capturing == 0 || capture_mode == kCaptureRelaxed || !IsUnsafe(function)) return false;
  const std::scoped_lock lock(all.mutex);
  bool forbidden = false;
  for (const auto& each : all.captures) {
    const auto graph = each.lock();
    if (graph == nullptr || graph->mode == kCaptureRelaxed) continue;
    const bool mine = graph->thread == std::this_thread::get_id();
    const bool global = graph->mode == kCaptureGlobal && capture_mode == kCaptureGlobal;
    if (!mine && !global) continue;
    graph->invalid = true;
    forbidden = true;
  }
  return forbidden;
}

constexpr uint64_t kLegacyHandle = 1;
constexpr uint64_t kPerThreadHandle = 2;

}  // namespace

CopyEngine::Turn::Turn(CopyEngine& engine) : engine_(engine) {
  std::unique_lock lock(engine_.mutex_);
  const uint64_t mine = engine_.next_++;
  engine_.changed_.wait(lock, [&] { return engine_.serving_ == mine; });
}

CopyEngine::Turn::~Turn() {
  {
    const std::scoped_lock lock(engine_.mutex_);
    ++engine_.serving_;
  }
  engine_.changed_.notify_all();
}

void Context::Fail(CUresult result, const std::string& why) {
  CUresult none = 0;
  if (!error.compare_exchange_strong(none, result)) return;
  std::fprintf(stderr, "soft cuda: process %d, GPU %d: %s\n", static_cast<int>(getpid()), gpu,
               why.c_str());
}

Machine::Machine() : options(CudaOptions::FromEnvironment()) {
  for (int gpu = 0; gpu < options.gpus; ++gpu) {
    Context& context = *contexts.emplace_back(std::make_unique<Context>());
    context.gpu = gpu;
    for (size_t i = 0; i < options.queues; ++i) context.queues.push_back(std::make_shared<Queue>());
    if (options.queues == 1) {
      for (const auto kind : {Operation::Kind::kCopyIn, Operation::Kind::kCopyOut,
                              Operation::Kind::kPush, Operation::Kind::kPull}) {
        context.engines[kind] = std::make_shared<Queue>();
      }
    }
    context.legacy = NewStream(context, 0);
  }
}

Machine& Machine::Get() { return *machine.load(); }
bool Machine::started() { return machine.load() != nullptr; }
void Machine::Start() {
  std::call_once(once, [] { machine = new Machine; });
}

std::shared_ptr<SoftStream> Machine::NewStream(Context& context, unsigned flags) {
  std::shared_ptr<Queue> queue = context.queues.empty()
                                     ? std::make_shared<Queue>()
                                     : context.queues[context.next_queue++ % context.queues.size()];
  auto stream = std::make_shared<SoftStream>(context, std::move(queue), flags, NextHandle());
  std::erase_if(context.streams, [](const auto& each) { return each.expired(); });
  context.streams.emplace_back(stream);
  return stream;
}

std::shared_ptr<SoftStream> Machine::Find(CUstream stream) {
  const auto handle = reinterpret_cast<uint64_t>(stream);
  if (handle <= kPerThreadHandle) {
    Context* const context = Current();
    if (context == nullptr) return nullptr;
    if (handle <= kLegacyHandle) return context->legacy;
    struct Retiring {
      std::map<Context*, std::shared_ptr<SoftStream>> streams;
      ~Retiring() {
        for (auto& [context, stream] : streams) stream->Retire();
      }
    };
    thread_local Retiring own;
    auto& mine = own.streams[context];
    if (mine == nullptr) mine = NewStream(*context, 0);
    return mine;
  }
  CheckHandle(stream);
  const auto found = streams.find(handle);
  return found == streams.end() ? nullptr : found->second;
}

void Machine::DestroyAll(Context& context) {
  std::erase_if(streams, [&](const auto& each) {
    if (&each.second->context() != &context) return false;
    each.second->Retire();
    destroyed_by_reset_.insert(each.first);
    return true;
  });
  std::erase_if(events, [&](const auto& each) {
    if (each.second->context != &context) return false;
    destroyed_by_reset_.insert(each.first);
    return true;
  });
}

void Machine::CheckHandle(const void* handle) const {
  if (!destroyed_by_reset_.contains(reinterpret_cast<uint64_t>(handle))) return;
  std::fprintf(stderr, "soft cuda: a stream or event is used that a reset has destroyed\n");
  std::abort();
}

Mark Machine::Enqueue(SoftStream& stream, Operation operation) {
  if (stream.graph != nullptr) {
    stream.graph->joined[stream.lane] = false;
    stream.graph->nodes.push_back({.lane = stream.lane, .operation = std::move(operation)});
    return {};
  }
  // The legacy stream and all blocking streams wait for each other.
  Context& context = stream.context();
  if (&stream == context.legacy.get()) {
    for (const auto& each : context.streams) {
      const auto other = each.lock();
      if (other == nullptr || other.get() == &stream) continue;
      if ((other->flags() & kStreamNonBlocking) != 0) continue;
      if (Mark mark = other->Last(); !mark.Done()) operation.after.push_back(std::move(mark));
    }
  } else if ((stream.flags() & kStreamNonBlocking) == 0) {
    if (Mark mark = context.legacy->Last(); !mark.Done()) operation.after.push_back(mark);
  }
  return Push(stream, std::move(operation));
}

// With one connection, copies have queues of their own (benchmarks/one_connection.cu). A write is
// in the queue of the stream's last operation. An event blocks nothing.
Mark Machine::Push(SoftStream& stream, Operation operation) {
  Context& context = stream.context();
  if (context.engines.empty()) return stream.Push(std::move(operation));
  if (operation.kind == Operation::Kind::kRecord && operation.after.empty()) return stream.Last();
  SoftStream* part = stream.last_part == nullptr ? &stream : stream.last_part;
  const auto engine = context.engines.find(operation.kind);
  if (engine != context.engines.end()) {
    auto& own = stream.parts[engine->second.get()];
    if (own == nullptr) {
      own = std::make_shared<SoftStream>(context, engine->second, kStreamNonBlocking, NextHandle());
      context.streams.emplace_back(own);
    }
    part = own.get();
  } else if (operation.kind != Operation::Kind::kWrite) {
    part = &stream;
  }
  const SoftStream* const last = stream.last_part == nullptr ? &stream : stream.last_part;
  if (part != last) {
    if (Mark mark = stream.Last(); !mark.Done()) operation.after.push_back(std::move(mark));
  }
  stream.last_part = part == &stream ? nullptr : part;
  return part->Push(std::move(operation));
}

std::vector<Context*>& ContextStack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

Context* Current() {
  const std::vector<Context*>& stack = ContextStack();
  return stack.empty() ? nullptr : stack.back();
}

Context* ContextOf(CUcontext context) {
  for (const auto& each : Machine::Get().contexts) {
    if (HandleOf(each.get()) == context) return each.get();
  }
  return nullptr;
}

int& CaptureMode() { return capture_mode; }

void softCudaSpare(int more) { spared += more; }

CUresult Enter(const char* function) {
  if (!Machine::started()) return kNotInitialized;
  if (spared <= 0 && Machine::Get().refusals.Refuses(function)) return kOutOfMemory;
  return ForbiddenByCapture(function) ? kStreamCaptureUnsupported : kCudaSuccess;
}

CUresult EnterContext(const char* function) {
  if (const CUresult entered = Enter(function); entered != kCudaSuccess) return entered;
  const Context* const context = Current();
  return context == nullptr ? kInvalidContext : context->error.load();
}

CUresult EnqueueIn(CUstream handle, Operation operation) {
  SOFT_STREAM(handle);
  if (const CUresult error = stream->context().error) return error;
  all.Enqueue(*stream, std::move(operation));
  return kCudaSuccess;
}

CUresult SynchronizeContext(Context& context) {
  std::vector<Mark> marks;
  {
    Machine& all = Machine::Get();
    const std::scoped_lock lock(all.mutex);
    for (const auto& each : context.streams) {
      if (const auto stream = each.lock()) marks.push_back(stream->Last());
    }
  }
  for (const Mark& mark : marks) mark.Wait();
  return context.error;
}

bool Mark::Done() const { return stream == nullptr || stream->Done(sequence); }

void Mark::Wait() const {
  if (stream != nullptr) stream->Wait(sequence);
}

SoftStream::SoftStream(Context& context, std::shared_ptr<Queue> queue, unsigned flags, uint64_t id)
    : context_(context), queue_(std::move(queue)), flags_(flags), id_(id) {}

Mark SoftStream::Push(Operation operation) {
  uint64_t sequence = 0;
  bool start = false;
  {
    const std::scoped_lock lock(mutex_);
    sequence = ++pushed_;
    start = !std::exchange(has_thread_, true);
  }
  {
    const std::scoped_lock lock(queue_->mutex_);
    queue_->entries_.push_back(
        {.stream = this, .sequence = sequence, .operation = std::move(operation)});
  }
  queue_->changed_.notify_all();
  // At exit only idle streams may still have a thread, and those need no cleanup.
  if (start) std::thread([self = shared_from_this()] { self->Serve(); }).detach();
  return {.stream = shared_from_this(), .sequence = sequence};
}

Mark SoftStream::Last() { return last_part == nullptr ? LastHere() : last_part->LastHere(); }

Mark SoftStream::LastHere() {
  const std::scoped_lock lock(mutex_);
  return {.stream = shared_from_this(), .sequence = pushed_};
}

bool SoftStream::Done(uint64_t sequence) {
  const std::scoped_lock lock(mutex_);
  return done_ >= sequence;
}

void SoftStream::Wait(uint64_t sequence) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= sequence; });
}

void SoftStream::Retire() {
  for (const auto& [queue, part] : parts) part->Retire();
  {
    const std::scoped_lock lock(queue_->mutex_);
    retired_ = true;
  }
  queue_->changed_.notify_all();
}

void SoftStream::Serve() {
  const auto idle = [this] {
    const std::scoped_lock lock(mutex_);
    return done_ == pushed_;
  };
  for (;;) {
    std::unique_lock lock(queue_->mutex_);
    queue_->changed_.wait(lock, [&] {
      return (!queue_->entries_.empty() && queue_->entries_.front().stream == this) ||
             (retired_ && idle());
    });
    if (queue_->entries_.empty() || queue_->entries_.front().stream != this) return;
    // The reference stays valid while other operations are added behind it.
    Queue::Entry& head = queue_->entries_.front();
    lock.unlock();
    for (const Mark& mark : head.operation.after) mark.Wait();
    Patience patience;
    while (head.operation.ready && context_.error == 0 && !head.operation.ready()) patience.Sleep();
    lock.lock();
    Queue::Entry entry = std::move(head);
    queue_->entries_.pop_front();
    lock.unlock();
    queue_->changed_.notify_all();
    if (entry.operation.run && context_.error == 0) {
      MaybeSleep(Machine::Get().options.delay_us);
      entry.operation.run();
    }
    entry.operation = {};
    {
      const std::scoped_lock done(mutex_);
      done_ = entry.sequence;
    }
    changed_.notify_all();
  }
}

}  // namespace nccltune::soft
