// Durations and sizes that users type, and octal numbers of /proc, read without libc.
#include "base/text/text.h"

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

using namespace gpuckpt;

void is(const char* text, bool (*scan)(const char*, uint64_t*), uint64_t expected) {
  uint64_t got = 0;
  if (scan(text, &got) && got == expected) return;
  fprintf(stderr, "\"%s\" is %llu, not %llu\n", text, static_cast<unsigned long long>(got),
          static_cast<unsigned long long>(expected));
  exit(1);
}

void is_nothing(const char* text, bool (*scan)(const char*, uint64_t*)) {
  uint64_t got = 77;
  if (!scan(text, &got) && got == 77) return;
  fprintf(stderr, "\"%s\" is not refused, or the value it was to replace is gone\n", text);
  exit(1);
}

// The number that `text` begins with, and the character behind it.
void is_octal(const char* text, uint64_t expected, char behind) {
  const char* s = text;
  const uint64_t got = scan_oct(&s);
  if (got == expected && *s == behind) return;
  fprintf(stderr, "\"%s\" is read as %llo up to '%c'\n", text, static_cast<unsigned long long>(got),
          *s);
  exit(1);
}

}  // namespace

int main() {
  is_octal("0022\n", 022, '\n');
  is_octal("0100002", 0100002, 0);
  is_octal("178", 017, '8');
  is_octal("x", 0, 'x');

  is("0", scan_size, 0);
  is("4096", scan_size, 4096);
  is("12B", scan_size, 12);
  is("64K", scan_size, 64 << 10);
  is("64kb", scan_size, 64 << 10);
  is("512MiB", scan_size, 512 << 20);
  is("1.5GiB", scan_size, 3ull << 29);
  is("0.25t", scan_size, 1ull << 38);
  is("1.0000001K", scan_size, 1024);
  is("15E", scan_size, 15ull << 60);
  for (const char* text :
       {"", "x", "-1", "1X", "1 K", "K", "1KiBs", "1iB", "1..5K", ".5K", "16E", "1e3"})
    is_nothing(text, scan_size);
  is("500ms", scan_duration_ms, 500);
  is("30", scan_duration_ms, 30000);
  is("30s", scan_duration_ms, 30000);
  is("5m", scan_duration_ms, 300000);
  is("2h", scan_duration_ms, 7200000);
  for (const char* text : {"", "s", "-1s", "5x", "5 s"}) is_nothing(text, scan_duration_ms);
  printf("ok\n");
}
