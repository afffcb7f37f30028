/* SPDX-License-Identifier: Apache-2.0

   A module that needs NCCL. Like a Python module it is loaded in a scope of its own, with its NCCL.
 */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "fake_nccl.h"

int ncclSend(WORDS(WORD_TYPE));

uint64_t ModuleSends(WORDS(WORD_PARAMETER));
uint64_t ModuleSends(WORDS(WORD_PARAMETER)) { return (uint64_t)ncclSend(WORDS(WORD_NAME)); }

/* With MODULE_CALLS set, the module calls NCCL while it is loaded, in two threads. The first one
   cannot look up functions meanwhile: the loader's lock belongs to the thread that loads the
   module. */
#define WORD_ZERO(i) 0

static void* Call(void* nothing) {
  (void)nothing;
  ModuleSends(WORDS(WORD_ZERO));
  return NULL;
}

__attribute__((constructor)) static void CallWhileLoaded(void) {
  pthread_t first;
  if (getenv("MODULE_CALLS") == NULL) return;
  alarm(30); /* ends the test if it hangs */
  if (pthread_create(&first, NULL, &Call, NULL) != 0) abort();
  usleep(100000);
  Call(NULL);
  alarm(0);
  pthread_detach(first);
}
