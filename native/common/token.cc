// SPDX-License-Identifier: Apache-2.0
#include "common/token.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <system_error>

#include "common/descriptor.h"
#include "common/retry.h"

namespace nccltune {

namespace {

template <typename Read>
bool Fill(void* data, size_t bytes, const Read& read) {
  auto* const begin = static_cast<unsigned char*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = Retry([&] { return read(begin + done, bytes - done); });
    if (got <= 0) return false;
    done += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

bool RandomBytes(void* data, size_t bytes) {
  if (Fill(data, bytes, [](void* at, size_t left) { return getrandom(at, left, 0); })) return true;
  const Descriptor file(Retry([] { return open("/dev/urandom", O_RDONLY | O_CLOEXEC); }));
  return file &&
         Fill(data, bytes, [&](void* at, size_t left) { return read(file.fd(), at, left); });
}

std::optional<Token> NewToken() {
  Token token{};
  return RandomBytes(token.data(), token.size()) ? std::optional(token) : std::nullopt;
}

std::optional<Token> ParseToken(std::string_view text) {
  Token token{};
  if (text.size() != 2 * token.size()) return std::nullopt;
  for (size_t i = 0; i < token.size(); ++i) {
    const std::string_view digits = text.substr(2 * i, 2);
    const char* const begin = digits.data();
    const char* const end = begin + digits.size();
    uint8_t byte = 0;
    const std::from_chars_result read = std::from_chars(begin, end, byte, 16);
    if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
    token[i] = std::byte{byte};
  }
  return token;
}

bool SameToken(const Token& a, const Token& b) {
  volatile unsigned difference = 0;  // volatile, so that the compiler cannot leave the loop early
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | std::to_integer<unsigned>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace nccltune
