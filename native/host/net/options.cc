// SPDX-License-Identifier: Apache-2.0
#include "host/net/options.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <system_error>

namespace nccltune::host::net {
namespace {

constexpr uint64_t kLargestMessage = uint64_t{1} << 30;

constexpr std::string_view kHelp =
    R"(nccltune-net-host: plays NCCL's side of the net plugin interface between two processes, without
NCCL and without a GPU

usage: nccltune-net-host MODE --plugin PATH --fork [options]
       nccltune-net-host MODE --plugin PATH --rendezvous PORT|PATH --rank 0|1 [options]
       nccltune-net-host --list-symbols --plugin PATH

modes
  transfer     messages of many sizes, every byte and every reported size checked
  pingpong     latency: one message there and one back
  throughput   slices back to back, as NCCL's ring sends them
  idle         connections that stand, with nothing to do

the plugin
  --plugin PATH            a shared object
  --interface N            6 to 12 (default: the newest that both have)
  --device N               (default: 0)
  --virtual-device A,B     make a device of these ones and take it (v9 on)
  --communicators N        contexts that connections are spread over (default: 1)
  --traffic-class N        (default: -1, none)

the other process
  --fork                   start it
  --rendezvous PORT|PATH   meet it on a port of 127.0.0.1 or, from any network namespace, at a socket
                           of that path (with a '/'); both get the same options and a --rank

what is moved
  --connections N          in each direction (default: 1)
  --direction both|forward (default: both; forward is from rank 0 to rank 1)
  --sizes LIST | A-B       0,1,4K,1M in turn, or any from A to B (default: 0-1M; pingpong: 8,1K,64K)
  --messages N             transfer: of a connection and direction; pingpong: of a size (default: 200)
  --window N               outstanding requests of a connection, 1 to 32 (default: 8)
  --receive-slack BYTES    how much larger than its message a receive may be (default: 4K)
  --slice BYTES            throughput: of a message (default: 1M)
  --seconds S              throughput, idle (default: 5)
  --warm-up S              throughput: not counted (default: 1)
  --check                  pingpong, throughput: check the bytes too
  --seed N                 of sizes and bytes (default: 1)
  --memory BYTES           for the buffers of a process; fewer requests are outstanding where they
                           do not fit (default: 2G)
  --rounds N               all of it again, from dlopen to dlclose (default: 1)

how the plugin is called
  --order oldest|random    which outstanding request is tested (default: oldest, as NCCL does)
  --optional-completion    receives pass request 0x1 (v9 on)
  --nulls                  pass NULL for sizes, phandles and device handles
  --no-sizes               test need not report sizes: there are plugins that never do
  --one-service-thread     connect and accept share a thread (a plugin must not wait in them)
  --idle-listens N         listeners that nobody connects to
  --connect-delay MS       accept is called for that long before anyone connects
  --accept-delay MS        and the other way round
  --close-in-flight        close with requests outstanding
  --kill-after MS          kill rank 1; its peer's plugin must report an error (needs --fork
                           or a PATH)
  --stop-after MS          stop rank 1 ...
  --continue-after MS      ... and let it go on that much later; else an error must be reported
  --timeout S              without progress, or in one call (default: 60)
  --log                    print the plugin's log lines to standard error
  --help

Rank 0 prints one line of JSON. Exit status: 0 ok, 1 the plugin failed (one line on standard error),
2 usage, 3 the plugin cannot be loaded or has no such interface, or the other process was not met.
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

class Reader {
 public:
  Reader(Options* options, std::string* error) : options_(*options), error_(error) {}

  bool ReadAll(const std::vector<std::string_view>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      std::string_view name = arguments[i];
      if (!name.starts_with("--")) {
        if (!ReadMode(name)) return false;
        continue;
      }
      if (ReadFlag(name)) continue;
      std::string_view value;
      const size_t equals = name.find('=');
      if (equals != std::string_view::npos) {
        value = name.substr(equals + 1);
        name = name.substr(0, equals);
      } else if (i + 1 < arguments.size()) {
        value = arguments[++i];
      } else {
        return Fail("'" + std::string(name) + "' is not an option, or lacks its value");
      }
      if (!ReadOption(name, value)) return false;
    }
    return options_.help || Complete();
  }

 private:
  bool Fail(std::string message) {
    *error_ = std::move(message);
    return false;
  }

  bool ReadMode(std::string_view name) {
    for (const Mode mode : {Mode::kTransfer, Mode::kPingPong, Mode::kThroughput, Mode::kIdle}) {
      if (name != ModeName(mode)) continue;
      if (has_mode_) return Fail("there are two modes");
      options_.mode = mode;
      return has_mode_ = true;
    }
    return Fail("'" + std::string(name) + "' is no mode: transfer, pingpong, throughput, idle");
  }

  bool ReadFlag(std::string_view name) {
    struct Flag {
      std::string_view name;
      bool* value;
    };
    const Flag flags[] = {{"--help", &options_.help},
                          {"--list-symbols", &options_.list_symbols},
                          {"--fork", &options_.fork},
                          {"--check", &options_.check},
                          {"--optional-completion", &options_.optional_completion},
                          {"--nulls", &options_.nulls},
                          {"--no-sizes", &options_.no_sizes},
                          {"--one-service-thread", &options_.one_service_thread},
                          {"--close-in-flight", &options_.close_in_flight},
                          {"--log", &options_.log}};
    for (const Flag& flag : flags) {
      if (flag.name == name) return *flag.value = true;
    }
    return false;
  }

  template <typename Number>
  bool ReadNumber(std::string_view name, std::string_view text, Number low, Number high,
                  Number* out) {
    const char* const first = text.data();
    const char* const last = first + text.size();
    const std::from_chars_result result = std::from_chars(first, last, *out);
    if (result.ec == std::errc() && result.ptr == last && *out >= low && *out <= high) return true;
    return Fail(std::string(name) + ": '" + std::string(text) + "' is no number from " +
                std::to_string(low) + " to " + std::to_string(high));
  }

  bool ReadSize(std::string_view name, std::string_view text, uint64_t low, uint64_t high,
                uint64_t* out) {
    const std::optional<uint64_t> size = ParseBytes(text);
    if (!size || *size < low || *size > high) {
      return Fail(std::string(name) + ": '" + std::string(text) + "' is no size from " +
                  std::to_string(low) + " to " + std::to_string(high) + ", with K, M or G");
    }
    *out = *size;
    return true;
  }

  bool ReadInteger(std::string_view name, std::string_view value, bool* known) {
    struct Integer {
      std::string_view name;
      int low;
      int high;
      int* out;
    };
    constexpr int kHour = 3'600'000;
    const Integer integers[] = {{"--interface", 6, 12, &options_.interface},
                                {"--device", 0, 1 << 16, &options_.device},
                                {"--communicators", 1, 64, &options_.communicators},
                                {"--traffic-class", -1, 1 << 16, &options_.traffic_class},
                                {"--rank", 0, 1, &options_.rank},
                                {"--connections", 1, 4096, &options_.connections},
                                {"--window", 1, 32, &options_.window},
                                {"--rounds", 1, 1 << 20, &options_.rounds},
                                {"--idle-listens", 0, 4096, &options_.idle_listens},
                                {"--connect-delay", 0, kHour, &options_.connect_delay_ms},
                                {"--accept-delay", 0, kHour, &options_.accept_delay_ms},
                                {"--kill-after", 0, kHour, &options_.kill_after_ms},
                                {"--stop-after", 0, kHour, &options_.stop_after_ms},
                                {"--continue-after", 0, kHour, &options_.continue_after_ms},
                                {"--timeout", 1, kHour, &options_.timeout_s}};
    for (const Integer& integer : integers) {
      if (integer.name != name) continue;
      *known = true;
      return ReadNumber(name, value, integer.low, integer.high, integer.out);
    }
    return false;
  }

  bool ReadOption(std::string_view name, std::string_view value) {
    bool known = false;
    const bool read = ReadInteger(name, value, &known);
    if (known) return read;
    constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
    if (name == "--plugin") {
      options_.plugin = value;
      return !value.empty() || Fail("--plugin: the path is empty");
    }
    if (name == "--rendezvous") {
      options_.rendezvous = value;
      uint16_t port = 0;
      return IsPath(value) || ReadNumber<uint16_t>(name, value, 1, 65535, &port);
    }
    if (name == "--messages") return ReadNumber<uint64_t>(name, value, 1, kAny, &options_.messages);
    if (name == "--seed") return ReadNumber<uint64_t>(name, value, 0, kAny, &options_.seed);
    if (name == "--receive-slack") {
      return ReadSize(name, value, 0, kLargestMessage, &options_.slack);
    }
    if (name == "--slice") return ReadSize(name, value, 1, kLargestMessage, &options_.slice);
    if (name == "--memory") return ReadSize(name, value, 1, kAny, &options_.memory);
    if (name == "--seconds") return ReadNumber(name, value, 0.0, 3600.0, &options_.seconds);
    if (name == "--warm-up") return ReadNumber(name, value, 0.0, 3600.0, &options_.warmup_seconds);
    if (name == "--sizes") {
      options_.sizes_text = value;
      return ParseSizes(value, &options_.sizes) || Fail("--sizes: '" + std::string(value) +
                                                        "' is neither a list like 0,1,4K,1M nor a "
                                                        "range like 0-1M, up to 1G");
    }
    if (name == "--order") {
      options_.random_order = value == "random";
      return value == "random" || value == "oldest" ||
             Fail("--order: '" + std::string(value) + "' is neither oldest nor random");
    }
    if (name == "--direction") {
      options_.both = value == "both";
      return value == "both" || value == "forward" ||
             Fail("--direction: '" + std::string(value) + "' is neither both nor forward");
    }
    if (name == "--virtual-device") return ReadMembers(name, value);
    return Fail("'" + std::string(name) + "' is not an option");
  }

  bool ReadMembers(std::string_view name, std::string_view value) {
    for (;;) {
      const size_t end = value.find(',');
      int member = 0;
      if (!ReadNumber(name, value.substr(0, end), 0, 1 << 16, &member)) return false;
      options_.members.push_back(member);
      if (end == std::string_view::npos) return true;
      value.remove_prefix(end + 1);
    }
  }

  bool Complete() {
    if (options_.plugin.empty()) return Fail("--plugin is missing");
    if (options_.list_symbols) return true;
    if (!has_mode_) return Fail("the mode is missing: transfer, pingpong, throughput or idle");
    if (options_.fork != options_.rendezvous.empty()) {
      return Fail("give one of --fork and --rendezvous");
    }
    const bool loses_peer = options_.kill_after_ms >= 0 || options_.stop_after_ms >= 0;
    if (loses_peer && !options_.fork && !IsPath(options_.rendezvous)) {
      return Fail("--kill-after and --stop-after need --fork, or a path to meet at");
    }
    if (loses_peer && options_.mode != Mode::kThroughput && options_.mode != Mode::kTransfer) {
      return Fail("--kill-after and --stop-after go with transfer and throughput");
    }
    if (options_.continue_after_ms >= 0 && options_.stop_after_ms < 0) {
      return Fail("--continue-after goes with --stop-after");
    }
    if (options_.close_in_flight && (options_.mode != Mode::kTransfer || loses_peer)) {
      return Fail("--close-in-flight goes with transfer, and with no lost peer");
    }
    if (options_.mode == Mode::kPingPong) {
      options_.both = true;
      if (options_.sizes.range) return Fail("--sizes: pingpong takes a list");
    }
    if (options_.mode == Mode::kThroughput) {
      if (!options_.sizes.list.empty()) return Fail("--sizes: throughput takes --slice");
      options_.sizes_text = std::to_string(options_.slice);
      options_.sizes.list = {options_.slice};
    }
    if (options_.sizes.list.empty()) {
      options_.sizes_text = options_.mode == Mode::kPingPong ? "8,1K,64K" : "0-1M";
      ParseSizes(options_.sizes_text, &options_.sizes);
    }
    if (options_.mode == Mode::kPingPong) {
      options_.sizes.repeat = options_.messages + WarmUpTrips(options_);
    }
    return true;
  }

  Options& options_;
  std::string* error_;
  bool has_mode_ = false;
};

}  // namespace

bool IsPath(std::string_view rendezvous) { return rendezvous.find('/') != std::string_view::npos; }

std::string_view ModeName(Mode mode) {
  static constexpr std::array<std::string_view, 4> kNames = {"transfer", "pingpong", "throughput",
                                                             "idle"};
  return kNames[static_cast<size_t>(mode)];
}

bool ParseOptions(const std::vector<std::string_view>& arguments, Options* options,
                  std::string* error) {
  return Reader(options, error).ReadAll(arguments);
}

std::string_view HelpText() { return kHelp; }

}  // namespace nccltune::host::net
