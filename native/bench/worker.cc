// SPDX-License-Identifier: Apache-2.0
#include "bench/worker.h"

#include <sys/eventfd.h>

#include <cstdint>
#include <utility>

#include "bench/messages.h"

namespace nccltune::bench {

Worker::Worker(const World& world, std::unique_ptr<Backend> backend)
    : world_(world),
      backend_(std::move(backend)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(&Worker::Loop, this) {}

Worker::~Worker() {
  if (!finished()) Abort();
  thread_.join();
  if (aborter_.joinable()) aborter_.join();
}

bool Worker::Give(Message message) {
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

std::vector<Message> Worker::TakeAnswers() {
  uint64_t count = 0;
  if (read(event_.get(), &count, sizeof count) < 0) return {};
  // What comes between these two is taken now and rings once in vain.
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(answers_, {});
}

void Worker::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(aborted_, true)) return;
  changed_.notify_all();
  // It may block just as the call that it is to end.
  if (!finished_) aborter_ = std::thread([this] { backend_->Abort(); });
}

bool Worker::finished() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_;
}

bool Worker::AllGather(std::string_view mine, std::vector<std::string>* all) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (aborted_ || mine.size() > kMostBytes) return false;
  answers_.push_back({MessageType::kGather, std::string(mine)});
  Ring();
  changed_.wait(lock, [this] { return aborted_ || !gathered_.empty(); });
  if (aborted_) return false;
  *all = std::move(gathered_.front());
  gathered_.pop_front();
  return true;
}

void Worker::Loop() {
  for (;;) {
    Message message;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return aborted_ || !tasks_.empty(); });
      if (aborted_) break;
      message = std::move(tasks_.front());
      tasks_.pop_front();
    }
    if (!Do(message)) break;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  finished_ = true;
  Ring();
}

bool Worker::Do(const Message& message) {
  Step step;
  switch (message.type) {
    case MessageType::kOpen: {
      Opened opened;
      opened.error = backend_->Open(world_, this, &opened.info);
      Answer(MessageType::kOpened, Written(opened));
      return true;
    }
    case MessageType::kStep:
      if (!Read(message.payload, &step)) return false;
      Answer(MessageType::kStepDone, Written(backend_->Run(step)));
      return true;
    case MessageType::kTable:
      if (!Read(message.payload, &step)) return false;
      Answer(MessageType::kTableDone, Written(backend_->Table(step)));
      return true;
    default:
      backend_->Close();
      Answer(MessageType::kClosed, "");
      return false;
  }
}

void Worker::Answer(MessageType type, std::string payload) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answers_.push_back({type, std::move(payload)});
  Ring();
}

void Worker::Ring() {
  const uint64_t one = 1;
  // Fails only when it rings already.
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof one);
}

}  // namespace nccltune::bench
