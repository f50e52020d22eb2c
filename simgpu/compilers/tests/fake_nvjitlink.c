// What nvJitLink's public interface does, as far as our functions rely on it: LTO-IR comes out as
// PTX when -lto and -ptx were given, PTX as machine code. The "LTO-IR" here is its magic number and
// then the PTX that is to come out.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Session {
  int lto, ptx;
  char text[4096];
};

int nvJitLinkCreate(struct Session** out, uint32_t count, const char** options) {
  *out = calloc(1, sizeof **out);
  for (uint32_t k = 0; k < count; ++k) {
    (*out)->lto |= strcmp(options[k], "-lto") == 0;
    (*out)->ptx |= strcmp(options[k], "-ptx") == 0;
    if (strcmp(options[k], "-nonsense") == 0) return 1;
  }
  return (*out)->ptx && !(*out)->lto ? 11 : 0;
}
int nvJitLinkDestroy(struct Session** session) {
  free(*session);
  *session = NULL;
  return 0;
}
int nvJitLinkAddData(struct Session* session, int type, const void* data, size_t size,
                     const char* name) {
  (void)name;
  if (type == 3 && (!session->lto || size < 4)) return 18;
  if (type != 3 && session->ptx) return 12;
  snprintf(session->text, sizeof session->text, "%.*s", (int)size - 4, (const char*)data + 4);
  return 0;
}
int nvJitLinkAddFile(struct Session* session, int type, const char* path) {
  (void)session, (void)type, (void)path;
  return 3;
}
int nvJitLinkComplete(struct Session* session) { return session->text[0] != 0 ? 0 : 3; }
int nvJitLinkGetLinkedPtxSize(struct Session* session, size_t* size) {
  *size = strlen(session->text) + 1;
  return session->ptx ? 0 : 3;
}
int nvJitLinkGetLinkedPtx(struct Session* session, char* out) {
  strcpy(out, session->text);
  return session->ptx ? 0 : 3;
}
int nvJitLinkGetLinkedCubinSize(struct Session* session, size_t* size) {
  (void)session;
  *size = 5;
  return 0;
}
int nvJitLinkGetLinkedCubin(struct Session* session, char* out) {
  (void)session;
  strcpy(out, "\x7f" "ELF");
  return 0;
}
int nvJitLinkGetErrorLogSize(struct Session* session, size_t* size) {
  (void)session;
  *size = 0;
  return 0;
}
int nvJitLinkGetErrorLog(struct Session* session, char* out) {
  (void)session, (void)out;
  return 0;
}
// As NVIDIA's header names them in the end.
int __nvJitLinkCreate_13_0(struct Session** out, uint32_t count, const char** options) {
  return nvJitLinkCreate(out, count, options);
}
int __nvJitLinkGetErrorLogSize_13_0(struct Session* session, size_t* size) {
  return nvJitLinkGetErrorLogSize(session, size);
}
