// SPDX-License-Identifier: Apache-2.0
#include "host/net/options.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "common/option_table.h"
#include "common/text.h"

namespace nccltune::host::net {
namespace {

constexpr uint64_t kLargestMessage = uint64_t{1} << 30;

constexpr std::string_view kHelp =
    R"(nccltune-net-host: simulates NCCL's side of the net plugin interface between two
processes, without NCCL and without a GPU

usage: nccltune-net-host MODE --plugin PATH --fork [options]
       nccltune-net-host MODE --plugin PATH --rendezvous PATH --rank 0|1 [options]

modes
  transfer     messages of many sizes, every byte and every reported size checked
  throughput   slices back to back, as NCCL's ring sends them
  idle         open connections without messages

the plugin
  --plugin PATH            a shared object
  --interface N            6 to 12 (default: the newest that both sides have)
  --device N               device index (default: 0)
  --virtual-device A,B     create a virtual device from these devices and use it (v9 on)
  --traffic-class N        (default: -1, none)

the other process
  --fork                   start both processes
  --rendezvous PATH        connect through a socket at that path, which works across network
                           namespaces; start both processes with the same options and a --rank

the messages
  --connections N          in each direction (default: 1)
  --direction both|forward (default: both; forward is from rank 0 to rank 1)
  --sizes LIST | A-B       0,1,4K,1M in order, or random from A to B
                           (default: 0-1M; throughput: 1M)
  --messages N             transfer: for each connection and direction (default: 200)
  --window N               outstanding requests on each connection, 1 to 32 (default: 8)
  --receive-slack BYTES    how much larger than the message a receive may be (default: 4K)
  --seconds S              throughput, idle: duration (default: 5)
  --warm-up S              throughput: time before the measurement (default: 1)
  --check                  throughput: check the bytes too
  --rounds N               repeat everything from dlopen to dlclose (default: 1)

how the plugin is called
  --close-in-flight        close with requests outstanding
  --kill-after MS          kill rank 1; rank 0's plugin must report an error
  --timeout S              limit without progress; twice that for one call (default: 60)
  --log                    print the plugin's log lines to standard error
  --help

Rank 0 prints one line of JSON. Exit status: 0 ok, 1 the plugin failed (one line on standard error),
2 usage, 3 the plugin cannot be loaded or lacks the interface, or the other process was not reached.
)";

std::optional<uint64_t> ParseBytes(std::string_view text) {
  uint64_t value = 0;
  const char* const first = text.data();
  const char* const last = first + text.size();
  const std::from_chars_result result = std::from_chars(first, last, value);
  if (result.ec != std::errc()) return std::nullopt;
  const std::string_view unit(result.ptr, static_cast<size_t>(last - result.ptr));
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (shift < 0 || value > (std::numeric_limits<uint64_t>::max() >> static_cast<unsigned>(shift))) {
    return std::nullopt;
  }
  return value << static_cast<unsigned>(shift);
}

bool ParseSizes(std::string_view text, Sizes* sizes) {
  *sizes = {};
  const size_t dash = text.find('-');
  sizes->range = dash != std::string_view::npos;
  const char separator = sizes->range ? '-' : ',';
  for (;;) {
    const size_t end = text.find(separator);
    const std::optional<uint64_t> size = ParseBytes(text.substr(0, end));
    if (!size || *size > kLargestMessage) return false;
    sizes->list.push_back(*size);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return !sizes->range || (sizes->list.size() == 2 && sizes->list[0] <= sizes->list[1]);
}

std::string ReadMembers(std::string_view text, std::vector<int>* members) {
  for (;;) {
    const size_t end = text.find(',');
    int member = 0;
    std::string wrong = ReadNumber(text.substr(0, end), 0, 1 << 16, &member);
    if (!wrong.empty()) return wrong;
    members->push_back(member);
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
}

std::string ReadMode(std::string_view name, NetCheckMode* mode, bool* has_mode) {
  for (const NetCheckMode each :
       {NetCheckMode::kTransfer, NetCheckMode::kThroughput, NetCheckMode::kIdle}) {
    if (name != ModeName(each)) continue;
    if (std::exchange(*has_mode, true)) return "two modes are given";
    *mode = each;
    return {};
  }
  return Quoted(name) + " is no mode: transfer, throughput, idle";
}

OptionTable TableFor(NetCheckOptions& options) {
  constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
  constexpr int kHour = 3'600'000;
  OptionTable table;
  table.Flag("--help", &options.help);
  table.Path("--plugin", &options.plugin);
  table.Number("--interface", 6, 12, &options.interface);
  table.Number("--device", 0, 1 << 16, &options.device);
  table.Value("--virtual-device",
              [&options](std::string_view text) { return ReadMembers(text, &options.members); });
  table.Number("--traffic-class", -1, 1 << 16, &options.traffic_class);
  table.Flag("--fork", &options.fork);
  table.Path("--rendezvous", &options.rendezvous);
  table.Number("--rank", 0, 1, &options.rank);
  table.Number("--connections", 1, 4096, &options.connections);
  table.Value("--direction", [&options](std::string_view text) -> std::string {
    options.both = text == "both";
    if (options.both || text == "forward") return {};
    return Quoted(text) + " is neither both nor forward";
  });
  table.Value("--sizes", [&options](std::string_view text) -> std::string {
    if (ParseSizes(text, &options.sizes)) return {};
    return Quoted(text) + " is neither a list like 0,1,4K,1M nor a range like 0-1M, up to 1G";
  });
  table.Number("--messages", uint64_t{1}, kAny, &options.messages);
  table.Number("--window", 1, 32, &options.window);
  table.Value("--receive-slack", [&options](std::string_view text) -> std::string {
    const std::optional<uint64_t> size = ParseBytes(text);
    if (!size || *size > kLargestMessage) return Quoted(text) + " is no size like 4K, up to 1G";
    options.slack = *size;
    return {};
  });
  table.Number("--seconds", 0.0, 3600.0, &options.seconds);
  table.Number("--warm-up", 0.0, 3600.0, &options.warmup_seconds);
  table.Flag("--check", &options.check);
  table.Number("--rounds", 1, 1 << 20, &options.rounds);
  table.Flag("--close-in-flight", &options.close_in_flight);
  table.Number("--kill-after", 0, kHour, &options.kill_after_ms);
  table.Number("--timeout", 1, kHour, &options.timeout_s);
  table.Flag("--log", &options.log);
  return table;
}

// Sets defaults that depend on other options. Returns an error text if an option is missing or
// options contradict each other, else an empty text.
std::string Complete(NetCheckOptions& options, bool has_mode) {
  if (options.plugin.empty()) return "--plugin is missing";
  if (!has_mode) return "the mode is missing: transfer, throughput or idle";
  if (options.fork != options.rendezvous.empty()) {
    return "give either --fork or --rendezvous";
  }
  if (options.kill_after_ms >= 0 && options.mode == NetCheckMode::kIdle) {
    return "--kill-after works only with transfer and throughput";
  }
  if (options.close_in_flight &&
      (options.mode != NetCheckMode::kTransfer || options.kill_after_ms >= 0)) {
    return "--close-in-flight works only with transfer, without --kill-after";
  }
  if (options.sizes.list.empty()) {
    ParseSizes(options.mode == NetCheckMode::kThroughput ? "1M" : "0-1M", &options.sizes);
  }
  return {};
}

}  // namespace

std::string_view ModeName(NetCheckMode mode) {
  static constexpr std::array<std::string_view, 3> kNames = {"transfer", "throughput", "idle"};
  return kNames[static_cast<size_t>(mode)];
}

bool ParseOptions(const std::vector<std::string_view>& arguments, NetCheckOptions* options,
                  std::string* error) {
  bool has_mode = false;
  OptionTable table = TableFor(*options);
  table.Positional(
      [&](std::string_view name) { return ReadMode(name, &options->mode, &has_mode); });
  if (!table.Parse(arguments, error)) return false;
  if (options->help) return true;
  *error = Complete(*options, has_mode);
  return error->empty();
}

std::string_view HelpText() { return kHelp; }

}  // namespace nccltune::host::net
