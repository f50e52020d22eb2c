// Contents that an attacker made to have one name: they have two. And stores that named chunks by a
// hash with a public secret can still be read, and written.
#include <xxhash.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>

#include "base/hash/chunk_hash.h"
#include "store/format/chunk_lanes.h"
#include "testing.h"

using namespace gpuckpt;
using namespace gpuckpt::store;

namespace {

using Bytes = std::vector<uint8_t>;

// All `step`s have one XXH3-128: where the upper half of a lane is the secret's, its lower half is
// multiplied by 0 and only added, and two stripes of a block cancel each other.
Bytes colliding(size_t size, uint64_t step) {
  Bytes out(size, 'x');
  const uint64_t first = uint64_t{0xbe4ba423} << 32 | (1000 + step),
                 second = uint64_t{0x1cad21f7} << 32 | (5000 - step);
  memcpy(&out[0], &first, 8);
  memcpy(&out[64], &second, 8);
  return out;
}

Bytes noise(uint32_t seed, size_t size) {
  std::mt19937 random(seed);
  Bytes out(size);
  for (uint8_t& b : out) b = static_cast<uint8_t>(random());
  return out;
}

std::array<uint8_t, 16> name(const HashTable& table, HashLanes lanes, const Bytes& bytes) {
  std::array<uint8_t, 16> out;
  hash_chunk(table, lanes, bytes.data(), bytes.size(), out.data());
  return out;
}

// What the text of the definition says, with numbers as long as they get.
std::array<uint8_t, 16> by_the_book(const HashTable& table, Bytes bytes) {
  __extension__ using Wide = unsigned __int128;
  Wide sum[2];
  for (int s = 0; s < 2; ++s)
    sum[s] = (Wide{table.term[s][0].high} << 64 | table.term[s][0].low) +
             (Wide{table.term[s][1].high} << 64 | table.term[s][1].low) * bytes.size();
  bytes.resize((bytes.size() + 63) / 64 * 64);
  for (size_t block = 0; block * 4096 < bytes.size(); ++block)
    for (size_t j = 0; j < 4; ++j) {
      uint64_t lane = 0;
      for (size_t at = block * 4096; at < std::min(bytes.size(), block * 4096 + 4096); at += 8) {
        uint32_t m[2];
        memcpy(m, &bytes[at], 8);
        const uint32_t* key = table.nh + (at % 4096) / 4 + 128 * j;
        lane += uint64_t{m[0] + key[0]} * (m[1] + key[1]);
      }
      for (int s = 0; s < 2; ++s) {
        const auto& t = table.term[s][2 + 4 * block + j];
        sum[s] += (Wide{t.high} << 64 | t.low) * lane;
      }
    }
  std::array<uint8_t, 16> out;
  for (int s = 0; s < 2; ++s)
    for (int i = 0; i < 8; ++i)
      out[static_cast<size_t>(8 * s + i)] = static_cast<uint8_t>(sum[s] >> (120 - 8 * i));
  return out;
}

}  // namespace

TEST_CASE("the key becomes what ChaCha20 makes of it") {
  // The stream for a key of zeros, as eSTREAM's vectors for 128 bits have it.
  HashTable table;
  expand_hash_key({}, &table);
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(&table);
  CHECK(hex(bytes, 16) == "89670952608364fd00b2f90936f031c8");
  HashTable other;
  expand_hash_key({{1}}, &other);
  CHECK(memcmp(&table, &other, sizeof(table)) != 0);
}

TEST_CASE("every way to compute a name gives the same, at any length and address") {
  HashTable table;
  expand_hash_key({{1, 2, 3, 4}}, &table);
  size_t count;
  const NamedLanes* all = all_lanes(&count);
  std::set<std::array<uint8_t, 16>> seen;
  size_t made = 0;
  for (size_t size : {1,   2,    7,    8,    63,   64,   65,    100,   240,   241,  512,
                      513, 4032, 4095, 4096, 4097, 8192, 12345, 61440, 65535, 65536}) {
    const Bytes bytes = noise(static_cast<uint32_t>(size), size);
    const auto wanted = by_the_book(table, bytes);
    INFO("size " << size);
    CHECK(name(table, hash_lanes, bytes) == wanted);
    for (size_t i = 0; i < count; ++i) {
      CHECK(name(table, all[i].lanes, bytes) == wanted);
      for (size_t shift : {1, 3, 8, 17}) {
        Bytes moved(shift);
        moved.insert(moved.end(), bytes.begin(), bytes.end());
        std::array<uint8_t, 16> out;
        hash_chunk(table, all[i].lanes, moved.data() + shift, size, out.data());
        CHECK(out == wanted);
      }
    }
    const Bytes zeros(size);
    std::array<uint8_t, 16> zero;
    hash_zeros(table, size, zero.data());
    CHECK(zero == name(table, hash_lanes, zeros));
    seen.insert(wanted), seen.insert(zero);
    made += 2;
  }
  CHECK(seen.size() == made);  // zeros of different lengths differ, too
}

TEST_CASE("contents that collide without a key do not with one") {
  HashTable table;
  expand_hash_key({{9, 9}}, &table);
  for (size_t size : {size_t{4096}, size_t{65536}}) {
    std::set<std::array<uint8_t, 16>> names;
    for (uint64_t step = 0; step < 100; ++step) {
      REQUIRE(sum128(colliding(size, step).data(), size) ==
              sum128(colliding(size, 0).data(), size));
      names.insert(name(table, widest_lanes(), colliding(size, step)));
    }
    CHECK(names.size() == 100);
  }
}

TEST_CASE("pages that collide without a key come back each as it was") {
  TemporaryDirectory dir;
  const bool encrypted = GENERATE(false, true);
  std::unique_ptr<Store> store;
  Store::Options options{.create = true};
  if (encrypted) {
    options.key_file = dir.path() + "/key";
    std::ofstream(options.key_file) << std::string(32, 'k');
    std::filesystem::permissions(options.key_file, std::filesystem::perms::owner_read);
  }
  REQUIRE_OK(Store::open(dir.store(), options, &store));
  std::unique_ptr<SnapshotWriter> writer;
  REQUIRE_OK(store->begin({}, &writer));
  for (uint64_t i = 0; i < 20; ++i) {
    REQUIRE_OK(writer->put(0, i * 4096, colliding(4096, i)));
    REQUIRE_OK(writer->put(0x1000000, i * 65536, colliding(65536, i)));
  }
  CommitResult result;
  REQUIRE_OK(writer->commit("{}", &result));
  std::unique_ptr<SnapshotReader> reader;
  REQUIRE_OK(store->open_snapshot(result.id, &reader));
  for (uint64_t i = 0; i < 20; ++i) {
    for (const auto& [space, size] :
         {std::pair{uint64_t{0}, size_t{4096}}, std::pair{uint64_t{0x1000000}, size_t{65536}}}) {
      Bytes got(size);
      REQUIRE_OK(reader->read(space, i * size, got));
      CHECK(got == colliding(size, i));
    }
  }
}

TEST_CASE("two stores name the same differently, and can be compared") {
  TemporaryDirectory one, other;
  std::unique_ptr<Store> stores[2];
  std::unique_ptr<SnapshotReader> readers[2];
  for (int i = 0; i < 2; ++i) {
    REQUIRE_OK(Store::open((i ? other : one).store(), {.create = true}, &stores[i]));
    std::unique_ptr<SnapshotWriter> writer;
    REQUIRE_OK(stores[i]->begin({}, &writer));
    for (uint64_t at = 0; at < 10; ++at)
      REQUIRE_OK(
          writer->put(0, at * 4096, noise(static_cast<uint32_t>(at == 3 && i ? 99 : at), 4096)));
    CommitResult result;
    REQUIRE_OK(writer->commit("{}", &result));
    REQUIRE_OK(stores[i]->open_snapshot(result.id, &readers[i]));
  }
  CHECK(readers[0]->named_extents(0)[0].name != readers[1]->named_extents(0)[0].name);
  std::vector<Difference> differences;
  REQUIRE_OK(compare(*readers[0], *readers[1], &differences));
  REQUIRE(differences.size() == 1);
  CHECK(differences[0].address == 3 * 4096);
  CHECK(differences[0].length == 4096);
}

TEST_CASE("a store of format version 2 is read and goes on") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  const std::string id(32, '7');
  std::ofstream(dir.store() + "/format", std::ios::trunc)
      << "{\"format\":\"gpuckpt store\",\"version\":2,\"id\":\"" << id << "\",\"check\":\""
      << hex(sum128(id.data(), id.size())) << "\"}\n";
  std::string ids[2];
  for (int round = 0; round < 2; ++round) {
    REQUIRE_OK(Store::open(dir.store(), {}, &store));
    CHECK(!store->names()->key());
    std::unique_ptr<SnapshotWriter> writer;
    REQUIRE_OK(store->begin({}, &writer));
    REQUIRE_OK(writer->put(0, 0, noise(1, 4096)));
    REQUIRE_OK(writer->put(0, 4096, noise(2 + static_cast<uint32_t>(round), 4096)));
    CommitResult result;
    REQUIRE_OK(writer->commit("{}", &result));
    CHECK(result.new_bytes == (round ? 4096 : 8192));  // what was there is found by its old name
    CHECK(result.warning.find("format version 2") != std::string::npos);
    ids[round] = result.id;
    std::unique_ptr<SnapshotReader> reader;
    REQUIRE_OK(store->open_snapshot(result.id, &reader));
    Bytes got(4096);
    REQUIRE_OK(reader->read(0, 0, got));
    CHECK(got == noise(1, 4096));
  }
  // Its format is made again as what it was.
  std::filesystem::remove(dir.store() + "/format");
  RepairReport report;
  REQUIRE_OK(Store::repair(dir.store(), {}, false, &report));
  CHECK(report.format_rewritten);
  CHECK(report.whole.size() == 2);
  REQUIRE_OK(Store::open(dir.store(), {}, &store));
  CHECK(!store->names()->key());
}

TEST_CASE("the key of the names is not lost with the file that says it") {
  TemporaryDirectory dir;
  std::unique_ptr<Store> store;
  REQUIRE_OK(Store::open(dir.store(), {.create = true}, &store));
  const HashKey key = *store->names()->key();
  std::unique_ptr<SnapshotWriter> writer;
  REQUIRE_OK(store->begin({}, &writer));
  REQUIRE_OK(writer->put(0, 0, noise(1, 4096)));
  CommitResult result;
  REQUIRE_OK(writer->commit("{}", &result));
  store.reset();
  std::filesystem::remove(dir.store() + "/format");
  RepairReport report;
  REQUIRE_OK(Store::repair(dir.store(), {}, false, &report));
  CHECK(report.whole.size() == 1);
  REQUIRE_OK(Store::open(dir.store(), {}, &store));
  CHECK(*store->names()->key() == key);
  VerifyReport verified;
  REQUIRE_OK(store->verify({.full = true}, &verified));
  CHECK(verified.ok());
}
