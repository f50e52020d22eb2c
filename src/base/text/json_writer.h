// The text of a JSON value, written piece by piece: commas, quotes and escapes are put here and
// nowhere else inside the application's process.
//
// Owner: the caller, and of what it writes to as well. Threads: one. Errors: those of what it
// writes to (Text::full); the nesting is the caller's to keep.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace gpuckpt {

class JsonWriter {
 public:
  // `out` has add_bytes(const char*, size_t), as Text has.
  template <typename Out>
  explicit JsonWriter(Out* out)
      : out_(out), put_([](void* to, const char* bytes, size_t count) {
          static_cast<Out*>(to)->add_bytes(bytes, count);
        }) {}

  // Each value is the next one of the array that is open, or follows its key().
  JsonWriter& key(const char* name);
  void begin_object() { begin('{'); }
  void end_object() { end('}'); }
  void begin_array() { begin('['); }
  void end_array() { end(']'); }
  void string(const char* s);    // bytes of control characters are escaped
  void address(uint64_t value);  // a string: "0x1f", because a JSON number loses bits
  void number(uint64_t value);
  void number(int64_t value);
  void boolean(bool value);

  // One member of the object that is open.
  void member(const char* name, const char* value) { key(name).string(value); }
  void member(const char* name, std::same_as<bool> auto value) { key(name).boolean(value); }
  void member(const char* name,
              std::unsigned_integral auto value) requires(!std::same_as<decltype(value), bool>) {
    key(name).number(uint64_t{value});
  }
  void member(const char* name, std::signed_integral auto value) {
    key(name).number(int64_t{value});
  }

 private:
  void put(const char* s);
  void plain(const char* text);  // as it is
  void begin(char bracket);
  void end(char bracket);
  void separate();
  void quoted(const char* s);

  void* out_;
  void (*put_)(void*, const char*, size_t);
  bool first_ = true;  // of what is open
};

}  // namespace gpuckpt
