// Fuzzing whatever the store parses. The first byte of the input chooses the parser; where
// checksums would stop every mutation they are made right first, so that the code behind them is
// reached.
//
// With clang: -fsanitize=fuzzer (target store_fuzzer). Otherwise store_fuzz_smoke mutates its own
// seeds, the same every time.

#include <errno.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "store/codec/planes.h"
#include "store/codec/zstd_context.h"
#include "store/format/manifest.h"
#include "store/format/pack.h"
#include "store/format/wire_slot.h"
#include "store/store.h"
#include "store/store_internal.h"

using namespace gpuckpt;
using namespace gpuckpt::store;

namespace {

using Bytes = std::vector<uint8_t>;

// A store in memory; only what the parsers call.
class MemoryEnv : public Env {
 public:
  std::map<std::string, Bytes> files;
  uint8_t ids = 0;   // what its random numbers begin with
  std::string once;  // a file that can be opened once only

  class MemoryFile : public File {
   public:
    explicit MemoryFile(Bytes* bytes) : bytes_(bytes) {}
    int append(std::span<const std::span<const uint8_t>> parts) override {
      for (auto part : parts) bytes_->insert(bytes_->end(), part.begin(), part.end());
      return 0;
    }
    int pread(uint64_t offset, std::span<uint8_t> out) override {
      if (offset > bytes_->size() || out.size() > bytes_->size() - offset) return ENODATA;
      std::copy_n(bytes_->begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
      return 0;
    }
    int size(uint64_t* out) override { return *out = bytes_->size(), 0; }
    int sync() override { return 0; }
    void start_writeback(uint64_t, uint64_t) override {}

   private:
    Bytes* bytes_;
  };
  int open_read(const std::string& path, std::unique_ptr<File>* out) override {
    auto it = files.find(path);
    if (it == files.end()) return ENOENT;
    if (path == once && opened_once++) return ENOENT;
    *out = std::make_unique<MemoryFile>(&it->second);
    return 0;
  }
  int create(const std::string& path, std::unique_ptr<File>* out) override {
    *out = std::make_unique<MemoryFile>(&files[path]);
    return 0;
  }
  int mkdir(const std::string&) override { return 0; }
  int rename(const std::string& from, const std::string& to) override {
    files[to] = std::move(files[from]);
    files.erase(from);
    return 0;
  }
  int remove(const std::string& path) override { return files.erase(path) ? 0 : ENOENT; }
  int list(const std::string& directory, std::vector<std::string>* names) override {
    names->clear();
    for (auto& [path, bytes] : files) {
      if (path.starts_with(directory + "/")) names->push_back(path.substr(directory.size() + 1));
    }
    return 0;
  }
  int info(const std::string& path, FileInfo* out) override {
    auto it = files.find(path);
    *out = {};
    out->directory = it == files.end();
    out->regular = !out->directory;
    out->mode = 0700;
    out->uid = geteuid();
    if (out->regular) out->size = it->second.size();
    return it == files.end() && path.find('.') != std::string::npos ? ENOENT : 0;
  }
  int info_followed(const std::string& path, FileInfo* out) override { return info(path, out); }
  int sync_directory(const std::string&) override { return 0; }
  int touch(const std::string&) override { return 0; }
  int free_bytes(const std::string&, uint64_t* out) override { return *out = 1ull << 40, 0; }
  int64_t now_ns() override { return 1'800'000'000'000'000'000; }
  void random(void* out, size_t length) override {
    for (size_t i = 0; i < length; ++i)
      static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(i * 37 + ids);
    ++ids;
  }

 private:
  int opened_once = 0;
};

const std::string kRoot = "/s";
constexpr int kParsers = 9;

const std::shared_ptr<const Names>& names_here() {
  static const auto names = Names::keyed({{7, 7, 7}}, nullptr);
  return names;
}

struct Seed {
  std::string id;
  PackId pack_id;
  Bytes manifest, body, meta, pack, stream, planes, layer, slot;
};

// One slot with a run of each kind, as a sender fills it. The parent is the seed's snapshot.
Bytes make_slot(std::span<const uint8_t> page) {
  Bytes out(sizeof(wire::SlotHeader));
  auto* header = reinterpret_cast<wire::SlotHeader*>(out.data());
  constexpr uint64_t kFew = 64;
  const ChunkName names[] = {names_here()->of(page.data(), 4096),
                             names_here()->of(page.data(), kFew)};
  const wire::Run runs[] = {
      {0x1000, 4096, wire::kRunSame, 0},   {0x2000, 4096, wire::kRunNamed, 0},
      {0x3000, kFew, wire::kRunSealed, 0}, {0x4000, kFew, wire::kRunData, 0},
      {0x9000, 4096, wire::kRunZero, 0},   {0xa000, 4096, wire::kRunEarly, 0}};
  constexpr uint32_t kRuns = std::size(runs);
  header->runs = kRuns;
  const uint64_t padding = wire::padded_names(sizeof(names[1])) - sizeof(names[1]);
  header->payload_bytes = sizeof(names) + padding + 2 * kFew + 4096;
  std::copy_n(runs, kRuns, header->run);
  out.resize(offsetof(wire::SlotHeader, run) +
             sizeof(runs));  // the header's end comes from read_slot
  for (const ChunkName& name : names) out.insert(out.end(), name.begin(), name.end());
  out.resize(out.size() + padding);
  for (int i = 0; i < 2; ++i) out.insert(out.end(), page.begin(), page.begin() + kFew);
  out.insert(out.end(), page.begin(), page.begin() + 4096);
  return out;
}

Seed make_seed() {
  MemoryEnv env;
  Paths paths{kRoot, nullptr, names_here()};
  std::unique_ptr<SnapshotWriter> writer;
  if (!begin_snapshot(&env, paths, {.level = 1}, &writer).ok()) abort();
  Bytes page(3 * 4096);
  for (size_t i = 0; i < page.size(); ++i) page[i] = static_cast<uint8_t>(i / 4096 + i % 7);
  if (!writer->put(0, 0x1000, page).ok() || !writer->put_zero(0, 0x9000, 4096).ok() ||
      !writer->put(0x1000000, 0x100, Bytes(300, 'd')).ok() ||
      !writer->append_blob("process", Bytes(50, 'b')).ok()) {
    abort();
  }
  CommitResult result;
  if (!writer->commit("{\"pid\":1}", &result).ok()) abort();
  Seed seed;
  seed.id = result.id;
  seed.manifest = env.files[paths.manifest(result.id)];
  ManifestHeader header;
  memcpy(&header, seed.manifest.data(), sizeof(header));
  seed.meta.assign(
      seed.manifest.begin() + sizeof(header),
      seed.manifest.begin() + sizeof(header) + static_cast<ptrdiff_t>(header.meta_length));
  seed.body.resize(header.body_plain_length);
  ZSTD_decompress(seed.body.data(), seed.body.size(),
                  seed.manifest.data() + sizeof(header) + header.meta_length, header.body_length);
  for (auto& [path, bytes] : env.files) {
    if (!path.ends_with(".pack")) continue;
    seed.pack = bytes;
    if (!unhex(path.substr(path.rfind('/') + 1, 32), seed.pack_id.data(), 16)) abort();
  }
  std::unique_ptr<SnapshotReader> reader;
  if (!open_snapshot(&env, paths, result.id, &reader).ok()) abort();
  (void)export_snapshot(*reader, [&](std::span<const uint8_t> part) {
    seed.stream.insert(seed.stream.end(), part.begin(), part.end());
    return true;
  });
  Bytes numbers(64 * 1024);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<uint8_t>(i % 2 ? i / 1000 % 5 : i * 2654435761u >> 13);
  PlanePlan plan = plan_planes(numbers);
  if (plan.width == 0) abort();
  numbers.resize(255 * 5);
  seed.planes.push_back(255);
  if (!compress_planes(numbers, plan, 2 * numbers.size(), &seed.planes)) abort();
  PageMap map;
  map.packs.push_back({});
  map.spaces.push_back(
      {0, {}, {{0x1000, 8192, 0, 5, 2}, {0x4000, 100, kZeroPack, 0, 0}, {0x4064, 50, 0, 9, 1}}});
  map.spaces.push_back({0x1000000, {}, {{0x10000, 1 << 20, 0, 100, 16}}});
  seed.layer = encode_layer(difference({}, map));
  seed.slot = make_slot(page);
  return seed;
}

const Seed& seed() {
  static const Seed made = make_seed();
  return made;
}

template <typename T>
void seal_sum(Bytes* bytes, size_t at) {
  uint64_t sum =
      XXH3_64bits(bytes->data() + at, sizeof(T) - (sizeof(T) == sizeof(PackTrailer) ? 16 : 8));
  memcpy(bytes->data() + at + sizeof(T) - (sizeof(T) == sizeof(PackTrailer) ? 16 : 8), &sum, 8);
}

// A manifest file around a body, with every checksum right.
Bytes wrap_body(std::span<const uint8_t> body) {
  Bytes stored(ZSTD_compressBound(body.size()));
  stored.resize(
      ZSTD_compressCCtx(compressor(), stored.data(), stored.size(), body.data(), body.size(), 1));
  ManifestHeader header{};
  memcpy(header.magic, kManifestMagic, 8);
  header.version = kManifestVersion;
  header.meta_length = seed().meta.size();
  header.body_length = stored.size();
  header.body_plain_length = body.size();
  header.meta_checksum = XXH3_64bits(seed().meta.data(), seed().meta.size());
  header.checksum = XXH3_64bits(&header, 56);
  Bytes out(reinterpret_cast<uint8_t*>(&header),
            reinterpret_cast<uint8_t*>(&header) + sizeof(header));
  out.insert(out.end(), seed().meta.begin(), seed().meta.end());
  out.insert(out.end(), stored.begin(), stored.end());
  ChunkName sum = sum128(out.data(), out.size());
  out.insert(out.end(), sum.begin(), sum.end());
  out.insert(out.end(), kManifestEndMagic, kManifestEndMagic + 8);
  return out;
}

Bytes fix_pack(Bytes pack) {
  if (pack.size() < sizeof(PackHeader) + sizeof(PackTrailer)) return pack;
  size_t trailer_at = pack.size() - sizeof(PackTrailer);
  PackTrailer trailer;
  memcpy(&trailer, &pack[trailer_at], sizeof(trailer));
  if (trailer.table_offset < trailer_at) {
    trailer.table_checksum =
        XXH3_64bits(&pack[trailer.table_offset], trailer_at - trailer.table_offset);
  }
  memcpy(&pack[trailer_at], &trailer, sizeof(trailer));
  seal_sum<PackHeader>(&pack, 0);
  seal_sum<PackTrailer>(&pack, trailer_at);
  return pack;
}

void read_pack(const Bytes& bytes) {
  MemoryEnv env;
  env.files["/p.pack"] = bytes;
  std::unique_ptr<PackReader> pack;
  if (PackReader::open(&env, "/p.pack", seed().pack_id, nullptr, names_here(), &pack).ok()) {
    for (uint32_t f = 0; f < pack->table().frames.size(); ++f) (void)pack->check_frame(f);
  }
  Bytes out;
  uint64_t sum;
  (void)rebuild_pack(&env, "/p.pack", seed().pack_id, nullptr, *names_here(), &out, &sum);
}

// The seed's pack, opened.
const OpenPacks& open_seed() {
  static const OpenPacks opened = [] {
    static MemoryEnv env;
    env.files["/p.pack"] = seed().pack;
    std::unique_ptr<PackReader> pack;
    if (!PackReader::open(&env, "/p.pack", seed().pack_id, nullptr, names_here(), &pack).ok())
      abort();
    return OpenPacks{{seed().pack_id, std::move(pack)}};
  }();
  return opened;
}

// What is damaged would be read three times, because prune might be at work: here it is gone then.
void read_snapshot(Bytes manifest) {
  MemoryEnv env;
  Paths paths{kRoot, nullptr, names_here()};
  env.once = paths.manifest(seed().id);
  env.files[env.once] = std::move(manifest);
  std::unique_ptr<SnapshotReader> reader;
  if (!open_snapshot(&env, paths, seed().id, &reader, &open_seed()).ok()) return;
  for (uint64_t space : reader->spaces()) {
    (void)reader->read_all(space, 1, [](uint64_t, std::span<const uint8_t>) { return true; });
    for (const Extent& e : reader->extents(space)) {
      Bytes some(std::min<uint64_t>(e.length, 10000));
      (void)reader->read(space, e.address + e.length - some.size(), some);
    }
  }
  for (const std::string& name : reader->blobs()) {
    Bytes blob;
    (void)reader->blob(name, &blob);
  }
  std::vector<Difference> differences;
  (void)compare(*reader, *reader, &differences);
}

// Takes the writer's place and only checks: what it is given has as many names as chunks, and,
// where a payload is given, lies within that. Takes a tenth of the time.
class Checker : public SnapshotWriter {
 public:
  Checker() = default;
  explicit Checker(std::span<const uint8_t> payload) : payload_(payload) {}
  Status put(uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
             std::span<const ChunkName> names) override {
    const bool within =
        bytes.empty() || (bytes.data() >= payload_.data() &&
                          bytes.data() + bytes.size() <= payload_.data() + payload_.size());
    if (!payload_.empty() && !within) abort();
    return names.empty() ? Status::Ok() : put_named(space, address, bytes.size(), names);
  }
  Status put_ahead(uint64_t space, uint64_t address, std::span<const uint8_t> bytes,
                   std::span<const ChunkName> names) override {
    if (names.empty()) abort();
    return put(space, address, bytes, names);
  }
  Status put_early(uint64_t space, uint64_t address, std::span<const uint8_t> bytes) override {
    return put(space, address, bytes, {});
  }
  Status put_zero(uint64_t, uint64_t, uint64_t) override { return Status::Ok(); }
  Status put_same(uint64_t, uint64_t, uint64_t) override { return Status::Ok(); }
  Status put_named(uint64_t space, uint64_t address, uint64_t length,
                   std::span<const ChunkName> names) override {
    if (names.size() != chunks_in(address, length, chunk_unit(space))) abort();
    return Status::Ok();
  }
  const std::string& parent() const override { abort(); }
  Status append_blob(const std::string&, std::span<const uint8_t>) override { return Status::Ok(); }
  Status commit(const std::string&, const Check&, CommitResult*) override { return Status::Ok(); }

 private:
  std::span<const uint8_t> payload_;  // empty: anywhere
};

// Which inputs go to the real writer as well: always the same ones.
bool one_in(uint64_t n, const Bytes& bytes) {
  return XXH3_64bits(bytes.data(), bytes.size()) % n == 0;
}

// One in `real` goes to the real writer.
void read_stream(const Bytes& bytes, uint64_t real) {
  MemoryEnv env;
  Paths paths{kRoot, nullptr, names_here()};
  env.files[kRoot + "/format"] = {};
  class Fake : public Store {
   public:
    Fake(Env* env, Paths paths, bool real) : env_(env), paths_(std::move(paths)), real_(real) {}
    const std::string& path() const override { return paths_.root; }
    std::shared_ptr<const Names> names() const override { return paths_.names; }
    Status list(std::vector<SnapshotInfo>*) override { return Status::Ok(); }
    Status resolve(const std::string&, std::string*) override { return Status::Ok(); }
    Status open_snapshot(const std::string&, std::unique_ptr<SnapshotReader>*) override {
      return Status::Ok();
    }
    Status begin(const WriteOptions& o, std::unique_ptr<SnapshotWriter>* out) override {
      if (real_) return begin_snapshot(env_, paths_, o, out);
      *out = std::make_unique<Checker>();
      return Status::Ok();
    }
    Status verify(const VerifyOptions&, VerifyReport*) override { return Status::Ok(); }
    Status prune(const PruneOptions&, PruneReport*) override { return Status::Ok(); }
    Status codecs(std::vector<CodecUse>*, uint64_t*) override { return Status::Ok(); }
    Status disk_bytes(uint64_t*) override { return Status::Ok(); }
    Status mirror(const std::string&, MirrorReport*) override { return Status::Ok(); }
    std::unique_ptr<MirrorState> mirror_state() override { return nullptr; }
    Status job_lease(const std::string&, Lease*) override { return Status::Ok(); }
    Status take_job(const LeaseRequest&, Lease*) override { return Status::Ok(); }
    Status renew_job(const Lease&) override { return Status::Ok(); }
    Status leave_job(const Lease&, Lease::Life) override { return Status::Ok(); }
    Status is_writing(const std::string&, bool*) override { return Status::Ok(); }
    Status newest_of_job(const std::string&, std::string*) override { return Status::Ok(); }

   private:
    Env* env_;
    Paths paths_;
    bool real_;
  } store(&env, paths, one_in(real, bytes));
  size_t at = 0;
  CommitResult result;
  (void)import_snapshot(
      store, {},
      [&](std::span<uint8_t> out) {
        if (out.size() > bytes.size() - at) return false;
        std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(at), out.size(), out.begin());
        at += out.size();
        return true;
      },
      &result);
}

// Makes the sums of a stream's records right, as far as there are whole ones.
Bytes fix_stream(Bytes stream) {
  constexpr size_t kHeader = 16, kRecord = 48, kSummed = 40, kStoredAt = 32;
  for (size_t at = kHeader; stream.size() >= kRecord && at <= stream.size() - kRecord;) {
    uint64_t stored;
    memcpy(&stored, &stream[at + kStoredAt], sizeof(stored));
    if (stored > stream.size() - at - kRecord) break;
    uint64_t sum = XXH3_64bits_withSeed(stream.data() + at + kRecord, stored,
                                        XXH3_64bits(&stream[at], kSummed));
    memcpy(&stream[at + kSummed], &sum, sizeof(sum));
    at += kRecord + stored;
  }
  return stream;
}

// The input: the slot's first numbers, its runs (as many as it says, at most 16), its payload. What
// the writer believed is published, and read again, for one input in eight.
void read_slot(const Bytes& bytes) {
  constexpr size_t kRunsAt = offsetof(wire::SlotHeader, run);
  static std::vector<uint64_t> memory(wire::kSlotBytes / 8);  // aligned as the ring is
  static size_t used = 0;                                     // of its payload, by the input before
  auto* slot = reinterpret_cast<uint8_t*>(memory.data());
  memset(slot + wire::kSlotHeaderBytes, 0, used);
  used = 0;
  if (bytes.size() < kRunsAt) return;
  memcpy(slot, bytes.data(), kRunsAt);
  const auto* header = reinterpret_cast<const wire::SlotHeader*>(slot);
  size_t runs = std::min<size_t>(header->runs, 16) * sizeof(wire::Run);
  runs = std::min(runs, bytes.size() - kRunsAt);
  memset(slot + kRunsAt, 0, 17 * sizeof(wire::Run));
  memcpy(slot + kRunsAt, bytes.data() + kRunsAt, runs);
  const size_t payload = std::min<size_t>(bytes.size() - kRunsAt - runs, wire::kSlotPayloadBytes);
  if (payload) memcpy(slot + wire::kSlotHeaderBytes, bytes.data() + kRunsAt + runs, payload);
  used = payload;

  wire::Msg message;
  memcpy(&message, slot, std::min(sizeof(message), bytes.size()));
  if (is_message(message, bytes.size())) (void)message_text(message);
  (void)covered_by_slot(slot);
  const uint64_t claimed = std::min<uint64_t>(header->payload_bytes, wire::kSlotPayloadBytes);
  Checker checker(std::span(slot + wire::kSlotHeaderBytes, claimed));
  if (!put_slot(slot, checker).ok() || !one_in(8, bytes)) return;

  MemoryEnv env;
  env.ids = 100;  // others than the seed's
  Paths paths{kRoot, nullptr, names_here()};
  env.files[paths.manifest(seed().id)] = seed().manifest;
  env.files[paths.pack(seed().pack_id)] = seed().pack;
  std::unique_ptr<SnapshotWriter> writer;
  if (!begin_snapshot(&env, paths, {.parent = seed().id, .level = 0}, &writer).ok()) abort();
  if (writer->parent() != seed().id) abort();
  if (bytes.size() % 8 == 0) {  // before the runs: it answers in place
    if (!put_slot_blob(slot, "blob", *writer).ok()) return;
  }
  CommitResult result;
  if (!put_slot(slot, *writer).ok() || !writer->commit("{}", &result).ok()) return;
  std::unique_ptr<SnapshotReader> reader;
  if (!open_snapshot(&env, paths, result.id, &reader).ok()) abort();
  for (uint64_t space : reader->spaces()) {
    if (!reader->read_all(space, 1, [](uint64_t, std::span<const uint8_t>) { return true; }).ok())
      abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::span<const uint8_t> rest(data + 1, size - 1);
  Bytes bytes(rest.begin(), rest.end());
  static const char* only = getenv("GPUCKPT_FUZZ_PARSER");  // its number, for counts per parser
  switch ((only ? atoi(only) : data[0]) % kParsers) {
    case 0:
      read_snapshot(wrap_body(rest));
      break;
    case 1:
      read_snapshot(bytes);
      break;
    case 2:
      read_pack(fix_pack(bytes));
      break;
    case 3:
      read_pack(bytes);
      break;
    case 4:
      read_stream(bytes, 64);  // few get past their sums
      break;
    case 5: {  // the first byte: how long the plain bytes are said to be
      Bytes plain(bytes.empty() ? 0 : bytes[0] * 5u);
      if (!bytes.empty()) (void)decompress_planes(kCodecCodedPlanes, rest.subspan(1), plain);
      break;
    }
    case 6: {
      Layer layer, again;
      if (decode_layer(rest, &layer)) break;
      PageMap map;
      if (apply(layer, &map)) break;
      // What came out must survive being taken apart and put together again.
      PageMap twice;
      if (decode_layer(encode_layer(difference({}, map)), &again) || apply(again, &twice)) abort();
      if (!difference(map, twice).spaces.empty()) abort();
      break;
    }
    case 7:
      read_slot(bytes);
      break;
    case 8:
      read_stream(fix_stream(bytes), 8);
      break;
  }
  return 0;
}

#ifndef GPUCKPT_LIBFUZZER
int main(int argc, char** argv) {
  // With a directory: writes the seeds there as a corpus. Else: N rounds of mutations of them.
  const Seed& s = seed();
  const Bytes* seeds[] = {&s.body,   &s.manifest, &s.pack, &s.pack,  &s.stream,
                          &s.planes, &s.layer,    &s.slot, &s.stream};
  if (argc > 2 && std::string(argv[1]) == "--corpus") {
    for (int i = 0; i < kParsers; ++i) {
      FILE* out = fopen((std::string(argv[2]) + "/seed" + std::to_string(i)).c_str(), "wb");
      if (!out) return 1;
      fputc(i, out);
      fwrite(seeds[i]->data(), 1, seeds[i]->size(), out);
      fclose(out);
    }
    return 0;
  }
  long rounds = argc > 1 ? atol(argv[1]) : 20000;
  std::mt19937 random(1);
  for (long round = 0; round < rounds; ++round) {
    uint8_t which = static_cast<uint8_t>(round % kParsers);
    Bytes input(1, which);
    input.insert(input.end(), seeds[which]->begin(), seeds[which]->end());
    for (unsigned n = round < kParsers ? 0 : 1 + random() % 4; n > 0; --n) {
      size_t at = 1 + random() % (input.size() - 1);
      static const uint64_t favourites[] = {0,          1,          0x7f,  0xff,       0xffff,
                                            0x7fffffff, 0xffffffff, ~0ull, 1ull << 63, 4096};
      switch (random() % 4) {
        case 0:
          input[at] ^= static_cast<uint8_t>(1u << random() % 8);
          break;
        case 1: {
          uint64_t v = favourites[random() % 10];
          memcpy(&input[at], &v, std::min<size_t>(random() % 2 ? 8 : 4, input.size() - at));
          break;
        }
        case 2:
          input.resize(at + 1);
          break;
        case 3:
          input.insert(input.begin() + static_cast<ptrdiff_t>(at), input.begin() + 1,
                       input.begin() + static_cast<ptrdiff_t>(
                                           1 + random() % std::min<size_t>(64, input.size() - 1)));
          break;
      }
      if (input.size() < 2) break;
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  printf("%ld inputs\nEXIT-SUCCESS\n", rounds);
  return 0;
}
#endif
