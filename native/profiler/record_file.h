// SPDX-License-Identifier: Apache-2.0
//
// The file of a process: its text, which src/nccltune/workload/recorder.py reads, and its name in
// the folder. A reader may be of another release: members keep their names and meanings; any other
// change needs a new kRecordVersion.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "profiler/histogram.h"

namespace nccltune::profiler {

inline constexpr int kRecordVersion = 1;

struct CommunicatorFacts {
  std::string name;  // that the program gave it; empty: none
  uint64_t id = 0;
  int nodes = 0;
  int ranks = 0;
  int rank = 0;
  int device = -1;  // CUDA device; -1: unknown
  int interface_version = 0;

  // Whether calls of both may be added up.
  bool IsAlike(const CommunicatorFacts& other) const {
    return name == other.name && nodes == other.nodes && ranks == other.ranks &&
           rank == other.rank && device == other.device &&
           interface_version == other.interface_version;
  }
};

struct RecordedCommunicator {
  CommunicatorFacts facts;  // of the first, if there are several
  uint64_t number = 1;      // of communicators
  Histogram histogram;
};

struct LostCalls {
  uint64_t communicators = 0;
  uint64_t calls = 0;
  uint64_t bytes = 0;
};

struct Record {
  pid_t pid = 0;
  std::string nccl;  // version; empty: unknown
  time_t started = 0;
  bool ended = false;         // the process: no call can follow
  uint32_t timed_one_in = 0;  // launch; 0: no times were asked for
  std::string untimed;        // why there are none, or no more
  LostCalls lost;
  std::vector<const RecordedCommunicator*> communicators;
};

// Returns the content of the file: one JSON object.
std::string RecordText(const Record& record, const WordTable& words);

class RecordFile {
 public:
  // Makes the folder if it is missing, and remembers its absolute path. Returns the reason if
  // nothing can be written there, else an empty text.
  std::string Open(const std::string& folder, pid_t pid);

  // Replaces the file as a whole. The first time, takes a name that no file of the folder has.
  // Returns the reason of a failure, else an empty text.
  std::string Write(const std::string& text);

  // Returns whether the file `.write` of the folder was touched since the last call or Open.
  bool IsAskedFor();

  std::string path() const { return folder_ + "/" + name_; }

 private:
  std::string folder_;
  std::string name_;
  std::string hidden_;  // path of the file that becomes the next one; nobody can foresee it
  bool is_taken_ = false;
  timespec asked_{};
};

}  // namespace nccltune::profiler
