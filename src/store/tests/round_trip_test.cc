// What goes in comes out, costs nothing twice, and is found by name.
#include <sys/resource.h>
#include <zstd.h>

#include <array>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <thread>

#include "faulty_env.h"
#include "store/codec/frame_codec.h"
#include "store/codec/huffman.h"
#include "store/format/pack.h"
#include "testing.h"

using namespace gpuckpt;
using namespace gpuckpt::store;

TEST_CASE("a snapshot comes back as it was") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  Model model = some_model(1);
  CommitResult result;
  REQUIRE_OK(write_model(*store, model, R"({"tag":"first","pid":7})", &result));
  CHECK(result.new_bytes > 0);
  CHECK(result.stored_bytes < result.logical_bytes);

  std::unique_ptr<Store> again;
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(open_reference(dir.store() + "@first", {}, &again, &reader));
  CHECK(reader->id() == result.id);
  CHECK(reader->meta().find("\"pid\":7") != std::string::npos);
  CHECK(compare_model(*reader, model) == "");
  CHECK(reader->spaces() == std::vector<uint64_t>{0, 0x100, 0x1000000});
  std::vector<uint8_t> page(4096);
  CHECK(reader->read(0, 0x10000, page).code() == kExitAbsent);
  CHECK(reader->read(0, 0x400000 + 16 * 4096 - 1, page).code() == kExitAbsent);
  CHECK(reader->read(5, 0, page).code() == kExitAbsent);
  CHECK(reader->blob("nothing", &page).code() == kExitAbsent);
}

TEST_CASE("files are private at every moment, whatever the umask") {
  TemporaryDirectory dir;
  FaultyEnv env;
  int looked = 0;
  env.before = [&](Call, const std::string&) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
      struct stat st;
      if (lstat(entry.path().c_str(), &st) != 0) continue;
      INFO(entry.path());
      CHECK((st.st_mode & 077) == 0);
      ++looked;
    }
    return 0;
  };
  const mode_t before = umask(0);
  std::unique_ptr<Store> store;
  Status status = Store::open(dir.store(), {.env = &env, .create = true}, &store);
  CommitResult result;
  for (uint64_t i = 0; i < 3 && status.ok(); ++i)
    status = write_model(*store, some_model(i), "{}", &result);
  PruneReport report;
  if (status.ok()) status = store->prune({.keep = 1}, &report);
  umask(before);
  REQUIRE_OK(status);
  CHECK(looked > 100);
}

TEST_CASE("files are private and temporary ones are gone") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  CommitResult result;
  REQUIRE_OK(write_model(*store, some_model(2), "{}", &result));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir.path())) {
    INFO(entry.path());
    struct stat st;
    REQUIRE(lstat(entry.path().c_str(), &st) == 0);
    CHECK((st.st_mode & 077) == 0);
    CHECK(entry.path().extension() != ".tmp");
    CHECK(entry.path().extension() != ".lock");
  }
}

TEST_CASE("what is there already is not stored again") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  Model model = some_model(3);
  CommitResult first, second, third;
  REQUIRE_OK(write_model(*store, model, "{}", &first));
  REQUIRE_OK(write_model(*store, model, "{}", &second, {.job = "another job"}));
  CHECK(second.new_bytes == 0);
  CHECK(second.stored_bytes < 4096);
  CHECK(second.id > first.id);
  model[0][0x7f0000000000][5 * 4096] ^= 1;
  REQUIRE_OK(write_model(*store, model, "{}", &third));
  CHECK(third.new_bytes == 4096);
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(third.id, &reader));
  CHECK(compare_model(*reader, model) == "");
}

TEST_CASE("zero pages are never stored, one page many times is stored once") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  std::unique_ptr<SnapshotWriter> writer;
  REQUIRE_OK(store->begin({}, &writer));
  std::vector<uint8_t> zeros(1 << 20), same(1 << 20, 'x');
  REQUIRE_OK(writer->put(0, 0x100000, zeros));
  REQUIRE_OK(writer->put_zero(0, 0x200000, 1ull << 40));
  REQUIRE_OK(writer->put(0, 0x30000000000, same));
  CommitResult result;
  REQUIRE_OK(writer->commit("{}", &result));
  CHECK(result.new_bytes == 4096);
  CHECK(result.zero_bytes == (1 << 20) + (1ull << 40));
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(result.id, &reader));
  auto extents = reader->extents(0);
  REQUIRE(extents.size() == 2);
  CHECK(extents[0].zero);
  CHECK(extents[0].length == (1 << 20) + (1ull << 40));
  std::vector<uint8_t> got(1 << 20);
  REQUIRE_OK(reader->read(0, 0x30000000000, got));
  CHECK(got == same);
  REQUIRE_OK(reader->read(0, 0x150000, got));
  CHECK(got == zeros);
}

TEST_CASE("many threads write one snapshot") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  std::unique_ptr<SnapshotWriter> writer;
  REQUIRE_OK(store->begin({}, &writer));
  Model model;
  for (uint64_t i = 0; i < 32; ++i)
    model[i % 2 ? 0 : 0x1000000][i << 20] = some_bytes(i % 20, 1 << 20);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = t; i < 32; i += 4) {
        const auto& bytes = model.at(i % 2 ? 0 : 0x1000000).at(i << 20);
        (void)writer->put(i % 2 ? 0 : 0x1000000, i << 20, bytes);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  REQUIRE_OK(writer->append_blob(
      "process", std::vector<uint8_t>{'{', '"', 'b', 'l', 'o', 'b', '"', ':', '1', '}'}));
  std::vector<uint8_t> big = some_bytes(99, 200001);
  for (size_t at = 0; at < big.size(); at += 1000) {
    REQUIRE_OK(writer->append_blob(
        "big", std::span(big).subspan(at, std::min<size_t>(1000, big.size() - at))));
  }
  CommitResult result;
  REQUIRE_OK(writer->commit("{}", &result));
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(result.id, &reader));
  CHECK(compare_model(*reader, model) == "");
  std::vector<uint8_t> got;
  REQUIRE_OK(reader->blob("big", &got));
  CHECK(got == big);
}

TEST_CASE("an address captured twice is an error, not a guess") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  std::unique_ptr<SnapshotWriter> writer;
  REQUIRE_OK(store->begin({}, &writer));
  REQUIRE_OK(writer->put(0, 0x1000, some_bytes(1, 8192)));
  REQUIRE_OK(writer->put_zero(0, 0x2000, 4096));
  CommitResult result;
  Status status = writer->commit("{}", &result);
  CHECK(status.text().find("captured twice") != std::string::npos);
  writer.reset();
  std::vector<SnapshotInfo> list;
  REQUIRE_OK(store->list(&list));
  CHECK(list.empty());
}

TEST_CASE("names") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE(Store::open(dir.store(), {}, &store).code() == kExitAbsent);
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  std::string id;
  CHECK(store->resolve("latest", &id).code() == kExitAbsent);
  CommitResult a, b;
  REQUIRE_OK(write_model(*store, some_model(1), R"({"tag":"best"})", &a));
  REQUIRE_OK(write_model(*store, some_model(1), R"({"tag":"rest"})", &b));
  REQUIRE_OK(store->resolve("", &id));
  CHECK(id == b.id);
  REQUIRE_OK(store->resolve("best", &id));
  CHECK(id == a.id);
  REQUIRE_OK(store->resolve(a.id.substr(a.id.size() - 4), &id));
  CHECK(id == a.id);
  CHECK(store->resolve("worst", &id).code() == kExitAbsent);
  std::unique_ptr<SnapshotReader> reader;
  CHECK(store->open_snapshot("../../etc/passwd", &reader).code() == kExitAbsent);
  std::string path, name;
  split_reference("/a/b@c", &path, &name);
  CHECK(path == "/a/b");
  CHECK(name == "c");
  split_reference("/a@b/c", &path, &name);
  CHECK(path == "/a@b/c");
  CHECK(name == "");
}

TEST_CASE("a store of another user, a file, a full directory") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  std::filesystem::create_directory(dir.path() + "/full");
  std::ofstream(dir.path() + "/full/thing") << "x";
  Status status = Store::open(dir.path() + "/full", {.create = true}, &store);
  CHECK(status.code() == kExitAbsent);
  CHECK(status.text().find("thing") != std::string::npos);
  CHECK(Store::open(dir.path() + "/full/thing", {.create = true}, &store).code() == kExitAbsent);
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  chmod(dir.store().c_str(), 0770);
  CHECK(Store::open(dir.store(), {}, &store).code() == kExitRefused);
  chmod(dir.store().c_str(), 0700);
  if (geteuid() == 0) {
    REQUIRE(chown(dir.store().c_str(), 12345, 12345) == 0);
    CHECK(Store::open(dir.store(), {}, &store).code() == kExitRefused);
    REQUIRE_OK(Store::open(dir.store(), {.any_owner = true}, &store));
  }
}

TEST_CASE("a snapshot in more packs than a process may open files at first") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  Model model;
  CommitResult result;
  for (uint64_t i = 0; i < 80; ++i) {
    model[0][i << 20] = std::vector<uint8_t>(4096, static_cast<uint8_t>(i + 1));
    REQUIRE_OK(write_model(*store, model, "{}", &result));
  }
  rlimit before, low;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  low = before;
  low.rlim_cur = 40;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(result.id, &reader));
  CHECK(compare_model(*reader, model) == "");
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  // Pruning gathers the small ones.
  PruneReport report;
  REQUIRE_OK(store->prune({.keep = 1}, &report));
  CHECK(report.packs_rewritten == 80);
  REQUIRE_OK(store->open_snapshot(result.id, &reader));
  CHECK(compare_model(*reader, model) == "");
}

TEST_CASE("differences are found by address") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  std::vector<uint8_t> page(4096, 'p'), other(4096, 'q');
  auto take = [&](std::vector<std::pair<uint64_t, const std::vector<uint8_t>*>> pieces,
                  uint64_t zero_at, uint64_t zero_length) {
    std::unique_ptr<SnapshotWriter> writer;
    REQUIRE_OK(store->begin({}, &writer));
    for (auto& [address, bytes] : pieces) REQUIRE_OK(writer->put(0, address, *bytes));
    REQUIRE_OK(writer->put_zero(0, zero_at, zero_length));
    CommitResult result;
    REQUIRE_OK(writer->commit("{}", &result));
    std::unique_ptr<SnapshotReader> reader;
    REQUIRE_OK(store->open_snapshot(result.id, &reader));
    return reader;
  };
  auto a = take({{0x1000, &page}, {0x2000, &page}, {0x9000, &page}}, 0x10000, 0x4000);
  auto b =
      take({{0x1000, &page}, {0x2000, &other}, {0xa000, &page}, {0x11000, &page}}, 0x12000, 0x3000);
  std::vector<Difference> differences;
  REQUIRE_OK(compare(*a, *b, &differences));
  std::string text;
  for (auto& d : differences) {
    text += std::to_string(d.address / 4096) + "+" + std::to_string(d.length / 4096) +
            "abc"[d.kind] + " ";
  }
  CHECK(text == "2+1a 9+1b 10+1c 16+1b 17+1a 20+1c ");
  REQUIRE_OK(compare(*a, *a, &differences));
  CHECK(differences.empty());
}

// Numbers as tensors have them, every frame another mixture.
std::vector<uint8_t> numbers(std::mt19937& random, size_t bytes) {
  std::vector<uint8_t> out(bytes);
  const size_t width = size_t{1} << random() % 4;
  const float scale = std::pow(2.0f, static_cast<float>(random() % 40) - 20);
  const bool whole = random() % 3 == 0;
  std::normal_distribution<float> normal(0, scale);
  for (size_t i = 0; i + width <= bytes; i += width) {
    float f = normal(random);
    uint64_t v = whole ? random() % 50000 : std::bit_cast<uint32_t>(f) >> (width == 2 ? 16 : 0);
    memcpy(&out[i], &v, width);
  }
  return out;
}

TEST_CASE("numbers of every width come back from their codec") {
  std::mt19937 random(5);
  std::array<int, 4> used{};
  std::vector<uint8_t> packed;
  for (int round = 0; round < 200; ++round) {
    auto plain = numbers(random, 64 * 1024 + (round % 4 ? random() % 70000 : 192 * 1024));
    uint32_t codec = compress_frame(plain, 1, &packed);
    REQUIRE(codec < used.size());
    ++used[codec];
    if (codec == kCodecPlain) continue;
    CHECK(packed.size() < plain.size());
    std::vector<uint8_t> again(plain.size());
    REQUIRE(decompress_frame(codec, packed, again) == nullptr);
    REQUIRE(again == plain);
    packed.resize(packed.size() - 1 - random() % (packed.size() - 1));
    REQUIRE(decompress_frame(codec, packed, again) != nullptr);
  }
  CHECK(used[kCodecCodedPlanes] > 20);
  CHECK(used[kCodecZstd] > 0);
}

// Words and numbers, as in a log.
std::vector<uint8_t> words(std::mt19937& random, size_t bytes) {
  static const char* const kWords[] = {"snapshot ", "of ", "process ", "restores ", "memory "};
  std::string text;
  while (text.size() < bytes)
    text += random() % 8 ? kWords[random() % 5] : std::to_string(random() % 100000) + " ";
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bytes)};
}

TEST_CASE("a frame comes back whatever its codec was chosen for") {
  std::mt19937 random(7);
  std::vector<uint8_t> packed;
  std::array<std::array<int, 5>, 3> used{};
  std::array<size_t, 3> stored{};
  for (int round = 0; round < 300; ++round) {
    const size_t bytes = round % 5 ? 64 * 1024 + random() % 200000 : 1 + random() % 60000;
    std::vector<uint8_t> plain = round % 100 < 40   ? words(random, bytes)
                                 : round % 100 < 80 ? numbers(random, bytes)
                                                    : std::vector<uint8_t>(bytes);
    if (round % 100 >= 90)
      for (uint8_t& byte : plain) byte = static_cast<uint8_t>(random());
    for (Purpose purpose : {Purpose::kBalanced, Purpose::kRestore, Purpose::kSize}) {
      const size_t p = static_cast<size_t>(purpose);
      const uint32_t codec = compress_frame(plain, 1, &packed, purpose);
      REQUIRE(codec < used[p].size());
      ++used[p][codec];
      stored[p] += codec == kCodecPlain ? plain.size() : packed.size();
      if (codec == kCodecPlain) continue;
      CHECK(packed.size() < plain.size());
      std::vector<uint8_t> again(plain.size());
      REQUIRE(decompress_frame(codec, packed, again) == nullptr);
      REQUIRE(again == plain);
      // Neither less nor more than it says, and nothing behind what is damaged.
      again.push_back(7);
      CHECK(decompress_frame(codec, packed, again) != nullptr);
      again.resize(plain.size());
      packed.resize(packed.size() - 1 - random() % (packed.size() - 1));
      CHECK(decompress_frame(codec, packed, again) != nullptr);
    }
  }
  CHECK(used[0][kCodecLz4] == 0);
  CHECK(used[2][kCodecLz4] == 0);
  CHECK(used[1][kCodecLz4] > 100);
  CHECK(used[1][kCodecZstd] == 0);  // slower to decode
  CHECK(used[1][kCodecCodedPlanes] > 0);
  CHECK(used[1][kCodecPlain] >= 30);  // bytes of chance
  CHECK(stored[2] <= stored[0]);
  CHECK(stored[0] < stored[1]);
}

TEST_CASE("at a higher level, what is stored for a restore is shorter and still LZ4") {
  std::mt19937 random(8);
  std::vector<uint8_t> packed, again;
  size_t before = 0;
  for (int level : {1, 3, 9, 19}) {
    std::mt19937 same(9);
    size_t stored = 0;
    for (int i = 0; i < 4; ++i) {
      const std::vector<uint8_t> plain = words(same, 64 * 1024 + random() % 200000);
      REQUIRE(compress_frame(plain, level, &packed, Purpose::kRestore) == kCodecLz4);
      again.resize(plain.size());
      REQUIRE(decompress_frame(kCodecLz4, packed, again) == nullptr);
      REQUIRE(again == plain);
      stored += packed.size() * 100000 / plain.size();
    }
    if (level == 3) CHECK(stored < before * 85 / 100);
    if (level > 3) CHECK(stored <= before * 101 / 100);
    before = stored;
  }
}

TEST_CASE("planes as they were written before there was a Huffman code") {
  std::vector<uint8_t> plain, planes[2], frame{2, 0}, zstd(ZSTD_compressBound(5000));
  for (size_t i = 0; i < 10000; ++i) {
    plain.push_back(static_cast<uint8_t>(i % 2 ? i / 100 : i * i));
    planes[i % 2].push_back(plain.back());
  }
  plain.push_back(9);
  zstd.resize(ZSTD_compress(zstd.data(), zstd.size(), planes[1].data(), 5000, 1));
  for (uint32_t n : {uint32_t{5000}, static_cast<uint32_t>(zstd.size())}) {
    for (int shift = 0; shift < 32; shift += 8) frame.push_back(static_cast<uint8_t>(n >> shift));
    if (frame.size() == 6) frame.push_back(1);
  }
  for (const auto& part : {planes[0], zstd, {9}})
    frame.insert(frame.end(), part.begin(), part.end());
  std::vector<uint8_t> again(plain.size());
  REQUIRE(decompress_frame(kCodecPlanes, frame, again) == nullptr);
  CHECK(again == plain);
}

TEST_CASE("the bytes of a Huffman code") {
  const std::string text = "abracadabra, said the wizard";
  std::span<const uint8_t> in(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  std::vector<uint8_t> out(HuffmanEncoder::room(in.size())), again(in.size());
  HuffmanEncoder encoder;
  out.resize(encoder.encode(in, out.data()));
  CHECK(hex(out.data() + 140, out.size() - 140) ==
        "a49908a419710094e2ee05f1ea6301");  // do not change: docs/FORMAT.md
  REQUIRE(huffman_decode(out, again));
  CHECK(std::equal(again.begin(), again.end(), in.begin()));
  out.push_back(0);
  CHECK(!huffman_decode(out, again));
  // Another code is learned when this one has none for a byte.
  std::vector<uint8_t> others(1000, 7), stored(HuffmanEncoder::room(1000)), got(1000);
  others[3] = 200;
  stored.resize(encoder.encode(others, stored.data()));
  CHECK(stored.size() < 300);
  REQUIRE(huffman_decode(stored, got));
  CHECK(got == others);
}

TEST_CASE("a Huffman code of any number of bits comes back, and writes nothing beside") {
  std::mt19937 random(11);
  constexpr uint8_t kGuard = 0xa5;
  for (int round = 0; round < 400; ++round) {
    // Bytes of few values, from one that is nearly always there to two hundred as likely as each
    // other.
    const size_t bytes = round < 100 ? 1 + static_cast<size_t>(round) : 100 + random() % 70000;
    const unsigned values = 2 + random() % (round % 2 ? 6 : 200), skew = 1 + random() % 60;
    std::vector<uint8_t> in(bytes);
    for (uint8_t& byte : in)
      byte = static_cast<uint8_t>(random() % skew ? random() % 2 : random() % values);
    std::vector<uint8_t> stored(HuffmanEncoder::room(bytes));
    HuffmanEncoder encoder;
    stored.resize(encoder.encode(in, stored.data()));
    stored.shrink_to_fit();  // a tool that watches memory sees a read behind it
    std::vector<uint8_t> room(bytes + 64, kGuard);
    const std::span<uint8_t> out(room.data() + 32, bytes);
    REQUIRE(huffman_decode(stored, out));
    REQUIRE(std::equal(in.begin(), in.end(), out.begin()));
    // Damage is refused or decodes to other bytes; neither writes outside.
    for (int damage = 0; damage < 4; ++damage) {
      std::vector<uint8_t> other = stored;
      if (damage == 0)
        other.resize(random() % other.size());
      else
        other[140 + random() % (other.size() - 140)] ^= static_cast<uint8_t>(1 + random() % 255);
      other.shrink_to_fit();
      const bool decoded = huffman_decode(other, out);
      CHECK((!decoded || damage != 0));
    }
    for (size_t i = 0; i < 32; ++i)
      REQUIRE((room[i] == kGuard && room[room.size() - 1 - i] == kGuard));
  }
}

TEST_CASE("a plane that zstd stored in a few bytes is taken for no other") {
  // Plane 0 of elements of two bytes is raw, plane 1 a zstd frame of a few bytes.
  auto frame_of = [](const std::vector<uint8_t>& low, std::span<const uint8_t> zstd) {
    std::vector<uint8_t> frame{2, 0};
    for (size_t n : {low.size(), zstd.size()}) {
      for (int shift = 0; shift < 32; shift += 8) frame.push_back(static_cast<uint8_t>(n >> shift));
      if (frame.size() == 6) frame.push_back(1);
    }
    frame.insert(frame.end(), low.begin(), low.end());
    frame.insert(frame.end(), zstd.begin(), zstd.end());
    return frame;
  };
  std::mt19937 random(13);
  for (int round = 0; round < 300; ++round) {
    const size_t elements = random() % 2 ? 5000 : 1 + random() % 9000;
    std::vector<uint8_t> low(elements), zstd(ZSTD_compressBound(elements));
    std::vector<uint8_t> high(elements, static_cast<uint8_t>(random() % 3));
    for (uint8_t& byte : low) byte = static_cast<uint8_t>(random());
    zstd.resize(ZSTD_compress(zstd.data(), zstd.size(), high.data(), elements, 1));
    REQUIRE(zstd.size() < 64);
    std::vector<uint8_t> again(2 * elements);
    REQUIRE(decompress_frame(kCodecPlanes, frame_of(low, zstd), again) == nullptr);
    for (size_t i = 0; i < elements; ++i)
      REQUIRE((again[2 * i] == low[i] && again[2 * i + 1] == high[i]));
    // The same bytes for a plane of another length, and less of them, and none.
    low.push_back(1);
    again.resize(2 * low.size());
    CHECK(decompress_frame(kCodecPlanes, frame_of(low, zstd), again) != nullptr);
    low.pop_back();
    again.resize(2 * elements);
    const size_t cut = random() % zstd.size();
    CHECK(decompress_frame(kCodecPlanes, frame_of(low, std::span(zstd).first(cut)), again) !=
          nullptr);
    if (random() % 2) CHECK(decompress_frame(kCodecPlanes, frame_of(low, {}), again) != nullptr);
  }
}
