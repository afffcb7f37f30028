// SPDX-License-Identifier: Apache-2.0
#include "profiler/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "common/descriptor.h"
#include "common/text.h"
#include "common/token.h"

namespace nccltune::profiler {
namespace {

constexpr const char* kAskFile = "/.write";
constexpr int kMostNames = 1000;  // of one host and process id in a folder

// A text of the program or of NCCL. Bytes that are not printable ASCII become '?'.
void AppendText(std::string* out, std::string_view text) {
  *out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') *out += '\\';
    *out += c < ' ' || c > '~' ? '?' : c;
  }
  *out += '"';
}

void AppendMember(std::string* out, std::string_view name, std::string_view text) {
  *out += ",\"" + std::string(name) + "\":";
  AppendText(out, text);
}

void AppendMember(std::string* out, std::string_view name, uint64_t value) {
  *out += ",\"" + std::string(name) + "\":" + std::to_string(value);
}

void AppendDurations(std::string* out, const Durations& durations) {
  *out += ",\"timed\":{\"total_ns\":" + std::to_string(durations.total_ns.load());
  *out += ",\"bins\":[";
  const char* separator = "";
  for (size_t bin = 0; bin < Durations::kBins; ++bin) {
    if (const uint32_t number = durations.bins[bin]) {
      *out += separator + ('[' + std::to_string(bin)) + ',' + std::to_string(number) + ']';
      separator = ",";
    }
  }
  *out += "]}";
}

void AppendRow(std::string* out, const Row& row, const WordTable& words) {
  const Call& call = row.call;
  *out += "\n{\"function\":";
  AppendText(out, words.Word(call.function));
  AppendMember(out, "count", row.count);
  if (row.rounded) {
    AppendMember(out, "bytes_from", call.bytes);
    AppendMember(out, "total_bytes", row.total);
  } else {
    AppendMember(out, "bytes", call.bytes);
    AppendMember(out, "type", words.Word(call.type));
  }
  if (call.algorithm != 0) AppendMember(out, "algorithm", words.Word(call.algorithm));
  if (call.protocol != 0) AppendMember(out, "protocol", words.Word(call.protocol));
  if (call.channels != 0) AppendMember(out, "channels", uint64_t{call.channels});
  if ((call.flags & kCaptured) != 0) *out += ",\"captured\":true";
  if ((call.flags & kSymmetric) != 0) *out += ",\"symmetric\":true";
  if ((call.flags & kCopyEngine) != 0) *out += ",\"copy_engine\":true";
  if (row.durations != nullptr) AppendDurations(out, *row.durations);
  *out += '}';
}

void AppendCommunicator(std::string* out, const RecordedCommunicator& communicator,
                        const WordTable& words) {
  const CommunicatorFacts& facts = communicator.facts;
  *out += "\n{\"name\":";
  AppendText(out, facts.name);
  AppendMember(out, "id", Hex64(facts.id));
  AppendMember(out, "communicators", communicator.number);
  *out += ",\"nodes\":" + std::to_string(facts.nodes) +
          ",\"ranks\":" + std::to_string(facts.ranks) + ",\"rank\":" + std::to_string(facts.rank);
  if (facts.device >= 0) *out += ",\"device\":" + std::to_string(facts.device);
  *out += ",\"interface\":" + std::to_string(facts.interface_version);
  AppendMember(out, "lost_calls", communicator.histogram.lost_calls());
  AppendMember(out, "lost_bytes", communicator.histogram.lost_bytes());
  for (const bool tasks : {false, true}) {
    *out += tasks ? "],\"tasks\":[" : ",\"calls\":[";
    const char* separator = "";
    communicator.histogram.ForEach([&](const Row& row) {
      if (((row.call.flags & kTask) != 0) != tasks) return;
      *out += separator;
      AppendRow(out, row, words);
      separator = ",";
    });
  }
  *out += "]}";
}

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data()
                                                                           : "unknown";
}

bool WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

timespec ModifiedTime(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? status.st_mtim : timespec{};
}

}  // namespace

std::string RecordText(const Record& record, const WordTable& words) {
  std::string text = "{\"nccltune_record\":" + std::to_string(kRecordVersion);
  AppendMember(&text, "host", HostName());
  AppendMember(&text, "pid", static_cast<uint64_t>(record.pid));
  if (!record.nccl.empty()) AppendMember(&text, "nccl", record.nccl);
  AppendMember(&text, "started", static_cast<uint64_t>(record.started));
  AppendMember(&text, "written", static_cast<uint64_t>(std::time(nullptr)));
  text += record.ended ? ",\"ended\":true" : ",\"ended\":false";
  if (record.timed_one_in != 0) AppendMember(&text, "timed_one_in", uint64_t{record.timed_one_in});
  if (!record.untimed.empty()) AppendMember(&text, "untimed", record.untimed);
  AppendMember(&text, "lost_communicators", record.lost.communicators);
  AppendMember(&text, "lost_calls", record.lost.calls);
  AppendMember(&text, "lost_bytes", record.lost.bytes);
  text += ",\"communicators\":[";
  const char* separator = "";
  for (const RecordedCommunicator* const communicator : record.communicators) {
    text += separator;
    AppendCommunicator(&text, *communicator, words);
    separator = ",";
  }
  text += "]}\n";
  return text;
}

std::string RecordFile::Open(const std::string& folder, pid_t pid) {
  folder_ = folder;
  name_ = HostName() + "-" + std::to_string(pid) + ".json";
  mkdir(folder.c_str(), 0777);  // a failure shows below
  std::array<char, PATH_MAX> resolved{};
  if (realpath(folder.c_str(), resolved.data()) == nullptr) return ErrorWords(errno);
  folder_ = resolved.data();
  asked_ = ModifiedTime(folder_ + kAskFile);
  struct stat status{};
  if (stat(folder_.c_str(), &status) != 0) return ErrorWords(errno);
  if (!S_ISDIR(status.st_mode)) return ErrorWords(ENOTDIR);
  return access(folder_.c_str(), W_OK | X_OK) == 0 ? "" : ErrorWords(errno);
}

std::string RecordFile::Write(const std::string& text) {
  // Processes of two containers or jobs may have the same host name and process id.
  const std::string stem = name_.substr(0, name_.size() - std::string_view(".json").size());
  for (int number = 2; !is_taken_; ++number) {
    const Descriptor file(open(path().c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644));
    if (file.fd() >= 0) {
      is_taken_ = true;
    } else if (errno != EEXIST || number > kMostNames) {
      return ErrorWords(errno);
    } else {
      name_ = stem + "-" + std::to_string(number) + ".json";
    }
  }
  if (hidden_.empty()) {
    uint64_t random = 0;  // stays 0 if the kernel has none: O_EXCL alone is then the protection
    RandomBytes(&random, sizeof(random));
    // Readers skip hidden files.
    hidden_ = folder_ + "/." + name_ + "." + Hex64(random) + ".new";
  }
  unlink(hidden_.c_str());  // left by a write that an exception or a signal ended
  constexpr int kFlags = O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC;
  Descriptor file(open(hidden_.c_str(), kFlags, 0644));
  if (file.fd() < 0) return ErrorWords(errno);
  // Network file systems report a full disk at close.
  if (WriteAll(file.fd(), text) && close(file.Release()) == 0 &&
      std::rename(hidden_.c_str(), path().c_str()) == 0) {
    return "";
  }
  const std::string reason = ErrorWords(errno);
  unlink(hidden_.c_str());
  return reason;
}

bool RecordFile::IsAskedFor() {
  const timespec modified = ModifiedTime(folder_ + kAskFile);
  const bool changed = modified.tv_sec != asked_.tv_sec || modified.tv_nsec != asked_.tv_nsec;
  asked_ = modified;
  return changed && (modified.tv_sec != 0 || modified.tv_nsec != 0);
}

}  // namespace nccltune::profiler
