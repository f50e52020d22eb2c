#include "page_cache.h"

#include <stdlib.h>

#include <algorithm>

#include "base/procfs/memory_room.h"
#include "store/format/sizes.h"

namespace gpuckpt::writer {

uint64_t room_in_page_cache(const Arguments& arguments) {
  constexpr uint64_t kSmall = 256ull << 20;
  const uint64_t spare = arguments.memory / 8;  // what the library says that this snapshot may take
  if (uint64_t asked; const char* text = getenv("GPUCKPT_PAGE_CACHE"))
    if (store::parse_size(text, &asked)) return std::min(asked, spare);
  const uint64_t left = memory_room().left;
  if (arguments.write.purpose == store::Purpose::kRestore) return std::min(left / 4, spare);
  return std::min({kSmall, left / 8, spare});
}

}  // namespace gpuckpt::writer
