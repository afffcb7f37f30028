// SPDX-License-Identifier: Apache-2.0
#include "sendrecv/stand_in/cuda_stream.h"

#include <thread>
#include <utility>

#include "sendrecv/stand_in/cuda_machine.h"
#include "sendrecv/stand_in/cuda_options.h"

namespace nccltune::soft {

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
    while (head.operation.ready && context_.error == 0 && !head.operation.ready()) {
      patience.Sleep();
    }
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
