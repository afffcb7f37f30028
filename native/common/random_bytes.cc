// SPDX-License-Identifier: Apache-2.0
#include "common/random_bytes.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

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

}  // namespace nccltune
