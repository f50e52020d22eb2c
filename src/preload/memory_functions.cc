// The preload's own mem* and str* functions.
//
// The compiler turns loops and copies of structures into calls to them, in code that runs on raw
// threads and while the application's threads are parked. A library of the application may replace
// libc's (AddressSanitizer, ThreadSanitizer and valgrind do) with functions that need a thread
// descriptor of their own and kill the process without one. So the preload, the zstd inside it
// included, imports none: this file is linked into it first, and its symbols are hidden.
// tests/hygiene_test.py asserts that none is imported.
//
// Built without builtins and without loop patterns, which would make these functions call
// themselves.

#include <stddef.h>
#include <stdint.h>

#define OWN extern "C" __attribute__((visibility("hidden")))

using Word = uint64_t __attribute__((aligned(1), may_alias));

// The compiler's own vectors: gcc 14's <emmintrin.h> needs a hosted <stdlib.h>.
using Block = char __attribute__((vector_size(16)));
using UnalignedBlock = char __attribute__((vector_size(16), aligned(1), may_alias));

// Beyond this the processor's own string move is as fast as any loop.
static constexpr size_t kLoopBytes = 512;

static inline uintptr_t distance(const char* to, const char* from) {
  return reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from);
}
static inline Block load(const void* at) { return *static_cast<const UnalignedBlock*>(at); }
static inline void store(void* at, Block v) { *static_cast<UnalignedBlock*>(at) = v; }

OWN void* memmove(void* to, const void* from, size_t n) {
  char* t = static_cast<char*>(to);
  const char* f = static_cast<const char*>(from);
  if (n < 16) {
    // All loads come before the stores, because the two may overlap.
    if (n >= 8) {
      const uint64_t first = *reinterpret_cast<const Word*>(f);
      const uint64_t last = *reinterpret_cast<const Word*>(f + n - 8);
      *reinterpret_cast<Word*>(t) = first;
      *reinterpret_cast<Word*>(t + n - 8) = last;
    } else if (distance(t, f) >= n) {
      for (size_t i = 0; i < n; ++i) t[i] = f[i];
    } else {
      while (n--) t[n] = f[n];
    }
    return to;
  }
  const Block first = load(f);
  const Block last = load(f + n - 16);
  if (distance(t, f) >= n) {
    if (n > kLoopBytes) {
      size_t count = n;
      void* d = t;
      const void* s = f;
      asm volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(count) : : "memory");
      return to;
    }
    for (size_t i = 16; i + 16 <= n; i += 16) store(t + i, load(f + i));
  } else {
    for (size_t i = n - 16; i >= 16; i -= 16) store(t + i, load(f + i));
  }
  store(t, first);
  store(t + n - 16, last);
  return to;
}

OWN void* memcpy(void* to, const void* from, size_t n) { return memmove(to, from, n); }

OWN void* memset(void* to, int value, size_t n) {
  char* t = static_cast<char*>(to);
  if (n < 16) {
    for (size_t i = 0; i < n; ++i) t[i] = static_cast<char>(value);
    return to;
  }
  if (n > kLoopBytes) {
    void* d = t;
    asm volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(value) : "memory");
    return to;
  }
  const Block v = static_cast<char>(value) - Block{};
  for (size_t i = 0; i + 16 <= n; i += 16) store(t + i, v);
  store(t + n - 16, v);
  return to;
}

OWN int memcmp(const void* one, const void* other, size_t n) {
  const auto *a = static_cast<const unsigned char*>(one),
             *b = static_cast<const unsigned char*>(other);
  size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    Block equal = load(a + i) == load(b + i);
    for (size_t k = 16; k < 64; k += 16) equal &= load(a + i + k) == load(b + i + k);
    if (__builtin_ia32_pmovmskb128(equal) != 0xffff) break;
  }
  for (; i < n; ++i)
    if (a[i] != b[i]) return a[i] - b[i];
  return 0;
}

OWN void* memchr(const void* in, int value, size_t n) {
  const unsigned char* s = static_cast<const unsigned char*>(in);
  for (size_t i = 0; i < n; ++i)
    if (s[i] == static_cast<unsigned char>(value)) return const_cast<unsigned char*>(s + i);
  return nullptr;
}

OWN void* memmem(const void* in, size_t n, const void* what, size_t length) {
  const char* s = static_cast<const char*>(in);
  for (; n >= length; ++s, --n)
    if (memcmp(s, what, length) == 0) return const_cast<char*>(s);
  return nullptr;
}

OWN size_t strnlen(const char* s, size_t most) {
  size_t n = 0;
  while (n < most && s[n]) ++n;
  return n;
}

OWN size_t strlen(const char* s) { return strnlen(s, SIZE_MAX); }

OWN int strncmp(const char* a, const char* b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (a[i] != b[i]) return static_cast<unsigned char>(a[i]) - static_cast<unsigned char>(b[i]);
    if (!a[i]) break;
  }
  return 0;
}

OWN int strcmp(const char* a, const char* b) { return strncmp(a, b, SIZE_MAX); }

OWN char* strchr(const char* s, int c) {
  for (;; ++s) {
    if (*s == static_cast<char>(c)) return const_cast<char*>(s);
    if (!*s) return nullptr;
  }
}

OWN char* strrchr(const char* s, int c) {
  char* last = nullptr;
  for (;; ++s) {
    if (*s == static_cast<char>(c)) last = const_cast<char*>(s);
    if (!*s) return last;
  }
}

OWN size_t strcspn(const char* s, const char* reject) {
  size_t n = 0;
  while (s[n] && !strchr(reject, s[n])) ++n;
  return n;
}

OWN char* strstr(const char* s, const char* what) {
  const size_t n = strlen(what);
  for (;; ++s) {
    if (strncmp(s, what, n) == 0) return const_cast<char*>(s);
    if (!*s) return nullptr;
  }
}
