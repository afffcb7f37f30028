// SPDX-License-Identifier: Apache-2.0
#include "common/settings.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "common/text.h"

namespace nccltune {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kSwitchWords = {"0"sv, "1"sv};
constexpr std::array kStaleWords = {"warn"sv, "off"sv};

constexpr std::array kAutoWord = {"auto"sv};
constexpr std::array kAutoSwitchWords = {"auto"sv, "0"sv, "1"sv};

constexpr std::array kSignalWords = {"none"sv, "USR1"sv, "USR2"sv};
constexpr std::array kHardwareWords = {"tested"sv, "any"sv};
constexpr std::array kWaitWords = {"auto"sv, "memory"sv};
constexpr std::array kPolicyWords = {"copy"sv, "vccl"sv};
constexpr std::array kSendrecvWords = {"0"sv, "1"sv, "verify"sv, "dry-run"sv};

constexpr auto kSettings = std::to_array<Setting>({
    {"NCCLTUNE_CONFIG", "path", "", "Configuration of the tuner plugin.", {}},
    {"NCCL_TUNER_CONFIG_FILE",
     "path",
     "",
     "Read when NCCLTUNE_CONFIG is not set; the variable of NVIDIA's example plugin.",
     {}},
    {"NCCLTUNE_STRICT", "0|1", "0", "1: a configuration with any bad line gives no rules at all.",
     kSwitchWords},
    {"NCCLTUNE_STALE", "warn|off", "warn",
     "What to do with rules measured on another NCCL version or GPU. warn: log it and use them; "
     "off: log it and use none.",
     kStaleWords},
    {"NCCLTUNE_CONFIG_HASH",
     "text",
     "",
     "Content hash of the configuration, 16 hexadecimal digits. A rank whose file has another "
     "content uses no rule.",
     {}},
    {"NCCLTUNE_NATIVE_DIR",
     "path",
     "",
     "Where the Python side looks for nccltune's shared objects and programs; not read by the "
     "plugin.",
     {}},
    {"NCCLTUNE_TOKEN",
     "text",
     "",
     "32 hexadecimal digits that the processes of one nccltune-bench share; not read by the "
     "plugin.",
     {}},
    {"NCCLTUNE_NET_FLOWS",
     "auto or 1 to 64",
     "auto",
     "TCP flows that share the data of one NCCL connection. auto: half the number of threads, 2 to "
     "8.",
     kAutoWord,
     {.least = 1, .most = 64}},
    {"NCCLTUNE_NET_THREADS",
     "auto or 1 to 64",
     "auto",
     "Threads of a process that transfer data for all its connections. auto: derived from the CPUs "
     "that the process may use, shared with the other ranks of the host.",
     kAutoWord,
     {.least = 1, .most = 64}},
    {"NCCLTUNE_NET_EAGER",
     "0 to 1M",
     "16K",
     "Messages up to this size are sent immediately by the calling thread.",
     {},
     {.least = 0, .most = 1U << 20U, .units = true}},
    {"NCCLTUNE_NET_DEVICES",
     "auto or 1 to 8",
     "auto",
     "Devices per NIC that NCCL sees; it makes channels for each. auto: four in total, or one per "
     "NIC if the process has fewer than 6 CPUs.",
     kAutoWord,
     {.least = 1, .most = 8}},
    {"NCCLTUNE_NET_TIMEOUT",
     "0 to 1000000",
     "600",
     "Seconds without progress after which a connection fails. 0: never.",
     {},
     {.least = 0, .most = 1000000}},
    {"NCCLTUNE_NET_PATH_TIMEOUT",
     "auto or 1 to 3600",
     "auto",
     "Seconds without an answer of the peer's host after which a TCP flow is closed and "
     "reconnected. auto: a tenth of NCCLTUNE_NET_TIMEOUT, at most 60.",
     kAutoWord,
     {.least = 1, .most = 3600}},
    {"NCCLTUNE_NET_DOWN_TIMEOUT",
     "auto or 0 to 1000000",
     "auto",
     "Seconds without any TCP flow to a host that does not answer, after which a connection fails. "
     "auto: NCCLTUNE_NET_TIMEOUT. 0: never.",
     kAutoWord,
     {.least = 0, .most = 1000000}},
    {"NCCLTUNE_NET_PORTS",
     "first-last of 1 to 65535",
     "",
     "TCP ports to listen on, for firewalls. Not set: any free port.",
     {},
     {.least = 1, .most = 65535, .pair = true}},
    {"NCCLTUNE_NET_ZEROCOPY", "auto|0|1", "auto",
     "Sends large messages without a copy in the kernel. auto: tried on each TCP flow, and kept "
     "if the kernel does not copy anyway.",
     kAutoSwitchWords},
    {"NCCLTUNE_NET_NOFILE",
     "0 to 1048576",
     "65536",
     "The process's soft limit of open files is raised to this, within its hard limit. 0: the "
     "limit is not changed.",
     {},
     {.least = 0, .most = 1U << 20U}},
    {"NCCLTUNE_SENDRECV", "0|1|verify|dry-run", "0",
     "1: carries sends and receives by the GPUs' copy engines. verify: also compares checksums of "
     "the bytes. dry-run: counts what would be done, and NCCL does everything. 0: off.",
     kSendrecvWords},
    {"NCCLTUNE_SENDRECV_NCCL",
     "path",
     "",
     "The real NCCL, on which nccltune's library interposes. Not set: it is found.",
     {}},
    {"NCCLTUNE_SENDRECV_FROM",
     "auto or 4K to 1024M",
     "auto",
     "Messages of at least this many bytes are worth a copy engine. auto: 2M, or 8M with "
     "CUDA_DEVICE_MAX_CONNECTIONS=1.",
     kAutoWord,
     {.least = 4U << 10U, .most = 1024U << 20U, .units = true}},
    {"NCCLTUNE_SENDRECV_EAGER",
     "0 to 1024M",
     "64M",
     "Sends up to this size complete before their receives begin, as they do in NCCL's buffers. "
     "Takes as much GPU memory for each peer that needs it. 0: no program relies on it.",
     {},
     {.least = 0, .most = 1024U << 20U, .units = true}},
    {"NCCLTUNE_SENDRECV_POLICY", "copy|vccl", "copy",
     "copy: copies directly from the sender's memory to the receiver's. vccl: copies through a "
     "buffer on the receiver's GPU, like VCCL.",
     kPolicyWords},
    {"NCCLTUNE_SENDRECV_BUFFER",
     "1M to 1024M",
     "64M",
     "vccl: bytes of the buffer of each channel, for each peer that sends.",
     {},
     {.least = 1U << 20U, .most = 1024U << 20U, .units = true}},
    {"NCCLTUNE_SENDRECV_STEPS",
     "1 to 64",
     "1",
     "vccl: number of slots of that buffer.",
     {},
     {.least = 1, .most = 64}},
    {"NCCLTUNE_SENDRECV_CHANNELS",
     "1 to 8",
     "2",
     "vccl: number of channels that carry a message at the same time.",
     {},
     {.least = 1, .most = 8}},
    {"NCCLTUNE_SENDRECV_CHUNK",
     "0 to 1024M",
     "0",
     "Most bytes of one copy. 0: with copy the whole message, with vccl the size in VCCL's table.",
     {},
     {.least = 0, .most = 1024U << 20U, .units = true}},
    {"NCCLTUNE_SENDRECV_GRAPHS", "0|1", "0",
     "1: copies messages that both ranks capture into graphs by copy engines, too.", kSwitchWords},
    {"NCCLTUNE_SENDRECV_WAITS", "auto|memory", "auto",
     "How streams wait if CUDA_DEVICE_MAX_CONNECTIONS is 1. auto: by kernels of one warp. memory: "
     "not at all, NCCL carries everything. With more connections streams wait without kernels.",
     kWaitWords},
    {"NCCLTUNE_SENDRECV_WAIT_LIMIT",
     "1 to 86400",
     "86400",
     "Seconds after which a wait by a kernel ends and the communicator fails.",
     {},
     {.least = 1, .most = 86400}},
    {"NCCLTUNE_SENDRECV_HARDWARE", "tested|any", "tested",
     "tested: copy engines carry messages only between H100 or H200 with NVLink between them. any: "
     "also elsewhere, where NCCL uses direct access too.",
     kHardwareWords},
    {"NCCLTUNE_SENDRECV_STATS",
     "path",
     "",
     "At its end a process appends its message counts to this file; - is standard error. Not set: "
     "they are not written.",
     {}},
    {"NCCLTUNE_SENDRECV_SIGNAL", "none|USR1|USR2", "none",
     "On this signal the process writes the same counts, to standard error if no file is set, "
     "unless the program handles the signal.",
     kSignalWords},
    {"NCCLTUNE_SENDRECV_METRICS",
     "path",
     "",
     "Folder in which a process writes the same counts every 10 s, as a text file of Prometheus. "
     "Not "
     "set: they are not written.",
     {}},
    {"NCCLTUNE_SENDRECV_OFF_FILE",
     "path",
     "/dev/shm/nccltune.off",
     "While this file of the process's user or of root exists, NCCL carries all later messages.",
     {}},
});

const Setting& Of(SettingId id) { return kSettings[static_cast<size_t>(id)]; }

// Returns the variable's value without surrounding blanks; empty if the variable is unset or empty.
std::string_view ValueOf(const Setting& setting) {
  const char* const value = std::getenv(setting.name);
  return value == nullptr ? std::string_view() : Trimmed(value);
}

std::string Refusal(const Setting& setting, std::string_view value, const std::string& valid) {
  std::string warning = std::string(setting.name) + "=" + Quoted(value) + " is not " + valid + "; ";
  const std::string_view nearest = Nearest(setting.valid, value);
  if (!nearest.empty()) warning += "did you mean " + Quoted(nearest) + "? ";
  if (setting.default_value.empty()) return warning + "treating it as not set";
  return warning + "using " + std::string(setting.default_value);
}

std::optional<uint64_t> ParseNumber(std::string_view text, const Numbers& numbers) {
  unsigned shift = 0;
  if (numbers.units && !text.empty()) {
    const char unit = LowerCase(text.back());
    shift = unit == 'k' ? 10U : unit == 'm' ? 20U : 0U;
    if (shift != 0) text.remove_suffix(1);
  }
  const std::optional<uint64_t> number = ParseUnsigned(text);
  if (!number || *number > numbers.most >> shift) return std::nullopt;
  const uint64_t value = *number << shift;
  return value < numbers.least ? std::nullopt : std::optional(value);
}

std::optional<NumberRange> ParseRange(std::string_view text, const Numbers& numbers) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = ParseNumber(Trimmed(text.substr(0, dash)), numbers);
  const auto last = ParseNumber(Trimmed(text.substr(dash + 1)), numbers);
  if (!first || !last || *first > *last) return std::nullopt;
  return NumberRange{.first = *first, .last = *last};
}

}  // namespace

std::span<const Setting> Settings() { return kSettings; }

std::string ReadPath(SettingId id) {
  const char* const value = std::getenv(Of(id).name);
  return value == nullptr || *value == '\0' ? std::string(Of(id).default_value)
                                            : std::string(value);
}

std::string_view ReadWord(SettingId id, std::vector<std::string>* warnings) {
  const Setting& setting = Of(id);
  const std::string_view word = ValueOf(setting);
  if (word.empty()) return setting.default_value;
  for (const std::string_view valid : setting.valid) {
    if (valid == word) return valid;
  }
  warnings->push_back(Refusal(setting, word, "one of " + Listed(setting.valid)));
  return setting.default_value;
}

std::optional<uint64_t> ReadNumber(SettingId id, std::vector<std::string>* warnings) {
  const Setting& setting = Of(id);
  const std::string_view text = ValueOf(setting);
  if (NumberOf(setting.valid, text).has_value()) return std::nullopt;
  const std::optional<uint64_t> number = ParseNumber(text, setting.numbers);
  if (number) return number;
  if (!text.empty()) warnings->push_back(Refusal(setting, text, std::string(setting.type)));
  return ParseNumber(setting.default_value, setting.numbers);
}

std::optional<NumberRange> ReadRange(SettingId id, std::vector<std::string>* warnings) {
  const Setting& setting = Of(id);
  const std::string_view text = ValueOf(setting);
  const std::optional<NumberRange> range = ParseRange(text, setting.numbers);
  if (range) return range;
  if (!text.empty()) warnings->push_back(Refusal(setting, text, std::string(setting.type)));
  return ParseRange(setting.default_value, setting.numbers);
}

std::vector<std::string> UnknownSettings() {
  constexpr std::string_view kPrefix = "NCCLTUNE_";
  std::vector<std::string_view> names;
  names.reserve(kSettings.size());
  for (const Setting& setting : kSettings) names.emplace_back(setting.name);
  std::vector<std::string> warnings;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view entry(*variable);
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix) || NumberOf(names, name).has_value()) continue;
    std::string warning = Printable(name, 80) + " is not a setting of nccltune and is ignored";
    const std::string_view nearest = Nearest(names, name);
    if (!nearest.empty()) warning += "; did you mean " + std::string(nearest) + "?";
    warnings.push_back(warning);
  }
  return warnings;
}

}  // namespace nccltune
