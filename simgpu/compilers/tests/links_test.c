// nvJitLink for the simulated device hands out PTX, whatever came in and however the program found
// the library; for other devices it is NVIDIA's: links_test [LIBRARY], preloaded with ours.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* Handle;
int nvJitLinkCreate(Handle*, uint32_t, const char**);
int nvJitLinkDestroy(Handle*);
int nvJitLinkAddData(Handle, int, const void*, size_t, const char*);
int nvJitLinkAddFile(Handle, int, const char*);
int nvJitLinkComplete(Handle);
int nvJitLinkGetLinkedCubinSize(Handle, size_t*);
int nvJitLinkGetLinkedCubin(Handle, char*);
int nvJitLinkGetErrorLogSize(Handle, size_t*);
int nvJitLinkGetErrorLog(Handle, char*);

static struct {
  int (*create)(Handle*, uint32_t, const char**);
  int (*destroy)(Handle*);
  int (*add_data)(Handle, int, const void*, size_t, const char*);
  int (*add_file)(Handle, int, const char*);
  int (*complete)(Handle);
  int (*size)(Handle, size_t*);
  int (*get)(Handle, char*);
  int (*log_size)(Handle, size_t*);
  int (*log)(Handle, char*);
} jit;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);         \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

#ifdef LOADED
static void find(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  jit.create = (int (*)(Handle*, uint32_t, const char**))dlsym(library, "__nvJitLinkCreate_13_0");
  jit.destroy = (int (*)(Handle*))dlsym(library, "nvJitLinkDestroy");
  jit.add_data =
      (int (*)(Handle, int, const void*, size_t, const char*))dlsym(library, "nvJitLinkAddData");
  jit.add_file = (int (*)(Handle, int, const char*))dlsym(library, "nvJitLinkAddFile");
  jit.complete = (int (*)(Handle))dlsym(library, "nvJitLinkComplete");
  jit.size = (int (*)(Handle, size_t*))dlsym(library, "nvJitLinkGetLinkedCubinSize");
  jit.get = (int (*)(Handle, char*))dlsym(library, "nvJitLinkGetLinkedCubin");
  jit.log_size = (int (*)(Handle, size_t*))dlsym(library, "__nvJitLinkGetErrorLogSize_13_0");
  jit.log = (int (*)(Handle, char*))dlsym(library, "nvJitLinkGetErrorLog");
  CHECK(dlsym(library, "nvJitLinkNoSuchFunction") == NULL && dlerror() != NULL);
  CHECK(dlsym(RTLD_DEFAULT, "nvrtcGetCUBIN") == NULL);  // not loaded: programs ask so
  CHECK(dlsym(RTLD_NEXT, "malloc") != NULL);
}
#else
static void find(const char* path) {
  (void)path;
  jit.create = nvJitLinkCreate;
  jit.destroy = nvJitLinkDestroy;
  jit.add_data = nvJitLinkAddData;
  jit.add_file = nvJitLinkAddFile;
  jit.complete = nvJitLinkComplete;
  jit.size = nvJitLinkGetLinkedCubinSize;
  jit.get = nvJitLinkGetLinkedCubin;
  jit.log_size = nvJitLinkGetErrorLogSize;
  jit.log = nvJitLinkGetErrorLog;
}
#endif

#define HEAD ".version 8.7\n.target sm_120\n.address_size 64\n"
static const char kKernel[] = HEAD
    ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
    ".visible .entry k() { .reg .b32 %a; { .param .b32 p; .param .b32 q; mov.b32 %a, 3;"
    " st.param.b32 [p], %a; call (q), twice, (p); ld.param.b32 %a, [q]; } ret; }\n";
static const char kTwice[] =
    HEAD ".visible .func (.param .b32 r) twice(.param .b32 x) { .reg .b32 %a; ld.param.b32 %a, [x];"
         " add.s32 %a, %a, %a; st.param.b32 [r], %a; ret; }\n";
static const char kUnknown[] = HEAD ".visible .entry k() { frobnicate.b32 1; ret; }\n";

struct Input {
  int type;
  const char* text;
};

// What comes out, or the log; *result is the first error.
static char* link_all(const char** options, uint32_t count, const struct Input* inputs, int* result) {
  Handle session = NULL;
  CHECK(jit.create(&session, count, options) == 0);
  *result = 0;
  for (const struct Input* i = inputs; i->type != 0 && *result == 0; ++i) {
    char data[4096];
    const int size = snprintf(data, sizeof data, "%s%s", i->type == 3 ? "\xed" "CN\x7f" : "", i->text);
    *result = jit.add_data(session, i->type, data, (size_t)size, "input");
  }
  if (*result == 0) *result = jit.complete(session);
  size_t size = 0;
  CHECK((*result == 0 ? jit.size : jit.log_size)(session, &size) == 0);
  char* out = calloc(1, size + 1);
  CHECK((*result == 0 ? jit.get : jit.log)(session, out) == 0);
  CHECK(size == 0 || out[size - 1] == 0);  // drivers take images by their end
  CHECK(jit.destroy(&session) == 0 && session == NULL);
  return out;
}

int main(int argc, char** argv) {
  find(argc > 1 ? argv[1] : NULL);
  const char *own[] = {"-arch=sm_120", "-lto"}, *limited[] = {"-arch=sm_120", "-maxrregcount=40"}, *other[] = {"-arch=sm_90"}, *bad[] = {"-arch=sm_120", "-nonsense"};
  int r;
  char* out = link_all(own, 1, (struct Input[]){{2, kKernel}, {2, kTwice}, {0, NULL}}, &r);
  CHECK(r == 0 && strstr(out, ".entry k") != NULL && strstr(out, ".func") != NULL);
  free(out);
  out = link_all(own, 2, (struct Input[]){{3, kKernel}, {2, kTwice}, {0, NULL}}, &r);
  CHECK(r == 0 && strstr(out, ".entry k") != NULL && strstr(out, "twice") != NULL);
  free(out);
  out = link_all(limited, 2, (struct Input[]){{2, kKernel}, {2, kTwice}, {0, NULL}}, &r);
  CHECK(r == 0 && strstr(out, ".maxnreg 40\n{") != NULL);
  free(out);
  // An image that our NVRTC functions made.
  out = link_all(own, 1, (struct Input[]){{1, kKernel}, {1, kTwice}, {0, NULL}}, &r);
  CHECK(r == 0 && strstr(out, ".entry k") != NULL);
  free(out);
  out = link_all(own, 1, (struct Input[]){{2, kUnknown}, {0, NULL}}, &r);
  CHECK(r == 4 && strstr(out, "frobnicate") != NULL);
  free(out);
  out = link_all(own, 1, (struct Input[]){{2, kKernel}, {0, NULL}}, &r);
  CHECK(r == 4 && strstr(out, "twice") != NULL);
  free(out);
  // NVIDIA's device runtime as its archive's bytes is built in; other archives are refused.
  static const char kRuntime[] = "!<arch>\n//  24  `\ncuda_device_runtime.o/\n", kOther[] = "!<arch>\nsome.o/  ";
  out = link_all(own, 1, (struct Input[]){{5, kRuntime}, {2, kTwice}, {0, NULL}}, &r);
  CHECK(r == 0 && strstr(out, "twice") != NULL);
  free(out);
  out = link_all(own, 1, (struct Input[]){{5, kOther}, {2, kTwice}, {0, NULL}}, &r);
  CHECK(r != 0 && out[0] != 0);
  free(out);
  out = link_all(own, 1, (struct Input[]){{1, "\x7f" "ELF..."}, {0, NULL}}, &r);
  CHECK(r == 3 && strstr(out, "machine code") != NULL);
  free(out);
  out = link_all(other, 1, (struct Input[]){{2, kTwice}, {0, NULL}}, &r);
  CHECK(r == 0 && memcmp(out, "\x7f" "ELF", 4) == 0);
  free(out);
  Handle session = NULL;
  CHECK(jit.create(&session, 2, bad) == 1);
  jit.destroy(&session);
  puts("links ok");
  return 0;
}
