#include "base/text/text.h"

namespace gpuckpt {

size_t length(const char* s) {
  size_t n = 0;
  while (s[n]) ++n;
  return n;
}

bool equal(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

bool starts_with(const char* s, const char* prefix) {
  while (*prefix)
    if (*s++ != *prefix++) return false;
  return true;
}

bool ends_with(const char* s, const char* suffix) {
  const size_t all = length(s), n = length(suffix);
  return all >= n && equal(s + all - n, suffix);
}

void copy(char* to, size_t room, const char* from) {
  if (!room) return;
  size_t i = 0;
  for (; i + 1 < room && from[i]; ++i) to[i] = from[i];
  to[i] = 0;
}

namespace {
struct Out {
  char* to;
  size_t room, used = 0;
  void put(char c) {
    if (used + 1 < room) to[used] = c;
    ++used;
  }
  void number(uint64_t v, unsigned base, int width, char pad, bool negative) {
    char digits[24];
    int n = 0;
    do digits[n++] = "0123456789abcdef"[v % base];
    while (v /= base);
    if (negative) digits[n++] = '-';
    for (int i = n; i < width; ++i) put(pad);
    while (n) put(digits[--n]);
  }
};
}  // namespace

size_t vformat(char* to, size_t room, const char* p, va_list args) {
  Out out{to, room};
  for (; *p; ++p) {
    if (*p != '%') {
      out.put(*p);
      continue;
    }
    ++p;
    char pad = ' ';
    int width = 0, longs = 0;
    if (*p == '0') pad = '0', ++p;
    while (*p >= '0' && *p <= '9') width = width * 10 + (*p++ - '0');
    while (*p == 'l' || *p == 'z') longs += 1, ++p;
    switch (*p) {
      case 's': {
        const char* s = va_arg(args, const char*);
        for (s = s ? s : "(null)"; *s; ++s) out.put(*s);
        break;
      }
      case 'd':
      case 'i': {
        int64_t v = longs ? va_arg(args, long) : va_arg(args, int);
        out.number(v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v), 10, width, pad,
                   v < 0);
        break;
      }
      case 'o':
      case 'u':
      case 'x': {
        uint64_t v = longs ? va_arg(args, unsigned long) : va_arg(args, unsigned);
        out.number(v, *p == 'x' ? 16 : *p == 'o' ? 8 : 10, width, pad, false);
        break;
      }
      case 'p':
        out.put('0'), out.put('x');
        out.number(reinterpret_cast<uint64_t>(va_arg(args, void*)), 16, 0, ' ', false);
        break;
      case 'c':
        out.put(static_cast<char>(va_arg(args, int)));
        break;
      case '%':
        out.put('%');
        break;
      case 0:
        --p;
        break;
      default:
        out.put('?');
        break;
    }
  }
  size_t n = out.used < room ? out.used : (room ? room - 1 : 0);
  if (room) to[n] = 0;
  return n;
}

size_t format(char* to, size_t room, const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  size_t n = vformat(to, room, pattern, args);
  va_end(args);
  return n;
}

uint64_t scan_hex(const char** s) {
  uint64_t v = 0;
  for (;; ++*s) {
    char c = **s;
    if (c >= '0' && c <= '9')
      v = v * 16 + (c - '0');
    else if (c >= 'a' && c <= 'f')
      v = v * 16 + (c - 'a' + 10);
    else if (c >= 'A' && c <= 'F')
      v = v * 16 + (c - 'A' + 10);
    else
      return v;
  }
}

uint64_t scan_dec(const char** s) {
  uint64_t v = 0;
  for (; **s >= '0' && **s <= '9'; ++*s) v = v * 10 + (**s - '0');
  return v;
}

uint64_t scan_oct(const char** s) {
  uint64_t v = 0;
  for (; **s >= '0' && **s <= '7'; ++*s) v = v * 8 + static_cast<uint64_t>(**s - '0');
  return v;
}

int64_t scan_signed(const char** s) {
  bool negative = **s == '-';
  if (negative) ++*s;
  int64_t v = static_cast<int64_t>(scan_dec(s));
  return negative ? -v : v;
}

bool scan_duration_ms(const char* s, uint64_t* ms) {
  if (*s < '0' || *s > '9') return false;
  uint64_t v = scan_dec(&s);
  if (equal(s, "ms"))
    *ms = v;
  else if (!*s || equal(s, "s"))
    *ms = v * 1000;
  else if (equal(s, "m") || equal(s, "min"))
    *ms = v * 60000;
  else if (equal(s, "h"))
    *ms = v * 3600000;
  else
    return false;
  return true;
}

bool scan_size(const char* s, uint64_t* bytes) {
  if (*s < '0' || *s > '9') return false;
  const uint64_t whole = scan_dec(&s);
  uint64_t part = 0, parts = 1;
  if (*s == '.')
    for (++s; *s >= '0' && *s <= '9'; ++s)
      if (parts < 1000000) part = part * 10 + static_cast<uint64_t>(*s - '0'), parts *= 10;
  constexpr char kUnits[] = "KkMmGgTtPpEe";
  unsigned shift = 0;
  for (unsigned i = 0; kUnits[i]; ++i)
    if (*s == kUnits[i]) shift = 10 * (i / 2 + 1);
  if (shift) ++s;
  if (shift && *s == 'i' && s[1] == 'B') ++s;
  if (*s == 'B' || (shift && *s == 'b')) ++s;
  if (*s || whole > ~0ull >> shift) return false;
  *bytes = (whole << shift) + ((part << shift) / parts);
  return true;
}

void Text::add(const char* pattern, ...) {
  va_list args;
  va_start(args, pattern);
  size_t n = vformat(at + used, room - used, pattern, args);
  va_end(args);
  used += n;
  if (used + 1 >= room) full = true;
}

void Text::add_bytes(const char* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (used + 1 >= room) {
      full = true;
      return;
    }
    at[used++] = bytes[i];
    at[used] = 0;
  }
  if (used + 1 >= room) full = true;
}

}  // namespace gpuckpt
