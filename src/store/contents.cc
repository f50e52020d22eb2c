#include "store/contents.h"

#include <fmt/format.h>

#include "store/parts.h"

namespace gpuckpt::store {
namespace {

std::string codec_name(uint32_t codec) {
  switch (codec) {
    case kCodecPlain:
      return "plain";
    case kCodecZstd:
      return "zstd";
    case kCodecPlanes:
      return "planes";
    default:
      return fmt::format("codec {}", codec);
  }
}

}  // namespace

Status count_codecs(Env* env, const Paths& paths, std::vector<CodecUse>* out,
                    uint64_t* unreadable) {
  std::vector<PackId> ids;
  if (Status s = list_packs(env, paths, &ids); !s.ok()) return s;
  std::map<uint32_t, CodecUse> uses;
  *unreadable = 0;
  for (const PackId& id : ids) {
    std::unique_ptr<PackReader> pack;
    if (!open_pack(env, paths, id, &pack).ok()) {
      ++*unreadable;
      continue;
    }
    for (const FrameEntry& f : pack->table().frames) {
      CodecUse& use = uses[f.codec];
      ++use.frames;
      use.plain_bytes += f.plain_length;
      use.stored_bytes += f.stored_length;
    }
  }
  for (auto& [codec, use] : uses) {
    use.name = codec_name(codec);
    out->push_back(use);
  }
  return Status::Ok();
}

}  // namespace gpuckpt::store
