// SPDX-License-Identifier: Apache-2.0
#include "bench/worker.h"

#include <sys/eventfd.h>

#include <cstdint>
#include <utility>

#include "bench/messages.h"

namespace nccltune::bench {

BackendThread::BackendThread(const World& world, std::unique_ptr<Backend> backend)
    : world_(world),
      backend_(std::move(backend)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(&BackendThread::Loop, this) {}

BackendThread::~BackendThread() {
  if (!finished()) Abort();
  thread_.join();
  if (aborter_.joinable()) aborter_.join();
}

bool BackendThread::Deliver(Message message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  switch (message.type) {
    case MessageType::kOpen:
    case MessageType::kStep:
    case MessageType::kTable:
    case MessageType::kQuit:
      tasks_.push_back(std::move(message));
      break;
    case MessageType::kGathered: {
      std::vector<std::string> parts;
      if (!Read(message.payload, &parts) || parts.size() != static_cast<size_t>(world_.processes)) {
        return false;
      }
      gathered_.push_back(std::move(parts));
      break;
    }
    default:
      return false;
  }
  changed_.notify_all();
  return true;
}

std::vector<Message> BackendThread::TakeAnswers() {
  uint64_t count = 0;
  if (read(event_.fd(), &count, sizeof count) < 0) return {};
  // A message that is added between read and lock is taken now. The event of that message later
  // wakes the caller once without a message.
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(answers_, {});
}

void BackendThread::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(aborted_, true)) return;
  changed_.notify_all();
  // Use another thread, because the abort may block like the call that it must end.
  if (!finished_) aborter_ = std::thread([this] { backend_->Abort(); });
}

bool BackendThread::finished() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_;
}

bool BackendThread::AllGather(std::string_view mine, std::vector<std::string>* all) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (aborted_ || mine.size() > kMaxBytes) return false;
  answers_.push_back({MessageType::kGather, std::string(mine)});
  SignalEvent();
  changed_.wait(lock, [this] { return aborted_ || !gathered_.empty(); });
  if (aborted_) return false;
  *all = std::move(gathered_.front());
  gathered_.pop_front();
  return true;
}

void BackendThread::Loop() {
  for (;;) {
    Message message;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return aborted_ || !tasks_.empty(); });
      if (aborted_) break;
      message = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (!RunTask(message)) break;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  SignalEvent();
}

bool BackendThread::RunTask(const Message& message) {
  Step step;
  switch (message.type) {
    case MessageType::kOpen: {
      OpenResult opened;
      opened.error = backend_->Open(world_, this, &opened.info);
      Answer(MessageType::kOpened, Serialize(opened));
      return true;
    }
    case MessageType::kStep:
      if (!Read(message.payload, &step)) return false;
      Answer(MessageType::kStepDone, Serialize(backend_->Run(step)));
      return true;
    case MessageType::kTable:
      if (!Read(message.payload, &step)) return false;
      Answer(MessageType::kTableDone, Serialize(backend_->Table(step)));
      return true;
    default:
      backend_->Close();
      Answer(MessageType::kClosed, "");
      return false;
  }
}

void BackendThread::Answer(MessageType type, std::string payload) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answers_.push_back({type, std::move(payload)});
  SignalEvent();
}

void BackendThread::SignalEvent() {
  const uint64_t one = 1;
  // The write fails only if the counter is at its maximum, and then the event is readable anyway.
  [[maybe_unused]] const ssize_t written = write(event_.fd(), &one, sizeof one);
}

}  // namespace nccltune::bench
