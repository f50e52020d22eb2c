// The worked example of docs/FORMAT.md: writes it, prints it as the page shows it, or checks that
// the page shows it so.
//
//   store_format_example DIR            writes the example store, and `expected/` beside it for
//   other readers store_format_example --print        the example's files as hexadecimal text
//   store_format_example --check PAGE   exit 1 when the page's example is not what the code writes

#include <unistd.h>
#include <zstd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "faulty_env.h"
#include "store/format/format.h"
#include "store/store.h"

using namespace gpuckpt;
using namespace gpuckpt::store;
namespace fs = std::filesystem;

namespace {

void must(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "{}\n", status.text());
  exit(1);
}

// Always the same time and the same random numbers: 00 01 02 ...
class FixedEnv : public FaultyEnv {
 public:
  FixedEnv() { clock_ns = 1'800'000'000'250'000'000; }
  void random(void* out, size_t length) override {
    for (size_t i = 0; i < length; ++i) static_cast<uint8_t*>(out)[i] = static_cast<uint8_t>(i);
  }
};

std::string write_example(const std::string& path) {
  static FixedEnv env;
  std::unique_ptr<Store> store;
  std::unique_ptr<SnapshotWriter> writer;
  must(Store::open(path, {.env = &env, .create = true}, &store));
  must(store->begin({.job = "demo", .level = 0}, &writer));
  // Page 0x1000: "A" once and zeros; page 0x2000: the same again; then 8 KiB of zeros; device
  // memory of 5 bytes.
  std::vector<uint8_t> page(4096);
  page[0] = 'A';
  must(writer->put(0, 0x1000, page));
  must(writer->put(0, 0x2000, page));
  must(writer->put_zero(0, 0x3000, 8192));
  must(writer->put(0x1000000, 0x10000000, std::vector<uint8_t>{'h', 'e', 'l', 'l', 'o'}));
  must(writer->append_blob("note", std::vector<uint8_t>{'h', 'i'}));
  CommitResult result;
  must(writer->commit(R"({"pid":7})", &result));
  return result.id;
}

std::vector<uint8_t> load(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void dump(std::string* out, std::span<const uint8_t> bytes, size_t from) {
  std::string last;
  bool starred = false;
  for (size_t at = 0; at < bytes.size(); at += 16) {
    std::string line, text;
    for (size_t i = at; i < at + 16 && i < bytes.size(); ++i) {
      line += fmt::format(" {:02x}", bytes[i]);
      text += bytes[i] >= 32 && bytes[i] < 127 ? static_cast<char>(bytes[i]) : '.';
    }
    if (line == last && at + 16 < bytes.size()) {
      if (!starred) *out += "*\n";
      starred = true;
      continue;
    }
    starred = false;
    last = line;
    *out += fmt::format("{:06x} {:<48}  {}\n", from + at, line, text);
  }
}

std::string describe(const std::string& path, const std::string& id) {
  std::string out;
  std::vector<uint8_t> format = load(path + "/format");
  out += "format\n" + std::string(format.begin(), format.end()) + "\n";
  for (const auto& entry : fs::directory_iterator(path + "/packs")) {
    out += "packs/" + entry.path().filename().string() + "\n";
    dump(&out, load(entry.path()), 0);
  }
  out += "\nsnapshots/" + id + ".manifest (header and meta)\n";
  std::vector<uint8_t> manifest = load(path + "/snapshots/" + id + ".manifest");
  ManifestHeader header;
  memcpy(&header, manifest.data(), sizeof(header));
  // Versions of the zstd library compress the body differently, so the lengths and sums that depend
  // on it are left out.
  dump(&out, std::span(manifest).first(16), 0);
  dump(&out, std::span(manifest).subspan(sizeof(header), header.meta_length), sizeof(header));
  std::vector<uint8_t> body(header.body_plain_length);
  ZSTD_decompress(body.data(), body.size(), manifest.data() + sizeof(header) + header.meta_length,
                  header.body_length);
  out += "\nits body, decompressed\n";
  dump(&out, body, 0);
  return out;
}

void save(const fs::path& path, std::span<const uint8_t> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// A second snapshot with everything a reader can meet, and what it should find:
// expected/ID/SPACE-ADDRESS, .../blob-NAME.
void write_more(const std::string& path) {
  std::unique_ptr<Store> store;
  must(Store::open(path, {}, &store));
  for (int round = 0; round < 2; ++round) {
    std::unique_ptr<SnapshotWriter> writer;
    must(store->begin({.job = "more", .level = 3}, &writer));
    struct Piece {
      uint64_t space, address;
      std::vector<uint8_t> bytes;
    };
    std::vector<Piece> pieces;
    std::mt19937 noise(1);
    for (uint64_t i = 0; i < 6; ++i) {
      std::vector<uint8_t> bytes(300 * 4096 + (i % 2 ? 0 : i * 100));
      for (size_t k = 0; k < bytes.size(); ++k) {
        bytes[k] = static_cast<uint8_t>(
            k / 4096 % 5 == 0 ? 0 : (k * 2654435761u >> 7) % (k / 4096 % 3 ? 11 : 251));
      }
      if (i == 5) {  // numbers of two bytes, one of them noise: planes
        for (size_t k = 0; k < bytes.size(); ++k)
          bytes[k] = static_cast<uint8_t>(k % 2 ? noise() % 5 : noise());
      }
      if (round) bytes[5000 * (i + 1)] ^= 1;
      uint64_t space = i < 2 ? 0 : i == 2 ? 0x100 : i == 3 ? 0x10000 : 0x1000000 + i - 4;
      pieces.push_back({space, 0x7f0000000000 + (i << 24), std::move(bytes)});
    }
    for (const Piece& piece : pieces) must(writer->put(piece.space, piece.address, piece.bytes));
    std::vector<uint8_t> blob(200001, 'b');
    for (size_t k = 0; k < blob.size(); k += 7) blob[k] = static_cast<uint8_t>(k);
    must(writer->append_blob("process", blob));
    must(writer->append_blob("empty", {}));
    CommitResult result;
    must(writer->commit(R"({"pid":8,"tag":"more"})", &result));
    std::string expected = path + ".expected/" + result.id;
    fs::create_directories(expected);
    for (const Piece& piece : pieces)
      save(fmt::format("{}/{:x}-{:x}", expected, piece.space, piece.address), piece.bytes);
    save(expected + "/blob-process", blob);
    save(expected + "/blob-empty", {});
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string argument = argc > 1 ? argv[1] : "";
  if (!argument.empty() && argument[0] != '-') {
    write_example(argument);
    write_more(argument);
    return 0;
  }
  std::string directory = "/tmp/gpuckpt-format-example.XXXXXX";
  if (!mkdtemp(directory.data())) return 1;
  std::string id = write_example(directory + "/store");
  std::string text = describe(directory + "/store", id);
  fs::remove_all(directory);
  if (argument == "--print") {
    fmt::print("{}", text);
    return 0;
  }
  if (argument != "--check" || argc != 3) return 2;
  std::ifstream in(argv[2]);
  std::ostringstream page;
  page << in.rdbuf();
  if (page.str().find("```\n" + text + "```\n") == std::string::npos) {
    fmt::print(stderr, "{} does not show what the code writes, which is now:\n{}", argv[2], text);
    return 1;
  }
  return 0;
}
