#include "store/format/contents.h"

#include "store/store_internal.h"

namespace gpuckpt::store {

Status count_codecs(Env* env, const Paths& paths, std::vector<CodecUse>* out,
                    uint64_t* unreadable) {
  std::vector<PackId> ids;
  if (Status s = list_packs(env, paths, &ids); !s.ok()) return s;
  std::map<std::string, CodecUse> uses;
  *unreadable = 0;
  for (const PackId& id : ids) {
    std::unique_ptr<PackReader> pack;
    if (!open_pack(env, paths, id, &pack).ok()) {
      ++*unreadable;
      continue;
    }
    for (const FrameEntry& f : pack->table().frames) {
      CodecUse& use = uses[codec_name(f.codec)];
      ++use.frames;
      use.plain_bytes += f.plain_length;
      use.stored_bytes += f.stored_length;
    }
  }
  for (auto& [name, use] : uses) {
    use.name = name;
    out->push_back(use);
  }
  return Status::Ok();
}

}  // namespace gpuckpt::store
