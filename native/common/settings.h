// SPDX-License-Identifier: Apache-2.0
//
// Every environment variable that a native part of nccltune reads, declared once. Help texts and
// documentation are checked against this table.
#ifndef NCCLTUNE_COMMON_SETTINGS_H_
#define NCCLTUNE_COMMON_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/vocabulary.h"

namespace nccltune {

enum class SettingId {
  kConfig,
  kNcclConfigFile,
  kStrict,
  kStale,
  kNativeDir,
  kToken,
  kNetFlows,
  kNetThreads,
  kNetEager,
  kNetDevices,
  kNetTimeout,
  kNetPorts,
  kNetZeroCopy,
  kSendrecv,
  kSendrecvNccl,
  kSendrecvFrom,
  kSendrecvEager,
  kSendrecvPolicy,
  kSendrecvBuffer,
  kSendrecvSteps,
  kSendrecvChannels,
  kSendrecvChunk,
  kSendrecvGraphs,
  kSendrecvStats,
  kSendrecvSignal,
};

// What a setting of numbers may be.
struct Numbers {
  uint64_t least = 0;
  uint64_t most = 0;   // 0: no setting of numbers
  bool units = false;  // K and M behind a number are 1024 and 1024 * 1024
  bool pair = false;   // "first-last"
};

struct Setting {
  const char* name;
  std::string_view type;           // "path", the valid words separated by "|", or the valid numbers
  std::string_view default_value;  // empty: not set
  std::string_view meaning;
  Words valid;  // empty for a path; words that stand for a number where there are numbers
  Numbers numbers = {};
};

// Inclusive.
struct NumberRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

// In the order of SettingId.
std::span<const Setting> Settings();

// The value of a path or a text; empty when it is not set or set to nothing.
std::string ReadPath(SettingId id);

// The value of a setting of words. One that is not valid is named in `warnings` together with the
// nearest valid one, and the default is taken.
std::string_view ReadWord(SettingId id, std::vector<std::string>* warnings);

// The value of a setting of numbers; empty where it is one of its words. One that is not valid is
// named in `warnings` together with what is, and the default is taken.
std::optional<uint64_t> ReadNumber(SettingId id, std::vector<std::string>* warnings);

// The value of a setting of two numbers; empty where it is not set. As ReadNumber.
std::optional<NumberRange> ReadRange(SettingId id, std::vector<std::string>* warnings);

// One warning for each NCCLTUNE_* variable in the environment that is not in the table.
std::vector<std::string> UnknownSettings();

}  // namespace nccltune

#endif  // NCCLTUNE_COMMON_SETTINGS_H_
