#include "device/base/settings.h"

#include "base/environment.h"
#include "base/text/log.h"
#include "base/text/text.h"
#include "device/base/lock_order.h"
#include "device/base/memory.h"

namespace gpuckpt::device {
namespace {

Mutex lock{kSettingsLock};
Settings current;
bool known;

// "off" is `without`; what cannot be read is left as it was.
void read_size(const char* name, uint64_t without, uint64_t* to) {
  const char* text = environment_value(name);
  if (!text || !*text) return;
  if (equal(text, "off"))
    *to = without;
  else if (!scan_size(text, to))
    log_line(LogLevel::kWarn, "%s=%s is neither off nor a size (64M, 2GiB)", name, text);
}

// Returns true if the variable is `word`; `usual` is the default, which it may name as well.
bool read_word(const char* name, const char* word, const char* usual) {
  const char* text = environment_value(name);
  if (!text || !*text || equal(text, usual)) return false;
  if (equal(text, word)) return true;
  log_line(LogLevel::kWarn, "%s=%s is neither %s nor %s; taken for %s", name, text, usual, word,
           usual);
  return false;
}

}  // namespace

void read_settings() {
  Settings read;
  read_size("GPUCKPT_STAGE", 0, &read.stage);
  read_size("GPUCKPT_DRAIN_RATE", 0, &read.drain_rate);
  read.precopy = !read_word("GPUCKPT_PRECOPY", "off", "on");
  read.ipc = !read_word("GPUCKPT_IPC", "off", "on");
  read.heap_is_empty = read_word("GPUCKPT_DEVICE_HEAP", "empty", "refuse");
  MutexLock guard(lock);
  current = read;
  __atomic_store_n(&known, true, __ATOMIC_RELEASE);
}

const Settings& settings() {
  if (!__atomic_load_n(&known, __ATOMIC_ACQUIRE)) read_settings();
  return current;
}

}  // namespace gpuckpt::device
