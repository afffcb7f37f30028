/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a plugin as a plain C program would: no C++ runtime in the process, symbols by name.
 * Arguments: the library, the prefix of its interfaces' symbols, the oldest and the newest version,
 * and whether the library "stays" in the process or "leaves" with dlclose. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/control.h" /* must be valid C */

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "failed: %s\n", what);
}

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const int oldest = atoi(argv[3]);
  const int newest = atoi(argv[4]);
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  for (int version = oldest - 1; version <= newest + 1; ++version) {
    char symbol[64];
    snprintf(symbol, sizeof symbol, "%s%d", argv[2], version);
    /* Every version begins with the name. */
    const char* const* const plugin = dlsym(library, symbol);
    const int exported = version >= oldest && version <= newest;
    expect((plugin != NULL) == exported, symbol);
    if (plugin != NULL) expect(strcmp(*plugin, "nccltune") == 0, "the name of the plugin");
  }
  expect(dlclose(library) == 0, "dlclose");
  const int stays = strcmp(argv[5], "stays") == 0;
  expect((dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL) == stays, argv[5]);
  return failures == 0 ? 0 : 1;
}
