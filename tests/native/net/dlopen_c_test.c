/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the plugin as a plain C program would: no C++ runtime in the process, symbols by name. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "failed: %s\n", what);
}

int main(int argc, char** argv) {
  static const char* const symbols[] = {
      "ncclNetPlugin_v6",  "ncclNetPlugin_v7",  "ncclNetPlugin_v8", "ncclNetPlugin_v9",
      "ncclNetPlugin_v10", "ncclNetPlugin_v11", "ncclNetPlugin_v12"};
  if (argc != 2) return 2;
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; ++i) {
    /* Every version begins with the name. */
    const char* const* const net = dlsym(library, symbols[i]);
    expect(net != NULL, symbols[i]);
    if (net != NULL) expect(strcmp(*net, "nccltune") == 0, "the name of the plugin");
  }
  expect(dlsym(library, "ncclNetPlugin_v5") == NULL, "no v5");
  expect(dlsym(library, "ncclNetPlugin_v13") == NULL, "no v13");
  expect(dlsym(library, "ncclCollNetPlugin_v12") == NULL, "no collectives in the network");
  expect(dlclose(library) == 0, "dlclose");
  /* Many releases of NCCL unload it with the last communicator. */
  expect(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) != NULL, "the plugin stays in the process");
  return failures == 0 ? 0 : 1;
}
