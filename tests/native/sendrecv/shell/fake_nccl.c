/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_nccl.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

static _Thread_local FakeCall last;

const FakeCall* FakeLastCall(void);
const FakeCall* FakeLastCall(void) { return &last; }

/* NCCL calls these by their public names itself. */
int ncclGroupStart(WORDS(WORD_TYPE));
int ncclGroupEnd(WORDS(WORD_TYPE));
int ncclCommDestroy(WORDS(WORD_TYPE));
#define WORD_ZERO(i) 0

static void* Destroy(void* comm) {
  (void)comm;
  ncclCommDestroy(WORDS(WORD_ZERO));
  return NULL;
}

static void Act(const char* name) {
  if (strcmp(name, "ncclCommInitAll") == 0) {
    ncclGroupStart(WORDS(WORD_ZERO));
    ncclGroupEnd(WORDS(WORD_ZERO));
  } else if (strcmp(name, "ncclCommAbort") == 0) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, &Destroy, NULL) == 0) pthread_join(thread, NULL);
  }
}

static int Remember(const char* name, const uint64_t* words) {
  Act(name);
  last.name = name;
  memcpy(last.words, words, sizeof last.words);
  /* Programs and the library read the version, so this returns what NCCL would. */
  if (strstr(name, "ncclGetVersion") != NULL) {
    if (words[0] > 0xffff) *(int*)(uintptr_t)words[0] = 22809;
    return words[0] > 0xffff ? 0 : FakeResult(name);
  }
  return FakeResult(name);
}

#define FUNCTION_kResult(name)                         \
  int name(WORDS(WORD_PARAMETER));                     \
  int name(WORDS(WORD_PARAMETER)) {                    \
    const uint64_t words[kWords] = {WORDS(WORD_NAME)}; \
    return Remember(#name, words);                     \
  }
#define FUNCTION_kNumber(name) FUNCTION_kResult(name)
#define FUNCTION_kNothing(name) FUNCTION_kResult(name)
#define FUNCTION_kText(name)                           \
  const char* name(WORDS(WORD_PARAMETER));             \
  const char* name(WORDS(WORD_PARAMETER)) {            \
    const uint64_t words[kWords] = {WORDS(WORD_NAME)}; \
    Remember(#name, words);                            \
    return #name;                                      \
  }
#define FUNCTION_kTeam(name)                             \
  FakeTeam name(WORDS(WORD_PARAMETER));                  \
  FakeTeam name(WORDS(WORD_PARAMETER)) {                 \
    const uint64_t words[kWords] = {WORDS(WORD_NAME)};   \
    const int first = Remember(#name, words);            \
    const FakeTeam team = {first, first + 1, first + 2}; \
    return team;                                         \
  }
#define SYMBOL(name, returns) FUNCTION_##returns(name)
#include FAKE_SYMBOLS
