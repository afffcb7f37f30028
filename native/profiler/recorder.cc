// SPDX-License-Identifier: Apache-2.0
#include "profiler/recorder.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/contain.h"
#include "common/settings.h"
#include "common/text.h"

namespace nccltune::profiler {
namespace {

constexpr time_t kNever = std::numeric_limits<time_t>::max();
constexpr time_t kLeastSeconds = 1;

// At exit, another thread that holds the recorder is waited for this long.
constexpr int kTryMs = 10;
constexpr int kMostTries = 5000 / kTryMs;

std::atomic<Recorder*> of_process = nullptr;

time_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

}  // namespace

Recorder::Recorder() : pid_(getpid()), folder_setting_(ReadPath(SettingId::kRecord)) {}

Recorder* Recorder::OfProcess(const Log& log) {
  Recorder* found = of_process.load(std::memory_order_acquire);
  if (found == nullptr || found->pid_ != getpid()) {
    std::unique_ptr<Recorder> made(new Recorder());
    if (made->folder_setting_.empty()) return nullptr;
    if (of_process.compare_exchange_strong(found, made.get())) found = made.release();
  }
  found->Open(log);
  return found;
}

void Recorder::Open(const Log& log) {
  const std::scoped_lock lock(mutex_);
  log_ = log.logger();
  if (is_open_) return;
  is_open_ = true;
  std::vector<std::string> problems;
  every_ = static_cast<time_t>(ReadNumber(SettingId::kRecordEvery, &problems).value_or(0));
  nccl_ = LoadedNccl(reinterpret_cast<const void*>(log_));
  DecideTimes(log, &problems);
  for (const std::string& problem : problems) log.Warn(problem);
  const std::string error = file_.Open(folder_setting_, pid_);
  has_warned_ = !error.empty();
  if (has_warned_) {
    log.Warn("NCCLTUNE_RECORD=" + Printable(folder_setting_, 300) + ": " + error +
             ": the calls of this process may not be recorded");
  } else {
    log.Info("records calls into " + Printable(file_.path(), 300) +
             (every_ > 0 ? ", every " + std::to_string(every_) + " s and at the end"
                         : std::string(", at the end")));
  }
  started_ = std::time(nullptr);
  next_write_ = every_ > 0 ? Now() + every_ : kNever;
  next_check_ = Now() + std::min(kCheckSeconds, every_ > 0 ? every_ : kCheckSeconds);
}

void Recorder::DecideTimes(const Log& log, std::vector<std::string>* problems) {
  one_in_ = static_cast<uint32_t>(ReadNumber(SettingId::kRecordTimes, problems).value_or(0));
  if (one_in_ == 0) return;
  if (!nccl_ || !ReportsLaunches(*nccl_)) {
    untimed_ =
        "times were not tried with NCCL " + (nccl_ ? ToString(*nccl_) : "of unknown version");
  } else if (!ReadPath(SettingId::kRecordNext).empty()) {
    untimed_ = "NCCLTUNE_RECORD_NEXT names another profiler";  // handles are then the other's
  } else {
    untimed_ = cu::Load(cu::kRecorder, &cuda_);
  }
  is_timing_ = untimed_.empty();
  if (!is_timing_) log.Warn("NCCLTUNE_RECORD_TIMES: no times: " + untimed_);
}

std::unique_ptr<LaunchTimer> Recorder::MakeTimer(uint64_t seed) {
  if (!is_timing_) return nullptr;
  std::unique_ptr<LaunchTimer> timer = LaunchTimer::Make(cuda_, one_in_, seed, &is_untimed_);
  if (timer == nullptr && !is_untimed_.exchange(true)) {
    const std::scoped_lock lock(mutex_);
    untimed_ = "CUDA has no further events";
  }
  return timer;
}

Histogram* Recorder::Begin(CommunicatorFacts facts) {
  const std::scoped_lock lock(mutex_);
  if (Now() >= next_write_) Write(/*ended=*/false);  // what an End put off, before it is overtaken
  // NCCL launches the kernels of such ranks between barriers, and calls no CUDA there.
  const bool has_other_rank = std::ranges::any_of(running_, [&facts](const auto& item) {
    return item->facts.id == facts.id && item->facts.rank != facts.rank;
  });
  if (has_other_rank && is_timing_ && !is_untimed_.exchange(true)) {
    untimed_ = "a communicator has several ranks in this process";
  }
  running_.push_back(std::make_unique<RecordedCommunicator>());
  running_.back()->facts = std::move(facts);
  return &running_.back()->histogram;
}

void Recorder::End(const Histogram* histogram) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::find_if(running_.begin(), running_.end(), [histogram](const auto& item) {
    return &item->histogram == histogram;
  });
  if (found == running_.end()) return;
  const std::unique_ptr<RecordedCommunicator> last = std::move(*found);
  running_.erase(found);
  const auto alike = std::find_if(ended_.begin(), ended_.end(), [&last](const auto& item) {
    return item->facts.IsAlike(last->facts);
  });
  if (alike != ended_.end()) {
    (*alike)->histogram.Add(last->histogram);
    ++(*alike)->number;
  } else if (ended_.size() < kMostEnded) {
    ended_.push_back(std::make_unique<RecordedCommunicator>());
    ended_.back()->facts = last->facts;
    ended_.back()->histogram.Add(last->histogram);
  } else {
    ++lost_.communicators;
    lost_.calls += last->histogram.lost_calls();
    lost_.bytes += last->histogram.lost_bytes();
    last->histogram.ForEach([this](const Row& row) {
      lost_.calls += row.count;
      lost_.bytes += row.total;
    });
  }
  // A program that makes and ends communicators in a loop does not write the file each time.
  if (!running_.empty()) return;
  next_write_ = std::min(next_write_, last_write_ + kLeastSeconds);
  if (Now() >= next_write_) {
    Write(/*ended=*/false);  // other communicators may follow
  } else {
    next_check_ = next_write_;
  }
}

void Recorder::CheckFile(time_t now) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || now < next_check_.load(std::memory_order_relaxed)) return;
  next_check_ = now + std::min(kCheckSeconds, every_ > 0 ? every_ : kCheckSeconds);
  if (file_.IsAskedFor() || now >= next_write_) Write(/*ended=*/false);
}

void Recorder::Write(bool ended) {
  Record record;
  record.pid = pid_;
  record.started = started_;
  record.ended = ended;
  record.timed_one_in = one_in_;
  record.untimed = untimed_;
  record.lost = lost_;
  if (nccl_) record.nccl = ToString(*nccl_);
  for (const auto* const list : {&ended_, &running_}) {
    for (const auto& item : *list) record.communicators.push_back(item.get());
  }
  const std::string error = file_.Write(RecordText(record, words_));
  last_write_ = Now();
  next_write_ = every_ > 0 ? last_write_ + every_ : kNever;
  if (!error.empty() && !std::exchange(has_warned_, true)) {
    Log(log_, abi::kSubsysInit, kLogPrefix)
        .Warn(Printable(file_.path(), 300) + ": " + error +
              ": the calls of this process are not recorded");
  }
}

void Recorder::WriteAtExit() {
  Recorder* const recorder = of_process.load(std::memory_order_acquire);
  // A forked child that used no NCCL ends here, too.
  if (recorder == nullptr || recorder->pid_ != getpid()) return;
  std::unique_lock lock(recorder->mutex_, std::try_to_lock);
  for (int tries = 0; !lock && tries < kMostTries && !recorder->mutex_.IsOwn(); ++tries) {
    poll(nullptr, 0, kTryMs);
    lock = std::unique_lock(recorder->mutex_, std::try_to_lock);
  }
  if (!lock) return;
  recorder->log_ = nullptr;  // NCCL may be gone
  recorder->Write(/*ended=*/true);
}

namespace {

__attribute__((destructor)) void AtExit() { Contain(&Recorder::WriteAtExit); }

}  // namespace

}  // namespace nccltune::profiler
