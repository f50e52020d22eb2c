#include "base/environment.h"

#include <cstddef>

#include "base/heap.h"
#include "base/text/text.h"

extern char** __environ;  // (a program may have an `environ` of its own)

namespace gpuckpt {
namespace {

constexpr size_t kRoomToGrow = 16;

char** grown;  // ours
size_t grown_room;

// Of an entry: "NAME=" and no more.
size_t name_bytes(const char* entry) {
  size_t n = 0;
  while (entry[n] && entry[n] != '=') ++n;
  return n + 1;
}

bool is_named(const char* entry, const char* name, size_t bytes) {
  for (size_t i = 0; i + 1 < bytes; ++i)
    if (entry[i] != name[i]) return false;
  return entry[bytes - 1] == '=';
}

char** find(const char* name, size_t bytes) {
  for (char** e = __environ; e && *e; ++e)
    if (is_named(*e, name, bytes)) return e;
  return nullptr;
}

bool make_room(size_t count) {
  if (__environ == grown && grown && count < grown_room) return true;
  const size_t room = count + kRoomToGrow;
  const Region region = region_map(room * sizeof(char*));
  if (!region) return false;
  char** const array = reinterpret_cast<char**>(region.data());
  for (size_t i = 0; i + 1 < count; ++i) array[i] = __environ[i];
  __environ = grown = array;
  grown_room = room;
  return true;
}

}  // namespace

const char* environment_value(const char* name) {
  const size_t bytes = length(name) + 1;
  char** const e = find(name, bytes);
  return e ? *e + bytes : nullptr;
}

void put_in_environment(char* entry) {
  if (char** const e = find(entry, name_bytes(entry))) {
    *e = entry;
    return;
  }
  size_t count = 1;  // with the new one
  for (char** e = __environ; e && *e; ++e) ++count;
  if (!make_room(count)) return;
  __environ[count - 1] = entry;
  __environ[count] = nullptr;
}

}  // namespace gpuckpt
