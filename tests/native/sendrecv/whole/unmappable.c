/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded before the send/recv library in one rank: makes the operation that FAIL_SHARED names
 * fail for the library's shared memory, and for no other file.
 *
 *   mmap       every mapping after its first page, where the lanes are
 *   fallocate  all reservations of memory in it
 *   open       opening it
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char kPrefix[] = "/dev/shm/nccltune-sendrecv-";

static int Fails(const char* operation) {
  const char* wanted = getenv("FAIL_SHARED");
  return wanted != NULL && strcmp(wanted, operation) == 0;
}

static int IsShared(int file) {
  char link[64];
  char path[256];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = '\0';
  return strncmp(path, kPrefix, sizeof kPrefix - 1) == 0;
}

__attribute__((visibility("default"))) void* mmap(void* at, size_t bytes, int protection, int flags,
                                                  int file, off_t offset) {
  static void* (*next)(void*, size_t, int, int, int, off_t);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "mmap");
  if (file >= 0 && offset > 0 && Fails("mmap") && IsShared(file)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return next(at, bytes, protection, flags, file, offset);
}

__attribute__((visibility("default"))) int posix_fallocate(int file, off_t offset, off_t bytes) {
  static int (*next)(int, off_t, off_t);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "posix_fallocate");
  if (Fails("fallocate") && IsShared(file)) return ENOSPC;
  return next(file, offset, bytes);
}

__attribute__((visibility("default"))) int fallocate(int file, int mode, off_t offset,
                                                     off_t bytes) {
  static int (*next)(int, int, off_t, off_t);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "fallocate");
  if (Fails("fallocate") && IsShared(file)) {
    errno = ENOSPC;
    return -1;
  }
  return next(file, mode, offset, bytes);
}

__attribute__((visibility("default"))) int shm_open(const char* name, int flags, mode_t mode) {
  static int (*next)(const char*, int, mode_t);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "shm_open");
  if (Fails("open") && strncmp(name, kPrefix + 8, sizeof kPrefix - 9) == 0) {
    errno = EACCES;
    return -1;
  }
  return next(name, flags, mode);
}
