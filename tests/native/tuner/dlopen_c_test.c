/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the plugin as a plain C program would: no C++ runtime in the process, symbols by name. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tuner/control.h"

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "failed: %s\n", what);
}

int main(int argc, char** argv) {
  static const char* const symbols[] = {"ncclTunerPlugin_v2", "ncclTunerPlugin_v3",
                                        "ncclTunerPlugin_v4", "ncclTunerPlugin_v5",
                                        "ncclTunerPlugin_v6", "ncclTunerPlugin_v7"};
  if (argc != 2) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; ++i) {
    /* Every version begins with the name. */
    const char* const* const tuner = dlsym(library, symbols[i]);
    expect(tuner != NULL, symbols[i]);
    if (tuner != NULL) expect(strcmp(*tuner, "nccltune") == 0, "the name of the plugin");
  }
  expect(dlsym(library, "ncclTunerPlugin_v1") == NULL, "no v1");
  expect(dlsym(library, "ncclTunerPlugin_v8") == NULL, "no v8");
  int (*control_version)(void) = NULL;
  *(void**)&control_version = dlsym(library, "nccltune_tuner_control_version");
  expect(control_version != NULL && control_version() == NCCLTUNE_TUNER_CONTROL_VERSION,
         "the control version");
  expect(dlclose(library) == 0, "dlclose");
  expect(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL, "the plugin is unloaded");
  return failures == 0 ? 0 : 1;
}
