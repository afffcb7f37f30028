/* SPDX-License-Identifier: Apache-2.0

   A module that needs NCCL. Like a Python module it is loaded in a scope of its own, with its NCCL.
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fake_nccl.h"

int ncclSend(WORDS(WORD_TYPE));

uint64_t ModuleSends(WORDS(WORD_PARAMETER));
uint64_t ModuleSends(WORDS(WORD_PARAMETER)) { return (uint64_t)ncclSend(WORDS(WORD_NAME)); }

/* With MODULE_CALLS set, the module calls NCCL while it is loaded, in two threads. The first one
   cannot look up functions meanwhile: the loader's lock belongs to the thread that loads the
   module. */
#define WORD_ZERO(i) 0

static atomic_int first_thread;

static void* Call(void* nothing) {
  if (nothing != NULL) atomic_store((atomic_int*)nothing, (int)syscall(SYS_gettid));
  ModuleSends(WORDS(WORD_ZERO));
  return NULL;
}

/* Returns whether the first thread waits, for the loader's lock. */
static int FirstSleeps(void) {
  char text[512] = "";
  char* state = NULL;
  FILE* file = NULL;
  if (atomic_load(&first_thread) == 0) return 0;
  snprintf(text, sizeof(text), "/proc/self/task/%d/stat", atomic_load(&first_thread));
  file = fopen(text, "r");
  if (file == NULL) return 0;
  state = fgets(text, sizeof(text), file) == NULL ? NULL : strrchr(text, ')');
  fclose(file);
  return state != NULL && state[2] == 'S';
}

__attribute__((constructor)) static void CallWhileLoaded(void) {
  pthread_t first;
  if (getenv("MODULE_CALLS") == NULL) return;
  alarm(120); /* ends the test if it hangs */
  if (pthread_create(&first, NULL, &Call, &first_thread) != 0) abort();
  while (!FirstSleeps()) sched_yield();
  Call(NULL);
  alarm(0);
  pthread_detach(first);
}
