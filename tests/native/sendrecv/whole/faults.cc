// SPDX-License-Identifier: Apache-2.0
// Preloaded before the send/recv library. Makes system calls on the library's shared file fail.
// CASE_FAULT=function:n:error is read from the environment at each such call. The n-th call of the
// process fails, with n+ all later ones as well.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::atomic<int> g_file = -1;  // descriptor of the library's file
std::atomic<int> g_calls = 0;  // calls of the function that is to fail

int ErrorOf(const std::string& name) {
  struct Error {
    const char* name;
    int number;
  };
  for (const Error& each : {Error{"EINTR", EINTR}, Error{"ENOSPC", ENOSPC}, Error{"ENOMEM", ENOMEM},
                            Error{"EOPNOTSUPP", EOPNOTSUPP}, Error{"ENOLCK", ENOLCK},
                            Error{"EMFILE", EMFILE}, Error{"EAGAIN", EAGAIN}}) {
    if (name == each.name) return each.number;
  }
  std::abort();
}

bool Fails(const char* function) {
  const char* const text = std::getenv("CASE_FAULT");
  if (text == nullptr) return false;
  const std::string fault = text;
  const size_t first = fault.find(':');
  const size_t second = fault.find(':', first + 1);
  if (fault.substr(0, first) != function) return false;
  const int calls = ++g_calls;
  const int failing = std::atoi(fault.c_str() + first + 1);
  if (calls < failing || (calls > failing && fault[second - 1] != '+')) return false;
  errno = ErrorOf(fault.substr(second + 1));
  return true;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  // Without O_CREAT the library looks at files that other processes have left.
  const bool ours = (flags & O_CREAT) != 0 && std::strstr(path, "nccltune-sendrecv") != nullptr;
  if (ours && Fails("open")) return -1;
  const int file = Next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
  if (ours) g_file = file;
  return file;
}

int ftruncate(int file, off_t bytes) noexcept {
  if (file == g_file && Fails("ftruncate")) return -1;
  return Next<int (*)(int, off_t)>("ftruncate")(file, bytes);
}

int fallocate(int file, int mode, off_t begin, off_t bytes) {
  if (file == g_file && Fails("fallocate")) return -1;
  return Next<int (*)(int, int, off_t, off_t)>("fallocate")(file, mode, begin, bytes);
}

int fcntl(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (file == g_file && command == F_SETLK && Fails("fcntl")) return -1;
  return Next<int (*)(int, int, ...)>("fcntl")(file, command, argument);
}

// Fails for threads that the library creates.
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*),
                   void* argument) noexcept {
  Dl_info caller = {};
  const bool ours = dladdr(__builtin_return_address(0), &caller) != 0 &&
                    std::strstr(caller.dli_fname, "nccltune-sendrecv") != nullptr;
  if (ours && Fails("pthread_create")) return errno;
  return Next<decltype(&pthread_create)>("pthread_create")(thread, attributes, function, argument);
}

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (file >= 0 && file == g_file && Fails("mmap")) return MAP_FAILED;
  return Next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap")(at, bytes, protection, flags,
                                                                      file, offset);
}

#pragma GCC visibility pop
}
