#include "store/codec/crypt.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "store/io/env.h"

namespace gpuckpt::store {
namespace {

constexpr size_t kNonce = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr size_t kTag = crypto_aead_xchacha20poly1305_ietf_ABYTES;
static_assert(kNonce + kTag == Keys::kOverhead);
static_assert(crypto_shorthash_siphashx24_KEYBYTES == 16 &&
              crypto_shorthash_siphashx24_BYTES == 16);
constexpr size_t kLeastKey = 32;
constexpr size_t kMostKey = 64 * 1024;

Status read_key_file(const std::string& path, std::vector<uint8_t>* out) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return Status::Error(io_error("open key file", path, errno).text());
  struct stat st;
  bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
  out->resize(kMostKey + 1);
  ssize_t n = regular ? ::read(fd, out->data(), out->size()) : -1;
  ::close(fd);
  if (n < 0) return Status::Error(fmt::format("key file {} is not a file that can be read", path));
  out->resize(static_cast<size_t>(n));
  if (st.st_mode & 077) {
    return Status::Refused(
        fmt::format("key file {} can be used by others (mode {:o}): chmod 600 {}", path,
                    st.st_mode & 07777, path));
  }
  if (out->size() < kLeastKey || out->size() > kMostKey) {
    return Status::Refused(
        fmt::format("key file {} has {} bytes; a key is 32 bytes to 64 KiB of random data: "
                    "make one with `head -c 32 /dev/urandom > {}`",
                    path, out->size(), path));
  }
  return Status::Ok();
}

}  // namespace

Status Keys::load(const std::string& key_file, const std::string& store_id,
                  std::shared_ptr<const Keys>* out) {
  if (sodium_init() < 0) return Status::Error("libsodium does not start");
  std::vector<uint8_t> secret;
  if (Status status = read_key_file(key_file, &secret); !status.ok()) return status;
  // master = BLAKE2b-256 of the file, keyed with the store's id: two stores share no key.
  uint8_t master[crypto_kdf_KEYBYTES];
  crypto_generichash(master, sizeof(master), secret.data(), secret.size(),
                     reinterpret_cast<const uint8_t*>(store_id.data()), store_id.size());
  sodium_memzero(secret.data(), secret.size());
  std::shared_ptr<Keys> keys(new Keys);
  static const char kContext[crypto_kdf_CONTEXTBYTES + 1] = "gpuckpt1";
  crypto_kdf_derive_from_key(keys->name_key_, sizeof(keys->name_key_), 16, kContext, master);
  crypto_kdf_derive_from_key(keys->check_, sizeof(keys->check_), 17, kContext, master);
  crypto_kdf_derive_from_key(keys->hash_key_.byte, sizeof(keys->hash_key_.byte), 18, kContext,
                             master);
  for (unsigned i = 0; i < 4; ++i) {
    crypto_kdf_derive_from_key(keys->keys_[i], sizeof(keys->keys_[i]), i, kContext, master);
  }
  sodium_memzero(master, sizeof(master));
  *out = std::move(keys);
  return Status::Ok();
}

Keys::~Keys() { sodium_memzero(this, sizeof(*this)); }

std::string Keys::check() const { return hex(check_, sizeof(check_)); }

ChunkName Keys::name(const ChunkName& plain) const {
  ChunkName out;
  crypto_shorthash_siphashx24(out.data(), plain.data(), plain.size(), name_key_);
  return out;
}

std::vector<uint8_t> Keys::seal(Purpose purpose, std::span<const uint8_t> context,
                                std::span<const uint8_t> plain) const {
  std::vector<uint8_t> out(kNonce + plain.size() + kTag);
  randombytes_buf(out.data(), kNonce);
  crypto_aead_xchacha20poly1305_ietf_encrypt(out.data() + kNonce, nullptr, plain.data(),
                                             plain.size(), context.data(), context.size(), nullptr,
                                             out.data(), keys_[purpose]);
  return out;
}

bool Keys::open(Purpose purpose, std::span<const uint8_t> context, std::span<const uint8_t> sealed,
                std::vector<uint8_t>* plain) const {
  if (sealed.size() < kOverhead) return false;
  plain->resize(sealed.size() - kOverhead);
  return crypto_aead_xchacha20poly1305_ietf_decrypt(
             plain->data(), nullptr, nullptr, sealed.data() + kNonce, sealed.size() - kNonce,
             context.data(), context.size(), sealed.data(), keys_[purpose]) == 0;
}

}  // namespace gpuckpt::store
