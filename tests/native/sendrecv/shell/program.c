/* SPDX-License-Identifier: Apache-2.0

   A program that uses NCCL in one of several ways and prints the results on standard output. It is
   built twice from this source: linked with NCCL and not linked with it. */
#define _GNU_SOURCE /* RTLD_DEFAULT, RTLD_DEEPBIND */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_nccl.h"

typedef struct {
  char internal[128];
} UniqueId;

enum Returns { kResult, kText, kNumber, kTeam, kNothing };

typedef struct {
  const char* name;
  enum Returns returns;
} Symbol;

static const Symbol symbols[] = {
#define SYMBOL(name, returns) {#name, returns},
#include "symbols.inc"
#undef SYMBOL
};
enum { kSymbols = sizeof symbols / sizeof symbols[0] };

static void* library = RTLD_DEFAULT;

static void* Find(const char* name) {
  void* const function = dlsym(library, name);
  if (function == NULL) {
    printf("no %s: %s\n", name, dlerror());
    exit(1);
  }
  return function;
}

/* NCCL's functions are called with words here, although their parameters have other types. */
static AnyFunction Any(const char* name) {
  AnyFunction function;
  void* const address = Find(name);
  memcpy(&function, &address, sizeof function);
  return function;
}

static const FakeCall* LastCall(void) {
  const char* const path = getenv("FAKE_NCCL");
  void* const fake = path == NULL ? NULL : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  const FakeCall* (*last)(void);
  void* const address = fake == NULL ? NULL : dlsym(fake, "FakeLastCall");
  if (address == NULL) return NULL;
  memcpy(&last, &address, sizeof last);
  dlclose(fake);
  return last();
}

static uint64_t Word(size_t symbol, int i) { return ((uint64_t)(i + 1) << 24) + symbol; }

/* Calls a function with distinct words and checks that NCCL gets them and its result returns. */
static int CallWithWords(size_t s) {
  const char* const name = symbols[s].name;
  int wrong = 0;
  /* ncclGetVersion writes through its argument, so it needs a valid pointer. */
  const int version = strstr(name, "ncclGetVersion") != NULL;
#define WORD_OF(i) (version ? (uint64_t)(i) : Word(s, i))
  const uint64_t words[kWords] = {WORDS(WORD_OF)};
  const AnyFunction function = Any(name);
  const int expected = FakeResult(name);
  if (symbols[s].returns == kTeam) {
    TeamFunction team_function;
    memcpy(&team_function, &function, sizeof team_function);
    const FakeTeam team = team_function(WORDS(WORD_OF));
    wrong += team.ranks != expected || team.rank != expected + 1 || team.stride != expected + 2;
  } else if (symbols[s].returns == kText) {
    const uint64_t answer = function(WORDS(WORD_OF));
    wrong += strcmp((const char*)(uintptr_t)answer, name) != 0;
  } else {
    const uint64_t answer = function(WORDS(WORD_OF));
    wrong += symbols[s].returns != kNothing && (int)answer != expected;
  }
  if (wrong != 0) printf("%s returned something else\n", name);
  const FakeCall* const call = LastCall();
  if (call == NULL || call->name == NULL || strcmp(call->name, name) != 0) {
    printf("%s went to %s\n", name, call == NULL || call->name == NULL ? "nobody" : call->name);
    return wrong + 1;
  }
  for (int i = 0; i < kWords; ++i) {
    if (call->words[i] == words[i]) continue;
    printf("%s: word %d is %" PRIx64 "\n", name, i, call->words[i]);
    ++wrong;
  }
  return wrong;
}

static int CallAll(void) {
  int wrong = 0;
  for (size_t s = 0; s < kSymbols; ++s) wrong += CallWithWords(s);
  printf("called %d, wrong %d\n", (int)kSymbols, wrong);
  return wrong != 0;
}

/* Each function is the first NCCL call of a process. */
static int CallAllFirst(void) {
  int wrong = 0;
  for (size_t s = 0; s < kSymbols; ++s) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      const int ill = CallWithWords(s);
      fflush(stdout);
      _exit(ill != 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    wrong += status != 0;
  }
  printf("called first %d, wrong %d\n", (int)kSymbols, wrong);
  return wrong != 0;
}

/* Prints what each function returns if there is no NCCL. */
static int CallAnswers(void) {
#define WORD_ZERO(i) 0
  for (size_t s = 0; s < kSymbols; ++s) {
    const AnyFunction function = Any(symbols[s].name);
    if (symbols[s].returns == kTeam) {
      TeamFunction team_function;
      memcpy(&team_function, &function, sizeof team_function);
      const FakeTeam team = team_function(WORDS(WORD_ZERO));
      printf("%s: %d %d %d\n", symbols[s].name, team.ranks, team.rank, team.stride);
      continue;
    }
    if (symbols[s].returns == kNothing) {
      function(WORDS(WORD_ZERO));
      printf("%s: nothing\n", symbols[s].name);
      continue;
    }
    const uint64_t answer = function(WORDS(WORD_ZERO));
    if (symbols[s].returns == kText) {
      printf("%s: %s\n", symbols[s].name, (const char*)(uintptr_t)answer);
    } else {
      printf("%s: %d\n", symbols[s].name, (int)answer);
    }
  }
  return 0;
}

/* As NCCL's header declares them. */
static int CallTyped(void) {
  int (*init)(void**, int, UniqueId, int, void*);
  int (*send)(const void*, size_t, int, int, void*, void*);
  void* address = Find("ncclCommInitRankConfig");
  memcpy(&init, &address, sizeof init);
  address = Find("ncclSend");
  memcpy(&send, &address, sizeof send);
  UniqueId id;
  for (int i = 0; i < 128; ++i) id.internal[i] = (char)(i + 1);
  void* comm = NULL;
  int config[64] = {[4] = 1}; /* blocking, which is NCCL's default */
  const int made = init(&comm, 8, id, 5, config);
  const FakeCall* call = LastCall();
#if defined(__x86_64__)
  const int same = call != NULL && memcmp(&call->words[6], &id, sizeof id) == 0;
#else
  const int same = call != NULL;
#endif
  printf("init %s, id %s\n", made == FakeResult("ncclCommInitRankConfig") ? "well" : "ill",
         same ? "well" : "ill");
  char buffer[8];
  const int sent = send(buffer, (size_t)1 << 40, 9, 3, &comm, &id);
  call = LastCall();
  printf("send %d, count %s\n", sent == FakeResult("ncclSend") ? 0 : sent,
         call != NULL && call->words[1] == (uint64_t)1 << 40 ? "well" : "ill");
  return 0;
}

/* Each function of NCCL has a second name with the prefix "p". */
static int CallOne(const char* name) {
  const int result = (int)Any(name)(WORDS(WORD_ZERO));
  if (strcmp(name, "ModuleSends") == 0) name = "ncclSend";
  char second[64];
  snprintf(second, sizeof second, "p%s", name);
  if (result == FakeResult(name)) {
    printf("%s: forwarded\n", name);
  } else if (result == FakeResult(second)) {
    printf("%s: forwarded to %s\n", name, second);
  } else if (result == FakeResult(name + 1)) {
    printf("%s: forwarded to %s\n", name, name + 1);
  } else {
    printf("%s: %d\n", name, result);
  }
  return 0;
}

enum { kThreads = 16 };

static pthread_barrier_t barrier;
static int called; /* a call has returned; relaxed, so that it orders nothing between threads */

static void CallGroupStart(AnyFunction function, int* wrong) {
  if ((int)function(WORDS(WORD_ZERO)) != FakeResult("ncclGroupStart")) *wrong = 1;
  __atomic_store_n(&called, 1, __ATOMIC_RELAXED);
}

static void* CallFirst(void* wrong) {
  const AnyFunction function = Any("ncclGroupStart");
  pthread_barrier_wait(&barrier);
  CallGroupStart(function, wrong);
  return NULL;
}

/* Runs after the table was filled. Only the trampoline orders these reads after the writes. */
static void* CallLater(void* wrong) {
  const AnyFunction function = Any("ncclGroupStart");
  while (!__atomic_load_n(&called, __ATOMIC_RELAXED)) sched_yield();
  CallGroupStart(function, wrong);
  return NULL;
}

static int CallFromThreads(unsigned first) {
  pthread_t threads[kThreads];
  int wrong[kThreads] = {0};
  pthread_barrier_init(&barrier, NULL, first);
  for (unsigned i = 0; i < kThreads; ++i) {
    pthread_create(&threads[i], NULL, i < first ? &CallFirst : &CallLater, &wrong[i]);
  }
  int all = 0;
  for (int i = 0; i < kThreads; ++i) {
    pthread_join(threads[i], NULL);
    all += wrong[i];
  }
  printf("threads %d, wrong %d\n", kThreads, all);
  return 0;
}

/* Makes the first call in a forked child, then one in the parent. */
static int CallFromChild(void) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    CallOne("ncclSend");
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child %d\n", status);
  return CallOne("ncclRecv");
}

static int Run(const char* what) {
  if (strcmp(what, "all") == 0) return CallAll();
  if (strcmp(what, "firsts") == 0) return CallAllFirst();
  if (strcmp(what, "answers") == 0) return CallAnswers();
  if (strcmp(what, "typed") == 0) return CallTyped();
  if (strcmp(what, "threads") == 0) return CallFromThreads(kThreads);
  if (strcmp(what, "later") == 0) return CallFromThreads(1);
  if (strcmp(what, "child") == 0) return CallFromChild();
  return CallOne(what);
}

/* program [open PATH | deep PATH | module PATH] WHAT... */
int main(int count, char** words) {
  int next = 1;
  if (count > 3 && (strcmp(words[1], "open") == 0 || strcmp(words[1], "deep") == 0)) {
    library = dlopen(words[2], RTLD_NOW | (words[1][0] == 'd' ? RTLD_DEEPBIND : 0));
    next = 3;
  } else if (count > 3 && strcmp(words[1], "module") == 0) {
    /* Like Python with a module that needs NCCL: the module makes the calls. */
    library = dlopen(words[2], RTLD_NOW);
    next = 3;
  }
  if (next == 3 && library == NULL) {
    printf("%s\n", dlerror());
    return 1;
  }
  int status = 0;
  for (; next < count; ++next) status |= Run(words[next]);
  return status;
}
